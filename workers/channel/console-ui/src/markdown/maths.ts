/** Maths in markdown: `$…$`, `$$…$$`, `\(…\)` and `\[…\]` become tokens with the source as content. */

import type { MarkdownIt } from "markdown-it";

const DOLLAR = 0x24;
const BACKSLASH = 0x5c;
/** Longest formula in characters; more is text. */
const MAX_LENGTH = 4000;

export function maths(md: MarkdownIt): void {
  md.inline.ruler.before("escape", "maths_inline", (state, silent) => {
    const { src, pos } = state;
    const code = src.charCodeAt(pos);
    let open: string;
    let close: string;
    if (code === BACKSLASH && (src[pos + 1] === "(" || src[pos + 1] === "[")) {
      open = src.slice(pos, pos + 2);
      close = open === "\\(" ? "\\)" : "\\]";
    } else if (code === DOLLAR) {
      open = src.startsWith("$$", pos) ? "$$" : "$";
      close = open;
    } else {
      return false;
    }
    const start = pos + open.length;
    const end = closing(src.slice(start, start + MAX_LENGTH + 2), close);
    if (end <= 0) return false;
    const content = src.slice(start, start + end);
    // `$5 and $6` is money: the inside of `$…$` neither begins nor ends with a blank, and no digit
    // follows it.
    if (open === "$" && (/^\s|\s$/.test(content) || /^\d/.test(src.slice(start + end + 1)))) return false;
    if (!silent) {
      const token = state.push(open === "$" || open === "\\(" ? "maths_inline" : "maths_block", "", 0);
      token.content = content.trim();
    }
    state.pos = start + end + close.length;
    return true;
  });

  md.block.ruler.before(
    "fence",
    "maths_block",
    (state, startLine, endLine, silent) => {
      const text = (line: number): string =>
        state.src.slice((state.bMarks[line] ?? 0) + (state.tShift[line] ?? 0), state.eMarks[line] ?? 0);
      const first = text(startLine);
      const open = first.startsWith("$$") ? "$$" : first.startsWith("\\[") ? "\\[" : null;
      if (open === null) return false;
      const close = open === "$$" ? "$$" : "\\]";
      let content = first.slice(2);
      let line = startLine;
      let length = 0;
      while (!content.trimEnd().endsWith(close)) {
        line += 1;
        if (line >= endLine || length > MAX_LENGTH) return false;
        const more = text(line);
        length += more.length;
        content += `\n${more}`;
      }
      const body = content.trimEnd().slice(0, -2).trim();
      if (body === "" || body.includes(close)) return false;
      if (silent) return true;
      const token = state.push("maths_block", "", 0);
      token.content = body;
      token.map = [startLine, line + 1];
      state.line = line + 1;
      return true;
    },
    { alt: ["paragraph", "reference", "blockquote", "list"] },
  );
}

/** Where `close` stands that no backslash escapes; −1 when nowhere. */
function closing(text: string, close: string): number {
  let at = text.indexOf(close);
  while (at > 0 && close.startsWith("$") && text[at - 1] === "\\") at = text.indexOf(close, at + 1);
  return at > MAX_LENGTH ? -1 : at;
}
