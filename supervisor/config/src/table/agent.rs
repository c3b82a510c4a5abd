//! Rows of the agent itself: runtime, concurrency, providers, context, tools.

use super::{DAY_MS, MEMORY_DEFAULT, MEMORY_MAX, MEMORY_MIN};
use crate::field::*;

/// Reasoning effort; the provider maps it to its own scale.
pub(crate) const EFFORTS: &[&str] = &[
    "none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra",
];

/// The protocol that a provider speaks.
pub(crate) const WIRES: &[&str] = &["openai-chat", "openai-responses", "anthropic-messages"];

const MODEL_NAME: Kind = Kind::Text {
    max: 256,
    form: Form::Line,
};
const TOOL_NAME: Kind = Kind::Text {
    max: 256,
    form: Form::Line,
};
const SERVER_NAME: Kind = Kind::Text {
    max: 64,
    form: Form::ServerName,
};
const ARGUMENT: Kind = Kind::Text {
    max: 32_768,
    form: Form::Any,
};
const WORKSPACE_PATH: Kind = Kind::Path(Base::Workspace);
const BACKEND: Kind = Kind::Choice(&["parallel", "ollama"]);
const HOST_PORT: Kind = Kind::Text {
    max: 262,
    form: Form::HostPort,
};

// One row a line, or two: a table is read down its columns.
#[rustfmt::skip]
pub(super) const FIELDS: &[Field] = &[
    line("$schema").doc("Where an editor finds the JSON Schema of this file."),
    section("runtime").doc("The agent's model, its session and its folders."),
    text("runtime.model", 320, Form::Model).required().env("MODEL")
        .doc("The model that answers, as `<provider>:<model>`; `demo:scripted` needs no key and no network."),
    choice("runtime.effort", EFFORTS).or_meaning("the model's own default").env("EFFORT")
        .doc("Reasoning effort."),
    int("runtime.maxTurns", 0, 100).or_meaning("unlimited").env("MAX_TURNS")
        .doc("Model calls in one run; 0 is unlimited."),
    path("runtime.workspace", Base::Config).or_text(".").env("WORKSPACE")
        .doc("The folder the agent works in."),
    path("runtime.stateDir", Base::Config).or_text(".mono-agent").env("STATE_DIR")
        .doc("Where the supervisor's workers keep what they own (database, scratch, admin socket)."),
    records("runtime.fallbacks", 16).env("FALLBACKS_JSON")
        .doc("Models to try, in order, when the primary one fails."),
    text("runtime.fallbacks[].model", 320, Form::Model).required().doc("As runtime.model."),
    choice("runtime.fallbacks[].effort", EFFORTS).or_meaning("the model's own default")
        .doc("As runtime.effort."),
    int("runtime.fallbacks[].attempts", 1, 10).or(1).doc("Attempts with this model."),
    int("runtime.retry.primaryAttempts", 1, 10).or(2).env("RETRY_PRIMARY_ATTEMPTS")
        .doc("Attempts with the primary model before the first fallback."),
    millis("runtime.retry.backoffMs", 0, DAY_MS).or(1000).env("RETRY_BACKOFF_MS")
        .doc("First wait between two attempts; it doubles."),
    millis("runtime.retry.maxBackoffMs", 0, DAY_MS).or(15_000).env("RETRY_MAX_BACKOFF_MS")
        .doc("Longest wait between two attempts."),
    choice("runtime.session.mode", &["continuous", "per-message"]).or_text("continuous").env("SESSION_MODE")
        .doc("Whether messages of one conversation share a provider session."),
    millis("runtime.session.idleTimeoutMs", 1000, 365 * DAY_MS).or(1_800_000).env("SESSION_IDLE_TIMEOUT_MS")
        .doc("An idle session is closed after this."),
    flag("runtime.session.isolateProactive", false)
        .doc("Turns from cron and webhooks get a session of their own."),
    choice("runtime.session.rollover", &["none", "daily"]).or_text("none")
        .doc("Whether a conversation starts anew each day."),
    text("runtime.session.rolloverTimezone", 128, Form::Zone).or_meaning("the system's zone")
        .doc("The zone whose midnight counts."),
    flag("runtime.session.rolloverNotice", false).doc("Say so when a day begins."),
    flag("runtime.compaction.enabled", true).doc("Summarise old context when the window fills."),
    number("runtime.compaction.triggerRatio", 0.2, 0.95).or_number(0.7)
        .doc("The share of the window that starts compaction."),
    int("runtime.compaction.keepRecentTokens", 4000, 200_000)
        .or_meaning("10 % of the window, 4000 to 20000").doc("Newest tokens that are kept as they are."),
    int("runtime.compaction.summaryMaxTokens", 1000, 64_000)
        .or_meaning("4 % of the window, 2000 to 12000").doc("Longest summary."),
    int("runtime.compaction.minSavingsTokens", 0, 500_000)
        .or_meaning("10 % of the window, 4000 to 20000").doc("A smaller saving is not applied."),
    flag("runtime.compaction.fixedOverheadEnabled", true)
        .doc("Count the prompt's fixed part when the ratio is computed."),
    int("runtime.compaction.contextWindowOverride", 32_000, 10_000_000)
        .or_meaning("the model's window").doc("The window's size in tokens."),

    section("concurrency").doc("How many runs at once."),
    int("concurrency.maxConcurrentRuns", 1, 1000).or_meaning("no bound")
        .env("CONCURRENCY_MAX_CONCURRENT_RUNS").doc("Runs at once, for each channel."),
    int("concurrency.maxPendingRuns", 0, 100_000).or_meaning("no bound")
        .env("CONCURRENCY_MAX_PENDING_RUNS").doc("Runs that may wait, for each channel; one more is refused."),

    map("providers", Form::ProviderId, 64).env("PROVIDERS_JSON")
        .doc("Model providers. `demo`, `ollama` and `lmstudio` are there without an entry."),
    path("providers.piAuthPath", Base::Config).or_meaning("`~/.pi/agent/auth.json`").env("PI_AUTH_PATH")
        .doc("Reserved; accepted and not read."),
    optional("providers.piNative").doc("Accepted for files of the earlier runtime."),
    choice("providers.piNative.transport", &["auto", "sse", "websocket", "websocket-cached"]).or_text("auto")
        .doc("Transport of the earlier runtime."),
    int("providers.piNative.piMaxRetries", 0, 8).or(2).doc("Retries of the earlier runtime."),
    millis("providers.piNative.maxRetryDelayMs", 0, DAY_MS).or(60_000).doc("Longest retry wait of the earlier runtime."),
    path("providers.piNative.piSessionsRoot", Base::Config).or_meaning("memory only")
        .doc("Session folder of the earlier runtime."),
    choice("providers.piNative.cacheRetention", &["long", "short"]).doc("Prompt cache of the earlier runtime."),
    text("providers.<id>.baseUrl", 2048, Form::BaseUrl).or_meaning("the provider's own, where it is known")
        .doc("The API's address, up to and including its version segment."),
    choice("providers.<id>.wire", WIRES).or_meaning("by the provider's name, else openai-chat")
        .doc("The protocol it speaks."),
    secret_env("providers.<id>.apiKeyEnv").doc("The variable that holds the key."),
    secret_file("providers.<id>.apiKeyFile").doc("The file that holds the key; opened by the supervisor, read only by `egress`."),
    secret_credential("providers.<id>.apiKeyCredential")
        .doc("The systemd credential that holds the key, found below `$CREDENTIALS_DIRECTORY`."),
    list("providers.<id>.models", &MODEL_NAME, 1000).or_texts(&[]).doc("Models to advertise."),
    int("providers.<id>.maxAdvertisedModels", 1, 10_000).or(100).doc("Models advertised at most."),

    section("context").doc("What the agent is told about itself."),
    path("context.identityPath", Base::Config).required().doc("The identity file: who the agent is."),
    path("context.soulPath", Base::Config).or_meaning("built-in guardrails").doc("The core guardrails."),
    path("context.skillsRoot", Base::Config).doc("The folder of skills."),
    lines("context.selectedSkills").or_texts(&[]).doc("Skills in use, by name."),
    int("context.skillMaxBytes", 256, 1_000_000).or(48_000).doc("Bytes of one skill."),
    choice("context.skillDisclosure", &["full", "index"]).or_text("full")
        .doc("Skills in the prompt whole, or as an index that `ReadSkill` opens."),

    section("tools").doc("What the agent may use."),
    list("tools.allowedTools", &TOOL_NAME, 512).or_texts(&["*"]).env("ALLOWED_TOOLS").empty_env_is_empty_list()
        .doc("Built-in tools that may be used; `*` is all, an empty list is none. MCP servers' tools are not gated by it."),
    list("tools.disallowedTools", &TOOL_NAME, 512).or_texts(&[]).env("DISALLOWED_TOOLS")
        .doc("Tools that may not be used; always wins."),
    flag("tools.appEndpoint", false)
        .doc("Whether programs that a run's commands start may call `PublishReplyFile`, over MCP; for an agent program of another make. Everything in the sandbox of the run can then publish."),
    flag("tools.gateway.enabled", false)
        .doc("Whether other agents of the daemon's own user may use the stdio servers below, through `mono-mcp-stub`."),
    int("tools.gateway.maxSessions", 1, 256).or(32).doc("Stubs at once."),
    int("tools.gateway.maxBackends", 1, 64).or(16)
        .doc("Processes of servers that the gateway has at once."),
    path("tools.mcpConfigPath", Base::Workspace).env("MCP_CONFIG_PATH")
        .doc("An `mcp.json`; relative to the workspace, not to this file."),
    map("tools.mcpServers", Form::ServerName, 128).doc("MCP servers, by name; the same form as in `mcp.json`."),
    choice("tools.mcpServers.<name>.type", &["stdio", "http", "sse"]).or_meaning("by command or url")
        .doc("The transport."),
    text("tools.mcpServers.<name>.command", 4096, Form::Line).doc("The program of a stdio server."),
    list("tools.mcpServers.<name>.args", &ARGUMENT, 256).or_texts(&[]).doc("Its arguments."),
    text_map("tools.mcpServers.<name>.env", 128)
        .doc("Variables for the server; it gets these and a minimal environment, nothing else."),
    path("tools.mcpServers.<name>.cwd", Base::Workspace).or_meaning("the workspace").doc("Its working folder."),
    text("tools.mcpServers.<name>.url", 2048, Form::Url).doc("The address of an HTTP or SSE server."),
    text_map("tools.mcpServers.<name>.headers", 64).doc("Literal headers of an HTTP or SSE server."),
    flag("tools.mcpServers.<name>.shared", false)
        .doc("One process for all conversations, instead of one for each."),
    flag("tools.mcpServers.<name>.apps.enabled", true).doc("Whether its apps are shown."),
    flag("tools.mcpServers.<name>.apps.exactResults", false)
        .doc("Whether its apps get inputs and results as they are; else credentials are taken out."),
    flag("tools.mcpServers.<name>.apps.webrtc", true)
        .doc("Whether its apps may open WebRTC connections, which no policy of a page prevents; `false` takes the interface away from them, which is no boundary."),
    choice("tools.mcpServers.<name>.sandbox.network", &["none", "all"]).or_text("none")
        .doc("Network of a stdio server."),
    list("tools.mcpServers.<name>.sandbox.readableRoots", &WORKSPACE_PATH, 64).or_texts(&[])
        .doc("Folders a stdio server may read, beside the system's."),
    list("tools.mcpServers.<name>.sandbox.writableRoots", &WORKSPACE_PATH, 64).or_texts(&[])
        .doc("Folders a stdio server may read and write."),
    int("tools.mcpServers.<name>.sandbox.memoryMaxBytes", MEMORY_MIN, MEMORY_MAX).or(MEMORY_DEFAULT)
        .doc("Bytes of memory that a stdio server may use, with all processes that it starts."),
    list("tools.mcpRequestContextServers", &SERVER_NAME, 128).or_texts(&[]).env("MCP_REQUEST_CONTEXT_SERVERS")
        .doc("Stdio servers with a process of their own for each run, which is told of the request that it works for."),
    list("tools.continuationServers", &SERVER_NAME, 128).or_texts(&[]).env("CONTINUATION_SERVERS")
        .doc("Stdio or loopback HTTP servers that may claim a continuation."),
    millis("tools.mcpCallTimeoutMs", 1, DAY_MS).or(120_000)
        .doc("Silence after which an MCP call ends; progress resets it."),
    millis("tools.mcpCallMaxTotalTimeoutMs", 1, DAY_MS).or(2_700_000)
        .doc("Longest MCP call, whatever its progress."),
    list("tools.filesystem.readableRoots", &WORKSPACE_PATH, 64).or_texts(&[])
        .doc("Further folders to read; only while the sandbox section is off."),
    list("tools.filesystem.writableRoots", &WORKSPACE_PATH, 64).or_texts(&[])
        .doc("Further folders to write; only while the sandbox section is off."),
    list("tools.web.search.backends", &BACKEND, 8).or_texts(&["parallel", "ollama"]).doc("Search backends, in order."),
    int("tools.web.search.maxRequestsPerRun", 1, 20).or(4).doc("Searches in one run."),
    choice("tools.web.fetch.render", &["never", "auto"]).or_text("never").doc("Whether a page may be rendered by a browser."),
    line("tools.web.fetch.browserCommand").or_text("agent-browser").doc("The browser command."),
    list("tools.web.fetch.allowPrivateHosts", &HOST_PORT, 64).or_texts(&[])
        .doc("Private, loopback or link-local hosts that a tool fetch may reach after all, with an optional port."),
];
