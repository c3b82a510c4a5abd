//! What the supervisor tells each role at its start: the part of the configuration it needs.
//!
//! Travels as JSON in `Welcome`. Secrets are never in here; they come as named descriptors.

use crate::callbacks::CallbackHosts;
use crate::rooms::Reserved;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Settings of one worker, by role.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "kebab-case")]
pub enum RoleSettings {
    /// The store worker. Descriptors: `state`.
    Store(StoreSettings),
    /// The artifact worker. Descriptors: `state`, `workspace`, `outbound` (directories).
    Artifact(ArtifactSettings),
    /// The egress worker. Descriptors: `key:<provider>` for each provider with a key.
    Egress(EgressSettings),
    /// The app-bridge worker. Descriptors: `state` (a directory), `listener` where servers may post
    /// progress.
    AppBridge(AppBridgeSettings),
    /// The OpenAI-compatible channel. Descriptors: `listener`, `bearer` when a key is set.
    ChannelOpenai(OpenaiSettings),
    /// The webhook channel. Descriptors: `listener`, and `bearer:<n>` and `secret:<n>` for the
    /// endpoints that have them.
    ChannelWebhook(WebhookSettings),
    /// The web console. Descriptors: `listener`.
    ChannelConsole(ConsoleSettings),
    /// The run worker. Descriptors: `identity`, `soul` (when configured), `skill:<name>` for each
    /// selected skill.
    Run(RunSettings),
    /// The metrics worker; it has none but its descriptor, `listener`.
    Metrics,
    /// The continuation worker. Descriptors: `state` (directory), `listener`, and `token:<n>` for
    /// each detached service.
    Continuation(ContinuationSettings),
}

/// Limits of the store (facts 3.2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreSettings {
    /// Latest messages given to a run.
    pub history_messages: usize,
    /// Bytes per message.
    pub message_bytes: usize,
    /// Bytes of all history.
    pub total_bytes: u64,
    /// Conversations kept.
    pub conversations: u64,
    /// Days without activity until a conversation is dropped.
    pub inactivity_days: u32,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            history_messages: 64,
            message_bytes: 64 * 1024,
            total_bytes: 256 * 1024 * 1024,
            conversations: 10_000,
            inactivity_days: 365,
        }
    }
}

/// Retention and refusals of the artifact worker (spec s0; facts 1.2, 5.3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactSettings {
    /// `artifacts.retention.maxAgeDays`.
    pub max_age_days: u32,
    /// `artifacts.retention.maxCount`.
    pub max_count: u64,
    /// `artifacts.retention.dryRun`.
    pub dry_run: bool,
    /// Workspace-relative folders and files that are never published (the state directory, the
    /// configuration, key files), with `/` separators.
    pub private_paths: Vec<String>,
}

/// Which wire a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wire {
    /// `POST /chat/completions`.
    OpenaiChat,
    /// `POST /responses`.
    OpenaiResponses,
    /// `POST /messages`.
    AnthropicMessages,
    /// The embedded scripted model.
    Demo,
}

/// One model provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderSettings {
    /// The wire.
    pub wire: Wire,
    /// Address up to and without the route, e.g. `https://api.openai.com/v1`; empty for `demo`.
    pub base_url: String,
    /// True when a `key:<provider>` descriptor comes along.
    pub has_key: bool,
}

/// One entry of the model chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelChoice {
    /// Provider id.
    pub provider: String,
    /// Model name at the provider.
    pub model: String,
    /// Reasoning effort.
    pub effort: Option<String>,
    /// Attempts with this model, 1 to 10.
    pub attempts: u32,
}

/// Settings of the egress worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressSettings {
    /// Providers by id.
    pub providers: BTreeMap<String, ProviderSettings>,
    /// The first choice and its fallbacks, in order.
    pub chain: Vec<ModelChoice>,
    /// Further models that a request may ask for in place of the first choice.
    pub offered: Vec<ModelChoice>,
    /// `runtime.retry.backoffMs`.
    pub backoff_ms: u64,
    /// `runtime.retry.maxBackoffMs`.
    pub max_backoff_ms: u64,
    /// `providers.piNative.maxRetryDelayMs`: a longer `retry-after` goes to the next model.
    pub max_retry_delay_ms: u64,
    /// Silence after which a model stream has failed.
    pub idle_timeout_ms: u64,
    /// Hosts that tool fetches may reach although their address is private (`host` or `host:port`).
    pub allow_private_hosts: Vec<String>,
    /// Where the webhook channel may send results.
    pub callback_hosts: CallbackHosts,
}

