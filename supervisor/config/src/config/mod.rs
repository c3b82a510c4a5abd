//! The configuration as the supervisor uses it: every value present or meaningfully absent, every
//! path absolute, every secret a [`SecretSource`].
//!
//! These structures hold no defaults and no bounds: the key table has them, and what is filled in
//! here has been through it.

mod channels;
mod provider;
mod services;
mod tools;

pub use channels::*;
pub use provider::*;
pub use services::*;
pub use tools::*;

use serde::Deserialize;
use std::fmt;
use std::path::PathBuf;

/// Everything that is configured.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The configuration file, absolute.
    pub file: PathBuf,
    /// Where some of the variables are from, absolute; the daemon's to say.
    #[serde(skip)]
    pub env_file: Option<PathBuf>,
    #[serde(rename = "$schema")]
    pub schema: Option<String>,
    pub runtime: Runtime,
    pub concurrency: Concurrency,
    pub providers: Providers,
    pub context: Context,
    pub tools: Tools,
    pub artifacts: Artifacts,
    pub apps: Apps,
    pub continuations: Continuations,
    pub memory: Option<Memory>,
    pub interaction: Interaction,
    pub sandbox: Option<Sandbox>,
    pub metrics: Metrics,
    pub traceability: Traceability,
    pub openai_api: OpenaiApi,
    pub console: Console,
    pub webhook: Webhook,
    pub cron: Cron,
    pub tui: Tui,
    pub slack: Option<Slack>,
    pub telegram: Option<Telegram>,
    pub a2a: Option<A2a>,
}

impl Config {
    /// Bytes of memory that a run's whole process tree may use; configured or not, there is a
    /// bound.
    pub fn run_memory_max(&self) -> u64 {
        let default = crate::table::MEMORY_DEFAULT.unsigned_abs();
        self.sandbox
            .as_ref()
            .map_or(default, |sandbox| sandbox.memory_max_bytes)
    }
}

/// `<provider>:<model>`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ModelName {
    pub provider: String,
    pub model: String,
}

impl std::str::FromStr for ModelName {
    type Err = String;

    fn from_str(text: &str) -> Result<ModelName, String> {
        crate::form::check(crate::field::Form::Model, text)?;
        let (provider, model) = crate::form::split_model(text).unwrap_or_default();
        Ok(ModelName {
            provider: provider.to_string(),
            model: model.to_string(),
        })
    }
}

impl TryFrom<String> for ModelName {
    type Error = String;

    fn try_from(text: String) -> Result<ModelName, String> {
        text.parse()
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.provider, self.model)
    }
}

/// Reasoning effort, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
    Ultra,
}

impl Effort {
    pub fn as_str(self) -> &'static str {
        match self {
            Effort::None => "none",
            Effort::Minimal => "minimal",
            Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
            Effort::Xhigh => "xhigh",
            Effort::Max => "max",
            Effort::Ultra => "ultra",
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Runtime {
    pub model: ModelName,
    pub effort: Option<Effort>,
    /// Model calls in one run; absent or 0 is unlimited. See [`Runtime::turn_limit`].
    pub max_turns: Option<u32>,
    pub workspace: PathBuf,
    pub state_dir: PathBuf,
    pub fallbacks: Vec<ModelFallback>,
    pub retry: Retry,
    pub session: Session,
    pub compaction: Compaction,
}

impl Runtime {
    /// The bound of model calls in one run, if there is one.
    pub fn turn_limit(&self) -> Option<u32> {
        self.max_turns.filter(|turns| *turns > 0)
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelFallback {
    pub model: ModelName,
    pub effort: Option<Effort>,
    pub attempts: u32,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Retry {
    pub primary_attempts: u32,
    pub backoff_ms: u64,
    pub max_backoff_ms: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Session {
    pub mode: SessionMode,
    pub idle_timeout_ms: u64,
    pub isolate_proactive: bool,
    pub rollover: Rollover,
    pub rollover_timezone: Option<String>,
    pub rollover_notice: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionMode {
    Continuous,
    PerMessage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rollover {
    None,
    Daily,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Compaction {
    pub enabled: bool,
    pub trigger_ratio: f64,
    pub keep_recent_tokens: Option<u64>,
    pub summary_max_tokens: Option<u64>,
    pub min_savings_tokens: Option<u64>,
    pub fixed_overhead_enabled: bool,
    pub context_window_override: Option<u64>,
}

/// Limits of each channel; absent is no bound.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Concurrency {
    pub max_concurrent_runs: Option<usize>,
    pub max_pending_runs: Option<usize>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Context {
    pub identity_path: PathBuf,
    pub soul_path: Option<PathBuf>,
    pub skills_root: Option<PathBuf>,
    pub selected_skills: Vec<String>,
    pub skill_max_bytes: u64,
    pub skill_disclosure: SkillDisclosure,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SkillDisclosure {
    Full,
    Index,
}
