/** Keys that work everywhere. All have a modifier, so none is in the way of writing or of a reader. */

import { useEffect, useRef } from "react";

export type Shortcut = "search" | "new" | "compose" | "stop" | "help" | "sidebar" | "next" | "previous";

export const SHORTCUTS: Record<Shortcut, { keys: string[]; does: string }> = {
  search: { keys: ["Ctrl", "K"], does: "Search" },
  new: { keys: ["Ctrl", "Alt", "N"], does: "New thread" },
  compose: { keys: ["Shift", "Escape"], does: "Go to the message field" },
  stop: { keys: ["Ctrl", "."], does: "Stop the answer" },
  previous: { keys: ["Alt", "↑"], does: "Previous thread" },
  next: { keys: ["Alt", "↓"], does: "Next thread" },
  sidebar: { keys: ["Ctrl", "B"], does: "Show or hide the sidebar" },
  help: { keys: ["Ctrl", "/"], does: "Show the shortcuts" },
};

function which(event: KeyboardEvent): Shortcut | null {
  const main = event.ctrlKey || event.metaKey;
  if (main && event.altKey && event.code === "KeyN") return "new";
  if (event.altKey && !main && event.key === "ArrowUp") return "previous";
  if (event.altKey && !main && event.key === "ArrowDown") return "next";
  if (event.shiftKey && !main && event.key === "Escape") return "compose";
  if (!main || event.altKey || event.shiftKey) return event.key === "/" && main && !event.altKey ? "help" : null;
  switch (event.key.toLowerCase()) {
    case "k":
      return "search";
    case ".":
      return "stop";
    case "b":
      return "sidebar";
    case "/":
      return "help";
    default:
      return null;
  }
}

const actions = new Map<Shortcut, (() => void)[]>();

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || document.querySelector("dialog[open]") !== null) return;
  const shortcut = which(event);
  const action = shortcut === null ? undefined : actions.get(shortcut)?.at(-1);
  if (action === undefined) return;
  event.preventDefault();
  action();
});

/** Does `action` on a shortcut as long as the component is there; the innermost counts. */
export function useShortcut(shortcut: Shortcut, action: () => void): void {
  const latest = useRef(action);
  latest.current = action;
  useEffect(() => {
    const mine = (): void => latest.current();
    const all = actions.get(shortcut) ?? [];
    actions.set(shortcut, [...all, mine]);
    return () => {
      actions.set(
        shortcut,
        (actions.get(shortcut) ?? []).filter((one) => one !== mine),
      );
    };
  }, [shortcut]);
}
