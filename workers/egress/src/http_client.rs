//! The HTTP clients: one for model providers, one for fetches.
//!
//! Neither follows redirects by itself (a key must not travel on, and a fetch checks each hop),
//! neither reads a proxy from the environment, and both keep their connections.

use crate::resolver::CheckedResolver;
use crate::system_roots::SystemRoots;
use rustls::ClientConfig;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Time to connect, TLS included.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an unused connection is kept.
const POOL_IDLE: Duration = Duration::from_secs(90);

/// What both clients are built from.
#[derive(Debug, Clone)]
pub struct Tls(ClientConfig);

impl Tls {
    /// TLS that trusts the system's certificates. They are read with the first connection that
    /// needs them: a run with the demo model or a local server never does.
    ///
    /// # Panics
    /// Never: the cryptography is chosen at build time and speaks the default versions.
    #[must_use]
    pub fn from_system() -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = SystemRoots {
            provider: provider.clone(),
            loaded: OnceLock::new(),
        };
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring speaks the default TLS versions")
            // The name is rustls's for any verifier that it doesn't make itself.
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Self(config)
    }

    fn builder(&self) -> reqwest::ClientBuilder {
        reqwest::Client::builder()
            .tls_backend_preconfigured(self.0.clone())
            .user_agent(concat!("mono/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(POOL_IDLE)
            .tcp_nodelay(true)
    }

    /// The client for providers. Their addresses come from the configuration, so any is allowed.
    ///
    /// # Errors
    /// When the HTTP library can't be set up.
    pub fn model_client(&self) -> reqwest::Result<reqwest::Client> {
        self.builder().build()
    }

    /// The client for fetches, which connects only to addresses that `resolver` has checked.
    ///
    /// # Errors
    /// When the HTTP library can't be set up.
    pub fn fetch_client(&self, resolver: CheckedResolver) -> reqwest::Result<reqwest::Client> {
        self.builder().dns_resolver(resolver).build()
    }
}

/// An error of the HTTP library with its causes, without the address (it may hold a secret in its
/// query).
#[must_use]
pub fn describe(error: reqwest::Error) -> String {
    use std::error::Error;
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = inner.source();
    }
    text
}
