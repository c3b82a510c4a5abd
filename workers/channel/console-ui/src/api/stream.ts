/** The frames of one running reply, from where the reader stands, over reconnections. */

import { api } from "./client.ts";
import { KINDS, read } from "./frame.ts";
import type { Frame } from "./types.ts";

const RETRY_MS = 1500;

export interface Reading {
  /** Frames that came since the last call, in order. */
  frames: (frames: Frame[]) => void;
  /** The connection broke; it is tried again. */
  broken: () => void;
}

/** Reads until `finish` or `error`, or until the returned function is called. */
export function follow(thread: string, message: string, reading: Reading): () => void {
  let after = 0;
  let done = false;
  let source: EventSource | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let scheduled = false;
  let pending: Frame[] = [];

  const flush = (): void => {
    scheduled = false;
    const frames = pending;
    pending = [];
    if (frames.length > 0) reading.frames(frames);
  };
  const push = (frame: Frame): void => {
    pending.push(frame);
    if (scheduled) return;
    scheduled = true;
    // One drawing for all that came in a frame; a hidden tab draws none.
    if (document.visibilityState === "visible") requestAnimationFrame(flush);
    else setTimeout(flush, 200);
  };
  const open = (): void => {
    source = new EventSource(api.streamAddress(thread, message, after));
    for (const kind of KINDS) {
      source.addEventListener(kind, (event: Event) => {
        // The browser's own `error` event has no data.
        if (!(event instanceof MessageEvent) || typeof event.data !== "string") return;
        // Frames in the middle of a whole state have no number: who breaks off there gets all again.
        const number = Number(event.lastEventId);
        if (event.lastEventId !== "" && Number.isSafeInteger(number)) after = number;
        const frame = read(kind, event.data);
        if (frame === null) return;
        push(frame);
        if (frame.type === "finish" || frame.type === "error") stop();
      });
    }
    source.onerror = () => {
      source?.close();
      if (done) return;
      reading.broken();
      timer = setTimeout(open, RETRY_MS);
    };
  };
  const stop = (): void => {
    done = true;
    source?.close();
    clearTimeout(timer);
  };
  open();
  return () => {
    stop();
    pending = [];
  };
}
