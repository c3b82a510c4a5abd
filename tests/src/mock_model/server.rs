//! The HTTP side: routes, counting, and the ways to misbehave.

use super::conversation::{Api, tools, turns};
use super::directive::{Behaviour, Refuse, Said, behaviour};
use super::wires::{Frame, events, refusal, whole};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame as BodyFrame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// Requests that [`Stats`] remembers.
const REMEMBERED: usize = 200;
/// How long an answer waits for a file: then whoever forgot it sees the rest.
const HELD: Duration = Duration::from_secs(60);
/// Between two looks for it.
const HOLD_LOOK: Duration = Duration::from_millis(10);

/// One request as it was seen.
#[derive(Debug, Clone, Serialize)]
pub struct Seen {
    /// `chat`, `responses` or `messages`.
    pub api: &'static str,
    /// The model asked for.
    pub model: String,
    /// The credential, without `Bearer `.
    pub key: Option<String>,
    /// Tools on offer.
    pub tools: Vec<String>,
    /// Bytes of the request.
    pub bytes: usize,
    /// Tool results after the message that decided.
    pub results: usize,
    /// A wanted tool that was not on offer.
    pub missing: Option<String>,
    /// The whole body.
    #[serde(skip)]
    pub body: Value,
}

/// What happened since the start or the last reset.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Stats {
    /// Model requests.
    pub requests: u64,
    /// The newest of them, oldest first.
    pub seen: Vec<Seen>,
}

#[derive(Default)]
struct State {
    stats: Stats,
    times: HashMap<String, u64>,
}

/// A running service; ends when dropped.
pub struct MockModel {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: tokio::task::JoinHandle<()>,
}

impl MockModel {
    /// Starts on a free loopback port.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start() -> std::io::Result<Self> {
        Self::start_on(0).await
    }

    /// Starts on this loopback port.
    ///
    /// # Errors
    /// When the port can't be bound.
    pub async fn start_on(port: u16) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State::default()));
        let task = tokio::spawn(accept(listener, state.clone()));
        Ok(Self {
            address,
            state,
            task,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base address for a provider's `baseUrl`.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// What happened so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        locked(&self.state).stats.clone()
    }

    /// Serves until the process ends.
    pub async fn serve(mut self) {
        let _ = (&mut self.task).await;
    }
}

