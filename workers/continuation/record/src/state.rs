//! What may become of a continuation: state × event → state and effect (spec s1, "Synthesis and delivery",
//! "Health and recovery").
//!
//! Every change of a record after its claim goes through [`apply`], which decides by the record, the event and
//! the time alone. What it returns is stored before any of its effects happens.

use crate::canonical::Payload;
pub use crate::event::{Binding, Effect, Event, Fault, Outcome, Posted, Refused, Resolution};
use crate::record::{
    CompletionKind, LastError, Mode, OriginContextState, Receipt, ReceiptKind, Record, State,
};
use crate::time::Time;
use crate::validate::{MAX_CHANNEL_NAME, MAX_CODE, MAX_REASON, MAX_TEXT, units, validate};
use crate::{backoff, retention};

/// The answer without a model, for when the conversation can't be restored.
pub const FIXED_ANSWER: &str = "The background task finished, but I could not safely restore the original conversation context. Please ask me to check the result again.";

/// How long a lease says that it holds, in milliseconds. Only a start looks at leases, and it takes each for
/// interrupted whatever this says.
pub const LEASE_MS: i64 = 30 * 60 * 1000;

/// Why a delivery of unknown outcome is over: an operator left it. It is as unknown as before.
const LEFT: Fault<'static> = Fault {
    code: "operator_dead_lettered",
    reason: "an operator ended a delivery of unknown outcome",
};

/// Why a record in a shape from which no step can be made is over.
const INCONSISTENT: Fault<'static> = Fault {
    code: "record_inconsistent",
    reason: "the record can't be processed from the state in which it was found",
};

/// The same, of one whose text may have been posted.
const INCONSISTENT_POST: Fault<'static> = Fault {
    code: "record_inconsistent_delivery",
    reason: "the record can't be processed from the state in which it was found, and its text may have been posted",
};

/// Why nothing of a record is delivered that is not what was claimed.
const FORGED: Fault<'static> = Fault {
    code: "origin_binding_invalid",
    reason: "the seal over the claim's immutable fields does not verify",
};

/// Whether its text may have been posted, though nobody says so.
fn is_unproved(record: &Record) -> bool {
    let left = |error: &LastError| error.code == LEFT.code || error.code == INCONSISTENT_POST.code;
    match record.state {
        State::DeliveryUnknown => true,
        State::DeadLettered => record.last_error.as_ref().is_some_and(left),
        _ => false,
    }
}

/// Whether somebody works on it: a model is asked, or a channel has the text.
#[must_use]
pub fn is_in_flight(record: &Record) -> bool {
    record.state == State::Synthesizing || record.delivery_started_at.is_some()
}

/// What becomes of a record at the time `now`. What comes out can be stored: a record that an older version or
/// a careless hand left in a shape from which a step can't be made ends as a dead letter, so that it holds up
/// nobody, and least of all a start.
pub fn apply(record: &Record, event: Event<'_>, now: Time) -> Outcome {
    let outcome = step(record, event, now);
    let (Outcome::Changed(next, _) | Outcome::Late(next)) = &outcome else {
        return outcome;
    };
    if validate(next).is_ok() {
        return outcome;
    }
    match event {
        Event::Retry { .. } => Outcome::Refused(Refused::NotRetryable),
        _ if record.state.is_settled() => Outcome::Refused(Refused::OutOfPlace),
        _ => {
            let fault = if is_unproved(record) || record.delivery_started_at.is_some() {
                INCONSISTENT_POST
            } else {
                INCONSISTENT
            };
            let mut next = record.clone();
            next.updated_at = now;
            dead(&mut next, fault, now);
            Outcome::Changed(Box::new(next), Effect::Nothing)
        }
    }
}

