//! `POST /v1/progress`, for servers of this machine.
//!
//! A request is admitted in this order: it comes for this machine and from no web page; the path is the
//! one; the bearer is one; the body is whole and says something. Then the bearer is looked at once
//! more: its run may have ended while the body was on its way.

use super::{Board, Post, Refused};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, ORIGIN, RETRY_AFTER,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use ipc_proto::request_context::{MAX_PROGRESS_KEY, MAX_PROGRESS_MESSAGE, ProgressState};
use serde::Deserialize;
use serde_json::json;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use worker_web::listener;
use worker_web::origin::Admission;

/// The route.
pub const PROGRESS: &str = "/v1/progress";
/// Largest body in bytes.
pub const MAX_BODY: usize = 16 * 1024;
/// Time for a body.
const BODY_TIME: Duration = Duration::from_secs(30);
/// Connections served at once: a few for each of the servers that may be there.
const MAX_CONNECTIONS: usize = 128;
/// Longest bearer that is looked at.
const MAX_BEARER: usize = 256;

/// A listener that the supervisor has bound.
pub struct Listening {
    socket: TcpListener,
    bound: SocketAddr,
}

impl Listening {
    /// Takes the descriptor.
    ///
    /// # Errors
    /// For the operator: it is none, or other machines reach it.
    pub fn new(socket: OwnedFd) -> Result<Self, String> {
        let failed = |e: std::io::Error| format!("the listener for progress: {e}");
        let socket = TcpListener::from(socket);
        socket.set_nonblocking(true).map_err(failed)?;
        let bound = socket.local_addr().map_err(failed)?;
        if !bound.ip().is_loopback() {
            return Err(format!(
                "progress is taken on loopback only, and {bound} is not"
            ));
        }
        Ok(Self { socket, bound })
    }

    /// Serves until told to stop.
    ///
    /// # Errors
    /// When the socket can't be waited for.
    pub async fn serve(
        self,
        board: Arc<Board>,
        stopping: watch::Receiver<bool>,
    ) -> std::io::Result<()> {
        let socket = tokio::net::TcpListener::from_std(self.socket)?;
        let router = router(Admission::new(self.bound.ip()), board);
        listener::serve(socket, router, stopping, MAX_CONNECTIONS).await;
        Ok(())
    }

    /// Where servers post.
    pub fn url(&self) -> String {
        format!("http://{}{PROGRESS}", self.bound)
    }
}

#[derive(Clone)]
struct Surface {
    admission: Admission,
    board: Arc<Board>,
}

/// The router: one function, so that what is unknown is refused in one place.
pub fn router(admission: Admission, board: Arc<Board>) -> Router {
    let surface = Surface { admission, board };
    Router::new().fallback(serve).with_state(surface)
}

struct Rejection(StatusCode, &'static str, &'static str);

