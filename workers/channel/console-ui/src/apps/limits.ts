/** Bounds of what passes between the page and an app (spec s0, "Lifetime and limits"). */

/** JSON of a message that an app sends, in bytes. */
export const REQUEST_BYTES = 64 * 1024;
/** JSON of a message that an app is sent, in bytes. */
export const RESULT_BYTES = 1024 * 1024;
/** Values nested in each other in what an app is sent; the server reads no more. */
export const RESULT_DEPTH = 128;
/** A `ui/download-file`, which carries the files, in bytes: one of 20 MiB in base64. */
export const DOWNLOAD_BYTES = 28 * 1024 * 1024;
/** Values nested in each other in a message that an app sends. */
export const DEPTH = 64;
/** Values in a message that an app sends. */
export const VALUES = 50_000;

/** Requests that wait for `initialized`, and how long; real apps are too early now and then. */
export const EARLY_REQUESTS = 8;
export const EARLY_MS = 2000;
/** Requests of an app that are under way. */
export const REQUESTS_AT_ONCE = 32;

/** Messages of an app at once, and for each second; the rest is dropped. */
export const BURST = 200;
export const PER_SECOND = 60;
/** Dropped messages after which the app is stopped. */
export const STORM = 5000;

/** How often an app is asked for a sign of life, and how often in a row it may stay silent. */
export const PULSE_MS = 3000;
export const MISSED_PULSES = 5;

/** How long an app may take to close. */
export const TEARDOWN_MS = 1500;
/** Height of a view in the thread, in pixels. */
export const MIN_HEIGHT = 40;
export const FIRST_HEIGHT = 320;
export const MAX_HEIGHT = 2000;
/** Changes of the height within ten seconds after which it only grows. */
export const HEIGHT_CHANGES = 40;

/** Views that are open in a page; the one that was opened first makes room. */
export const OPEN_VIEWS = 8;
/** Requests of one app that wait for a person. */
export const WAITING_DECISIONS = 4;
/** Characters of a text that an app proposes as a message, and the pause between two. */
export const MESSAGE_CHARS = 16_384;
export const MESSAGE_PAUSE_MS = 3000;
/** Characters of an address that an app wants opened. */
export const LINK_CHARS = 8192;
