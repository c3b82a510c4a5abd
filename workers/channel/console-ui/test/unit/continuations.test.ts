import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError } from "../../src/api/client.ts";
import type { Continuation, ContinuationHealth, ContinuationPage, ContinuationState, Message } from "../../src/api/types.ts";
import {
  answerOf,
  answers,
  begun,
  commands,
  gather,
  isOff,
  isPending,
  MEANING,
  nextCommand,
  possible,
  postedAt,
  reasons,
  remedy,
  shellWord,
  STATES,
} from "../../src/state/continuations.ts";
import { continuationPath, parse } from "../../src/state/routes.ts";

const NOW = Date.parse("2026-03-10T12:00:00Z");

function record(state: ContinuationState, rest: Partial<Continuation> = {}): Continuation {
  return {
    continuationId: "c1",
    state,
    mode: "reply",
    taskKey: "report",
    createdAt: "2026-03-10T11:00:00.000Z",
    updatedAt: "2026-03-10T11:00:00.000Z",
    deadline: "2026-03-11T12:00:00.000Z",
    attempts: { synthesis: 0, delivery: 0 },
    originContext: { state: "pinned" },
    ...rest,
  };
}

function health(counts: ContinuationHealth["counts"], rest: Partial<ContinuationHealth> = {}, historyDegraded = 0): ContinuationHealth {
  return {
    status: "healthy",
    checkedAt: "2026-03-10T12:00:00.000Z",
    counts,
    pending: 0,
    due: 0,
    storage: { format: "per-record-v3", records: 0, active: 0, historyDegraded, capturedText: 0, limits: {} },
    ...rest,
  };
}

test("every state has its words and what can be tried with it", () => {
  const text = { completionKind: "synthesized" };
  const past = { deadline: "2026-03-10T11:59:00.000Z" };
  const cases: [Continuation, string | null, boolean, boolean][] = [
    [record("claimed"), null, true, false],
    [record("result_received"), null, true, false],
    [record("result_received", { nextAttemptAt: "2026-03-10T12:01:00.000Z" }), "sooner", true, false],
    [record("synthesizing"), null, false, false],
    [record("ready_to_deliver", text), null, true, false],
    [record("delivery_retry", text), "sooner", true, false],
    [record("delivered", text), null, false, false],
    [record("delivery_unknown", text), "unsafe", false, true],
    // Past its deadline it can't be sent any more, but it can be said what became of it.
    [record("delivery_unknown", { ...text, ...past }), null, false, true],
    [record("expired"), null, false, false],
    [record("cancelled"), null, false, false],
    [record("dead_lettered", text), "again", false, false],
    // Left by an operator, it is as unknown as before.
    [record("dead_lettered", { ...text, lastError: { code: "operator_dead_lettered", reason: "", at: "" } }), "unsafe", false, false],
    [record("dead_lettered"), null, false, false],
    [record("dead_lettered", { ...text, ...past }), null, false, false],
  ];
  for (const [one, retry, cancel, resolve] of cases) {
    assert.deepEqual(possible(one, NOW), { retry, cancel, resolve }, JSON.stringify(one));
  }
  for (const state of STATES) assert.ok(MEANING[state].length > 10, state);
  assert.equal(STATES.filter(isPending).length, 5);
});

test("commands are what monoctl takes", () => {
  const of = (one: Continuation): string[] => commands(one, possible(one, NOW)).map((line) => line.replace("monoctl continuations ", ""));
  assert.deepEqual(of(record("claimed")), ["show c1", "cancel c1"]);
  assert.deepEqual(of(record("delivery_unknown")), [
    "show c1",
    "resolve c1 delivered",
    "resolve c1 not-delivered",
    "resolve c1 dead-lettered",
    "retry c1 --allow-unknown",
  ]);
  assert.deepEqual(of(record("dead_lettered", { completionKind: "synthesized" })), ["show c1", "retry c1"]);
  assert.equal(nextCommand("abc-_="), "monoctl continuations list --cursor abc-_=");
  for (const [word, expected] of [
    ["a b", "'a b'"],
    ["$(rm -rf ~)", "'$(rm -rf ~)'"],
    ["it's", "'it'\\''s'"],
    ["-x", "'./-x'"],
    ["", "''"],
    ["a\nb", "'a\nb'"],
  ] as const) {
    assert.equal(shellWord(word), expected);
  }
});

test("a verdict has its reasons, the worst first", () => {
  assert.deepEqual(reasons(health({ delivered: 9, cancelled: 3 })), []);
  const all = reasons(
    health(
      { delivery_unknown: 1, dead_lettered: 2, expired: 1, claimed: 4 },
      { pending: 4, clock: { steppedByMs: -5, heldForMs: 9 } },
      3,
    ),
  );
  assert.deepEqual(
    all.map(({ text, state }) => [text, state]),
    [
      ["Nobody knows whether 1 answer was posted.", "delivery_unknown"],
      ["2 answers can't be delivered.", "dead_lettered"],
      ["1 came to its deadline without a delivery.", "expired"],
      ["3 answers were posted that the agent doesn't remember.", "delivered"],
      ["The clock of the machine made a step that is not believed yet.", undefined],
      ["4 pending.", undefined],
    ],
  );
  assert.ok(all.every((reason) => reason.remedy !== ""));
});

