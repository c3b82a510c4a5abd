//! A configured provider, ready to be asked.

use crate::key::Key;
use crate::wire::{Api, Target, anthropic_messages};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use ipc_proto::settings::{ProviderSettings, Wire};
use url::Url;

/// Host of the inventor of the two OpenAI wires.
const OPENAI_HOST: &str = "api.openai.com";

/// Why a provider can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// The base address is no address.
    #[error("the baseUrl of provider {id} is no address: {reason}")]
    BaseUrl {
        /// The provider's id.
        id: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The key came with a character that no header carries.
    #[error("the key of provider {0} can't be sent in a header")]
    Key(String),
}

/// One provider.
#[derive(Debug)]
pub enum Provider {
    /// The embedded scripted model.
    Demo,
    /// A service.
    Service(Box<Service>),
}

/// A provider behind HTTP.
#[derive(Debug)]
pub struct Service {
    /// The wire it speaks.
    pub api: Api,
    /// Where its requests go.
    pub url: Url,
    /// Everything that goes along with each request, the key included.
    pub headers: HeaderMap,
    /// For scrubbing what comes back.
    pub key: Option<Key>,
}

impl Provider {
    /// Prepares a provider.
    ///
    /// # Errors
    /// When its address or its key can't be used.
    pub fn new(
        id: &str,
        settings: &ProviderSettings,
        key: Option<Key>,
    ) -> Result<Self, ProviderError> {
        let Some(api) = Api::of(settings.wire) else {
            return Ok(Self::Demo);
        };
        let wrong = |reason: String| ProviderError::BaseUrl {
            id: id.to_owned(),
            reason,
        };
        let mut url = Url::parse(&settings.base_url).map_err(|e| wrong(e.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("it must begin with http:// or https://".to_owned()));
        }
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(api.route().split('/'));
        }
        let mut headers = HeaderMap::new();
        headers.insert(
            header::ACCEPT,
            HeaderValue::from_static("text/event-stream"),
        );
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        if let Some(key) = &key {
            let (name, prefix) = match settings.wire {
                Wire::AnthropicMessages => (HeaderName::from_static("x-api-key"), ""),
                _ => (header::AUTHORIZATION, "Bearer "),
            };
            let value = key
                .header(prefix)
                .ok_or_else(|| ProviderError::Key(id.to_owned()))?;
            headers.insert(name, value);
        }
        if api == Api::AnthropicMessages {
            let version = HeaderValue::from_static(anthropic_messages::VERSION);
            headers.insert(HeaderName::from_static("anthropic-version"), version);
        }
        Ok(Self::Service(Box::new(Service {
            api,
            url,
            headers,
            key,
        })))
    }
}

impl Service {
    /// Whom a request body is written for.
    #[must_use]
    pub fn target<'a>(&self, model: &'a str, effort: Option<&'a str>) -> Target<'a> {
        Target {
            model,
            effort,
            official: self.url.host_str() == Some(OPENAI_HOST),
        }
    }

    /// A provider's text without the key in it.
    #[must_use]
    pub fn scrub(&self, text: &str) -> String {
        self.key
            .as_ref()
            .map_or_else(|| text.to_owned(), |key| key.scrub(text))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::{Seek, Write};

    fn key(text: &str) -> Key {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.rewind().unwrap();
        Key::read(&mut file).unwrap()
    }

    fn service(wire: Wire, base: &str) -> Result<Service, ProviderError> {
        let settings = ProviderSettings {
            wire,
            base_url: base.into(),
            has_key: true,
        };
        match Provider::new("p", &settings, Some(key("sk-secret-1")))? {
            Provider::Service(service) => Ok(*service),
            Provider::Demo => panic!("a service was asked for"),
        }
    }

    #[test]
    fn each_wire_has_its_route_and_its_credential() {
        let chat = service(Wire::OpenaiChat, "http://127.0.0.1:11434/v1/").unwrap();
        assert_eq!(
            chat.url.as_str(),
            "http://127.0.0.1:11434/v1/chat/completions"
        );
        assert_eq!(chat.headers["authorization"], "Bearer sk-secret-1");
        assert!(!chat.target("m", None).official);
        let query = service(Wire::OpenaiChat, "https://x.example/v1?api-version=2").unwrap();
        assert_eq!(
            query.url.as_str(),
            "https://x.example/v1/chat/completions?api-version=2"
        );

        let responses = service(Wire::OpenaiResponses, "https://api.openai.com/v1").unwrap();
        assert_eq!(
            responses.url.as_str(),
            "https://api.openai.com/v1/responses"
        );
        assert!(responses.target("m", None).official);

        let messages = service(Wire::AnthropicMessages, "https://api.anthropic.com/v1").unwrap();
        assert_eq!(
            messages.url.as_str(),
            "https://api.anthropic.com/v1/messages"
        );
        assert_eq!(messages.headers["x-api-key"], "sk-secret-1");
        assert_eq!(messages.headers["anthropic-version"], "2023-06-01");
        assert!(!messages.headers.contains_key("authorization"));
        assert!(
            !format!("{messages:?}").contains("secret"),
            "a key never shows in a log"
        );
    }

    #[test]
    fn an_address_that_is_none_is_refused() {
        for base in [
            "",
            "api.openai.com/v1",
            "ftp://x/v1",
            "file:///etc",
            "http://",
        ] {
            assert!(
                matches!(
                    service(Wire::OpenaiChat, base),
                    Err(ProviderError::BaseUrl { .. })
                ),
                "{base:?}"
            );
        }
    }
}
