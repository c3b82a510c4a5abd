//! HTTP to declared servers: one client for all of them, and the address rules.
//!
//! Only addresses of the configuration are ever requested. A redirect is followed within the
//! origin alone (a missing trailing slash is common), so that a server can't send the host's
//! requests, with the headers that the configuration gave it, to somebody else.

use crate::bounded_http::BoundedHttp;
use crate::connection::chain;
use crate::error::ConnectError;
use crate::limits::Limits;
use crate::pipes::Overflow;
use http::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::{Attempt, Policy};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use url::Url;

/// Redirects followed within one origin.
const REDIRECTS_MAX: usize = 3;
/// A host that doesn't answer a connect within this time is down.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Header values of one server, in bytes together.
const HEADERS_MAX: usize = 16 * 1024;
/// An event stream that broke is resumed this often.
const RESUMES_MAX: usize = 5;

/// There is no HTTP client: the reason is for the log.
#[derive(Debug, Error)]
#[error("the HTTP client could not be built: {0}")]
pub struct ClientError(#[from] reqwest::Error);

/// The client for all servers. It reads the system's trust anchors now, so it has to be built
/// before the worker loses the right to open files. On a machine without any, no TLS connection is
/// accepted and servers of this machine still work.
///
/// # Errors
/// When the HTTP library can't be set up.
pub fn client() -> Result<reqwest::Client, ClientError> {
    // Fails only when a provider is installed already, which is then the same one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match builder().build() {
        Ok(client) => Ok(client),
        Err(error) => {
            let reason = chain(&error);
            tracing::warn!("no TLS connection to an MCP server can be verified: {reason}");
            without_anchors()
        }
    }
}

fn without_anchors() -> Result<reqwest::Client, ClientError> {
    Ok(builder().tls_certs_only([]).build()?)
}

fn builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .user_agent(concat!("mono/", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::custom(redirect))
        .referer(false)
        // A proxy of the environment would be an address that no configuration names.
        .no_proxy()
        .connect_timeout(CONNECT_WITHIN)
        .tcp_nodelay(true)
}

fn redirect(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let from_here = attempt
        .previous()
        .first()
        .is_some_and(|first| same_origin(first, attempt.url()));
    if !from_here {
        return attempt.error("a redirect to another origin is not followed");
    }
    if attempt.previous().len() > REDIRECTS_MAX {
        return attempt.error("too many redirects");
    }
    attempt.follow()
}

/// True when both have the same scheme, host and port.
pub fn same_origin(a: &Url, b: &Url) -> bool {
    a.origin().is_tuple() && a.origin() == b.origin()
}

/// A checked address with its checked, literal headers.
#[derive(Debug, Clone)]
pub struct Endpoint {
    pub url: Url,
    pub headers: HeaderMap,
}

impl Endpoint {
    /// # Errors
    /// When the address is not http(s) with a host, holds credentials, or a header is malformed,
    /// too long, or one that the protocol needs for itself.
    pub fn new(url: &str, headers: &BTreeMap<String, String>) -> Result<Self, ConnectError> {
        // No reason repeats the address or a header's value: either may hold a secret.
        let bad = |reason: &str| ConnectError::Address(reason.to_owned());
        let parsed = Url::parse(url).map_err(|error| bad(&error.to_string()))?;
        if !matches!(parsed.scheme(), "http" | "https") || parsed.host().is_none() {
            return Err(bad(
                "it must begin with http:// or https:// and name a host",
            ));
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(bad("it holds a user name or a password"));
        }
        let mut checked = HeaderMap::new();
        let mut bytes = 0;
        for (name, value) in headers {
            let header = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| bad(&format!("{name:?} is no header name")))?;
            if RESERVED.contains(&header.as_str()) {
                return Err(bad(&format!("the header {name} is set by the protocol")));
            }
            let mut value = HeaderValue::from_str(value)
                .map_err(|_| bad(&format!("the value of the header {name} is malformed")))?;
            value.set_sensitive(true);
            bytes += header.as_str().len() + value.len();
            checked.insert(header, value);
        }
        crate::claims::without_claim(&mut checked);
        if bytes > HEADERS_MAX {
            return Err(bad(&format!(
                "its headers have more than {HEADERS_MAX} bytes"
            )));
        }
        Ok(Self {
            url: parsed,
            headers: checked,
        })
    }
}

const RESERVED: [&str; 9] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "transfer-encoding",
];

/// The streamable HTTP transport to `endpoint`, with every size bounded.
pub fn streamable(
    client: reqwest::Client,
    endpoint: &Endpoint,
    limits: &Limits,
    overflow: &Overflow,
) -> StreamableHttpClientTransport<BoundedHttp> {
    let mut resume = ExponentialBackoff::default();
    resume.max_times = Some(RESUMES_MAX);
    resume.max_delay = Some(Duration::from_secs(10));
    let mut config = StreamableHttpClientTransportConfig::with_uri(endpoint.url.as_str())
        .custom_headers(
            endpoint
                .headers
                .iter()
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        )
        .max_sse_event_size(limits.message)
        .max_json_response_size(limits.message)
        .max_error_response_size(4 * 1024)
        .reinit_on_expired_session(true);
    config.retry_config = Arc::new(resume);
    let backend = BoundedHttp::new(client, overflow.clone());
    StreamableHttpClientTransport::with_client(backend, config)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn endpoint(url: &str, headers: &[(&str, &str)]) -> Result<Endpoint, ConnectError> {
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Endpoint::new(url, &headers)
    }

    #[test]
    fn a_machine_without_trust_anchors_still_gets_a_client() {
        client().unwrap();
        without_anchors().unwrap();
    }

    #[test]
    fn only_plain_http_addresses_are_taken() {
        for good in [
            "http://127.0.0.1:3000/mcp",
            "https://mcp.example.com/sse?x=1",
        ] {
            assert!(endpoint(good, &[]).is_ok(), "{good}");
        }
        for bad in [
            "",
            "mcp",
            "file:///etc/passwd",
            "ftp://h/",
            "http://",
            "https://u:p@h/",
        ] {
            assert!(endpoint(bad, &[]).is_err(), "{bad}");
        }
    }

    #[test]
    fn headers_are_checked_and_no_error_shows_a_value() {
        assert!(endpoint("http://h/", &[("Authorization", "Bearer secret")]).is_ok());
        let long = "x".repeat(HEADERS_MAX);
        for (name, value) in [
            ("Host", "secret"),
            ("mcp-session-id", "secret"),
            ("a b", "secret"),
            ("x", "secret\nx: y"),
            ("x", &long),
        ] {
            let error = endpoint("http://h/", &[(name, value)]).unwrap_err();
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        let error = endpoint("http://u:secret@h/", &[]).unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let url = |text: &str| Url::parse(text).unwrap();
        let base = url("https://h/a");
        assert!(same_origin(&base, &url("https://h:443/b?c")));
        for other in ["http://h/a", "https://h:444/a", "https://x/a", "data:,a"] {
            assert!(!same_origin(&base, &url(other)), "{other}");
        }
        assert!(!same_origin(&url("data:,a"), &url("data:,a")));
    }
}
