import assert from "node:assert/strict";
import { test } from "node:test";
import type { AppPart, Frame, Message } from "../../src/api/types.ts";
import { apply, blank, isOver, MAX_ACTIVITY } from "../../src/state/reply.ts";

const message: Message = {
  id: "m1",
  role: "assistant",
  createdAt: 1,
  text: "",
  status: "running",
  attachments: [],
  parts: [],
  activity: [],
};

const tool = (id: string, rest: object = {}): Frame => ({
  type: "event",
  activity: { id, kind: "tool", name: "Bash", startedAt: 5, ...rest },
});

test("text is appended and replaced in the order of the frames", () => {
  const next = apply(message, [
    { type: "append", text: "void" },
    { type: "replace", text: "a" },
    { type: "append", text: "b" },
  ]);
  assert.equal(next.text, "ab");
  assert.equal(message.text, "", "the given message is not changed");
});

test("an event with a known id updates that entry in its place", () => {
  const first = apply(message, [tool("a", { arguments: "{}" }), tool("b")]);
  const next = apply(first, [tool("a", { result: "ok", endedAt: 9 })]);
  assert.deepEqual(
    next.activity.map(({ id, arguments: args, result, endedAt }) => ({ id, args, result, endedAt })),
    [
      { id: "a", args: "{}", result: "ok", endedAt: 9 },
      { id: "b", args: undefined, result: undefined, endedAt: undefined },
    ],
  );
  assert.equal(first.activity[0]?.result, undefined);
});

test("the same frames give the same message, however they are cut into batches", () => {
  const frames: Frame[] = Array.from({ length: 60 }, (_, n) =>
    n % 7 === 3 ? { type: "replace", text: `r${n}` } : n % 3 === 0 ? tool(`t${n % 9}`, { result: `${n}` }) : { type: "append", text: `${n} ` },
  );
  const whole = apply(message, frames);
  for (const size of [1, 2, 7, 59]) {
    let cut = message;
    for (let at = 0; at < frames.length; at += size) cut = apply(cut, frames.slice(at, at + size));
    assert.deepEqual(cut, whole, `batches of ${size}`);
  }
});

test("activity is bounded", () => {
  const frames = Array.from({ length: MAX_ACTIVITY + 10 }, (_, n) => tool(`t${n}`));
  assert.equal(apply(message, frames).activity.length, MAX_ACTIVITY);
});

test("the end is the server's message, whatever was there", () => {
  const end: Message = { ...message, text: "all", status: "succeeded", activity: [] };
  const next = apply(message, [{ type: "append", text: "half" }, tool("a"), { type: "finish", message: end }]);
  assert.deepEqual(next, end);
  assert.ok(isOver(next));
});

test("an end that was cut to fit takes nothing away", () => {
  const end: Message = { ...message, text: "the begin", status: "succeeded", activity: [], truncated: true };
  const next = apply(message, [tool("a"), { type: "append", text: "the beginning and the rest" }, { type: "finish", message: end }]);
  assert.equal(next.text, "the beginning and the rest");
  assert.equal(next.activity.length, 1);
  assert.equal(next.status, "succeeded");
  const other = apply(message, [{ type: "append", text: "void" }, { type: "finish", message: end }]);
  assert.equal(other.text, "the begin");
  assert.equal(other.truncated, true);
});

test("a failure keeps what came before it", () => {
  const failure = { kind: "provider_auth", message: "No." };
  const next = apply(message, [{ type: "append", text: "half" }, { type: "error", failure }]);
  assert.equal(next.text, "half");
  assert.equal(next.status, "failed");
  assert.deepEqual(next.failure, failure);
  assert.equal(apply(message, [{ type: "error", failure: { kind: "cancelled", message: "" } }]).status, "cancelled");
});

test("frames that this page doesn't know change nothing", () => {
  const unknown = { type: "later", text: "x" } as unknown as Frame;
  assert.deepEqual(apply(message, [unknown]), message);
});

test("an app is a part as soon as it is told, once, and until the end says otherwise", () => {
  const view = (id: string, title: string): Frame => ({ type: "view", part: { type: "mcp_app", id, title, messageId: "m" } as AppPart });
  const titles = (of: Message): unknown[] => of.parts.map((part) => (part as AppPart).title);
  const next = apply(message, [view("a", "one"), view("b", "two"), { type: "append", text: "x" }, view("a", "three")]);
  assert.deepEqual(titles(next), ["three", "two"]);
  assert.deepEqual(titles(blank(next)), ["three", "two"], "what is shown stays");
  assert.equal(apply(message, Array.from({ length: 30 }, (_, n) => view(`a${n}`, ""))).parts.length, 20);
  assert.deepEqual(apply(next, [{ type: "finish", message: { ...message, status: "failed" } }]).parts, []);
});

test("of a call without a result the arguments so far are kept, until it is made or gone", () => {
  const view = (stage?: string): Frame => ({ type: "view", part: { type: "mcp_app", id: "a", messageId: "m", stage } as AppPart });
  const input = (n: number, id = "a"): Frame => ({ type: "input", id, arguments: { n } });
  const soFar = (frames: Frame[]): unknown => (apply(message, frames).parts[0] as AppPart | undefined)?.soFar;
  assert.deepEqual(soFar([view("draft"), input(1), input(2), input(3, "b")]), { n: 2 });
  assert.deepEqual(soFar([view("draft"), input(1), view("draft")]), { n: 1 });
  assert.equal(soFar([view("draft"), input(1), view("called"), input(2)]), undefined);
  assert.equal(soFar([input(1), view("draft")]), undefined);
  assert.deepEqual(apply(message, [view("draft"), view("gone")]).parts, []);
});

test("a reader begins with nothing that the frames bring again", () => {
  const seen = blank({ ...message, text: "so far", activity: [{ id: "a", kind: "tool", startedAt: 1 }] });
  assert.equal(seen.text, "");
  assert.deepEqual(seen.activity, []);
});
