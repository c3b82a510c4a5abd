//! GET on behalf of a tool (spec facts 4.1, "WebFetch").

use crate::http_client::{Tls, describe};
use crate::resolver::{CheckedResolver, HostCheck, PrivateHosts, ResolveError, check_url};
use http::header::{self, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use std::time::Duration;
use url::Url;

/// Longest address in bytes.
pub const MAX_URL: usize = 8 * 1024;
/// Most bytes of a body.
pub const MAX_BODY: u64 = 5 * 1024 * 1024;
/// Redirects that are followed.
pub const MAX_REDIRECTS: usize = 5;
/// Time for everything, redirects and body included.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// Most request headers, and most bytes of all of them.
pub const MAX_HEADERS: (usize, usize) = (32, 8 * 1024);

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// HTTP status; also 404 and the like are an answer.
    pub status: u16,
    /// Address after redirects.
    pub url: String,
    /// `content-type`, if it is readable text.
    pub content_type: Option<String>,
    /// True when the body was longer than asked for.
    pub truncated: bool,
    /// The bytes.
    pub body: Vec<u8>,
}

/// Why nothing came back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// No absolute http or https address.
    #[error("not an address that can be fetched: {0}")]
    InvalidUrl(String),
    /// A header that a tool may not set.
    #[error("the request header {0} can't be set")]
    ForbiddenHeader(String),
    /// The target is inside.
    #[error("{0}")]
    PrivateAddress(String),
    /// The name is not known.
    #[error("{0}")]
    Dns(String),
    /// It took longer than it may, see [`TIMEOUT`].
    #[error("the fetch took too long")]
    Timeout,
    /// Over [`MAX_REDIRECTS`].
    #[error("more than {MAX_REDIRECTS} redirects")]
    TooManyRedirects,
    /// The connection failed.
    #[error("{0}")]
    Network(String),
}

impl FetchError {
    /// The fixed code for the model.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::InvalidUrl(_) => "invalid_url",
            Self::ForbiddenHeader(_) => "forbidden_header",
            Self::PrivateAddress(_) => "private_address",
            Self::Dns(_) => "dns",
            Self::Timeout => "timeout",
            Self::TooManyRedirects => "too_many_redirects",
            Self::Network(_) => "network",
        }
    }
}

impl From<ResolveError> for FetchError {
    fn from(error: ResolveError) -> Self {
        match error {
            ResolveError::Unknown(_) => Self::Dns(error.to_string()),
            ResolveError::Private { .. } => Self::PrivateAddress(error.to_string()),
        }
    }
}

/// Fetches pages. Hosts on the private list have a client of their own, so that no connection made
/// for a listed host and port is ever reused for another target.
pub struct Fetcher {
    public: reqwest::Client,
    listed: reqwest::Client,
    allowed: PrivateHosts,
    timeout: Duration,
}

impl Fetcher {
    /// A fetcher that reaches public addresses and the hosts in `allowed`; `timeout` is for
    /// everything, redirects and body included.
    ///
    /// # Errors
    /// When the HTTP library can't be set up.
    pub fn new(tls: &Tls, allowed: PrivateHosts, timeout: Duration) -> reqwest::Result<Self> {
        Ok(Self {
            public: tls.fetch_client(CheckedResolver::public_only())?,
            listed: tls.fetch_client(CheckedResolver::listed_only(allowed.clone()))?,
            allowed,
            timeout,
        })
    }

    /// Fetches `url`, at most `max_bytes` of it.
    ///
    /// # Errors
    /// [`FetchError`]; an HTTP error status is no error here.
    pub async fn fetch(
        &self,
        url: &str,
        headers: &[(String, String)],
        max_bytes: u64,
    ) -> Result<Page, FetchError> {
        tokio::time::timeout(self.timeout, self.follow(url, headers, max_bytes))
            .await
            .unwrap_or(Err(FetchError::Timeout))
    }

