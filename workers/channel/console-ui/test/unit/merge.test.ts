import assert from "node:assert/strict";
import { test } from "node:test";
import type { AppPart, Message, MessagePage, MessageStatus, Thread } from "../../src/api/types.ts";
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

test("a reply that was followed keeps the apps that are open until the page ends it", () => {
  const open = { ...m("a", "far", "running"), parts: [{ type: "mcp_app", id: "p" } as AppPart] };
  const known = { messages: [open], previous: null };
  assert.deepEqual(mergeNewest(known, page([m("a", "further", "running")]), () => false).messages[0]?.parts, open.parts);
  assert.deepEqual(mergeNewest(known, page([m("a", "over", "failed")]), () => false).messages[0]?.parts, []);
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
  // A page that was read before the turn's own answer came has more of it.
  const ahead = { messages: [m("x"), m("y", "so far", "running")], previous: null };
  assert.equal(mergeTurn(ahead, [m("x"), m("y", "", "queued")]).messages[1]?.text, "so far");
});
