//! The requesting end of an edge: many calls over one channel, matched by id.
//!
//! No task of its own reads the channel. Whoever waits for a reply reads, and puts what belongs to
//! others into their queues; so a caller that is alone gets its reply without a detour through
//! another task. The socket wakes the one who polled last. When that one stops waiting, for
//! whatever reason, it wakes another to take its place: no reply is left in the socket while
//! somebody waits for it.

use crate::channel::{CallError, GIVE_BACK, WINDOW, locked};
use crate::link::{Incoming, Link, LinkError, LinkReceiver, LinkSender, Payload, borrow};
use crate::message::Edge;
use crate::role::Role;
use crate::table::{Guard, Violation};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::task::JoinHandle;

type Item<R> = Result<(R, VecDeque<OwnedFd>), CallError>;

/// Somebody who waits on the channel: a call, or one who waits for its end.
#[derive(Debug)]
struct Waiting<R> {
    id: u64,
    /// Takes replies: false after the final one, and for who only waits for the end.
    open: bool,
    queue: VecDeque<Item<R>>,
    /// Messages received that the caller has not taken.
    untaken: u32,
    /// Set while it waits and was not woken.
    waker: Option<Waker>,
}

/// How a channel ended: the violation that ended it, if the owner didn't just close it.
#[derive(Debug)]
struct Ended(Option<String>);

impl Ended {
    fn error<E: Edge>(&self) -> CallError {
        match &self.0 {
            Some(text) => {
                LinkError::Violation(Violation::new("a reply of the table", text.clone())).into()
            }
            None => CallError::Gone(E::NAME),
        }
    }
}

#[derive(Debug)]
struct Inbound<E: Edge> {
    receiver: LinkReceiver,
    /// Few, so a list; in no order.
    waiting: Vec<Waiting<E::Reply>>,
    /// Whom the socket wakes: the last who polled it. Absent from when that one left until another
    /// polls; of those who wait, one was woken to do so.
    reader: Option<u64>,
    ended: Option<Ended>,
}

impl<E: Edge> Inbound<E> {
    fn enter(&mut self, id: u64, open: bool) {
        self.waiting.push(Waiting {
            id,
            open,
            queue: VecDeque::new(),
            untaken: 0,
            waker: None,
        });
    }

    fn find(&mut self, id: u64) -> Option<&mut Waiting<E::Reply>> {
        self.waiting.iter_mut().find(|w| w.id == id)
    }

    /// Takes it out; true when a final reply had not come yet.
    fn leave(&mut self, id: u64) -> bool {
        let at = self.waiting.iter().position(|w| w.id == id);
        at.is_some_and(|at| self.waiting.swap_remove(at).open)
    }

