//! POST of a channel's results, to declared hosts only (facts 2.2).
//!
//! Whether a result may go to a host is decided here, from the configuration: the channel, which
//! reads what strangers send, can't widen it. One request is one attempt; the channel repeats.

use crate::fetch::{FetchError, network, parse};
use crate::http_client::Tls;
use crate::resolver::{CheckedResolver, PrivateHosts, check_url};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use ipc_proto::callbacks::{CallbackHosts, NotDeclared, Reach};
use std::time::Duration;

/// Time for one attempt, until the answer's head.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// What is sent, beside the body.
#[derive(Debug)]
pub struct Message<'a> {
    /// `webhook-id`.
    pub id: &'a str,
    /// `webhook-timestamp`.
    pub timestamp: u64,
    /// `webhook-signature`.
    pub signature: &'a str,
}

/// What the receiver said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status; a redirect is one that is not followed.
    pub status: u16,
    /// `retry-after`, when it is a number of seconds.
    pub retry_after: Option<u32>,
}

/// Why nobody answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeliverError {
    /// A host that nobody declared, or one that is reached in the clear.
    #[error("{0}")]
    Undeclared(#[from] NotDeclared),
    /// A declared name that leads inside.
    #[error(
        "{0} is not at a public address: put it into webhook.callback.privateHosts if results may be sent there"
    )]
    Private(String),
    /// Nobody was reached, so nothing was sent.
    #[error("no connection to {0}")]
    NoConnection(String),
    /// As a fetch.
    #[error("{0}")]
    Fetch(FetchError),
}

impl DeliverError {
    /// The fixed code for the channel.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Undeclared(_) => "undeclared_host",
            Self::Private(_) => "private_address",
            Self::NoConnection(_) => "no_connection",
            Self::Fetch(error) => error.code(),
        }
    }
}

impl From<FetchError> for DeliverError {
    fn from(error: FetchError) -> Self {
        Self::Fetch(error)
    }
}

/// Sends results. Like fetches, public and private targets have clients of their own.
pub struct Deliverer {
    hosts: CallbackHosts,
    public: reqwest::Client,
    private: reqwest::Client,
    timeout: Duration,
}

impl Deliverer {
    /// A sender that reaches `hosts` and nothing else.
    ///
    /// # Errors
    /// When the HTTP library can't be set up.
    pub fn new(tls: &Tls, hosts: CallbackHosts, timeout: Duration) -> reqwest::Result<Self> {
        let listed = PrivateHosts::new(&hosts.private);
        Ok(Self {
            hosts,
            public: tls.fetch_client(CheckedResolver::public_only())?,
            private: tls.fetch_client(CheckedResolver::listed_only(listed))?,
            timeout,
        })
    }

    /// Sends one message once.
    ///
    /// # Errors
    /// [`DeliverError`]; an HTTP error status is no error here.
    pub async fn deliver(
        &self,
        url: &str,
        message: &Message<'_>,
        body: Vec<u8>,
    ) -> Result<Answer, DeliverError> {
        let url = parse(url)?;
        let host = url.host_str().unwrap_or_default();
        let port = url.port_or_known_default().unwrap_or(0);
        let client = match self.hosts.reach(url.scheme() == "https", host, port)? {
            Reach::Any => &self.private,
            Reach::Public => {
                // A literal address is not resolved, so it is looked at here.
                let _ = check_url(&url, &PrivateHosts::default())
                    .map_err(|_| DeliverError::Private(host.to_owned()))?;
                &self.public
            }
        };
        let sending = client
            .post(url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", message.id)
            .header("webhook-timestamp", message.timestamp)
            .header("webhook-signature", message.signature)
            .body(body)
            .send();
        let response = match tokio::time::timeout(self.timeout, sending).await {
            Err(_) => return Err(FetchError::Timeout.into()),
            Ok(Err(e)) => return Err(failed(&url, e)),
            Ok(Ok(response)) => response,
        };
        let retry_after = response.headers().get(RETRY_AFTER);
        Ok(Answer {
            status: response.status().as_u16(),
            retry_after: retry_after.and_then(|v| v.to_str().ok()?.trim().parse().ok()),
        })
    }
}

fn failed(url: &url::Url, error: reqwest::Error) -> DeliverError {
    let host = || url.host_str().unwrap_or_default().to_owned();
    let connecting = error.is_connect();
    match network(url, error) {
        FetchError::PrivateAddress(_) => DeliverError::Private(host()),
        FetchError::Network(_) if connecting => DeliverError::NoConnection(host()),
        other => other.into(),
    }
}
