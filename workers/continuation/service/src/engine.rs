//! The processing of one continuation, step by step. Nothing runs by itself here: [`Engine::start`] and
//! [`Engine::advance`] decide and store, and whoever drives them puts each [`Question`] to the host. So a test
//! can end the process between any two of them.
//!
//! The order is what makes it safe: a model is asked and a text is sent only after the mark that says so is on
//! the disk, and a text is on the disk before it is sent. After a crash the mark decides, and what may have
//! happened is not done again.

use crate::desk::{Changed, Desk};
use crate::error::Rejection;
use crate::host::{
    Commitment, Context, Delivery, DeliveryRequest, Readiness, Synthesis, SynthesisRequest,
};
use continuation_record::actionable::is_actionable;
use continuation_record::backoff;
use continuation_record::event::{Effect, Event, Fault, Posted};
use continuation_record::prompt::{self, Answer as Wanted, DELIMITER_BYTES};
use continuation_record::snapshot::{self, SnapshotMessage};
use continuation_record::{Mode, OriginContextState, Record, State, Time};
use std::sync::Arc;
use std::time::Duration;

/// Wait where a host that isn't ready names none.
const NOT_READY: Duration = Duration::from_secs(1);

/// What the host is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Whether the origin's turn was committed.
    Committed {
        /// The run.
        run: String,
        /// The conversation.
        conversation: String,
        /// The boundary.
        boundary: String,
    },
    /// Whether the destination is allowed and its channel there.
    Ready {
        /// The physical conversation.
        target: String,
    },
    /// The latest history of a named route's conversation.
    History {
        /// The conversation.
        conversation: String,
    },
    /// One tool-free turn. Asked at most once in a continuation's life, unless the host says that no model was
    /// called.
    Synthesize(Box<SynthesisRequest>),
    /// One post.
    Deliver(DeliveryRequest),
    /// A confirmed post is to stand in the history.
    Enter {
        /// The conversation of the history.
        conversation: String,
        /// The key: the same for every try.
        key: String,
        /// The text.
        text: String,
    },
}

/// What the host answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To [`Question::Committed`].
    Committed(Commitment),
    /// To [`Question::Ready`].
    Ready(Readiness),
    /// To [`Question::History`].
    History(Result<Vec<SnapshotMessage>, String>),
    /// To [`Question::Synthesize`].
    Synthesis(Synthesis),
    /// To [`Question::Deliver`].
    Delivery(Delivery),
    /// To [`Question::Enter`].
    Entered(Result<(), String>),
    /// Nothing in time, to any of them.
    TimedOut,
}

/// A continuation that is being processed, between two steps.
#[derive(Debug, Clone)]
pub struct Job {
    id: String,
    stage: Stage,
}

impl Job {
    /// Its continuation.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }
}

#[derive(Debug, Clone)]
enum Stage {
    Origin,
    Reachable(Option<Context>),
    History,
    Synthesis,
    Destination,
    Delivery { text: String },
    Entering,
}

/// What is to be done next.
#[derive(Debug)]
pub enum Step {
    /// Put this to the host and go on with its answer.
    Ask(Box<Job>, Question),
    /// Nothing for now.
    Done,
}

/// Decides and stores.
#[derive(Clone)]
pub struct Engine {
    desk: Arc<Desk>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Engine")
    }
}

type Stepped = Result<Step, Rejection>;

impl Engine {
    /// Over what the service holds.
    #[must_use]
    pub fn new(desk: Arc<Desk>) -> Self {
        Self { desk }
    }

    pub(crate) fn desk(&self) -> &Desk {
        &self.desk
    }

    /// Begins with a continuation, wherever it stands.
    ///
    /// # Errors
    /// When the store fails, which ends the worker.
    pub async fn start(&self, id: &str) -> Stepped {
        let Some(record) = self.desk.get(id)? else {
            return Ok(Step::Done);
        };
        if !record.state.is_pending() || continuation_record::state::is_in_flight(&record) {
            return Ok(Step::Done);
        }
        if self.desk.now() >= record.deadline {
            return self.end(id, Event::Expire).await;
        }
        // Before the model is asked as before each send: a text may wait for hours.
        let pinned = record.origin_context_state == OriginContextState::Pinned;
        if pinned && record.state != State::Claimed && !self.desk.is_sealed(&record) {
            return self.end(id, Event::Forged).await;
        }
        match record.state {
            State::ResultReceived => self.received(&record).await,
            State::ReadyToDeliver | State::DeliveryRetry => self.ready(&record).await,
            _ => Ok(Step::Done),
        }
    }

