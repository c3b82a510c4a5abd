//! Requests, streamed replies and events over a [`Link`], for tokio.
//!
//! - a [`Client`] sends requests and matches replies by id; dropping unfinished [`Replies`] cancels;
//! - a [`Server`] hands out [`Call`]s; each knows when it was cancelled;
//! - streams are bounded by credit: the sender holds at most [`WINDOW`] messages that the receiver
//!   has not taken, so a slow reader slows its writer and nobody else.

use crate::edges::events::RunEvent;
use crate::link::{Incoming, Link, LinkError, LinkReceiver, LinkSender, Payload, borrow};
use crate::message::{Edge, Message};
use crate::role::Role;
use crate::table::{Guard, Violation};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, mpsc};

/// Messages of one stream in flight.
pub const WINDOW: u32 = 64;
/// Messages taken until credit is given back.
const GIVE_BACK: u32 = WINDOW / 2;
/// Calls of one channel under way at once; more are refused with the fault `busy`.
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

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while the lock is held can't leave these maps half-changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Item<R> = Result<(R, VecDeque<OwnedFd>), CallError>;

#[derive(Debug)]
struct Pending<R> {
    queue: mpsc::UnboundedSender<Item<R>>,
    /// Messages received and not yet taken by the caller.
    untaken: Arc<AtomicU64>,
}

#[derive(Debug)]
struct ClientState<E: Edge> {
    sender: LinkSender,
    next: AtomicU64,
    pending: Mutex<Option<HashMap<u64, Pending<E::Reply>>>>,
    gone: Notify,
}

/// The requesting end of an edge. Cheap to clone; the channel closes with the last clone.
#[derive(Debug)]
pub struct Client<E: Edge> {
    state: Arc<ClientState<E>>,
    reader: Arc<AbortOnDrop>,
}

impl<E: Edge> Clone for Client<E> {
    fn clone(&self) -> Self {
        Self {
            state: self.state.clone(),
            reader: self.reader.clone(),
        }
    }
}

#[derive(Debug)]
struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<E: Edge> Client<E> {
    /// Takes our end of a pair whose other end is held by `owner`.
    ///
    /// # Errors
    /// When the descriptor can't be registered with the runtime.
    pub fn new(fd: OwnedFd, owner: Role) -> io::Result<Self> {
        let Link { sender, receiver } = Link::new(fd, Guard::serving(owner))?;
        let state = Arc::new(ClientState {
            sender,
            next: AtomicU64::new(1),
            pending: Mutex::new(Some(HashMap::new())),
            gone: Notify::new(),
        });
        let task = tokio::spawn(read_replies(state.clone(), receiver));
        Ok(Self {
            state,
            reader: Arc::new(AbortOnDrop(task.abort_handle())),
        })
    }

    /// Sends a request and returns its replies one by one.
    ///
    /// # Errors
    /// When the owner is gone or the request doesn't fit.
    pub async fn stream(
        &self,
        request: &E::Request,
        fds: &[OwnedFd],
        deadline: Option<Duration>,
    ) -> Result<Replies<E>, CallError> {
        let id = self.state.next.fetch_add(1, Ordering::Relaxed);
        let (queue, replies) = mpsc::unbounded_channel();
        let untaken = Arc::new(AtomicU64::new(0));
        match locked(&self.state.pending).as_mut() {
            Some(pending) => pending.insert(
                id,
                Pending {
                    queue,
                    untaken: untaken.clone(),
                },
            ),
            None => return Err(CallError::Gone(E::NAME)),
        };
        let replies = Replies {
            client: self.clone(),
            id,
            replies,
            untaken,
            owed: 0,
            finished: false,
        };
        let ms = deadline.map_or(0, |d| u32::try_from(d.as_millis()).unwrap_or(u32::MAX));
        match self.state.sender.send(id, ms, request, &borrow(fds)).await {
            Ok(()) => Ok(replies),
            Err(LinkError::Io(_)) => Err(CallError::Gone(E::NAME)),
            Err(other) => Err(other.into()),
        }
    }

    /// Sends a request and waits for its final reply, at most `timeout`; then withdraws it.
    ///
    /// # Errors
    /// [`CallError`]; after `Gone` and `Timeout` nothing is known of the effect.
    pub async fn call(
        &self,
        request: &E::Request,
        fds: &[OwnedFd],
        timeout: Duration,
    ) -> Result<(E::Reply, VecDeque<OwnedFd>), CallError> {
        let answer = async {
            let mut replies = self.stream(request, fds, Some(timeout)).await?;
            loop {
                match replies.next().await {
                    Some(Ok((reply, fds))) if E::is_final(&reply) => return Ok((reply, fds)),
                    Some(Ok(_)) => {}
                    Some(Err(e)) => return Err(e),
                    None => return Err(CallError::Gone(E::NAME)),
                }
            }
        };
        tokio::time::timeout(timeout, answer)
            .await
            .unwrap_or(Err(CallError::Timeout {
                edge: E::NAME,
                ms: timeout.as_millis(),
            }))
    }

    /// Waits until the other end is closed.
    pub async fn closed(&self) {
        loop {
            let notified = self.state.gone.notified();
            if locked(&self.state.pending).is_none() {
                return;
            }
            notified.await;
        }
    }
}

