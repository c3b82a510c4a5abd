/** A file shown within the page; nothing of it is ever run. */

import { useEffect, useMemo, useState, type ReactNode } from "react";
import type { FilePart } from "../api/types.ts";
import { imageType, table, type Kind } from "./preview.ts";
import { Pdf } from "./Pdf.tsx";

/** Characters of a text that are drawn. */
const MAX_TEXT = 200_000;

export default function Preview({
  part,
  bytes,
  what,
}: {
  part: FilePart;
  bytes: Uint8Array<ArrayBuffer>;
  what: Kind;
}): ReactNode {
  switch (what) {
    case "image":
      return <Picture bytes={bytes} name={part.name} />;
    case "table":
      return <Values bytes={bytes} name={part.name} />;
    case "pdf":
      return <Pdf bytes={bytes} name={part.name} />;
    default:
      return <Text bytes={bytes} name={part.name} />;
  }
}

function Picture({ bytes, name }: { bytes: Uint8Array<ArrayBuffer>; name: string }): ReactNode {
  const [address, setAddress] = useState<string | null>(null);
  const [broken, setBroken] = useState(false);
  const type = imageType(bytes);
  useEffect(() => {
    if (type === null) return undefined;
    const made = URL.createObjectURL(new Blob([bytes], { type }));
    setAddress(made);
    return () => URL.revokeObjectURL(made);
  }, [bytes, type]);
  if (type === null || broken) return <p className="preview-note">The content is no image that can be shown.</p>;
  return (
    <div className="preview picture">
      {address !== null && <img src={address} alt={name} onError={() => setBroken(true)} />}
    </div>
  );
}

function decode(bytes: Uint8Array<ArrayBuffer>): string {
  return new TextDecoder("utf-8").decode(bytes);
}

function Text({ bytes, name }: { bytes: Uint8Array<ArrayBuffer>; name: string }): ReactNode {
  const text = useMemo(() => decode(bytes), [bytes]);
  return (
    <>
      <pre className="preview text" tabIndex={0} role="region" aria-label={`Content of ${name}`} dir="auto">
        {text.slice(0, MAX_TEXT)}
      </pre>
      {text.length > MAX_TEXT && <p className="preview-note">The beginning is shown; download it to see all.</p>}
    </>
  );
}

function Values({ bytes, name }: { bytes: Uint8Array<ArrayBuffer>; name: string }): ReactNode {
  const { rows, cut } = useMemo(() => table(decode(bytes)), [bytes]);
  const [head, ...body] = rows;
  return (
    <>
      <div className="preview table-scroll" tabIndex={0} role="region" aria-label={`Content of ${name}`}>
        <table>
          <thead>
            <tr>
              {head?.map((cell, index) => (
                <th key={index} scope="col" dir="auto">
                  {cell}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {body.map((row, index) => (
              <tr key={index}>
                {row.map((cell, column) => (
                  <td key={column} dir="auto">
                    {cell}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {cut && <p className="preview-note">The beginning is shown; download it to see all.</p>}
    </>
  );
}