    /// Goes on with what the host answered. Where the store is behind, the same job and the same answer may be
    /// handed in again: what was stored already is not repeated.
    ///
    /// # Errors
    /// When the store is behind, or fails, which ends the worker.
    pub async fn advance(&self, job: Box<Job>, answer: Answer) -> Stepped {
        let Job { id, stage } = *job;
        match stage {
            Stage::Origin => self.origin_told(&id, answer).await,
            Stage::Reachable(context) => self.reachable(id, context, answer).await,
            Stage::History => self.history_told(id, answer).await,
            Stage::Synthesis => self.synthesized(&id, answer).await,
            Stage::Destination => self.destination_told(id, answer).await,
            Stage::Delivery { text } => self.delivered(id, text, answer).await,
            Stage::Entering => self.entered(&id, answer).await,
        }
    }

    async fn end(&self, id: &str, event: Event<'_>) -> Stepped {
        self.desk.apply(id, event).await?;
        Ok(Step::Done)
    }

    /// A result is here: whether a model is needed at all, and with which past.
    async fn received(&self, record: &Record) -> Stepped {
        let id = &record.continuation_id;
        let context = match record.origin_context_state {
            OriginContextState::Pending => {
                let question = Question::Committed {
                    run: record.origin_run_id.clone(),
                    conversation: record.origin_conversation_id.clone(),
                    boundary: record
                        .history_boundary
                        .clone()
                        .unwrap_or_else(|| record.origin_run_id.clone()),
                };
                return Ok(ask(id.clone(), Stage::Origin, question));
            }
            state => state,
        };
        let actionable = match (&record.mode, &record.result_payload) {
            (Mode::Silent, _) => return self.end(id, Event::Silence).await,
            (Mode::NotifyIfActionable, Some(payload)) => is_actionable(&payload.json()),
            _ => true,
        };
        if !actionable {
            return self.end(id, Event::Suppress).await;
        }
        let past = match context {
            OriginContextState::DetachedLatest => None,
            OriginContextState::Pinned => match self.pinned(record)? {
                Ok(snapshot) => Some(Context::Pinned(snapshot)),
                Err(reason) => return self.without_origin(id, &reason).await,
            },
            _ => {
                let reason = "the turn that asked was not committed, or left no snapshot";
                return self.without_origin(id, reason).await;
            }
        };
        match (&record.mode, &record.reply_to_conversation_id) {
            // No channel is needed for what is only kept.
            (Mode::Capture, _) => self.past_known(id.clone(), past).await,
            (_, Some(target)) => {
                let target = target.clone();
                Ok(ask(
                    id.clone(),
                    Stage::Reachable(past),
                    Question::Ready { target },
                ))
            }
            (_, None) => self.end(id, Event::Refuse(NO_DESTINATION)).await,
        }
    }

    /// The fixed answer takes the place of a model's, and goes the same way from here.
    async fn without_origin(&self, id: &str, reason: &str) -> Stepped {
        let fault = Fault {
            code: "origin_context_unavailable",
            reason,
        };
        self.desk.apply(id, Event::OriginUnavailable(fault)).await?;
        Box::pin(self.start(id)).await
    }

    /// The snapshot that a record is bound to, or why it can't be used.
    fn pinned(&self, record: &Record) -> Result<Result<snapshot::Snapshot, String>, Rejection> {
        let Some(reference) = &record.origin_context_ref else {
            return Ok(Err("the claim names no snapshot".to_owned()));
        };
        let boundary = record.history_boundary.as_deref().unwrap_or_default();
        let blob = match self.desk.blob(&reference.digest)? {
            Some(blob) if blob.len() as u64 == reference.bytes => blob,
            Some(_) => return Ok(Err("the snapshot has another size".to_owned())),
            None => return Ok(Err("the snapshot is missing or unreadable".to_owned())),
        };
        Ok(snapshot::read(
            &blob,
            &reference.digest,
            &record.origin_conversation_id,
            &record.origin_run_id,
            boundary,
        )
        .map_err(|e| e.to_string()))
    }

    /// The origin isn't settled: the owner of the history decides what became of it.
    async fn origin_told(&self, id: &str, answer: Answer) -> Stepped {
        let told = match answer {
            Answer::Committed(told) => told,
            _ => Commitment::Unknown,
        };
        if self.desk.settle_origin(id, told).await? {
            return Box::pin(self.start(id)).await;
        }
        let Some(record) = self.desk.get(id)? else {
            return Ok(Step::Done);
        };
        let attempt = record.synthesis_deferrals.saturating_add(1);
        let wait = backoff::wait(attempt, backoff::DEFERRAL_CAP, self.desk.chance());
        let until = self.desk.after(wait);
        self.end(id, Event::Defer { until }).await
    }

    async fn reachable(&self, id: String, context: Option<Context>, answer: Answer) -> Stepped {
        match readiness(answer) {
            Readiness::Ready => self.past_known(id, context).await,
            Readiness::Later { retry_after } => {
                self.hold(
                    &id,
                    retry_after,
                    "channel_unavailable",
                    "the channel is not running",
                )
                .await
            }
            Readiness::Refused { reason } => self.refuse(&id, &reason).await,
        }
    }

