/** What of a file can be shown within the page: pure. */

export type Kind = "image" | "table" | "text" | "pdf" | "none";

/** Largest file that is shown, in bytes. */
export const MAX_PREVIEW = 5 * 1024 * 1024;

const TEXTS = new Set([
  "application/json",
  "application/xml",
  "application/javascript",
  "application/x-sh",
  "application/yaml",
  "application/toml",
  "application/x-ndjson",
]);

/**
 * By media type, never by content. SVG and HTML are text here: both can carry script, and shown as
 * what they are they would be a page of somebody else.
 */
export function kind(mediaType: string, name: string): Kind {
  const type = (mediaType.split(";")[0] ?? "").trim().toLowerCase();
  if (["image/png", "image/jpeg", "image/gif", "image/webp"].includes(type)) return "image";
  if (type === "text/csv" || type === "text/tab-separated-values") return "table";
  if (type === "application/pdf") return "pdf";
  if (type.startsWith("text/") || TEXTS.has(type) || type.endsWith("+json") || type.endsWith("+xml")) return "text";
  if (type === "application/octet-stream" && /\.(csv|tsv)$/i.test(name)) return "table";
  if (type === "application/octet-stream" && /\.(txt|md|log|json|ya?ml|toml|rs|ts|js|py|sh)$/i.test(name)) return "text";
  return "none";
}

/** The image type that the first bytes say; an image is shown as this and nothing else. */
export function imageType(bytes: Uint8Array): string | null {
  const begins = (...wanted: number[]): boolean => wanted.every((byte, index) => bytes[index] === byte);
  if (begins(0x89, 0x50, 0x4e, 0x47)) return "image/png";
  if (begins(0xff, 0xd8, 0xff)) return "image/jpeg";
  if (begins(0x47, 0x49, 0x46, 0x38)) return "image/gif";
  if (begins(0x52, 0x49, 0x46, 0x46) && bytes[8] === 0x57 && bytes[9] === 0x45) return "image/webp";
  return null;
}

export interface Table {
  rows: string[][];
  /** There are more rows or columns than these. */
  cut: boolean;
}

const MAX_ROWS = 1000;
const MAX_COLUMNS = 50;

/** Rows of comma- or tab-separated values (RFC 4180), so many of them as are shown. */
export function table(text: string): Table {
  const line = text.slice(0, Math.max(0, text.indexOf("\n")) || text.length);
  const separator = [",", "\t", ";"].reduce((a, b) => (line.split(b).length > line.split(a).length ? b : a));
  const rows: string[][] = [];
  let row: string[] = [];
  let cell = "";
  let quoted = false;
  let cut = false;
  const endCell = (): void => {
    if (row.length < MAX_COLUMNS) row.push(cell);
    else cut = true;
    cell = "";
  };
  const endRow = (): void => {
    endCell();
    if (row.length > 1 || row[0] !== "") rows.push(row);
    row = [];
  };
  for (let at = text.charCodeAt(0) === 0xfeff ? 1 : 0; at < text.length; at += 1) {
    const char = text[at];
    if (quoted) {
      if (char !== '"') cell += char;
      else if (text[at + 1] === '"') cell += text[(at += 1)];
      else quoted = false;
    } else if (char === '"' && cell === "") quoted = true;
    else if (char === separator) endCell();
    else if (char === "\n") {
      endRow();
      if (rows.length >= MAX_ROWS) return { rows, cut: cut || at + 1 < text.length };
    } else if (char !== "\r") cell += char;
  }
  if (cell !== "" || row.length > 0) endRow();
  return { rows, cut };
}