async fn read_replies<E: Edge>(state: Arc<ClientState<E>>, mut receiver: LinkReceiver) {
    let error = loop {
        match receiver.recv::<E::Reply>().await {
            Ok(Some(packet)) => {
                if let Err(violation) = deliver::<E>(&state, packet) {
                    break Some(LinkError::from(violation));
                }
            }
            Ok(None) => break None,
            Err(e) => break Some(e),
        }
    };
    let pending = locked(&state.pending).take();
    let reason = error.map(|e| e.to_string());
    for (_, call) in pending.into_iter().flatten() {
        let _ = call.queue.send(Err(match &reason {
            Some(text) => {
                LinkError::Violation(Violation::new("a reply of the table", text.clone())).into()
            }
            None => CallError::Gone(E::NAME),
        }));
    }
    state.gone.notify_waiters();
}

fn deliver<E: Edge>(state: &ClientState<E>, packet: Incoming<E::Reply>) -> Result<(), Violation> {
    let mut pending = locked(&state.pending);
    let Some(pending) = pending.as_mut() else {
        return Ok(());
    };
    let (item, last) = match packet.payload {
        Payload::Message(reply) => {
            let last = E::is_final(&reply);
            (Ok((reply, packet.fds)), last)
        }
        Payload::Fault(fault) => (Err(fault.into()), true),
        Payload::Cancel | Payload::Credit(_) => {
            return Err(Violation::new("a reply", "a request's packet"));
        }
    };
    // A reply to a call that was withdrawn meanwhile is dropped with its descriptors.
    let Some(call) = pending.get(&packet.id) else {
        return Ok(());
    };
    if !last && call.untaken.fetch_add(1, Ordering::Relaxed) >= u64::from(WINDOW) {
        return Err(Violation::new(
            format!("at most {WINDOW} messages in flight"),
            "more of them",
        ));
    }
    let _ = call.queue.send(item);
    if last {
        pending.remove(&packet.id);
    }
    Ok(())
}

/// The replies to one request, in order; the last is the final one.
#[derive(Debug)]
pub struct Replies<E: Edge> {
    client: Client<E>,
    id: u64,
    replies: mpsc::UnboundedReceiver<Item<E::Reply>>,
    untaken: Arc<AtomicU64>,
    owed: u32,
    finished: bool,
}

impl<E: Edge> Replies<E> {
    /// The next reply; `None` after the final one or an error. Safe to drop while waiting.
    pub async fn next(&mut self) -> Option<Item<E::Reply>> {
        if self.finished {
            return None;
        }
        let item = self
            .replies
            .recv()
            .await
            .unwrap_or(Err(CallError::Gone(E::NAME)));
        match &item {
            Ok((reply, _)) if !E::is_final(reply) => {
                self.untaken.fetch_sub(1, Ordering::Relaxed);
                self.owed += 1;
                if self.owed >= GIVE_BACK {
                    let n = std::mem::take(&mut self.owed);
                    // Sent apart, so that `next` stays safe to drop and never waits on the socket.
                    let sender = self.client.state.sender.clone();
                    let id = self.id;
                    tokio::spawn(async move { sender.credit(id, n).await });
                }
            }
            _ => self.finished = true,
        }
        Some(item)
    }
}

impl<E: Edge> Drop for Replies<E> {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let known = locked(&self.client.state.pending)
            .as_mut()
            .and_then(|p| p.remove(&self.id));
        if known.is_some()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let sender = self.client.state.sender.clone();
            let id = self.id;
            runtime.spawn(async move { sender.cancel(id).await });
        }
    }
}

#[derive(Debug)]
struct Running {
    credit: Semaphore,
    cancelled: Notify,
    over: std::sync::atomic::AtomicBool,
}

impl Running {
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
                (Payload::Cancel, Some(running)) => {
                    locked(&self.calls).remove(&packet.id);
                    running.cancel();
                }
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
            if locked(&self.calls).remove(&self.id).is_none() {
                return Ok(());
            }
            self.running.over.store(true, Ordering::Relaxed);
        } else {
            match self.running.credit.acquire().await {
                Ok(permit) => permit.forget(),
                Err(_cancelled) => return Ok(()),
            }
        }
        self.sender.send(self.id, 0, reply, &borrow(fds)).await
    }

    /// Ends the call with a refusal.
    ///
    /// # Errors
    /// When the requester is gone.
    pub async fn fault(&self, fault: &Fault) -> Result<(), LinkError> {
        if locked(&self.calls).remove(&self.id).is_none() {
            return Ok(());
        }
        self.running.over.store(true, Ordering::Relaxed);
        self.sender.fault(self.id, fault).await
    }
}

impl<E: Edge> Drop for Responder<E> {
    fn drop(&mut self) {
        if locked(&self.calls).remove(&self.id).is_some()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let sender = self.sender.clone();
            let id = self.id;
            runtime.spawn(async move {
                sender
                    .fault(id, &Fault::new("internal", "the request was dropped"))
                    .await
            });
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

/// Kind of a message, for logs.
#[must_use]
pub fn kind_name<M: Message>(message: &M) -> &'static str {
    crate::table::find(message.kind()).map_or("unknown", |row| row.name)
}

#[cfg(test)]
#[path = "channel_tests.rs"]
mod tests;