fn step(record: &Record, event: Event<'_>, now: Time) -> Outcome {
    let step = Step { record, now };
    match event {
        Event::Submit { key, payload, hash } => step.submit(key, payload, hash),
        Event::Finalize(binding) => step.finalize(binding),
        Event::Activate => step.activate(),
        Event::Abandon(fault) => step.abandon(fault),
        Event::Defer { until } => step.waiting(until, None, true),
        Event::Hold { until, fault } => step.waiting(until, Some(fault), false),
        Event::Suppress => step.receive(|next| receipt(next, ReceiptKind::Suppressed, now)),
        Event::Silence => step.receive(|next| receipt(next, ReceiptKind::Silent, now)),
        Event::OriginUnavailable(fault) => step.receive(|next| {
            next.last_error = Some(error(fault, now));
            next.completion_kind = Some(CompletionKind::OriginContextUnavailable);
            answer(next, FIXED_ANSWER, now)
        }),
        Event::Refuse(fault) => step.refuse(|next| dead(next, fault, now)),
        Event::Forged => step.refuse(|next| {
            next.synthesized_text = None;
            dead(next, FORGED, now)
        }),
        Event::BeginSynthesis { owner } => step.receive(|next| {
            next.state = State::Synthesizing;
            next.synthesis_attempts = next.synthesis_attempts.saturating_add(1);
            next.synthesis_started_at = Some(now);
            next.next_attempt_at = None;
            lease(next, owner, now);
            Effect::Nothing
        }),
        Event::NotAsked { until, fault } => step.not_asked(until, fault),
        Event::Synthesized { text } => step.synthesized(text),
        Event::SynthesisFailed(fault) => step.synthesizing(|next| dead(next, fault, now)),
        Event::BeginDelivery { owner } => step.begin_delivery(owner),
        Event::Delivered(posted) => step.delivering(|next| delivered(next, posted, now)),
        Event::Retryable { until, fault } => step.retryable(until, fault),
        Event::Permanent(fault) => step.delivering(|next| dead(next, fault, now)),
        Event::Unprovable(fault) => step.delivering(|next| unknown(next, fault, now)),
        Event::History(entered) => step.history(entered),
        Event::Expire => step.expire(),
        Event::Retry { allow_unknown } => step.retry(allow_unknown),
        Event::Cancel => step.cancel(),
        Event::Resolve(resolution) => step.resolve(resolution),
        Event::Recover => step.recover(),
    }
}

struct Step<'a> {
    record: &'a Record,
    now: Time,
}

