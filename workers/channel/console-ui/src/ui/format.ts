/** Figures as people read them: pure, with the time as an argument. */

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB"];

export function size(bytes: number): string {
  let value = Math.max(0, bytes);
  let unit = 0;
  while (value >= 1024 && unit < SIZES.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${SIZES[unit] ?? "B"}`;
}

export function duration(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} days ${hours % 24} h`;
}

export function count(value: number): string {
  return value.toLocaleString("en");
}

export function money(usd: number): string {
  return `$${usd.toFixed(usd < 0.1 ? 4 : 2)}`;
}

/** "1 file", "2 files". */
export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** How long ago, or how soon; `at` and `now` in milliseconds. */
export function relative(at: number, now: number): string {
  const gone = now - at;
  const far = Math.abs(gone);
  if (far < MINUTE) return gone >= 0 ? "just now" : "in a moment";
  const [value, unit] =
    far < HOUR
      ? [far / MINUTE, "minute"]
      : far < DAY
        ? [far / HOUR, "hour"]
        : far < 60 * DAY
          ? [far / DAY, "day"]
          : [far / (30.44 * DAY), "month"];
  // What is past has happened in full; what comes is as near as it rounds.
  const whole = plural(Math.max(1, gone >= 0 ? Math.floor(value) : Math.round(value)), unit);
  return gone >= 0 ? `${whole} ago` : `in ${whole}`;
}

/** The group of the thread list that a time belongs to. */
export function era(at: number, now: number): string {
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  if (at >= midnight) return "Today";
  if (at >= midnight - DAY) return "Yesterday";
  if (at >= midnight - 7 * DAY) return "Last 7 days";
  if (at >= midnight - 30 * DAY) return "Last 30 days";
  return "Older";
}

/** Milliseconds of a number or of a text of RFC 3339; null when it is neither. */
export function time(value: number | string | null | undefined): number | null {
  if (typeof value === "number") return Number.isFinite(value) ? value : null;
  if (typeof value !== "string") return null;
  const parsed = Date.parse(value);
  return Number.isNaN(parsed) ? null : parsed;
}
