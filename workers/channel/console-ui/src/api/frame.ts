/** One frame of a running reply, as it comes over the wire. */

import type { Frame } from "./types.ts";

/** The kinds that are known here; others are ignored. */
export const KINDS = ["status", "append", "replace", "event", "view", "input", "finish", "error"] as const;

/** Largest frame in bytes that is taken: another release may send larger ones than ours. */
export const MAX_READ = 8 * 1024 * 1024;

/**
 * Reads one; null for what is no object. One over the bound is an error of the reply, because a
 * reply without it would be another one.
 */
export function read(kind: (typeof KINDS)[number], data: string): Frame | null {
  // A letter takes one to three bytes, so most are known to fit without counting.
  if (data.length * 3 > MAX_READ && new TextEncoder().encode(data).byteLength > MAX_READ) {
    const message = "A part of the answer is larger than this page reads. Open the conversation again to see what was kept.";
    return { type: "error", failure: { kind: "frame_too_large", message } };
  }
  try {
    const body: unknown = JSON.parse(data);
    if (typeof body !== "object" || body === null || Array.isArray(body)) return null;
    return { ...body, type: kind } as Frame;
  } catch {
    return null;
  }
}
