/** A text of any length: the beginning as markdown, the whole as plain text on request. */

import { useMemo, useState, type ReactNode } from "react";
import { Markdown } from "../markdown/Markdown.tsx";
import { size } from "../ui/format.ts";

/** Characters that are drawn as markdown; about sixty pages. */
const MAX_DRAWN = 120_000;
/** Characters of one piece of the plain view; the browser skips pieces that are out of sight. */
const PIECE = 20_000;

export function LongText({ text, complete }: { text: string; complete: boolean }): ReactNode {
  const [whole, setWhole] = useState(false);
  if (text.length <= MAX_DRAWN) return <Markdown text={text} complete={complete} />;
  return (
    <>
      {whole ? <Plain text={text} /> : <Beginning text={text} />}
      <div className="long-note">
        <p>
          {whole
            ? "Shown whole, as plain text."
            : `This answer is long (${size(text.length)}). Its beginning is shown.`}
        </p>
        <button type="button" className="button small" onClick={() => setWhole(!whole)}>
          {whole ? "Show the beginning only" : "Show all as plain text"}
        </button>
        <button type="button" className="button small" onClick={() => save(text)}>
          Save as a text file
        </button>
      </div>
    </>
  );
}

function Beginning({ text }: { text: string }): ReactNode {
  // The cut is at a line's end where there is one near: half a table reads badly.
  const end = text.lastIndexOf("\n", MAX_DRAWN);
  return <Markdown text={text.slice(0, end > MAX_DRAWN / 2 ? end : MAX_DRAWN)} complete />;
}

function Plain({ text }: { text: string }): ReactNode {
  const pieces = useMemo(() => {
    const all: string[] = [];
    let at = 0;
    while (at < text.length) {
      const line = text.lastIndexOf("\n", at + PIECE);
      const end = line > at ? line + 1 : at + PIECE;
      all.push(text.slice(at, end));
      at = end;
    }
    return all;
  }, [text]);
  return (
    <div className="plain" role="region" aria-label="The whole answer as plain text" dir="auto">
      {pieces.map((piece, index) => (
        <div key={index} className="plain-piece">
          {piece}
        </div>
      ))}
    </div>
  );
}

function save(text: string): void {
  const address = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = "answer.txt";
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