async fn serve(State(surface): State<Surface>, request: Request) -> Response {
    let (status, told) = match surface.answer(request).await {
        Ok(()) => (StatusCode::ACCEPTED, json!({ "accepted": true })),
        Err(Rejection(status, code, message)) => (
            status,
            json!({ "error": { "code": code, "message": message } }),
        ),
    };
    let mut response = (status, told.to_string()).into_response();
    let headers = response.headers_mut();
    let fixed = HeaderValue::from_static;
    headers.insert(CONTENT_TYPE, fixed("application/json"));
    headers.insert(CACHE_CONTROL, fixed("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, fixed("nosniff"));
    match status {
        StatusCode::TOO_MANY_REQUESTS => {
            headers.insert(RETRY_AFTER, fixed("1"));
        }
        // What is left of such a body is not waited for.
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT => {
            headers.insert(CONNECTION, fixed("close"));
        }
        _ => {}
    }
    response
}

impl Surface {
    async fn answer(&self, request: Request) -> Result<(), Rejection> {
        let (head, body) = request.into_parts();
        let foreign = Rejection(
            StatusCode::FORBIDDEN,
            "forbidden_host",
            "progress is taken from this machine, under a loopback name",
        );
        if head.headers.contains_key(ORIGIN) {
            return Err(Rejection(
                StatusCode::FORBIDDEN,
                "forbidden_origin",
                "requests from web pages are refused",
            ));
        }
        self.admission
            .check(&head.uri, &head.headers)
            .map_err(|_| foreign)?;
        if head.method != Method::POST || head.uri.path() != PROGRESS {
            return Err(Rejection(
                StatusCode::NOT_FOUND,
                "not_found",
                "here is POST /v1/progress and nothing else",
            ));
        }
        let bearer = bearer(&head.headers).filter(|bearer| self.board.knows(bearer));
        let bearer = bearer.ok_or(UNKNOWN)?;
        let post = read(body).await?;
        self.board
            .post(bearer, post)
            .map_err(|refused| match refused {
                Refused::Bearer => UNKNOWN,
                Refused::Busy => Rejection(
                    StatusCode::TOO_MANY_REQUESTS,
                    "rate_limited",
                    "progress comes faster than it can be shown; leave posts out",
                ),
                Refused::Keys => Rejection(
                    StatusCode::CONFLICT,
                    "too_many_keys",
                    "32 pieces of work are told of already; go on with one of their keys",
                ),
            })
    }
}

const UNKNOWN: Rejection = Rejection(
    StatusCode::UNAUTHORIZED,
    "invalid_capability",
    "send the bearer of MONO_AGENT_INTERACTION_PROGRESS_TOKEN; it ends with its run",
);

/// The one bearer of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, None) = (values.next()?, values.next()) else {
        return None;
    };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let fits = scheme.eq_ignore_ascii_case("bearer") && token.len() <= MAX_BEARER;
    fits.then_some(token.trim())
}

/// A body. What else it holds, a conversation for example, says nothing here.
#[derive(Deserialize)]
struct Wanted {
    key: String,
    message: String,
    state: Option<String>,
}

