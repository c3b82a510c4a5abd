//! Model providers, those of the file and those that are known without it.

use crate::secret::SecretSource;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The provider that is built in: deterministic, without key and network.
pub const DEMO: &str = "demo";

/// The protocol that a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wire {
    OpenaiChat,
    OpenaiResponses,
    AnthropicMessages,
    /// The built-in demo model; never written in a file.
    #[serde(skip)]
    Demo,
}

impl Wire {
    pub fn as_str(self) -> &'static str {
        match self {
            Wire::OpenaiChat => "openai-chat",
            Wire::OpenaiResponses => "openai-responses",
            Wire::AnthropicMessages => "anthropic-messages",
            Wire::Demo => "demo",
        }
    }
}

/// What the file says, completed by [`Providers::complete`].
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Providers {
    pub pi_auth_path: Option<PathBuf>,
    pub pi_native: Option<PiNative>,
    #[serde(flatten)]
    pub by_id: BTreeMap<String, Provider>,
}

/// One provider. `wire` is always there after loading, `base_url` but for the demo model.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Provider {
    pub base_url: Option<String>,
    pub wire: Option<Wire>,
    pub api_key: Option<SecretSource>,
    #[serde(default)]
    pub models: Vec<String>,
    #[serde(default)]
    pub max_advertised_models: usize,
}

/// Settings of the earlier runtime: checked, kept, not used.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PiNative {
    pub transport: String,
    pub pi_max_retries: u32,
    pub max_retry_delay_ms: u64,
    pub pi_sessions_root: Option<PathBuf>,
    pub cache_retention: Option<String>,
}

/// What is known of a provider by its name: address, protocol, the usual variable of its key.
pub(crate) struct Known {
    pub(crate) id: &'static str,
    pub(crate) base_url: &'static str,
    pub(crate) wire: Wire,
    pub(crate) key_env: Option<&'static str>,
    /// There without an entry in the file.
    pub(crate) discovered: bool,
}

#[rustfmt::skip]
pub(crate) const KNOWN: &[Known] = &[
    Known { id: "anthropic", base_url: "https://api.anthropic.com/v1", wire: Wire::AnthropicMessages,
        key_env: Some("ANTHROPIC_API_KEY"), discovered: false },
    Known { id: "openai", base_url: "https://api.openai.com/v1", wire: Wire::OpenaiResponses,
        key_env: Some("OPENAI_API_KEY"), discovered: false },
    Known { id: "ollama", base_url: "http://127.0.0.1:11434/v1", wire: Wire::OpenaiChat, key_env: None, discovered: true },
    Known { id: "lmstudio", base_url: "http://127.0.0.1:1234/v1", wire: Wire::OpenaiChat, key_env: None, discovered: true },
];

pub(crate) fn known(id: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.id == id)
}

impl Providers {
    /// Adds the built-in providers and those that a model names, and fills what is known by name.
    ///
    /// A provider with an address of its own gets the protocol of its name only where compatible
    /// servers speak it too: `openai` elsewhere is `openai-chat`, because nearly no other server
    /// speaks the responses protocol.
    pub(crate) fn complete(&mut self, used: &BTreeSet<String>) {
        for known in KNOWN
            .iter()
            .filter(|known| known.discovered || used.contains(known.id))
        {
            self.by_id
                .entry(known.id.to_string())
                .or_insert_with(|| Provider {
                    max_advertised_models: 100,
                    ..Provider::default()
                });
        }
        for (id, provider) in &mut self.by_id {
            let known = known(id);
            let elsewhere = provider.base_url.is_some();
            let wire = match known.map(|known| known.wire) {
                Some(Wire::OpenaiResponses) if elsewhere => Wire::OpenaiChat,
                Some(wire) => wire,
                None => Wire::OpenaiChat,
            };
            provider.wire.get_or_insert(wire);
            if let Some(known) = known {
                provider
                    .base_url
                    .get_or_insert_with(|| known.base_url.to_string());
                // The usual variable of a key is for the usual address: a server elsewhere must not
                // be sent the key of another by default.
                if let Some(name) = known.key_env
                    && provider.api_key.is_none()
                    && !elsewhere
                {
                    provider.api_key = Some(SecretSource::Env {
                        name: name.to_string(),
                    });
                }
            }
        }
        self.by_id.insert(
            DEMO.to_string(),
            Provider {
                wire: Some(Wire::Demo),
                models: vec!["scripted".to_string()],
                max_advertised_models: 1,
                ..Provider::default()
            },
        );
    }

    pub fn get(&self, id: &str) -> Option<&Provider> {
        self.by_id.get(id)
    }
}
