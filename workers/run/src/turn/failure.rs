//! Why a turn didn't succeed: the recorded kind, a sentence for the person, a detail for the log.

use crate::owners::Lost;

/// The supervisor's reason when it stops.
const STOPPING: &str = "the daemon is stopping";

/// Everything that ends a turn without a commit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// On request, or because nobody listens any more.
    #[error("cancelled: {reason}")]
    Cancelled {
        /// As given.
        reason: String,
    },
    /// Another worker is gone, or refused.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// Egress has no answer.
    #[error("{kind}: {message}")]
    Model {
        /// The failure class of egress.
        kind: String,
        /// Its sentence.
        message: String,
    },
    /// `runtime.maxTurns` is used up and the model still wants tools.
    #[error("the model wanted more than {0} requests (runtime.maxTurns)")]
    MaxTurns(u32),
    /// The model said or asked for more than a turn takes.
    #[error("the model's text, arguments or number of calls is over the bound")]
    AnswerTooLarge,
    /// No word from egress, not even of a retry.
    #[error("nothing came from the model for {0} s")]
    ModelSilent(u64),
}

impl Failure {
    /// The recorded failure kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        match self {
            Self::Cancelled { .. } => "cancelled",
            Self::Lost(lost) => lost.refusal.as_deref().unwrap_or("worker_lost"),
            Self::Model { kind, .. } => kind,
            Self::MaxTurns(_) => "max_turns",
            Self::AnswerTooLarge => "answer_too_large",
            Self::ModelSilent(_) => "model_silent",
        }
    }

    /// The sentence for the person.
    #[must_use]
    pub fn for_person(&self) -> String {
        match self {
            Self::Cancelled { reason } if reason == STOPPING => {
                "The agent was stopped before the turn was finished. Send the message again when it runs."
                    .to_owned()
            }
            Self::Cancelled { .. } => "The turn was cancelled.".to_owned(),
            Self::Lost(lost) if lost.refusal.as_deref() == Some("disk_full") => format!(
                "The agent has no room left on its disk (the {} worker said so). Nothing of this turn was kept; \
                 free space there, then send the message again.",
                lost.worker
            ),
            Self::Lost(Lost {
                worker,
                refusal: Some(code),
                ..
            }) => {
                format!(
                    "The {worker} worker refused a part of this turn ({code}). Nothing of it was kept."
                )
            }
            Self::Lost(lost) => format!(
                "A part of the agent (the {} worker) stopped in the middle of this turn. Nothing of it was kept; \
                 please send the message again.",
                lost.worker
            ),
            Self::Model { kind, message } => {
                let remedy = match kind.as_str() {
                    "provider_auth" => ". Check the provider's key (providers.<id>.apiKey…)",
                    _ => "",
                };
                format!("The model gave no answer: {message}{remedy}")
            }
            Self::MaxTurns(most) => format!(
                "The agent did not finish within {most} model requests (runtime.maxTurns). Ask for a smaller step, \
                 or raise the limit."
            ),
            Self::AnswerTooLarge => {
                "The model said or asked for more than the agent takes in one turn.".to_owned()
            }
            Self::ModelSilent(seconds) => format!("The model said nothing for {seconds} s."),
        }
    }

    /// True for a cancellation.
    #[must_use]
    pub const fn is_cancelled(&self) -> bool {
        matches!(self, Self::Cancelled { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_can_mend_is_said() {
        let lost = |refusal: &str| {
            Failure::Lost(Lost {
                worker: "store",
                refusal: Some(refusal.to_owned()),
                detail: String::new(),
            })
        };
        let cancelled = |reason: &str| Failure::Cancelled {
            reason: reason.to_owned(),
        };
        let model = |kind: &str| Failure::Model {
            kind: kind.to_owned(),
            message: "m:x: HTTP 401".to_owned(),
        };
        for (failure, words) in [
            (lost("disk_full"), "free space"),
            (lost("conflict"), "refused a part of this turn (conflict)"),
            (cancelled(STOPPING), "was stopped"),
            (cancelled("interrupted"), "The turn was cancelled."),
            (model("provider_auth"), "Check the provider's key"),
            (model("timeout"), "m:x: HTTP 401"),
        ] {
            let said = failure.for_person();
            assert!(said.contains(words), "{said}");
        }
    }
}