impl Step<'_> {
    fn change(&self, change: impl FnOnce(&mut Record) -> Effect) -> Outcome {
        let mut next = self.record.clone();
        next.updated_at = self.now;
        let effect = change(&mut next);
        Outcome::Changed(Box::new(next), effect)
    }

    /// A step that is possible in some states only.
    fn only(&self, possible: bool, change: impl FnOnce(&mut Record) -> Effect) -> Outcome {
        if possible {
            self.change(change)
        } else {
            Outcome::Refused(Refused::OutOfPlace)
        }
    }

    fn receive(&self, change: impl FnOnce(&mut Record) -> Effect) -> Outcome {
        let settled = self.record.origin_context_state != OriginContextState::Pending;
        self.only(
            self.record.state == State::ResultReceived && settled,
            change,
        )
    }

    fn synthesizing(&self, change: impl FnOnce(&mut Record) -> Effect) -> Outcome {
        self.only(self.record.state == State::Synthesizing, change)
    }

    fn delivering(&self, change: impl FnOnce(&mut Record) -> Effect) -> Outcome {
        self.only(
            self.has_text() && self.record.delivery_started_at.is_some(),
            change,
        )
    }

    fn has_text(&self) -> bool {
        matches!(
            self.record.state,
            State::ReadyToDeliver | State::DeliveryRetry
        )
    }

    fn is_past(&self) -> bool {
        self.now >= self.record.deadline
    }

    fn submit(&self, key: &str, payload: &Payload, hash: &str) -> Outcome {
        let known = (
            self.record.result_idempotency_key.as_deref(),
            self.record.result_payload_hash.as_deref(),
        );
        match known {
            (Some(known_key), Some(known_hash)) if known_key == key && known_hash == hash => {
                return Outcome::Same;
            }
            (None, None) => {}
            _ => return Outcome::Refused(Refused::ResultConflict),
        }
        match self.record.state {
            State::Claimed if self.is_past() => {
                let mut next = self.record.clone();
                next.updated_at = self.now;
                expire(&mut next, self.now);
                Outcome::Late(Box::new(next))
            }
            State::Claimed => self.change(|next| {
                next.state = State::ResultReceived;
                next.result_idempotency_key = Some(key.to_owned());
                next.result_payload_hash = Some(hash.to_owned());
                next.result_payload = Some(payload.clone());
                next.next_attempt_at = None;
                Effect::Wake
            }),
            State::Expired => Outcome::Refused(Refused::Expired),
            _ => Outcome::Refused(Refused::ResultNotAccepted),
        }
    }

    fn finalize(&self, binding: Binding<'_>) -> Outcome {
        let pending = self.record.origin_context_state == OriginContextState::Pending;
        if !pending || !self.record.state.is_pending() {
            return Outcome::Refused(Refused::OutOfPlace);
        }
        match &self.record.origin_context_ref {
            Some(known) if known == binding.reference => Outcome::Same,
            Some(_) => Outcome::Refused(Refused::OutOfPlace),
            None => self.change(|next| {
                next.origin_context_digest = Some(binding.reference.digest.clone());
                next.origin_context_message_count = Some(binding.reference.message_count);
                next.origin_context_ref = Some(binding.reference.clone());
                next.origin_context_fingerprint = Some(binding.fingerprint.to_owned());
                next.origin_context_binding_mac = Some(binding.mac.to_owned());
                Effect::Nothing
            }),
        }
    }

    fn activate(&self) -> Outcome {
        match self.record.origin_context_state {
            OriginContextState::Pinned => Outcome::Same,
            // A committed turn without a snapshot can't come about: finalising precedes the commit.
            OriginContextState::Pending if self.record.origin_context_ref.is_some() => {
                self.change(|next| {
                    next.origin_context_state = OriginContextState::Pinned;
                    self.settled_origin(next)
                })
            }
            _ => Outcome::Refused(Refused::OutOfPlace),
        }
    }

    fn abandon(&self, fault: Fault<'_>) -> Outcome {
        match self.record.origin_context_state {
            OriginContextState::Pending => self.change(|next| {
                next.origin_context_state = OriginContextState::Abandoned;
                next.origin_context_ref = None;
                next.last_error = Some(error(fault, self.now));
                self.settled_origin(next)
            }),
            OriginContextState::Abandoned => Outcome::Same,
            _ => Outcome::Refused(Refused::OutOfPlace),
        }
    }

    /// Who waited for the origin waits no longer.
    fn settled_origin(&self, next: &mut Record) -> Effect {
        if next.state == State::ResultReceived {
            next.next_attempt_at = None;
            Effect::Wake
        } else {
            Effect::Nothing
        }
    }

    fn waiting(&self, until: Time, fault: Option<Fault<'_>>, counts: bool) -> Outcome {
        let waits = match counts {
            true => self.record.origin_context_state == OriginContextState::Pending,
            false => true,
        };
        self.only(
            self.record.state == State::ResultReceived && waits,
            |next| {
                if counts {
                    next.synthesis_deferrals = next.synthesis_deferrals.saturating_add(1);
                }
                if let Some(fault) = fault {
                    next.last_error = Some(error(fault, self.now));
                }
                next.next_attempt_at = Some(until);
                Effect::Nothing
            },
        )
    }

    fn refuse(&self, change: impl FnOnce(&mut Record) -> Effect) -> Outcome {
        let possible = self.record.state.is_pending() && !is_in_flight(self.record);
        self.only(possible, change)
    }

    fn not_asked(&self, until: Time, fault: Fault<'_>) -> Outcome {
        self.synthesizing(|next| {
            next.state = State::ResultReceived;
            next.synthesis_attempts = next.synthesis_attempts.saturating_sub(1);
            next.synthesis_started_at = None;
            next.next_attempt_at = Some(until);
            next.last_error = Some(error(fault, self.now));
            unlease(next);
            Effect::Nothing
        })
    }

    fn synthesized(&self, text: &str) -> Outcome {
        let text = text.trim();
        if text.is_empty() || units(text) > MAX_TEXT {
            let fault = Fault {
                code: "synthesis_invalid_text",
                reason: "the model's answer was empty or longer than 200,000 characters",
            };
            return self.synthesizing(|next| dead(next, fault, self.now));
        }
        // A late answer is not delivered.
        if self.record.state == State::Synthesizing && self.is_past() {
            return self.change(|next| expire(next, self.now));
        }
        self.synthesizing(|next| {
            next.completion_kind = Some(CompletionKind::Synthesized);
            answer(next, text, self.now)
        })
    }

    fn begin_delivery(&self, owner: &str) -> Outcome {
        let possible = self.has_text()
            && self.record.delivery_started_at.is_none()
            && self.record.reply_to_conversation_id.is_some();
        self.only(possible, |next| {
            next.delivery_attempts = next.delivery_attempts.saturating_add(1);
            next.delivery_started_at = Some(self.now);
            next.next_attempt_at = None;
            lease(next, owner, self.now);
            Effect::Nothing
        })
    }

    fn retryable(&self, until: Option<Time>, fault: Fault<'_>) -> Outcome {
        self.only(self.has_text(), |next| {
            // Before a send the channel was already known not to be there: that is an attempt too.
            if next.delivery_started_at.is_none() {
                next.delivery_attempts = next.delivery_attempts.saturating_add(1);
            }
            next.delivery_started_at = None;
            unlease(next);
            match until {
                Some(until) if next.delivery_attempts < backoff::MAX_ATTEMPTS => {
                    next.state = State::DeliveryRetry;
                    next.next_attempt_at = Some(until);
                    next.last_error = Some(error(fault, self.now));
                    Effect::Nothing
                }
                _ => {
                    let fault = Fault {
                        code: "delivery_attempts_exhausted",
                        reason: fault.reason,
                    };
                    dead(next, fault, self.now)
                }
            }
        })
    }

    fn history(&self, entered: Result<(), &str>) -> Outcome {
        let posted = |receipt: &&Receipt| {
            receipt.kind == ReceiptKind::Delivered && receipt.history_recorded == Some(false)
        };
        if self.record.receipt.as_ref().filter(posted).is_none() {
            return Outcome::Refused(Refused::OutOfPlace);
        }
        // The tombstone's age counts from its delivery and not from this.
        let mut next = self.record.clone();
        if let Some(receipt) = next.receipt.as_mut() {
            (receipt.history_recorded, receipt.history_error_code) = history(Some(entered));
        }
        Outcome::Changed(Box::new(next), Effect::Nothing)
    }

    fn expire(&self) -> Outcome {
        let possible =
            self.record.state.is_pending() && self.is_past() && !is_in_flight(self.record);
        self.only(possible, |next| expire(next, self.now))
    }

    fn retry(&self, allow_unknown: bool) -> Outcome {
        let retried = |next: &mut Record| {
            next.state = State::ReadyToDeliver;
            next.delivery_attempts = 0;
            next.delivery_started_at = None;
            next.next_attempt_at = None;
            Effect::Wake
        };
        let refused = Outcome::Refused;
        match self.record.state {
            State::DeadLettered if self.record.synthesized_text.is_none() => {
                refused(match self.record.synthesis_attempts {
                    0 => Refused::NotRetryable,
                    _ => Refused::SynthesisNotRetryable,
                })
            }
            _ if !allow_unknown && is_unproved(self.record) => refused(Refused::DeliveryUnknown),
            // It would be expired at once, and its text be gone.
            State::DeliveryUnknown | State::DeadLettered if self.is_past() => {
                refused(Refused::NotRetryable)
            }
            State::DeliveryUnknown | State::DeadLettered
                if self.record.synthesized_text.is_none()
                    || self.record.reply_to_conversation_id.is_none() =>
            {
                refused(Refused::NotRetryable)
            }
            State::DeliveryUnknown | State::DeadLettered => self.change(retried),
            State::DeliveryRetry if is_in_flight(self.record) => refused(Refused::NotRetryable),
            State::DeliveryRetry => self.change(retried),
            State::ResultReceived if self.record.next_attempt_at.is_some() => self.change(|next| {
                next.next_attempt_at = None;
                Effect::Wake
            }),
            _ => refused(Refused::NotRetryable),
        }
    }

    fn cancel(&self) -> Outcome {
        match self.record.state {
            State::Cancelled => Outcome::Same,
            state if !state.is_pending() => Outcome::Refused(Refused::AlreadyTerminal),
            _ if is_in_flight(self.record) => Outcome::Refused(Refused::InFlight),
            _ => self.change(|next| {
                next.state = State::Cancelled;
                retention::settle(next, self.now);
                Effect::Nothing
            }),
        }
    }

    fn resolve(&self, resolution: Resolution<'_>) -> Outcome {
        if self.record.state != State::DeliveryUnknown {
            return Outcome::Refused(Refused::NotDeliveryUnknown);
        }
        match resolution {
            Resolution::Delivered { delivery_id } => self.change(|next| {
                let posted = Posted {
                    delivery_id,
                    ..Posted::default()
                };
                delivered(next, posted, self.now)
            }),
            Resolution::NotDelivered => match self.retry(true) {
                Outcome::Changed(mut next, effect) => {
                    next.last_error = Some(error(NOT_DELIVERED, self.now));
                    Outcome::Changed(next, effect)
                }
                // What can't be sent any more ends; what was not sent is not sent later by surprise.
                _ => self.change(|next| {
                    if self.is_past() {
                        expire(next, self.now)
                    } else {
                        dead(next, NOT_DELIVERED, self.now)
                    }
                }),
            },
            Resolution::DeadLettered => self.change(|next| dead(next, LEFT, self.now)),
        }
    }

    /// In the order of what must win: a post that may have happened, the deadline, the rest.
    fn recover(&self) -> Outcome {
        if !self.record.state.is_pending() {
            return Outcome::Same;
        }
        if self.record.delivery_started_at.is_some() {
            let fault = Fault {
                code: "delivery_interrupted",
                reason: "the process ended after the delivery had begun",
            };
            return self.change(|next| unknown(next, fault, self.now));
        }
        if self.is_past() {
            return self.change(|next| expire(next, self.now));
        }
        let leased = self.record.lease_owner.is_some();
        let longest = self.now.plus_ms(backoff::LONGEST_MS);
        let far = self
            .record
            .next_attempt_at
            .is_some_and(|next| next > longest);
        match (self.record.state, &self.record.synthesized_text) {
            (State::Synthesizing, Some(text)) => {
                let text = text.clone();
                self.change(|next| answer(next, &text, self.now))
            }
            (State::Synthesizing, None) => {
                let fault = Fault {
                    code: "synthesis_outcome_unknown",
                    reason: "the process ended while the model was asked",
                };
                self.change(|next| dead(next, fault, self.now))
            }
            _ if leased || far => self.change(|next| {
                unlease(next);
                if far {
                    next.next_attempt_at = None;
                }
                Effect::Wake
            }),
            _ => Outcome::Same,
        }
    }
}

