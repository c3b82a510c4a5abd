/** What may cross between page and app: plain JSON of a bounded size. Pure. */

import { DEPTH, VALUES } from "./limits.ts";

/**
 * Bytes of the value's JSON; null when it is no plain JSON or is over `most` bytes, of more than `values`
 * values, or nested deeper than `deepest`. The walk ends as soon as that is known.
 */
export function weigh(value: unknown, most: number, values = VALUES, deepest = DEPTH): number | null {
  let left = most;
  const fits = (one: unknown, depth: number): boolean => {
    values -= 1;
    if (values < 0 || depth > deepest) return false;
    switch (typeof one) {
      case "string":
        left -= one.length + 2;
        return left >= 0;
      case "number":
        left -= 1;
        return Number.isFinite(one) && left >= 0;
      case "boolean":
        left -= 4;
        return left >= 0;
      case "object": {
        if (one === null) {
          left -= 4;
          return left >= 0;
        }
        if (Array.isArray(one)) {
          if (one.length > values) return false;
          // By index: a hole is no JSON, and a method of arrays would step over it.
          for (let at = 0; at < one.length; at += 1) if (!fits(one[at], depth + 1)) return false;
          return true;
        }
        const prototype: unknown = Object.getPrototypeOf(one);
        if (prototype !== Object.prototype && prototype !== null) return false;
        return Object.entries(one).every(([key, item]) => {
          left -= key.length + 3;
          // What JSON leaves out, libraries put into messages.
          return left >= 0 && (item === undefined || fits(item, depth + 1));
        });
      }
      default:
        return false;
    }
  };
  if (!fits(value, 0)) return null;
  const bytes = new TextEncoder().encode(JSON.stringify(value)).length;
  return bytes <= most ? bytes : null;
}

/** A bucket of messages: `burst` at once, then so many for each second. */
export class Rate {
  private readonly burst: number;
  private readonly perSecond: number;
  private left: number;
  private at: number;
  dropped = 0;

  constructor(burst: number, perSecond: number, now: number) {
    this.burst = burst;
    this.perSecond = perSecond;
    this.left = burst;
    this.at = now;
  }

  /** `now` in milliseconds. */
  take(now: number): boolean {
    this.left = Math.min(this.burst, this.left + (Math.max(0, now - this.at) / 1000) * this.perSecond);
    this.at = now;
    if (this.left < 1) {
      this.dropped += 1;
      return false;
    }
    this.left -= 1;
    return true;
  }
}