    /// What came for `id`, reading for everybody while there is nothing.
    fn poll(&mut self, id: u64, cx: &mut Context<'_>, at_once: bool) -> Poll<Item<E::Reply>> {
        loop {
            let Some(own) = self.find(id) else {
                return Poll::Ready(Err(CallError::Gone(E::NAME)));
            };
            own.waker = None;
            if let Some(item) = own.queue.pop_front() {
                return Poll::Ready(item);
            }
            if let Some(ended) = &self.ended {
                return Poll::Ready(Err(ended.error::<E>()));
            }
            // Even one that finds a packet at once may have taken the place of who was to be woken.
            self.reader = Some(id);
            match self.receiver.poll_recv(cx, at_once) {
                Poll::Ready(received) => self.take(received),
                Poll::Pending => {
                    if let Some(own) = self.find(id) {
                        own.waker = Some(cx.waker().clone());
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    fn take(&mut self, received: Result<Option<Incoming<E::Reply>>, LinkError>) {
        let end = match received {
            Ok(Some(packet)) => match self.deliver(packet) {
                Ok(()) => return,
                Err(violation) => Ended(Some(violation.to_string())),
            },
            Ok(None) => Ended(None),
            Err(e) => Ended(Some(e.to_string())),
        };
        self.ended = Some(end);
        for waiting in &mut self.waiting {
            if let Some(waker) = waiting.waker.take() {
                waker.wake();
            }
        }
    }

    fn deliver(&mut self, packet: Incoming<E::Reply>) -> Result<(), Violation> {
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
        let Some(call) = self.find(packet.id).filter(|call| call.open) else {
            return Ok(());
        };
        if last {
            call.open = false;
        } else if call.untaken < WINDOW {
            call.untaken += 1;
        } else {
            return Err(Violation::new(
                format!("at most {WINDOW} messages in flight"),
                "more of them",
            ));
        }
        call.queue.push_back(item);
        if let Some(waker) = call.waker.take() {
            waker.wake();
        }
        Ok(())
    }
}

#[derive(Debug)]
struct State<E: Edge> {
    sender: LinkSender,
    next: AtomicU64,
    inbound: Mutex<Inbound<E>>,
}

/// One wait. Dropped, it leaves reading to another who waits.
struct Turn<'a, E: Edge> {
    state: &'a State<E>,
    id: u64,
}

impl<E: Edge> Turn<'_, E> {
    fn poll(&self, cx: &mut Context<'_>, at_once: bool) -> Poll<Item<E::Reply>> {
        // A loop of calls that never wait must let the other tasks of its thread run, too.
        let budget = ready!(tokio::task::coop::poll_proceed(cx));
        let item = locked(&self.state.inbound).poll(self.id, cx, at_once);
        if item.is_ready() {
            budget.made_progress();
        }
        item
    }
}

impl<E: Edge> Drop for Turn<'_, E> {
    fn drop(&mut self) {
        let mut inbound = locked(&self.state.inbound);
        // It may have a call still, and nobody who would read when woken.
        if let Some(own) = inbound.find(self.id) {
            own.waker = None;
        }
        // Without a reader, this one may be who was woken to be it.
        if inbound.reader.is_none_or(|reader| reader == self.id) {
            inbound.reader = None;
            if let Some(waker) = inbound.waiting.iter_mut().find_map(|w| w.waker.take()) {
                waker.wake();
            }
        }
    }
}

/// The requesting end of an edge. Cheap to clone; the channel closes with the last clone.
#[derive(Debug)]
pub struct Client<E: Edge>(Arc<State<E>>);

impl<E: Edge> Clone for Client<E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<E: Edge> Client<E> {
    /// Takes our end of a pair whose other end is held by `owner`.
    ///
    /// # Errors
    /// When the descriptor can't be registered with the runtime.
    pub fn new(fd: OwnedFd, owner: Role) -> io::Result<Self> {
        let Link { sender, receiver } = Link::new(fd, Guard::serving(owner))?;
        Ok(Self(Arc::new(State {
            sender,
            next: AtomicU64::new(1),
            inbound: Mutex::new(Inbound {
                receiver,
                waiting: Vec::new(),
                reader: None,
                ended: None,
            }),
        })))
    }

    fn enter(&self, open: bool) -> u64 {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        locked(&self.0.inbound).enter(id, open);
        id
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
        if locked(&self.0.inbound).ended.is_some() {
            return Err(CallError::Gone(E::NAME));
        }
        let replies = Replies {
            client: self.clone(),
            id: self.enter(true),
            owed: 0,
            giving: None,
            fresh: true,
            finished: false,
        };
        let ms = deadline.map_or(0, |d| u32::try_from(d.as_millis()).unwrap_or(u32::MAX));
        let fds = borrow(fds);
        match self.0.sender.send(replies.id, ms, request, &fds).await {
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
        struct Entered<'a, E: Edge>(Turn<'a, E>);
        impl<E: Edge> Drop for Entered<'_, E> {
            fn drop(&mut self) {
                locked(&self.0.state.inbound).leave(self.0.id);
            }
        }
        let entered = Entered(Turn {
            state: &self.0,
            id: self.enter(false),
        });
        // Takes no replies, so the only thing that comes is the end.
        let _ = poll_fn(|cx| entered.0.poll(cx, false)).await;
    }
}

/// The replies to one request, in order; the last is the final one.
#[derive(Debug)]
pub struct Replies<E: Edge> {
    client: Client<E>,
    id: u64,
    /// Messages taken for which no credit was given back yet.
    owed: u32,
    /// The credit that is being given back.
    giving: Option<JoinHandle<()>>,
    /// Nothing was waited for yet.
    fresh: bool,
    finished: bool,
}

impl<E: Edge> Replies<E> {
    /// The next reply; `None` after the final one or an error. Safe to drop while waiting.
    pub async fn next(&mut self) -> Option<Item<E::Reply>> {
        if self.finished {
            return None;
        }
        let state = &self.client.0;
        let turn = Turn { state, id: self.id };
        // On one processor the owner runs while the request is being sent, and its answer is often
        // there before anybody could wait for it; then no poller of the kernel is troubled.
        let fresh = &mut self.fresh;
        let item = poll_fn(|cx| turn.poll(cx, std::mem::take(fresh))).await;
        drop(turn);
        match &item {
            Ok((reply, _)) if !E::is_final(reply) => {
                if let Some(call) = locked(&state.inbound).find(self.id) {
                    call.untaken = call.untaken.saturating_sub(1);
                }
                self.owed += 1;
                // One at a time: an owner that sends and never reads must not make them pile up. What
                // is owed meanwhile goes with the next.
                let given = self.giving.as_ref().is_none_or(JoinHandle::is_finished);
                if given && self.owed >= GIVE_BACK {
                    let n = std::mem::take(&mut self.owed);
                    // Sent apart, so that `next` stays safe to drop and never waits on the socket.
                    let sender = state.sender.clone();
                    let id = self.id;
                    self.giving = Some(tokio::spawn(async move {
                        // The owner is gone when this fails; the next reply says so.
                        let _ = sender.credit(id, n).await;
                    }));
                }
            }
            _ => {
                locked(&state.inbound).leave(self.id);
                self.finished = true;
            }
        }
        Some(item)
    }
}

impl<E: Edge> Drop for Replies<E> {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let open = locked(&self.client.0.inbound).leave(self.id);
        if open && let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let sender = self.client.0.sender.clone();
            let id = self.id;
            runtime.spawn(async move { sender.cancel(id).await });
        }
    }
}