    async fn hold(&self, id: &str, wait: Option<Duration>, code: &str, reason: &str) -> Stepped {
        let until = self.desk.after(backoff::asked(wait.unwrap_or(NOT_READY)));
        let fault = Fault { code, reason };
        self.end(id, Event::Hold { until, fault }).await
    }

    /// The place is not allowed any more; there is no other.
    async fn refuse(&self, id: &str, reason: &str) -> Stepped {
        let fault = Fault {
            code: "destination_refused",
            reason,
        };
        self.end(id, Event::Refuse(fault)).await
    }

    /// A named route has the newest history, any other the pinned one.
    async fn past_known(&self, id: String, context: Option<Context>) -> Stepped {
        if let Some(context) = context {
            return self.begin_synthesis(id, context).await;
        }
        let Some(record) = self.desk.get(&id)? else {
            return Ok(Step::Done);
        };
        let conversation = record.origin_conversation_id;
        Ok(ask(id, Stage::History, Question::History { conversation }))
    }

    async fn history_told(&self, id: String, answer: Answer) -> Stepped {
        match answer {
            Answer::History(Ok(messages)) => {
                let context = Context::DetachedLatest(messages);
                self.begin_synthesis(id, context).await
            }
            Answer::History(Err(reason)) => {
                self.hold(&id, None, "history_unavailable", &reason).await
            }
            _ => {
                self.hold(
                    &id,
                    None,
                    "history_unavailable",
                    "the history did not answer",
                )
                .await
            }
        }
    }

    async fn begin_synthesis(&self, id: String, context: Context) -> Stepped {
        let owner = self.desk.owner().to_owned();
        let begin = Event::BeginSynthesis { owner: &owner };
        let Changed::Yes(record, _) = self.desk.apply(&id, begin).await? else {
            return Ok(Step::Done);
        };
        let mut random = [0; DELIMITER_BYTES];
        self.desk.fill(&mut random);
        let wanted = match record.mode {
            Mode::Capture => Wanted::Record,
            _ => Wanted::Message,
        };
        let payload = record.result_payload.as_ref().map_or("null", |p| p.text());
        let request = SynthesisRequest {
            message: prompt::message(wanted, payload, &random),
            continuation_id: record.continuation_id.clone(),
            conversation: record.origin_conversation_id.clone(),
            origin_run: record.origin_run_id.clone(),
            history_boundary: record.history_boundary.clone(),
            target: record.reply_to_conversation_id.clone(),
            mode: record.mode,
            context,
        };
        Ok(ask(
            id,
            Stage::Synthesis,
            Question::Synthesize(Box::new(request)),
        ))
    }

    async fn synthesized(&self, id: &str, answer: Answer) -> Stepped {
        match answer {
            Answer::Synthesis(Synthesis::Text(text)) => {
                self.desk
                    .apply(id, Event::Synthesized { text: &text })
                    .await?;
                Box::pin(self.start(id)).await
            }
            Answer::Synthesis(Synthesis::Unavailable {
                retry_after,
                reason,
            }) => {
                let wait = backoff::asked(retry_after.unwrap_or(NOT_READY));
                let event = Event::NotAsked {
                    until: self.desk.after(wait),
                    fault: Fault {
                        code: "synthesis_unavailable",
                        reason: &reason,
                    },
                };
                self.end(id, event).await
            }
            Answer::Synthesis(Synthesis::Failed { code, reason }) => {
                let fault = Fault {
                    code: &code,
                    reason: &reason,
                };
                self.end(id, Event::SynthesisFailed(fault)).await
            }
            Answer::TimedOut => {
                self.end(id, Event::SynthesisFailed(SYNTHESIS_TIMEOUT))
                    .await
            }
            _ => self.end(id, Event::SynthesisFailed(OUT_OF_TURN)).await,
        }
    }

    /// A text is here: first whether its place is still allowed.
    async fn ready(&self, record: &Record) -> Stepped {
        let id = record.continuation_id.clone();
        match &record.reply_to_conversation_id {
            Some(target) => {
                let target = target.clone();
                Ok(ask(id, Stage::Destination, Question::Ready { target }))
            }
            None => self.end(&id, Event::Refuse(NO_DESTINATION)).await,
        }
    }

    async fn destination_told(&self, id: String, answer: Answer) -> Stepped {
        let (wait, reason) = match readiness(answer) {
            Readiness::Ready => return self.begin_delivery(id).await,
            Readiness::Refused { reason } => return self.refuse(&id, &reason).await,
            Readiness::Later { retry_after } => (retry_after, "the channel is not running"),
        };
        self.again(&id, wait, "channel_unavailable", reason).await
    }