    async fn follow(
        &self,
        url: &str,
        headers: &[(String, String)],
        max_bytes: u64,
    ) -> Result<Page, FetchError> {
        let mut url = parse(url)?;
        let mut headers = request_headers(headers)?;
        for _ in 0..=MAX_REDIRECTS {
            let client = match check_url(&url, &self.allowed)? {
                HostCheck::Allowed => &self.listed,
                HostCheck::PublicLiteral | HostCheck::Resolve => &self.public,
            };
            let response = client
                .get(url.clone())
                .headers(headers.clone())
                .send()
                .await
                .map_err(|e| network(&url, e))?;
            let Some(next) = redirect(&url, &response)? else {
                return page(url, response, max_bytes.min(MAX_BODY)).await;
            };
            if next.origin() != url.origin() {
                keep_harmless(&mut headers);
            }
            url = next;
        }
        Err(FetchError::TooManyRedirects)
    }
}

/// An absolute http or https address without a user part: credentials in a URL would go wherever a
/// redirect leads.
pub(crate) fn parse(text: &str) -> Result<Url, FetchError> {
    let wrong = |reason: &str| FetchError::InvalidUrl(reason.to_owned());
    if text.len() > MAX_URL {
        return Err(wrong("it is longer than 8 KiB"));
    }
    let mut url = Url::parse(text).map_err(|e| wrong(&e.to_string()))?;
    check_shape(&url)?;
    url.set_fragment(None);
    Ok(url)
}

fn check_shape(url: &Url) -> Result<(), FetchError> {
    let wrong = |reason: &str| FetchError::InvalidUrl(reason.to_owned());
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("only http and https can be fetched"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("it holds a user name or password"));
    }
    if url.port() == Some(0) {
        return Err(wrong("port 0 is none"));
    }
    Ok(())
}

/// Where a response leads, if it redirects.
fn redirect(from: &Url, response: &reqwest::Response) -> Result<Option<Url>, FetchError> {
    let redirects = matches!(
        response.status(),
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    let Some(location) = response.headers().get(LOCATION).filter(|_| redirects) else {
        return Ok(None);
    };
    let wrong = |reason: &str| FetchError::InvalidUrl(format!("a redirect's address: {reason}"));
    let location = std::str::from_utf8(location.as_bytes()).map_err(|_| wrong("not UTF-8"))?;
    if location.len() > MAX_URL {
        return Err(wrong("longer than 8 KiB"));
    }
    let mut next = from.join(location).map_err(|e| wrong(&e.to_string()))?;
    check_shape(&next)?;
    next.set_fragment(None);
    Ok(Some(next))
}

async fn page(url: Url, mut response: reqwest::Response, max: u64) -> Result<Page, FetchError> {
    let content_type = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .filter(|v| v.len() <= 256)
        .map(str::to_owned);
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    let mut body = Vec::new();
    let mut truncated = false;
    while let Some(piece) = response.chunk().await.map_err(|e| network(&url, e))? {
        let room = max - body.len();
        if piece.len() > room {
            body.extend_from_slice(&piece[..room]);
            truncated = true;
            break;
        }
        body.extend_from_slice(&piece);
    }
    let status = response.status().as_u16();
    Ok(Page {
        status,
        url: url.into(),
        content_type,
        truncated,
        body,
    })
}

/// Headers that steer the connection, carry this side's identity, or smuggle a second request.
/// `Accept-Encoding` is here because bodies are not unpacked.
const FORBIDDEN: &[&str] = &[
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "cookie2",
    "date",
    "dnt",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "origin",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-real-ip",
];
/// Families of the same kind.
const FORBIDDEN_PREFIXES: &[&str] = &[
    "proxy-",
    "sec-",
    "x-forwarded-",
    "x-original-",
    "x-rewrite-",
];

/// Headers that may go to another origin after a redirect.
const HARMLESS: &[HeaderName] = &[
    header::ACCEPT,
    header::ACCEPT_LANGUAGE,
    header::USER_AGENT,
    header::ACCEPT_ENCODING,
];

fn request_headers(asked: &[(String, String)]) -> Result<HeaderMap, FetchError> {
    let forbidden = |name: &str| {
        FetchError::ForbiddenHeader(name.chars().take(64).filter(|c| !c.is_control()).collect())
    };
    let bytes: usize = asked
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if asked.len() > MAX_HEADERS.0 || bytes > MAX_HEADERS.1 {
        return Err(forbidden("(there are too many)"));
    }
    let mut headers = HeaderMap::new();
    for (name, value) in asked {
        let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| forbidden(name))?;
        let lower = parsed.as_str();
        if FORBIDDEN.contains(&lower) || FORBIDDEN_PREFIXES.iter().any(|p| lower.starts_with(p)) {
            return Err(forbidden(name));
        }
        let mut value = HeaderValue::from_str(value).map_err(|_| forbidden(name))?;
        value.set_sensitive(!HARMLESS.contains(&parsed));
        headers.insert(parsed, value);
    }
    headers.insert(
        header::ACCEPT_ENCODING,
        HeaderValue::from_static("identity"),
    );
    headers
        .entry(header::ACCEPT)
        .or_insert(HeaderValue::from_static("*/*"));
    Ok(headers)
}

