/** Which revision of MCP Apps a view and this page speak: pure. */

/** Reviewed, newest first. They differ in no message that either side sends. */
const REVISIONS = ["2026-01-26", "2025-11-21"] as const;
export type Revision = (typeof REVISIONS)[number];

/**
 * The revision of the answer to `ui/initialize`, or null when there is none in common.
 *
 * A view that speaks a newer one is answered with our newest, as a server of the protocol answers a
 * client; it may go away. One that asks for anything else has none in common with us.
 */
export function revision(requested: unknown): Revision | null {
  if (typeof requested !== "string") return null;
  const same = REVISIONS.find((own) => own === requested);
  if (same !== undefined) return same;
  const date = /^20\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$/.test(requested);
  return date && requested > REVISIONS[0] ? REVISIONS[0] : null;
}
