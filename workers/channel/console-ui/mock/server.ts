/**
 * A server that speaks the console's contract with scripted data, for development and tests.
 *
 * It holds to the rules that the page must live under: the policy, the session, the header on each
 * mutation, the limits.
 */

import { createHash, randomUUID } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join, normalize } from "node:path";
import type { Attachment, Failure, Frame, Hint, Message, MessageStatus, Session, Thread } from "../src/api/types.ts";
import { MockApps } from "./apps.ts";
import { MockContinuations } from "./continuations.ts";
import { Refusal, body, read, send, sse } from "./http.ts";
import * as operator from "./operator.ts";
import { script, type Kept, type Script } from "./replies.ts";

export const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; " +
  "font-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/** Of all that is no page of script, also of the page's own files. */
const PLAIN_POLICY =
  "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

const TYPES: Record<string, string> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".mjs": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".txt": "text/plain; charset=utf-8",
};
const MAX_APP_BODY = 2 * 1024 * 1024;
const MAX_UPLOAD = 20 * 1024 * 1024;
const MAX_QUEUED = 20;

interface Reply {
  message: Message;
  prompt: string;
  frames: Frame[];
  readers: Set<() => void>;
  over: boolean;
  stop: (() => void) | null;
}

export interface MockOptions {
  /** The built page. */
  dist: string;
  port?: number;
  /** Without a login, for development. */
  open?: boolean;
}

export class Mock {
  readonly server: Server;
  readonly threads = new Map<string, { thread: Thread; messages: Message[]; replies: Map<string, Reply> }>();
  readonly files = new Map<string, Kept>();
  readonly uploads = new Map<string, Attachment & { sha256?: string }>();
  readonly sessions = new Map<string, Session>();
  readonly apps = new MockApps();
  readonly continuations = new MockContinuations();
  private readonly hints = new Set<ServerResponse>();
  private readonly streams = new Set<ServerResponse>();
  private readonly tokens = new Set<string>();
  private readonly options: MockOptions;
  private clock = Date.now();

  constructor(options: MockOptions) {
    this.options = options;
    this.server = createServer((request, response) => {
      this.answer(request, response).catch((error: unknown) => {
        const refusal = error instanceof Refusal ? error : new Refusal(500, "internal", String(error));
        if (response.headersSent) response.destroy();
        else send(response, refusal.status, { error: { code: refusal.code, message: refusal.message } });
      });
    });
  }

  async start(): Promise<string> {
    await new Promise<void>((done) => this.server.listen(this.options.port ?? 0, "127.0.0.1", done));
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    for (const { replies } of this.threads.values()) for (const reply of replies.values()) reply.stop?.();
    this.server.closeAllConnections();
    await new Promise((done) => this.server.close(done));
  }

  /** A link that logs in once. */
  login(): string {
    const token = randomUUID();
    this.tokens.add(token);
    return `/login/${token}`;
  }

  /** Ends all connections that stream, as a restart of a proxy does. */
  breakStreams(): void {
    for (const response of [...this.hints, ...this.streams]) response.destroy();
  }

  /** What a restart in mid-answer leaves: no stream, and a reply that is marked. */
  interrupt(): void {
    for (const { messages, replies, thread } of this.threads.values()) {
      for (const message of messages.filter((one) => one.status === "running")) {
        const reply = replies.get(message.id);
        reply?.stop?.();
        message.status = "interrupted";
        message.failure = { kind: "process_death", message: "The service was restarted while it was answering." };
        thread.running = false;
        replies.delete(message.id);
      }
    }
    this.breakStreams();
  }

  hint(hint: Hint): void {
    const data = "id" in hint ? { id: hint.id } : {};
    for (const response of this.hints) response.write(`event: ${hint.kind}\ndata: ${JSON.stringify(data)}\n\n`);
  }

  /** Times that grow, so that orders are stable. */
  private now(): number {
    this.clock = Math.max(this.clock + 1, Date.now());
    return this.clock;
  }

