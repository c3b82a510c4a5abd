//! What the service asks of the rest of the host. It holds none of these rights itself: each call goes to the
//! owner over a channel that was granted.

use async_trait::async_trait;
use continuation_record::Mode;
use continuation_record::snapshot::{Snapshot, SnapshotMessage};
use std::time::Duration;

/// What the owner of the history says about a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commitment {
    /// It succeeded and is in the history.
    Committed,
    /// It failed, was cancelled, or is not known: it will never be committed.
    NotCommitted,
    /// It is still running, or nobody can say. Ask again.
    Unknown,
}

/// Whether a destination can be written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// Now.
    Ready,
    /// Not now: the channel isn't running.
    Later {
        /// When to ask again; one second where nothing is said.
        retry_after: Option<Duration>,
    },
    /// Never: the place is not, or no longer, one that the configuration allows.
    Refused {
        /// For the operator; no secret, no destination.
        reason: String,
    },
}

/// What the model is to see of the past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Context {
    /// The snapshot that the origin pinned.
    Pinned(Snapshot),
    /// The newest history of a named route's conversation, oldest first.
    DetachedLatest(Vec<SnapshotMessage>),
}

/// One tool-free turn: `toolsDisabled` and `deferHistoryCommit` both hold for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SynthesisRequest {
    /// The continuation; also the key by which the run is known.
    pub continuation_id: String,
    /// The conversation of the history, with its rollover bucket.
    pub conversation: String,
    /// The origin's run.
    pub origin_run: String,
    /// The origin's boundary, where the context is pinned.
    pub history_boundary: Option<String>,
    /// The physical conversation, whose allowlist is checked again before the model is called.
    pub target: Option<String>,
    /// What is to come of it.
    pub mode: Mode,
    /// The past.
    pub context: Context,
    /// The one user message, with the payload framed as untrusted data.
    pub message: String,
}

/// What came of a synthesis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Synthesis {
    /// The model's answer.
    Text(String),
    /// The model was certainly not called: no slot, queue full, history behind.
    Unavailable {
        /// When to try again; one second where nothing is said.
        retry_after: Option<Duration>,
        /// For the operator.
        reason: String,
    },
    /// Anything else, also a time-out or a run that was lost: the model may have been called.
    Failed {
        /// A fixed code of at most 128 characters.
        code: String,
        /// For the operator.
        reason: String,
    },
}

/// A message to post once and word for word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryRequest {
    /// `continuation:<id>`: the same for every attempt.
    pub key: String,
    /// The physical conversation.
    pub target: String,
    /// The text.
    pub text: String,
}

/// What came of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// Every chunk has a native receipt.
    Delivered {
        /// The channel's id of the (first) message.
        delivery_id: Option<String>,
        /// The channel's id of the place.
        channel_id: Option<String>,
        /// What came of the history where the channel enters it itself; `None` where the service is to ask for
        /// it. An error is a code.
        history: Option<Result<(), String>>,
    },
    /// Certainly nothing was posted, and it may be tried again.
    Retryable {
        /// When; the backoff decides where nothing is said.
        retry_after: Option<Duration>,
        /// A fixed code.
        code: String,
        /// For the operator.
        reason: String,
    },
    /// Certainly nothing was posted, and it never will be.
    Permanent {
        /// A fixed code.
        code: String,
        /// For the operator.
        reason: String,
    },
    /// Something may have been posted: a part, or nobody knows. Never posted again.
    Unknown {
        /// A fixed code.
        code: String,
        /// For the operator.
        reason: String,
    },
}

/// The other processes.
#[async_trait]
pub trait Host: Send + Sync + 'static {
    /// Whether the run that asked for background work became part of its history.
    async fn run_committed(&self, run: &str, conversation: &str, boundary: &str) -> Commitment;

    /// The newest durable history of a conversation, oldest first and within the bounds of a snapshot.
    ///
    /// # Errors
    /// A reason; it is tried again.
    async fn latest_history(&self, conversation: &str) -> Result<Vec<SnapshotMessage>, String>;

    /// Enters a delivered text into a history, once for each key, and posts nothing.
    ///
    /// # Errors
    /// A code of at most 128 characters.
    async fn commit_history(&self, conversation: &str, key: &str, text: &str)
    -> Result<(), String>;

    /// Whether the destination is allowed and its channel there: before the model is called, and before each
    /// send.
    async fn preflight(&self, target: &str) -> Readiness;

    /// Runs one turn without tools.
    async fn synthesize(&self, request: SynthesisRequest) -> Synthesis;

    /// Posts a message.
    async fn deliver(&self, request: DeliveryRequest) -> Delivery;
}
