//! One request to one model, from its first byte to its last.

use crate::event::{Broken, ModelEvent, Sink};
use crate::failure::{ErrorClass, Failure, retry_after};
use crate::http_client::describe;
use crate::provider::Service;
use crate::wire::{AnswerParser, Delta};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use ipc_proto::edges::egress::FinishReason;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::timeout;

/// Most bytes of a refusal's body that are read.
pub const MAX_ERROR_BODY: usize = 64 * 1024;
/// Between two times that arguments are told.
const ARGUMENTS_PAUSE: Duration = Duration::from_millis(50);
/// How long a refusal's body may take: it is only an explanation.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Asks once and streams what comes into `sink`, with the arguments of calls of these tools before
/// they are whole. `streamed` becomes true with the first piece, so
/// that the caller knows whether its reader has something to discard.
///
/// # Errors
/// [`Broken::Failure`] when there is no whole answer, [`Broken::Gone`] when nobody waits for it.
pub async fn attempt<S: Sink>(
    client: &reqwest::Client,
    service: &Service,
    body: Bytes,
    idle: Duration,
    arguments_of: &[String],
    sink: &mut S,
    streamed: &mut bool,
) -> Result<FinishReason, Broken> {
    let request = client
        .post(service.url.clone())
        .headers(service.headers.clone())
        .body(body)
        .send();
    let mut response = match timeout(idle, request).await {
        Err(_) => return Err(silence(idle).into()),
        Ok(Err(e)) => return Err(unreachable(service, e).into()),
        Ok(Ok(response)) => response,
    };
    if !response.status().is_success() {
        return Err(refusal(service, response).await.into());
    }
    let kind = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or("");
    if kind.starts_with("application/json") || kind.starts_with("text/html") {
        return Err(no_stream(service, response).await.into());
    }

    let mut parser = AnswerParser::new(service.api).streaming(arguments_of);
    let mut held = Held::default();
    while !parser.is_complete() {
        let piece = match timeout(idle, response.chunk()).await {
            Err(_) => return Err(silence(idle).into()),
            Ok(Ok(Some(piece))) => piece,
            Ok(Ok(None)) => break,
            Ok(Err(e)) => {
                // What was parsed may be whole although the connection ended roughly.
                tracing::debug!(error = %describe(e), "a model stream ended with an error");
                break;
            }
        };
        for delta in merge(parser.push(&piece).map_err(|f| scrubbed(service, f))?) {
            *streamed = true;
            sink.send(match delta {
                Delta::Text(text) => ModelEvent::Text(text),
                Delta::Thought(text) => ModelEvent::Thought(text),
                Delta::Arguments { call, name, text } => {
                    held.add(call, name, &text);
                    continue;
                }
            })
            .await?;
        }
        for event in held.due(Instant::now()) {
            sink.send(event).await?;
        }
    }
    let end = parser.end()?;
    *streamed = true;
    for call in end.calls {
        sink.send(call.into()).await?;
    }
    if let Some(usage) = end.usage {
        sink.send(ModelEvent::Usage(usage)).await?;
    }
    Ok(end.finish)
}

/// Arguments on their way. They are told a few times in a second, however small the pieces are that
/// come; what is held when the answer ends comes with the whole call.
#[derive(Debug, Default)]
struct Held {
    pieces: Vec<(u32, String, String)>,
    told: Option<Instant>,
}

impl Held {
    fn add(&mut self, call: u32, name: String, text: &str) {
        match self.pieces.iter_mut().find(|(own, ..)| *own == call) {
            Some((_, _, held)) => held.push_str(text),
            None => self.pieces.push((call, name, text.to_owned())),
        }
    }

    fn due(&mut self, now: Instant) -> Vec<ModelEvent> {
        let early = |at: Instant| now.saturating_duration_since(at) < ARGUMENTS_PAUSE;
        if self.pieces.is_empty() || self.told.is_some_and(early) {
            return vec![];
        }
        self.told = Some(now);
        let event = |(call, name, text)| ModelEvent::Arguments { call, name, text };
        self.pieces.drain(..).map(event).collect()
    }
}

/// Joins neighbours of one kind: one packet of the network often holds several events.
fn merge(deltas: Vec<Delta>) -> Vec<Delta> {
    let mut out: Vec<Delta> = Vec::with_capacity(deltas.len());
    for delta in deltas {
        match (out.last_mut(), delta) {
            (Some(Delta::Text(before)), Delta::Text(text))
            | (Some(Delta::Thought(before)), Delta::Thought(text)) => before.push_str(&text),
            (_, delta) => out.push(delta),
        }
    }
    out
}

fn silence(idle: Duration) -> Failure {
    Failure::new(
        ErrorClass::Timeout,
        format!("no byte came for {} ms", idle.as_millis()),
    )
}

