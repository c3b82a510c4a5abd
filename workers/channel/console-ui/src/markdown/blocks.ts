/**
 * Markdown to blocks of tokens, a growing text at the price of what grew.
 *
 * Text that is appended can change the last block only, so all others are kept. What a later
 * definition would add to an earlier block (`[link]: address`) shows when the text is complete.
 */

import MarkdownIt, { type Token } from "markdown-it";
import { maths } from "./maths.ts";
import { tasks } from "./tasks.ts";

export interface Block {
  /** Position of its first character: the same block has the same key while the text grows. */
  key: number;
  tokens: Token[];
}

/** Nothing of the text becomes markup of the page: there is no HTML in the output, only tokens. */
const md = new MarkdownIt({ html: false, linkify: true, typographer: false, breaks: false, maxNesting: 40 }).use(maths).use(tasks);
// Only what is written as an address is one: `example.com` stays text.
md.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
for (const schema of ["ftp:", "//", "mailto:"]) md.linkify.add(schema, null);
// The page decides on every address itself when it shows a link, and says so.
md.validateLink = () => true;

/** The blocks of a text, with the lines that each begins at. */
function parse(text: string, offset: number): Block[] {
  const tokens = md.parse(text, {});
  const starts: number[] = [0];
  for (const end of text.matchAll(/\r\n?|\n/g)) starts.push(end.index + end[0].length);
  const blocks: Block[] = [];
  let depth = 0;
  let current: Block | null = null;
  for (const token of tokens) {
    if (depth === 0 && token.nesting >= 0) {
      current = { key: offset + (starts[token.map?.[0] ?? 0] ?? 0), tokens: [] };
      blocks.push(current);
    }
    current?.tokens.push(token);
    depth += token.nesting;
  }
  return blocks;
}

export class Blocks {
  private text = "";
  private settled: Block[] = [];
  private offset = 0;
  private all: Block[] = [];

  /** The blocks of `text`; cheap when it begins with the text of the last call. */
  read(text: string, complete: boolean): Block[] {
    if (complete) {
      if (text !== this.text || this.offset >= 0) {
        this.all = parse(text, 0);
        this.text = text;
        // Nothing can be kept if it grows again after all.
        this.offset = -1;
        this.settled = [];
      }
      return this.all;
    }
    if (text === this.text && this.offset >= 0) return this.all;
    if (this.offset < 0 || !text.startsWith(this.text)) {
      this.settled = [];
      this.offset = 0;
    }
    const tail = parse(text.slice(this.offset), this.offset);
    this.all = [...this.settled, ...tail];
    this.text = text;
    const last = tail.at(-1);
    if (last !== undefined && last.key > this.offset) {
      this.settled = this.all.slice(0, -1);
      this.offset = last.key;
    }
    return this.all;
  }
}
