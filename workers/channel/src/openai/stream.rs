//! From a run's steps to the client: as a stream while it works, or as one answer at its end.

use super::answer::Answer;
use super::error::ApiError;
use super::reply::{self, Head};
use crate::runs::{ActiveRun, Step};
use bytes::Bytes;
use ipc_proto::edges::events::RunEvent;
use ipc_proto::text::cut;
use serde_json::value::RawValue;
use std::time::Duration;
use tokio::sync::mpsc;

/// Chunks made and not yet taken by the connection.
pub const QUEUE: usize = 16;
/// Silence after which a comment is sent.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a client may take none of its answer, while its run holds a slot.
const PATIENCE: Duration = Duration::from_secs(60);
/// Extension events of one whole answer; the oldest are kept.
const MAX_EVENTS: usize = 256;
/// Bytes of these events.
const MAX_EVENT_BYTES: usize = 256 * 1024;
/// Bytes of reasoning in one whole answer; the beginning is kept.
const MAX_THOUGHTS: usize = 256 * 1024;

/// Turns steps into chunks. No I/O.
#[derive(Debug)]
pub struct Translator {
    head: Head,
    include_usage: bool,
    answer: Answer,
    over: bool,
}

impl Translator {
    /// For one stream.
    #[must_use]
    pub fn new(head: Head, include_usage: bool) -> Self {
        Self {
            head,
            include_usage,
            answer: Answer::default(),
            over: false,
        }
    }

    /// The first chunk.
    #[must_use]
    pub fn begin(&self) -> Bytes {
        reply::role(&self.head)
    }

    /// True when the stream has had its last chunk.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// The chunks of one step.
    #[must_use]
    pub fn step(&mut self, step: Step) -> Vec<Bytes> {
        match self.chunks(step) {
            Ok(chunks) => chunks,
            Err(error) => {
                self.over = true;
                reply::failed_ending(&error.json())
            }
        }
    }

    fn chunks(&mut self, step: Step) -> Result<Vec<Bytes>, ApiError> {
        let head = &self.head;
        Ok(match step {
            Step::Event(RunEvent::Append { text }) => {
                reply::content(head, self.answer.append(&text)?).collect()
            }
            Step::Event(RunEvent::Replace { text }) => {
                reply::content(head, self.answer.replace(&text)?).collect()
            }
            Step::Event(RunEvent::Thought { text }) => reply::reasoning(head, &text).collect(),
            Step::Event(other) => reply::extension(other)
                .map(|event| reply::event(head, event))
                .into_iter()
                .collect(),
            // It comes with the end, as an outcome.
            Step::App(_) => vec![],
            Step::Finished(done) => {
                let mut chunks: Vec<_> =
                    reply::content(head, self.answer.finish(&done.text)?).collect();
                chunks.extend(reply::ending(head, &done, self.include_usage));
                self.over = true;
                chunks
            }
            Step::Failed(failure) => return Err(failure.into()),
        })
    }
}

/// Follows a run and feeds a connection. Returns, and so ends the run, when the client is gone or
/// takes nothing for [`PATIENCE`].
pub async fn feed(mut run: ActiveRun, mut translator: Translator, client: mpsc::Sender<Bytes>) {
    if !give(&client, translator.begin()).await {
        return;
    }
    while !translator.is_over() {
        let next = run.next();
        tokio::pin!(next);
        let step = loop {
            tokio::select! {
                () = client.closed() => return,
                step = &mut next => break step,
                () = tokio::time::sleep(KEEP_ALIVE) => {
                    if !give(&client, reply::KEEP_ALIVE).await {
                        return;
                    }
                }
            }
        };
        for chunk in translator.step(step) {
            if !give(&client, chunk).await {
                return;
            }
        }
    }
}

async fn give(client: &mpsc::Sender<Bytes>, chunk: Bytes) -> bool {
    client.send_timeout(chunk, PATIENCE).await.is_ok()
}

/// Follows a run to its end and returns the whole answer.
///
/// # Errors
/// When the run is not committed.
pub async fn collect(mut run: ActiveRun, head: &Head) -> Result<Bytes, ApiError> {
    let mut aside = Aside::default();
    loop {
        match run.next().await {
            Step::Event(event) => aside.note(event),
            Step::App(_) => {}
            Step::Finished(done) => {
                return Ok(reply::completion(
                    head,
                    &done,
                    &aside.thoughts,
                    &aside.events,
                ));
            }
            Step::Failed(failure) => return Err(failure.into()),
        }
    }
}

