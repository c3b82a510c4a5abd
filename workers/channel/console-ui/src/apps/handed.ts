/** Files that an app hands over, out of the content of its request. Pure. */

export interface HandedFile {
  /** The end of its address: its name is made of that. */
  uri: string;
  mimeType: string;
  bytes: Uint8Array<ArrayBuffer>;
}

/** Files of one request. */
export const FILES = 10;
/** Characters of an address that count. */
const URI_CHARS = 1024;
/** Bytes of a file that are shown before it is saved. */
const HEAD_BYTES = 4096;

/** The address of a resource that is named and not sent along. */
export function linked(content: unknown): string | null {
  const { type, uri } = (content ?? {}) as { type?: unknown; uri?: unknown };
  return type === "resource_link" && typeof uri === "string" ? uri : null;
}

/** An embedded resource with a text, or with bytes in base64; null for anything else. */
export function embedded(content: unknown): HandedFile | null {
  const { type, resource } = (content ?? {}) as { type?: unknown; resource?: unknown };
  if (type !== "resource" || typeof resource !== "object" || resource === null) return null;
  const { uri, mimeType, text, blob } = resource as Record<string, unknown>;
  const bytes = typeof text === "string" && blob === undefined ? new TextEncoder().encode(text) : text === undefined ? decoded(blob) : null;
  if (bytes === null) return null;
  const address = typeof uri === "string" ? (uri.split(/[?#]/)[0] ?? "") : "";
  return { uri: address.slice(-URI_CHARS), mimeType: typeof mimeType === "string" ? mimeType.slice(0, 128) : "", bytes };
}

function decoded(blob: unknown): Uint8Array<ArrayBuffer> | null {
  if (typeof blob !== "string") return null;
  try {
    const raw = atob(blob);
    const bytes = new Uint8Array(raw.length);
    for (let at = 0; at < raw.length; at += 1) bytes[at] = raw.charCodeAt(at);
    return bytes;
  } catch {
    return null;
  }
}

/** What a person sees of a file before it is saved. */
export function head(file: HandedFile | undefined): string {
  return new TextDecoder().decode(file?.bytes.subarray(0, HEAD_BYTES));
}