const NOT_DELIVERED: Fault<'static> = Fault {
    code: "operator_not_delivered",
    reason: "an operator found that the delivery did not happen",
};

/// A text is there: captured ones end with it, others are delivered.
fn answer(next: &mut Record, text: &str, now: Time) -> Effect {
    unlease(next);
    next.next_attempt_at = None;
    next.synthesized_text = Some(text.to_owned());
    match next.mode {
        Mode::Capture => receipt(next, ReceiptKind::Captured, now),
        _ if next.reply_to_conversation_id.is_none() => dead(
            next,
            Fault {
                code: "destination_missing",
                reason: "the claim has no conversation that the answer could go to",
            },
            now,
        ),
        _ => {
            next.state = State::ReadyToDeliver;
            Effect::Wake
        }
    }
}

fn receipt(next: &mut Record, kind: ReceiptKind, now: Time) -> Effect {
    next.state = State::Delivered;
    next.receipt = Some(Receipt {
        kind,
        delivered_at: now,
        delivery_id: None,
        channel_id: None,
        history_recorded: None,
        history_error_code: None,
    });
    if kind == ReceiptKind::Suppressed {
        next.actionable = Some(false);
    }
    retention::settle(next, now);
    Effect::Nothing
}

fn delivered(next: &mut Record, posted: Posted<'_>, now: Time) -> Effect {
    let name = |name: Option<&str>| {
        name.filter(|name| !name.is_empty())
            .map(|name| bounded(name, MAX_CHANNEL_NAME))
    };
    next.state = State::Delivered;
    let (history_recorded, history_error_code) = history(posted.history);
    next.receipt = Some(Receipt {
        kind: ReceiptKind::Delivered,
        delivered_at: now,
        delivery_id: name(posted.delivery_id),
        channel_id: name(posted.channel_id),
        history_recorded,
        history_error_code,
    });
    retention::settle(next, now);
    match posted.history {
        None => Effect::EnterHistory,
        Some(_) => Effect::Nothing,
    }
}

