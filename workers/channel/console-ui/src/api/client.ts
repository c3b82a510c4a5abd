/** Requests to the console's server. Addresses are made here and nowhere else. */

import type {
  Artifact,
  ArtifactPage,
  Bootstrap,
  ConfigField,
  Continuation,
  ContinuationHealth,
  ContinuationPage,
  FilePart,
  HitPage,
  Message,
  MessagePage,
  Resolution,
  Run,
  RunPage,
  Session,
  Status,
  Thread,
  ThreadPage,
  Turn,
  Upload,
} from "./types.ts";

const ROOT = "/api/v1";

/** An answer that is no success, or no answer at all. */
export class ApiError extends Error {
  readonly code: string;
  readonly status: number;

  constructor(status: number, code: string, message: string) {
    super(message);
    this.name = "ApiError";
    this.code = code;
    this.status = status;
  }
}

type Listener = () => void;
const loggedOut = new Set<Listener>();

/** Calls `listener` whenever the server says that there is no session any more. */
export function onLoggedOut(listener: Listener): () => void {
  loggedOut.add(listener);
  return () => loggedOut.delete(listener);
}

/** The error of an answer; tells who listens when the session is gone. */
export function failed(status: number, body: string): ApiError {
  let code = "unexpected_answer";
  let message = `The server answered with status ${status}.`;
  try {
    const { error } = JSON.parse(body) as { error?: { code?: unknown; message?: unknown } };
    if (typeof error?.code === "string") code = error.code;
    if (typeof error?.message === "string") message = error.message;
  } catch {
    // Not ours; the status has to do.
  }
  if (status === 401) loggedOut.forEach((listener) => listener());
  return new ApiError(status, code, message);
}

const UNREACHABLE = "The server can't be reached. Is the daemon running?";

async function request(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = {};
  if (method !== "GET") headers["x-mono-console"] = "1";
  if (body !== undefined) headers["content-type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(`${ROOT}${path}`, {
      method,
      headers,
      body: body === undefined ? null : JSON.stringify(body),
      credentials: "same-origin",
      redirect: "error",
      signal: signal ?? null,
    });
  } catch (cause) {
    if (signal?.aborted) throw cause;
    throw new ApiError(0, "unreachable", UNREACHABLE);
  }
  if (!response.ok) throw failed(response.status, await response.text().catch(() => ""));
  return response;
}

async function json<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const response = await request(method, path, body, signal);
  return (await response.json()) as T;
}

const id = encodeURIComponent;

function query(values: Record<string, string | number | null | undefined>): string {
  const set = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== null && value !== undefined && value !== "") set.set(name, String(value));
  }
  const text = set.toString();
  return text === "" ? "" : `?${text}`;
}

