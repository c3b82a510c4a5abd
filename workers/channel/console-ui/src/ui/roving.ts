/** Arrow keys in a list whose items are one stop of the tab key. */

import type { KeyboardEvent } from "react";

/** Moves the focus among the elements of `selector`; true when the key was one of ours. */
export function step(event: KeyboardEvent, within: HTMLElement | null, selector: string): boolean {
  const items = [...(within?.querySelectorAll<HTMLElement>(selector) ?? [])];
  const at = items.indexOf(document.activeElement as HTMLElement);
  let next: number;
  if (event.key === "ArrowDown") next = at < 0 ? 0 : (at + 1) % items.length;
  else if (event.key === "ArrowUp") next = at < 0 ? items.length - 1 : (at - 1 + items.length) % items.length;
  else if (event.key === "Home") next = 0;
  else if (event.key === "End") next = items.length - 1;
  else return false;
  if (event.ctrlKey || event.metaKey || event.altKey || items.length === 0) return false;
  event.preventDefault();
  items[next]?.focus();
  return true;
}
