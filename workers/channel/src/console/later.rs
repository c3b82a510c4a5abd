//! An answer that comes later, as a message of its thread. Every open page is told to read again.

use super::error::ApiError;
use super::hints::{Hint, Hints};
use super::keeper::Keeper;
use super::live::{BackgroundWork, background};
use super::turn::now;
use crate::later::{Later, Presented, not_posted, posted};
use futures_util::future::BoxFuture;
use ipc_proto::ConversationId;
use ipc_proto::console::{Ask, Author, MAX_TITLE, Message, Standing, Thread, ThreadView};
use ipc_proto::edges::delivery::{Obstacle, Reply};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Posts into threads.
pub struct Threads {
    keeper: Arc<Keeper>,
    hints: Arc<Hints>,
}

impl Threads {
    /// Through the store, with hints to the pages.
    #[must_use]
    pub fn new(keeper: Arc<Keeper>, hints: Arc<Hints>) -> Self {
        Self { keeper, hints }
    }

    async fn enter(&self, thread: String, message: Message) -> Reply {
        let id = message.id.clone();
        let ask = Ask::Deliver {
            thread: thread.clone(),
            message: Box::new(message),
        };
        match self.keeper.ask::<()>(&ask).await {
            Ok(()) => {
                self.hints.tell(&Hint::Thread(thread));
                self.hints.tell(&Hint::Threads);
                posted(id)
            }
            Err(e) => refused(&e),
        }
    }

    /// The thread of an agent that is not ours, begun by its first app.
    async fn begin(&self, thread: &str, title: String) -> Result<(), ApiError> {
        let id = thread.to_owned();
        let show = Ask::ShowThread {
            id: id.clone(),
            before: None,
            limit: 1,
        };
        match self.keeper.ask::<ThreadView>(&show).await {
            Err(error) if error.status == 404 => {}
            other => return other.map(|_| ()),
        }
        self.keeper
            .ask::<Thread>(&Ask::NewThread { id: id.clone() })
            .await?;
        let edit = Ask::EditThread {
            id,
            title: Some(title.chars().take(MAX_TITLE).collect()),
            archived: None,
            read: None,
        };
        self.keeper.ask::<Thread>(&edit).await.map(|_| ())
    }
}

/// The store keeps one message of a key, so that a repetition changes nothing: whatever it could
/// not answer may be asked again.
fn refused(error: &ApiError) -> Reply {
    let obstacle = match error.status {
        400 | 404 | 409 | 413 => Obstacle::Ever,
        _ => Obstacle::Now,
    };
    not_posted(obstacle, &error.code, error.message.clone())
}

/// The continuation that a delivery is the answer of, as its key says.
fn of_continuation(key: &str) -> Vec<String> {
    let id = key.strip_prefix("continuation:");
    id.map(str::to_owned).into_iter().collect()
}

fn message(key: &str, text: String, now: i64) -> Message {
    let digest = Sha256::digest(key.as_bytes());
    let id: String = digest[..16].iter().map(|b| format!("{b:02x}")).collect();
    Message {
        id: id.clone(),
        role: Author::Assistant,
        created_at: now,
        text,
        status: Standing::Succeeded,
        run_id: None,
        attachments: vec![],
        parts: vec![],
        activity: vec![background(
            format!("{id}-a"),
            BackgroundWork::Ended,
            &of_continuation(key),
            now,
        )],
        failure: None,
        usage: None,
        truncated: false,
    }
}

fn thread_of(destination: &ConversationId) -> Option<String> {
    let thread = destination.as_str().strip_prefix("web:")?;
    (!thread.is_empty()).then(|| thread.to_owned())
}

fn no_thread() -> Reply {
    let message = "that is no thread of the console";
    not_posted(Obstacle::Ever, "unsupported_destination", message)
}

impl Later for Threads {
    fn reach(&self, destination: ConversationId) -> BoxFuture<'_, Reply> {
        Box::pin(async move {
            let Some(id) = thread_of(&destination) else {
                return no_thread();
            };
            let ask = Ask::ShowThread {
                id,
                before: None,
                limit: 1,
            };
            match self.keeper.ask::<ThreadView>(&ask).await {
                Ok(_) => Reply::Reachable,
                Err(e) => refused(&e),
            }
        })
    }

    fn deliver(
        &self,
        destination: ConversationId,
        key: String,
        text: String,
    ) -> BoxFuture<'_, Reply> {
        Box::pin(async move {
            match thread_of(&destination) {
                Some(thread) => self.enter(thread, message(&key, text, now())).await,
                None => no_thread(),
            }
        })
    }

    fn present(&self, destination: ConversationId, app: Presented) -> BoxFuture<'_, Reply> {
        Box::pin(async move {
            let Some(thread) = thread_of(&destination) else {
                return no_thread();
            };
            if let Err(e) = self.begin(&thread, app.title).await {
                return refused(&e);
            }
            let key = format!("app:{}", app.part.id());
            let mut message = message(&key, String::new(), now());
            message.activity.clear();
            message.run_id = Some(app.run.as_str().to_owned());
            message.parts.push(app.part);
            self.enter(thread, message).await
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn one_key_is_one_message() {
        let (one, again) = (message("k", "a".into(), 1), message("k", "a".into(), 2));
        assert_eq!(one.id, again.id);
        assert_ne!(one.id, message("l", "a".into(), 1).id);
        assert!(one.id.len() == 32 && one.status == Standing::Succeeded);
        assert_eq!(one.activity[0].arguments, None);
        // A page finds the way from an answer to what it is the answer of.
        let answer = message("continuation:c1", "a".into(), 1);
        let ids = answer.activity[0].arguments.as_deref();
        assert_eq!(ids, Some(r#"["c1"]"#));
    }

    #[test]
    fn only_threads_are_places() {
        let thread = |text: &str| thread_of(&ConversationId::parse(text).unwrap());
        assert_eq!(thread("web:1"), Some("1".into()));
        for other in ["web:", "webhook:1", "1"] {
            assert_eq!(thread(other), None, "{other}");
        }
    }

    #[test]
    fn what_the_store_could_not_say_may_be_asked_again() {
        let obstacle = |status: u16| match refused(&ApiError::new(status, "c", "m")) {
            Reply::NotDelivered { obstacle, .. } => obstacle,
            other => panic!("{other:?}"),
        };
        assert_eq!([404, 409].map(obstacle), [Obstacle::Ever; 2]);
        assert_eq!([503, 507].map(obstacle), [Obstacle::Now; 2]);
    }
}
