//! A way to a worker that its successor may replace at any time. Who asks meanwhile waits for the next
//! one, within a bound.

use crate::channel::{CallError, Client};
use crate::link::LinkError;
use crate::message::Edge;
use crate::role::Role;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// The place of a worker that is asked: filled while one serves.
#[derive(Debug)]
pub struct Door<E: Edge>(watch::Sender<Option<Client<E>>>);

impl<E: Edge> Default for Door<E> {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl<E: Edge> Door<E> {
    /// Takes our end of a pair whose other end `owner` holds: that one is asked from now on.
    ///
    /// # Errors
    /// When the descriptor can't be registered with the runtime.
    pub fn open(&self, fd: OwnedFd, owner: Role) -> io::Result<()> {
        self.set(Some(Client::new(fd, owner)?));
        Ok(())
    }

    /// Another one serves from now on, or none. The earlier channel closes when nobody waits on it.
    pub fn set(&self, client: Option<Client<E>>) {
        self.0.send_replace(client);
    }

    /// Who serves now.
    #[must_use]
    pub fn now(&self) -> Option<Client<E>> {
        self.0.borrow().clone()
    }

    /// A way to whoever serves, also to one that comes within `patience`.
    #[must_use]
    pub fn line(&self, patience: Duration) -> Line<E> {
        Line {
            door: self.0.subscribe(),
            patience,
        }
    }
}

/// What came of a request.
pub type Outcome<E> = Result<(<E as Edge>::Reply, VecDeque<OwnedFd>), CallError>;

/// Whether a request may be made a second time when nobody knows what became of the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// It changes nothing, or the second time nothing more.
    Harmless,
    /// It may have been done.
    Never,
}

/// One request's way.
#[derive(Debug)]
pub struct Line<E: Edge> {
    door: watch::Receiver<Option<Client<E>>>,
    patience: Duration,
}

impl<E: Edge> Line<E> {
    /// Who serves, or is there in time.
    ///
    /// # Errors
    /// [`CallError::NotServing`].
    pub async fn client(&mut self) -> Result<Client<E>, CallError> {
        let there = timeout(self.patience, self.door.wait_for(Option::is_some)).await;
        let client = there.ok().and_then(|client| client.ok()?.clone());
        client.ok_or(CallError::NotServing(E::NAME))
    }

    /// Asks whoever serves; all of it takes `within` at most. If the request may be repeated, the next
    /// one is asked where the first is gone before it answers.
    ///
    /// # Errors
    /// [`CallError`]. After `NotServing` nobody was asked.
    pub async fn ask(
        self,
        request: &E::Request,
        fds: &[OwnedFd],
        within: Duration,
        again: Again,
    ) -> Outcome<E> {
        let mut lost = None;
        self.put(request, fds, within, again, &mut lost).await
    }

    /// As [`Line::ask`] with [`Again::Harmless`]. Says beside the outcome whether an owner was gone with the
    /// request before: what its successor refuses may have been done by it.
    pub async fn insist(
        self,
        request: &E::Request,
        fds: &[OwnedFd],
        within: Duration,
    ) -> (Outcome<E>, bool) {
        let mut lost = None;
        let again = Again::Harmless;
        let outcome = self.put(request, fds, within, again, &mut lost).await;
        (outcome, lost.is_some())
    }

