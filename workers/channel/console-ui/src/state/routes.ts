/** What a path means: pure. Nothing of it is used as an address or a credential. */

export type Route =
  | { page: "new" }
  | { page: "thread"; id: string; message: string | null }
  | { page: "search"; q: string }
  | { page: "runs" }
  | { page: "run"; id: string }
  | { page: "continuations" }
  | { page: "continuation"; id: string }
  | { page: "workers" }
  | { page: "files" }
  | { page: "settings" }
  | { page: "missing" };

/** Ids are opaque; what can't be one is no page. */
const ID = /^[A-Za-z0-9_.:-]{1,128}$/;

/** Whether a text can be an id, and so lead somewhere. */
export function isId(text: unknown): text is string {
  return typeof text === "string" && ID.test(text);
}

/** Pure. `path` begins with a slash, `search` with `?` or is empty, `hash` with `#` or is empty. */
export function parse(path: string, search = "", hash = ""): Route {
  const parts = path.split("/").filter((part) => part !== "");
  const [first, second] = parts;
  if (first === undefined) return { page: "new" };
  if (parts.length === 2 && second !== undefined && ID.test(second)) {
    if (first === "t") {
      const message = hash.startsWith("#m-") ? hash.slice(3) : "";
      return { page: "thread", id: second, message: ID.test(message) ? message : null };
    }
    if (first === "runs") return { page: "run", id: second };
    if (first === "continuations") return { page: "continuation", id: second };
  }
  if (parts.length === 1) {
    if (first === "search") return { page: "search", q: (new URLSearchParams(search).get("q") ?? "").slice(0, 200) };
    if (first === "runs" || first === "continuations" || first === "workers" || first === "files" || first === "settings") return { page: first };
  }
  return { page: "missing" };
}

/** The path of a thread. */
export function threadPath(id: string, message?: string): string {
  return `/t/${encodeURIComponent(id)}${message === undefined ? "" : `#m-${encodeURIComponent(message)}`}`;
}

/** The path of a continuation. */
export function continuationPath(id: string): string {
  return `/continuations/${encodeURIComponent(id)}`;
}
