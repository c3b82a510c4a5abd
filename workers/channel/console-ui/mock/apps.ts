/**
 * Apps of the mock: stored records, views, and what a server decides about what they ask for.
 *
 * A test defines an app by name, and a message that begins with `app NAME` has it in its answer.
 */

import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import type { AppPart, AppRecord, Confirmation, Decision } from "../src/api/types.ts";
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
}

interface View {
  id: string;
  capability: string;
  app: Stored;
  granted: Set<string>;
  context: string | null;
  lastMessage: number;
  waiting: Map<string, { method: string; params: Record<string, unknown>; grant: string }>;
}

interface Stored {
  part: AppPart;
  definition: AppDefinition;
}

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
    return names.flatMap((name, at) => {
      const definition = this.definitions.get(name);
      if (definition === undefined) return [];
      const id = `a${at + 1}`;
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
      this.stored.set(`${message}/${id}`, { part, definition });
      return [part];
    });
  }

  /** What an app may not do any more. */
  disconnect(name: string): void {
    const definition = this.definitions.get(name);
    if (definition !== undefined) definition.gone = true;
  }

  /** The context of these views goes with a message. */
  consume(views: unknown): void {
    for (const id of Array.isArray(views) ? views : []) {
      const view = this.views.get(String(id));
      if (typeof view?.context === "string") this.sent.push(view.context);
      if (view !== undefined) view.context = null;
    }
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

  /** Everything below `/messages/M/apps/ID` but the document. */
  async answer(method: string, message: string, id: string, rest: string[], capability: string | undefined, body: () => Promise<unknown>): Promise<Answer> {
    const app = this.stored.get(`${message}/${id}`);
    if (app === undefined) return refuse(404, "app_missing", "There is no such app.");
    if (method === "GET" && rest.length === 0) return { status: 200, body: this.record(app) };
    if (method === "POST" && rest.join("/") === "views") {
      const view: View = {
        id: randomUUID(),
        capability: randomUUID(),
        app,
        granted: new Set(),
        context: null,
        lastMessage: 0,
        waiting: new Map(),
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
    return refuse(404, "not_found", "There is no such address.");
  }

  private record({ part, definition }: Stored): AppRecord {
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
      const confirmation = { id, kind, server: view.app.part.serverName, preview: text, truncated, mayRemember: kind === "tool" || kind === "context", ...more };
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
        const files = embedded(params);
        if (files === null) return refuse(400, "app_request_invalid", "Only embedded files can be saved.");
        return ask("download", randomUUID(), { files: files.map(({ name, bytes }) => ({ name, bytes })) }, "") ?? this.execute(view, method, params);
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
      default:
        return ok({ files: embedded(params) });
    }
  }
}

/** The files of a `ui/download-file`. */
function embedded(params: Record<string, unknown>): { name: string; mediaType: string; bytes: number; data: string }[] | null {
  const contents = Array.isArray(params["contents"]) ? (params["contents"] as { type: string; resource?: Record<string, string> }[]) : [];
  if (contents.length === 0 || contents.some((one) => one.type !== "resource")) return null;
  return contents.map(({ resource = {} }) => {
    const content = resource["blob"] === undefined ? Buffer.from(resource["text"] ?? "") : Buffer.from(resource["blob"], "base64");
    const name = (resource["uri"] ?? "").split("/").at(-1) ?? "";
    return { name: name === "" ? "file" : name, mediaType: resource["mimeType"] ?? "application/octet-stream", bytes: content.length, data: content.toString("base64") };
  });
}
