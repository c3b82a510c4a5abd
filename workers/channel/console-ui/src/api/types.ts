/** What the console's server sends and takes. Times are milliseconds since 1970 unless said. */

export interface Bootstrap {
  version: string;
  agent: { label: string; model: string; models?: string[] };
  limits: { attachmentBytes: number; attachments: number; attachmentsBytes?: number; messageChars: number };
  session: { id: string };
  capabilities: {
    attachments: boolean;
    replyAttachments?: { version: number; maxBytes: number };
    mcpApps: false | { bridgeVersion: number; versions: string[]; mimeTypes: string[] };
  };
}

export interface Thread {
  id: string;
  /** ≤ 80 characters; empty as long as there is no message. */
  title: string;
  titleLocked: boolean;
  createdAt: number;
  updatedAt: number;
  archived: boolean;
  unread: boolean;
  running: boolean;
}

export interface ThreadPage {
  threads: Thread[];
  next: string | null;
}

export type MessageStatus = "queued" | "running" | "succeeded" | "failed" | "cancelled" | "interrupted";

export interface Attachment {
  id: string;
  name: string;
  mediaType: string;
  bytes: number;
}

export interface FilePart {
  type: "attachment";
  messageId: string;
  id: string;
  name: string;
  mediaType: string;
  bytes: number;
  /** Hexadecimal. */
  sha256?: string;
  expiresAt?: number | string;
  integrityId: string;
  /** The app part that it is a file of, and then no part of the reply. */
  app?: string;
}

export interface FailurePart {
  type: "failure";
  code: string;
  message: string;
  name?: string;
}

interface AppOrigin {
  id: string;
  invocationId: string;
  connectionId: string;
  serverName: string;
  toolName: string;
  resourceUri: string;
  title?: string;
  description?: string;
  expiresAt?: number | null;
}

/** An app that a tool's result brought along; what it shows is read with its record. */
export interface AppPart extends AppOrigin {
  type: "mcp_app";
  messageId: string;
  /** Its call has no result yet: the model writes the arguments, or the tool is at work. */
  stage?: "draft" | "called";
  /** What the arguments say so far. */
  soFar?: Record<string, unknown>;
}

/** A part of a kind that this page doesn't know is shown as such. */
export interface OtherPart {
  type: "other";
  [key: string]: unknown;
}

export type Part = FilePart | FailurePart | AppPart | OtherPart;

export interface AppTool {
  name: string;
  title?: string;
  description?: string;
  inputSchema?: Record<string, unknown>;
}

/** What a stored app is shown with. Origins and permissions are what was granted. */
export interface AppRecord extends AppOrigin {
  connected: boolean;
  htmlBytes: number;
  input: Record<string, unknown> | null;
  /** A whole CallToolResult. */
  result: Record<string, unknown> | null;
  csp: { connectDomains?: string[]; resourceDomains?: string[]; frameDomains?: string[]; baseUriDomains?: string[] };
  permissions: { clipboardWrite?: object };
  prefersBorder?: boolean;
  tool: AppTool;
  tools: AppTool[];
  /** What it declared and was not given. */
  refused: { kind: string; value: string; reason: string }[];
  redacted?: boolean;
  /** False: the host asks the app to do without. */
  webrtc?: boolean;
  /** The call has no result yet; `result` is null, and so is `input` until the call is made. */
  draft?: boolean;
}

export type Decision = "once" | "view" | "deny";

/** What a person has to decide before it is done. */
export interface Confirmation {
  id: string;
  kind: "tool" | "link" | "context" | "download";
  server: string;
  tool?: string;
  host?: string;
  url?: string;
  files?: { name: string; bytes: number }[];
  /** At most 2 KiB, with secrets taken out. */
  preview: string;
  truncated?: boolean;
  mayRemember?: boolean;
  expiresInMs?: number;
}

export interface Activity {
  id: string;
  kind: "tool" | "thought" | "status" | "warning";
  name?: string;
  title?: string;
  /** JSON. */
  arguments?: string;
  result?: string;
  isError?: boolean;
  startedAt: number;
  endedAt?: number;
  truncated?: boolean;
  text?: string;
}

export interface Failure {
  kind: string;
  message: string;
}

export interface Usage {
  input: number;
  output: number;
  costUsd?: number | null;
}

export interface Message {
  id: string;
  role: "user" | "assistant";
  createdAt: number;
  text: string;
  status: MessageStatus;
  runId?: string;
  attachments: Attachment[];
  parts: Part[];
  activity: Activity[];
  failure?: Failure;
  usage?: Usage;
  /** The text was longer. */
  truncated?: boolean;
}

export interface MessagePage {
  thread: Thread;
  /** Oldest first. */
  messages: Message[];
  previous: string | null;
}

export interface Turn {
  text: string;
  attachments: string[];
  /** Edit and resend: drops this message of the user and all after it. */
  replaces?: string;
  model?: string;
  /** Views of apps whose context goes along. */
  apps?: string[];
}

export interface Upload {
  id: string;
  name: string;
  mediaType: string;
  bytes: number;
  sha256: string;
}

export interface Session {
  id: string;
  createdAt: number;
  lastSeenAt: number;
  userAgent: string;
  current: boolean;
}

export interface Hit {
  threadId: string;
  title: string;
  messageId?: string;
  snippet: { text: string; hit: boolean }[];
  at: number;
}

export interface HitPage {
  hits: Hit[];
  next: string | null;
}

