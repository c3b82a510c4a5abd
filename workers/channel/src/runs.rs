//! Starting a run and following it to its end.

use futures_util::future::BoxFuture;
use ipc_proto::body::BodyError;
use ipc_proto::chat::Usage;
use ipc_proto::edges::app_bridge::MAX_DRAFT_INPUT;
use ipc_proto::edges::control::{Trigger, TurnInput};
use ipc_proto::edges::events::RunEvent;
use ipc_proto::reply::ReplyPart;
use ipc_proto::{Body, ConversationId, EventReceiver, RunId};
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use worker_kit::{Control, ControlError};

/// Largest answer in bytes that is carried to a client. A model's answer has tens of KiB; this
/// bounds what a run gone wrong can make a channel hold.
pub const MAX_ANSWER: usize = 16 * 1024 * 1024;
/// Largest part of a reply in bytes.
const MAX_PART: usize = 64 * 1024;
/// Largest arguments of a call that are shown before they are whole, in bytes: what was taken out may
/// be longer than what it was.
const MAX_INPUT: usize = 8 * MAX_DRAFT_INPUT;
/// Longest failure sentence in characters that is passed on.
const MAX_MESSAGE: usize = 1_000;

/// A wish for a run.
#[derive(Debug)]
pub struct Wish {
    /// The logical conversation.
    pub conversation: ConversationId,
    /// The physical one, where it is another.
    pub delivery: Option<ConversationId>,
    /// What started it.
    pub trigger: Trigger,
    /// The person's message.
    pub input: TurnInput,
}

/// Why a run was not started.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum StartError {
    /// The supervisor's refusal.
    #[error("{code}: {message}")]
    Refused {
        /// `queue_full`, `shutting_down`, `starting`, `degraded` or `invalid_request`.
        code: String,
        /// What to do about it.
        message: String,
    },
    /// The supervisor did not answer, or the message could not be sent.
    #[error("the run could not be started: {0}")]
    Unavailable(String),
}

/// Who starts runs: the supervisor, or a test.
pub trait Runs: Send + Sync + 'static {
    /// Starts a run. Its event channel comes back at once, also while the run waits for a slot.
    fn start(&self, wish: Wish) -> BoxFuture<'_, Result<(RunId, OwnedFd), StartError>>;

    /// Ends a run that nobody waits for any more. Returns at once.
    fn cancel(&self, run: RunId, reason: &'static str);
}

impl Runs for Control {
    fn start(&self, wish: Wish) -> BoxFuture<'_, Result<(RunId, OwnedFd), StartError>> {
        Box::pin(async move {
            let delivery = wish.delivery.unwrap_or_else(|| wish.conversation.clone());
            match self
                .start_run(wish.conversation, delivery, wish.trigger, &wish.input)
                .await
            {
                Ok(started) => Ok((started.run, started.events)),
                Err(ControlError::Refused(fault)) => Err(StartError::Refused {
                    code: fault.code,
                    message: fault.message,
                }),
                Err(other) => Err(StartError::Unavailable(other.to_string())),
            }
        })
    }

    fn cancel(&self, run: RunId, reason: &'static str) {
        let control = self.clone();
        tokio::spawn(async move {
            if let Err(e) = control.cancel_run(run, reason).await {
                tracing::warn!("a run could not be cancelled: {e}");
            }
        });
    }
}

/// What can be shown of an app before its run is committed. With a committed answer all parts
/// come, complete and in order; without one there are none.
#[derive(Debug, Clone, PartialEq)]
pub enum Early {
    /// The page of a call whose arguments the model still writes.
    Draft(ReplyPart),
    /// What they say so far.
    Input {
        /// The part's id.
        id: String,
        /// The arguments.
        arguments: Map<String, Value>,
    },
    /// They are whole, and the call is made.
    Called {
        /// The part's id.
        id: String,
    },
    /// Nothing came of the call that the page could show.
    Gone {
        /// The part's id.
        id: String,
    },
    /// The call has a result, and an app.
    Whole(ReplyPart),
}

/// One step of a run.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// It goes on. Never `Part`, `Finish` or `Failed`.
    Event(RunEvent),
    /// Something of an app can be shown before the run is committed.
    App(Early),
    /// Committed; the last step.
    Finished(Finished),
    /// Not committed; the last step.
    Failed(Failure),
}

