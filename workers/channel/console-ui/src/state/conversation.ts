/** One open thread: its messages, kept in step with the server and with the running reply. */

import { useEffect, useState } from "react";
import { ApiError, api, sentence } from "../api/client.ts";
import { onHint } from "../api/hints.ts";
import { follow } from "../api/stream.ts";
import type { Message, Thread, Turn } from "../api/types.ts";
import { mergeNewest, mergeOlder, mergeTurn, type Known } from "./merge.ts";
import { notify, say } from "./notices.ts";
import { apply, blank, isOver } from "./reply.ts";
import { Store, useStore } from "./store.ts";

export interface ConversationView extends Known {
  thread: Thread | null;
  state: "reading" | "read" | "missing" | "failed";
  error?: string;
  /** The stream of the running reply broke and is tried again. */
  broken: boolean;
}

export class Conversation {
  readonly id: string;
  readonly view: Store<ConversationView>;
  private followed: { id: string; stop: () => void; state: Message } | null = null;
  private closers: (() => void)[] = [];
  private timer: ReturnType<typeof setTimeout> | undefined;
  private due = 0;
  private reading = 0;

  constructor(id: string) {
    this.id = id;
    this.view = new Store<ConversationView>({
      thread: null,
      messages: [],
      previous: null,
      state: "reading",
      broken: false,
    });
  }

  open(): () => void {
    void this.read();
    this.closers = [
      onHint((hint) => {
        if (hint.kind === "all" || (hint.kind === "thread" && hint.id === this.id)) this.readSoon(80);
        // It may be gone.
        else if (hint.kind === "threads") this.readSoon(500);
      }),
    ];
    // A hidden tab follows nothing: connections are few, and what it missed is sent again.
    const shown = (): void => {
      if (document.visibilityState === "visible") void this.read();
      else this.unfollow();
    };
    document.addEventListener("visibilitychange", shown);
    this.closers.push(() => document.removeEventListener("visibilitychange", shown));
    return () => {
      this.closers.forEach((close) => close());
      clearTimeout(this.timer);
      this.timer = undefined;
      this.unfollow();
    };
  }

  private readSoon(afterMs = 80): void {
    const due = Date.now() + afterMs;
    // A later wish doesn't put off an earlier one.
    if (this.timer !== undefined && this.due <= due) return;
    clearTimeout(this.timer);
    this.due = due;
    this.timer = setTimeout(() => {
      this.timer = undefined;
      void this.read();
    }, afterMs);
  }

  async read(): Promise<void> {
    const reading = ++this.reading;
    try {
      const page = await api.thread(this.id);
      if (reading !== this.reading) return;
      this.view.update((view) => ({
        ...view,
        ...mergeNewest(view, page, (id) => this.followed?.id === id),
        thread: page.thread,
        state: "read",
      }));
      this.followRunning();
      if (page.thread.unread && document.visibilityState === "visible") {
        api.changeThread(this.id, { read: true }).catch(() => undefined);
      }
    } catch (error) {
      if (reading !== this.reading) return;
      const missing = error instanceof ApiError && error.status === 404;
      this.view.update((view) => ({
        ...view,
        state: missing ? "missing" : view.state === "read" ? "read" : "failed",
        error: sentence(error),
      }));
    }
  }

  async readOlder(): Promise<void> {
    const { previous } = this.view.get();
    if (previous === null) return;
    try {
      const page = await api.thread(this.id, previous);
      this.view.update((view) => ({ ...view, ...mergeOlder(view, page) }));
    } catch (error) {
      notify(sentence(error), "bad");
    }
  }

  /** Throws what the server refused. */
  async send(turn: Turn): Promise<void> {
    const { message, reply } = await api.send(this.id, turn);
    // A reading that began before doesn't know of it.
    this.reading++;
    this.view.update((view) => ({ ...view, ...mergeTurn(view, [message, reply], turn.replaces) }));
    this.followRunning();
    this.readSoon();
  }

  async cancel(messageId: string): Promise<void> {
    try {
      await api.cancel(this.id, messageId);
    } catch (error) {
      notify(sentence(error), "bad");
    }
    this.readSoon();
  }

  private followRunning(): void {
    const running = this.view.get().messages.find((m) => m.role === "assistant" && m.status === "running");
    if (running?.id === this.followed?.id) return;
    this.unfollow();
    if (running === undefined || document.visibilityState !== "visible") return;
    say("The answer has started.");
    const followed = {
      id: running.id,
      state: blank(running),
      stop: follow(this.id, running.id, {
        frames: (frames) => {
          followed.state = apply(followed.state, frames);
          // Until the frames have caught up with what was read, nothing is taken away again.
          const before = this.view.get().messages.find((m) => m.id === running.id);
          const behind =
            before !== undefined &&
            !isOver(followed.state) &&
            followed.state.text.length < before.text.length &&
            before.text.startsWith(followed.state.text) &&
            !frames.some((frame) => frame.type === "replace");
          if (!behind) this.put(followed.state);
          if (isOver(followed.state)) {
            this.unfollow();
            say(ENDINGS[followed.state.status] ?? "The answer has ended.");
            this.readSoon();
          } else if (this.view.get().broken) {
            this.view.update((view) => ({ ...view, broken: false }));
          }
        },
        broken: () => {
          this.view.update((view) => ({ ...view, broken: true }));
          // It may have ended meanwhile, which the stream can't tell.
          this.readSoon();
        },
      }),
    };
    this.followed = followed;
  }

  private unfollow(): void {
    this.followed?.stop();
    this.followed = null;
    this.view.update((view) => (view.broken ? { ...view, broken: false } : view));
  }

  private put(message: Message): void {
    this.view.update((view) => ({
      ...view,
      messages: view.messages.map((old) => (old.id === message.id ? message : old)),
    }));
  }
}

const ENDINGS: Partial<Record<Message["status"], string>> = {
  succeeded: "The answer is complete.",
  failed: "The answer failed.",
  cancelled: "The answer was stopped.",
  interrupted: "The answer was interrupted.",
};

/** The conversation of a thread, open as long as the component is. */
export function useConversation(id: string): [Conversation, ConversationView] {
  const [conversation, setConversation] = useState(() => new Conversation(id));
  if (conversation.id !== id) setConversation(new Conversation(id));
  useEffect(() => conversation.open(), [conversation]);
  return [conversation, useStore(conversation.view)];
}
