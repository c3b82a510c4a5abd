/** What an app may have opened: pure. */

import { LINK_CHARS } from "./limits.ts";

/**
 * An absolute https address without user and password; null for all else (spec s2, "Iframe policy
 * and AppBridge").
 */
export function link(text: unknown): { href: string; host: string } | null {
  // Control characters and blanks are dropped by a reader of addresses, so that what is shown
  // would not be what was asked for.
  if (typeof text !== "string" || text.length > LINK_CHARS || /[\u0000-\u0020\u007f\\]/.test(text)) return null;
  if (!/^https:\/\/[^/]/i.test(text)) return null;
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    return null;
  }
  if (url.protocol !== "https:" || url.username !== "" || url.password !== "" || url.host === "") return null;
  return { href: url.href, host: url.host };
}