  addThread(rest: Partial<Thread> = {}): Thread {
    const now = this.now();
    const thread: Thread = {
      id: `t${this.threads.size + 1}`,
      title: "",
      titleLocked: false,
      createdAt: now,
      updatedAt: now,
      archived: false,
      unread: false,
      running: false,
      ...rest,
    };
    this.threads.set(thread.id, { thread, messages: [], replies: new Map() });
    return thread;
  }

  /** A turn that is over. */
  addTurn(threadId: string, text: string, answer: string, at?: number): void {
    const { messages } = this.entry(threadId);
    const base = { attachments: [], parts: [], activity: [], createdAt: at ?? this.now() };
    messages.push({ ...base, id: `m${randomUUID().slice(0, 8)}`, role: "user", text, status: "succeeded" });
    messages.push({ ...base, id: `m${randomUUID().slice(0, 8)}`, role: "assistant", text: answer, status: "succeeded" });
  }

  /** The answer of background work, which comes by itself. */
  answerLater(threadId: string, continuation: string, text: string): void {
    const { thread, messages } = this.entry(threadId);
    const now = this.now();
    const id = `m${randomUUID().slice(0, 8)}`;
    const activity = [{ id: `${id}-a`, kind: "status" as const, name: "background_task", arguments: JSON.stringify([continuation]), text: "The background task has ended.", startedAt: now, endedAt: now }];
    messages.push({ id, role: "assistant", createdAt: now, text, status: "succeeded", attachments: [], parts: [], activity });
    const record = this.continuations.records.find((one) => one.continuationId === continuation);
    if (record !== undefined) {
      record.state = "delivered";
      record.receipt = { kind: "delivered", deliveredAt: new Date(now).toISOString(), channelId: `web:${threadId}`, deliveryId: id, historyRecorded: true };
    }
    Object.assign(thread, { updatedAt: now, unread: true });
    this.hint({ kind: "thread", id: threadId });
    this.hint({ kind: "threads" });
  }

  private entry(id: string): { thread: Thread; messages: Message[]; replies: Map<string, Reply> } {
    const entry = this.threads.get(id);
    if (entry === undefined) throw new Refusal(404, "not_found", "There is no such thread.");
    return entry;
  }

