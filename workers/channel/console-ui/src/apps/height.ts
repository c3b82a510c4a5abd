/** How high a view is: pure. */

import { HEIGHT_CHANGES, MAX_HEIGHT, MIN_HEIGHT } from "./limits.ts";

const WINDOW_MS = 10_000;
/** Equal steps in a row after which another one is an echo of our own. */
const ECHOES = 8;

/** A height in pixels that can be shown; null for what is none. */
export function clamped(height: unknown): number | null {
  if (typeof height !== "number" || !Number.isFinite(height) || height < 0) return null;
  return Math.min(MAX_HEIGHT, Math.max(MIN_HEIGHT, Math.ceil(height)));
}

/**
 * Heights as an app reports them, until they settle.
 *
 * An app whose height depends on its frame's can go on for ever: always a bit more than it was given,
 * or up and down. The same step again and again ends; after many changes it may only grow.
 */
export class Height {
  private readonly changes: number[] = [];
  private step = 0;
  private echoes = 0;
  current: number;

  constructor(first: number) {
    this.current = first;
  }

  /** The new height, or null when it stays. `now` in milliseconds. */
  report(height: unknown, now: number): number | null {
    const next = clamped(height);
    if (next === null || next === this.current) return null;
    const step = next - this.current;
    if (step === this.step && this.echoes >= ECHOES) return null;
    while ((this.changes[0] ?? now) < now - WINDOW_MS) this.changes.shift();
    if (this.changes.length >= HEIGHT_CHANGES && next < this.current) return null;
    this.changes.push(now);
    if (this.changes.length > HEIGHT_CHANGES) this.changes.shift();
    this.echoes = step === this.step ? this.echoes + 1 : 1;
    this.step = step;
    this.current = next;
    return next;
  }
}