    async fn begin_delivery(&self, id: String) -> Stepped {
        let Some(record) = self.desk.get(&id)? else {
            return Ok(Step::Done);
        };
        if self.desk.now() >= record.deadline {
            return self.end(&id, Event::Expire).await;
        }
        let owner = self.desk.owner().to_owned();
        let begin = Event::BeginDelivery { owner: &owner };
        let Changed::Yes(record, _) = self.desk.apply(&id, begin).await? else {
            return Ok(Step::Done);
        };
        let (Some(text), Some(target)) = (record.synthesized_text, record.reply_to_conversation_id)
        else {
            // The validator keeps such a record out of this state.
            return Ok(Step::Done);
        };
        let request = DeliveryRequest {
            key: key(&id),
            target,
            text: text.clone(),
        };
        Ok(ask(
            id,
            Stage::Delivery { text },
            Question::Deliver(request),
        ))
    }

    async fn delivered(&self, id: String, text: String, answer: Answer) -> Stepped {
        let (code, reason) = match &answer {
            Answer::Delivery(Delivery::Delivered {
                delivery_id,
                channel_id,
                history,
            }) => {
                let posted = Posted {
                    delivery_id: delivery_id.as_deref(),
                    channel_id: channel_id.as_deref(),
                    history: history.as_ref().map(|told| match told {
                        Ok(()) => Ok(()),
                        Err(code) => Err(code.as_str()),
                    }),
                };
                return self.confirmed(id, text, posted).await;
            }
            Answer::Delivery(Delivery::Retryable {
                retry_after,
                code,
                reason,
            }) => return self.again(&id, *retry_after, code, reason).await,
            Answer::Delivery(Delivery::Permanent { code, reason }) => {
                return self
                    .end(&id, Event::Permanent(Fault { code, reason }))
                    .await;
            }
            Answer::Delivery(Delivery::Unknown { code, reason }) => {
                (code.as_str(), reason.as_str())
            }
            Answer::TimedOut => (
                "delivery_timeout_outcome_unknown",
                "the channel did not say in time whether it posted",
            ),
            _ => (
                "delivery_threw",
                "the channel gave no answer to the delivery",
            ),
        };
        self.end(&id, Event::Unprovable(Fault { code, reason }))
            .await
    }

    async fn confirmed(&self, id: String, text: String, posted: Posted<'_>) -> Stepped {
        match self.desk.apply(&id, Event::Delivered(posted)).await? {
            Changed::Yes(record, Effect::EnterHistory) => {
                let question = Question::Enter {
                    conversation: record.origin_conversation_id,
                    key: key(&id),
                    text,
                };
                Ok(ask(id, Stage::Entering, question))
            }
            _ => Ok(Step::Done),
        }
    }

    async fn entered(&self, id: &str, answer: Answer) -> Stepped {
        let entered = match &answer {
            Answer::Entered(Ok(())) => Ok(()),
            Answer::Entered(Err(code)) => Err(code.as_str()),
            _ => Err("history_timeout"),
        };
        self.end(id, Event::History(entered)).await
    }

    /// Nothing was posted: another try, or the end.
    async fn again(&self, id: &str, wait: Option<Duration>, code: &str, reason: &str) -> Stepped {
        let Some(record) = self.desk.get(id)? else {
            return Ok(Step::Done);
        };
        // The attempt of a send that was begun is counted already; one that was not begun counts now.
        let begun = record.delivery_started_at.is_some();
        let attempts = record.delivery_attempts + u32::from(!begun);
        let until: Option<Time> = match backoff::delivery(attempts, wait, self.desk.chance()) {
            backoff::Next::After(wait) => Some(self.desk.after(wait)),
            backoff::Next::Exhausted => None,
        };
        let fault = Fault { code, reason };
        self.end(id, Event::Retryable { until, fault }).await
    }
}

const NO_DESTINATION: Fault<'static> = Fault {
    code: "destination_missing",
    reason: "the claim has no conversation that the answer could go to",
};
const SYNTHESIS_TIMEOUT: Fault<'static> = Fault {
    code: "synthesis_timeout",
    reason: "the model did not answer in time; it is not asked again",
};
const OUT_OF_TURN: Fault<'static> = Fault {
    code: "synthesis_threw",
    reason: "the synthesis ended without an answer",
};

/// The key of a delivery: the same for every attempt of one continuation.
#[must_use]
pub fn key(id: &str) -> String {
    format!("continuation:{id}")
}

fn ask(id: String, stage: Stage, question: Question) -> Step {
    Step::Ask(Box::new(Job { id, stage }), question)
}

/// A host that says nothing isn't ready.
fn readiness(answer: Answer) -> Readiness {
    match answer {
        Answer::Ready(readiness) => readiness,
        _ => Readiness::Later { retry_after: None },
    }
}
