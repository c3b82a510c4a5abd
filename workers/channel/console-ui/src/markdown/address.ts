/** What may become of an address in an answer: pure. */

export interface Address {
  /** As it is opened. */
  href: string;
  /** Host as it is sent, so that look-alikes of other scripts show as what they are. */
  host: string;
  kind: "web" | "mail";
}

/** Longest address that can be opened, in characters. */
const MAX_LENGTH = 4096;

/**
 * An address that can be opened after a question; null for all else (`javascript:`, `data:`, paths
 * of this server, names and passwords in it).
 */
export function address(text: string): Address | null {
  if (text.length > MAX_LENGTH) return null;
  let url: URL;
  try {
    // Without a base: what is relative would point into this server.
    url = new URL(text);
  } catch {
    return null;
  }
  if (url.protocol === "mailto:") return { href: url.href, host: url.pathname, kind: "mail" };
  if (url.protocol !== "http:" && url.protocol !== "https:") return null;
  if (url.username !== "" || url.password !== "") return null;
  return { href: url.href, host: url.host, kind: "web" };
}
