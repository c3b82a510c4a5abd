/**
 * What may pass between a view and the page, and when: the state of one conversation, without
 * effects.
 *
 * The library behind it answers whatever comes, in any order (a second `ui/initialize`, requests
 * before `initialized`, results before the input). Here an order is the only one there is.
 */

import { DOWNLOAD_BYTES, EARLY_REQUESTS, REQUEST_BYTES, REQUESTS_AT_ONCE, RESULT_BYTES, RESULT_DEPTH } from "./limits.ts";
import { weigh } from "./json.ts";
import { revision, type Revision } from "./revision.ts";

export type Id = string | number;
export interface Message {
  jsonrpc: "2.0";
  id?: Id;
  method?: string;
  params?: Record<string, unknown>;
  result?: unknown;
  error?: { code: number; message: string; data?: unknown };
}

export type Verdict =
  | { kind: "pass"; message: Message }
  /** Held until the view has said that it is ready. */
  | { kind: "hold"; message: Message }
  /** Answered here. */
  | { kind: "answer"; message: Message }
  | { kind: "drop"; why: Dropped };

export type Dropped = "malformed" | "too_large" | "too_early" | "unasked" | "out_of_order" | "closed" | "reserved";

const METHOD = /^[A-Za-z$][A-Za-z0-9_/$.-]{0,127}$/;
const DOWNLOAD = "ui/download-file";
const INITIALIZE = "ui/initialize";
const INITIALIZED = "ui/notifications/initialized";
const INPUT = "ui/notifications/tool-input";
const PARTIAL = "ui/notifications/tool-input-partial";
const RESULT = "ui/notifications/tool-result";
const CANCELLED = "ui/notifications/tool-cancelled";
/** Between the page and its proxy; an app that says it means somebody else. */
const SANDBOX = "ui/notifications/sandbox-";

/** The code of the standard for what a host decides. */
export const REFUSED = -32000;
const INVALID_REQUEST = -32600;
export const INVALID_PARAMS = -32602;

export function failure(id: Id, code: number, message: string, data?: unknown): Message {
  return { jsonrpc: "2.0", id, error: { code, message, ...(data === undefined ? {} : { data }) } };
}

/**
 * True when a view may be sent these parameters, or this result. How many values they have doesn't
 * matter: an app asks for them, and each takes a byte at least.
 */
export function sendable(content: unknown): boolean {
  return content === undefined || weigh(content, RESULT_BYTES, RESULT_BYTES, RESULT_DEPTH) !== null;
}

function idOf(value: unknown): Id | null {
  if (typeof value === "string") return value.length <= 128 ? value : null;
  return typeof value === "number" && Number.isSafeInteger(value) ? value : null;
}

type Phase = "new" | "asked" | "answered" | "ready" | "closed";

export class Gate {
  private phase: Phase = "new";
  private initialize: Id | null = null;
  private agreed: Revision | null = null;
  /** Requests of the view without an answer yet. */
  private readonly theirs = new Set<Id>();
  /** Requests to the view without an answer yet. */
  private readonly ours = new Set<Id>();
  private held = 0;
  private input = false;
  private result = false;

  get ready(): boolean {
    return this.phase === "ready";
  }

  /** Nothing passes any more. */
  close(): void {
    this.phase = "closed";
  }

  /** Of something that the view's window sent. */
  incoming(data: unknown): Verdict {
    if (this.phase === "closed") return { kind: "drop", why: "closed" };
    if (typeof data !== "object" || data === null || Array.isArray(data)) return { kind: "drop", why: "malformed" };
    const message = data as Message;
    if (message.jsonrpc !== "2.0") return { kind: "drop", why: "malformed" };
    const method: unknown = message.method;
    const most = method === DOWNLOAD ? DOWNLOAD_BYTES : REQUEST_BYTES;
    const fits = weigh(data, most) !== null;
    const id = idOf(message.id);
    if (method === undefined) {
      if (!fits) return { kind: "drop", why: "too_large" };
      if (id === null || !this.ours.delete(id)) return { kind: "drop", why: "unasked" };
      return { kind: "pass", message };
    }
    if (typeof method !== "string" || !METHOD.test(method)) return { kind: "drop", why: "malformed" };
    const params: unknown = message.params;
    if (params !== undefined && (typeof params !== "object" || params === null || Array.isArray(params))) {
      return id === null
        ? { kind: "drop", why: "malformed" }
        : { kind: "answer", message: failure(id, INVALID_PARAMS, "The parameters must be an object.") };
    }
    if (message.id === undefined) return fits ? this.notification(method, message) : { kind: "drop", why: "too_large" };
    if (id === null) return { kind: "drop", why: "malformed" };
    if (!fits) {
      return { kind: "answer", message: failure(id, REFUSED, "The request is too large.", { code: "app_request_too_large" }) };
    }
    return this.request(method, id, message);
  }