fn scrubbed(service: &Service, failure: Failure) -> Failure {
    Failure {
        message: service.scrub(&failure.message),
        ..failure
    }
}

fn unreachable(service: &Service, error: reqwest::Error) -> Failure {
    let class = if error.is_timeout() {
        ErrorClass::Timeout
    } else {
        ErrorClass::Network
    };
    let host = service.url.host_str().unwrap_or_default();
    Failure::new(
        class,
        service.scrub(&format!("{host} can't be reached: {}", describe(error))),
    )
}

async fn refusal(service: &Service, response: reqwest::Response) -> Failure {
    let status = response.status().as_u16();
    let wish = retry_after(response.headers(), SystemTime::now());
    let body = explanation(service, response).await;
    let failure = scrubbed(service, Failure::from_http(status, body.as_bytes()));
    Failure {
        retry_after: wish,
        ..failure
    }
}

/// A success without a stream: an error in disguise, or a server that can't stream.
async fn no_stream(service: &Service, response: reqwest::Response) -> Failure {
    let body = explanation(service, response).await;
    let value: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    if value.get("error").is_some_and(|e| !e.is_null()) {
        return scrubbed(service, Failure::from_event(&value));
    }
    Failure::new(ErrorClass::ServerError, "the answer is no event stream")
}

/// As much of the body as fits, scrubbed before anything cuts it: half a key is a key too.
async fn explanation(service: &Service, mut response: reqwest::Response) -> String {
    let body = beginning(&mut response).await;
    service.scrub(&String::from_utf8_lossy(&body))
}

/// A body as it comes.
trait Pieces {
    /// The next piece; `None` at the end, and when it breaks off.
    fn next(&mut self) -> impl Future<Output = Option<Bytes>> + Send;
}

impl Pieces for reqwest::Response {
    async fn next(&mut self) -> Option<Bytes> {
        self.chunk().await.ok().flatten()
    }
}

/// What comes in time, and of it as much as fits: explanation enough.
async fn beginning(pieces: &mut impl Pieces) -> Vec<u8> {
    let mut body = Vec::new();
    let read = async {
        while let Some(piece) = pieces.next().await {
            let room = MAX_ERROR_BODY - body.len();
            body.extend_from_slice(&piece[..piece.len().min(room)]);
            if body.len() == MAX_ERROR_BODY {
                break;
            }
        }
    };
    let _ = timeout(ERROR_BODY_TIMEOUT, read).await;
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many pieces, each of so many bytes after a pause.
    struct Slow(usize, usize, Duration);

    impl Pieces for Slow {
        async fn next(&mut self) -> Option<Bytes> {
            self.0 = self.0.checked_sub(1)?;
            tokio::time::sleep(self.2).await;
            Some(vec![b'x'; self.1].into())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_read_for_ten_seconds_and_up_to_64_kibibytes() {
        let start = tokio::time::Instant::now();
        let mut trickle = Slow(1_000, 1, Duration::from_millis(1_500));
        assert_eq!(beginning(&mut trickle).await, b"xxxxxx");
        assert_eq!(start.elapsed(), Duration::from_secs(10));
        let mut flood = Slow(1_000, 40_000, Duration::ZERO);
        assert_eq!(beginning(&mut flood).await.len(), 65_536);
        let mut whole = Slow(2, 1, Duration::ZERO);
        assert_eq!(beginning(&mut whole).await, b"xx");
    }

    #[test]
    fn neighbours_of_one_kind_are_joined() {
        let text = |t: &str| Delta::Text(t.into());
        let thought = |t: &str| Delta::Thought(t.into());
        assert_eq!(
            merge(vec![
                thought("a"),
                thought("b"),
                text("c"),
                text("d"),
                thought("e")
            ]),
            vec![thought("ab"), text("cd"), thought("e")]
        );
        assert_eq!(merge(vec![]), vec![]);
    }

    #[test]
    fn arguments_are_told_a_few_times_in_a_second() {
        let start = Instant::now();
        let mut held = Held::default();
        assert!(held.due(start).is_empty());
        let told = |call, text: &str| ModelEvent::Arguments {
            call,
            name: format!("t{call}"),
            text: text.into(),
        };
        held.add(0, "t0".into(), "{");
        assert_eq!(held.due(start), [told(0, "{")]);
        let early = start + ARGUMENTS_PAUSE - Duration::from_millis(1);
        for (call, text) in [(0, "\"a"), (1, "["), (0, "\":")] {
            held.add(call, format!("t{call}"), text);
            assert!(held.due(early).is_empty());
        }
        let later = start + ARGUMENTS_PAUSE;
        assert_eq!(held.due(later), [told(0, "\"a\":"), told(1, "[")]);
        assert!(held.due(later + ARGUMENTS_PAUSE).is_empty());
    }
}
