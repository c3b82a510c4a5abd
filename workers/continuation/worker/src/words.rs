//! A run that puts a later answer into words: it has the model and no tool, no file and no store.

use ipc_proto::chat::{Block, ChatMessage, ChatRole};
use ipc_proto::edges::control::{Trigger, TurnInput};
use ipc_proto::edges::events::RunEvent;
use ipc_proto::{ConversationId, EventReceiver, RunId};
use std::time::Duration;
use worker_kit::{Control, ControlError};

/// Largest answer in bytes that is taken from a run: more than 200,000 characters are refused.
const MAX_ANSWER: usize = 1024 * 1024;

/// What it is to say something about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The continuation.
    pub continuation: String,
    /// The physical conversation, if any.
    pub target: Option<String>,
    /// What was said before, the oldest first.
    pub before: Vec<(ChatRole, String)>,
    /// The one message, with the result framed as data.
    pub message: String,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Words {
    /// The answer.
    Text(String),
    /// No model was asked.
    NotAsked(Option<Duration>, String),
    /// A model may have been asked: a code and a sentence.
    Failed(String, String),
}

/// Ends the run when nobody waits for its words any more.
struct Wanted<'a> {
    control: &'a Control,
    run: Option<RunId>,
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            let control = self.control.clone();
            tokio::spawn(async move {
                // Closing the events ends a run that works; one that waits is told apart.
                let _ = control
                    .cancel_run(run, "the answer is not waited for")
                    .await;
            });
        }
    }
}

/// Runs it to its end. Dropping the future ends the run.
pub async fn put(control: &Control, task: Task) -> Words {
    let refused = |reason: String| Words::NotAsked(None, reason);
    // A conversation of its own: it neither waits for a turn of the origin's nor holds one up.
    let own = format!("continuation:{}", task.continuation);
    let conversation = match ConversationId::parse(&own) {
        Ok(conversation) => conversation,
        Err(e) => return Words::Failed("invalid_request".to_owned(), e.to_string()),
    };
    let delivery = task.target.as_deref().map(ConversationId::parse);
    let delivery = delivery
        .and_then(Result::ok)
        .unwrap_or_else(|| conversation.clone());
    let said = |(role, text): (ChatRole, String)| ChatMessage::text(role, text);
    let input = TurnInput {
        content: vec![Block::Text { text: task.message }],
        preceding: task.before.into_iter().map(said).collect(),
        ..TurnInput::default()
    };
    let trigger = Trigger {
        source: "continuation".to_owned(),
        detail: Some(task.continuation),
    };
    let started = match control
        .start_run(conversation, delivery, trigger, &input)
        .await
    {
        Ok(started) => started,
        Err(ControlError::Refused(fault)) => return refused(fault.to_string()),
        // Whether the run was started is not known; the supervisor tells one that it can't tell.
        Err(e) => return Words::Failed("run_not_started".to_owned(), e.to_string()),
    };
    let mut wanted = Wanted {
        control,
        run: Some(started.run),
    };
    let mut events = match EventReceiver::new(started.events) {
        Ok(events) => events,
        Err(e) => return Words::Failed("run_not_followed".to_owned(), e.to_string()),
    };
    let mut began = false;
    loop {
        let outcome = match events.next().await {
            Ok(Some((event, mut fds))) => match event {
                RunEvent::Started { .. } => {
                    began = true;
                    continue;
                }
                RunEvent::Finish { text, .. } => match text.unpack_text(&mut fds, MAX_ANSWER) {
                    Ok(text) => Words::Text(text),
                    Err(e) => Words::Failed("answer_unreadable".to_owned(), e.to_string()),
                },
                RunEvent::Failed { kind, message, .. } if began => Words::Failed(kind, message),
                RunEvent::Failed { message, .. } => refused(message),
                _ => continue,
            },
            Ok(None) => Words::Failed(
                "worker_lost".to_owned(),
                "the run's process ended".to_owned(),
            ),
            Err(e) => Words::Failed("run_not_followed".to_owned(), e.to_string()),
        };
        wanted.run = None;
        return outcome;
    }
}