  private async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? "/", "http://mock");
    const path = url.pathname;
    const method = request.method ?? "GET";
    if (path === "/healthz") return void response.end("ok");
    const site = request.headers["sec-fetch-site"];
    const from = request.headers.origin;
    if ((site !== undefined && site !== "same-origin" && site !== "none") || (from !== undefined && from !== `http://${request.headers.host}`)) {
      throw new Refusal(403, "foreign_origin", "Requests from pages of other sites are refused.");
    }
    if (path.startsWith("/login/")) return this.logIn(path.slice(7), method, request, response);
    const session = this.session(request);
    if (path.startsWith("/api/")) {
      if (session === null) throw new Refusal(401, "login_required", "Log in first.");
      if (method !== "GET" && request.headers["x-mono-console"] !== "1") {
        throw new Refusal(403, "foreign_origin", "This didn't come from the console.");
      }
      return this.api(method, path.slice("/api/v1".length), url.searchParams, request, response, session);
    }
    if (path.startsWith("/assets/")) return this.asset(path, response);
    if (session === null) {
      response.writeHead(401, { "content-type": "text/html; charset=utf-8", "content-security-policy": PLAIN_POLICY });
      return void response.end("<!doctype html><title>mono</title><p>Run <code>monoctl console open</code>.</p>");
    }
    this.asset("/index.html", response);
  }

  private logIn(token: string, method: string, request: IncomingMessage, response: ServerResponse): void {
    const headers = {
      "content-type": "text/html; charset=utf-8",
      "content-security-policy": PLAIN_POLICY,
      // The form of a page that never says where it stands comes with `Origin: null`.
      "referrer-policy": "same-origin",
    };
    if (!this.tokens.has(token)) {
      response.writeHead(410, headers);
      response.end("<!doctype html><title>mono</title><p>This link is used or too old.</p>");
      return;
    }
    if (method !== "POST") {
      response.writeHead(200, headers);
      response.end('<!doctype html><title>mono</title><form method="post"><button>Log in</button></form>');
      return;
    }
    this.tokens.delete(token);
    const id = randomUUID();
    const now = this.now();
    this.sessions.set(id, {
      id: `s${this.sessions.size + 1}`,
      createdAt: now,
      lastSeenAt: now,
      userAgent: request.headers["user-agent"] ?? "",
      current: false,
    });
    response.writeHead(303, { location: "/", "set-cookie": `mono_session=${id}; HttpOnly; SameSite=Strict; Path=/` });
    response.end();
  }

  private session(request: IncomingMessage): string | null {
    if (this.options.open === true) return "open";
    const found = /(?:^|;\s*)mono_session=([^;]+)/.exec(request.headers.cookie ?? "")?.[1];
    return found !== undefined && this.sessions.has(found) ? found : null;
  }

  private asset(path: string, response: ServerResponse): void {
    const file = join(this.options.dist, normalize(path));
    try {
      if (!statSync(file).isFile()) throw new Error("no file");
    } catch {
      throw new Refusal(404, "not_found", "There is no such file.");
    }
    response.writeHead(200, {
      "content-type": TYPES[extname(file)] ?? "application/octet-stream",
      "content-security-policy": path === "/index.html" ? POLICY : PLAIN_POLICY,
      "x-content-type-options": "nosniff",
      "referrer-policy": "no-referrer",
      "cross-origin-opener-policy": "same-origin",
      "cache-control": path === "/index.html" ? "no-store" : "public, max-age=31536000, immutable",
    });
    response.end(readFileSync(file));
  }

  private async api(
    method: string,
    path: string,
    query: URLSearchParams,
    request: IncomingMessage,
    response: ServerResponse,
    session: string,
  ): Promise<void> {
    const [root, id, what, rest, ...more] = path.split("/").slice(1).map(decodeURIComponent);
    if (root === "operator" && id?.startsWith("continuation") === true) {
      const path = [id, what, rest].filter((part) => part !== undefined);
      const answer = await this.continuations.answer(method, path, query, () => body(request));
      if ("refused" in answer) throw new Refusal(...answer.refused);
      if (method !== "GET") this.hint({ kind: "status" });
      return send(response, 200, answer.value);
    }
    if (root === "mcp-app-proxy") return this.apps.proxy(response);
    if (root === "messages" && what === "apps") return this.app(method, id ?? "", rest ?? "", more, request, response);
    const route = `${method} ${root}${id === undefined ? "" : "/:id"}${what === undefined ? "" : `/${what}`}`;
    switch (route) {
      case "GET bootstrap":
        return send(response, 200, {
          version: "0.1.0",
          agent: { label: "Mono", model: "demo:scripted", models: ["demo:scripted", "anthropic:claude-sonnet"] },
          limits: { attachmentBytes: MAX_UPLOAD, attachments: 10, messageChars: 1_000_000 },
          session: { id: this.sessions.get(session)?.id ?? "open" },
          capabilities: { attachments: true, replyAttachments: { version: 1, maxBytes: MAX_UPLOAD }, mcpApps: { bridgeVersion: 1, versions: ["2026-01-26", "2025-11-21"], mimeTypes: ["text/html;profile=mcp-app"] } },
        });
      case "POST logout":
        this.sessions.delete(session);
        return send(response, 204);
      case "GET sessions":
        return send(response, 200, {
          sessions: [...this.sessions].map(([key, value]) => ({ ...value, current: key === session })),
        });
      case "DELETE sessions/:id":
        for (const [key, value] of this.sessions) if (value.id === id) this.sessions.delete(key);
        return send(response, 204);
      case "GET events":
        return this.events(response);
      case "GET threads":
        return this.list(query, response);
      case "POST threads":
        return send(response, 201, this.addThread());
      case "GET threads/:id":
        return this.page(id ?? "", query, response);
      case "PATCH threads/:id": {
        const { thread } = this.entry(id ?? "");
        const change = (await body(request)) as { title?: string; archived?: boolean; read?: boolean };
        if (change.title !== undefined) Object.assign(thread, { title: change.title.slice(0, 80), titleLocked: true });
        if (change.archived !== undefined) thread.archived = change.archived;
        if (change.read !== undefined) thread.unread = !change.read;
        this.hint({ kind: "threads" });
        return send(response, 200, thread);
      }
      case "DELETE threads/:id":
        if (this.entry(id ?? "").thread.running) throw new Refusal(409, "running", "A turn runs in this thread.");
        this.threads.delete(id ?? "");
        this.hint({ kind: "threads" });
        return send(response, 204);
      case "POST threads/:id/turns":
        return send(response, 202, this.turn(id ?? "", (await body(request)) as Record<string, unknown>));
      case "POST threads/:id/cancel": {
        const { messageId } = (await body(request)) as { messageId?: string };
        this.cancel(id ?? "", messageId);
        return send(response, 202, {});
      }
      case "GET threads/:id/stream":
        return this.stream(id ?? "", query, response);
      case "POST uploads": {
        const wanted = (await body(request)) as { name: string; mediaType: string; bytes: number };
        if (wanted.bytes > MAX_UPLOAD) throw new Refusal(413, "too_large", "The file is larger than 20 MiB.");
        const upload = `u${randomUUID().slice(0, 8)}`;
        this.uploads.set(upload, { id: upload, ...wanted });
        return send(response, 201, { id: upload });
      }
      case "PUT uploads/:id/content": {
        const upload = this.uploads.get(id ?? "");
        if (upload === undefined) throw new Refusal(404, "not_found", "There is no such upload.");
        const content = await read(request, MAX_UPLOAD);
        upload.bytes = content.length;
        upload.sha256 = createHash("sha256").update(content).digest("hex");
        return send(response, 200, upload);
      }
      case "DELETE uploads/:id":
        this.uploads.delete(id ?? "");
        return send(response, 204);
      case "GET threads/:id/files":
        return this.listed(`web:${id}`, rest ?? "", query, response);
      case "GET messages/:id/attachments":
        return this.download(`${id}/${rest}`, query, response);
      case "GET search":
        return this.search(query.get("q") ?? "", response);
      case "GET operator/:id":
        return this.operator(id ?? "", query, response);
      case "GET operator/:id/":
        throw new Refusal(404, "not_found", "There is no such thing.");
      default: {
        if (method === "GET" && root === "operator" && id === "runs") {
          const run = operator.runs.find((one) => one.runId === what);
          if (run === undefined) throw new Refusal(404, "not_found", "There is no run with this id.");
          return send(response, 200, run);
        }
        throw new Refusal(404, "not_found", "There is no such address.");
      }
    }
  }

  private async app(method: string, message: string, id: string, rest: string[], request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (method === "GET" && rest.join("/") === "html") {
      const html = this.apps.html(message, id);
      if (html === null) throw new Refusal(404, "app_missing", "There is no such app.");
      response.writeHead(200, { "content-type": "text/plain; charset=utf-8", "content-security-policy": "sandbox; default-src 'none'", "cache-control": "private, no-store" });
      return void response.end(html);
    }
    if (method === "GET" && rest[0] === "files" && rest[1] !== undefined) {
      const file = this.apps.file(message, id, rest[1]);
      if (file === undefined) throw new Refusal(404, "artifact_missing", "There is no such file.");
      response.writeHead(200, {
        "content-type": "application/octet-stream",
        "content-disposition": `attachment; filename*=UTF-8''${encodeURIComponent(file.part.name)}`,
        "content-length": file.content.length,
        "cache-control": "private, no-store",
      });
      return void response.end(file.content);
    }
    const capability = request.headers["x-mono-app-capability"];
    const { status, body: value } = await this.apps.answer(method, message, id, rest, Array.isArray(capability) ? capability[0] : capability, () => body(request, MAX_APP_BODY), () => read(request, MAX_UPLOAD));
    send(response, status, value);
  }

  private operator(what: string, query: URLSearchParams, response: ServerResponse): void {
    const from = Number(query.get("cursor") ?? 0);
    const upTo = from + 50;
    if (what === "status") {
      return send(response, 200, operator.status([...this.threads.values()].filter((one) => one.thread.running).length, this.continuations.enabled ? this.continuations.health() : null));
    }
    if (what === "runs") {
      const all = operator.runs.filter((run) => (query.get("status") ?? run.status) === run.status);
      return send(response, 200, { runs: all.slice(from, upTo), ...(upTo < all.length ? { nextCursor: String(upTo) } : {}) });
    }
    if (what === "artifacts") {
      const bytes = operator.artifacts.reduce((sum, one) => sum + one.sizeBytes, 0);
      const usage = { usedBytes: bytes, ceilingBytes: 268_435_456, count: operator.artifacts.length, maxCount: 1000, due: 2, dryRun: false };
      return send(response, 200, { artifacts: operator.artifacts, usage });
    }
    if (what === "config") return send(response, 200, { fields: operator.config });
    throw new Refusal(404, "not_found", "There is no such thing.");
  }

  private events(response: ServerResponse): void {
    if (this.hints.size >= 64) throw new Refusal(503, "sse_capacity", "Too many tabs listen.");
    sse(response);
    this.hints.add(response);
    response.on("close", () => this.hints.delete(response));
  }

  private list(query: URLSearchParams, response: ServerResponse): void {
    const archived = query.get("state") === "archived";
    const all = [...this.threads.values()]
      .map((entry) => entry.thread)
      .filter((thread) => thread.archived === archived)
      .sort((a, b) => b.updatedAt - a.updatedAt);
    const from = Number(query.get("cursor") ?? 0);
    const upTo = from + Number(query.get("limit") ?? 50);
    send(response, 200, { threads: all.slice(from, upTo), next: upTo < all.length ? String(upTo) : null });
  }

  private page(id: string, query: URLSearchParams, response: ServerResponse): void {
    const { thread, messages } = this.entry(id);
    const before = query.get("before");
    const end = before === null ? messages.length : Number(before);
    const start = Math.max(0, end - Number(query.get("limit") ?? 50));
    send(response, 200, { thread, messages: messages.slice(start, end), previous: start > 0 ? String(start) : null });
  }

  private turn(id: string, asked: Record<string, unknown>): { message: Message; reply: Message } {
    const entry = this.entry(id);
    const text = String(asked["text"] ?? "");
    const replaces = asked["replaces"];
    if (typeof replaces === "string") {
      const at = entry.messages.findIndex((message) => message.id === replaces);
      if (at < 0) throw new Refusal(404, "not_found", "What is to be replaced is not there.");
      for (const message of entry.messages.splice(at)) {
        entry.replies.get(message.id)?.stop?.();
        entry.replies.delete(message.id);
      }
      entry.thread.running = false;
    }
    if (entry.messages.filter((message) => message.status === "queued").length >= MAX_QUEUED) {
      throw new Refusal(409, "queue_full", "Twenty messages wait already.");
    }
    const attachments = (Array.isArray(asked["attachments"]) ? asked["attachments"] : []).map((upload) => {
      const found = this.uploads.get(String(upload));
      if (found === undefined) throw new Refusal(404, "not_found", "There is no such upload.");
      return { id: found.id, name: found.name, mediaType: found.mediaType, bytes: found.bytes };
    });
    if (!this.apps.consume(asked["apps"])) {
      throw new Refusal(409, "app_context_gone", "What an app gave as context is no longer kept and was taken out. Send the message again.");
    }
    const base = { parts: [], activity: [] };
    const message: Message = {
      ...base,
      id: `m${randomUUID().slice(0, 8)}`,
      role: "user",
      createdAt: this.now(),
      text,
      status: "succeeded",
      attachments,
    };
    const reply: Message = {
      ...base,
      id: `m${randomUUID().slice(0, 8)}`,
      role: "assistant",
      createdAt: this.now(),
      text: "",
      status: "queued",
      attachments: [],
    };
    entry.messages.push(message, reply);
    // Its work goes on when the turn is over.
    const work = /^background\b/.test(text) ? this.continuations.add("claimed", { taskKey: `work of ${id}`, createdAt: new Date().toISOString() }) : null;
    if (work !== null) this.continuations.records.unshift(...this.continuations.records.splice(-1));
    const prompt = work === null ? text : `background ${work.continuationId}`;
    entry.replies.set(reply.id, { message: reply, prompt, frames: [], readers: new Set(), over: false, stop: null });
    if (!entry.thread.titleLocked && entry.thread.title === "") entry.thread.title = text.slice(0, 80);
    entry.thread.updatedAt = this.now();
    this.next(id);
    return structuredClone({ message, reply });
  }

  /** Starts the next queued reply when none runs. */
  private next(id: string): void {
    const entry = this.threads.get(id);
    if (entry === undefined || entry.messages.some((message) => message.status === "running")) return;
    const message = entry.messages.find((one) => one.status === "queued");
    entry.thread.running = message !== undefined;
    const reply = message === undefined ? undefined : entry.replies.get(message.id);
    if (reply !== undefined) {
      reply.message.status = "running";
      reply.message.runId = operator.runs[0]?.runId ?? "run";
      this.play(id, reply, script(reply.prompt, reply.message.id, this.now()));
    }
    this.hint({ kind: "thread", id });
    this.hint({ kind: "threads" });
    this.hint({ kind: "runs" });
  }

  private play(id: string, reply: Reply, plan: Script): void {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let at = 0;
    const run = (): void => {
      for (;;) {
        const step = plan.frames[at];
        if (step === undefined) {
          if (plan.end !== "never") this.end(id, reply, plan.end === "failed" ? "failed" : plan.end, plan);
          return;
        }
        at += 1;
        this.push(reply, step.frame);
        if (step.frame.type === "error") {
          this.settle(id, reply, "failed", step.frame.failure);
          return;
        }
        const wait = plan.frames[at]?.after ?? 0;
        if (wait > 0 || at % 200 === 0) {
          timer = setTimeout(run, wait);
          return;
        }
      }
    };
    reply.stop = () => clearTimeout(timer);
    timer = setTimeout(run, plan.frames[0]?.after ?? 0);
  }

  private driven(message: string): [string, Reply] {
    for (const [id, entry] of this.threads) {
      const reply = entry.replies.get(message);
      if (reply !== undefined) return [id, reply];
    }
    throw new Error(`there is no reply ${message}`);
  }

  /** A frame of an answer that a test writes itself. */
  tell(message: string, frame: Frame): void {
    this.push(this.driven(message)[1], frame);
  }

  /** The end of one. */
  finish(message: string, parts: Message["parts"], failure?: Failure): void {
    const [id, reply] = this.driven(message);
    reply.message.parts = parts;
    if (failure !== undefined) reply.message.failure = failure;
    this.settle(id, reply, failure === undefined ? "succeeded" : "failed");
  }

  private push(reply: Reply, frame: Frame): void {
    reply.frames.push(frame);
    const { message } = reply;
    if (frame.type === "append") message.text += frame.text;
    if (frame.type === "replace") message.text = frame.text;
    if (frame.type === "event") {
      const old = message.activity.find((entry) => entry.id === frame.activity.id);
      if (old === undefined) message.activity.push({ ...frame.activity });
      else Object.assign(old, frame.activity);
    }
    reply.readers.forEach((wake) => wake());
  }

  private end(id: string, reply: Reply, status: MessageStatus, plan: Script): void {
    for (const kept of plan.files) this.files.set(`${reply.message.id}/${kept.part.id}`, kept);
    reply.message.parts = [...plan.files.map((kept) => kept.part), ...plan.failures, ...this.apps.parts(reply.prompt, reply.message.id)];
    reply.message.usage = { input: 1840, output: 412, costUsd: 0.0123 };
    this.settle(id, reply, status);
  }

  private settle(id: string, reply: Reply, status: MessageStatus, failure?: Failure): void {
    reply.stop?.();
    reply.message.status = status;
    if (failure !== undefined) reply.message.failure = failure;
    reply.over = true;
    if (failure === undefined) this.push(reply, { type: "finish", message: structuredClone(reply.message) });
    reply.readers.forEach((wake) => wake());
    const { thread } = this.entry(id);
    thread.updatedAt = this.now();
    thread.unread = true;
    this.next(id);
  }

  private cancel(id: string, messageId: string | undefined): void {
    const entry = this.entry(id);
    const message = entry.messages.find((one) => (messageId === undefined ? one.status === "running" : one.id === messageId));
    const reply = message === undefined ? undefined : entry.replies.get(message.id);
    if (message === undefined || reply === undefined || reply.over) {
      throw new Refusal(404, "not_found", "Nothing of that kind runs or waits.");
    }
    if (message.status === "queued") {
      const at = entry.messages.indexOf(message);
      entry.messages.splice(at - 1, 2);
      this.hint({ kind: "thread", id });
      return;
    }
    this.settle(id, reply, "cancelled");
  }

  private stream(id: string, query: URLSearchParams, response: ServerResponse): void {
    const reply = this.entry(id).replies.get(query.get("message") ?? "");
    if (reply === undefined) throw new Refusal(404, "not_found", "There is no such reply.");
    let at = Number(query.get("after") ?? 0);
    sse(response);
    this.streams.add(response);
    const write = (): void => {
      for (;;) {
        const frame = reply.frames[at];
        if (frame === undefined) break;
        at += 1;
        const { type, ...data } = frame;
        response.write(`id: ${at}\nevent: ${type}\ndata: ${JSON.stringify(data)}\n\n`);
      }
      if (reply.over) response.end();
    };
    reply.readers.add(write);
    response.on("close", () => {
      reply.readers.delete(write);
      this.streams.delete(response);
    });
    write();
  }

  private download(key: string, query: URLSearchParams, response: ServerResponse): void {
    const kept = this.files.get(key);
    if (kept === undefined || query.get("integrity") !== kept.part.integrityId) {
      throw new Refusal(404, "artifact_missing", "The file is not there any more.");
    }
    if (kept.broken === "artifact_expired") throw new Refusal(404, "artifact_expired", "The file was kept for 30 days and is gone.");
    const content = kept.broken === "swapped" ? Buffer.alloc(kept.content.length, "x") : kept.content;
    this.hand(kept.part.name, content, response);
  }

  /** A file of the list of all. The second one is not what was published. */
  private listed(delivery: string, file: string, query: URLSearchParams, response: ServerResponse): void {
    const at = operator.artifacts.findIndex((one) => one.id === file);
    const [record, content] = [operator.artifacts[at], operator.contents[at]];
    const own = record?.deliveryConversationId === delivery && query.get("run") === record.runId;
    if (!own || content === undefined || query.get("integrity") !== record.integrityId) {
      throw new Refusal(404, "artifact_missing", "The file is not there any more.");
    }
    this.hand(record.name, at === 1 ? Buffer.alloc(content.length, "x") : content, response);
  }

  private hand(name: string, content: Buffer, response: ServerResponse): void {
    response.writeHead(200, {
      "content-type": "application/octet-stream",
      "content-disposition": `attachment; filename*=UTF-8''${encodeURIComponent(name)}`,
      "content-length": content.length,
      "accept-ranges": "none",
      "content-security-policy": "sandbox; default-src 'none'",
      "x-content-type-options": "nosniff",
      "cache-control": "no-store",
    });
    response.end(content);
  }

  private search(q: string, response: ServerResponse): void {
    const wanted = q.toLowerCase();
    const hits = [...this.threads.values()].flatMap(({ thread, messages }) =>
      [{ id: undefined, text: thread.title, createdAt: thread.updatedAt }, ...messages].flatMap((message) => {
        const at = message.text.toLowerCase().indexOf(wanted);
        if (at < 0) return [];
        const { text } = message;
        const snippet = [
          { text: text.slice(Math.max(0, at - 60), at), hit: false },
          { text: text.slice(at, at + q.length), hit: true },
          { text: text.slice(at + q.length, at + q.length + 80), hit: false },
        ];
        return [{ threadId: thread.id, title: thread.title, messageId: message.id, snippet, at: message.createdAt }];
      }),
    );
    send(response, 200, { hits: hits.slice(0, 20), next: null });
  }
}
