import type { Console } from "./page.ts";

/** Nothing was asked for elsewhere, and the page reported no error (also none of its policy). */
export function clean(console: Console): void {
  if (console.watch.foreign.length > 0) throw new Error(`requests left: ${console.watch.foreign.join(" ")}`);
  if (console.watch.errors.length > 0) throw new Error(`errors: ${console.watch.errors.join("\n")}`);
}
