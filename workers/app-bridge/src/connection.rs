//! One connection to one server, whatever carries it: handshake in either protocol era, and the
//! tools. Calls are in [`crate::call`].

use crate::client::{Host, Routes};
use crate::ends::End;
use crate::error::{ConnectError, ListError, Warning};
use crate::limits::{CALLS_PER_CONNECTION, Limits};
use crate::listing::{Declared, Listed, Listing, Next};
use crate::pipes::{LastLine, Overflow};
use crate::watch::{Stamp, Watched};
use ipc_proto::edges::app_bridge::McpTool;
use rmcp::model::{
    ClientRequest, ErrorCode, ListToolsRequest, PaginatedRequestParams, ProtocolVersion,
    ServerResult,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, Peer, PeerRequestOptions, RoleClient,
    RunningService, ServiceError, serve_client_with_lifecycle,
};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore};

/// How a server is to be greeted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Era {
    /// Not known: `server/discover`, and `initialize` if that is not understood.
    #[default]
    Unknown,
    /// Revisions up to 2025-11-25: `initialize`, ping.
    Handshake,
    /// From 2026-07-28 on: `server/discover`, everything in each request.
    Stateless,
}

impl Era {
    fn lifecycle(self) -> ClientLifecycleMode {
        let preferred_versions = vec![ProtocolVersion::LATEST];
        match self {
            Self::Unknown => ClientLifecycleMode::Auto {
                preferred_versions,
                legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
            },
            Self::Handshake => ClientLifecycleMode::Initialize,
            Self::Stateless => ClientLifecycleMode::Discover { preferred_versions },
        }
    }
}

/// What a carrier of messages comes with: the facts that only it knows.
#[derive(Debug, Clone, Default)]
pub struct Carrier {
    /// What a stdio server last wrote to its standard error.
    pub last_line: LastLine,
    /// Set when the carrier was closed because of an oversized message.
    pub overflow: Overflow,
    /// How the process at its other end ends, where there is one that somebody watches.
    pub end: Option<End>,
}

/// Why there is no connection, and what the attempt taught about the server's era.
#[derive(Debug)]
pub struct Failed {
    pub error: ConnectError,
    /// How to greet it the next time.
    pub next: Era,
}

/// A connection that the handshake made usable.
#[derive(Debug)]
pub struct Connection {
    /// Names this connection and no other, whatever server is behind it.
    pub(crate) id: String,
    pub(crate) server: String,
    pub(crate) peer: Peer<RoleClient>,
    pub(crate) routes: Routes,
    pub(crate) heard: Stamp,
    pub(crate) carrier: Carrier,
    pub(crate) limits: Arc<Limits>,
    pub(crate) permits: Semaphore,
    era: Era,
    tools_changed: Arc<AtomicBool>,
    listed: Mutex<Option<Listed>>,
    /// Every tool of the latest listing, for what their results declare.
    declared: std::sync::Mutex<Option<Arc<Vec<Declared>>>>,
    service: Mutex<RunningService<RoleClient, Host>>,
    broken: AtomicBool,
}

