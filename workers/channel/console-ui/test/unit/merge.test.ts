import assert from "node:assert/strict";
import { test } from "node:test";
import type { Message, MessagePage, MessageStatus, Thread } from "../../src/api/types.ts";
import { mergeNewest, mergeOlder, mergeTurn } from "../../src/state/merge.ts";

const m = (id: string, text = "", status: MessageStatus = "succeeded"): Message => ({
  id,
  role: "assistant",
  createdAt: 1,
  text,
  status,
  attachments: [],
  parts: [],
  activity: [],
});
const page = (messages: Message[], previous: string | null = null): MessagePage => ({
  thread: {} as Thread,
  messages,
  previous,
});
const ids = (known: { messages: Message[] }): string => known.messages.map((one) => one.id).join("");

test("older messages that were read stay when the newest page is read again", () => {
  const known = { messages: [m("a"), m("b"), m("c")], previous: "older" };
  const next = mergeNewest(known, page([m("b"), m("c"), m("d")], "newer"), () => false);
  assert.equal(ids(next), "abcd");
  assert.equal(next.previous, "older");
});

test("a page that doesn't join on replaces what is known: there would be a gap", () => {
  const next = mergeNewest({ messages: [m("a"), m("b")], previous: null }, page([m("x"), m("y")], "p"), () => false);
  assert.equal(ids(next), "xy");
  assert.equal(next.previous, "p");
});

test("what was dropped on the server is dropped here", () => {
  const next = mergeNewest({ messages: [m("a"), m("b"), m("c")], previous: null }, page([m("a"), m("d")]), () => false);
  assert.equal(ids(next), "ad");
});

test("a followed reply is ahead of the page until the page ends it", () => {
  const known = { messages: [m("a", "far ahead", "running")], previous: null };
  const behind = mergeNewest(known, page([m("a", "far", "running")]), (id) => id === "a");
  assert.equal(behind.messages[0]?.text, "far ahead");
  const over = mergeNewest(known, page([m("a", "the end")]), (id) => id === "a");
  assert.equal(over.messages[0]?.text, "the end");
});

test("an older page goes before, without what is there already", () => {
  const next = mergeOlder({ messages: [m("c"), m("d")], previous: "x" }, page([m("a"), m("b"), m("c")], null));
  assert.equal(ids(next), "abcd");
  assert.equal(next.previous, null);
});

test("a turn that replaces a message drops it and all after it", () => {
  const known = { messages: [m("a"), m("b"), m("c")], previous: null };
  assert.equal(ids(mergeTurn(known, [m("x"), m("y")], "b")), "axy");
  assert.equal(ids(mergeTurn(known, [m("x"), m("y")])), "abcxy");
  assert.equal(ids(mergeTurn(known, [m("b", "again"), m("y")])), "acby");
});
