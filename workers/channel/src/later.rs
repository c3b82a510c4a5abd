//! Answers that come later, word for word (spec s1, "Synthesis and delivery"): the continuation
//! worker asks, a channel posts.

use futures_util::future::BoxFuture;
use ipc_proto::channel::Call;
use ipc_proto::edges::control::EdgeName;
use ipc_proto::edges::delivery::{Delivery, MAX_PART, MAX_TEXT, Obstacle, Receipt, Reply, Request};
use ipc_proto::reply::ReplyPart;
use ipc_proto::{ConversationId, Role, RunId, Server};
use std::sync::Arc;
use tokio::task::JoinSet;
use worker_kit::Granted;

/// Deliveries under way at once; more wait.
const AT_ONCE: usize = 64;

/// A channel that can post something on its own.
pub trait Later: Send + Sync + 'static {
    /// Whether something could be posted there now.
    fn reach(&self, destination: ConversationId) -> BoxFuture<'_, Reply>;
    /// Posts a text; the same key posts one.
    fn deliver(
        &self,
        destination: ConversationId,
        key: String,
        text: String,
    ) -> BoxFuture<'_, Reply>;
    /// Shows an app of an agent that is not ours. A channel that shows none need not know how.
    fn present(&self, _destination: ConversationId, _app: Presented) -> BoxFuture<'_, Reply> {
        let message = "nothing is shown there";
        let reply = not_posted(Obstacle::Ever, "unsupported_destination", message);
        Box::pin(async move { reply })
    }
}

/// An app of an agent that is not ours.
#[derive(Debug)]
pub struct Presented {
    /// What it belongs to.
    pub run: RunId,
    /// The thread's title while it has none.
    pub title: String,
    /// A [`ReplyPart::McpApp`].
    pub part: ReplyPart,
}

/// It was posted in one piece.
#[must_use]
pub fn posted(id: String) -> Reply {
    Reply::Delivered {
        pieces: 1,
        receipts: vec![Receipt { id: Some(id) }],
    }
}

/// It was not, or nobody knows.
#[must_use]
pub fn not_posted(obstacle: Obstacle, code: &str, message: impl Into<String>) -> Reply {
    Reply::NotDelivered {
        obstacle,
        code: code.to_owned(),
        message: message.into(),
        retry_after_ms: None,
    }
}

/// Serves a channel of the continuation worker, or of the app-bridge; gives back any other.
pub fn take(granted: Granted, later: &Arc<impl Later>) -> Option<Granted> {
    let asker = granted.peer.role;
    let ours = matches!(asker, Role::Continuation | Role::AppBridge);
    if granted.edge != EdgeName::Delivery || !ours {
        return Some(granted);
    }
    match Server::<Delivery>::new(granted.fd, asker) {
        Ok(server) => {
            let later = later.clone();
            tokio::spawn(serve(server, later));
        }
        Err(e) => tracing::error!("the channel for later answers can't be used: {e}"),
    }
    None
}

async fn serve(mut server: Server<Delivery>, later: Arc<impl Later>) {
    let mut calls = JoinSet::new();
    loop {
        let full = calls.len() >= AT_ONCE;
        tokio::select! {
            call = server.recv(), if !full => match call {
                Ok(Some(call)) => {
                    calls.spawn(answer(later.clone(), call));
                }
                Ok(None) => break,
                Err(e) => {
                    tracing::warn!("the channel for later answers broke: {e}");
                    break;
                }
            },
            Some(_) = calls.join_next() => {}
        }
    }
    // What was begun is finished: whoever asked may learn of it later.
    drop(server);
    while calls.join_next().await.is_some() {}
}

async fn answer(later: Arc<impl Later>, call: Call<Delivery>) {
    let Call {
        request,
        mut fds,
        responder,
        ..
    } = call;
    let reply = match request {
        Request::Reach { destination } => later.reach(destination).await,
        Request::Deliver {
            destination,
            key,
            text,
        } => {
            let text = text
                .unpack(&mut fds, MAX_TEXT)
                .map_err(|e| e.to_string())
                .and_then(|bytes| String::from_utf8(bytes).map_err(|e| e.to_string()));
            match text {
                Ok(text) if !text.is_empty() => later.deliver(destination, key, text).await,
                Ok(_) => not_posted(Obstacle::Ever, "empty_notification", "there is no text"),
                Err(e) => not_posted(Obstacle::Ever, "invalid_request", e),
            }
        }
        Request::Present {
            destination,
            run,
            title,
            part,
        } => match part.unpack_json::<ReplyPart>(&mut fds, MAX_PART) {
            Ok(part @ ReplyPart::McpApp { .. }) => {
                let app = Presented { run, title, part };
                later.present(destination, app).await
            }
            Ok(_) => not_posted(Obstacle::Ever, "invalid_request", "that is no app"),
            Err(e) => not_posted(Obstacle::Ever, "invalid_request", e.to_string()),
        },
    };
    if let Err(e) = responder.send(&reply, &[]).await {
        tracing::debug!("nobody took what became of a delivery: {e}");
    }
}
