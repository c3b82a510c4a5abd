/**
 * Hints of what changed, one connection for all tabs of this browser.
 *
 * A browser opens six connections to one server, and every tab would hold one for good. So the tab
 * that holds a lock listens and tells the others; when it closes, another takes over.
 */

import { api } from "./client.ts";
import type { Hint } from "./types.ts";

type Listener = (hint: Hint) => void;
export type Link = "open" | "broken";

const KINDS = ["threads", "thread", "app", "runs", "status"] as const;
const NAME = "mono-console-hints";
const FIRST_RETRY_MS = 1000;
const LAST_RETRY_MS = 30_000;

const listeners = new Set<Listener>();
const linkListeners = new Set<(link: Link) => void>();
let link: Link = "open";
let started = false;

export function onHint(listener: Listener): () => void {
  listeners.add(listener);
  start();
  return () => listeners.delete(listener);
}

/** Whether hints arrive; for `useSyncExternalStore`. */
export const linkState = {
  subscribe(listener: () => void): () => void {
    linkListeners.add(listener);
    return () => linkListeners.delete(listener);
  },
  get: (): Link => link,
};

function setLink(next: Link): void {
  if (link === next) return;
  link = next;
  linkListeners.forEach((listener) => listener(next));
}

function tell(hint: Hint): void {
  listeners.forEach((listener) => listener(hint));
}

function start(): void {
  if (started) return;
  started = true;
  const others = "BroadcastChannel" in globalThis ? new BroadcastChannel(NAME) : null;
  if (others !== null) {
    others.onmessage = ({ data }: MessageEvent<{ hint?: Hint; link?: Link }>) => {
      if (data.hint !== undefined) tell(data.hint);
      if (data.link !== undefined) setLink(data.link);
    };
  }
  const lead = (): void =>
    listen(
      (hint) => {
        tell(hint);
        others?.postMessage({ hint });
      },
      (next) => {
        setLink(next);
        others?.postMessage({ link: next });
      },
    );
  if (others === null || navigator.locks === undefined) return lead();
  void navigator.locks.request(NAME, () => {
    lead();
    // Held until the tab closes.
    return new Promise(() => undefined);
  });
}

function listen(hint: Listener, state: (link: Link) => void): void {
  let retry = FIRST_RETRY_MS;
  let first = true;
  const open = (): void => {
    const source = new EventSource(api.eventsAddress);
    source.onopen = () => {
      retry = FIRST_RETRY_MS;
      state("open");
      // What was said in between was missed.
      if (!first) hint({ kind: "all" });
      first = false;
    };
    for (const kind of KINDS) {
      source.addEventListener(kind, (event: MessageEvent<string>) => {
        if (kind !== "thread" && kind !== "app") return hint({ kind });
        try {
          const { id } = JSON.parse(event.data) as { id?: unknown };
          if (typeof id === "string") hint({ kind, id });
        } catch {
          // A hint that can't be read says nothing.
        }
      });
    }
    source.onerror = () => {
      source.close();
      first = false;
      state("broken");
      // Tells by a 401 whether it is the session that ended.
      api.bootstrap().catch(() => undefined);
      setTimeout(open, retry);
      retry = Math.min(retry * 2, LAST_RETRY_MS);
    };
  };
  open();
}