/** A frame of a running reply. */
export type Frame =
  | { type: "status"; state: MessageStatus }
  | { type: "append"; text: string }
  | { type: "replace"; text: string }
  | { type: "event"; activity: Activity }
  | { type: "view"; part: AppPart | { id: string; stage: "gone" } }
  | { type: "input"; id: string; arguments: Record<string, unknown> }
  | { type: "finish"; message: Message }
  | { type: "error"; failure: Failure };

/** What may have changed; the page reads it again. */
export type Hint = { kind: "threads" | "runs" | "status" | "all" } | { kind: "thread" | "app"; id: string };

/* What operators see: the objects of `monoctl … --json`, read with tolerance. */

export interface Sandbox {
  seccomp?: number;
  seccomp_filters?: number;
  no_new_privs?: boolean;
  landlock_abi?: number;
  uid?: number;
  capabilities?: number;
  namespaces?: string[] | null;
  probes?: Record<string, unknown>;
}

export interface Worker {
  role: string;
  name?: string;
  pid?: number | null;
  state: string;
  restarts?: number;
  protocol?: number | null;
  rss_bytes?: number;
  memory?: { bytes?: number; limit_bytes: number };
  last_line?: string;
  outdated?: boolean;
  sandbox?: Sandbox | null;
}

export interface Status {
  ok?: boolean;
  version?: string;
  degraded?: string[];
  uptime_ms?: number;
  protocol_violations?: number;
  violations?: Record<string, Record<string, number>>;
  memory?: { enforcement: string; reason?: string };
  runs?: { working?: number; assigned?: number; waiting?: number };
  workers?: Worker[];
  /** Absent where there are none. */
  continuations?: { status?: ContinuationHealth["status"] };
}

export interface Run {
  runId: string;
  conversationId: string;
  status: string;
  source: string;
  sourceDetail?: string | null;
  model?: string | null;
  /** RFC 3339. */
  startedAt: string;
  endedAt?: string | null;
  durationMs?: number | null;
  failureKind?: string | null;
  error?: string | null;
  text?: string | null;
  parts?: Record<string, unknown>[];
  usage?: {
    input: number;
    output: number;
    cacheRead?: number;
    cacheCreation?: number;
    costUsd?: number | null;
  };
  failoverHistory?: { model: string; failureKind: string; attempts: number }[];
  tools?: ToolCall[];
  messages?: { role: string; bytes: number }[];
}

/** A tool call of a run, as the store keeps it. */
export interface ToolCall {
  id: string;
  name: string;
  state: string;
  durationMs?: number | null;
  /** RFC 3339. */
  startedAt?: string;
  /** Both are the beginning, up to 4 KiB. */
  arguments?: string;
  preview?: string;
}

export interface RunPage {
  runs: Run[];
  nextCursor?: string;
}

export interface Artifact {
  id: string;
  runId: string;
  conversationId: string;
  /** Where it went: `web:` and a thread for those of this console. */
  deliveryConversationId?: string | null;
  /** The app that it is a file of. */
  app?: string;
  name: string;
  mediaType: string;
  sizeBytes: number;
  integrityId: string;
  createdAt: string;
  expiresAt: string;
}

export interface ArtifactPage {
  artifacts: Artifact[];
  nextCursor?: string;
  usage?: {
    usedBytes: number;
    ceilingBytes: number;
    count: number;
    maxCount: number;
    /** Artifacts that are to go and are still there. */
    due: number;
    /** Retention only reports. */
    dryRun: boolean;
  };
}

export interface ConfigField {
  key: string;
  value: unknown;
  origin: string;
}

export type ContinuationState =
  | "claimed"
  | "result_received"
  | "synthesizing"
  | "ready_to_deliver"
  | "delivery_retry"
  | "delivered"
  | "delivery_unknown"
  | "expired"
  | "cancelled"
  | "dead_lettered";

/** An answer that comes after its turn. Times are of RFC 3339. */
export interface Continuation {
  continuationId: string;
  state: ContinuationState;
  mode: "reply" | "notify_if_actionable" | "capture" | "silent";
  taskKey: string;
  createdAt: string;
  updatedAt: string;
  deadline: string;
  attempts: { synthesis: number; delivery: number };
  synthesisDeferrals?: number;
  originContext: { state: string; digest?: string; messageCount?: number };
  completionKind?: string;
  nextAttemptAt?: string;
  lastError?: { code: string; reason: string; at: string };
  receipt?: {
    kind: string;
    deliveredAt: string;
    deliveryId?: string;
    channelId?: string;
    historyRecorded?: boolean;
    historyErrorCode?: string;
  };
}

export interface ContinuationPage {
  continuations: Continuation[];
  pageSize: number;
  nextCursor?: string;
}

export interface ContinuationHealth {
  status: "healthy" | "degraded" | "unhealthy";
  checkedAt: string;
  counts: Partial<Record<ContinuationState, number>>;
  pending: number;
  /** Those that wait for nothing but their turn. */
  due: number;
  oldestPendingAt?: string;
  clock?: { steppedByMs: number; heldForMs: number };
  storage: {
    format: string;
    records: number;
    active: number;
    historyDegraded: number;
    capturedText: number;
    limits: { maxActiveRecords?: number; maxActivePerOrigin?: number; maxConcurrent?: number };
  };
}

/** What an operator found out about a delivery of which nobody knows. */
export type Resolution = "delivered" | "not_delivered" | "dead_lettered";
