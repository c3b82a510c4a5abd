//! One request and its answer, within bounds.

use bytes::Bytes;
use continuation_record::token::Token;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use tokio::net::TcpStream;

/// Time for a whole request; the service itself waits no longer for a history.
const WITHIN: Duration = Duration::from_secs(60);
/// Largest answer in bytes: a page of 500 statuses.
const MAX_ANSWER: usize = 4 * 1024 * 1024;

/// Where a service listens: a loopback name and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    address: IpAddr,
    authority: String,
    port: u16,
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not an address of this machine, or no HTTP address at all.
    #[error("a continuation service has an http address at localhost, 127.0.0.1 or [::1]")]
    Address,
    /// The host gave this process no claim capability.
    #[error(
        "{0} is not set: this server is not among tools.continuationServers, or no request is under way"
    )]
    NoCapability(&'static str),
    /// No connection, or one that broke.
    #[error("the continuation service can't be reached: {0}")]
    Unreachable(String),
    /// No answer in time. What was asked may have happened; asking again is safe, but for a retry that allows the
    /// unknown: look first how it stands.
    #[error("the continuation service did not answer in time; ask again")]
    TimedOut,
    /// The service refused.
    #[error("{code}: {message}")]
    Refused {
        /// The status.
        status: u16,
        /// The code to decide by.
        code: String,
        /// One sentence.
        message: String,
    },
    /// An answer that no such service gives.
    #[error("the answer is not one of a continuation service")]
    Answer,
    /// A payload that can't be one.
    #[error("the payload is no JSON, is nested too deep, or has a number that no double holds")]
    Payload,
}

impl Error {
    /// The code of a refusal.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => Some(code),
            _ => None,
        }
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::TimedOut => true,
            Self::Refused { status, .. } => matches!(status, 408 | 429 | 500 | 503),
            _ => false,
        }
    }
}

impl Endpoint {
    /// From the configuration.
    ///
    /// # Errors
    /// [`Error::Address`] when the host is not of this machine or the port is 0.
    pub fn new(host: &str, port: u16) -> Result<Self, Error> {
        let bare = host.trim_matches(['[', ']']);
        let address = match bare {
            "localhost" | "127.0.0.1" => IpAddr::V4(Ipv4Addr::LOCALHOST),
            "::1" => IpAddr::V6(Ipv6Addr::LOCALHOST),
            _ => return Err(Error::Address),
        };
        if port == 0 {
            return Err(Error::Address);
        }
        let authority = if bare.contains(':') {
            format!("[{bare}]:{port}")
        } else {
            format!("{bare}:{port}")
        };
        Ok(Self {
            address,
            authority,
            port,
        })
    }

    /// From an address that the service gave out; returns the path too. Whoever follows such an address anywhere
    /// else would hand its capability to a stranger.
    ///
    /// # Errors
    /// [`Error::Address`].
    pub fn of_url(url: &str) -> Result<(Self, String), Error> {
        let uri: Uri = url.parse().map_err(|_| Error::Address)?;
        let authority = uri.authority().ok_or(Error::Address)?;
        let is_plain = uri.scheme_str() == Some("http")
            && !authority.as_str().contains('@')
            && uri.query().is_none();
        let port = authority
            .port_u16()
            .filter(|_| is_plain)
            .ok_or(Error::Address)?;
        let endpoint = Self::new(authority.host(), port)?;
        Ok((endpoint, uri.path().to_owned()))
    }

    /// Asks, and reads the answer.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        question: Question<'_>,
    ) -> Result<T, Error> {
        let bytes = tokio::time::timeout(WITHIN, self.send(question))
            .await
            .map_err(|_| Error::TimedOut)??;
        serde_json::from_slice(&bytes).map_err(|_| Error::Answer)
    }

    async fn send(&self, question: Question<'_>) -> Result<Bytes, Error> {
        let request = question.request(&self.authority)?;
        let stream = TcpStream::connect((self.address, self.port))
            .await
            .map_err(|e| Error::Unreachable(e.to_string()))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(unreachable)?;
        let answering = async {
            let answer = sender.send_request(request).await.map_err(unreachable)?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MAX_ANSWER);
            let bytes = body.collect().await.map_err(|_| Error::Answer)?.to_bytes();
            Ok((status, bytes))
        };
        // The connection moves only while it is polled; it ends with the answer.
        let connection = async {
            let _ = connection.await;
            std::future::pending::<()>().await;
        };
        let (status, bytes) = tokio::select! {
            answered = answering => answered?,
            () = connection => return Err(Error::Unreachable("the connection ended".to_owned())),
        };
        if status.is_success() {
            return Ok(bytes);
        }
        Err(refusal(status, &bytes))
    }
}

