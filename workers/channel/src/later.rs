//! Answers that come later, word for word (spec s1, "Synthesis and delivery"): the continuation
//! worker asks, a channel posts.

use futures_util::future::BoxFuture;
use ipc_proto::channel::Call;
use ipc_proto::edges::control::EdgeName;
use ipc_proto::edges::delivery::{
    Delivery, MAX_PART, MAX_TEXT, Obstacle, Receipt, Reply, Request, TOO_LATE,
};
use ipc_proto::reply::ReplyPart;
use ipc_proto::{ConversationId, Role, RunId, Server, Until};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use worker_kit::Granted;

/// Deliveries under way at once; more wait.
const AT_ONCE: usize = 64;

/// A channel that can post something on its own.
pub trait Later: Send + Sync + 'static {
    /// Whether something could be posted there now.
    fn reach(&self, destination: ConversationId) -> BoxFuture<'_, Reply>;
    /// Posts a text; the same key posts one. Whatever waits within looks at `until` when its turn has come, and
    /// what was begun is over by then: whoever asked takes it for unknown afterwards, and an operator who finds no
    /// text may have it posted again. Dropped, it begins nothing more.
    fn deliver(
        &self,
        destination: ConversationId,
        key: String,
        text: String,
        until: Until,
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

/// Its time was over before its turn came.
#[must_use]
pub fn too_late() -> Reply {
    let message = "its time was over before its turn came";
    not_posted(Obstacle::Now, TOO_LATE, message)
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
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut calls = JoinSet::new();
    loop {
        tokio::select! {
            // Read at once, also while all turns are taken: who withdraws, or is gone, is heard. The channel bounds
            // how many wait.
            call = server.recv() => match call {
                Ok(Some(call)) => {
                    calls.spawn(answer(later.clone(), turns.clone(), call));
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
    // Its successor takes whatever it finds begun for unknown: nothing is begun any more.
    drop(server);
    while calls.join_next().await.is_some() {}
}

/// Answers one request when its turn comes. One that is withdrawn is not begun, and a post is broken off: what becomes
/// of it is written down as unknown by then.
async fn answer(later: Arc<impl Later>, turns: Arc<Semaphore>, call: Call<Delivery>) {
    let Call {
        request,
        mut fds,
        responder,
        ..
    } = call;
    let turn = tokio::select! {
        biased;
        () = responder.cancelled() => return,
        turn = turns.acquire() => turn.ok(),
        () = moment(&request) => None,
    };
    let reply = match request {
        // Said now, since whoever asked takes it for unknown soon.
        _ if turn.is_none() => too_late(),
        // A thread that is begun for an app gets its app.
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
        request => tokio::select! {
            biased;
            () = responder.cancelled() => return,
            reply = post(&*later, request, &mut fds) => reply,
        },
    };
    if let Err(e) = responder.send(&reply, &[]).await {
        tracing::debug!("nobody took what became of a delivery: {e}");
    }
}

/// When it is too late to begin with a request.
async fn moment(request: &Request) {
    match request {
        Request::Deliver { until, .. } => tokio::time::sleep(until.left()).await,
        Request::Reach { .. } | Request::Present { .. } => std::future::pending().await,
    }
}

async fn post(later: &impl Later, request: Request, fds: &mut VecDeque<OwnedFd>) -> Reply {
    match request {
        Request::Reach { destination } => later.reach(destination).await,
        Request::Deliver { until, .. } if until.is_over() => too_late(),
        Request::Deliver {
            destination,
            key,
            text,
            until,
        } => match text.unpack_text(fds, MAX_TEXT) {
            Ok(text) if !text.is_empty() => later.deliver(destination, key, text, until).await,
            Ok(_) => not_posted(Obstacle::Ever, "empty_notification", "there is no text"),
            Err(e) => not_posted(Obstacle::Ever, "invalid_request", e.to_string()),
        },
        Request::Present { .. } => not_posted(Obstacle::Ever, "invalid_request", "it is an app"),
    }
}

#[cfg(test)]
#[path = "later_tests.rs"]
mod tests;
