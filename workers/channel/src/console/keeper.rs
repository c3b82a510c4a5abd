//! The ways to the owners: the store, the artifact worker and the app-bridge, each of which may be replaced.

use super::error::ApiError;
use ipc_proto::channel::CallError;
use ipc_proto::console::{Ask, MAX_BODY};
use ipc_proto::edges::app_bridge::AppBridge;
use ipc_proto::edges::artifact::Artifact;
use ipc_proto::edges::store::{Reply, Request, Store};
use ipc_proto::{Body, Client, Edge};
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::sync::watch;

/// How long an owner that starts anew is waited for.
const COMES_WITHIN: Duration = Duration::from_secs(10);
/// How long the store may take.
const WITHIN: Duration = Duration::from_secs(20);

/// A channel to an owner, once there is one.
#[derive(Debug)]
pub struct Door<E: Edge>(watch::Sender<Option<Client<E>>>);

impl<E: Edge> Default for Door<E> {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl<E: Edge> Door<E> {
    /// A new owner, or a new channel to the same; the earlier channel closes.
    pub fn replace(&self, client: Client<E>) {
        self.0.send_replace(Some(client));
    }

    /// The channel; waits a while for one.
    ///
    /// # Errors
    /// 503.
    pub async fn client(&self) -> Result<Client<E>, ApiError> {
        Ok(self.watched().await?.0)
    }

    /// The channel, and what tells of the next one.
    async fn watched(&self) -> Result<(Client<E>, watch::Receiver<Option<Client<E>>>), ApiError> {
        let mut door = self.0.subscribe();
        let opened = tokio::time::timeout(COMES_WITHIN, door.wait_for(Option::is_some));
        let client = match opened.await {
            Ok(Ok(client)) => client.clone(),
            _ => None,
        };
        let client = client.ok_or_else(|| ApiError::unavailable(E::NAME))?;
        Ok((client, door))
    }
}

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

impl Keeper {
    /// Asks the store. What is only read is asked again when the store was replaced meanwhile.
    ///
    /// # Errors
    /// Its refusal, or 503.
    pub async fn ask<T: DeserializeOwned>(&self, ask: &Ask) -> Result<T, ApiError> {
        let (client, mut next) = self.store.watched().await?;
        match self.asked(client, ask).await {
            Err(Unanswered::Broken) if is_reading(ask) => {
                // In vain when none comes: then the channel is as broken as it was.
                let _ = tokio::time::timeout(COMES_WITHIN, next.changed()).await;
                let client = self.store.client().await?;
                self.asked(client, ask).await.map_err(Into::into)
            }
            answer => answer.map_err(Into::into),
        }
    }

    async fn asked<T: DeserializeOwned>(
        &self,
        client: Client<Store>,
        ask: &Ask,
    ) -> Result<T, Unanswered> {
        let unavailable = || ApiError::unavailable(Store::NAME);
        let (body, fd) = Body::pack_json(ask).map_err(|_| unavailable())?;
        let fds: Vec<_> = fd.into_iter().collect();
        let request = Request::Console { ask: body };
        match client.call(&request, &fds, WITHIN).await {
            Ok((Reply::Console { answer }, mut fds)) => {
                let answer = answer.unpack_json(&mut fds, MAX_BODY);
                Ok(answer.map_err(|e| {
                    tracing::error!("the store's answer can't be read: {e}");
                    unavailable()
                })?)
            }
            Ok(_) => Err(unavailable().into()),
            Err(CallError::Fault(fault)) => Err(ApiError::from(fault).into()),
            Err(e) => {
                tracing::warn!("the store did not answer: {e}");
                Err(Unanswered::Broken)
            }
        }
    }
}

/// Why there is no answer.
enum Unanswered {
    /// A refusal.
    Refused(ApiError),
    /// The channel broke, or the store took too long.
    Broken,
}

impl From<ApiError> for Unanswered {
    fn from(error: ApiError) -> Self {
        Self::Refused(error)
    }
}

impl From<Unanswered> for ApiError {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Refused(error) => error,
            Unanswered::Broken => Self::unavailable(Store::NAME),
        }
    }
}

/// True for what changes nothing: asking it twice is asking it once.
fn is_reading(ask: &Ask) -> bool {
    matches!(
        ask,
        Ask::Threads { .. }
            | Ask::ShowThread { .. }
            | Ask::ShowMessage { .. }
            | Ask::Search { .. }
            | Ask::Sessions
    )
}
