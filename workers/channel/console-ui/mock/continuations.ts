/** Continuations of the scripted daemon: as many as need pages, in every state, and what operators do with them. */

import { randomUUID } from "node:crypto";
import type { Continuation, ContinuationHealth, ContinuationState } from "../src/api/types.ts";

/** A name that tries to be more than one. */
export const HOSTILE_TASK = '<img src=x onerror="document.title=1">\u202Egpj.task';
export const CAPTURED = "# Checked\n\nAll **42** items are there. <script>document.title = 1</script>";
const PAGE = 20;
const ORDER: ContinuationState[] = [
  "delivery_unknown",
  "claimed",
  "dead_lettered",
  "delivered",
  "delivery_retry",
  "expired",
  "cancelled",
  "result_received",
  "synthesizing",
  "ready_to_deliver",
];

/** A refusal: status, code, sentence. */
export type Refused = [number, string, string];

function at(ms: number): string {
  return new Date(Date.now() + ms).toISOString();
}

export class MockContinuations {
  readonly records: Continuation[] = [];
  enabled = true;
  /** What the next change is refused with. */
  refuses: Refused | null = null;

  add(state: ContinuationState, rest: Partial<Continuation> = {}): Continuation {
    const n = this.records.length;
    const had = state !== "claimed" && state !== "result_received";
    const record: Continuation = {
      continuationId: randomUUID(),
      state,
      mode: "reply",
      taskKey: `report-${n + 1}`,
      createdAt: at(-(n + 1) * 600_000),
      updatedAt: at(-n * 500_000),
      deadline: at(state === "expired" ? -3_600_000 : 86_400_000),
      attempts: { synthesis: had ? 1 : 0, delivery: state.startsWith("deliver") ? 1 : 0 },
      synthesisDeferrals: 0,
      originContext: { state: "pinned", digest: "ab".repeat(32), messageCount: 4 },
      ...(had && state !== "synthesizing" ? { completionKind: "synthesized" } : {}),
      ...(state === "delivery_retry" ? { nextAttemptAt: at(120_000) } : {}),
      ...(state === "delivery_unknown" ? { lastError: { code: "delivery_interrupted", reason: "the process ended after the delivery had begun", at: at(-60_000) } } : {}),
      ...(state === "dead_lettered" ? { lastError: { code: "destination_refused", reason: "unsupported_destination: that is no thread of the console", at: at(-60_000) } } : {}),
      ...(state === "delivered" ? { receipt: { kind: "delivered", deliveredAt: at(-n * 500_000), channelId: "web:t1", deliveryId: "m1", historyRecorded: n % 20 !== 3 } } : {}),
      ...rest,
    };
    this.records.push(record);
    return record;
  }

  seed(): void {
    for (let n = 0; n < 45; n += 1) {
      this.add(n < 10 ? (ORDER[n] ?? "claimed") : n === 41 ? "delivery_unknown" : "delivered", n === 1 ? { taskKey: HOSTILE_TASK } : {});
    }
    this.add("delivered", {
      taskKey: "verify-the-export",
      mode: "capture",
      originContext: { state: "detached_latest" },
      receipt: { kind: "captured", deliveredAt: at(-1000) },
      createdAt: at(-1000),
    });
    this.records.sort((a, b) => (a.createdAt < b.createdAt ? 1 : -1));
  }

  health(): ContinuationHealth {
    const counts: ContinuationHealth["counts"] = {};
    for (const state of ORDER) counts[state] = 0;
    for (const { state } of this.records) counts[state] = (counts[state] ?? 0) + 1;
    const of = (...states: ContinuationState[]): number => states.reduce((sum, state) => sum + (counts[state] ?? 0), 0);
    const pending = of("claimed", "result_received", "synthesizing", "ready_to_deliver", "delivery_retry");
    const historyDegraded = this.records.filter((one) => one.receipt?.historyRecorded === false).length;
    return {
      status: of("dead_lettered", "delivery_unknown") > 0 ? "unhealthy" : pending + of("expired") + historyDegraded > 0 ? "degraded" : "healthy",
      checkedAt: at(0),
      counts,
      pending,
      due: of("result_received"),
      ...(pending > 0 ? { oldestPendingAt: at(-3_600_000) } : {}),
      storage: {
        format: "per-record-v3",
        records: this.records.length,
        active: pending + of("delivery_unknown"),
        historyDegraded,
        capturedText: 1,
        limits: { maxActiveRecords: 10_000, maxActivePerOrigin: 500, maxConcurrent: 16 },
      },
    };
  }

