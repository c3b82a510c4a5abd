//! What the console shows of the daemon, as `monoctl` would, and the one thing that operators change
//! from here: what becomes of a continuation.

use super::continuations;
use super::error::ApiError;
use super::query::{cursor, limit, parameter};
use futures_util::future::BoxFuture;
use http::request::Parts;
use ipc_proto::channel::Fault;
use ipc_proto::console::{Act, Look};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex as AsyncMutex, Semaphore, SemaphorePermit};
use tokio::time::Instant;
use worker_kit::{Control, ControlError};

/// Looks at the daemon under way at once.
const MAX_LOOKS: usize = 8;
/// How old the daemon's status may be that is shown: every open page asks for it again and again,
/// and for the supervisor it is work.
const STATUS_AGE: Duration = Duration::from_secs(1);

/// Who shows the daemon: the supervisor, or a test.
pub trait Lookout: Send + Sync + 'static {
    /// What `monoctl` would print.
    fn look(&self, at: Look) -> BoxFuture<'_, Result<Value, ControlError>>;
    /// Does it, and gives what `monoctl` would print.
    fn act(&self, act: Act) -> BoxFuture<'_, Result<Value, ControlError>>;
}

impl Lookout for Control {
    fn look(&self, at: Look) -> BoxFuture<'_, Result<Value, ControlError>> {
        Box::pin(Control::look(self, at))
    }

    fn act(&self, act: Act) -> BoxFuture<'_, Result<Value, ControlError>> {
        Box::pin(Control::act(self, act))
    }
}

/// The daemon as operators see it.
pub(super) struct Operator {
    lookout: Arc<dyn Lookout>,
    looks: Semaphore,
    status: AsyncMutex<Option<(Instant, Value)>>,
}

impl Operator {
    pub(super) fn new(lookout: Arc<dyn Lookout>) -> Self {
        Self {
            lookout,
            looks: Semaphore::new(MAX_LOOKS),
            status: AsyncMutex::default(),
        }
    }

    /// The answer to a route below `operator`.
    pub(super) async fn show(&self, parts: &Parts, path: &[&str]) -> Result<Value, ApiError> {
        let page = || Ok::<_, ApiError>((limit(parts, 50)?, cursor(parts, "cursor")));
        let at = match path {
            ["status"] => Look::Status,
            ["config"] => Look::Config,
            ["runs"] => {
                let (limit, cursor) = page()?;
                Look::Runs {
                    status: parameter(parts, "status").filter(|status| !status.is_empty()),
                    limit,
                    cursor,
                }
            }
            ["runs", run] => Look::Run {
                run: (*run).to_owned(),
            },
            ["artifacts"] => {
                let (limit, cursor) = page()?;
                Look::Artifacts { limit, cursor }
            }
            path => continuations::look(parts, path)?,
        };
        let _permit = self.permit()?;
        let seen = match at {
            Look::Status => self.status().await,
            at => self.lookout.look(at).await,
        };
        seen.map_err(|error| refusal(error, || ApiError::unavailable("daemon")))
    }

    /// The answer to a change below `operator`: how the continuation stands afterwards.
    pub(super) async fn change(&self, path: &[&str], body: &[u8]) -> Result<Value, ApiError> {
        let act = continuations::act(path, body)?;
        let _permit = self.permit()?;
        let unclear = || {
            let message =
                "Nobody said what became of it. Look how it stands before you do it again.";
            ApiError::new(503, "unavailable", message)
        };
        let done = self.lookout.act(act).await;
        done.map_err(|error| refusal(error, unclear))
    }

    fn permit(&self) -> Result<SemaphorePermit<'_>, ApiError> {
        let busy = || Fault::new("busy", "too many looks at once; try again");
        self.looks.try_acquire().map_err(|_| busy().into())
    }

    /// What is young enough, or one look for all who wait.
    async fn status(&self) -> Result<Value, ControlError> {
        let mut kept = self.status.lock().await;
        if let Some((at, seen)) = &*kept
            && at.elapsed() < STATUS_AGE
        {
            return Ok(seen.clone());
        }
        let seen = self.lookout.look(Look::Status).await?;
        *kept = Some((Instant::now(), seen.clone()));
        Ok(seen)
    }
}

/// What the supervisor said, or that it said nothing.
fn refusal(error: ControlError, silent: impl FnOnce() -> ApiError) -> ApiError {
    match error {
        ControlError::Refused(fault) => fault.into(),
        other => {
            tracing::warn!("the daemon could not be asked: {other}");
            silent()
        }
    }
}

#[cfg(test)]
#[path = "operator_tests.rs"]
mod tests;
