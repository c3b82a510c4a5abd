//! What stands beside the agent.

use crate::secret::SecretSource;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Artifacts {
    pub dir: PathBuf,
    pub retention: ArtifactRetention,
    pub memory_retention: MemoryRetention,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ArtifactRetention {
    pub max_age_days: u32,
    pub max_count: u64,
    pub dry_run: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MemoryRetention {
    pub max_age_days: u32,
    pub max_count: u64,
}

/// MCP Apps.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Apps {
    pub enabled: bool,
    pub allowed_origins: Vec<String>,
    pub clipboard_write: bool,
    pub rules: Vec<AppRule>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AppRule {
    /// `@server/tool`.
    pub tool: String,
    pub decision: AppDecision,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AppDecision {
    Allow,
    Ask,
    Deny,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Continuations {
    /// Decided when loading: what the file says, else whether the block or a continuation server is there.
    pub enabled: bool,
    pub host: String,
    pub port: u16,
    pub state_dir: PathBuf,
    pub limits: ContinuationLimits,
    pub retention: ContinuationRetention,
    pub named_routes: BTreeMap<String, NamedRoute>,
    pub detached_services: Vec<DetachedService>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContinuationLimits {
    pub max_active_records: u64,
    pub max_active_per_origin: u64,
    pub max_concurrent: usize,
    pub synthesis_timeout_ms: u64,
    pub delivery_timeout_ms: u64,
    pub operator_page_size: usize,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContinuationRetention {
    pub terminal_max_records: u64,
    pub terminal_max_age_ms: u64,
    pub captured_text_max_records: u64,
    pub captured_text_max_age_ms: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamedRoute {
    pub mode: RouteMode,
    /// There but for [`RouteMode::Silent`].
    pub conversation_id: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteMode {
    NotifyIfActionable,
    Capture,
    Silent,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DetachedService {
    pub name: String,
    /// An environment variable or a credential.
    pub token: SecretSource,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Memory {
    pub mode: MemoryMode,
    pub path: PathBuf,
    pub max_bytes: u64,
    pub write_mode: Option<MemoryWriteMode>,
    pub embeddings: Option<Embeddings>,
    pub llm: Option<MemoryLlm>,
    pub recall_tool: Switch,
    pub remember_tool: Switch,
    pub consolidation: Consolidation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryMode {
    Lite,
    Journal,
    Bujo,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryWriteMode {
    Disabled,
    AppendHostSummary,
    Capture,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Embeddings {
    pub provider: String,
    pub model: String,
    pub dim: u32,
    pub timeout_ms: u64,
    pub circuit_breaker: CircuitBreaker,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CircuitBreaker {
    pub failures: u32,
    pub cooldown_ms: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MemoryLlm {
    pub provider: String,
    pub model: Option<String>,
    pub timeout_ms: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Switch {
    pub enabled: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Consolidation {
    pub enabled: bool,
    pub cron: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Interaction {
    pub ask_user: AskUser,
    pub bridge: Bridge,
    pub progress: Switch,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AskUser {
    /// Absent is without end.
    pub timeout_ms: Option<u64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bridge {
    pub host: String,
    pub port: u16,
}

/// The operator's own, narrower rules for tool commands.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Sandbox {
    pub mode: SandboxMode,
    pub network: SandboxNetwork,
    pub readable_roots: Vec<PathBuf>,
    pub writable_roots: Vec<PathBuf>,
    /// Bytes that a run's whole process tree may use.
    pub memory_max_bytes: u64,
    pub deny_write: Vec<String>,
    pub fallback: SandboxFallback,
    pub unsafe_allow_host_process: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxMode {
    Native,
    Off,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SandboxNetwork {
    pub mode: NetworkMode,
    pub allowlist: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkMode {
    None,
    Localhost,
    Allowlist,
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxFallback {
    FailClosed,
    UnsafeHostProcess,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metrics {
    pub enabled: bool,
    pub host: String,
    /// 0 takes a free port.
    pub port: u16,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Traceability {
    pub heartbeat_ms: u64,
    pub stale_after_ms: u64,
    pub global_discovery: bool,
}
