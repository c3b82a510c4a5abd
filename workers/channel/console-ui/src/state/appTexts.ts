/**
 * What apps want to say: kept context that goes with the next message, and messages they propose.
 * Both are seen in the composer, and nothing of it is sent but by a person.
 */

import { Store } from "./store.ts";

export interface KeptContext {
  view: string;
  thread: string;
  /** What the app is called here. */
  app: string;
  /** As it goes to the model. */
  text: string;
  /** Tells the server that it is not to go. */
  drop: () => void;
}

export interface Proposal {
  view: string;
  thread: string;
  app: string;
  text: string;
  /** It stands in the message that is being written. */
  placed?: true;
}

/** A draft outlives a reload of the page; so does the word that it is an app's. */
const KEY = "app-texts";

function stored(): Proposal[] {
  try {
    const all: unknown = JSON.parse(sessionStorage.getItem(KEY) ?? "[]");
    return Array.isArray(all) ? (all as Proposal[]) : [];
  } catch {
    // There is no storage, or what is there is none of ours.
    return [];
  }
}

export const contexts = new Store<KeptContext[]>([]);
export const proposals = new Store<Proposal[]>(stored());
proposals.subscribe(() => {
  const placed = proposals.get().filter((one) => one.placed === true);
  try {
    if (placed.length === 0) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, JSON.stringify(placed));
  } catch {
    // Storage is closed or full, and has no draft either.
  }
});

/** The last one of a view counts. */
export function keepContext(context: KeptContext): void {
  contexts.update((all) => [...all.filter((one) => one.view !== context.view), context]);
}

/** False when the thread has a proposal that was neither sent nor taken out yet. */
export function propose(proposal: Proposal): boolean {
  if (proposals.get().some((one) => one.thread === proposal.thread)) return false;
  proposals.update((all) => [...all, proposal]);
  return true;
}

export function placed(proposal: Proposal): void {
  proposals.update((all) => all.map((one) => (one === proposal ? { ...one, placed: true } : one)));
}

export function settle(proposal: Proposal): void {
  proposals.update((all) => all.filter((one) => one !== proposal));
}

/** A message of the thread was sent, with the context of these views. */
export function consumed(thread: string, views: readonly string[]): void {
  contexts.update((all) => all.filter((one) => !views.includes(one.view)));
  proposals.update((all) => all.filter((one) => one.thread !== thread || one.placed !== true));
}

/** A view has closed: its context goes, its proposal stays what it is, a text. */
export function forget(view: string): void {
  contexts.update((all) => all.filter((one) => one.view !== view));
}