/// Until the history has answered, the honest word is that it has not.
fn history(entered: Option<Result<(), &str>>) -> (Option<bool>, Option<String>) {
    match entered {
        Some(Ok(())) => (Some(true), None),
        Some(Err(code)) => {
            let code = code.trim();
            let code = if code.is_empty() {
                "history_record_failed"
            } else {
                code
            };
            (Some(false), Some(bounded(code, MAX_CODE)))
        }
        None => (Some(false), Some("history_pending".to_owned())),
    }
}

fn dead(next: &mut Record, fault: Fault<'_>, now: Time) -> Effect {
    next.state = State::DeadLettered;
    next.last_error = Some(error(fault, now));
    retention::settle(next, now);
    Effect::Nothing
}

/// Payload and text stay: the operator decides what becomes of them.
fn unknown(next: &mut Record, fault: Fault<'_>, now: Time) -> Effect {
    next.state = State::DeliveryUnknown;
    next.last_error = Some(error(fault, now));
    next.next_attempt_at = None;
    retention::scrub_context(next);
    unlease(next);
    Effect::Nothing
}

fn expire(next: &mut Record, now: Time) -> Effect {
    next.state = State::Expired;
    let fault = Fault {
        code: "deadline_expired",
        reason: "the deadline passed before the continuation was delivered",
    };
    next.last_error = Some(error(fault, now));
    retention::settle(next, now);
    Effect::Nothing
}

fn lease(next: &mut Record, owner: &str, now: Time) {
    next.lease_owner = Some(owner.to_owned());
    next.lease_until = Some(now.plus_ms(LEASE_MS));
}

fn unlease(next: &mut Record) {
    next.lease_owner = None;
    next.lease_until = None;
}

fn error(fault: Fault<'_>, at: Time) -> LastError {
    let code = if fault.code.is_empty() {
        "unknown"
    } else {
        fault.code
    };
    LastError {
        code: bounded(code, MAX_CODE),
        reason: bounded(fault.reason, MAX_REASON),
        at,
    }
}

/// At most so many UTF-16 code units of a text, without control characters.
#[must_use]
pub fn bounded(text: &str, most: usize) -> String {
    let mut kept = String::new();
    let mut length = 0;
    for c in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        length += c.len_utf16();
        if length > most {
            break;
        }
        kept.push(c);
    }
    kept
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
