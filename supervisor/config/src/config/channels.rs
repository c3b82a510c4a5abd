//! The channels.

use super::services::Switch;
use super::{Effort, ModelName};
use crate::secret::SecretSource;
use serde::Deserialize;
use serde_json::Value;
use std::path::PathBuf;

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OpenaiApi {
    pub enabled: bool,
    pub host: String,
    /// 0 takes a free port.
    pub port: u16,
    pub base_path: String,
    pub model_id: String,
    pub api_key: Option<SecretSource>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Console {
    pub enabled: bool,
    pub host: String,
    /// 0 takes a free port.
    pub port: u16,
    /// Empty for the loopback names with the bound port.
    pub allowed_hosts: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Webhook {
    pub enabled: bool,
    pub host: String,
    pub port: u16,
    pub path: String,
    pub allow_non_loopback: bool,
    pub api_key: Option<SecretSource>,
    pub default_mode: WebhookMode,
    pub retention_ms: u64,
    pub max_stored_requests: usize,
    /// 0 is without bound.
    pub max_run_ms: u64,
    pub max_attachment_bytes: u64,
    pub callback: Callback,
    pub endpoints: Vec<Endpoint>,
    pub dir: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WebhookMode {
    Sync,
    Async,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Endpoint {
    pub name: String,
    pub path: String,
    pub conversation_id: Option<String>,
    pub mode: Option<WebhookMode>,
    pub model: Option<ModelName>,
    pub effort: Option<Effort>,
    pub prompt: Option<String>,
    pub notify: bool,
    pub notify_conversation_id: Option<String>,
    pub api_key: Option<SecretSource>,
    pub callback_url: Option<String>,
    pub callback_secret: Option<SecretSource>,
}

/// Where results are sent, and how often that is tried.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Callback {
    pub hosts: Vec<String>,
    pub private_hosts: Vec<String>,
    pub secret: Option<SecretSource>,
    pub attempts: u32,
    pub backoff_ms: u64,
    pub max_backoff_ms: u64,
    pub timeout_ms: u64,
}

/// Jobs; what stands here directly is the default of each.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cron {
    pub enabled: bool,
    pub dir: PathBuf,
    pub expression: Option<String>,
    pub timezone: String,
    pub notify: bool,
    pub notify_conversation_id: Option<String>,
    pub notify_failure_cooldown_hours: f64,
    pub preflight: Option<Vec<String>>,
    pub preflight_timeout_ms: u64,
    pub operator_actions: Switch,
    pub jobs: Vec<CronJob>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CronJob {
    pub id: String,
    pub expression: Option<String>,
    pub timezone: Option<String>,
    pub prompt: String,
    pub conversation_id: Option<String>,
    pub enabled: bool,
    pub model: Option<ModelName>,
    pub effort: Option<Effort>,
    pub notify: Option<bool>,
    pub notify_conversation_id: Option<String>,
    pub notify_failure_cooldown_hours: Option<f64>,
    pub preflight: Option<Vec<String>>,
    pub preflight_timeout_ms: Option<u64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tui {
    pub enabled: bool,
    pub base_path: String,
    pub host: String,
    pub port: u16,
    pub api_key: Option<SecretSource>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Slack {
    pub enabled: bool,
    pub bot_token: Option<SecretSource>,
    pub app_token: Option<SecretSource>,
    pub allowed_channel_ids: Vec<String>,
    pub allow_all_channels: bool,
    /// Absent keeps one leading marker.
    pub strip_mention_text: Option<bool>,
    pub thread_context: ThreadContext,
    /// 0 is off.
    pub heartbeat_interval_ms: u64,
    /// 0 is off.
    pub heartbeat_timeout_ms: u64,
    pub reconnect_initial_backoff_ms: u64,
    pub reconnect_max_backoff_ms: u64,
    pub reconnect_stability_ms: u64,
    pub reconnect_startup_grace_ms: u64,
    pub drain_deadline_ms: u64,
    pub home_tab: Option<Value>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ThreadContext {
    pub enabled: bool,
    pub max_messages: u32,
    pub request_limit: u32,
    pub timeout_ms: u64,
    pub include_bot_messages: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Telegram {
    pub enabled: bool,
    pub bot_token: Option<SecretSource>,
    pub allowed_chat_ids: Vec<String>,
    pub allow_all_chats: bool,
    pub group_mode: GroupMode,
    pub poll_watchdog_ms: u64,
    pub transport: TelegramTransport,
    pub attachments: TelegramAttachments,
    pub quiet_hours: Option<QuietHours>,
    pub send_tools: SendTools,
    pub api_root: Option<String>,
    pub commands: Vec<BotCommand>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupMode {
    Any,
    Mention,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TelegramTransport {
    /// 4 or 6; absent is either.
    pub ip_family: Option<u8>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TelegramAttachments {
    pub max_bytes: u64,
    pub download_timeout_ms: u64,
    pub max_upload_bytes: u64,
}

/// Times of day as `HH:MM`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QuietHours {
    pub timezone: String,
    pub start: String,
    pub end: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SendTools {
    pub scope: String,
    pub path_scope: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BotCommand {
    pub command: String,
    pub description: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct A2a {
    pub enabled: bool,
    pub provider: A2aProvider,
    pub agent: Option<A2aAgent>,
    pub skill: Option<A2aSkill>,
    pub consumer: Option<Value>,
    pub config: Option<Value>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct A2aProvider {
    /// The older place of [`A2a::enabled`].
    pub enabled: Option<bool>,
    pub host: String,
    pub port: u16,
    pub public_base_url: Option<String>,
    pub allow_non_loopback: bool,
    pub require_bearer: bool,
    pub bearer_token: Option<SecretSource>,
    pub max_request_bytes: u64,
    pub idempotency: Option<A2aIdempotency>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct A2aIdempotency {
    pub namespace: String,
    pub state_dir: PathBuf,
    pub retention_ms: u64,
    pub max_records: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct A2aAgent {
    pub name: String,
    pub description: String,
    pub version: String,
    pub provider_organization: Option<String>,
    pub provider_url: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct A2aSkill {
    pub id: String,
    pub name: String,
    pub description: String,
    pub tags: Vec<String>,
    pub examples: Vec<String>,
}
