//! What the egress worker says about one answer, before it is packed for the channel.

use crate::failure::Failure;
use crate::wire::WireCall;
use ipc_proto::chat::{Failover, Usage};
use ipc_proto::edges::egress::{FinishReason, ProviderStage};

/// One event of an answer. Each answer ends with exactly one [`ModelEvent::Done`] or
/// [`ModelEvent::Failed`].
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// Text to append.
    Text(String),
    /// Reasoning to append.
    Thought(String),
    /// A whole tool call.
    ToolCall {
        /// The provider's id, or one made here.
        id: String,
        /// Name as offered.
        name: String,
        /// JSON text of the arguments.
        arguments: String,
    },
    /// Arguments of a call that is not whole yet, to append; for display alone.
    Arguments {
        /// Which of the answer's calls, from 0.
        call: u32,
        /// Name as offered.
        name: String,
        /// The piece.
        text: String,
    },
    /// Token counts of the answer.
    Usage(Usage),
    /// Where the request stands.
    Status {
        /// The stage.
        stage: ProviderStage,
        /// `<provider>:<model>`.
        model: String,
        /// For people.
        detail: Option<String>,
    },
    /// Everything until here belongs to a failed attempt.
    Restart {
        /// The failure class of that attempt.
        reason: String,
    },
    /// The answer is whole.
    Done {
        /// Why it ended.
        finish: FinishReason,
        /// `<provider>:<model>` that answered.
        model: String,
        /// Models that failed before it.
        failovers: Vec<Failover>,
    },
    /// There is no answer.
    Failed {
        /// A fixed code.
        kind: String,
        /// One sentence, free of keys.
        message: String,
        /// Every model that failed.
        failovers: Vec<Failover>,
    },
}

/// The reader of the events has gone; the answer is of no use to anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the run that asked has gone")]
pub struct Gone;

/// Where events go. A slow reader makes `send` wait, and with it the provider's stream.
pub trait Sink: Send {
    /// Hands on one event.
    fn send(&mut self, event: ModelEvent) -> impl Future<Output = Result<(), Gone>> + Send;
}

impl Sink for tokio::sync::mpsc::Sender<ModelEvent> {
    async fn send(&mut self, event: ModelEvent) -> Result<(), Gone> {
        tokio::sync::mpsc::Sender::send(self, event)
            .await
            .map_err(|_| Gone)
    }
}

/// Why an attempt gave no answer.
#[derive(Debug)]
pub enum Broken {
    /// The provider's side.
    Failure(Failure),
    /// The reader's side.
    Gone,
}

impl From<Failure> for Broken {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<Gone> for Broken {
    fn from(Gone: Gone) -> Self {
        Self::Gone
    }
}

impl From<WireCall> for ModelEvent {
    /// Servers without ids of their own get one: results are matched to calls by it, also across
    /// the turns of a run.
    fn from(call: WireCall) -> Self {
        let id = if call.id.is_empty() {
            format!("call_{}", uuid::Uuid::new_v4().simple())
        } else {
            call.id
        };
        Self::ToolCall {
            id,
            name: call.name,
            arguments: call.arguments,
        }
    }
}
