/** How many apps are open in a page at once. */

import { OPEN_VIEWS } from "./limits.ts";

const views = new Map<string, () => void>();

/** A further one is open; the one that was opened first makes room where there are too many. */
export function enter(view: string, close: () => void): void {
  views.set(view, close);
  const [first] = views;
  if (views.size <= OPEN_VIEWS || first === undefined) return;
  // At once: it takes its time to close, and the next one is not to close it again.
  views.delete(first[0]);
  first[1]();
}

export function leave(view: string): void {
  views.delete(view);
}
