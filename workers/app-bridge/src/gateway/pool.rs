//! Which callers may have the same process of a server: those for whom everything that reaches it
//! is the same. Pure.

use ipc_proto::settings::McpServerSettings;
use sha2::{Digest as _, Sha256};

/// All that a process is told, or is started with. Equal keys mean equal authority.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The server as it is configured. Its command, arguments, environment and rights belong to its
    /// name for as long as this worker lives: another configuration is another worker. Nothing of a
    /// stub's own environment or arguments goes to a server.
    pub settings: &'a McpServerSettings,
    /// Apps are announced to it.
    pub apps: bool,
    /// The parameters of `initialize` as they go to it; none for a stateless client.
    pub greeting: Option<&'a str>,
    /// The session, unless the server is declared shareable.
    pub session: Option<&'a str>,
}

/// Names a process by what it is told.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolKey(String);

impl PoolKey {
    /// The key of these inputs: SHA-256 over each with its length, so that none can pass for
    /// another.
    #[must_use]
    pub fn of(inputs: Inputs<'_>) -> Self {
        let settings = serde_json::to_vec(inputs.settings).unwrap_or_default();
        let optional = |text: Option<&str>| match text {
            Some(text) => [b"+", text.as_bytes()].concat(),
            None => b"-".to_vec(),
        };
        let parts = [
            settings,
            vec![u8::from(inputs.apps)],
            optional(inputs.greeting),
            optional(inputs.session),
        ];
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Self(hex::encode(digest.finalize()))
    }

    /// For logs.
    #[must_use]
    pub fn short(&self) -> &str {
        &self.0[..12]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::gateway::params::greeting;
    use ipc_proto::settings::{McpTransport, ServerApps};

    fn settings() -> McpServerSettings {
        McpServerSettings {
            name: "s".into(),
            transport: McpTransport::Stdio,
            shared: true,
            per_run: false,
            context: false,
            claims: false,
            apps: None,
        }
    }

    #[test]
    fn everything_that_is_forwarded_makes_another_key() {
        let base = settings();
        let other = |change: fn(&mut McpServerSettings)| {
            let mut settings = settings();
            change(&mut settings);
            settings
        };
        let changed = [
            other(|s| s.name = "t".into()),
            other(|s| s.shared = false),
            other(|s| {
                s.apps = Some(ServerApps {
                    exact_results: false,
                    webrtc: false,
                })
            }),
        ];
        let inputs = Inputs {
            settings: &base,
            apps: false,
            greeting: Some("{}"),
            session: None,
        };
        let mut keys = vec![
            PoolKey::of(inputs),
            PoolKey::of(Inputs {
                apps: true,
                ..inputs
            }),
            PoolKey::of(Inputs {
                greeting: None,
                ..inputs
            }),
            PoolKey::of(Inputs {
                greeting: Some(""),
                ..inputs
            }),
            PoolKey::of(Inputs {
                greeting: Some("{ }"),
                ..inputs
            }),
            PoolKey::of(Inputs {
                session: Some(""),
                ..inputs
            }),
            PoolKey::of(Inputs {
                session: Some("a"),
                ..inputs
            }),
            PoolKey::of(Inputs {
                session: Some("b"),
                ..inputs
            }),
            // The same text in another place.
            PoolKey::of(Inputs {
                greeting: None,
                session: Some("{}"),
                ..inputs
            }),
        ];
        keys.extend(
            changed
                .iter()
                .map(|settings| PoolKey::of(Inputs { settings, ..inputs })),
        );
        let count = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count);
        assert_eq!(PoolKey::of(inputs), PoolKey::of(inputs));
    }

    /// What is not forwarded keeps nobody apart.
    #[test]
    fn two_clients_of_a_shared_server_have_one_key() {
        let base = settings();
        let key = |client: &str| {
            let params = format!(
                r#"{{"protocolVersion":"2025-11-25","clientInfo":{{"name":"{client}"}},"capabilities":{{"roots":{{}}}}}}"#
            );
            let greeting = greeting(Some(&params), true, true).unwrap();
            PoolKey::of(Inputs {
                settings: &base,
                apps: true,
                greeting: Some(&greeting),
                session: None,
            })
        };
        assert_eq!(key("codex"), key("goose"));
    }
}