impl Connection {
    /// Greets the server over `transport`, within [`Limits::connect`].
    ///
    /// # Errors
    /// When the handshake fails, takes too long, or the carrier ends.
    pub async fn open<T>(
        server: &str,
        transport: T,
        carrier: Carrier,
        era: Era,
        limits: Arc<Limits>,
    ) -> Result<Self, Failed>
    where
        T: Transport<RoleClient> + 'static,
    {
        let host = Host {
            routes: Routes::default(),
            tools_changed: Arc::default(),
            apps: limits.apps,
        };
        let heard = Stamp::never();
        let late = Arc::new(AtomicBool::new(false));
        // The discovery bound only makes sense where there is something to fall back to.
        let patience = match era {
            Era::Unknown => limits.discover,
            _ => limits.connect,
        };
        let watched = Watched::new(transport, heard.clone(), patience, late.clone());
        let attempt = serve_client_with_lifecycle(host.clone(), watched, era.lifecycle());
        let service = match tokio::time::timeout(limits.connect, attempt).await {
            Ok(Ok(service)) => service,
            outcome => {
                let next = next_greeting(era, late.load(Ordering::Relaxed), outcome.is_err());
                let error = match outcome {
                    Ok(Err(error)) => ConnectError::Handshake(handshake(&error)),
                    _ => ConnectError::TimedOut(limits.connect),
                };
                return Err(Failed { error, next });
            }
        };
        let peer = service.peer().clone();
        let handshake = peer
            .peer_info()
            .is_none_or(|info| info.protocol_version.has_initialize());
        Ok(Self {
            id: uuid::Uuid::new_v4().simple().to_string(),
            server: server.to_owned(),
            peer,
            routes: host.routes,
            heard,
            carrier,
            limits,
            permits: Semaphore::new(CALLS_PER_CONNECTION),
            era: if handshake {
                Era::Handshake
            } else {
                Era::Stateless
            },
            tools_changed: host.tools_changed,
            listed: Mutex::new(None),
            declared: std::sync::Mutex::new(None),
            service: Mutex::new(service),
            broken: AtomicBool::new(false),
        })
    }

    /// Names this connection and no other.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The era that was agreed on; never [`Era::Unknown`].
    pub fn era(&self) -> Era {
        self.era
    }

    /// The protocol revision in use, e.g. `2025-11-25`.
    pub fn revision(&self) -> String {
        self.peer
            .peer_info()
            .map_or_else(String::new, |info| info.protocol_version.to_string())
    }

    /// False once the peer has gone or a call found it unusable.
    pub fn is_usable(&self) -> bool {
        !self.broken.load(Ordering::Relaxed) && !self.peer.is_transport_closed()
    }

    /// No further call may use this connection.
    pub(crate) fn mark_broken(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    /// What a stdio server last wrote to its standard error, if anything.
    pub fn last_line(&self) -> Option<String> {
        Some(self.carrier.last_line.get()).filter(|line| !line.is_empty())
    }

    /// The server's tools, all pages within [`Limits::list`].
    ///
    /// Asked for each time unless the server promises to say when they change.
    ///
    /// # Errors
    /// When the server does not give a complete, well-formed list.
    pub async fn list_tools(&self) -> Result<(Vec<McpTool>, Vec<Warning>), ListError> {
        let mut listed = self.listed.lock().await;
        let changed = self.tools_changed.swap(false, Ordering::Relaxed);
        if let Some(known) = listed.as_ref().filter(|_| !changed) {
            return Ok((known.tools.clone(), known.warnings.clone()));
        }
        let found = self.listing(self.limits.list).await?;
        if self.announces_changes() {
            *listed = Some(found.clone());
        }
        Ok((found.tools, found.warnings))
    }

    /// Every tool as the server declares it now, asked for afresh whatever it promised.
    ///
    /// # Errors
    /// As [`Connection::list_tools`].
    pub async fn fresh_tools(&self, within: Duration) -> Result<Arc<Vec<Declared>>, ListError> {
        Ok(self.listing(within).await?.declared)
    }

    /// Every tool of the latest listing; asks where there was none.
    ///
    /// # Errors
    /// As [`Connection::list_tools`].
    pub async fn known_tools(&self, within: Duration) -> Result<Arc<Vec<Declared>>, ListError> {
        if let Some(known) = self.declared().clone() {
            return Ok(known);
        }
        self.fresh_tools(within).await
    }

    fn declared(&self) -> std::sync::MutexGuard<'_, Option<Arc<Vec<Declared>>>> {
        let poisoned = std::sync::PoisonError::into_inner;
        self.declared.lock().unwrap_or_else(poisoned)
    }

    async fn listing(&self, within: Duration) -> Result<Listed, ListError> {
        let found = tokio::time::timeout(within, self.all_pages())
            .await
            .map_err(|_| ListError::TimedOut(within))??;
        *self.declared() = Some(found.declared.clone());
        Ok(found)
    }

