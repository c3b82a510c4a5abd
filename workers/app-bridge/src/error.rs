//! What can go wrong with a server, under the fixed codes that models, channels and operators see.

use crate::limits::{MESSAGE_MAX, printable};
use std::time::Duration;
use thiserror::Error;

/// Why a call of a tool gave no result. `code` is fixed; the text is for people.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum CallError {
    #[error(
        "server {server} is not declared: add it to tools.mcpServers or to the MCP config file"
    )]
    UnknownServer { server: String },
    #[error("server {server} could not be started: {reason}")]
    Start { server: String, reason: String },
    #[error(
        "server {server} said nothing for {waited:?}, not even to a probe; it is ended and started again for the next call"
    )]
    Silent { server: String, waited: Duration },
    #[error(
        "tool {tool} of server {server} showed no progress for {waited:?} though the server answers; raise tools.mcpCallTimeoutMs if it needs longer"
    )]
    Inactive {
        server: String,
        tool: String,
        waited: Duration,
    },
    #[error("tool {tool} of server {server} ran longer than the {limit:?} that one call may take")]
    TooLong {
        server: String,
        tool: String,
        limit: Duration,
    },
    #[error("server {server} ended during the call: {reason}")]
    Gone { server: String, reason: String },
    #[error("the call of {tool} was cancelled")]
    Cancelled { tool: String },
    #[error("{what} has more than the {limit} bytes that are accepted")]
    TooLarge { what: &'static str, limit: usize },
    #[error("server {server} refused the call: {message} ({rpc_code})")]
    Refused {
        server: String,
        rpc_code: i32,
        message: String,
    },
    #[error("server {server} answered against the protocol: {reason}")]
    Protocol { server: String, reason: String },
    #[error("server {server} has too many calls in flight; call again when one has ended")]
    Busy { server: String },
}

impl CallError {
    /// The fixed code of this failure.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::UnknownServer { .. } => "mcp_server_unknown",
            Self::Start { .. } => "mcp_init_failed",
            Self::Silent { .. } => "mcp_server_silent",
            Self::Inactive { .. } | Self::TooLong { .. } => "mcp_call_timeout",
            Self::Gone { .. } => "mcp_server_gone",
            Self::Cancelled { .. } => "mcp_call_cancelled",
            Self::TooLarge { .. } => "mcp_result_too_large",
            Self::Refused { .. } => "mcp_call_refused",
            Self::Protocol { .. } => "mcp_protocol_error",
            Self::Busy { .. } => "mcp_server_busy",
        }
    }

    /// The text for a person or a model: one line, at most [`MESSAGE_MAX`] bytes.
    pub fn message(&self) -> String {
        printable(&self.to_string(), MESSAGE_MAX)
    }

    /// True when the connection can't be trusted with a further call.
    pub const fn ends_connection(&self) -> bool {
        matches!(self, Self::Silent { .. } | Self::Gone { .. })
    }
}

/// Why there is no connection to a server.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum ConnectError {
    #[error("{0}")]
    Start(String),
    #[error("no usable answer within {0:?}")]
    TimedOut(Duration),
    #[error("the handshake failed: {0}")]
    Handshake(String),
    #[error("its address can't be used: {0}")]
    Address(String),
    #[error("it failed {failures} times in a row; it is tried again in {}", seconds(*wait))]
    Braked { failures: u32, wait: Duration },
}

fn seconds(wait: Duration) -> String {
    format!("{} s", wait.as_secs().max(1))
}

/// Why the tools of a server are not known.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum ListError {
    #[error("no complete answer within {0:?}")]
    TimedOut(Duration),
    #[error("it ended while it listed its tools")]
    Gone,
    #[error("it refused: {0}")]
    Refused(String),
    #[error("its answer is against the protocol: {0}")]
    Protocol(String),
}

/// Something that a run goes on without: told once to the person as a `runtime_warning`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// `mcp_init_failed`, `mcp_list_tools_failed`, `mcp_tool_refused` or `mcp_tools_truncated`.
    pub code: &'static str,
    /// The server's name in the configuration.
    pub server: String,
    /// One line, at most [`MESSAGE_MAX`] bytes.
    pub message: String,
}

impl Warning {
    /// A warning whose text is made printable and bounded. `last_line` is what the server last
    /// wrote to its standard error: most often the true reason.
    pub fn new(
        code: &'static str,
        server: &str,
        message: impl ToString,
        last_line: Option<&str>,
    ) -> Self {
        let mut text = message.to_string();
        if let Some(line) = last_line.filter(|line| !line.is_empty()) {
            text.push_str("; it last said: ");
            text.push_str(line);
        }
        Self {
            code,
            server: server.to_owned(),
            message: printable(&text, MESSAGE_MAX),
        }
    }
}
