/** What the states of a continuation mean, and what an operator can do about them: pure. */

import { ApiError } from "../api/client.ts";
import type { Continuation, ContinuationHealth, ContinuationPage, ContinuationState, Message } from "../api/types.ts";
import { count, plural, time } from "../ui/format.ts";
import { isId, threadPath } from "./routes.ts";

export const STATES: readonly ContinuationState[] = [
  "claimed",
  "result_received",
  "synthesizing",
  "ready_to_deliver",
  "delivery_retry",
  "delivered",
  "delivery_unknown",
  "expired",
  "cancelled",
  "dead_lettered",
];

/** What each state says to a person. */
export const MEANING: Record<ContinuationState, string> = {
  claimed: "A service works on it. The answer comes when it submits a result.",
  result_received: "The result is here and waits to be put into words.",
  synthesizing: "A model is asked to put the result into words. That is done once at most.",
  ready_to_deliver: "The answer is kept and about to be posted.",
  delivery_retry: "The channel could not take the answer, and posted nothing. It is tried again by itself.",
  delivered: "It has its receipt.",
  delivery_unknown: "It may have been posted, and nobody can say. It is not posted again by itself: look into the channel, and say here what you found.",
  expired: "The deadline passed before it was delivered. It is not posted any more.",
  cancelled: "An operator gave it up. It takes no result and posts nothing.",
  dead_lettered: "It can't be delivered, and nothing more happens by itself.",
};

/** What becomes of a result in each mode. */
export const MODES: Record<Continuation["mode"], string> = {
  reply: "an answer where the request came from",
  notify_if_actionable: "an answer if there is something to say",
  capture: "a text that is kept and posted nowhere",
  silent: "accepted, and that is all",
};

/** What is known of the conversation as it was when the work was begun. */
export const ORIGINS: Record<string, string> = {
  pending: "its turn is not over yet",
  pinned: "the conversation is kept as it was",
  abandoned: "its turn was not committed, so the answer says that the context is lost",
  detached_latest: "no turn began it; the latest history of its route",
  legacy_missing: "from an earlier version that kept none",
  scrubbed: "no longer needed, and gone",
};

/** Nothing more happens by itself, and nobody is asked. */
export function isSettled(state: ContinuationState): boolean {
  return state === "delivered" || state === "expired" || state === "cancelled" || state === "dead_lettered";
}

/** Something is still to happen by itself. */
export function isPending(state: ContinuationState): boolean {
  return !isSettled(state) && state !== "delivery_unknown";
}

/** What may be tried with a continuation. The service decides, and knows more than this. */
export interface Possible {
  /** `again`: what the channel certainly didn't post. `unsafe`: what it may have posted. `sooner`: no wait. */
  retry: "again" | "unsafe" | "sooner" | null;
  cancel: boolean;
  resolve: boolean;
}

export function possible(record: Continuation, now: number): Possible {
  const deadline = time(record.deadline);
  const inTime = deadline === null || deadline > now;
  const { state } = record;
  const retry = ((): Possible["retry"] => {
    if (state === "delivery_unknown") return inTime ? "unsafe" : null;
    if (state === "dead_lettered") {
      // Without a text there is nothing to send: a model is never asked twice.
      if (!inTime || record.completionKind === undefined) return null;
      // What an operator left is as unknown as before.
      return record.lastError?.code === "operator_dead_lettered" ? "unsafe" : "again";
    }
    if (state === "delivery_retry") return "sooner";
    return state === "result_received" && record.nextAttemptAt !== undefined ? "sooner" : null;
  })();
  return {
    retry,
    // What is being asked can't be taken back.
    cancel: isPending(state) && state !== "synthesizing",
    resolve: state === "delivery_unknown",
  };
}

/** A word of a command, as `monoctl` prints it. */
export function shellWord(text: string): string {
  if (/^(?!-)[\p{L}\p{N}._\-+,=@%/]+$/u.test(text)) return text;
  return `'${text.startsWith("-") ? "./" : ""}${text.replaceAll("'", "'\\''")}'`;
}

/** The same in a terminal, for what is possible. */
export function commands(record: Continuation, can: Possible): string[] {
  const id = shellWord(record.continuationId);
  const all = [`show ${id}`];
  if (can.resolve) all.push(`resolve ${id} delivered`, `resolve ${id} not-delivered`, `resolve ${id} dead-lettered`);
  if (can.retry !== null) all.push(`retry ${id}${can.retry === "unsafe" ? " --allow-unknown" : ""}`);
  if (can.cancel) all.push(`cancel ${id}`);
  return all.map((command) => `monoctl continuations ${command}`);
}

/** The command for the next page, as `monoctl continuations list` prints it. */
export function nextCommand(cursor: string): string {
  return `monoctl continuations list --cursor ${shellWord(cursor)}`;
}

/** One reason of a verdict. */
export interface Reason {
  text: string;
  remedy: string;
  /** The records that it is about. */
  state?: ContinuationState;
}