async fn read(body: Body) -> Result<Post, Rejection> {
    let whole = tokio::time::timeout(BODY_TIME, Limited::new(body, MAX_BODY).collect());
    let whole = whole.await.map_err(|_| {
        Rejection(
            StatusCode::REQUEST_TIMEOUT,
            "request_timeout",
            "the request's body did not arrive in time",
        )
    })?;
    let whole = whole.map_err(|e| {
        if e.is::<http_body_util::LengthLimitError>() {
            let message = "a post has 16 KiB at most";
            return Rejection(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", message);
        }
        bad("invalid_json", "the request's body broke off")
    })?;
    parse(&whole.to_bytes())
}

fn bad(code: &'static str, message: &'static str) -> Rejection {
    Rejection(StatusCode::BAD_REQUEST, code, message)
}

fn parse(bytes: &[u8]) -> Result<Post, Rejection> {
    let expected = "the body is a JSON object with the texts key, message and state";
    let wanted: Wanted =
        serde_json::from_slice(bytes).map_err(|_| bad("invalid_json", expected))?;
    let Wanted {
        key,
        mut message,
        state,
    } = wanted;
    if key.trim().is_empty()
        || key.chars().count() > MAX_PROGRESS_KEY
        || key.chars().any(char::is_control)
    {
        let text = "key is a text of 1 to 128 characters on one line";
        return Err(bad("invalid_key", text));
    }
    if message.trim().is_empty() {
        return Err(bad("invalid_message", "message is a text that isn't blank"));
    }
    message.truncate(message.floor_char_boundary(MAX_PROGRESS_MESSAGE));
    let state = match state.as_deref() {
        None | Some("running") => ProgressState::Running,
        Some("completed") => ProgressState::Completed,
        Some("failed") => ProgressState::Failed,
        Some(_) => {
            let text = "state is running, completed or failed";
            return Err(bad("invalid_state", text));
        }
    };
    Ok(Post {
        key,
        message,
        state,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::progress::Posted;
    use ipc_proto::RunId;
    use serde_json::Value;
    use tokio::sync::mpsc;
    use tower::ServiceExt as _;

    struct Bench {
        board: Arc<Board>,
        run: RunId,
        posts: mpsc::Receiver<Posted>,
        bearer: String,
    }

    fn bench() -> Bench {
        let board = Arc::new(Board::default());
        board.listen_at(format!("http://127.0.0.1:4711{PROGRESS}"));
        let run = RunId::new();
        let posts = board.accompany(&run, vec![]);
        let bearer = board.context(&run, "work").progress.unwrap().token.0;
        Bench {
            board,
            run,
            posts,
            bearer,
        }
    }

    impl Bench {
        fn request(&self) -> http::request::Builder {
            http::Request::post(PROGRESS)
                .header("host", "127.0.0.1:4711")
                .header("authorization", format!("Bearer {}", self.bearer))
        }

        async fn send(&self, request: http::Request<Body>) -> (u16, String) {
            let admission = Admission::new([127, 0, 0, 1].into());
            let router = router(admission, self.board.clone());
            let response = router.oneshot(request).await.unwrap();
            assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let told: Value = serde_json::from_slice(&body).unwrap();
            let code = told["error"]["code"].as_str().unwrap_or_default();
            assert_eq!(told["accepted"] == true, status == 202, "{told}");
            (status, code.to_owned())
        }

        async fn post(&self, body: &str) -> (u16, String) {
            let body = Body::from(body.to_owned());
            self.send(self.request().body(body).unwrap()).await
        }
    }

    fn code(status: u16, code: &str) -> (u16, String) {
        (status, code.to_owned())
    }

    const FINE: &str = r#"{"key":"k","message":"1 of 2","state":"running"}"#;

    #[tokio::test]
    async fn a_post_reaches_the_run_of_its_bearer_whatever_it_names() {
        let mut bench = bench();
        let body = r#"{"key":"k","message":"1 of 2","state":"completed","conversationId":"other"}"#;
        assert_eq!(bench.post(body).await, code(202, ""));
        let posted = bench.posts.try_recv().unwrap();
        let post = Post {
            key: "k".into(),
            message: "1 of 2".into(),
            state: ProgressState::Completed,
        };
        assert_eq!((posted.server.as_str(), posted.post), ("work", post));
        let body = r#"{"key":"k","message":"2 of 2"}"#;
        assert_eq!(bench.post(body).await, code(202, ""));
        let state = bench.posts.try_recv().unwrap().post.state;
        assert_eq!(state, ProgressState::Running);
    }

    #[tokio::test]
    async fn only_the_one_route_is_there_and_only_for_its_bearer() {
        let mut bench = bench();
        let own = format!("Bearer {}", bench.bearer);
        let body = || Body::from(FINE);
        for (method, path, host, bearer, expected) in [
            ("POST", PROGRESS, "localhost", own.as_str(), code(202, "")),
            ("POST", PROGRESS, "[::1]:1", &own, code(202, "")),
            ("GET", PROGRESS, "localhost", &own, code(404, "not_found")),
            ("PUT", PROGRESS, "localhost", &own, code(404, "not_found")),
            ("POST", "/v1/ask", "localhost", &own, code(404, "not_found")),
            (
                "POST",
                "/v1/ask/1/answer",
                "localhost",
                &own,
                code(404, "not_found"),
            ),
            (
                "POST",
                "/v1/progress/",
                "localhost",
                &own,
                code(404, "not_found"),
            ),
            (
                "POST",
                PROGRESS,
                "evil.example",
                &own,
                code(403, "forbidden_host"),
            ),
            (
                "POST",
                PROGRESS,
                "localhost",
                "Bearer x",
                code(401, "invalid_capability"),
            ),
            (
                "POST",
                PROGRESS,
                "localhost",
                "Bearer ",
                code(401, "invalid_capability"),
            ),
            (
                "POST",
                PROGRESS,
                "localhost",
                &own[7..],
                code(401, "invalid_capability"),
            ),
        ] {
            let request = http::Request::builder()
                .method(method)
                .uri(path)
                .header("host", host)
                .header("authorization", bearer)
                .body(body())
                .unwrap();
            let found = bench.send(request).await;
            assert_eq!(found, expected, "{method} {path} {host} {bearer}");
        }
        let twice = bench.request().header("authorization", "Bearer x");
        let found = bench.send(twice.body(body()).unwrap()).await;
        assert_eq!(found, code(401, "invalid_capability"));
        let page = bench.request().header("origin", "http://localhost");
        let found = bench.send(page.body(body()).unwrap()).await;
        assert_eq!(found, code(403, "forbidden_origin"));
        assert!(bench.posts.try_recv().is_ok() && bench.posts.try_recv().is_ok());
        assert!(bench.posts.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_body_is_small_and_says_what_it_is_about() {
        let mut bench = bench();
        let key = |key: &str| json!({ "key": key, "message": "m" }).to_string();
        let message = |text: &str| json!({ "key": "k", "message": text }).to_string();
        let large = message(&"m".repeat(MAX_BODY));
        let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
        let long = key(&"ä".repeat(MAX_PROGRESS_KEY));
        for (body, expected) in [
            (long.as_str(), code(202, "")),
            (&large, code(413, "payload_too_large")),
            (&deep, code(400, "invalid_json")),
            ("", code(400, "invalid_json")),
            ("[]", code(400, "invalid_json")),
            (r#"{"key":"k"}"#, code(400, "invalid_json")),
            (r#"{"key":1,"message":"m"}"#, code(400, "invalid_json")),
            (
                r#"{"key":"a","key":"b","message":"m"}"#,
                code(400, "invalid_json"),
            ),
            (&key(" "), code(400, "invalid_key")),
            (&key("a\nb"), code(400, "invalid_key")),
            (
                &key(&"k".repeat(MAX_PROGRESS_KEY + 1)),
                code(400, "invalid_key"),
            ),
            (&message("\n"), code(400, "invalid_message")),
            (
                r#"{"key":"k","message":"m","state":"happy"}"#,
                code(400, "invalid_state"),
            ),
        ] {
            assert_eq!(bench.post(body).await, expected, "{body:.80}");
        }
        bench.posts.try_recv().unwrap();
        let cut = message(&format!("{}ä", "m".repeat(MAX_PROGRESS_MESSAGE - 1)));
        assert_eq!(bench.post(&cut).await, code(202, ""));
        let shown = bench.posts.try_recv().unwrap().post.message;
        assert_eq!(shown.len(), MAX_PROGRESS_MESSAGE - 1);
    }

    #[tokio::test]
    async fn a_post_that_stalls_while_its_run_ends_is_refused() {
        let mut bench = bench();
        let (body, rest) = mpsc::channel::<Result<bytes::Bytes, std::io::Error>>(1);
        let stream = futures_util::stream::unfold(rest, |mut rest| async {
            rest.recv().await.map(|piece| (piece, rest))
        });
        let request = bench.request().body(Body::from_stream(stream)).unwrap();
        let (half, end) = FINE.split_at(10);
        let ends = async {
            body.send(Ok(half.into())).await.unwrap();
            // Taken: the second one waits in the queue until the first was read.
            body.reserve().await.unwrap();
            bench.board.leave(&bench.run);
            body.send(Ok(end.into())).await.unwrap();
            drop(body);
        };
        let (found, ()) = tokio::join!(bench.send(request), ends);
        assert_eq!(found, code(401, "invalid_capability"));
        assert!(bench.posts.try_recv().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        let bench = bench();
        let stream = futures_util::stream::pending::<Result<bytes::Bytes, std::io::Error>>();
        let request = bench.request().body(Body::from_stream(stream)).unwrap();
        assert_eq!(bench.send(request).await, code(408, "request_timeout"));
    }

    /// Time stands still: one that passes gives a place back.
    #[tokio::test(start_paused = true)]
    async fn too_many_posts_and_keys_have_codes_of_their_own() {
        let bench = bench();
        for n in 0..super::super::BURST {
            let body = json!({ "key": n.to_string(), "message": "m" }).to_string();
            assert_eq!(bench.post(&body).await, code(202, ""));
        }
        assert_eq!(bench.post(FINE).await, code(429, "rate_limited"));
        let request = bench.request().body(Body::from(FINE)).unwrap();
        let admission = Admission::new([127, 0, 0, 1].into());
        let router = router(admission, bench.board.clone());
        let response = router.oneshot(request).await.unwrap();
        assert_eq!(response.headers()[RETRY_AFTER], "1");
    }

    #[test]
    fn other_machines_are_not_listened_to() {
        let socket = TcpListener::bind("0.0.0.0:0").unwrap();
        assert!(Listening::new(socket.into()).is_err());
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let listening = Listening::new(socket.into()).unwrap();
        assert_eq!(
            listening.url(),
            format!("http://127.0.0.1:{port}/v1/progress")
        );
    }
}