/// How a configured MCP server is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "transport", rename_all = "kebab-case")]
pub enum McpTransport {
    /// The supervisor starts it; its pipes come as descriptors.
    Stdio,
    /// Streamable HTTP.
    Http {
        /// Endpoint.
        url: String,
        /// Literal headers.
        headers: BTreeMap<String, String>,
    },
    /// HTTP+SSE of 2024-11-05.
    Sse {
        /// The event stream's address.
        url: String,
        /// Literal headers.
        headers: BTreeMap<String, String>,
    },
}

/// One configured MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpServerSettings {
    /// Its configured name.
    pub name: String,
    /// How it is reached.
    pub transport: McpTransport,
    /// One connection for all callers.
    pub shared: bool,
    /// A fresh process for each run (receives request context, or may claim continuations).
    pub per_run: bool,
    /// It is told of the request that it works for.
    #[serde(default)]
    pub context: bool,
    /// It may claim continuations.
    #[serde(default)]
    pub claims: bool,
    /// Its apps; none: they are not shown, and the server is told of no such thing.
    #[serde(default)]
    pub apps: Option<ServerApps>,
}

/// How the apps of one server are treated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerApps {
    /// Inputs and results go to its apps as they are; else credentials are taken out.
    pub exact_results: bool,
    /// Its apps may open WebRTC connections, which no policy of a page can prevent.
    pub webrtc: bool,
}

/// What a rule says about the calls of apps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// After the person's confirmation, which may hold for a view.
    Allow,
    /// The person is asked each time.
    Ask,
    /// Never.
    Deny,
}

/// One rule about the calls of apps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppRule {
    /// `@server/tool`, each part with at most one `*`, at its end.
    pub tool: String,
    /// What it says.
    pub decision: Verdict,
}

/// Settings of MCP Apps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppsSettings {
    /// Days until a record expires.
    pub max_age_days: u32,
    /// Origins that pages may reach, of those that they declare.
    pub allowed_origins: Vec<String>,
    /// Pages that ask for it may write to the clipboard.
    pub clipboard: bool,
    /// The first that fits decides.
    pub rules: Vec<AppRule>,
}

/// Settings of the app-bridge worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppBridgeSettings {
    /// Configured servers in order.
    pub servers: Vec<McpServerSettings>,
    /// Progress is posted to a configured port, which all workers of this role share.
    #[serde(default)]
    pub progress_port_is_fixed: bool,
    /// `tools.mcpCallTimeoutMs`.
    pub call_timeout_ms: u64,
    /// `tools.mcpCallMaxTotalTimeoutMs`.
    pub call_max_total_ms: u64,
    /// MCP Apps.
    #[serde(default)]
    pub apps: AppsSettings,
    /// The gateway; none while it is off.
    #[serde(default)]
    pub gateway: Option<GatewaySettings>,
}

/// Settings of the gateway for agents that are not ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewaySettings {
    /// `tools.gateway.maxSessions`.
    pub max_sessions: usize,
    /// `tools.gateway.maxBackends`.
    pub max_backends: usize,
    /// There is a console that shows apps.
    pub shows_apps: bool,
}

/// Settings of the OpenAI-compatible channel (facts 2.3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenaiSettings {
    /// `openaiApi.basePath`.
    pub base_path: String,
    /// `openaiApi.modelId`.
    pub model_id: String,
    /// True when a bearer is required; the secret comes as the descriptor `bearer`.
    pub bearer: bool,
    /// Conversations that clients can't name.
    pub reserved: Reserved,
}

/// Settings of the web console (facts 2.9).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsoleSettings {
    /// `console.allowedHosts`; empty for the loopback names.
    pub allowed_hosts: Vec<String>,
    /// What the agent is called.
    pub label: String,
    /// `<provider>:<model>` of the first choice.
    pub model: String,
    /// Models that a message may ask for, the first choice among them.
    pub models: Vec<String>,
    /// Largest reply file in bytes.
    pub max_reply_bytes: u64,
    /// Apps of MCP servers are shown.
    #[serde(default)]
    pub shows_apps: bool,
}

