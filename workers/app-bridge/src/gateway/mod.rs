//! The gateway: servers of ours for agents that are not ours (spec s2; facts 6).
//!
//! A stub in another agent's configuration relays MCP to here ([`session`]); each speaks with a
//! server's process ([`backend`]) that belongs to it alone or, where the server is declared
//! shareable, to several ([`pool`]). [`ledger`], [`params`], [`surface`] and [`marker`] are pure.
//! [`broker`] has all of them, and [`showing`] makes apps of results.

pub mod backend;
pub mod broker;
pub mod job;
pub mod ledger;
pub mod marker;
pub mod outbox;
pub mod params;
pub mod pool;
pub mod session;
pub mod showing;
pub mod surface;

use std::time::Duration;

/// Bounds of the gateway, in one place, so that a test can lower them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayLimits {
    /// Stubs at once (`tools.gateway.maxSessions`).
    pub sessions: usize,
    /// Processes of servers at once (`tools.gateway.maxBackends`).
    pub backends: usize,
    /// There is a console that shows apps.
    pub shows_apps: bool,
    /// From the connection to the first line.
    pub register: Duration,
    /// One MCP message in bytes.
    pub message: usize,
    /// Requests of one stub that are not answered yet.
    pub outstanding: usize,
    /// Messages of one stub that wait for their turn.
    pub waiting: usize,
    /// Bytes that wait for one reader.
    pub bytes: usize,
    /// A server's answer to `initialize`, and the listing of its tools when it is replaced.
    pub greet: Duration,
    /// Silence after which a server is asked, while something is outstanding.
    pub ping: Duration,
    /// A request of this age, and [`GatewayLimits::silent`], make a server count as hung.
    pub old: Duration,
    /// How long a hung server has said nothing.
    pub silent: Duration,
    /// How long a server without a stub is kept for its apps, or for the next stub.
    pub idle: Duration,
    /// Servers without a stub that are kept.
    pub kept: usize,
}

impl From<&ipc_proto::settings::GatewaySettings> for GatewayLimits {
    fn from(settings: &ipc_proto::settings::GatewaySettings) -> Self {
        Self {
            sessions: settings.max_sessions,
            backends: settings.max_backends,
            shows_apps: settings.shows_apps,
            ..Self::default()
        }
    }
}

impl Default for GatewayLimits {
    fn default() -> Self {
        Self {
            sessions: 32,
            backends: 16,
            shows_apps: true,
            register: Duration::from_secs(5),
            message: mono_mcp_stub::wire::MAX_LINE,
            outstanding: 256,
            waiting: 256,
            bytes: 64 << 20,
            greet: Duration::from_secs(30),
            ping: Duration::from_secs(10),
            old: Duration::from_secs(300),
            silent: Duration::from_secs(150),
            idle: Duration::from_secs(600),
            kept: 8,
        }
    }
}
