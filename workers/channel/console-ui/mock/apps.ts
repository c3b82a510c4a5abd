/**
 * Apps of the mock: stored records, views, and what a server decides about what they ask for.
 *
 * A test defines an app by name, and a message that begins with `app NAME` has it in its answer.
 */

import { createHash, randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import type { AppPart, AppRecord, Confirmation, Decision, FilePart } from "../src/api/types.ts";
import { link } from "../src/apps/link.ts";
import { preview } from "../src/apps/preview.ts";

/** As the worker serves it. */
const PROXY = new URL("../src/apps/proxy.html", import.meta.url);
export const PROXY_POLICY =
  "sandbox allow-scripts; script-src 'unsafe-inline'; object-src 'none'; worker-src 'none'; manifest-src 'none'; " +
  "form-action 'none'; frame-ancestors 'self'";

/** Each app has a process of its own. */
export const PROXY_ISOLATION = "isolate-and-credentialless";

export interface Answer {
  status: number;
  body: unknown;
}
type Result = Record<string, unknown>;

export interface AppDefinition {
  html: string;
  record?: Partial<AppRecord>;
  /** Tools that the app may call; another name is refused. */
  tools?: Record<string, (argumentsOf: Record<string, unknown>) => Result | Promise<Result>>;
  /** The app's connection is gone. */
  gone?: boolean;
  /** How long its questions stand. */
  stands?: number;
}

interface View {
  id: string;
  capability: string;
  app: Stored;
  granted: Set<string>;
  context: string | null;
  lastMessage: number;
  waiting: Map<string, { method: string; params: Record<string, unknown>; grant: string }>;
  /** Files whose bytes are yet to come. */
  expected: Map<string, Offered>;
}

interface Offered {
  name: string;
  mediaType: string;
  bytes: number;
}

interface Stored {
  part: AppPart;
  definition: AppDefinition;
  /** Where its call stands. */
  call?: Partial<AppRecord>;
  files: { part: FilePart; content: Buffer }[];
}

const MAX_FILE = 20 * 1024 * 1024;

const refuse = (status: number, code: string, message: string, more: object = {}): Answer => ({ status, body: { error: { code, message, ...more } } });

export class MockApps {
  private readonly definitions = new Map<string, AppDefinition>();
  private readonly stored = new Map<string, Stored>();
  readonly views = new Map<string, View>();
  /** Each executed request, in order. */
  readonly done: { method: string; params: Record<string, unknown> }[] = [];
  /** Each request that came. */
  readonly asked: string[] = [];
  /** Context that went with messages. */
  readonly sent: string[] = [];
  /** Whether the proxy's answer asks for a process of its own. */
  isolated = true;

  define(name: string, definition: AppDefinition): void {
    this.definitions.set(name, definition);
  }

  /** The parts of an answer to `app NAME NAME …`. */
  parts(prompt: string, message: string): AppPart[] {
    const [first, ...names] = prompt.trim().split(/\s+/);
    if (first !== "app") return [];
    return names.flatMap((name, at) => (this.definitions.has(name) ? [this.make(name, message, `a${at + 1}`)] : []));
  }

  /** Stores an app of this definition for a message. */
  make(name: string, message: string, id = "a1"): AppPart {
    const definition = this.definitions.get(name);
    if (definition === undefined) throw new Error(`no app is called ${name}`);
    const part: AppPart = {
      type: "mcp_app",
      messageId: message,
      id,
      invocationId: randomUUID(),
      connectionId: randomUUID(),
      serverName: definition.record?.serverName ?? "mock",
      toolName: definition.record?.toolName ?? name,
      resourceUri: `ui://mock/${name}`,
      title: definition.record?.title ?? `The ${name}`,
      expiresAt: Date.now() + 86_400_000,
    };
    this.stored.set(`${message}/${id}`, { part, definition, files: [] });
    return part;
  }

  /** Where the call of an app stands. */
  know(message: string, call: Partial<AppRecord>, id = "a1"): void {
    const stored = this.stored.get(`${message}/${id}`);
    if (stored !== undefined) stored.call = call;
  }

  /** The run of a message did not keep its app. */
  drop(message: string, id = "a1"): void {
    this.stored.delete(`${message}/${id}`);
  }

  /** What an app may not do any more. */
  disconnect(name: string): void {
    const definition = this.definitions.get(name);
    if (definition !== undefined) definition.gone = true;
  }

  /** The context of these views goes with a message; false when one has none. */
  consume(views: unknown): boolean {
    const named = (Array.isArray(views) ? views : []).map((id) => this.views.get(String(id)));
    if (named.some((view) => typeof view?.context !== "string")) return false;
    for (const view of named) {
      if (view === undefined || view.context === null) continue;
      this.sent.push(view.context);
      view.context = null;
    }
    return true;
  }

  proxy(response: ServerResponse): void {
    response.writeHead(200, {
      "content-type": "text/html; charset=utf-8",
      "content-security-policy": PROXY_POLICY,
      // A browser without it gives all apps of a site one process.
      ...(this.isolated ? { "document-isolation-policy": PROXY_ISOLATION } : {}),
      "x-content-type-options": "nosniff",
      "referrer-policy": "no-referrer",
      "cross-origin-opener-policy": "same-origin",
      "cross-origin-resource-policy": "same-origin",
      "cache-control": "no-store",
    });
    response.end(readFileSync(PROXY));
  }

  html(message: string, id: string): string | null {
    return this.stored.get(`${message}/${id}`)?.definition.html ?? null;
  }

  /** A file of an app. */
  file(message: string, id: string, file: string): { part: FilePart; content: Buffer } | undefined {
    return this.stored.get(`${message}/${id}`)?.files.find((one) => one.part.id === file);
  }

  /** Everything below `/messages/M/apps/ID` but the document and contents of files. */
  async answer(
    method: string,
    message: string,
    id: string,
    rest: string[],
    capability: string | undefined,
    body: () => Promise<unknown>,
    content: () => Promise<Buffer>,
  ): Promise<Answer> {
    const app = this.stored.get(`${message}/${id}`);
    if (app === undefined) return refuse(404, "app_missing", "There is no such app.");
    if (method === "GET" && rest.length === 0) return { status: 200, body: this.record(app) };
    if (method === "GET" && rest.join("/") === "files") return { status: 200, body: { files: app.files.map(({ part }) => part) } };
    if (method === "POST" && rest.join("/") === "views") {
      const view: View = {
        id: randomUUID(),
        capability: randomUUID(),
        app,
        granted: new Set(),
        context: null,
        lastMessage: 0,
        waiting: new Map(),
        expected: new Map(),
      };
      this.views.set(view.id, view);
      return { status: 201, body: { view: view.id, capability: view.capability, connected: app.definition.gone !== true } };
    }
    const view = this.views.get(rest[1] ?? "");
    if (view === undefined || view.app !== app || view.capability !== capability) return refuse(404, "app_forbidden", "There is no such view.");
    const what = `${method} ${rest.slice(2, 3).join("")}`;
    if (what === "DELETE ") {
      this.views.delete(view.id);
      return { status: 204, body: undefined };
    }
    if (what === "DELETE context") {
      view.context = null;
      return { status: 204, body: undefined };
    }
    if (what === "POST requests") {
      const { method: wanted, params = {} } = (await body()) as { method: string; params?: Record<string, unknown> };
      this.asked.push(wanted);
      return this.request(view, wanted, params);
    }
    if (what === "POST confirmations") {
      const waiting = view.waiting.get(rest[3] ?? "");
      if (waiting === undefined) return refuse(404, "app_forbidden", "There is no such question.");
      view.waiting.delete(rest[3] ?? "");
      const { decision } = (await body()) as { decision: Decision };
      if (decision === "deny") return refuse(403, "app_declined", "The person said no.");
      if (decision === "view") view.granted.add(waiting.grant);
      return this.execute(view, waiting.method, waiting.params);
    }
    if (what === "PUT files") {
      const offered = view.expected.get(rest[3] ?? "");
      const bytes = await content();
      view.expected.delete(rest[3] ?? "");
      if (offered?.bytes !== bytes.length) return refuse(400, "app_request_invalid", "These are not the bytes that were offered.");
      const sum = createHash("sha256").update(bytes).digest("hex");
      const part: FilePart = { type: "attachment", messageId: message, app: id, id: randomUUID(), ...offered, sha256: sum, integrityId: `sha256:${sum}`, expiresAt: Date.now() + 86_400_000 };
      app.files.unshift({ part, content: bytes });
      return { status: 201, body: { file: part } };
    }
    return refuse(404, "not_found", "There is no such address.");
  }

  private record({ part, definition, call }: Stored): AppRecord {
    return {
      ...part,
      connected: definition.gone !== true,
      htmlBytes: definition.html.length,
      input: {},
      result: { content: [{ type: "text", text: "made" }], structuredContent: { made: true } },
      csp: {},
      permissions: {},
      tool: { name: part.toolName, inputSchema: { type: "object" } },
      tools: [],
      refused: [],
      redacted: false,
      webrtc: true,
      ...definition.record,
      ...call,
    };
  }

  private async request(view: View, method: string, params: Record<string, unknown>): Promise<Answer> {
    const definition = view.app.definition;
    if (definition.gone === true && method.startsWith("tools/")) return refuse(410, "app_connection_closed", "The app's connection is closed.");
    const ask = (kind: Confirmation["kind"], grant: string, more: Partial<Confirmation>, shown: unknown): Answer | null => {
      if (view.granted.has(grant)) return null;
      if (view.waiting.size >= 4) return refuse(429, "app_rate_limited", "Too many questions wait.");
      const id = randomUUID();
      view.waiting.set(id, { method, params, grant });
      const { text, truncated } = typeof shown === "string" ? { text: shown, truncated: false } : preview(shown);
      const confirmation = { id, kind, server: view.app.part.serverName, preview: text, truncated, mayRemember: kind === "tool" || kind === "context", expiresInMs: definition.stands ?? 120_000, ...more };
      return { status: 409, body: { error: { code: "app_confirmation_required", message: "A person has to decide." }, confirmation } };
    };
    switch (method) {
      case "tools/call": {
        const name = String(params["name"]);
        if (definition.tools?.[name] === undefined) return refuse(403, "app_tool_forbidden", "The app may not call this tool.");
        return ask("tool", `tool ${name}`, { tool: name }, params["arguments"] ?? {}) ?? this.execute(view, method, params);
      }
      case "tools/list":
        return this.execute(view, method, params);
      case "resources/read":
        if (params["uri"] !== view.app.part.resourceUri) return refuse(403, "app_resource_forbidden", "The app may read its own resource alone.");
        return this.execute(view, method, params);
      case "ui/open-link": {
        const target = link(params["url"]);
        if (target === null) return refuse(403, "app_open_link_forbidden", "This address can't be opened.");
        return ask("link", randomUUID(), { host: target.host, url: target.href }, "") ?? this.execute(view, method, params);
      }
      case "ui/update-model-context":
        return ask("context", "context", {}, params) ?? this.execute(view, method, params);
      case "ui/message": {
        const now = Date.now();
        if (now - view.lastMessage < 3000) return refuse(429, "app_rate_limited", "Not so often.");
        view.lastMessage = now;
        return this.execute(view, method, params);
      }
      case "ui/download-file": {
        const files = offered(params);
        if (files === null) return refuse(400, "app_request_invalid", "One to ten files are handed over at once.");
        if (files.some(({ bytes }) => bytes > MAX_FILE)) return refuse(413, "app_request_too_large", "A file has at most 20 MiB.");
        return ask("download", randomUUID(), { files: files.map(({ name, bytes }) => ({ name, bytes })) }, String(params["head"] ?? "")) ?? this.execute(view, method, params);
      }
      default:
        return refuse(400, "app_request_invalid", "There is no such request.");
    }
  }

  private async execute(view: View, method: string, params: Record<string, unknown>): Promise<Answer> {
    this.done.push({ method, params });
    const ok = (result: unknown): Answer => ({ status: 200, body: { result } });
    const tools = view.app.definition.tools ?? {};
    const text = (): string => JSON.stringify(params["structuredContent"] ?? params["content"]);
    switch (method) {
      case "tools/call":
        return ok(await tools[String(params["name"])]?.((params["arguments"] ?? {}) as Record<string, unknown>));
      case "tools/list":
        return ok({ tools: Object.keys(tools).map((name) => ({ name, inputSchema: { type: "object" } })) });
      case "resources/read":
        return ok({ contents: [{ uri: params["uri"], mimeType: "text/html;profile=mcp-app", text: view.app.definition.html }] });
      case "ui/open-link": {
        const target = link(params["url"]);
        return ok({ url: target?.href, host: target?.host });
      }
      case "ui/update-model-context":
        view.context = text();
        return ok({ kept: true, text: view.context });
      case "ui/message":
        return ok({ text: ((params["content"] ?? []) as { text: string }[]).map((block) => block.text).join("\n") });
      default: {
        const files = (offered(params) ?? []).map((one) => {
          const file = randomUUID();
          view.expected.set(file, one);
          return { file, name: one.name, bytes: one.bytes };
        });
        return ok({ files });
      }
    }
  }
}

/** The files of a `ui/download-file`. */
function offered(params: Record<string, unknown>): Offered[] | null {
  const files = Array.isArray(params["files"]) ? (params["files"] as { uri?: string; mimeType?: string; bytes?: number }[]) : [];
  if (files.length === 0 || files.length > 10 || files.some(({ bytes }) => typeof bytes !== "number")) return null;
  return files.map(({ uri = "", mimeType = "", bytes = 0 }) => {
    const name = uri.split("/").at(-1) ?? "";
    return { name: name === "" ? "file" : name, mediaType: mimeType === "" ? "application/octet-stream" : mimeType, bytes };
  });
}
