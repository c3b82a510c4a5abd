//! Server-sent events: hints to every open page, and the frames of one answer.

use super::Sessions;
use super::error::ApiError;
use super::hints::Hint;
use super::keeper::Keeper;
use super::live::Numbered;
use super::shown::shown;
use super::turn::Turn;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream::{self, Stream};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use ipc_proto::console::{Ask, Found};
use ipc_proto::operator_frames::Frame;
use serde_json::Value;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

/// Silence after which a comment is sent.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How often an answer is looked at that another worker writes.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Frames taken at once.
const AT_ONCE: usize = 64;

/// What every stream has: its share of the clients, and its session.
pub struct Client {
    /// One of the clients that are served at once.
    pub permit: OwnedSemaphorePermit,
    /// The session's id.
    pub session: String,
    /// Who knows whether it still holds.
    pub sessions: Arc<Sessions>,
    /// Turns true when this worker takes no more requests.
    pub stopping: watch::Receiver<bool>,
}

impl Client {
    /// Waits until the session has ended.
    async fn logged_out(&self) {
        let mut changes = self.sessions.changes();
        while self.sessions.holds(&self.session) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}

fn response(events: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static) -> Response {
    let mut response = Body::from_stream(events).into_response();
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn event(number: Option<u64>, name: &str, data: &str) -> String {
    let mut text = String::with_capacity(data.len() + 64);
    if let Some(number) = number {
        let _ = writeln!(text, "id: {number}");
    }
    // JSON has no line ends of its own.
    let _ = write!(text, "event: {name}\ndata: {data}\n\n");
    text
}

fn heartbeat() -> Bytes {
    Bytes::from_static(b": \n\n")
}

/// Hints, until the client lets too many wait, logs out, or this worker ends.
#[must_use]
pub fn hints(client: Client, hints: mpsc::Receiver<Hint>) -> Response {
    // A first word: the page knows that it is connected.
    let first = stream::iter([Ok(heartbeat())]);
    let rest = stream::unfold((client, hints), |(client, mut hints)| async move {
        let stopping = &mut client.stopping.clone();
        let bytes = tokio::select! {
            hint = hints.recv() => {
                let hint = hint?;
                Bytes::from(event(None, hint.name(), &hint.data().to_string()))
            }
            () = tokio::time::sleep(HEARTBEAT) => heartbeat(),
            () = client.logged_out() => return None,
            _ = stopping.wait_for(|stop| *stop) => return None,
        };
        Some((Ok(bytes), (client, hints)))
    });
    response(stream::StreamExt::chain(first, rest))
}

struct Following {
    client: Client,
    turn: Arc<Turn>,
    changes: watch::Receiver<u64>,
    after: u64,
    goes_on: bool,
}

/// The frames of an answer that is written here, from a number on.
#[must_use]
pub fn frames(client: Client, turn: Arc<Turn>, after: u64) -> Response {
    let following = Following {
        client,
        changes: turn.changes(),
        turn,
        after,
        goes_on: true,
    };
    response(stream::unfold(following, |mut following| async move {
        loop {
            if !following.goes_on {
                return None;
            }
            following.changes.mark_unchanged();
            let (frames, goes_on) = following.turn.since(following.after, AT_ONCE);
            following.goes_on = goes_on;
            if let Some(number) = frames.iter().rev().find_map(|frame| frame.number) {
                following.after = number;
            }
            if !frames.is_empty() {
                let bytes: String = frames
                    .iter()
                    .map(|Numbered { number, name, data }| event(*number, name, data))
                    .collect();
                return Some((Ok(Bytes::from(bytes)), following));
            }
            let Following {
                client, changes, ..
            } = &mut following;
            tokio::select! {
                changed = changes.changed() => changed.ok()?,
                () = tokio::time::sleep(HEARTBEAT) => return Some((Ok(heartbeat()), following)),
                () = client.logged_out() => return None,
            }
        }
    }))
}

/// An answer that is not written here: its end, once it has one.
#[must_use]
pub fn stored(client: Client, keeper: Arc<Keeper>, found: Found) -> Response {
    let state = Some((client, keeper, found, false));
    response(stream::unfold(state, |state| async move {
        let (client, keeper, found, told) = state?;
        let message = &found.message;
        if !message.status.is_open() {
            let shown = shown(message);
            let frame = match shown {
                Value::Object(message) => Frame::Finish { message },
                _ => return None,
            };
            let frames = frame.fit();
            let bytes: String = frames
                .iter()
                .map(|frame| event(Some(1), frame.name(), &frame.data()))
                .collect();
            return Some((Ok(Bytes::from(bytes)), None));
        }
        if !told {
            let state = message.status.name().to_owned();
            let frame = Frame::Status { state };
            let bytes = event(None, frame.name(), &frame.data());
            return Some((Ok(Bytes::from(bytes)), Some((client, keeper, found, true))));
        }
        let stopping = &mut client.stopping.clone();
        tokio::select! {
            () = tokio::time::sleep(LOOK_AGAIN) => {}
            () = client.logged_out() => return None,
            _ = stopping.wait_for(|stop| *stop) => return None,
        }
        let ask = Ask::ShowMessage {
            id: message.id.clone(),
        };
        let next: Result<Found, ApiError> = keeper.ask(&ask).await;
        // A store that starts anew is waited for, a message that is gone is not.
        let found = match next {
            Ok(found) => found,
            Err(e) if e.status == 404 => return None,
            Err(_) => found,
        };
        Some((Ok(heartbeat()), Some((client, keeper, found, true))))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_lines() {
        assert_eq!(
            event(Some(7), "append", "{}"),
            "id: 7\nevent: append\ndata: {}\n\n"
        );
        assert_eq!(event(None, "threads", "{}"), "event: threads\ndata: {}\n\n");
    }
}
