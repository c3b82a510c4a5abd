//! What happens to a continuation, and what may come of it: the words of [`crate::state`].

use crate::canonical::Payload;
use crate::record::{ContextRef, Record};
use crate::time::Time;

/// A fixed code and a reason for the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault<'a> {
    /// The code; bounded when it is kept.
    pub code: &'a str,
    /// The reason; bounded when it is kept.
    pub reason: &'a str,
}

/// The snapshot that finalising binds to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding<'a> {
    /// Digest and sizes.
    pub reference: &'a ContextRef,
    /// Claim and snapshot in one digest.
    pub fingerprint: &'a str,
    /// The seal.
    pub mac: &'a str,
}

/// What a channel said of a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Posted<'a> {
    /// The channel's id of the message.
    pub delivery_id: Option<&'a str>,
    /// The channel's id of the place.
    pub channel_id: Option<&'a str>,
    /// What came of the history, if that is known with the post.
    pub history: Option<Result<(), &'a str>>,
}

/// What an operator found out about an unknown delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution<'a> {
    /// It is there.
    Delivered {
        /// The message's id in the channel.
        delivery_id: Option<&'a str>,
    },
    /// It is not there, and is to be posted.
    NotDelivered,
    /// It is to be left.
    DeadLettered,
}

/// What happens to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// The service submits its result.
    Submit {
        /// Its key of the submission.
        key: &'a str,
        /// The payload, whose hash was checked.
        payload: &'a Payload,
        /// SHA-256 of its canonical text.
        hash: &'a str,
    },
    /// The origin's snapshot is written and bound, and its turn about to commit.
    Finalize(Binding<'a>),
    /// The origin's turn is committed.
    Activate,
    /// The origin's turn will not be committed.
    Abandon(Fault<'a>),
    /// The origin isn't settled yet: wait, and count it.
    Defer {
        /// Until then.
        until: Time,
    },
    /// The channel or the model isn't there: wait, and count nothing.
    Hold {
        /// Until then.
        until: Time,
        /// Why.
        fault: Fault<'a>,
    },
    /// The result asks for no message.
    Suppress,
    /// The mode asks for nothing.
    Silence,
    /// The conversation can't be restored: the fixed answer takes the place of a model's.
    OriginUnavailable(Fault<'a>),
    /// Its destination is refused or missing: it ends here.
    Refuse(Fault<'a>),
    /// The record is not what was claimed: it ends here, and its text with it, which nobody is to send on.
    Forged,
    /// The model is about to be asked.
    BeginSynthesis {
        /// Who works on it.
        owner: &'a str,
    },
    /// The model was certainly not asked.
    NotAsked {
        /// Try again then.
        until: Time,
        /// Why.
        fault: Fault<'a>,
    },
    /// The model answered.
    Synthesized {
        /// The answer; trimmed when it is kept.
        text: &'a str,
    },
    /// The model failed, or may have.
    SynthesisFailed(Fault<'a>),
    /// The text is about to be given to the channel.
    BeginDelivery {
        /// Who works on it.
        owner: &'a str,
    },
    /// Every chunk has a receipt.
    Delivered(Posted<'a>),
    /// Certainly nothing was posted; it may be tried again.
    Retryable {
        /// When, or that the attempts are used up.
        until: Option<Time>,
        /// Why.
        fault: Fault<'a>,
    },
    /// Certainly nothing was posted, and it never will be.
    Permanent(Fault<'a>),
    /// Nobody can say.
    Unprovable(Fault<'a>),
    /// What came of entering a confirmed post into the history.
    History(Result<(), &'a str>),
    /// The deadline passed.
    Expire,
    /// The operator wants another try.
    Retry {
        /// The operator has proved that an unknown delivery did not happen.
        allow_unknown: bool,
    },
    /// The operator ends it.
    Cancel,
    /// The operator says what became of an unknown delivery.
    Resolve(Resolution<'a>),
    /// The process starts and finds this.
    Recover,
}

/// What is to be done once the change is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    Nothing,
    /// There is work for the processing loop.
    Wake,
    /// The text is to be entered into the history, and [`Event::History`] said.
    EnterHistory,
}

/// A change that an event brings.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Store this.
    Changed(Box<Record>, Effect),
    /// It is so already.
    Same,
    /// Nothing becomes of it.
    Refused(Refused),
    /// Store this, and refuse the request nevertheless: it came too late.
    Late(Box<Record>),
}

/// Why an event is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refused {
    /// Another result was accepted before.
    #[error("another result was accepted for this continuation")]
    ResultConflict,
    /// It takes no result any more.
    #[error("this continuation takes no result in its present state")]
    ResultNotAccepted,
    /// Its deadline passed before a result came.
    #[error("the continuation's deadline passed")]
    Expired,
    /// Its delivery is unknown and must be resolved.
    #[error("the delivery's outcome is unknown; find out and resolve it, or allow an unsafe retry")]
    DeliveryUnknown,
    /// There is nothing to try again.
    #[error("there is nothing to retry in the continuation's present state")]
    NotRetryable,
    /// A model may have been asked; it is not asked twice.
    #[error("synthesis is never repeated")]
    SynthesisNotRetryable,
    /// It is over.
    #[error("the continuation is over")]
    AlreadyTerminal,
    /// It is being worked on.
    #[error("the continuation is being processed")]
    InFlight,
    /// Its delivery is not unknown.
    #[error("the continuation's delivery is not unknown")]
    NotDeliveryUnknown,
    /// The host's own event, in a state where it makes no sense.
    #[error("the continuation is in no state for this step")]
    OutOfPlace,
}

impl Refused {
    /// The code on the wire.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::ResultConflict => "result_conflict",
            Self::ResultNotAccepted => "result_not_accepted",
            Self::Expired => "continuation_expired",
            Self::DeliveryUnknown => "delivery_unknown",
            Self::NotRetryable => "not_retryable",
            Self::SynthesisNotRetryable => "synthesis_not_retryable",
            Self::AlreadyTerminal => "already_terminal",
            Self::InFlight => "continuation_in_flight",
            Self::NotDeliveryUnknown => "not_delivery_unknown",
            Self::OutOfPlace => "internal_error",
        }
    }
}
