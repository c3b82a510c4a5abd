//! One answer of the model, taken piece by piece and passed on to whoever listens.

use super::drafts::Drafts;
use super::{Failure, Turn};
use crate::app_endpoint::MAX_APP_CALLS;
use crate::owners::{ModelEvent, ModelStream, Workers};
use ipc_proto::edges::egress::FinishReason;
use ipc_proto::edges::events::{MAX_PIECE, RunEvent};
use ipc_proto::marker::Strainer;
use ipc_proto::text::cut;
use std::time::Duration;

/// Bytes of text in a whole turn; the store takes as much.
pub const MAX_TEXT: usize = 1024 * 1024;
/// Bytes of tool names and arguments in one answer.
const MAX_CALL_BYTES: usize = 8 * 1024 * 1024;
/// Tool calls of a whole turn; the store takes as many.
pub const MAX_CALLS: usize = 1000;
/// Longest id of a call in bytes.
const MAX_CALL_ID: usize = 256;
/// Longest name of a call in bytes.
const MAX_CALL_NAME: usize = 64;
/// Room left for the line that names a fallback.
const MAX_NOTE: usize = 1024;
/// Egress bounds silence by its own, shorter limits; this one is for an egress that forgot us.
pub(super) const MODEL_SILENCE: Duration = Duration::from_secs(30 * 60);
/// Bytes of a status detail that are passed on.
const MAX_DETAIL: usize = 1024;

/// A call that the model asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModelCall {
    /// Unique in the run.
    pub(super) id: String,
    /// As the model wrote it.
    pub(super) name: String,
    /// JSON text, as the model wrote it.
    pub(super) arguments: String,
    /// The part whose page is shown already.
    pub(super) draft: Option<String>,
}

/// A whole answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// Its text.
    pub(super) text: String,
    /// The tools it wants.
    pub(super) calls: Vec<ModelCall>,
    /// Why it ended.
    pub(super) finish: Option<FinishReason>,
}

impl<W: Workers> Turn<'_, W> {
    /// Asks the model once and streams its answer.
    pub(super) async fn ask(&mut self) -> Result<Answer, Failure> {
        let workers = self.hands.workers;
        let mut stream = self
            .hands
            .unless_cancelled(workers.complete(&self.request))
            .await??;
        // Where this answer begins in what the person sees: a restart goes back to here.
        let base = self.shown.len();
        let mut answer = Answer::default();
        // A model that has read of markers elsewhere may write one (spec s2, "Marker and spool record").
        let (mut words, mut thoughts) = (Strainer::default(), Strainer::default());
        let mut call_bytes = 0;
        let mut drafts = Drafts::new(self.hands);
        // The store takes so many calls, whoever makes them.
        let most_calls = match &self.hands.url {
            Some(_) => MAX_CALLS - MAX_APP_CALLS,
            None => MAX_CALLS,
        };
        loop {
            let event = {
                let next = tokio::time::timeout(MODEL_SILENCE, stream.next());
                let next = self.hands.unless_cancelled(next);
                tokio::pin!(next);
                loop {
                    tokio::select! {
                        biased;
                        event = &mut next => break event?,
                        told = drafts.answered(), if drafts.is_asking() => {
                            drafts.tell(told).await?;
                        }
                    }
                }
            };
            let event = event.map_err(|_| Failure::ModelSilent(MODEL_SILENCE.as_secs()))??;
            match event {
                ModelEvent::Text(text) => {
                    if self.shown.len() + words.held() + text.len() > MAX_TEXT - MAX_NOTE {
                        return Err(Failure::AnswerTooLarge);
                    }
                    let text = words.push(&text);
                    self.add(&mut answer, base, &text).await?;
                }
                ModelEvent::Thought(text) => {
                    let text = thoughts.push(&text);
                    self.think(&text).await?;
                }
                ModelEvent::ToolCall {
                    id,
                    name,
                    arguments,
                } => {
                    call_bytes += name.len() + arguments.len();
                    let calls = self.call_ids.len() + answer.calls.len() + 1;
                    if call_bytes > MAX_CALL_BYTES || calls > most_calls {
                        return Err(Failure::AnswerTooLarge);
                    }
                    answer.calls.push(ModelCall {
                        id,
                        name,
                        arguments,
                        draft: None,
                    });
                }
                ModelEvent::Arguments { call, name, text } => drafts.add(call, &name, &text),
                ModelEvent::Usage(usage) => {
                    self.usage.add(&usage);
                    self.hands
                        .say(RunEvent::UsageUpdate {
                            usage: self.usage.clone(),
                        })
                        .await?;
                }
                ModelEvent::Status {
                    stage,
                    model,
                    detail,
                } => {
                    let detail = detail.map(|detail| cut(&detail, MAX_DETAIL).to_owned());
                    self.hands
                        .say(RunEvent::ProviderStatus {
                            stage,
                            model,
                            detail,
                        })
                        .await?;
                }
                ModelEvent::Restart => {
                    answer = Answer::default();
                    (words, thoughts) = (Strainer::default(), Strainer::default());
                    call_bytes = 0;
                    drafts.drop_all().await?;
                    self.take_back(base).await?;
                }
                ModelEvent::Done {
                    finish,
                    model,
                    failovers,
                } => {
                    self.think(&thoughts.finish()).await?;
                    self.add(&mut answer, base, &words.finish()).await?;
                    self.model = model;
                    self.note_failovers(failovers);
                    answer.finish = Some(finish);
                    self.make_echoable(&mut answer.calls);
                    for (call, id) in drafts.finish() {
                        let call = usize::try_from(call).unwrap_or(usize::MAX);
                        match answer.calls.get_mut(call) {
                            Some(call) => call.draft = Some(id),
                            None => self.hands.say(RunEvent::AppGone { id }).await?,
                        }
                    }
                    return Ok(answer);
                }
                ModelEvent::Failed {
                    kind,
                    message,
                    failovers,
                } => {
                    self.note_failovers(failovers);
                    return Err(Failure::Model { kind, message });
                }
            }
        }
    }

    /// More of an answer, which begins at `base` of what is shown.
    async fn add(&mut self, answer: &mut Answer, base: usize, text: &str) -> Result<(), Failure> {
        if text.is_empty() {
            return Ok(());
        }
        // Texts of two answers are told apart by an empty line.
        if answer.text.is_empty() && base > 0 {
            self.append("\n\n").await?;
        }
        answer.text.push_str(text);
        self.append(text).await
    }

    async fn think(&self, text: &str) -> Result<(), Failure> {
        for piece in ipc_proto::text::pieces(text, MAX_PIECE) {
            let text = piece.to_owned();
            self.hands.say(RunEvent::Thought { text }).await?;
        }
        Ok(())
    }

    /// Calls and results go back to the model in pairs. An id that is empty, overlong, repeated or
    /// of other characters than all interfaces take is replaced, and so is a name.
    fn make_echoable(&mut self, calls: &mut [ModelCall]) {
        let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        for (index, call) in calls.iter_mut().enumerate() {
            let usable = (1..=MAX_CALL_ID).contains(&call.id.len()) && call.id.chars().all(safe);
            if !usable || self.call_ids.contains(&call.id) {
                call.id = format!("call-{}-{index}", self.requests);
            }
            self.call_ids.insert(call.id.clone());
            call.name = call
                .name
                .chars()
                .map(|c| if safe(c) { c } else { '_' })
                .take(MAX_CALL_NAME)
                .collect();
            if call.name.is_empty() {
                call.name.push_str("unnamed");
            }
        }
    }
}
