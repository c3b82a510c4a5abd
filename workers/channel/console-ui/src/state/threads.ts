/** The lists of threads, and what is done with a thread. */

import { api, sentence } from "../api/client.ts";
import { onHint } from "../api/hints.ts";
import type { Thread } from "../api/types.ts";
import { Store } from "./store.ts";
import { notify } from "./notices.ts";

export type Which = "active" | "archived";

export interface ThreadList {
  threads: Thread[];
  next: string | null;
  state: "empty" | "read" | "failed";
  error?: string;
}

const EMPTY: ThreadList = { threads: [], next: null, state: "empty" };

export const lists: Record<Which, Store<ThreadList>> = {
  active: new Store(EMPTY),
  archived: new Store(EMPTY),
};

/** A thread as one of the lists has it. */
export function listed(id: string, ...all: ThreadList[]): Thread | undefined {
  for (const { threads } of all) {
    const found = threads.find((thread) => thread.id === id);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** The thread that is open, as it was last read. */
export const openThread = new Store<Thread | null>(null);

/** Reads a list again, as far as it was read before. */
export async function readThreads(which: Which): Promise<void> {
  const list = lists[which];
  const wanted = Math.max(list.get().threads.length, 1);
  try {
    let threads: Thread[] = [];
    let next: string | null = null;
    do {
      const page = await api.threads(which, next);
      threads = joined(threads, page.threads);
      next = page.next;
    } while (next !== null && threads.length < wanted && threads.length < 1000);
    list.set({ threads, next, state: "read" });
  } catch (error) {
    list.update((value) => ({ ...value, state: value.state === "read" ? "read" : "failed", error: sentence(error) }));
  }
}

export async function readMoreThreads(which: Which): Promise<void> {
  const { next } = lists[which].get();
  if (next === null) return;
  try {
    const page = await api.threads(which, next);
    lists[which].update((value) => ({ ...value, threads: joined(value.threads, page.threads), next: page.next }));
  } catch (error) {
    notify(sentence(error), "bad");
  }
}

function joined(a: Thread[], b: Thread[]): Thread[] {
  const have = new Set(a.map((thread) => thread.id));
  return [...a, ...b.filter((thread) => !have.has(thread.id))];
}

function change(id: string, by: (thread: Thread) => Thread | null): void {
  for (const list of Object.values(lists)) {
    list.update((value) => ({
      ...value,
      threads: value.threads.flatMap((thread) => (thread.id === id ? (by(thread) ?? []) : thread)),
    }));
  }
}

async function doing(what: () => Promise<unknown>): Promise<boolean> {
  try {
    await what();
    return true;
  } catch (error) {
    notify(sentence(error), "bad");
    return false;
  } finally {
    void readThreads("active");
    if (lists.archived.get().state !== "empty") void readThreads("archived");
  }
}

export function rename(id: string, title: string): Promise<boolean> {
  change(id, (thread) => ({ ...thread, title, titleLocked: true }));
  return doing(() => api.changeThread(id, { title }));
}

export function setArchived(id: string, archived: boolean): Promise<boolean> {
  change(id, () => null);
  return doing(() => api.changeThread(id, { archived }));
}

export function setRead(id: string, read: boolean): Promise<boolean> {
  change(id, (thread) => ({ ...thread, unread: !read }));
  return doing(() => api.changeThread(id, { read }));
}

export function remove(id: string): Promise<boolean> {
  return doing(async () => {
    await api.deleteThread(id);
    change(id, () => null);
  });
}

/** Keeps the lists in step with the server; hints in a burst are one reading. */
export function keepThreads(): () => void {
  void readThreads("active");
  let timer: ReturnType<typeof setTimeout> | undefined;
  const stop = onHint((hint) => {
    if (hint.kind !== "threads" && hint.kind !== "thread" && hint.kind !== "all") return;
    clearTimeout(timer);
    timer = setTimeout(() => {
      void readThreads("active");
      if (lists.archived.get().state !== "empty") void readThreads("archived");
    }, 120);
  });
  return () => {
    clearTimeout(timer);
    stop();
  };
}