fn keep_harmless(headers: &mut HeaderMap) {
    let dropped: Vec<HeaderName> = headers
        .keys()
        .filter(|name| !HARMLESS.contains(name))
        .cloned()
        .collect();
    for name in dropped {
        headers.remove(name);
    }
}

/// The resolver's own error stands somewhere among the causes.
pub(crate) fn network(url: &Url, error: reqwest::Error) -> FetchError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(inner) = cause {
        if let Some(resolve) = inner.downcast_ref::<ResolveError>() {
            return resolve.clone().into();
        }
        cause = inner.source();
    }
    if error.is_timeout() {
        return FetchError::Timeout;
    }
    let host = url.host_str().unwrap_or_default();
    FetchError::Network(format!("{host} can't be reached: {}", describe(error)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_plain_web_addresses_are_fetched() {
        for url in [
            "",
            "/etc/passwd",
            "file:///etc/passwd",
            "ftp://example.com/",
            "gopher://example.com/",
            "data:text/plain,x",
            "javascript:1",
            "http://",
            "http://a:b@example.com/",
            "http://user@example.com/",
            "http://example.com:0/",
            "http://exa mple.com/",
            &format!("http://example.com/{}", "x".repeat(MAX_URL)),
        ] {
            let error = parse(url).unwrap_err();
            assert_eq!(error.code(), "invalid_url", "{url}");
        }
        assert_eq!(
            parse("HTTP://Example.com:80/a#b").unwrap().as_str(),
            "http://example.com/a"
        );
    }

    #[test]
    fn headers_that_smuggle_are_refused() {
        let one = |name: &str, value: &str| request_headers(&[(name.into(), value.into())]);
        for name in [
            "Host",
            "Cookie",
            "content-length",
            "Transfer-Encoding",
            "Connection",
            "Upgrade",
            "TE",
            "Proxy-Authorization",
            "Sec-Fetch-Site",
            "X-Forwarded-For",
            "X-HTTP-Method-Override",
            "Expect",
            "Accept-Encoding",
            "",
            "bad name",
            "x:y",
            "x\r\nHost",
        ] {
            assert!(
                matches!(one(name, "v"), Err(FetchError::ForbiddenHeader(_))),
                "{name:?}"
            );
        }
        assert!(one("x-note", "a\r\nhost: b").is_err());
        for name in [
            "Accept",
            "Authorization",
            "X-Api-Key",
            "User-Agent",
            "If-None-Match",
            "Range",
        ] {
            assert!(one(name, "v").is_ok(), "{name}");
        }
        let many = vec![("x-a".to_owned(), String::new()); MAX_HEADERS.0 + 1];
        assert!(request_headers(&many).is_err());
        assert!(one("x-a", &"v".repeat(MAX_HEADERS.1)).is_err());
    }

    #[test]
    fn credentials_stay_with_their_origin() {
        let mut headers = request_headers(&[
            ("authorization".into(), "Bearer x".into()),
            ("x-api-key".into(), "x".into()),
            ("accept".into(), "text/html".into()),
        ])
        .unwrap();
        keep_harmless(&mut headers);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["accept", "accept-encoding"]);
    }
}