export const api = {
  bootstrap: (): Promise<Bootstrap> => json("GET", "/bootstrap"),
  logout: async (): Promise<void> => void (await request("POST", "/logout")),

  threads: (state: "active" | "archived", cursor?: string | null): Promise<ThreadPage> =>
    json("GET", `/threads${query({ state, cursor, limit: 50 })}`),
  createThread: (): Promise<Thread> => json("POST", "/threads", {}),
  thread: (thread: string, before?: string | null): Promise<MessagePage> =>
    json("GET", `/threads/${id(thread)}${query({ before, limit: 50 })}`),
  changeThread: async (
    thread: string,
    change: { title?: string; archived?: boolean; read?: boolean },
  ): Promise<void> => void (await request("PATCH", `/threads/${id(thread)}`, change)),
  deleteThread: async (thread: string): Promise<void> => void (await request("DELETE", `/threads/${id(thread)}`)),

  send: (thread: string, turn: Turn): Promise<{ message: Message; reply: Message }> =>
    json("POST", `/threads/${id(thread)}/turns`, turn),
  cancel: async (thread: string, messageId: string): Promise<void> =>
    void (await request("POST", `/threads/${id(thread)}/cancel`, { messageId })),
  streamAddress: (thread: string, message: string, after: number): string =>
    `${ROOT}/threads/${id(thread)}/stream${query({ message, after })}`,
  eventsAddress: `${ROOT}/events`,

  declareUpload: (name: string, mediaType: string, bytes: number): Promise<{ id: string }> =>
    json("POST", "/uploads", { name, mediaType, bytes }),
  deleteUpload: async (upload: string): Promise<void> => void (await request("DELETE", `/uploads/${id(upload)}`)),
  uploadAddress: (upload: string): string => `${ROOT}/uploads/${id(upload)}/content`,

  /** Made from the part's ids: what a part says of its address is not followed. */
  fileAddress: (part: FilePart): string => {
    const place = part.app === undefined ? "attachments" : `apps/${id(part.app)}/files`;
    return `${ROOT}/messages/${id(part.messageId)}/${place}/${id(part.id)}${query({ integrity: part.integrityId })}`;
  },
  /** Null for what went to another channel: only an operator's command fetches that. */
  artifactAddress: (file: Artifact): string | null => {
    const thread = /^web:([0-9A-Za-z_-]+)$/.exec(file.deliveryConversationId ?? "")?.[1];
    if (thread === undefined) return null;
    const { runId: run, integrityId: integrity, app } = file;
    return `${ROOT}/threads/${id(thread)}/files/${id(file.id)}${query({ run, integrity, app })}`;
  },
  /** A file at one of these addresses. */
  file: (address: string, signal?: AbortSignal): Promise<Response> =>
    request("GET", address.slice(ROOT.length), undefined, signal),

  search: (q: string, cursor?: string | null, signal?: AbortSignal): Promise<HitPage> =>
    json("GET", `/search${query({ q, cursor, limit: 20 })}`, undefined, signal),

  sessions: (): Promise<{ sessions: Session[] }> => json("GET", "/sessions"),
  revoke: async (session: string): Promise<void> => void (await request("DELETE", `/sessions/${id(session)}`)),

  status: (): Promise<Status> => json("GET", "/operator/status"),
  runs: (status: string, cursor?: string | null): Promise<RunPage> =>
    json("GET", `/operator/runs${query({ status, cursor, limit: 50 })}`),
  run: (run: string): Promise<Run> => json("GET", `/operator/runs/${id(run)}`),
  artifacts: (cursor?: string | null): Promise<ArtifactPage> =>
    json("GET", `/operator/artifacts${query({ cursor, limit: 50 })}`),
  continuationHealth: (): Promise<ContinuationHealth> => json("GET", "/operator/continuation-health"),
  /** As many at once as the configuration says. */
  continuations: (cursor?: string | null): Promise<ContinuationPage> => json("GET", `/operator/continuations${query({ cursor })}`),
  continuation: (continuation: string): Promise<Continuation> => json("GET", `/operator/continuations/${id(continuation)}`),
  capturedText: (continuation: string): Promise<{ text: string }> =>
    json("GET", `/operator/continuations/${id(continuation)}/captured`),
  retryContinuation: (continuation: string, allowUnknown: boolean): Promise<Continuation> =>
    json("POST", `/operator/continuations/${id(continuation)}/retry`, { allowUnknown }),
  cancelContinuation: (continuation: string): Promise<Continuation> =>
    json("POST", `/operator/continuations/${id(continuation)}/cancel`, {}),
  resolveContinuation: (continuation: string, kind: Resolution, deliveryId?: string): Promise<Continuation> =>
    json("POST", `/operator/continuations/${id(continuation)}/resolve`, deliveryId === undefined ? { kind } : { kind, deliveryId }),
  config: (): Promise<{ fields: ConfigField[] }> => json("GET", "/operator/config"),
};

/** Sends the bytes of a declared upload; `fetch` can't tell how far it is. */
export function sendContent(
  upload: string,
  file: Blob,
  onProgress: (part: number) => void,
  signal: AbortSignal,
): Promise<Upload> {
  return new Promise((resolve, reject) => {
    const xhr = new XMLHttpRequest();
    xhr.open("PUT", api.uploadAddress(upload));
    xhr.setRequestHeader("content-type", "application/octet-stream");
    xhr.setRequestHeader("x-mono-console", "1");
    xhr.upload.onprogress = (e) => onProgress(e.lengthComputable && e.total > 0 ? e.loaded / e.total : 0);
    xhr.onload = () => {
      if (xhr.status !== 200) return reject(failed(xhr.status, xhr.responseText));
      try {
        resolve(JSON.parse(xhr.responseText) as Upload);
      } catch {
        reject(new ApiError(xhr.status, "unexpected_answer", "The server's answer can't be read."));
      }
    };
    xhr.onerror = () => reject(new ApiError(0, "unreachable", UNREACHABLE));
    xhr.onabort = () => reject(new DOMException("aborted", "AbortError"));
    signal.addEventListener("abort", () => xhr.abort(), { once: true });
    xhr.send(file);
  });
}

/** A sentence for a person about anything that was thrown. */
export function sentence(error: unknown): string {
  if (error instanceof Error && error.message !== "") return error.message;
  return "Something went wrong.";
}
