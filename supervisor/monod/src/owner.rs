//! The supervisor's own channel to an owner, over the owner's lives: who asks while one is being
//! replaced waits for the next, within a bound.

use crate::input::ProcessId;
use crate::slot::Occupant;
use crate::supervisor::Supervisor;
use ipc_proto::channel::Fault;
use ipc_proto::edges::app_bridge::AppBridge;
use ipc_proto::edges::artifact::Artifact;
use ipc_proto::edges::continuation::Continuation;
use ipc_proto::edges::control::EdgeName;
use ipc_proto::edges::store::Store;
use ipc_proto::{CallError, Client, Edge, Role};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// How long somebody who asks waits for an owner that is being replaced.
const REPLACED_WITHIN: Duration = Duration::from_secs(5);
/// How long an owner may take for an answer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);

/// The place of an owner: filled while one serves.
#[derive(Debug)]
pub(crate) struct Owner<E: Edge>(watch::Sender<Option<Client<E>>>);

impl<E: Edge> Default for Owner<E> {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl<E: Edge> Owner<E> {
    /// Another one serves from now on, or none.
    pub(crate) fn set(&self, client: Option<Client<E>>) {
        self.0.send_replace(client);
    }

    /// Who serves now.
    pub(crate) fn now(&self) -> Option<Client<E>> {
        self.0.borrow().clone()
    }

    /// A way to whoever serves, also to one that comes. `expected` is false when none will: then
    /// nobody waits for it.
    pub(crate) fn line(&self, expected: bool) -> Line<E> {
        Line {
            owner: self.0.subscribe(),
            patience: if expected {
                REPLACED_WITHIN
            } else {
                Duration::ZERO
            },
        }
    }
}

/// Whether a request may be made a second time when nobody knows what became of the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// It changes nothing.
    Harmless,
    /// It may have been done.
    Never,
}

/// One request's way to an owner.
#[derive(Debug)]
pub(crate) struct Line<E: Edge> {
    owner: watch::Receiver<Option<Client<E>>>,
    patience: Duration,
}

impl<E: Edge> Line<E> {
    /// Asks whoever serves. While none does, and, if the request changes nothing, when the owner ends
    /// before it answers, the next one is asked.
    ///
    /// # Errors
    /// The owner's own refusal; `worker_unavailable` when none serves in time or it doesn't answer.
    pub(crate) async fn ask(
        mut self,
        request: &E::Request,
        again: Again,
    ) -> Result<(E::Reply, VecDeque<OwnedFd>), Fault> {
        let unavailable = |words: String| Fault::new("worker_unavailable", words);
        let until = Instant::now() + self.patience;
        loop {
            let serving = timeout_at(until, self.owner.wait_for(Option::is_some)).await;
            let client = serving.ok().and_then(|client| client.ok()?.clone());
            let Some(client) = client else {
                let name = E::NAME;
                return Err(unavailable(format!(
                    "the {name} worker is not serving; see `monoctl status`"
                )));
            };
            match client.call(request, &[], ANSWERED_WITHIN).await {
                Ok(answer) => return Ok(answer),
                Err(CallError::Fault(fault)) => return Err(fault),
                Err(gone @ CallError::Gone(_)) => {
                    // Its place is taken or emptied as soon as the supervisor hears of its end.
                    let again = again == Again::Harmless;
                    if !(again
                        && matches!(timeout_at(until, self.owner.changed()).await, Ok(Ok(()))))
                    {
                        return Err(unavailable(gone.to_string()));
                    }
                }
                Err(other) => return Err(unavailable(other.to_string())),
            }
        }
    }
}

/// The owners that the supervisor itself asks.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    pub(crate) store: Owner<Store>,
    pub(crate) artifact: Owner<Artifact>,
    pub(crate) bridge: Owner<AppBridge>,
    pub(crate) continuation: Owner<Continuation>,
}

