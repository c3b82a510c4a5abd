//! How a connection to a server is made: a process and its pipes, or one of the HTTP transports.

use super::{Live, Servers, Started, Starter};
use crate::claims::with_claim;
use crate::connection::{Carrier, Connection, Era, Failed};
use crate::ends::End;
use crate::error::ConnectError;
use crate::limits::Limits;
use crate::pipes::{drain, transport};
use crate::sse::SseTransport;
use crate::web::{Endpoint, streamable};
use ipc_proto::RunId;
use ipc_proto::edges::continuation::Claim;
use ipc_proto::settings::{McpServerSettings, McpTransport};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::unix::pipe;

/// How long the reason of a server's end is waited for.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(1);

impl<S: Starter> Servers<S> {
    pub(super) async fn connect(
        &self,
        settings: &McpServerSettings,
        run: &RunId,
        era: Era,
    ) -> Result<Live, Failure> {
        let name = &settings.name;
        let limits = self.limits_of(settings);
        let claim = match settings.claims {
            true => Some(
                self.claims
                    .issue(run, name)
                    .await
                    .map_err(ConnectError::Start)?,
            ),
            false => None,
        };
        match &settings.transport {
            McpTransport::Stdio => self.connect_stdio(settings, run, era, claim).await,
            McpTransport::Http { url, headers } => {
                let mut endpoint = Endpoint::new(url, headers)?;
                if let Some(claim) = &claim {
                    with_claim(&mut endpoint.headers, claim).map_err(ConnectError::Start)?;
                }
                let carrier = Carrier::default();
                let overflow = &carrier.overflow;
                let transport = streamable(self.http()?, &endpoint, &limits, overflow);
                match Connection::open(name, transport, carrier, era, limits).await {
                    Ok(connection) => Ok(connection.into()),
                    Err(failed) if matches!(failed.error, ConnectError::TimedOut(_)) => {
                        Err(failed.into())
                    }
                    // Nobody may claim over the older one.
                    Err(failed) if claim.is_some() => Err(failed.into()),
                    // A declaration seldom says which of the two HTTP transports is meant; the
                    // older one is tried when the newer is not understood.
                    Err(failed) => self
                        .connect_sse(name, &endpoint, self.limits_of(settings))
                        .await
                        .map_err(|_| failed.into()),
                }
            }
            McpTransport::Sse { url, headers } => {
                let endpoint = Endpoint::new(url, headers)?;
                self.connect_sse(name, &endpoint, limits).await
            }
        }
    }

    /// A server whose apps are not shown is not told that any are.
    fn limits_of(&self, settings: &McpServerSettings) -> Arc<Limits> {
        if !self.limits.apps || settings.apps.is_some() {
            return self.limits.clone();
        }
        Arc::new(Limits {
            apps: false,
            ..(*self.limits).clone()
        })
    }

    /// The old transport is older than discovery, so its servers are greeted the old way.
    async fn connect_sse(
        &self,
        name: &str,
        endpoint: &Endpoint,
        limits: Arc<Limits>,
    ) -> Result<Live, Failure> {
        let carrier = Carrier::default();
        let overflow = carrier.overflow.clone();
        let opening = SseTransport::open(self.http()?, endpoint, self.limits.message, overflow);
        let transport = tokio::time::timeout(self.limits.connect, opening)
            .await
            .map_err(|_| ConnectError::TimedOut(self.limits.connect))??;
        let connection = Connection::open(name, transport, carrier, Era::Handshake, limits).await?;
        Ok(connection.into())
    }

    async fn connect_stdio(
        &self,
        settings: &McpServerSettings,
        run: &RunId,
        era: Era,
        claim: Option<Claim>,
    ) -> Result<Live, Failure> {
        let own = settings.per_run.then_some(run);
        let name = &settings.name;
        let started = match settings.context {
            true => {
                let context = self.board.context(run, name);
                self.starter.start_told(name, run, context, claim).await
            }
            false => self.starter.start(name, own, claim).await,
        };
        let started = started.map_err(ConnectError::Start)?;
        let process = started.process;
        let end = self.ends.expect(process);
        let opened = self.open_stdio(settings, started, era, end).await;
        if opened.is_err() {
            self.starter.stop(process).await;
        }
        Ok(Live {
            connection: Arc::new(opened?),
            process: Some(process),
        })
    }

    async fn open_stdio(
        &self,
        settings: &McpServerSettings,
        started: Started,
        era: Era,
        end: End,
    ) -> Result<Connection, Failure> {
        let pipes = |error: std::io::Error| {
            ConnectError::Start(format!("its pipes can't be used: {error}"))
        };
        let stdin = pipe::Sender::from_owned_fd(started.stdin).map_err(pipes)?;
        let stdout = pipe::Receiver::from_owned_fd(started.stdout).map_err(pipes)?;
        let stderr = pipe::Receiver::from_owned_fd(started.stderr).map_err(pipes)?;
        let carrier = Carrier {
            end: Some(end),
            ..Carrier::default()
        };
        let last_line = carrier.last_line.clone();
        // Ends with the process, whose only other end of the pipe it is.
        let (name, limits) = (&settings.name, self.limits_of(settings));
        let drained = tokio::spawn(drain(name.clone(), stderr, last_line.clone()));
        let transport = transport(stdout, stdin, self.limits.message, &carrier.overflow);
        match Connection::open(name, transport, carrier, era, limits).await {
            Ok(connection) => Ok(connection),
            Err(failed) => {
                // A server that died has its reason still in the pipe: let it be read.
                let _ = tokio::time::timeout(LAST_WORDS_WITHIN, drained).await;
                Err(Failure {
                    last_line: Some(last_line.get()).filter(|line| !line.is_empty()),
                    ..failed.into()
                })
            }
        }
    }

    fn http(&self) -> Result<reqwest::Client, ConnectError> {
        let missing = || ConnectError::Start("there is no HTTP client".to_owned());
        self.http.clone().ok_or_else(missing)
    }
}

impl From<Connection> for Live {
    fn from(connection: Connection) -> Self {
        Self {
            connection: Arc::new(connection),
            process: None,
        }
    }
}

/// Why a run got no connection.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: ConnectError,
    pub(super) last_line: Option<String>,
    /// How to greet the server instead, when a greeting failed.
    pub(super) next: Option<Era>,
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        Self {
            error,
            last_line: None,
            next: None,
        }
    }
}

impl From<Failed> for Failure {
    fn from(failed: Failed) -> Self {
        Self {
            error: failed.error,
            last_line: None,
            next: Some(failed.next),
        }
    }
}
