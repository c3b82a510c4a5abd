/** A thread: its messages and the field to write the next one. */

import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState, type ReactNode } from "react";
import { sentence } from "../api/client.ts";
import type { Bootstrap, Message, Turn } from "../api/types.ts";
import { answers } from "../state/continuations.ts";
import { useConversation } from "../state/conversation.ts";
import { notify } from "../state/notices.ts";
import { useStore } from "../state/store.ts";
import { ThreadId } from "../state/threadId.ts";
import { listed, lists, openThread } from "../state/threads.ts";
import { Icon } from "../ui/Icon.tsx";
import { Link } from "../ui/Link.tsx";
import { Empty, Failed, Loading } from "../ui/States.tsx";
import { Answers } from "./Background.tsx";
import { Composer } from "./Composer.tsx";
import { MessageView, type Actions } from "./MessageView.tsx";
import { ThreadHeader } from "./ThreadHeader.tsx";
import { useShortcut } from "../ui/shortcuts.ts";

/** So near the end in pixels, the view follows what is added. */
const NEAR = 80;
/** Pages of older messages that are read to find one that an address points at. */
const MAX_PAGES = 20;

export function ThreadPage({
  id,
  message,
  bootstrap,
}: {
  id: string;
  message: string | null;
  bootstrap: Bootstrap;
}): ReactNode {
  const [conversation, view] = useConversation(id);
  const [editing, setEditing] = useState<string | null>(null);
  const [older, setOlder] = useState(false);
  const field = useRef<HTMLTextAreaElement>(null);
  const { scroller, follows, toEnd } = useFollowing(id, message !== null, view.messages);
  // A list is read again more often than the thread: it knows of a new title first.
  const inActive = useStore(lists.active);
  const inArchive = useStore(lists.archived);
  const thread = listed(id, inActive, inArchive) ?? view.thread;
  const running = view.messages.find((m) => m.role === "assistant" && m.status === "running");
  const answered = useMemo(() => answers(view.messages), [view.messages]);
  const messages = useRef<Message[]>([]);
  messages.current = view.messages;

  const actions: Actions = useMemo(
    () => ({
      edit: setEditing,
      resend: async (old, turn) => {
        await conversation.send({ ...turn, replaces: old.id });
        setEditing(null);
      },
      cancel: (reply) => void conversation.cancel(reply),
      retry: (reply) => {
        const all = messages.current;
        const asked = all.slice(0, all.indexOf(reply)).findLast((m) => m.role === "user");
        if (asked === undefined) return notify("What was asked is not here any more.", "bad");
        conversation
          .send({ text: asked.text, attachments: asked.attachments.map((file) => file.id), replaces: asked.id })
          .catch((error: unknown) => notify(sentence(error), "bad"));
      },
    }),
    [conversation],
  );
  const stop = useCallback(() => {
    if (running !== undefined) void conversation.cancel(running.id);
  }, [conversation, running]);
  useEffect(() => {
    openThread.set(thread);
    return () => openThread.set(null);
  }, [thread]);
  useShortcut("stop", stop);
  useShortcut("compose", () => field.current?.focus());

  const send = async (turn: Turn): Promise<void> => {
    await conversation.send(turn);
    toEnd();
  };
  useTarget(message, view.messages, view.previous, () => conversation.readOlder());

  if (view.state === "missing") {
    return (
      <Empty icon="archive" title="There is no such thread">
        <Link to="/" className="button">
          Start a new one
        </Link>
      </Empty>
    );
  }
  const last = view.messages.findLast((m) => m.role === "user");
  return (
    <div className="thread">
      <ThreadHeader thread={thread} id={id} />
      <div className="thread-scroll" ref={scroller} tabIndex={0} role="region" aria-label="Messages">
        <div className="column">
          {view.state === "reading" && <Loading what="the thread" />}
          {view.state === "failed" && (
            <Failed message={view.error ?? "It can't be read."} onRetry={() => void conversation.read()} />
          )}
          {view.previous !== null && (
            <button
              type="button"
              className="button small centred"
              disabled={older}
              onClick={() => {
                setOlder(true);
                void conversation.readOlder().finally(() => setOlder(false));
              }}
            >
              {older ? "Reading …" : "Show earlier messages"}
            </button>
          )}
          <ThreadId value={id}>
            <Answers value={answered}>
              {view.messages.map((m) => (
                <MessageView
                  key={m.id}
                  message={m}
                  bootstrap={bootstrap}
                  editing={editing === m.id}
                  actions={actions}
                  target={m.id === message}
                />
              ))}
            </Answers>
          </ThreadId>
          {view.broken && (
            <p className="muted" role="status">
              <span className="spinner" aria-hidden="true" /> The connection broke; trying again …
            </p>
          )}
        </div>
      </div>
      <div className="composer-dock">
        {!follows && (
          <button type="button" className="to-end" onClick={toEnd}>
            <Icon name="down" /> Latest
          </button>
        )}
        <div className="column">
          <Composer
            key={id}
            field={field}
            bootstrap={bootstrap}
            draft={id}
            label="Message"
            placeholder={`Write to ${bootstrap.agent.label}`}
            running={running !== undefined}
            onSend={send}
            onStop={stop}
            {...(last === undefined ? {} : { onEditLast: () => setEditing(last.id) })}
          />
        </div>
      </div>
    </div>
  );
}

/** Keeps the end in view as long as the reader is there, and leaves the reader alone elsewhere. */
function useFollowing(
  id: string,
  elsewhere: boolean,
  messages: Message[],
): { scroller: React.RefObject<HTMLDivElement | null>; follows: boolean; toEnd: () => void } {
  const scroller = useRef<HTMLDivElement>(null);
  const [follows, setFollows] = useState(true);
  const following = useRef(!elsewhere);
  const set = (next: boolean): void => {
    following.current = next;
    setFollows(next);
  };
  useLayoutEffect(() => set(!elsewhere), [id, elsewhere]);

  useEffect(() => {
    const element = scroller.current;
    if (element === null) return undefined;
    const moved = (): void => {
      const near = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR;
      if (near !== following.current) set(near);
    };
    element.addEventListener("scroll", moved, { passive: true });
    // Formulas, colours and images change heights after the text was drawn.
    const observer = new ResizeObserver(() => {
      if (following.current) element.scrollTop = element.scrollHeight;
    });
    observer.observe(element);
    for (const child of element.children) observer.observe(child);
    return () => {
      element.removeEventListener("scroll", moved);
      observer.disconnect();
    };
  }, [id]);

  useLayoutEffect(() => {
    const element = scroller.current;
    if (element !== null && following.current) element.scrollTop = element.scrollHeight;
  }, [messages]);

  const toEnd = useCallback(() => {
    set(true);
    requestAnimationFrame(() => {
      if (scroller.current !== null) scroller.current.scrollTop = scroller.current.scrollHeight;
    });
  }, []);
  return { scroller, follows, toEnd };
}

/** Brings the message that the address points at into view, reading older pages until it is there. */
function useTarget(
  target: string | null,
  messages: Message[],
  previous: string | null,
  readOlder: () => Promise<void>,
): void {
  const done = useRef<string | null>(null);
  const pages = useRef(0);
  useEffect(() => {
    if (target === null || done.current === target || messages.length === 0) return;
    if (messages.some((m) => m.id === target)) {
      done.current = target;
      const element = document.getElementById(`m-${target}`);
      element?.scrollIntoView({ block: "start" });
      element?.focus({ preventScroll: true });
    } else if (previous !== null && pages.current < MAX_PAGES) {
      pages.current += 1;
      void readOlder();
    }
  });
}
