//! The HTTP+SSE transport of revision 2024-11-05, which rmcp no longer has.
//!
//! One long GET carries everything from the server. Its first event, `endpoint`, names the address
//! to POST to; each further `message` event is one JSON-RPC message. The named address must be of
//! the same origin as the stream, or the host would post to wherever a server points it.

use crate::connection::chain;
use crate::error::ConnectError;
use crate::pipes::Overflow;
use crate::web::{Endpoint, same_origin};
use futures_util::{Stream, StreamExt};
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use sse_stream::{Sse, SseStream};
use std::io;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

/// Longest `endpoint` event in bytes.
const ENDPOINT_MAX: usize = 4096;
/// Messages that wait for rmcp; beyond them the server's stream is not read.
const QUEUE: usize = 16;

/// Why a message could not be posted.
#[derive(Debug, Error)]
pub enum PostError {
    #[error("the message could not be posted")]
    Http(#[from] reqwest::Error),
    #[error("the server answered a posted message with HTTP status {0}")]
    Status(u16),
}

/// The client end of one HTTP+SSE session.
pub struct SseTransport {
    client: reqwest::Client,
    post: Url,
    headers: HeaderMap,
    messages: mpsc::Receiver<ServerJsonRpcMessage>,
    /// Ends the long GET with the transport.
    _reader: AbortOnDropHandle<()>,
}

impl SseTransport {
    /// Opens the stream and waits for its `endpoint` event; the caller bounds the time.
    ///
    /// # Errors
    /// When the answer is no event stream, or names no address or one of another origin.
    pub async fn open(
        client: reqwest::Client,
        endpoint: &Endpoint,
        max_event: usize,
        overflow: Overflow,
    ) -> Result<Self, ConnectError> {
        let response = client
            .get(endpoint.url.clone())
            .headers(endpoint.headers.clone())
            .header(ACCEPT, "text/event-stream")
            .send()
            .await
            .map_err(|error| ConnectError::Handshake(chain(&error)))?;
        let status = response.status();
        let is_stream = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .is_some_and(|kind| kind.trim_start().starts_with("text/event-stream"));
        if !status.is_success() || !is_stream {
            return Err(ConnectError::Handshake(format!(
                "no event stream (HTTP status {})",
                status.as_u16()
            )));
        }
        let mut bound = EventBound::new(max_event);
        let bytes = response.bytes_stream().map(move |chunk| {
            let chunk = chunk.map_err(io::Error::other)?;
            if bound.passes(&chunk) {
                return Ok(chunk);
            }
            overflow.set();
            Err(io::Error::other("an event exceeds the accepted size"))
        });
        let mut events = SseStream::from_bytes_stream(Box::pin(bytes));
        let post = post_address(&endpoint.url, &mut events).await?;
        let (sender, messages) = mpsc::channel(QUEUE);
        let reader = tokio::spawn(async move {
            while let Some(Ok(event)) = events.next().await {
                let Some(message) = message(event) else {
                    continue;
                };
                if sender.send(message).await.is_err() {
                    break;
                }
            }
        });
        Ok(Self {
            client,
            post,
            headers: endpoint.headers.clone(),
            messages,
            _reader: AbortOnDropHandle::new(reader),
        })
    }
}

/// The address of the first event, resolved against the stream's own.
async fn post_address(
    base: &Url,
    events: &mut (impl Stream<Item = Result<Sse, sse_stream::Error>> + Unpin),
) -> Result<Url, ConnectError> {
    let refused = |reason: String| Err(ConnectError::Handshake(reason));
    let event = loop {
        match events.next().await {
            None => return refused("the stream ended before it named an endpoint".to_owned()),
            Some(Err(error)) => return refused(chain(&error)),
            // Blocks without data, such as keep-alives, are no events.
            Some(Ok(event)) if event.data.is_none() => {}
            Some(Ok(event)) => break event,
        }
    };
    let data = event.data.unwrap_or_default();
    if event.event.as_deref() != Some("endpoint") || data.len() > ENDPOINT_MAX {
        return refused("its first event names no endpoint".to_owned());
    }
    match base.join(data.trim()) {
        Ok(post) if same_origin(base, &post) => Ok(post),
        Ok(_) => refused("its endpoint is of another origin".to_owned()),
        Err(error) => refused(format!("its endpoint is no address: {error}")),
    }
}

/// The message of an event, if it is one. Garbage is dropped, as from a stdio server.
fn message(event: Sse) -> Option<ServerJsonRpcMessage> {
    if !matches!(event.event.as_deref(), None | Some("message")) {
        return None;
    }
    match serde_json::from_str(event.data.as_deref()?) {
        Ok(message) => Some(message),
        Err(error) => {
            tracing::debug!(%error, "an event is no message");
            None
        }
    }
}

impl Transport<RoleClient> for SseTransport {
    type Error = PostError;