/// Settings of the webhook channel (facts 2.2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookSettings {
    /// `webhook.path` with the channel's keys, and after it `webhook.endpoints` in order, which
    /// use the channel's keys where they have none of their own.
    pub endpoints: Vec<WebhookEndpoint>,
    /// `webhook.retentionMs`.
    pub retention_ms: u64,
    /// `webhook.maxStoredRequests`.
    pub max_stored: usize,
    /// `webhook.maxRunMs`; 0 for no bound.
    pub max_run_ms: u64,
    /// `webhook.maxAttachmentBytes`: of one attachment, decoded.
    pub max_attachment_bytes: u64,
    /// Where results may be sent.
    pub callback_hosts: CallbackHosts,
    /// `webhook.callback.attempts`, 1 to 10.
    pub callback_attempts: u32,
    /// `webhook.callback.backoffMs`: the first wait; it doubles.
    pub callback_backoff_ms: u64,
    /// `webhook.callback.maxBackoffMs`.
    pub callback_max_backoff_ms: u64,
    /// `webhook.callback.timeoutMs`: of one attempt.
    pub callback_timeout_ms: u64,
}

/// One route of the webhook channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookEndpoint {
    /// For people.
    pub name: String,
    /// The exact path.
    pub path: String,
    /// True: the key that callers send comes as the descriptor `bearer:<n>`, counted from 0.
    pub bearer: bool,
    /// True: the key that results are signed with comes as the descriptor `secret:<n>`.
    pub secret: bool,
    /// True: the caller waits, unless it says otherwise.
    pub wait: bool,
    /// The conversation of all its turns.
    pub conversation: Option<String>,
    /// `<provider>:<model>`.
    pub model: Option<String>,
    /// As `runtime.effort`.
    pub effort: Option<String>,
    /// Text before the request's.
    pub prompt: Option<String>,
    /// Where results go when the request doesn't say.
    pub callback_url: Option<String>,
}

/// Settings of the run worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSettings {
    /// Absolute path of the workspace, the same inside and outside.
    pub workspace: String,
    /// Absolute path of the scratch directory inside.
    pub scratch: String,
    /// `tools.allowedTools`; `None` for all.
    pub allowed_tools: Option<Vec<String>>,
    /// `tools.disallowedTools`.
    pub disallowed_tools: Vec<String>,
    /// `runtime.maxTurns`; `None` or 0 for no bound.
    pub max_turns: Option<u32>,
    /// The configured first choice, for session facts.
    pub model: String,
    /// `context.skillMaxBytes`: a longer skill is cut.
    pub skill_max_bytes: usize,
    /// `context.skillDisclosure`: true names the skills and their first lines only.
    pub skill_index: bool,
    /// `tools.appEndpoint`: commands reach the application's own tools over MCP.
    pub app_endpoint: bool,
    /// MCP servers that may claim continuations.
    #[serde(default)]
    pub claim_servers: Vec<String>,
    /// Some MCP servers are told of the request that they work for.
    #[serde(default)]
    pub accompanies: bool,
}

/// Settings of the continuation worker (spec s1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContinuationSettings {
    /// `continuations.host`, as it stands in the addresses that are given out.
    pub host: String,
    /// `continuations.port`; the listener's own counts.
    pub port: u16,
    /// `continuations.limits.maxActiveRecords`.
    pub max_active_records: u64,
    /// `continuations.limits.maxActivePerOrigin`.
    pub max_active_per_origin: u64,
    /// `continuations.limits.maxConcurrent`.
    pub max_concurrent: usize,
    /// `continuations.limits.synthesisTimeoutMs`.
    pub synthesis_timeout_ms: u64,
    /// `continuations.limits.deliveryTimeoutMs`.
    pub delivery_timeout_ms: u64,
    /// `continuations.limits.operatorPageSize`.
    pub operator_page_size: usize,
    /// `continuations.retention.terminalMaxRecords`.
    pub terminal_max_records: u64,
    /// `continuations.retention.terminalMaxAgeMs`.
    pub terminal_max_age_ms: u64,
    /// `continuations.retention.capturedTextMaxRecords`.
    pub captured_text_max_records: u64,
    /// `continuations.retention.capturedTextMaxAgeMs`.
    pub captured_text_max_age_ms: u64,
    /// `continuations.namedRoutes` by name.
    pub named_routes: BTreeMap<String, NamedRouteSettings>,
    /// Names of `continuations.detachedServices` in order; the bearer of the n-th comes as `token:<n>`.
    pub detached_services: Vec<String>,
    /// Channels that are enabled, by the beginning of their conversations: `web`, `webhook`, ….
    pub channels: Vec<String>,
}

/// One named route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedRouteSettings {
    /// `notify_if_actionable`, `capture` or `silent`.
    pub mode: String,
    /// There but for `silent`.
    pub conversation_id: Option<String>,
}