  private notification(method: string, message: Message): Verdict {
    if (method.startsWith(SANDBOX)) return { kind: "drop", why: "reserved" };
    if (method === INITIALIZED) {
      if (this.phase !== "answered") return { kind: "drop", why: "out_of_order" };
      this.phase = "ready";
      return { kind: "pass", message };
    }
    if (this.phase !== "ready") return { kind: "drop", why: "too_early" };
    // What was withdrawn isn't answered any more.
    const withdrawn = method === "notifications/cancelled" ? idOf(message.params?.["requestId"]) : null;
    if (withdrawn !== null) this.theirs.delete(withdrawn);
    return { kind: "pass", message };
  }

  private request(method: string, id: Id, message: Message): Verdict {
    const refuse = (code: number, text: string, data?: unknown): Verdict => ({ kind: "answer", message: failure(id, code, text, data) });
    if (this.theirs.has(id)) return refuse(INVALID_REQUEST, "This id is in use.");
    if (this.theirs.size >= REQUESTS_AT_ONCE) return refuse(REFUSED, "Too many requests are under way.", { code: "app_rate_limited" });
    if (method === INITIALIZE) {
      if (this.phase !== "new") return refuse(INVALID_REQUEST, "This view is initialized already.");
      const agreed = revision(message.params?.["protocolVersion"]);
      if (agreed === null) {
        return refuse(INVALID_PARAMS, "There is no revision in common.", { supported: ["2026-01-26", "2025-11-21"] });
      }
      this.phase = "asked";
      this.agreed = agreed;
      this.initialize = id;
    } else if (method !== "ping" && this.phase !== "ready") {
      // Files are too large to be held.
      if (this.held >= EARLY_REQUESTS || method === DOWNLOAD) return this.early(id);
      this.held += 1;
      this.theirs.add(id);
      return { kind: "hold", message };
    }
    this.theirs.add(id);
    return { kind: "pass", message };
  }

  /** The answer to a request that came before `initialized` and was not held, or for too long. */
  early(id: Id): { kind: "answer"; message: Message } {
    this.theirs.delete(id);
    return { kind: "answer", message: failure(id, REFUSED, "Say ui/notifications/initialized first.", { code: "app_not_initialized" }) };
  }

  /** Of something that the library has for the view; null when it must not be sent. */
  outgoing(message: Message): Message | null {
    if (this.phase === "closed") return null;
    if (message.method === undefined) return this.answer(message);
    if (this.phase !== "ready" || !sendable(message.params)) return null;
    switch (message.method) {
      case INPUT:
        if (this.input) return null;
        this.input = true;
        break;
      case PARTIAL:
        if (this.input) return null;
        break;
      case RESULT:
      case CANCELLED:
        // One of them ends the call, and a result comes after what it is the result of.
        if (this.result || (message.method === RESULT && !this.input)) return null;
        this.result = true;
        break;
      default:
        if (message.method.startsWith(SANDBOX)) return null;
    }
    if (message.id !== undefined) this.ours.add(message.id);
    return message;
  }

  private answer(message: Message): Message | null {
    const { id } = message;
    if (id === undefined || !this.theirs.delete(id)) return null;
    if (!sendable(message.result ?? message.error)) {
      return failure(id, REFUSED, "The result is too large.", { code: "app_result_too_large" });
    }
    if (id !== this.initialize || this.phase !== "asked") return message;
    if (message.error !== undefined) {
      this.phase = "new";
      this.initialize = null;
      return message;
    }
    this.phase = "answered";
    // The library knows one revision and says it whatever was asked.
    return { ...message, result: { ...(message.result as object), protocolVersion: this.agreed } };
  }
}
