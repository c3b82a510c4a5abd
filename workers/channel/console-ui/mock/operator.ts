/** What operators see of the scripted daemon. */

import { createHash } from "node:crypto";
import type { Artifact, ConfigField, ContinuationHealth, Run, Status, Worker } from "../src/api/types.ts";

const PROBES = {
  read_shadow: "refused",
  inet_socket: "refused",
  admin_socket: "refused",
  ptrace_parent: "refused",
  write_outside: "refused",
};

function worker(role: string, pid: number, rest: Partial<Worker> = {}): Worker {
  return {
    role,
    pid,
    state: "serving",
    restarts: 0,
    protocol: 1,
    rss_bytes: 6_400_000 + pid * 3000,
    sandbox: {
      seccomp: 2,
      seccomp_filters: 2,
      no_new_privs: true,
      landlock_abi: 5,
      uid: 64_000 + pid,
      capabilities: 0,
      namespaces: ["mnt", "pid", "ipc", "net", "uts", "user"],
      probes: PROBES,
    },
    ...rest,
  };
}

export function status(working: number, continuations: ContinuationHealth | null): Status {
  return {
    ok: true,
    version: "0.1.0",
    degraded: [],
    uptime_ms: 5_400_000,
    protocol_violations: 0,
    violations: {},
    memory: { enforcement: "cgroup" },
    ...(continuations === null ? {} : { continuations }),
    runs: { working, assigned: working, waiting: 0 },
    workers: [
      worker("store", 411),
      worker("artifact", 412),
      worker("egress", 413),
      worker("app-bridge", 414, { restarts: 1, last_line: "server \"everything\": 13 tools" }),
      worker("channel", 415),
      worker("run", 420, { state: "idle", memory: { bytes: 9_000_000, limit_bytes: 2_147_483_648 } }),
      worker("run", 421, { state: "idle", memory: { bytes: 9_100_000, limit_bytes: 2_147_483_648 } }),
      worker("mcp-server", 431, { name: "everything", memory: { bytes: 88_000_000, limit_bytes: 536_870_912 } }),
      {
        role: "metrics",
        pid: 440,
        state: "serving",
        sandbox: { ...worker("metrics", 440).sandbox, landlock_abi: 0, probes: { ...PROBES, inet_socket: "NOT refused: a socket was made" } },
      },
      { role: "channel", pid: null, state: "parked", restarts: 5, last_line: "the listener is in use" },
    ],
  };
}

export const runs: Run[] = Array.from({ length: 64 }, (_, n) => {
  const state = n === 0 ? "running" : n % 9 === 4 ? "failed" : n % 13 === 7 ? "interrupted" : n % 17 === 5 ? "cancelled" : "succeeded";
  const startedAt = new Date(Date.now() - n * 3_700_000 - 60_000).toISOString();
  return {
    runId: `01998a4e-${(0x9f3a + n * 791).toString(16)}-7000-8000-${(0x9f3a21 + n * 7919).toString(16).padStart(12, "0")}`,
    conversationId: `web:t${(n % 12) + 1}`,
    status: state,
    source: n % 3 === 0 ? "console" : n % 3 === 1 ? "openai" : "webhook",
    sourceDetail: n % 3 === 2 ? "deploys" : null,
    model: n % 5 === 2 ? "anthropic:claude-sonnet" : "demo:scripted",
    startedAt,
    endedAt: state === "running" ? null : new Date(Date.parse(startedAt) + 4200 + n * 130).toISOString(),
    durationMs: state === "running" ? null : 4200 + n * 130,
    failureKind: state === "failed" ? "provider_auth" : null,
    error: state === "failed" ? "The model service refused the key." : null,
    usage: { input: 1840 + n * 31, output: 420 + n * 7, cacheRead: 1024, cacheCreation: 0, costUsd: n % 5 === 2 ? 0.0123 + n / 1000 : null },
    failoverHistory: n % 9 === 4 ? [{ model: "anthropic:claude-sonnet", failureKind: "overloaded", attempts: 3 }] : [],
    tools: [
      { id: "t1", name: "Read", state: "success", durationMs: 42, startedAt, arguments: '{"path":"orders.csv"}', preview: "a,b\n1,2" },
      { id: "t2", name: "Bash", state: "exit_nonzero", durationMs: 810, startedAt, arguments: '{"command":"make report"}', preview: "make: *** [report] Error 2" },
      { id: "t3", name: "PublishReplyFile", state: "success", durationMs: 12, startedAt, arguments: '{"path":"out.csv"}', preview: '{"published":true}' },
    ],
    messages: [
      { role: "user", bytes: 86 },
      { role: "assistant", bytes: 2310 },
    ],
    text: "The intake grew by **12.4 %** over the quarter.",
  };
});

/** The bytes of a listed file. */
export const contents: Buffer[] = Array.from({ length: 18 }, (_, n) => Buffer.alloc(1200 + n * n * 4000, `${n} `));

export const artifacts: Artifact[] = contents.map((content, n) => ({
  id: `a${n}`,
  runId: runs[n]?.runId ?? "",
  conversationId: n % 3 === 2 ? "terminal" : `web:t${n}`,
  deliveryConversationId: n % 3 === 2 ? "terminal" : `web:t${n}`,
  name: n === 3 ? `<b>bold</b>\u202Egpj.csv` : (["orders.csv", "chart.png", "report.pdf", "notes.txt"][n % 4] ?? ""),
  mediaType: ["text/csv", "image/png", "application/pdf", "text/plain"][n % 4] ?? "",
  sizeBytes: content.length,
  integrityId: `sha256:${createHash("sha256").update(content).digest("hex")}`,
  createdAt: new Date(Date.now() - n * 5_000_000).toISOString(),
  expiresAt: new Date(Date.now() + (30 - n) * 86_400_000).toISOString(),
}));

export const config: ConfigField[] = [
  { key: "agent.model", value: '"demo:scripted"', origin: "json" },
  { key: "agent.maxTurns", value: "unset", origin: "default" },
  { key: "artifacts.retention.maxAgeMs", value: "2592000000", origin: "default" },
  { key: "artifacts.retention.maxBytes", value: "268435456", origin: "default" },
  { key: "channels.console.enabled", value: "true", origin: "json" },
  { key: "channels.console.listen", value: '"127.0.0.1:5050"', origin: "default" },
  { key: "channels.console.allowedHosts", value: '["localhost","127.0.0.1"]', origin: "default" },
  { key: "channels.openai.apiKey", value: "set", origin: "env" },
  { key: "providers.anthropic.apiKey", value: "set", origin: "env" },
  { key: "runtime.stateDir", value: '"~/.local/state/mono"', origin: "json" },
  { key: "sandbox.degraded", value: "false", origin: "default" },
];
