/** Short messages at the edge of the page, and what a screen reader is told. */

import { Store } from "./store.ts";

export interface Notice {
  id: number;
  text: string;
  tone: "good" | "bad";
}

const SHOWN_MS = 6000;

export const notices = new Store<Notice[]>([]);
/** The last thing said in the polite live region. */
export const spoken = new Store<string>("");

let count = 0;

export function notify(text: string, tone: Notice["tone"] = "good"): void {
  const id = ++count;
  notices.update((all) => [...all.slice(-3), { id, text, tone }]);
  // A failure stays until it is dismissed: it may have to be read twice.
  if (tone === "good") setTimeout(() => dismiss(id), SHOWN_MS);
}

export function dismiss(id: number): void {
  notices.update((all) => all.filter((notice) => notice.id !== id));
}

export function say(text: string): void {
  spoken.set(text);
}
