/** JSON with a line for each field, or the text as it is. Pure. */

/** Longest text that is shown, in characters; the server cuts at 16 KiB already. */
const MAX_SHOWN = 32_768;

export function readable(text: string): string {
  const cut = text.slice(0, MAX_SHOWN);
  try {
    const value: unknown = JSON.parse(cut);
    if (typeof value === "string") return value;
    return JSON.stringify(value, null, 2);
  } catch {
    return cut;
  }
}
