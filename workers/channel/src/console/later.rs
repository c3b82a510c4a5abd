//! An answer that comes later, as a message of its thread. Every open page is told to read again.

use super::error::ApiError;
use super::hints::{Hint, Hints};
use super::keeper::{Keeper, Missed};
use super::live::{BackgroundWork, background};
use super::turn::now;
use crate::later::{Later, Presented, not_posted, posted};
use futures_util::future::BoxFuture;
use ipc_proto::console::{Ask, Author, MAX_TITLE, Message, Standing, Thread, ThreadView};
use ipc_proto::edges::delivery::{Obstacle, Reply};
use ipc_proto::{ConversationId, Until};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;

/// How long an app may take to be entered.
const APP_TIME: Duration = Duration::from_secs(30);

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

    async fn enter(&self, thread: String, message: Message, until: Until) -> Reply {
        let id = message.id.clone();
        let ask = Ask::Deliver {
            thread: thread.clone(),
            message: Box::new(message),
            until,
        };
        match self.keeper.enter(&ask, until).await {
            Ok(()) => {
                self.hints.tell(&Hint::Thread(thread));
                self.hints.tell(&Hint::Threads);
                posted(id)
            }
            Err(missed) => of_missed(&missed),
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

/// The store keeps one message of a key, so that a repetition would change nothing. Yet what may be there is not said
/// to be absent: its record could be cancelled, or expire, before the next attempt.
fn of_missed(missed: &Missed) -> Reply {
    match missed {
        Missed::Refused(error) => refused(error),
        Missed::Unknown(error) => not_posted(Obstacle::Unknown, &error.code, error.message.clone()),
    }
}

/// The store said no, or was not asked.
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
        until: Until,
    ) -> BoxFuture<'_, Reply> {
        Box::pin(async move {
            match thread_of(&destination) {
                Some(thread) => self.enter(thread, message(&key, text, now()), until).await,
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
            self.enter(thread, message, Until::after(APP_TIME)).await
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ipc_proto::channel::Fault;
    use ipc_proto::console::MAX_BODY;
    use ipc_proto::edges::store::{Reply as Answer, Request, Store};
    use ipc_proto::{Body, Role, Server};

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

    struct Bed {
        threads: Threads,
        keeper: Arc<Keeper>,
    }

    impl Bed {
        fn new() -> Self {
            let keeper = Arc::new(Keeper::default());
            let threads = Threads::new(keeper.clone(), Arc::new(Hints::default()));
            Self { threads, keeper }
        }

        /// A store that comes, answers one request, and is gone. Without an answer it is gone with it.
        fn store(
            &self,
            answer: Option<Result<Answer, Fault>>,
        ) -> impl Future<Output = Ask> + use<> {
            let (ours, theirs) = ipc_proto::link::pair().unwrap();
            self.keeper.store.open(ours, Role::Store).unwrap();
            async move {
                let mut server = Server::<Store>::new(theirs, Role::ChannelConsole).unwrap();
                let mut call = server.recv().await.unwrap().unwrap();
                match answer {
                    Some(Ok(answer)) => call.responder.send(&answer, &[]).await.unwrap(),
                    Some(Err(fault)) => call.responder.fault(&fault).await.unwrap(),
                    None => {}
                }
                drop(server);
                let Request::Console { ask } = call.request else {
                    panic!("{:?}", call.request);
                };
                ask.unpack_json(&mut call.fds, MAX_BODY).unwrap()
            }
        }

        async fn deliver(&self, within: Duration) -> Reply {
            let thread = ConversationId::parse("web:1").unwrap();
            let until = Until::after(within);
            let delivering = self
                .threads
                .deliver(thread, "k".into(), "text".into(), until);
            delivering.await
        }
    }

    fn entered() -> Option<Result<Answer, Fault>> {
        let answer = Body::Inline(b"null".to_vec());
        Some(Ok(Answer::Console { answer }))
    }

    fn obstacle(reply: &Reply) -> Option<Obstacle> {
        match reply {
            Reply::NotDelivered { obstacle, .. } => Some(*obstacle),
            _ => None,
        }
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_store_that_is_replaced_has_the_message_once() {
        let bed = Bed::new();
        let first = bed.store(None);
        let both = async {
            let one = first.await;
            (one, bed.store(entered()).await)
        };
        let (reply, (one, two)) = tokio::join!(bed.deliver(LONG), both);
        assert!(matches!(reply, Reply::Delivered { .. }), "{reply:?}");
        // The same message to both, of which the store keeps one.
        assert_eq!(one, two);
    }

    /// Said to be absent, it could be cancelled with its message in the thread.
    #[tokio::test]
    async fn what_a_lost_store_may_have_entered_is_not_said_to_be_absent() {
        let full = || Some(Err(Fault::new("disk_full", "m")));
        let bed = Bed::new();
        let (reply, _) = tokio::join!(bed.deliver(LONG), bed.store(full()));
        assert_eq!(obstacle(&reply), Some(Obstacle::Now));

        let first = bed.store(None);
        let both = async {
            first.await;
            bed.store(full()).await
        };
        let (reply, _) = tokio::join!(bed.deliver(LONG), both);
        assert_eq!(obstacle(&reply), Some(Obstacle::Unknown));

        // Asked, and silent until it is too late.
        let (ours, _theirs) = ipc_proto::link::pair().unwrap();
        bed.keeper.store.open(ours, Role::Store).unwrap();
        let reply = bed.deliver(Duration::from_millis(50)).await;
        assert_eq!(obstacle(&reply), Some(Obstacle::Unknown));

        // Nobody was asked at all.
        bed.keeper.store.set(None);
        let reply = bed.deliver(Duration::from_millis(50)).await;
        assert_eq!(obstacle(&reply), Some(Obstacle::Now));
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