    fn send(
        &mut self,
        item: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let request = self
            .client
            .post(self.post.clone())
            .headers(self.headers.clone())
            .json(&item);
        async move {
            // The answer comes through the stream; this body says nothing and is not read.
            let status = request.send().await?.status();
            if status.is_success() {
                return Ok(());
            }
            Err(PostError::Status(status.as_u16()))
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        self.messages.recv().await
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.messages.close();
        Ok(())
    }
}

/// Counts the bytes of the event that is being received, across chunks.
struct EventBound {
    max: usize,
    event: usize,
    line: usize,
    after_return: bool,
}

impl EventBound {
    fn new(max: usize) -> Self {
        Self {
            max,
            event: 0,
            line: 0,
            after_return: false,
        }
    }

    /// False once one event, its line ends included, has more than `max` bytes.
    fn passes(&mut self, chunk: &[u8]) -> bool {
        for byte in chunk {
            self.event += 1;
            let ends_line = matches!(byte, b'\n' | b'\r');
            let continues_end = *byte == b'\n' && self.after_return;
            self.after_return = *byte == b'\r';
            match (ends_line, continues_end) {
                (_, true) => {}
                (true, false) if self.line == 0 => self.event = 0,
                (true, false) => self.line = 0,
                (false, _) => self.line += 1,
            }
            if self.event > self.max {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_event_is_bounded_and_the_next_one_starts_anew() {
        for (chunks, passes) in [
            (&["data: 123\n\n", "data: 456\n\n"] as &[&str], true),
            (&["data: 123\r\n\r\n", "data: 456\r\n\r\n"], true),
            (&["data: 123\r\r", "data: 456\r\r"], true),
            (&["data: 1", "23", "45678"], false),
            (&["data: 1\n", "data: 2\n"], false),
            (&[": a\n\n", ": a\n\n", ": a\n\n", ": a\n\n"], true),
            (&["\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n"], true),
        ] {
            let mut bound = EventBound::new(13);
            let all = chunks.iter().all(|chunk| bound.passes(chunk.as_bytes()));
            assert_eq!(all, passes, "{chunks:?}");
        }
    }

    async fn address(stream: &'static str) -> Result<Url, ConnectError> {
        let base = Url::parse("http://127.0.0.1:1/x/sse").unwrap();
        let bytes = futures_util::stream::iter([Ok::<_, io::Error>(stream.as_bytes())]);
        post_address(&base, &mut SseStream::from_bytes_stream(bytes)).await
    }

    #[tokio::test]
    async fn the_endpoint_is_resolved_within_the_origin() {
        for (stream, path) in [
            ("event: endpoint\ndata: /m?s=1\n\n", "/m?s=1"),
            (": hello\n\nevent: endpoint\ndata: m\n\n", "/x/m"),
            ("event: endpoint\ndata: http://127.0.0.1:1/abs\n\n", "/abs"),
        ] {
            let url = address(stream).await.unwrap();
            let found = format!(
                "{}{}",
                url.path(),
                url.query().map(|q| format!("?{q}")).unwrap_or_default()
            );
            assert_eq!(found, path);
        }
    }

    #[tokio::test]
    async fn an_endpoint_of_another_origin_is_refused() {
        for stream in [
            "event: endpoint\ndata: http://127.0.0.1:2/m\n\n",
            "event: endpoint\ndata: //evil.example/m\n\n",
            "event: endpoint\ndata: https://127.0.0.1:1/m\n\n",
            "event: endpoint\ndata: file:///etc/passwd\n\n",
            "event: message\ndata: {}\n\n",
            "data: /m\n\n",
            "",
        ] {
            assert!(address(stream).await.is_err(), "{stream}");
        }
    }

    #[test]
    fn only_message_events_with_json_rpc_are_messages() {
        let rpc = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        assert!(message(Sse::default().data(rpc)).is_some());
        assert!(message(Sse::default().event("message").data(rpc)).is_some());
        for other in [
            Sse::default().event("ping").data(rpc),
            Sse::default().data("{"),
            Sse::default(),
        ] {
            assert!(message(other.clone()).is_none(), "{other:?}");
        }
    }
}