/// A committed answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Finished {
    /// The whole answer.
    pub text: String,
    /// Its parts in order, as the run wrote them: for [`ipc_proto::outcomes::of_parts`], which takes
    /// whatever is in here. `Null` when it was no JSON.
    pub parts: Value,
    /// Tokens of the run.
    pub usage: Usage,
    /// `<provider>:<model>` that answered.
    pub model: String,
}

/// A run that was not committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// True for a cancellation.
    pub cancelled: bool,
    /// A fixed code.
    pub kind: String,
    /// One sentence for the person.
    pub message: String,
}

impl Failure {
    /// A failure that this worker found itself.
    #[must_use]
    pub fn new(kind: &str, message: impl Into<String>) -> Self {
        Self {
            cancelled: false,
            kind: kind.to_owned(),
            message: message.into(),
        }
    }
}

/// A run under way. Dropping it before its last step ends the run as cancelled: the client that
/// wanted it is gone.
pub struct ActiveRun {
    runs: Arc<dyn Runs>,
    run: RunId,
    events: EventReceiver,
    over: bool,
}

impl ActiveRun {
    /// Starts a run.
    ///
    /// # Errors
    /// [`StartError`]; nothing was started then.
    pub async fn start(runs: Arc<dyn Runs>, wish: Wish) -> Result<Self, StartError> {
        let (run, events) = runs.start(wish).await?;
        let events =
            EventReceiver::new(events).map_err(|e| StartError::Unavailable(e.to_string()))?;
        Ok(Self {
            runs,
            run,
            events,
            over: false,
        })
    }

    /// The run.
    #[must_use]
    pub fn id(&self) -> &RunId {
        &self.run
    }

    /// The next step. After the last one, a failure again.
    ///
    /// Not safe to drop while waiting, since credit may be on its way: keep the future and poll it
    /// again.
    pub async fn next(&mut self) -> Step {
        if self.over {
            return Step::Failed(Failure::new("internal", "the run is over"));
        }
        loop {
            let step = match self.events.next().await {
                Ok(Some((event, fds))) => decode(event, fds),
                Ok(None) => Some(Step::Failed(Failure::new(
                    "worker_lost",
                    "The run's process ended without an answer. Send the message again.",
                ))),
                Err(e) => {
                    tracing::error!(run = %self.run, "a run broke the protocol: {e}");
                    Some(Step::Failed(Failure::new(
                        "internal",
                        "The run could not be followed.",
                    )))
                }
            };
            if let Some(step) = step {
                self.over = !matches!(step, Step::Event(_) | Step::App(_));
                return step;
            }
        }
    }
}

impl Drop for ActiveRun {
    fn drop(&mut self) {
        if !self.over {
            // Closing the event channel ends a run that works; one that still waits for a slot has
            // no process yet that would notice.
            self.runs.cancel(self.run.clone(), "the client is gone");
        }
    }
}

fn unread(error: BodyError) -> Option<Step> {
    tracing::error!("what a run tells of an app can't be read: {error}");
    None
}

fn early(
    part: Body,
    mut fds: VecDeque<OwnedFd>,
    wrap: impl FnOnce(ReplyPart) -> Early,
) -> Option<Step> {
    match part.unpack_json(&mut fds, MAX_PART) {
        Ok(part @ ReplyPart::McpApp { .. }) => Some(Step::App(wrap(part))),
        Ok(_) => None,
        Err(error) => unread(error),
    }
}

