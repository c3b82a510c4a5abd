/** The pages of a PDF as pictures. */

import { useEffect, useRef, useState, type ReactNode } from "react";
import { plural } from "../ui/format.ts";
import { Name } from "../ui/Name.tsx";
import { Loading } from "../ui/States.tsx";
import type { Opened } from "./pdf.ts";

/** Pages that are drawn before a button draws more. */
const STEP = 5;

export function Pdf({ bytes, name }: { bytes: Uint8Array<ArrayBuffer>; name: string }): ReactNode {
  const [file, setFile] = useState<Opened | null>(null);
  const [broken, setBroken] = useState(false);
  const [shown, setShown] = useState(STEP);

  useEffect(() => {
    let current = true;
    let opened: Opened | null = null;
    import("./pdf.ts")
      .then(({ open }) => open(bytes))
      .then(
        (found) => {
          opened = found;
          if (current) setFile(found);
          else found.close();
        },
        () => {
          if (current) setBroken(true);
        },
      );
    return () => {
      current = false;
      opened?.close();
    };
  }, [bytes]);

  if (broken) {
    return (
      <p className="preview-note">
        <Name>{name}</Name> can't be shown here. Download it and open it in a viewer.
      </p>
    );
  }
  if (file === null) return <Loading what="the file" />;
  const pages = Math.min(shown, file.pages);
  return (
    <>
      <div className="preview pdf" tabIndex={0} role="region" aria-label={`Content of ${name}`}>
        {Array.from({ length: pages }, (_, index) => (
          <PageView key={index} file={file} number={index + 1} onBroken={() => setBroken(true)} />
        ))}
      </div>
      <p className="preview-note">
        {pages} of {plural(file.pages, "page")}, as pictures.{" "}
        {pages < file.pages && (
          <button type="button" className="button small" onClick={() => setShown(shown + STEP)}>
            Show more
          </button>
        )}
      </p>
    </>
  );
}

function PageView({ file, number, onBroken }: { file: Opened; number: number; onBroken: () => void }): ReactNode {
  const canvas = useRef<HTMLCanvasElement>(null);
  const failed = useRef(onBroken);
  useEffect(() => {
    const target = canvas.current;
    if (target === null) return;
    file.draw(number, target, target.clientWidth || 600).then(
      () => target.setAttribute("data-drawn", ""),
      () => {
        // A page of a file that was closed meanwhile is no failure.
        if (target.isConnected) failed.current();
      },
    );
  }, [file, number]);
  return <canvas ref={canvas} role="img" aria-label={`Page ${number}`} />;
}
