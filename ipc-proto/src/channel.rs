//! Requests, streamed replies and events over a [`Link`], for tokio.
//!
//! - a [`Client`] sends requests and matches replies by id; dropping unfinished [`Replies`] cancels
//!   ([`crate::client`]);
//! - a [`Server`] hands out [`Call`]s; each knows when it was cancelled;
//! - streams are bounded by credit: the sender holds at most [`WINDOW`] messages that the receiver
//!   has not taken, so a slow reader slows its writer and nobody else.

use crate::edges::events::RunEvent;
use crate::link::{Incoming, Link, LinkError, LinkReceiver, LinkSender, Payload, borrow};
use crate::message::Edge;
use crate::role::Role;
use crate::table::{Guard, Violation};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};

pub use crate::client::{Client, Replies};

/// Messages of one stream in flight.
pub const WINDOW: u32 = 64;
/// Messages taken until credit is given back.
pub(crate) const GIVE_BACK: u32 = WINDOW / 2;
/// Calls of one channel under way at once; more are refused with the fault `busy`. A call is under
/// way until its answer is on its way and, withdrawn or not, its [`Responder`] is gone: a requester
/// that reads no answers, or withdraws all it asks, gets no more of its owner than this.
pub const MAX_CALLS: usize = 256;

/// The generic refusal of a request: a fixed code and a sentence without secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Fault {
    /// e.g. `forbidden`, `busy`, `unavailable`, `invalid_request`, `internal`.
    pub code: String,
    /// What happened and what to do.
    pub message: String,
}

impl Fault {
    /// A fault of this code.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
        }
    }
}

