/** Requests about apps of a reply. The capability of a view stays in here and never enters a frame. */

import { ApiError, failed } from "./client.ts";
import type { AppPart, AppRecord, Confirmation, Decision, FilePart } from "./types.ts";

const ROOT = "/api/v1";
const UNREACHABLE = "The server can't be reached. Is the daemon running?";
const id = encodeURIComponent;

/** An answer that is no success, with what an app or a person has to be told beside it. */
export class AppError extends ApiError {
  readonly confirmation: Confirmation | undefined;
  /** What the MCP server itself answered. */
  readonly rpc: { code: number; message: string } | undefined;

  constructor(error: ApiError, confirmation?: Confirmation, rpc?: { code: number; message: string }) {
    super(error.status, error.code, error.message);
    this.name = "AppError";
    this.confirmation = confirmation;
    this.rpc = rpc;
  }
}

function refusal(status: number, body: string): AppError {
  const error = failed(status, body);
  try {
    const parsed = JSON.parse(body) as { confirmation?: Confirmation; error?: { rpc?: { code?: unknown; message?: unknown } } };
    const rpc = parsed.error?.rpc;
    const said = typeof rpc?.code === "number" && typeof rpc.message === "string" ? { code: rpc.code, message: rpc.message } : undefined;
    return new AppError(error, parsed.confirmation, said);
  } catch {
    return new AppError(error);
  }
}

interface Ask {
  method: "GET" | "POST" | "PUT" | "DELETE";
  path: string;
  body?: unknown;
  /** Sent as they are. */
  bytes?: Uint8Array<ArrayBuffer>;
  capability?: string;
  signal?: AbortSignal | undefined;
  /** Is sent although the page goes away. */
  keepalive?: boolean;
}

async function ask({ method, path, body, bytes, capability, signal, keepalive = false }: Ask): Promise<Response> {
  const headers: Record<string, string> = {};
  if (method !== "GET") headers["x-mono-console"] = "1";
  if (body !== undefined) headers["content-type"] = "application/json";
  if (bytes !== undefined) headers["content-type"] = "application/octet-stream";
  if (capability !== undefined) headers["x-mono-app-capability"] = capability;
  let response: Response;
  try {
    response = await fetch(`${ROOT}${path}`, {
      method,
      headers,
      body: bytes ?? (body === undefined ? null : JSON.stringify(body)),
      credentials: "same-origin",
      redirect: "error",
      signal: signal ?? null,
      keepalive,
    });
  } catch (cause) {
    if (signal?.aborted === true) throw cause;
    throw new AppError(new ApiError(0, "unreachable", UNREACHABLE));
  }
  if (!response.ok) throw refusal(response.status, await response.text().catch(() => ""));
  return response;
}

/** Made from the part's ids: what a part says of its address is not followed. */
function appPath(part: AppPart): string {
  return `/messages/${id(part.messageId)}/apps/${id(part.id)}`;
}

/** One mounted frame, as the server knows it. */
export class View {
  readonly id: string;
  readonly connected: boolean;
  private readonly path: string;
  private readonly capability: string;

  constructor(part: AppPart, opened: { view: string; capability: string; connected: boolean }) {
    this.id = opened.view;
    this.connected = opened.connected;
    this.capability = opened.capability;
    this.path = `${appPath(part)}/views/${id(opened.view)}`;
  }

  /** What an app asks for. A 409 with a confirmation says that a person has to be asked. */
  async request(method: string, params: unknown, signal?: AbortSignal): Promise<unknown> {
    const { capability } = this;
    const response = await ask({ method: "POST", path: `${this.path}/requests`, body: { method, params }, capability, signal });
    return ((await response.json()) as { result: unknown }).result;
  }

  async decide(confirmation: string, decision: Decision, signal?: AbortSignal): Promise<unknown> {
    const path = `${this.path}/confirmations/${id(confirmation)}`;
    const response = await ask({ method: "POST", path, body: { decision }, capability: this.capability, signal });
    return ((await response.json()) as { result: unknown }).result;
  }

  /** The bytes of a file that a person wants; gives the file as it is kept. */
  async hand(file: string, bytes: Uint8Array<ArrayBuffer>, signal?: AbortSignal): Promise<FilePart> {
    const response = await ask({ method: "PUT", path: `${this.path}/files/${id(file)}`, bytes, capability: this.capability, signal });
    return ((await response.json()) as { file: FilePart }).file;
  }

  async dropContext(): Promise<void> {
    await ask({ method: "DELETE", path: `${this.path}/context`, capability: this.capability });
  }

  async close(): Promise<void> {
    await ask({ method: "DELETE", path: this.path, capability: this.capability, keepalive: true });
  }
}

export const apps = {
  record: async (part: AppPart, signal?: AbortSignal): Promise<AppRecord> =>
    (await (await ask({ method: "GET", path: appPath(part), signal })).json()) as AppRecord,
  html: async (part: AppPart, signal?: AbortSignal): Promise<string> =>
    (await ask({ method: "GET", path: `${appPath(part)}/html`, signal })).text(),
  files: async (part: AppPart, signal?: AbortSignal): Promise<FilePart[]> =>
    ((await (await ask({ method: "GET", path: `${appPath(part)}/files`, signal })).json()) as { files: FilePart[] }).files,
  open: async (part: AppPart): Promise<View> => {
    const response = await ask({ method: "POST", path: `${appPath(part)}/views`, body: {} });
    return new View(part, (await response.json()) as { view: string; capability: string; connected: boolean });
  },
};