/// What stands beside the text of a whole answer.
#[derive(Debug, Default)]
struct Aside {
    thoughts: String,
    events: Vec<Box<RawValue>>,
    bytes: usize,
}

impl Aside {
    fn note(&mut self, event: RunEvent) {
        if let RunEvent::Thought { text } = &event {
            let room = MAX_THOUGHTS - self.thoughts.len();
            self.thoughts.push_str(cut(text, room));
        }
        if let Some(event) = reply::extension(event)
            && self.events.len() < MAX_EVENTS
            && self.bytes + event.get().len() <= MAX_EVENT_BYTES
        {
            self.bytes += event.get().len();
            self.events.push(event);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::runs::tests::{Fake, wish};
    use crate::runs::{Failure, Finished};

    fn translator() -> Translator {
        Translator::new(
            Head {
                id: "chatcmpl-1".into(),
                created: 7,
                model: "agent".into(),
            },
            false,
        )
    }

    fn text(chunks: &[Bytes]) -> String {
        String::from_utf8(chunks.concat()).unwrap()
    }

    #[test]
    fn an_error_ends_the_stream_with_its_mark() {
        let mut t = translator();
        assert!(
            text(&t.step(Step::Event(RunEvent::Append {
                text: "half".into()
            })))
            .contains("half")
        );
        let end = t.step(Step::Failed(Failure::new(
            "provider_auth",
            "The key was refused.",
        )));
        assert_eq!(
            text(&end),
            "data: {\"error\":{\"message\":\"The key was refused.\",\"type\":\"provider_error\",\"param\":null,\"code\":\"provider_auth\"}}\n\ndata: [DONE]\n\n"
        );
        assert!(t.is_over());
    }

    #[test]
    fn a_replacement_after_other_text_was_sent_is_an_error() {
        let mut t = translator();
        let _ = t.step(Step::Event(RunEvent::Append {
            text: "half".into(),
        }));
        let end = text(&t.step(Step::Event(RunEvent::Replace {
            text: "other".into(),
        })));
        assert!(end.contains("answer_restarted") && end.ends_with("data: [DONE]\n\n"));
        assert!(t.is_over());
    }

    #[test]
    fn an_answer_that_never_streamed_comes_with_the_end() {
        let mut t = translator();
        let end = t.step(Step::Finished(Finished {
            text: "x".repeat(100_000),
            ..Finished::default()
        }));
        assert_eq!(end.len(), 4 + 2);
        assert!(t.is_over());
    }

    #[test]
    fn what_stands_beside_a_whole_answer_is_bounded() {
        let mut aside = Aside::default();
        for _ in 0..MAX_EVENTS + 1 {
            aside.note(RunEvent::Warning {
                code: "c".into(),
                message: "m".into(),
            });
            aside.note(RunEvent::Thought {
                text: "ä".repeat(1_000),
            });
        }
        assert_eq!(aside.events.len(), MAX_EVENTS);
        assert_eq!(aside.thoughts.len(), MAX_THOUGHTS);
        let mut aside = Aside::default();
        for _ in 0..20 {
            aside.note(RunEvent::Warning {
                code: "c".into(),
                message: "m".repeat(30_000),
            });
        }
        assert!(aside.events.len() == 8 && aside.bytes <= MAX_EVENT_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_bridged_by_comments_after_the_first_chunk() {
        let (fake, mut wishes) = Fake::new();
        let run = ActiveRun::start(fake, wish()).await.unwrap();
        let (_, events) = wishes.recv().await.unwrap();
        let (tx, mut rx) = mpsc::channel(QUEUE);
        let feeding = tokio::spawn(feed(run, translator(), tx));
        assert!(rx.recv().await.unwrap().starts_with(b"data: {"));
        assert_eq!(rx.recv().await.unwrap(), reply::KEEP_ALIVE);
        assert_eq!(rx.recv().await.unwrap(), reply::KEEP_ALIVE);
        drop(rx);
        feeding.await.unwrap();
        events.closed().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_loses_its_run() {
        let (fake, mut wishes) = Fake::new();
        let run = ActiveRun::start(fake.clone(), wish()).await.unwrap();
        let (_, events) = wishes.recv().await.unwrap();
        let (tx, rx) = mpsc::channel(1);
        let feeding = tokio::spawn(feed(run, translator(), tx));
        events.closed().await;
        feeding.await.unwrap();
        assert_eq!(fake.cancelled().await.as_str(), "run-1");
        drop(rx);
    }
}
