/** What is known of a thread's messages, with a page that was just read: pure. */

import type { Message, MessagePage } from "../api/types.ts";
import { isOver } from "./reply.ts";

export interface Known {
  messages: Message[];
  /** Where older ones are read; null when there are none. */
  previous: string | null;
}

/**
 * The newest page again. Older messages that were read before stay, if the page begins within them;
 * a reply that is followed frame by frame is ahead of the page as long as the page doesn't end it, and
 * one that was followed has apps open that the page doesn't know of yet.
 */
export function mergeNewest(known: Known, page: MessagePage, followed: (id: string) => boolean): Known {
  const before = new Map(known.messages.map((message) => [message.id, message]));
  const fresh = page.messages.map((message) => {
    const old = before.get(message.id);
    if (old === undefined || isOver(message)) return message;
    return followed(message.id) ? old : { ...message, parts: old.parts };
  });
  const first = page.messages[0];
  const at = first === undefined ? -1 : known.messages.findIndex((message) => message.id === first.id);
  if (at <= 0) return { messages: fresh, previous: page.previous };
  return { messages: [...known.messages.slice(0, at), ...fresh], previous: known.previous };
}

/** An older page before what is known. */
export function mergeOlder(known: Known, page: MessagePage): Known {
  const have = new Set(known.messages.map((message) => message.id));
  const older = page.messages.filter((message) => !have.has(message.id));
  return { messages: [...older, ...known.messages], previous: page.previous };
}

/**
 * After a turn was taken: what it replaces is gone, and the two new messages stand at the end. One that
 * is known already was read since then, and is ahead of what the server said when it took it.
 */
export function mergeTurn(known: Known, added: Message[], replaces?: string): Known {
  const at = replaces === undefined ? -1 : known.messages.findIndex((message) => message.id === replaces);
  const kept = at < 0 ? known.messages : known.messages.slice(0, at);
  const ids = new Set(added.map((message) => message.id));
  const ahead = new Map(known.messages.map((message) => [message.id, message]));
  const newest = added.map((message) => ahead.get(message.id) ?? message);
  return { messages: [...kept.filter((message) => !ids.has(message.id)), ...newest], previous: known.previous };
}