/** Why the verdict is what it is, the worst first. */
export function reasons(health: ContinuationHealth): Reason[] {
  const of = (state: ContinuationState): number => health.counts[state] ?? 0;
  const all: Reason[] = [];
  const unknown = of("delivery_unknown");
  if (unknown > 0) {
    all.push({
      text: unknown === 1 ? "Nobody knows whether 1 answer was posted." : `Nobody knows whether ${count(unknown)} answers were posted.`,
      remedy: "Look into the channel, then say what you found. Until then it counts against the limit of active ones.",
      state: "delivery_unknown",
    });
  }
  const dead = of("dead_lettered");
  if (dead > 0) {
    all.push({
      text: `${plural(dead, "answer")} can't be delivered.`,
      remedy: "Mend what the error names, then retry; what a model could not put into words has to be asked for again.",
      state: "dead_lettered",
    });
  }
  if (of("expired") > 0) {
    all.push({
      text: `${count(of("expired"))} came to ${of("expired") === 1 ? "its" : "their"} deadline without a delivery.`,
      remedy: "Nothing can be done about it; it goes with its tombstone.",
      state: "expired",
    });
  }
  const missing = health.storage.historyDegraded;
  if (missing > 0) {
    all.push({
      text: `${plural(missing, "answer was", "answers were")} posted that the agent doesn't remember.`,
      remedy: "It is not posted again. Tell the agent if it matters.",
      state: "delivered",
    });
  }
  if (health.clock !== undefined) {
    all.push({
      text: "The clock of the machine made a step that is not believed yet.",
      remedy: "Set the clock right. Until then nothing expires.",
    });
  }
  if (health.pending > 0) {
    all.push({ text: `${count(health.pending)} pending.`, remedy: "Work goes on by itself." });
  }
  return all;
}

const REMEDIES: Record<string, string> = {
  not_enabled: "Switch continuations on in the configuration and restart the daemon.",
  not_found: "Tombstones are kept for a bounded time. See the list.",
  delivery_unknown: "Look into the channel. Then say what you found, or send it again knowing that it may be read twice.",
  not_retryable: "It is over, being worked on, or past its deadline. Read how it stands now.",
  synthesis_not_retryable: "A model is never asked twice for the same result. Ask the agent to have the task done again.",
  already_terminal: "Somebody was faster, or it ended by itself. Read how it stands now.",
  continuation_in_flight: "A model or the channel is being asked at this moment. Wait until that is over.",
  not_delivery_unknown: "Somebody was faster. Read how it stands now.",
  resolution_in_progress: "Wait a moment, and read how it stands then.",
  continuation_expired: "Ask the agent to have the task done again.",
  invalid_resolution: "A delivery's id has 1 to 256 characters; leave it empty if you don't know it.",
  invalid_page_cursor: "Read the list from its beginning.",
  worker_unavailable: "See under Workers whether the continuation worker serves; its last line says what is wrong.",
  unavailable: "Read how it stands before you do it again.",
  service_stopping: "The daemon is stopping. Try again when it is back.",
  service_busy: "The disk is behind. Try again in a moment.",
  busy: "Try again in a moment.",
  unreachable: "Start the daemon, or look at its log.",
};

/** What to do about a refusal; null when its own sentence has to do. */
export function remedy(error: unknown): string | null {
  return error instanceof ApiError ? (REMEDIES[error.code] ?? null) : null;
}

export function isOff(error: unknown): boolean {
  return error instanceof ApiError && error.code === "not_enabled";
}

/** Where in the console an answer was posted; null for any other channel. */
export function postedAt(record: Continuation): string | null {
  const { receipt } = record;
  const thread = receipt?.channelId?.startsWith("web:") === true ? receipt.channelId.slice("web:".length) : null;
  if (receipt?.kind !== "delivered" || !isId(thread)) return null;
  return threadPath(thread, isId(receipt.deliveryId) ? receipt.deliveryId : undefined);
}

/** The list as far as it was wanted. */
export interface Gathered {
  records: Continuation[];
  /** Records that were looked at. */
  seen: number;
  next: string | null;
}

/**
 * Reads page after page, the newest first, until there are so many of one state (of any: null), or so many
 * pages were read: the service has no index by state, so neither does this pretend to.
 */
export async function gather(
  read: (cursor: string | null) => Promise<ContinuationPage>,
  state: ContinuationState | null,
  wanted: number,
  mostPages: number,
): Promise<Gathered> {
  const records = new Map<string, Continuation>();
  let next: string | null = null;
  let seen = 0;
  for (let pages = 0; pages < mostPages && records.size < wanted; pages += 1) {
    const page: ContinuationPage = await read(next);
    seen += page.continuations.length;
    for (const record of page.continuations) {
      if (state === null || record.state === state) records.set(record.continuationId, record);
    }
    next = page.nextCursor ?? null;
    if (next === null) break;
  }
  return { records: [...records.values()], seen, next };
}

/** Continuations that one message names at most. */
const MAX_IDS = 64;

function named(message: Message, name: string): string[] {
  const entries = message.activity.filter((entry) => entry.kind === "status" && entry.name === name);
  return entries.flatMap((entry) => {
    try {
      const ids: unknown = JSON.parse(entry.arguments ?? "[]");
      return Array.isArray(ids) ? ids.filter(isId).slice(0, MAX_IDS) : [];
    } catch {
      return [];
    }
  });
}

/** Continuations whose answers come after this message. */
export function begun(message: Message): string[] {
  return named(message, "background_work");
}

/** The continuation that this message is the answer of. */
export function answerOf(message: Message): string | null {
  return named(message, "background_task")[0] ?? null;
}

/** The answers among messages: a continuation's id with the message's. */
export function answers(messages: readonly Message[]): ReadonlyMap<string, string> {
  return new Map(
    messages.flatMap((message) => {
      const of = answerOf(message);
      return of === null ? [] : [[of, message.id] as const];
    }),
  );
}
