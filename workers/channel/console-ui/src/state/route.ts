/** Where the page is, and going elsewhere in it. */

import { useSyncExternalStore } from "react";
import { parse, type Route } from "./routes.ts";

const listeners = new Set<() => void>();
let current = parse(location.pathname, location.search, location.hash);

function moved(): void {
  current = parse(location.pathname, location.search, location.hash);
  listeners.forEach((listener) => listener());
}
addEventListener("popstate", moved);

export function useRoute(): Route {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => current,
  );
}

export function navigate(to: string, replace = false): void {
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  moved();
}
