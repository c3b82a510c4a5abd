/** Something of an app's, short enough to read and without what looks like a secret: pure. */

/** Bytes of a preview (spec s0, "MCP Apps"). */
const PREVIEW_BYTES = 2048;
const DEPTH = 4;
const ITEMS = 20;
const STRING_CHARS = 200;
const SECRET = /token|secret|passw|passphrase|credential|cookie|authori[sz]ation|api[-_]?key|private[-_]?key|session|bearer|otp/i;
export const REDACTED = "[redacted]";

/** The value with its depth, items and texts bounded, and values of secret-like keys replaced. */
export function bounded(value: unknown, depth = 0): unknown {
  if (typeof value === "string") return value.length > STRING_CHARS ? `${value.slice(0, STRING_CHARS)}…` : value;
  if (value === null || typeof value === "number" || typeof value === "boolean") return value;
  if (typeof value !== "object") return null;
  if (depth >= DEPTH) return "…";
  if (Array.isArray(value)) {
    const shown = value.slice(0, ITEMS).map((item: unknown) => bounded(item, depth + 1));
    return value.length > ITEMS ? [...shown, `… ${value.length - ITEMS} more`] : shown;
  }
  const entries = Object.entries(value);
  const shown = entries.slice(0, ITEMS).map(([key, item]): [string, unknown] => [
    key.slice(0, STRING_CHARS),
    SECRET.test(key) ? REDACTED : bounded(item, depth + 1),
  ]);
  if (entries.length > ITEMS) shown.push(["…", `${entries.length - ITEMS} more`]);
  // Without a prototype: a key may be `__proto__`.
  return Object.assign(Object.create(null) as object, Object.fromEntries(shown));
}

/** At most so many bytes of UTF-8, cut between characters. */
export function cut(text: string, bytes = PREVIEW_BYTES): { text: string; truncated: boolean } {
  const all = new TextEncoder().encode(text);
  if (all.length <= bytes) return { text, truncated: false };
  let end = bytes - 3;
  while (end > 0 && ((all[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  return { text: `${new TextDecoder().decode(all.subarray(0, end))}…`, truncated: true };
}

/** Indented JSON for a person. */
export function preview(value: unknown): { text: string; truncated: boolean } {
  return cut(JSON.stringify(bounded(value), null, 2) ?? "");
}