impl Supervisor {
    /// A worker serves from now on: if its role is one that the supervisor asks, it gets a channel to
    /// it.
    pub(crate) fn reach(&mut self, role: Role, id: ProcessId) {
        match role {
            Role::Store => {
                let client = self.grant_client(id, EdgeName::Store, role);
                self.owners.store.set(client);
            }
            Role::Artifact => {
                let client = self.grant_client(id, EdgeName::Artifact, role);
                self.owners.artifact.set(client);
            }
            Role::AppBridge => {
                let client = self.grant_client(id, EdgeName::AppBridge, role);
                self.owners.bridge.set(client);
            }
            Role::Continuation => {
                let client = self.grant_client(id, EdgeName::Continuation, role);
                self.owners.continuation.set(client);
            }
            _ => {}
        }
    }

    /// Closes the supervisor's channel to the worker of a role, which it has no use for any more.
    pub(crate) fn part_from(&self, role: Role) {
        match role {
            Role::Store => self.owners.store.set(None),
            Role::Artifact => self.owners.artifact.set(None),
            Role::AppBridge => self.owners.bridge.set(None),
            Role::Continuation => self.owners.continuation.set(None),
            _ => {}
        }
    }

    /// A request's way to an owner, who may be about to start.
    pub(crate) fn line_to<E: Edge>(&self, owner: &Owner<E>, role: Role) -> Line<E> {
        let coming = |occupant: &Occupant| *occupant != Occupant::Parked;
        let mut slots = self.slots.iter().filter(|slot| slot.role == role);
        owner.line(slots.any(|slot| coming(&slot.occupant) && !slot.is_draining()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ipc_proto::edges::store::{Reply, Request};
    use ipc_proto::{Body, Server};

    /// A store that answers so many requests, and then ends at the next.
    fn store(answers: usize) -> Client<Store> {
        let (ours, theirs) = ipc_proto::link::pair().unwrap();
        tokio::spawn(async move {
            let mut server = Server::<Store>::new(theirs, Role::Monod).unwrap();
            for _ in 0..answers {
                let call = server.recv().await.unwrap().unwrap();
                let page = Body::Inline(b"{}".to_vec());
                call.responder
                    .send(&Reply::Runs { page }, &[])
                    .await
                    .unwrap();
            }
            drop(server.recv().await);
        });
        Client::new(ours, Role::Store).unwrap()
    }

    fn list() -> Request {
        Request::ListRuns {
            conversation: None,
            status: None,
            limit: 1,
            cursor: None,
        }
    }

    #[tokio::test]
    async fn who_asks_while_an_owner_is_replaced_is_answered_by_the_next() {
        let owner = Owner::<Store>::default();
        let early = owner.line(true);
        let early = tokio::spawn(async move { early.ask(&list(), Again::Never).await });
        tokio::task::yield_now().await;
        owner.set(Some(store(1)));
        assert!(early.await.unwrap().is_ok());

        // This one ends with the request in its hands.
        let line = owner.line(true);
        let asking = tokio::spawn(async move { line.ask(&list(), Again::Harmless).await });
        tokio::task::yield_now().await;
        owner.set(None);
        owner.set(Some(store(1)));
        assert!(asking.await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn nothing_is_done_twice_and_nobody_waits_for_an_owner_that_does_not_come() {
        let owner = Owner::<Store>::default();
        let code = |result: Result<_, Fault>| result.map(|_: (Reply, _)| ()).unwrap_err().code;
        let refused = owner.line(false).ask(&list(), Again::Harmless).await;
        assert_eq!(code(refused), "worker_unavailable");
        owner.set(Some(store(0)));
        let (line, next) = (owner.line(true), store(1));
        let asking = tokio::spawn(async move { line.ask(&list(), Again::Never).await });
        tokio::task::yield_now().await;
        owner.set(Some(next));
        assert_eq!(code(asking.await.unwrap()), "worker_unavailable");
    }
}
