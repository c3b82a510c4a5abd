//! Who a process is. A role is decided by the supervisor when it makes the socket pair and is
//! never taken from a message.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A duty that runs in a process of its own (docs/architecture.md, "Processes").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The supervisor itself.
    Monod,
    /// Conversations, runs, tool lifecycles.
    Store,
    /// Reply files.
    Artifact,
    /// Durable continuations.
    Continuation,
    /// Model providers and fetches; the only holder of model keys.
    Egress,
    /// MCP client connections.
    AppBridge,
    /// The OpenAI-compatible channel.
    ChannelOpenai,
    /// The web console channel.
    ChannelConsole,
    /// The webhook channel.
    ChannelWebhook,
    /// The A2A channel.
    ChannelA2a,
    /// The cron channel.
    ChannelCron,
    /// The Slack channel.
    ChannelSlack,
    /// The Telegram channel.
    ChannelTelegram,
    /// One agent run.
    Run,
    /// A stdio MCP server program: not ours, speaks no IPC, only has three pipes.
    McpServer,
    /// What the supervisor counts, for who collects it over HTTP.
    Metrics,
}

impl Role {
    /// Every role. The order is fixed: a role's place is its number on the wire and gives its user.
    pub const ALL: [Role; 16] = [
        Role::Monod,
        Role::Store,
        Role::Artifact,
        Role::Continuation,
        Role::Egress,
        Role::AppBridge,
        Role::ChannelOpenai,
        Role::ChannelConsole,
        Role::ChannelWebhook,
        Role::ChannelA2a,
        Role::ChannelCron,
        Role::ChannelSlack,
        Role::ChannelTelegram,
        Role::Run,
        Role::McpServer,
        Role::Metrics,
    ];

    /// The name used in configuration, status and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Monod => "monod",
            Role::Store => "store",
            Role::Artifact => "artifact",
            Role::Continuation => "continuation",
            Role::Egress => "egress",
            Role::AppBridge => "app-bridge",
            Role::ChannelOpenai => "channel-openai",
            Role::ChannelConsole => "channel-console",
            Role::ChannelWebhook => "channel-webhook",
            Role::ChannelA2a => "channel-a2a",
            Role::ChannelCron => "channel-cron",
            Role::ChannelSlack => "channel-slack",
            Role::ChannelTelegram => "channel-telegram",
            Role::Run => "run",
            Role::McpServer => "mcp-server",
            Role::Metrics => "metrics",
        }
    }

    /// True for the workers that carry messages between people and runs.
    pub const fn is_channel(self) -> bool {
        matches!(
            self,
            Role::ChannelOpenai
                | Role::ChannelConsole
                | Role::ChannelWebhook
                | Role::ChannelA2a
                | Role::ChannelCron
                | Role::ChannelSlack
                | Role::ChannelTelegram
        )
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
