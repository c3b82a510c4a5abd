//! The ways to the owners: the store, the artifact worker and the app-bridge, each of which may be replaced.

use super::error::ApiError;
use ipc_proto::channel::CallError;
use ipc_proto::console::{Ask, MAX_BODY};
use ipc_proto::edges::app_bridge::AppBridge;
use ipc_proto::edges::artifact::Artifact;
use ipc_proto::edges::store::{Reply, Request, Store};
use ipc_proto::{Again, Body, Client, Door, Edge, LinkError, Until};
use serde::de::DeserializeOwned;
use std::time::Duration;

/// How long an owner that starts anew is waited for.
const COMES_WITHIN: Duration = Duration::from_secs(10);
/// How long the store may take, a restart of it included.
const WITHIN: Duration = Duration::from_secs(30);

/// All of them.
#[derive(Debug, Default)]
pub struct Keeper {
    /// Threads, messages, logins.
    pub store: Door<Store>,
    /// Reply files.
    pub artifact: Door<Artifact>,
    /// Apps.
    pub bridge: Door<AppBridge>,
}

/// Who serves there; waits a while for somebody.
///
/// # Errors
/// 503.
pub async fn serving<E: Edge>(door: &Door<E>) -> Result<Client<E>, ApiError> {
    let client = door.line(COMES_WITHIN).client().await;
    client.map_err(|_| ApiError::unavailable(E::NAME))
}

impl Keeper {
    /// Asks the store. What is only read is asked again when the store was replaced meanwhile.
    ///
    /// # Errors
    /// Its refusal, or 503.
    pub async fn ask<T: DeserializeOwned>(&self, ask: &Ask) -> Result<T, ApiError> {
        let unavailable = || ApiError::unavailable(Store::NAME);
        let (body, fd) = Body::pack_json(ask).map_err(|_| unavailable())?;
        let fds: Vec<_> = fd.into_iter().collect();
        let request = Request::Console { ask: body };
        let line = self.store.line(COMES_WITHIN);
        match line.ask(&request, &fds, WITHIN, again(ask)).await {
            Ok((Reply::Console { answer }, mut fds)) => {
                answer.unpack_json(&mut fds, MAX_BODY).map_err(|e| {
                    tracing::error!("the store's answer can't be read: {e}");
                    unavailable()
                })
            }
            Ok(_) => Err(unavailable()),
            Err(CallError::Fault(fault)) => Err(fault.into()),
            Err(e) => {
                tracing::warn!("the store did not answer: {e}");
                Err(unavailable())
            }
        }
    }
}

impl Keeper {
    /// Enters an answer, [`Ask::Deliver`], until its moment. Where the store is replaced meanwhile the next one is
    /// asked, since it keeps one message of an id.
    ///
    /// # Errors
    /// [`Missed`].
    pub async fn enter(&self, ask: &Ask, until: Until) -> Result<(), Missed> {
        let unavailable = || ApiError::unavailable(Store::NAME);
        let (body, fd) = Body::pack_json(ask).map_err(|_| Missed::Refused(unavailable()))?;
        let fds: Vec<_> = fd.into_iter().collect();
        let request = Request::Console { ask: body };
        let within = until.left();
        // Where none comes, that is said while somebody waits for it.
        let line = self.store.line(within / 2);
        let (outcome, lost) = line.insist(&request, &fds, within).await;
        let missed = match outcome {
            Ok((Reply::Console { .. }, _)) => return Ok(()),
            Ok(_) => Missed::Unknown(unavailable()),
            // It broke down over the message, before or after it was entered.
            Err(CallError::Fault(fault)) if fault.code == "internal" => {
                Missed::Unknown(fault.into())
            }
            Err(CallError::Fault(fault)) => Missed::Refused(fault.into()),
            Err(e @ (CallError::NotServing(_) | CallError::Link(LinkError::Codec(_)))) => {
                tracing::warn!("the store was not asked for an answer: {e}");
                Missed::Refused(unavailable())
            }
            Err(e) => {
                tracing::warn!("the store did not answer for an answer: {e}");
                Missed::Unknown(unavailable())
            }
        };
        Err(match missed {
            // The one that was gone with it may have entered it.
            Missed::Refused(error) if lost => Missed::Unknown(error),
            missed => missed,
        })
    }
}

/// Why nobody says that an answer was entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missed {
    /// It certainly was not, and will not be.
    Refused(ApiError),
    /// It may have been.
    Unknown(ApiError),
}

/// Asking twice what changes nothing is asking it once.
fn again(ask: &Ask) -> Again {
    match ask {
        Ask::Threads { .. }
        | Ask::ShowThread { .. }
        | Ask::ShowMessage { .. }
        | Ask::Search { .. }
        | Ask::Sessions => Again::Harmless,
        _ => Again::Never,
    }
}
