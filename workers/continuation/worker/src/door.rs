//! A way to another worker, which may be replaced by its successor at any time.

use ipc_proto::{CallError, Client, Edge};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::sync::watch;

/// How long a worker that starts anew is waited for.
const COMES_WITHIN: Duration = Duration::from_secs(10);
/// Between two attempts to ask somebody who is gone.
const AGAIN: Duration = Duration::from_millis(100);

/// A channel, once there is one.
#[derive(Debug)]
pub struct Door<E: Edge>(watch::Sender<Option<Client<E>>>);

impl<E: Edge> Default for Door<E> {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl<E: Edge> Door<E> {
    /// Another channel from now on; the earlier one closes when nobody waits on it.
    pub fn replace(&self, client: Client<E>) {
        self.0.send_replace(Some(client));
    }

    /// Asks once.
    ///
    /// # Errors
    /// [`CallError`], also when no worker comes in time.
    pub async fn ask(
        &self,
        request: &E::Request,
        fds: &[OwnedFd],
        time: Duration,
    ) -> Result<(E::Reply, VecDeque<OwnedFd>), CallError> {
        let client = self.client().await.ok_or(CallError::Gone(E::NAME))?;
        client.call(request, fds, time).await
    }

    /// Asks until there is an answer, a refusal, or the time is over. Only for what may be asked twice.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn insist(
        &self,
        request: &E::Request,
        fds: &[OwnedFd],
        time: Duration,
    ) -> Result<(E::Reply, VecDeque<OwnedFd>), CallError> {
        let until = tokio::time::Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(tokio::time::Instant::now());
            match self.ask(request, fds, left).await {
                Err(CallError::Gone(_) | CallError::Link(_))
                    if until > tokio::time::Instant::now() + AGAIN =>
                {
                    tokio::time::sleep(AGAIN).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn client(&self) -> Option<Client<E>> {
        let mut door = self.0.subscribe();
        let opened = tokio::time::timeout(COMES_WITHIN, door.wait_for(Option::is_some));
        opened.await.ok()?.ok()?.clone()
    }
}