fn unreachable(e: hyper::Error) -> Error {
    Error::Unreachable(e.to_string())
}

#[derive(Deserialize)]
struct Refusal {
    error: RefusalParts,
}

#[derive(Deserialize)]
struct RefusalParts {
    code: String,
    message: String,
}

fn refusal(status: StatusCode, bytes: &[u8]) -> Error {
    match serde_json::from_slice::<Refusal>(bytes) {
        Ok(Refusal { error }) => Error::Refused {
            status: status.as_u16(),
            code: error.code,
            message: error.message,
        },
        Err(_) => Error::Answer,
    }
}

/// What is asked.
pub(crate) struct Question<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) token: &'a Token,
    pub(crate) service: Option<&'a str>,
    pub(crate) body: Vec<u8>,
}

impl<'a> Question<'a> {
    pub(crate) fn get(path: &'a str, token: &'a Token) -> Self {
        Self {
            method: Method::GET,
            path,
            token,
            service: None,
            body: Vec::new(),
        }
    }

    pub(crate) fn post(path: &'a str, token: &'a Token, body: Vec<u8>) -> Self {
        Self {
            method: Method::POST,
            body,
            ..Self::get(path, token)
        }
    }

    fn request(self, authority: &str) -> Result<Request<Full<Bytes>>, Error> {
        let bearer = format!("Bearer {}", self.token.as_str());
        let mut bearer = HeaderValue::try_from(bearer).map_err(|_| Error::Answer)?;
        bearer.set_sensitive(true);
        let mut request = Request::builder()
            .method(self.method)
            .uri(self.path)
            .header(HOST, authority)
            .header(AUTHORIZATION, bearer)
            .header(CONTENT_TYPE, "application/json");
        if let Some(service) = self.service {
            request = request.header("x-mono-agent-service-name", service);
        }
        let body = Full::new(Bytes::from(self.body));
        request.body(body).map_err(|_| Error::Answer)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_this_machine_is_asked() {
        for url in [
            "http://127.0.0.1:4319/v1/continuations/x/result",
            "http://localhost:4319/",
            "http://[::1]:4319/a",
        ] {
            assert!(Endpoint::of_url(url).is_ok(), "{url}");
        }
        for url in [
            "https://127.0.0.1:4319/",
            "http://127.0.0.1/",
            "http://127.0.0.1:0/",
            "http://evil.example:4319/",
            "http://127.0.0.1.evil.example:4319/",
            "http://127.0.0.1:4319@evil.example:80/",
            "http://user@127.0.0.1:4319/",
            "http://0.0.0.0:4319/",
            "http://127.0.0.1:4319/?x",
            "/v1/continuations",
            "127.0.0.1:4319",
            "",
        ] {
            assert!(
                matches!(Endpoint::of_url(url), Err(Error::Address)),
                "{url}"
            );
        }
        let (endpoint, path) = Endpoint::of_url("http://[::1]:4319/a/b").unwrap();
        assert_eq!(
            (endpoint.authority.as_str(), path.as_str()),
            ("[::1]:4319", "/a/b")
        );
    }

    #[test]
    fn what_may_be_asked_again_is_known() {
        let refused = |status| Error::Refused {
            status,
            code: "c".into(),
            message: "m".into(),
        };
        assert!(refused(503).is_temporary() && refused(429).is_temporary());
        assert!(!refused(401).is_temporary() && !refused(409).is_temporary());
        assert!(Error::TimedOut.is_temporary() && !Error::Address.is_temporary());
        assert_eq!(refused(409).code(), Some("c"));
    }
}
