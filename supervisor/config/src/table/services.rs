//! Rows of what stands beside the agent: artifacts, continuations, memory, interaction, sandbox,
//! metrics, traceability.

use super::{DAY_MS, HOUR_MS, MEMORY_DEFAULT, MEMORY_MAX, MEMORY_MIN};
use crate::field::*;

const WORKSPACE_PATH: Kind = Kind::Path(Base::Workspace);
const GLOB: Kind = Kind::Text {
    max: 1024,
    form: Form::Line,
};
const ORIGIN: Kind = Kind::Text {
    max: 269,
    form: Form::Origin,
};
const SUFFIX: Kind = Kind::Text {
    max: 255,
    form: Form::HostSuffix,
};

// One row a line, or two: a table is read down its columns.
#[rustfmt::skip]
pub(super) const FIELDS: &[Field] = &[
    section("artifacts").doc("Reply files and what runs leave behind."),
    path("artifacts.dir", Base::Config).or_text(".mono-agent/artifacts").env("ARTIFACT_DIR").doc("Where they are kept."),
    int("artifacts.retention.maxAgeDays", 1, 3650).or(365).doc("Days until one expires."),
    int("artifacts.retention.maxCount", 1, 1_000_000).or(50_000).doc("How many are kept."),
    flag("artifacts.retention.dryRun", false).doc("Only report what would be removed."),
    int("artifacts.memoryRetention.maxAgeDays", 1, 3650).or(7).doc("Days for what memory leaves."),
    int("artifacts.memoryRetention.maxCount", 1, 1_000_000).or(5000).doc("How many of those are kept."),

    section("apps").doc("MCP Apps: results of MCP servers that come with a page of their own, in the web console."),
    flag("apps.enabled", true).doc("Whether they are shown and servers are told so. They are kept as long as reply files."),
    list("apps.allowedOrigins", &ORIGIN, 64).or_texts(&[])
        .doc("Origins that pages may reach, of those that they declare; never for scripts. Empty: none."),
    flag("apps.clipboardWrite", true).doc("Whether pages that ask for it may write to the clipboard."),
    records("apps.rules", 256).doc("What apps may call; the first rule that fits decides, and none allows. Each call is confirmed by the person all the same."),
    text("apps.rules[].tool", 256, Form::ToolRule).required().doc("Which tools: `@server/tool`, each part with at most one `*`, at its end."),
    choice("apps.rules[].decision", &["allow", "ask", "deny"]).required()
        .doc("`allow`: a confirmation may hold until the app closes; `ask`: each call is confirmed; `deny`: never."),

    section("continuations").doc("Durable asynchronous results."),
    switch("continuations.enabled").or_meaning("on when this block or a continuation server is there")
        .doc("`false` also stops claims within a run."),
    text("continuations.host", 255, Form::LoopbackHost).or_text("127.0.0.1").doc("Loopback only."),
    int("continuations.port", 1, 65_535).or(4319).doc("A fixed port: stored result addresses must survive a restart."),
    path("continuations.stateDir", Base::Config).or_text(".mono-agent/continuations").doc("Its state folder."),
    int("continuations.limits.maxActiveRecords", 1, 1_000_000).or(10_000).doc("Active records in all."),
    int("continuations.limits.maxActivePerOrigin", 1, 1_000_000).or(500).doc("Active records of one run or route."),
    int("continuations.limits.maxConcurrent", 1, 256).or(16).doc("Results worked on at once."),
    millis("continuations.limits.synthesisTimeoutMs", 1, DAY_MS).or(600_000).doc("Longest synthesis."),
    millis("continuations.limits.deliveryTimeoutMs", 1, DAY_MS).or(120_000).doc("Longest delivery."),
    int("continuations.limits.operatorPageSize", 1, 500).or(100).doc("Records on one operator page."),
    int("continuations.retention.terminalMaxRecords", 0, 10_000_000).or(50_000).doc("Finished records kept."),
    millis("continuations.retention.terminalMaxAgeMs", 0, 3650 * DAY_MS).or(31_536_000_000).doc("How long they are kept."),
    int("continuations.retention.capturedTextMaxRecords", 0, 1_000_000).or(1000).doc("Captured answers kept."),
    millis("continuations.retention.capturedTextMaxAgeMs", 0, 3650 * DAY_MS).or(2_592_000_000).doc("How long they are kept."),
    map("continuations.namedRoutes", Form::Name, 256).doc("Routes for services that no run started."),
    choice("continuations.namedRoutes.<name>.mode", &["notify_if_actionable", "capture", "silent"]).required()
        .doc("What becomes of a result."),
    text("continuations.namedRoutes.<name>.conversationId", 512, Form::Line)
        .doc("Where it goes; needed except for `silent`, where it is forbidden."),
    records("continuations.detachedServices", 12).doc("Services that may claim on a named route."),
    text("continuations.detachedServices[].name", 128, Form::Name).required().doc("The service."),
    secret_env("continuations.detachedServices[].tokenEnv").doc("The variable that holds its bearer, at least 16 characters."),
    secret_credential("continuations.detachedServices[].tokenCredential").doc("The systemd credential that holds it instead."),

    optional("memory").doc("What the agent remembers."),
    choice("memory.mode", &["lite", "journal", "bujo"]).or_text("lite")
        .doc("`journal` needs embeddings, `bujo` needs embeddings and llm."),
    path("memory.path", Base::Config).or_text(".mono-agent/memory").doc("Where it is kept."),
    int("memory.maxBytes", 1024, 100_000_000).or(64_000).doc("Bytes of memory in the prompt's reach."),
    choice("memory.writeMode", &["disabled", "append-host-summary", "capture"])
        .doc("How it is written; `capture` needs mode bujo."),
    optional("memory.embeddings").doc("The embedding model; a block that exists must not be empty."),
    line("memory.embeddings.provider").or_text("ollama").doc("Its provider."),
    line("memory.embeddings.model").or_text("nomic-embed-text:v1.5").doc("Its model."),
    int("memory.embeddings.dim", 1, 65_536).or(768).doc("Its dimensions."),
    millis("memory.embeddings.timeoutMs", 1, 600_000).or(10_000).doc("Longest call."),
    int("memory.embeddings.circuitBreaker.failures", 1, 1000).or(3).doc("Failures that open the breaker."),
    millis("memory.embeddings.circuitBreaker.cooldownMs", 1, DAY_MS).or(30_000).doc("How long it stays open."),
    optional("memory.llm").doc("The model that writes memories."),
    choice("memory.llm.provider", &["ollama", "agent-host"]).or_text("ollama").doc("Its provider."),
    line("memory.llm.model").doc("Its model."),
    millis("memory.llm.timeoutMs", 1000, 600_000).or(60_000).doc("Longest call."),
    flag("memory.recallTool.enabled", true).doc("The MemoryRecall tool."),
    flag("memory.rememberTool.enabled", true).doc("The Remember tool."),
    flag("memory.consolidation.enabled", true).doc("Consolidate by schedule; no model call."),
    text("memory.consolidation.cron", 256, Form::Cron).or_text("0 */2 * * *").doc("When."),

    section("interaction").doc("Questions to the person, and where servers post their progress."),
    millis("interaction.askUser.timeoutMs", 1000, 365 * DAY_MS).or(600_000).nullable().env("ASK_USER_TIMEOUT_MS")
        .doc("How long a question stays open; null (variable: `none`) is without end."),
    text("interaction.bridge.host", 255, Form::LoopbackHost).or_text("127.0.0.1").doc("Loopback only."),
    int("interaction.bridge.port", 0, 65_535).or(0)
        .doc("0 takes a free port for each worker; with one of your own a reload ends the progress of runs under way."),
    flag("interaction.progress.enabled", true)
        .doc("Servers of `tools.mcpRequestContextServers` with the network may post progress."),

    optional("sandbox").doc("Narrower rules for the tools' commands; every run is confined without it too."),
    choice("sandbox.mode", &["native", "off"]).or_text("native").doc("`native` inside the block; off when the block is absent."),
    choice("sandbox.network.mode", &["none", "localhost", "allowlist", "all"]).or_text("none").doc("What a command may reach."),
    list("sandbox.network.allowlist", &SUFFIX, 256).or_texts(&[])
        .doc("Host suffixes with at most one leading `*.`; no address range, port, path, bare `*` or IPv6."),
    list("sandbox.readableRoots", &WORKSPACE_PATH, 64).or_texts(&["."]).doc("Folders a command may read."),
    list("sandbox.writableRoots", &WORKSPACE_PATH, 64).or_texts(&["."]).doc("Folders a command may write."),
    int("sandbox.memoryMaxBytes", MEMORY_MIN, MEMORY_MAX).or(MEMORY_DEFAULT)
        .doc("Bytes of memory that a run may use, its commands included; in force whatever `sandbox.mode` says, and with this default where the block is absent."),
    list("sandbox.denyWrite", &GLOB, 256).or_texts(&[".env", ".env.*", ".git/config", ".git/hooks/**"])
        .doc("Never written, relative to the workspace; setting it replaces these defaults."),
    choice("sandbox.fallback", &["fail-closed", "unsafe-host-process"]).or_text("fail-closed")
        .doc("What happens where the sandbox can't be had."),
    flag("sandbox.unsafeAllowHostProcess", false).doc("The second key that `unsafe-host-process` needs."),

    section("metrics").doc("What the supervisor counts, over HTTP."),
    flag("metrics.enabled", false).env("METRICS_ENABLED").doc("Whether it serves."),
    text("metrics.host", 255, Form::LoopbackHost).or_text("127.0.0.1").env("METRICS_HOST").doc("Loopback only: there is no key."),
    int("metrics.port", 0, 65_535).or(9464).env("METRICS_PORT").doc("0 takes a free port."),

    section("traceability").doc("The registry of running instances."),
    millis("traceability.heartbeatMs", 250, DAY_MS).or(10_000).doc("Between two signs of life."),
    millis("traceability.staleAfterMs", 1000, 7 * 24 * HOUR_MS).or(30_000).doc("Silence that counts as gone."),
    flag("traceability.globalDiscovery", true).doc("Whether other instances of this user see this one."),
];