/// Why a call brought no reply.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// None serves, and none came in time; nobody was asked.
    #[error("the {0} worker is not serving; see `monoctl status`")]
    NotServing(&'static str),
    /// The owner is gone; nothing is known of the request's effect.
    #[error("the {0} worker is gone")]
    Gone(&'static str),
    /// The owner refused.
    #[error("{0}")]
    Fault(#[from] Fault),
    /// No answer in time; the request was withdrawn.
    #[error("the {edge} worker did not answer within {ms} ms")]
    Timeout {
        /// Which edge.
        edge: &'static str,
        /// The bound in milliseconds.
        ms: u128,
    },
    /// The request could not be sent, or the channel broke.
    #[error(transparent)]
    Link(#[from] LinkError),
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while the lock is held can't leave what it guards half-changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Debug)]
struct Running {
    credit: Semaphore,
    cancelled: Notify,
    over: std::sync::atomic::AtomicBool,
}

impl Running {
    /// Ends the call; true for who ended it and so has to answer.
    fn end(&self) -> bool {
        !self.over.swap(true, Ordering::Relaxed)
    }

    fn cancel(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.credit.close();
        self.cancelled.notify_waiters();
    }
}

type Calls = Arc<Mutex<HashMap<u64, Arc<Running>>>>;

/// The owning end of an edge. Must be polled by [`Server::recv`] while calls are served, since
/// credit and withdrawals arrive there.
#[derive(Debug)]
pub struct Server<E: Edge> {
    sender: LinkSender,
    receiver: LinkReceiver,
    calls: Calls,
    edge: std::marker::PhantomData<E>,
}

impl<E: Edge> Server<E> {
    /// Takes our end of a pair whose other end is held by `requester`.
    ///
    /// # Errors
    /// When the descriptor can't be registered with the runtime.
    pub fn new(fd: OwnedFd, requester: Role) -> io::Result<Self> {
        let Link { sender, receiver } = Link::new(fd, Guard::serving(requester))?;
        Ok(Self {
            sender,
            receiver,
            calls: Calls::default(),
            edge: std::marker::PhantomData,
        })
    }

    /// The next request, or `None` when the requester closed its end; every call under way is
    /// cancelled then.
    ///
    /// # Errors
    /// When the requester broke the protocol: drop the server, which closes the channel.
    pub async fn recv(&mut self) -> Result<Option<Call<E>>, LinkError> {
        loop {
            let Some(packet) = self.receiver.recv::<E::Request>().await? else {
                for (_, running) in locked(&self.calls).drain() {
                    running.cancel();
                }
                return Ok(None);
            };
            let known = locked(&self.calls).get(&packet.id).cloned();
            match (packet.payload, known) {
                (Payload::Message(_), Some(_)) => {
                    return Err(Violation::new("a fresh request id", packet.id.to_string()).into());
                }
                (Payload::Message(request), None) => {
                    if locked(&self.calls).len() >= MAX_CALLS {
                        let fault = Fault::new("busy", format!("{MAX_CALLS} calls are under way"));
                        self.sender.fault(packet.id, &fault).await?;
                        continue;
                    }
                    let running = Arc::new(Running {
                        credit: Semaphore::new(WINDOW as usize),
                        cancelled: Notify::new(),
                        over: false.into(),
                    });
                    locked(&self.calls).insert(packet.id, running.clone());
                    let deadline = (packet.deadline_ms > 0)
                        .then(|| Duration::from_millis(u64::from(packet.deadline_ms)));
                    return Ok(Some(Call {
                        request,
                        fds: packet.fds,
                        deadline,
                        responder: Responder {
                            id: packet.id,
                            sender: self.sender.clone(),
                            running,
                            calls: self.calls.clone(),
                            edge: std::marker::PhantomData,
                        },
                    }));
                }
                (Payload::Cancel, Some(running)) => running.cancel(),
                (Payload::Credit(n), Some(running)) => {
                    if n > WINDOW
                        || running.credit.available_permits() + n as usize > WINDOW as usize
                    {
                        return Err(Violation::new(
                            format!("credit up to {WINDOW}"),
                            n.to_string(),
                        )
                        .into());
                    }
                    running.credit.add_permits(n as usize);
                }
                // The call ended while the packet was on its way.
                (Payload::Cancel | Payload::Credit(_), None) => {}
                (Payload::Fault(_), _) => {
                    return Err(Violation::new("a request", "a fault").into());
                }
            }
        }
    }
}

impl<E: Edge> Drop for Server<E> {
    fn drop(&mut self) {
        for (_, running) in locked(&self.calls).drain() {
            running.cancel();
        }
        // Answers that still wait for a place in the requester's queue hold the socket too.
        self.sender.close();
    }
}

/// One request under way.
#[derive(Debug)]
pub struct Call<E: Edge> {
    /// What is asked.
    pub request: E::Request,
    /// The descriptors that came with it.
    pub fds: VecDeque<OwnedFd>,
    /// How long the requester waits.
    pub deadline: Option<Duration>,
    /// Where the answer goes.
    pub responder: Responder<E>,
}

/// Answers one request. Dropped without a final reply, it answers with the fault `internal`.
#[derive(Debug)]
pub struct Responder<E: Edge> {
    id: u64,
    sender: LinkSender,
    running: Arc<Running>,
    calls: Calls,
    edge: std::marker::PhantomData<E>,
}

impl<E: Edge> Responder<E> {
    /// True when the requester withdrew the request or is gone.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.running.over.load(Ordering::Relaxed)
    }

    /// Waits until the requester withdraws the request or is gone.
    pub async fn cancelled(&self) {
        loop {
            let notified = self.running.cancelled.notified();
            if self.is_cancelled() {
                return;
            }
            notified.await;
        }
    }

    /// Sends a reply; a streamed one waits for credit. A reply to a cancelled call is dropped.
    ///
    /// # Errors
    /// When the requester is gone or the reply doesn't fit a packet.
    pub async fn send(&self, reply: &E::Reply, fds: &[OwnedFd]) -> Result<(), LinkError> {
        if E::is_final(reply) {
            if self.running.end() {
                let sent = self.sender.send(self.id, 0, reply, &borrow(fds)).await;
                if let Err(LinkError::Codec(unfit)) = &sent {
                    // The requester would wait for it until its deadline.
                    let fault = Fault::new("internal", unfit.to_string());
                    self.sender.fault(self.id, &fault).await?;
                }
                locked(&self.calls).remove(&self.id);
                return sent;
            }
            return Ok(());
        }
        match self.running.credit.acquire().await {
            Ok(permit) => permit.forget(),
            Err(_cancelled) => return Ok(()),
        }
        self.sender.send(self.id, 0, reply, &borrow(fds)).await
    }

    /// Ends the call with a refusal.
    ///
    /// # Errors
    /// When the requester is gone.
    pub async fn fault(&self, fault: &Fault) -> Result<(), LinkError> {
        if self.running.end() {
            self.sender.fault(self.id, fault).await?;
            locked(&self.calls).remove(&self.id);
        }
        Ok(())
    }
}

impl<E: Edge> Drop for Responder<E> {
    fn drop(&mut self) {
        if self.running.end()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (sender, calls, id) = (self.sender.clone(), self.calls.clone(), self.id);
            runtime.spawn(async move {
                let fault = Fault::new("internal", "the request was dropped");
                // The requester is gone when this fails.
                let _ = sender.fault(id, &fault).await;
                locked(&calls).remove(&id);
            });
        } else {
            locked(&self.calls).remove(&self.id);
        }
    }
}

/// The run's end of its event channel.
#[derive(Debug, Clone)]
pub struct EventSender {
    sender: LinkSender,
    running: Arc<Running>,
    reader: Arc<AbortOnDrop>,
}

impl EventSender {
    /// Takes the run's end; the other end is held by `channel` (or by the admin command, which
    /// speaks with the supervisor's name).
    ///
    /// # Errors
    /// When the descriptor can't be registered with the runtime.
    pub fn new(fd: OwnedFd, channel: Role) -> io::Result<Self> {
        let Link {
            sender,
            mut receiver,
        } = Link::new(fd, Guard::serving(channel))?;
        let running = Arc::new(Running {
            credit: Semaphore::new(WINDOW as usize),
            cancelled: Notify::new(),
            over: false.into(),
        });
        let shared = running.clone();
        let task = tokio::spawn(async move {
            // Only credit comes this way; anything else, and the end, closes the stream.
            while let Ok(Some(Incoming {
                payload: Payload::Credit(n),
                ..
            })) = receiver.recv::<RunEvent>().await
            {
                if n > WINDOW || shared.credit.available_permits() + n as usize > WINDOW as usize {
                    break;
                }
                shared.credit.add_permits(n as usize);
            }
            shared.cancel();
        });
        Ok(Self {
            sender,
            running,
            reader: Arc::new(AbortOnDrop(task.abort_handle())),
        })
    }

    /// Sends one event, waiting for credit. False when the reader is gone.
    pub async fn send(&self, event: &RunEvent, fds: &[OwnedFd]) -> bool {
        match self.running.credit.acquire().await {
            Ok(permit) => permit.forget(),
            Err(_closed) => return false,
        }
        self.sender.send(0, 0, event, &borrow(fds)).await.is_ok()
    }

    /// Waits until the reader closed its end.
    pub async fn closed(&self) {
        loop {
            let notified = self.running.cancelled.notified();
            if self.running.over.load(Ordering::Relaxed) || self.reader.0.is_finished() {
                return;
            }
            notified.await;
        }
    }
}

/// A channel's end of a run's event channel. Dropping it ends the run as cancelled.
#[derive(Debug)]
pub struct EventReceiver {
    sender: LinkSender,
    receiver: LinkReceiver,
    owed: u32,
}

impl EventReceiver {
    /// Takes the channel's end.
    ///
    /// # Errors
    /// When the descriptor can't be registered with the runtime.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let Link { sender, receiver } = Link::new(fd, Guard::serving(Role::Run))?;
        Ok(Self {
            sender,
            receiver,
            owed: 0,
        })
    }

    /// The next event, or `None` when the run's process is gone without a final event.
    ///
    /// # Errors
    /// When the run broke the protocol.
    pub async fn next(&mut self) -> Result<Option<(RunEvent, VecDeque<OwnedFd>)>, LinkError> {
        if self.owed >= GIVE_BACK {
            let n = std::mem::take(&mut self.owed);
            // The run may be gone already; what it sent before is still to be read.
            let _ = self.sender.credit(0, n).await;
        }
        match self.receiver.recv::<RunEvent>().await? {
            Some(Incoming {
                payload: Payload::Message(event),
                fds,
                ..
            }) => {
                self.owed += 1;
                Ok(Some((event, fds)))
            }
            Some(_) => Err(Violation::new("an event", "a request's packet").into()),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
#[path = "channel_tests.rs"]
mod tests;
