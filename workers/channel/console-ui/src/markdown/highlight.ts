/** Colours of code; loaded when the first block of a known language is shown. */

import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import cpp from "highlight.js/lib/languages/cpp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import markdown from "highlight.js/lib/languages/markdown";
import python from "highlight.js/lib/languages/python";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import { createLowlight } from "lowlight";

export type Piece = string | { className: string; children: Piece[] };

const lowlight = createLowlight({
  bash,
  c,
  cpp,
  css,
  diff,
  go,
  ini,
  java,
  javascript,
  json,
  markdown,
  python,
  rust,
  sql,
  typescript,
  xml,
  yaml,
});
lowlight.registerAlias({ bash: ["console"], json: ["jsonc", "ndjson"], ini: ["conf"] });

interface Node {
  type: string;
  value?: string;
  properties?: { className?: unknown };
  children?: Node[];
}

function pieces(nodes: Node[]): Piece[] {
  return nodes.map((node) =>
    node.type === "text"
      ? (node.value ?? "")
      : {
          className: Array.isArray(node.properties?.className) ? node.properties.className.join(" ") : "",
          children: pieces(node.children ?? []),
        },
  );
}

/** Null for a language that isn't known. */
export function highlight(code: string, language: string): Piece[] | null {
  if (!lowlight.registered(language)) return null;
  return pieces(lowlight.highlight(language, code).children as Node[]);
}