impl Drop for MockModel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                let _ = stream.set_nodelay(true);
                let state = state.clone();
                connections.spawn(async move {
                    let service = service_fn(move |request| answer(request, state.clone()));
                    // A connection that was cut on request ends with an error, as it should.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// A body fed by a task; an error drops the connection.
pub(super) struct Stream(mpsc::Receiver<std::io::Result<Bytes>>);

impl Body for Stream {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<BodyFrame<Bytes>>>> {
        self.0
            .poll_recv(cx)
            .map(|item| item.map(|bytes| bytes.map(BodyFrame::data)))
    }
}

fn respond(
    status: u16,
    content_type: &str,
    retry_after: Option<&str>,
) -> (mpsc::Sender<std::io::Result<Bytes>>, Response<Stream>) {
    let (feed, stream) = mpsc::channel(16);
    let mut response = Response::new(Stream(stream));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if let Ok(value) = content_type.parse() {
        headers.insert("content-type", value);
    }
    if let Some(Ok(value)) = retry_after.map(str::parse) {
        headers.insert("retry-after", value);
    }
    (feed, response)
}

fn reply(status: u16, value: &Value, retry_after: Option<&str>) -> Response<Stream> {
    let (feed, response) = respond(status, "application/json", retry_after);
    // The channel is empty and has room: this can't fail.
    let _ = feed.try_send(Ok(Bytes::from(value.to_string())));
    response
}

async fn answer(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
) -> Result<Response<Stream>, Infallible> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().replace("//", "/");
    let path = path.strip_prefix("/v1").unwrap_or(&path);
    let api = match (&head.method, path) {
        (&Method::GET, "/health") => return Ok(reply(200, &json!({"ok": true}), None)),
        (&Method::GET, "/stats") => return Ok(reply(200, &json!(locked(&state).stats), None)),
        (&Method::GET, "/models") => {
            let model =
                json!({"id": "mock-1", "object": "model", "created": 0, "owned_by": "mock"});
            return Ok(reply(
                200,
                &json!({"object": "list", "data": [model]}),
                None,
            ));
        }
        (&Method::POST, "/reset") => {
            *locked(&state) = State::default();
            return Ok(reply(200, &json!({"ok": true}), None));
        }
        (&Method::POST, "/chat/completions") => Api::Chat,
        (&Method::POST, "/responses") => Api::Responses,
        (&Method::POST, "/messages") => Api::Messages,
        _ => {
            let message = format!("no such path: {}", head.uri.path());
            return Ok(reply(404, &refusal(Api::Chat, 404, &message), None));
        }
    };
    let Ok(raw) = body
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
    else {
        return Ok(reply(400, &refusal(api, 400, "the body broke off"), None));
    };
    let Ok(body) = serde_json::from_slice::<Value>(&raw) else {
        return Ok(reply(400, &refusal(api, 400, "the body is no JSON"), None));
    };
    let header = |name: &str| head.headers.get(name).and_then(|v| v.to_str().ok());
    let key = header("x-api-key")
        .or_else(|| header("authorization").map(|v| v.trim_start_matches("Bearer ")))
        .map(str::to_owned);
    let model = body
        .get("model")
        .and_then(Value::as_str)
        .unwrap_or("mock-1")
        .to_owned();
    let offered = tools(&body);
    let b = behaviour(api, &model, &turns(api, &body), &offered);
    let (number, times) = {
        let mut state = locked(&state);
        state.stats.requests += 1;
        if state.stats.seen.len() == REMEMBERED {
            state.stats.seen.remove(0);
        }
        state.stats.seen.push(Seen {
            api: api.name(),
            model: model.clone(),
            key: key.clone(),
            tools: offered,
            bytes: raw.len(),
            results: b.results,
            missing: b.missing.clone(),
            body: body.clone(),
        });
        let number = state.stats.requests;
        let times = state.times.entry(b.key.clone()).or_default();
        *times += 1;
        (number, *times)
    };
    tokio::time::sleep(b.delay).await;
    if b.hang {
        std::future::pending::<()>().await;
    }
    if b.leak {
        let message = format!("what a strange key: {}", key.unwrap_or_default());
        return Ok(reply(400, &refusal(api, 400, &message), None));
    }
    let flaky = b
        .flaky
        .clone()
        .filter(|(n, _)| times <= *n)
        .map(|(_, refuse)| refuse);
    if let Some(Refuse {
        status,
        retry_after,
    }) = flaky.or_else(|| b.refuse.clone())
    {
        let value = refusal(api, status, "refused on request");
        return Ok(reply(status, &value, retry_after.as_deref()));
    }
    let answer_bytes = match &b.said {
        Said::Text(text) => text.len(),
        Said::Call { arguments, .. } => arguments.len(),
    };
    let frame = Frame {
        model: &model,
        usage: (raw.len().div_ceil(4), answer_bytes.div_ceil(4)),
        number,
        include_usage: body.pointer("/stream_options/include_usage") == Some(&Value::Bool(true)),
    };
    if body.get("stream") != Some(&Value::Bool(true)) {
        return Ok(reply(200, &whole(api, &frame, &b), None));
    }
    let (feed, response) = respond(200, "text/event-stream", None);
    tokio::spawn(stream(feed, events(api, &frame, &b), b, times));
    Ok(response)
}

/// Sends the events, or what the directives want instead. Ends early when the reader has gone.
async fn stream(
    feed: mpsc::Sender<std::io::Result<Bytes>>,
    events: Vec<super::wires::Event>,
    b: Behaviour,
    times: u64,
) {
    if b.garbage {
        let _ = feed
            .send(Ok(Bytes::from_static(
                b"\x00\xff\xfe not a stream \n\n\x80",
            )))
            .await;
        return;
    }
    let cut = b.cut.or(b
        .cut_first
        .filter(|(n, _)| times <= *n)
        .map(|(_, after)| after));
    for (n, (name, data)) in events.into_iter().enumerate() {
        if cut == Some(n) {
            // What was sent before must have left, or the cut would swallow it too.
            while feed.capacity() < feed.max_capacity() && !feed.is_closed() {
                tokio::task::yield_now().await;
            }
            tokio::task::yield_now().await;
            let _ = feed
                .send(Err(std::io::Error::other("cut on request")))
                .await;
            return;
        }
        if b.stall == Some(n) {
            feed.closed().await;
            return;
        }
        if let Some((_, file)) = b.hold.as_ref().filter(|(after, _)| *after == n) {
            let end = Instant::now() + HELD;
            while !file.exists() && !feed.is_closed() && Instant::now() < end {
                tokio::time::sleep(HOLD_LOOK).await;
            }
        }
        if n > 0 && !b.gap.is_zero() {
            tokio::time::sleep(b.gap).await;
        }
        let data = if b.malformed && n == 1 {
            "{not json".to_owned()
        } else {
            data
        };
        let text = match name {
            Some(name) => format!("event: {name}\ndata: {data}\n\n"),
            None => format!("data: {data}\n\n"),
        };
        if feed.send(Ok(Bytes::from(text))).await.is_err() {
            return;
        }
    }
}