    async fn put(
        mut self,
        request: &E::Request,
        fds: &[OwnedFd],
        within: Duration,
        again: Again,
        lost: &mut Option<CallError>,
    ) -> Outcome<E> {
        let over = Instant::now() + within;
        let left = || over.saturating_duration_since(Instant::now());
        loop {
            self.patience = self.patience.min(left());
            let client = match self.client().await {
                Ok(client) => client,
                Err(nobody) => return Err(lost.take().unwrap_or(nobody)),
            };
            let gone = match client.call(request, fds, left()).await {
                Err(e @ (CallError::Gone(_) | CallError::Link(LinkError::Violation(_)))) => e,
                outcome => return outcome,
            };
            if again == Again::Never {
                return Err(gone);
            }
            // The place is taken or emptied as soon as its holder hears of the end.
            self.patience = self.patience.min(left());
            match timeout(self.patience, self.door.changed()).await {
                Ok(Ok(())) => *lost = Some(gone),
                _ => return Err(gone),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::edges::store::{Reply, Request, Store};
    use crate::{Body, Server};

    const LONG: Duration = Duration::from_secs(60);

    /// A store that answers so many requests, and is gone at the next.
    fn store(answers: usize) -> OwnedFd {
        let (ours, theirs) = crate::link::pair().unwrap();
        tokio::spawn(async move {
            let mut server = Server::<Store>::new(theirs, Role::Monod).unwrap();
            for _ in 0..answers {
                let call = server.recv().await.unwrap().unwrap();
                let page = Body::Inline(b"{}".to_vec());
                let answer = Reply::Runs { page };
                call.responder.send(&answer, &[]).await.unwrap();
            }
            drop(server.recv().await);
        });
        ours
    }

    fn open(door: &Door<Store>, answers: usize) {
        door.open(store(answers), Role::Store).unwrap();
    }

    async fn ask(line: Line<Store>, again: Again) -> Result<Reply, CallError> {
        let list = Request::ListRuns {
            conversation: None,
            status: None,
            limit: 1,
            cursor: None,
        };
        Ok(line.ask(&list, &[], LONG, again).await?.0)
    }

    #[tokio::test]
    async fn who_asks_while_an_owner_is_replaced_is_answered_by_the_next() {
        let door = Door::default();
        let early = tokio::spawn(ask(door.line(LONG), Again::Never));
        tokio::task::yield_now().await;
        open(&door, 1);
        assert!(early.await.unwrap().is_ok());

        // This one ends with the request in its hands.
        let asking = tokio::spawn(ask(door.line(LONG), Again::Harmless));
        tokio::task::yield_now().await;
        door.set(None);
        open(&door, 1);
        assert!(asking.await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn nothing_is_done_twice_and_nobody_waits_for_an_owner_that_does_not_come() {
        let door = Door::default();
        let refused = ask(door.line(Duration::ZERO), Again::Harmless).await;
        assert!(matches!(refused, Err(CallError::NotServing("store"))));

        open(&door, 0);
        let (line, next) = (door.line(LONG), store(1));
        let asking = tokio::spawn(ask(line, Again::Never));
        tokio::task::yield_now().await;
        door.open(next, Role::Store).unwrap();
        let asked = asking.await.unwrap();
        assert!(matches!(asked, Err(CallError::Gone("store"))), "{asked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_asked_in_vain_is_not_said_to_have_been_absent() {
        let door = Door::default();
        open(&door, 0);
        let asking = tokio::spawn(ask(door.line(Duration::from_secs(5)), Again::Harmless));
        tokio::task::yield_now().await;
        door.set(None);
        let asked = asking.await.unwrap();
        assert!(matches!(asked, Err(CallError::Gone("store"))), "{asked:?}");
        assert!(door.now().is_none());
    }

    #[tokio::test]
    async fn a_successor_that_refuses_is_known_to_be_one() {
        let list = Request::ListRuns {
            conversation: None,
            status: None,
            limit: 1,
            cursor: None,
        };
        let door = Door::default();
        open(&door, 1);
        let (answer, lost) = door.line(LONG).insist(&list, &[], LONG).await;
        assert!(answer.is_ok() && !lost);

        // This one ends with the request in its hands, and the next says no.
        let (line, (ours, theirs)) = (door.line(LONG), crate::link::pair().unwrap());
        let insisting = tokio::spawn(async move { line.insist(&list, &[], LONG).await });
        tokio::task::yield_now().await;
        door.open(ours, Role::Store).unwrap();
        let mut server = Server::<Store>::new(theirs, Role::Monod).unwrap();
        let call = server.recv().await.unwrap().unwrap();
        let fault = crate::channel::Fault::new("disk_full", "m");
        call.responder.fault(&fault).await.unwrap();
        let (answer, lost) = insisting.await.unwrap();
        let refused = matches!(answer, Err(CallError::Fault(fault)) if fault.code == "disk_full");
        assert!(refused && lost);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_and_asking_end_together() {
        let door = Door::<Store>::default();
        let begun = Instant::now();
        let refused = ask(door.line(2 * LONG), Again::Harmless).await;
        assert!(matches!(refused, Err(CallError::NotServing(_))));
        assert_eq!(begun.elapsed().as_secs(), LONG.as_secs());
    }
}