    /// A stateless server tells changes only to those who listen; we don't, so we ask each time.
    fn announces_changes(&self) -> bool {
        self.era == Era::Handshake
            && self.peer.peer_info().is_some_and(|info| {
                info.capabilities
                    .tools
                    .as_ref()
                    .is_some_and(|tools| tools.list_changed == Some(true))
            })
    }

    async fn all_pages(&self) -> Result<Listed, ListError> {
        let mut listing = Listing::new(&self.server, &self.limits);
        let mut cursor = None;
        loop {
            let params = cursor
                .take()
                .map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
            let request = ListToolsRequest {
                method: Default::default(),
                params,
                extensions: Default::default(),
            };
            let answer = self
                .peer
                .send_request_with_option(
                    ClientRequest::ListToolsRequest(request),
                    PeerRequestOptions::with_timeout(self.limits.list),
                )
                .await
                .map_err(|error| self.list_error(error))?
                .await_response()
                .await;
            let page = match answer {
                Ok(ServerResult::ListToolsResult(page)) => page,
                // A server without tools need not know the method.
                Err(ServiceError::McpError(error)) if error.code == ErrorCode::METHOD_NOT_FOUND => {
                    return Ok(listing.finish());
                }
                Ok(_) => return Err(ListError::Protocol("not a list of tools".to_owned())),
                Err(error) => return Err(self.list_error(error)),
            };
            match listing.page(page.tools, page.next_cursor) {
                Next::Page(next) => cursor = Some(next),
                Next::Done => return Ok(listing.finish()),
            }
        }
    }

    pub(crate) fn list_error(&self, error: ServiceError) -> ListError {
        match error {
            ServiceError::TransportClosed if self.carrier.overflow.happened() => {
                ListError::Protocol(format!("a message over {} bytes", self.limits.message))
            }
            ServiceError::TransportClosed => ListError::Gone,
            ServiceError::Timeout { .. } => ListError::TimedOut(self.limits.list),
            ServiceError::McpError(error) => ListError::Refused(error.message.to_string()),
            other => ListError::Protocol(other.to_string()),
        }
    }

    /// Ends the connection; the server sees the end of its input. Bounded.
    pub async fn close(&self) {
        self.mark_broken();
        let mut service = self.service.lock().await;
        // An error or a timeout here changes nothing: the process is ended by its starter.
        let _ = service.close_with_timeout(CLOSE_WITHIN).await;
    }
}

const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// How to greet a server after a failure. One that answered discovery late is of the stateless era.
/// One that took discovery badly (old servers answer `{}`, or end) may take the plain handshake
/// well. What was remembered and turned out wrong is forgotten.
fn next_greeting(tried: Era, late: bool, timed_out: bool) -> Era {
    match tried {
        Era::Unknown if late => Era::Stateless,
        Era::Unknown if !timed_out => Era::Handshake,
        _ => Era::Unknown,
    }
}

/// The handshake's error without the debug print of whole messages that rmcp puts into some.
fn handshake(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::ConnectionClosed(_) => "the server ended".to_owned(),
        ClientInitializeError::ExpectedInitResponse(_)
        | ClientInitializeError::ExpectedInitResult(_) => {
            "the answer is of another kind than asked for".to_owned()
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => handshake(fallback),
        ClientInitializeError::TransportError { error, .. } => chain(error.error.as_ref()),
        other => other.to_string(),
    }
}

/// An error with its causes, and without the address: that may hold a token, and whoever reads the
/// text knows the server by its name.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    type Http = StreamableHttpError<reqwest::Error>;
    if let Some(Http::Client(inner)) = error.downcast_ref::<Http>() {
        return chain(inner);
    }
    let mut text = match error.downcast_ref::<reqwest::Error>() {
        None => error.to_string(),
        Some(error) if error.is_connect() => "no connection".to_owned(),
        Some(error) if error.is_timeout() => "no answer in time".to_owned(),
        Some(error) if error.is_redirect() => "a refused redirect".to_owned(),
        Some(_) => "the request failed".to_owned(),
    };
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