/// Takes an event's bodies out. `None` for events that say nothing to these channels.
fn decode(event: RunEvent, mut fds: VecDeque<OwnedFd>) -> Option<Step> {
    match event {
        // Files are there with the end alone.
        RunEvent::Part { part } => early(part, fds, Early::Whole),
        RunEvent::AppDraft { part } => early(part, fds, Early::Draft),
        RunEvent::AppInput { id, arguments } => {
            let read = arguments.unpack_json(&mut fds, MAX_INPUT);
            let told = |arguments| Some(Step::App(Early::Input { id, arguments }));
            read.map_or_else(unread, told)
        }
        RunEvent::AppCalled { id } => Some(Step::App(Early::Called { id })),
        RunEvent::AppGone { id } => Some(Step::App(Early::Gone { id })),
        RunEvent::Finish {
            text,
            parts,
            usage,
            model,
        } => {
            let text = text.unpack_text(&mut fds, MAX_ANSWER);
            // A part that can't be read takes neither the text nor the other parts away.
            let parts = serde_json::from_slice(&parts).unwrap_or_else(|e| {
                tracing::error!("an answer's parts can't be read: {e}");
                Value::Null
            });
            Some(match text {
                Ok(text) => Step::Finished(Finished {
                    text,
                    parts,
                    usage,
                    model,
                }),
                Err(e) => {
                    tracing::error!("an answer can't be read: {e}");
                    Step::Failed(Failure::new("internal", "The answer could not be read."))
                }
            })
        }
        RunEvent::Failed {
            cancelled,
            kind,
            message,
        } => Some(Step::Failed(Failure {
            cancelled,
            kind,
            message: message.chars().take(MAX_MESSAGE).collect(),
        })),
        other => Some(Step::Event(other)),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ipc_proto::{EventSender, Role};
    use std::sync::Mutex;
    use tokio::sync::{Notify, mpsc};

    /// A supervisor that hands each wish, with the run's end of its event channel, to the test.
    pub(crate) struct Fake {
        refusal: Option<StartError>,
        started: mpsc::UnboundedSender<(Wish, EventSender)>,
        cancelled: Mutex<Vec<RunId>>,
        cancel_seen: Notify,
    }

    impl Fake {
        pub(crate) fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<(Wish, EventSender)>) {
            let (started, wishes) = mpsc::unbounded_channel();
            let fake = Self {
                refusal: None,
                started,
                cancelled: Mutex::default(),
                cancel_seen: Notify::new(),
            };
            (Arc::new(fake), wishes)
        }

        pub(crate) fn refusing(code: &str) -> Arc<Self> {
            let (started, _) = mpsc::unbounded_channel();
            let refusal = StartError::Refused {
                code: code.into(),
                message: "later".into(),
            };
            Arc::new(Self {
                refusal: Some(refusal),
                started,
                cancelled: Mutex::default(),
                cancel_seen: Notify::new(),
            })
        }

        pub(crate) async fn cancelled(&self) -> RunId {
            loop {
                let seen = self.cancel_seen.notified();
                if let Some(run) = self.cancelled.lock().unwrap().first() {
                    return run.clone();
                }
                seen.await;
            }
        }
    }

    impl Runs for Fake {
        fn start(&self, wish: Wish) -> BoxFuture<'_, Result<(RunId, OwnedFd), StartError>> {
            Box::pin(async move {
                if let Some(StartError::Refused { code, message }) = &self.refusal {
                    return Err(StartError::Refused {
                        code: code.clone(),
                        message: message.clone(),
                    });
                }
                let (ours, theirs) = ipc_proto::link::pair().unwrap();
                let sender = EventSender::new(ours, Role::ChannelOpenai).unwrap();
                self.started.send((wish, sender)).unwrap();
                Ok((RunId::parse("run-1").unwrap(), theirs))
            })
        }

        fn cancel(&self, run: RunId, _reason: &'static str) {
            self.cancelled.lock().unwrap().push(run);
            self.cancel_seen.notify_waiters();
        }
    }

    pub(crate) fn wish() -> Wish {
        Wish {
            conversation: ConversationId::parse("c").unwrap(),
            delivery: None,
            trigger: Trigger {
                source: "openai".into(),
                detail: None,
            },
            input: TurnInput::default(),
        }
    }

    async fn one(event: RunEvent, fds: &[OwnedFd]) -> Step {
        let (fake, mut wishes) = Fake::new();
        let mut run = ActiveRun::start(fake, wish()).await.unwrap();
        let (_, events) = wishes.recv().await.unwrap();
        assert!(events.send(&event, fds).await);
        run.next().await
    }

    #[tokio::test]
    async fn a_large_answer_comes_out_of_its_memfd() {
        let text = "ä".repeat(40_000);
        let (body, fd) = Body::pack(text.clone().into_bytes()).unwrap();
        let fds: Vec<_> = fd.into_iter().collect();
        let finish = RunEvent::Finish {
            text: body,
            parts: b"[]".to_vec(),
            usage: Usage::default(),
            model: "m".into(),
        };
        let Step::Finished(finished) = one(finish, &fds).await else {
            panic!("finished")
        };
        assert_eq!(finished.text, text);
    }

    fn finish(text: &[u8], parts: &str) -> RunEvent {
        RunEvent::Finish {
            text: Body::Inline(text.to_vec()),
            parts: parts.as_bytes().to_vec(),
            usage: Usage::default(),
            model: String::new(),
        }
    }

    #[tokio::test]
    async fn an_answer_whose_parts_are_no_parts_keeps_its_text() {
        for (parts, expected) in [
            ("", 0),
            ("{}", 0),
            ("[null,{\"type\":\"attachment\"},7]", 3),
        ] {
            let Step::Finished(done) = one(finish(b"a", parts), &[]).await else {
                panic!("finished")
            };
            assert_eq!(done.text, "a");
            let outcomes = ipc_proto::outcomes::of_parts(&done.parts);
            assert_eq!(outcomes.len(), expected, "{parts}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_no_text_is_a_failure() {
        let broken = finish(&[0xff], "[]");
        assert!(matches!(one(broken, &[]).await, Step::Failed(f) if f.kind == "internal"));
        let announced = RunEvent::Finish {
            text: Body::Sealed(MAX_ANSWER as u64 + 1),
            parts: b"[]".to_vec(),
            usage: Usage::default(),
            model: String::new(),
        };
        let memfd = [mono_sys::memfd::sealed_memfd(c"test", b"small").unwrap()];
        assert!(matches!(one(announced, &memfd).await, Step::Failed(f) if f.kind == "internal"));
    }

    #[tokio::test]
    async fn of_parts_that_come_early_only_apps_are_told() {
        let failure = ReplyPart::Failure {
            id: "f".into(),
            code: "artifact_missing".into(),
            message: "m".into(),
            related_part_id: None,
        };
        let app = app("a");
        for (part, told) in [(failure, false), (app, true)] {
            let (body, _) = Body::pack_json(&part).unwrap();
            let step = decode(RunEvent::Part { part: body }, VecDeque::new());
            assert_eq!(step, told.then_some(Step::App(Early::Whole(part))));
        }
        let none = Body::Inline(b"{}".to_vec());
        assert_eq!(decode(RunEvent::Part { part: none }, VecDeque::new()), None);
        let input = |arguments: &[u8]| RunEvent::AppInput {
            id: "a".into(),
            arguments: Body::Inline(arguments.to_vec()),
        };
        let told = decode(input(b"{\"a\":1}"), VecDeque::new());
        let arguments = Map::from_iter([("a".to_owned(), 1.into())]);
        let id = "a".to_owned();
        assert_eq!(told, Some(Step::App(Early::Input { id, arguments })));
        assert_eq!(decode(input(b"[1]"), VecDeque::new()), None);
    }

    /// An app as a part of a reply.
    pub(crate) fn app(id: &str) -> ReplyPart {
        ReplyPart::McpApp {
            id: id.into(),
            invocation_id: format!("invocation-{id}"),
            connection_id: "connection".into(),
            server_name: "server".into(),
            tool_name: "tool".into(),
            resource_uri: "ui://a".into(),
            media_type: ipc_proto::apps::MEDIA_TYPE.into(),
            protocol_version: ipc_proto::apps::REVISION.into(),
            title: None,
            description: None,
            expires_at: None,
        }
    }

    #[tokio::test]
    async fn a_failure_sentence_is_bounded() {
        let failed = RunEvent::Failed {
            cancelled: false,
            kind: "k".into(),
            message: "x".repeat(MAX_MESSAGE + 1),
        };
        assert!(
            matches!(one(failed, &[]).await, Step::Failed(f) if f.message.len() == MAX_MESSAGE)
        );
    }

    #[tokio::test]
    async fn a_run_that_dies_is_lost_and_one_that_is_dropped_is_cancelled() {
        let (fake, mut wishes) = Fake::new();
        let mut run = ActiveRun::start(fake.clone(), wish()).await.unwrap();
        drop(wishes.recv().await.unwrap());
        assert!(matches!(run.next().await, Step::Failed(f) if f.kind == "worker_lost"));
        drop(run);
        assert!(fake.cancelled.lock().unwrap().is_empty());

        let run = ActiveRun::start(fake.clone(), wish()).await.unwrap();
        let (_, events) = wishes.recv().await.unwrap();
        drop(run);
        events.closed().await;
        assert_eq!(fake.cancelled().await.as_str(), "run-1");
    }
}
