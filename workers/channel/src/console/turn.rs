//! One turn of a thread: who asked, and the answer as far as it goes.

use super::input::NewTurn;
use super::live::{Live, Numbered};
use ipc_proto::console::{Author, Message, Standing};
use ipc_proto::reply::ReplyPart;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{Mutex as AsyncMutex, watch};
use uuid::Uuid;

/// Milliseconds since 1970.
#[must_use]
pub fn now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// One turn that waits or is answered.
#[derive(Debug)]
pub struct Turn {
    pub(super) thread: String,
    pub(super) user: String,
    pub(super) reply: String,
    pub(super) branch: u32,
    live: Mutex<Live>,
    changed: watch::Sender<u64>,
    pub(super) stop: watch::Sender<bool>,
    /// What was sent, until its run is told.
    sent: Mutex<Option<NewTurn>>,
    /// True when its end is being kept: no word of an earlier state may come after it.
    pub(super) settling: AsyncMutex<bool>,
}

impl Turn {
    /// One that is not answered yet.
    pub(super) fn new(
        thread: String,
        user: &Message,
        reply: Message,
        branch: u32,
        sent: NewTurn,
    ) -> Self {
        Self {
            thread,
            user: user.id.clone(),
            reply: reply.id.clone(),
            branch,
            live: Mutex::new(Live::new(reply)),
            changed: watch::Sender::new(0),
            stop: watch::Sender::new(false),
            sent: Mutex::new(Some(sent)),
            settling: AsyncMutex::new(false),
        }
    }

    /// What was sent; once. Who watches the turn has it for longer than its files may be.
    pub(super) fn take_sent(&self) -> Option<NewTurn> {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.take()
    }

    pub(super) fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Live)) {
        let last = {
            let mut live = self.live();
            change(&mut live);
            live.last()
        };
        self.changed.send_replace(last);
    }

    /// Tells of new frames.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Frames after a number, and whether there will be more after them.
    #[must_use]
    pub fn since(&self, after: u64, most: usize) -> (Vec<Numbered>, bool) {
        let live = self.live();
        let frames = live.since(after, most);
        let told = frames.iter().rev().find_map(|frame| frame.number);
        let goes_on = !live.is_over() || told.unwrap_or(after) < live.last();
        (frames, goes_on)
    }

    /// Where the answer stands.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.live().message().status
    }

    /// An app of the answer so far, with the run that brought it.
    #[must_use]
    pub fn app(&self, id: &str) -> Option<(String, ReplyPart)> {
        let live = self.live();
        let run = live.message().run_id.clone()?;
        Some((run, live.find_app(id)?.clone()))
    }

    /// The whole answer, once it has ended.
    #[must_use]
    pub fn ended(&self) -> Option<Message> {
        let live = self.live();
        (!live.message().status.is_open()).then(|| live.message().clone())
    }
}

/// A message that nobody has stored yet.
pub(super) fn message(role: Author, text: String, status: Standing) -> Message {
    Message {
        id: Uuid::now_v7().simple().to_string(),
        role,
        created_at: now(),
        text,
        status,
        run_id: None,
        attachments: vec![],
        parts: vec![],
        activity: vec![],
        failure: None,
        usage: None,
        truncated: false,
    }
}