  /** An answer, or a refusal. */
  async answer(method: string, path: string[], query: URLSearchParams, body: () => Promise<unknown>): Promise<{ value: unknown } | { refused: Refused }> {
    if (!this.enabled) return { refused: [404, "not_enabled", "Continuations are not enabled: add a `continuations` block."] };
    const [root, id, what] = path;
    if (root === "continuation-health") return { value: this.health() };
    if (id === undefined) {
      const cursor = query.get("cursor");
      const from = cursor === null ? 0 : Number(Buffer.from(cursor, "base64url").toString());
      if (Number.isNaN(from)) return { refused: [400, "invalid_page_cursor", "The cursor is none of ours."] };
      const upTo = from + PAGE;
      const more = upTo < this.records.length ? { nextCursor: Buffer.from(String(upTo)).toString("base64url") } : {};
      return { value: { continuations: this.records.slice(from, upTo), pageSize: PAGE, ...more } };
    }
    const record = this.records.find((one) => one.continuationId === id);
    if (record === undefined) return { refused: [404, "not_found", "There is no such continuation."] };
    if (method === "GET" && what === undefined) return { value: record };
    if (method === "GET" && what === "captured") {
      return record.receipt?.kind === "captured" ? { value: { continuationId: id, text: CAPTURED } } : { refused: [404, "not_found", "There is nothing here."] };
    }
    if (method !== "POST") return { refused: [404, "not_found", "There is no such address."] };
    const wish = (await body()) as { allowUnknown?: boolean; kind?: string; deliveryId?: string };
    if (this.refuses !== null) {
      const refused = this.refuses;
      this.refuses = null;
      return { refused };
    }
    return this.change(record, what ?? "", wish);
  }

  private change(record: Continuation, what: string, wish: { allowUnknown?: boolean; kind?: string; deliveryId?: string }): { value: unknown } | { refused: Refused } {
    const conflict = (code: string, text: string): { refused: Refused } => ({ refused: [409, code, text] });
    const unknown = record.state === "delivery_unknown";
    record.updatedAt = at(0);
    if (what === "cancel") {
      if (["delivered", "expired", "dead_lettered", "delivery_unknown"].includes(record.state)) return conflict("already_terminal", "The continuation is over.");
      record.state = "cancelled";
    } else if (what === "retry") {
      if ((unknown || record.lastError?.code === "operator_dead_lettered") && wish.allowUnknown !== true) return conflict("delivery_unknown", "The delivery's outcome is unknown.");
      if (!unknown && record.state !== "dead_lettered" && record.nextAttemptAt === undefined) return conflict("not_retryable", "There is nothing to retry.");
      record.state = "ready_to_deliver";
      record.attempts.delivery = 0;
      delete record.nextAttemptAt;
    } else if (what === "resolve") {
      if (!unknown) return conflict("not_delivery_unknown", "The continuation's delivery is not unknown.");
      if (wish.kind === "delivered") {
        record.state = "delivered";
        record.receipt = { kind: "delivered", deliveredAt: at(0), historyRecorded: true, ...(wish.deliveryId === undefined ? {} : { deliveryId: wish.deliveryId }) };
      } else if (wish.kind === "not_delivered") record.state = "ready_to_deliver";
      else if (wish.kind === "dead_lettered") {
        record.state = "dead_lettered";
        record.lastError = { code: "operator_dead_lettered", reason: "an operator ended a delivery of unknown outcome", at: at(0) };
      } else return { refused: [400, "invalid_resolution", "That is no resolution."] };
    } else return { refused: [404, "not_found", "There is no such address."] };
    return { value: record };
  }
}
