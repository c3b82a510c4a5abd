/** Task lists: an item that begins with `[ ]` or `[x]` has a `task` token in place of that. */

import type { MarkdownIt, Token } from "markdown-it";

const MARK = /^\[([ xX])\]\s/;

export function tasks(md: MarkdownIt): void {
  md.core.ruler.after("inline", "tasks", (state) => {
    state.tokens.forEach((item, at) => {
      const [paragraph, inline] = [state.tokens[at + 1], state.tokens[at + 2]];
      if (item.type !== "list_item_open" || paragraph?.type !== "paragraph_open" || inline?.type !== "inline") return;
      const mark = MARK.exec(inline.content);
      const first = inline.children?.[0];
      // What is a link by a definition of the same name is no mark.
      if (mark === null || first?.type !== "text" || !/^\[[ xX]\]/.test(first.content)) return;
      first.content = first.content.slice(3).trimStart();
      const task = new state.Token("task", "", 0);
      task.meta = { done: mark[1] !== " " };
      inline.children?.unshift(task);
      item.meta = { task: true };
    });
  });
}

/** Whether the task of a `task` token is done. */
export function isDone(token: Token): boolean {
  return (token.meta as { done?: boolean } | null)?.done === true;
}

/** Whether a `list_item_open` token begins a task. */
export function isTask(token: Token): boolean {
  return (token.meta as { task?: boolean } | null)?.task === true;
}