test("a refusal is said with what to do about it", () => {
  for (const code of ["delivery_unknown", "not_retryable", "synthesis_not_retryable", "already_terminal", "continuation_in_flight", "not_delivery_unknown", "resolution_in_progress", "worker_unavailable", "unavailable"]) {
    assert.ok(remedy(new ApiError(409, code, "no")), code);
  }
  assert.equal(remedy(new ApiError(500, "something_else", "no")), null);
  assert.equal(remedy(new Error("no")), null);
  assert.ok(isOff(new ApiError(404, "not_enabled", "no")));
  assert.ok(!isOff(new ApiError(404, "not_found", "no")));
});

test("only a thread of the console is a place to go to", () => {
  const delivered = (receipt: Partial<NonNullable<Continuation["receipt"]>>): string | null =>
    postedAt(record("delivered", { receipt: { kind: "delivered", deliveredAt: "", ...receipt } }));
  assert.equal(delivered({ channelId: "web:t1", deliveryId: "m1" }), "/t/t1#m-m1");
  assert.equal(delivered({ channelId: "web:t1" }), "/t/t1");
  assert.equal(delivered({ channelId: "web:t1", deliveryId: "m1 onclick=x" }), "/t/t1");
  assert.equal(delivered({ channelId: "web:../../x", deliveryId: "m1" }), null);
  assert.equal(delivered({ channelId: "web:", deliveryId: "m1" }), null);
  assert.equal(delivered({ channelId: "slack:C1", deliveryId: "m1" }), null);
  assert.equal(delivered({ kind: "captured", channelId: "web:t1" }), null);
  assert.equal(postedAt(record("claimed")), null);
});

test("pages are read as far as is wanted, and no record is there twice", async () => {
  const states: ContinuationState[] = Array.from({ length: 10 }, (_, n) => (n % 5 === 4 ? "delivery_unknown" : "delivered"));
  let read = 0;
  const page = (cursor: string | null): Promise<ContinuationPage> => {
    read += 1;
    const from = Number(cursor ?? 0);
    // Something new pushes one record on to the next page.
    const some = states.slice(Math.max(0, from - 1), from + 2).map((state, n) => record(state, { continuationId: `c${Math.max(0, from - 1) + n}` }));
    return Promise.resolve({ continuations: some, pageSize: 3, ...(from + 2 < states.length ? { nextCursor: String(from + 2) } : {}) });
  };
  const one = await gather(page, null, Infinity, 1);
  assert.deepEqual([one.records.length, one.next, read], [2, "2", 1]);
  const all = await gather(page, null, Infinity, 100);
  assert.deepEqual([all.records.length, all.next], [10, null]);
  const unknown = await gather(page, "delivery_unknown", 50, 100);
  assert.deepEqual(
    unknown.records.map((found) => found.continuationId),
    ["c4", "c9"],
  );
  const first = await gather(page, "delivery_unknown", 1, 100);
  assert.equal(first.records.length, 1);
  assert.notEqual(first.next, null);
  read = 0;
  const none = await gather(page, "expired", 1, 3);
  assert.deepEqual([none.records.length, read, none.next], [0, 3, "6"]);
});

function message(id: string, name: string, args: string | undefined, kind: "status" | "tool" = "status"): Message {
  return {
    id,
    role: "assistant",
    createdAt: 0,
    text: "",
    status: "succeeded",
    attachments: [],
    parts: [],
    activity: [{ id: "a", kind, name, startedAt: 0, ...(args === undefined ? {} : { arguments: args }) }],
  };
}

test("the ids of background work are ids, and only the host names them", () => {
  assert.deepEqual(begun(message("m", "background_work", '["c1","c2"]')), ["c1", "c2"]);
  for (const hostile of ['["<img>", "../x", "", 7, null]', '{"a":1}', "no json", '"c1"', undefined]) {
    assert.deepEqual(begun(message("m", "background_work", hostile)), [], hostile);
  }
  // A tool that calls itself so is a tool.
  assert.deepEqual(begun(message("m", "background_work", '["c1"]', "tool")), []);
  assert.equal(answerOf(message("m", "background_task", '["c1"]', "tool")), null);
  assert.equal(begun(message("m", "background_work", JSON.stringify(Array.from({ length: 100 }, (_, n) => `c${n}`)))).length, 64);
  const all = [message("m1", "background_work", '["c1"]'), message("m2", "background_task", '["c1"]'), message("m3", "background_task", undefined)];
  assert.deepEqual([...answers(all)], [["c1", "m2"]]);
});

test("paths of continuations", () => {
  assert.deepEqual(parse("/continuations"), { page: "continuations" });
  assert.deepEqual(parse(continuationPath("0190-c1")), { page: "continuation", id: "0190-c1" });
  assert.equal(parse("/continuations/a/b").page, "missing");
  assert.equal(parse(continuationPath("<b>")).page, "missing");
});
