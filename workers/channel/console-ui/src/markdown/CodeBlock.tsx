/** A block of code with a button to copy, highlighted once it is complete. */

import { memo, useEffect, useState, type ReactNode } from "react";
import { CopyButton } from "../ui/CopyButton.tsx";
import type { Piece } from "./highlight.ts";

/** Longer code is shown plain: colouring it would hold the page up. */
const MAX_COLOURED = 60_000;

export const CodeBlock = memo(function CodeBlock({
  code,
  language,
  open,
}: {
  code: string;
  language: string;
  /** More may come. */
  open: boolean;
}): ReactNode {
  const [coloured, setColoured] = useState<{ code: string; pieces: Piece[] } | null>(null);
  const wanted = !open && language !== "" && code.length <= MAX_COLOURED;
  useEffect(() => {
    if (!wanted) return undefined;
    let current = true;
    import("./highlight.ts").then(
      ({ highlight }) => {
        const pieces = highlight(code, language);
        if (current && pieces !== null) setColoured({ code, pieces });
      },
      // Without colours it is as readable.
      () => undefined,
    );
    return () => {
      current = false;
    };
  }, [wanted, code, language]);
  const shown = coloured?.code === code ? coloured.pieces.map(piece) : code;
  return (
    <figure className="code" aria-label={language === "" ? "Code" : `Code: ${language.slice(0, 40)}`}>
      <figcaption>
        <span className="muted">{language.slice(0, 40) || "text"}</span>
        <CopyButton text={code} label="Copy code" />
      </figcaption>
      <pre tabIndex={0} dir="ltr">
        <code>{shown}</code>
      </pre>
    </figure>
  );
});

function piece(value: Piece, index: number): ReactNode {
  if (typeof value === "string") return value;
  return (
    <span key={index} className={value.className}>
      {value.children.map(piece)}
    </span>
  );
}
