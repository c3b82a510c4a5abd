/** Fetches a reply file and makes sure that it is the one that was published. */

import { api } from "../api/client.ts";

/** What was published, and where it is. */
export interface Published {
  address: string;
  bytes: number;
  integrityId: string;
  /** Hexadecimal. */
  sha256?: string;
}

export interface Fetched {
  bytes: Uint8Array<ArrayBuffer>;
  /** The hash of what came is the published one; null when the browser can't compute it here. */
  verified: boolean | null;
}

/** Throws with a sentence for a person. */
export async function fetchFile(
  file: Published,
  onProgress: (part: number) => void,
  signal: AbortSignal,
): Promise<Fetched> {
  const response = await api.file(file.address, signal);
  const bytes = new Uint8Array(file.bytes);
  let at = 0;
  const reader = response.body?.getReader();
  if (reader === undefined) throw new Error("The file has no content.");
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    if (at + value.length > bytes.length) throw new Error("More came than was published; the file is not used.");
    bytes.set(value, at);
    at += value.length;
    onProgress(at / Math.max(1, bytes.length));
  }
  if (at !== bytes.length) throw new Error("The file came incomplete. Try again.");
  const wanted = hash(file);
  // Only pages of a secure origin (https, or this machine) can hash.
  if (wanted === null || crypto.subtle === undefined) return { bytes, verified: null };
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const found = [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  if (found !== wanted) throw new Error("What came is not what was published; the file is not used.");
  return { bytes, verified: true };
}

/** The published SHA-256 in hexadecimal; null when the file doesn't say. */
export function hash(part: { integrityId: string; sha256?: string }): string | null {
  const found = /^(?:sha256:)?([0-9a-f]{64})$/i.exec(part.sha256 ?? part.integrityId);
  return found?.[1]?.toLowerCase() ?? null;
}

/** Saves bytes under a name; the browser makes a file name of it that the system takes. */
export function save(bytes: Uint8Array<ArrayBuffer>, name: string): void {
  const address = URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
