//! What stands between a connection and the MCP transport: who is let in, and how much is read.

use crate::capability::CapabilityPath;
use crate::server::{Offer, RequestServer};
use crate::tool_set::ToolSet;
use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, Full, Limited};
use hyper::body::Body;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::convert::Infallible;
use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Largest body of a request in bytes.
pub const MAX_BODY: usize = 1_000_000;
/// Time for the body of a request to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);

type Transport<T> = StreamableHttpService<RequestServer<T>, NeverSessionManager>;
pub(crate) type Reply = Response<BoxBody<Bytes, Infallible>>;

/// What is known once there is a port.
struct Bound<T: ToolSet> {
    host: String,
    transport: Transport<T>,
}

/// One endpoint's check of every request.
pub(crate) struct Door<T: ToolSet> {
    path: CapabilityPath,
    offer: Arc<Offer<T>>,
    closing: CancellationToken,
    bound: OnceLock<Bound<T>>,
}

impl<T: ToolSet> Door<T> {
    pub(crate) fn new(path: CapabilityPath, set: T, closing: CancellationToken) -> Self {
        Self {
            path,
            offer: Arc::new(Offer::new(set, closing.clone())),
            closing,
            bound: OnceLock::new(),
        }
    }

    /// Tells the port, once. Until then every request that would be let in is put off.
    pub(crate) fn bind(&self, port: u16) {
        let host = format!("127.0.0.1:{port}");
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_allowed_hosts([host.as_str()])
            // No web page is a client of these tools; a page of this very port would be one.
            .with_allowed_origins([format!("http://{host}")])
            .enforce_origin_validation()
            .with_max_request_body_bytes(MAX_BODY)
            .with_cancellation_token(self.closing.clone());
        let offer = self.offer.clone();
        let fresh = move || Ok(RequestServer::new(offer.clone()));
        let transport = StreamableHttpService::new(fresh, Arc::default(), config);
        let _ = self.bound.set(Bound { host, transport });
    }

    /// Answers one request.
    pub(crate) async fn answer<B>(&self, request: Request<B>) -> Reply
    where
        B: Body + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (mut parts, body) = request.into_parts();
        let bound = match self.admit(&parts.uri, &parts.headers) {
            Ok(bound) => bound,
            Err(status) => return refusal(status),
        };
        let body = if parts.method == Method::POST {
            let whole = Limited::new(body, MAX_BODY).collect();
            match tokio::time::timeout(BODY_TIME, whole).await {
                Ok(Ok(whole)) => whole.to_bytes(),
                _ => return refusal(StatusCode::INTERNAL_SERVER_ERROR),
            }
        } else {
            Bytes::new()
        };
        // From here on nobody needs the path, and what nobody has can't get into a log.
        parts.uri = Uri::from_static("/");
        let request = Request::from_parts(parts, Full::new(body));
        bound.transport.handle(request).await
    }

    /// The order counts: what is not meant for this endpoint learns nothing of its state.
    fn admit(&self, uri: &Uri, headers: &HeaderMap) -> Result<&Bound<T>, StatusCode> {
        let addressed = uri.authority().is_none() && uri.query().is_none();
        let mut hosts = headers.get_all(HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host.to_str().ok(),
            _ => None,
        };
        let Some(host) = host.filter(|host| is_loopback_port(host)) else {
            return Err(StatusCode::NOT_FOUND);
        };
        if !addressed || !self.path.is(uri.path()) {
            return Err(StatusCode::NOT_FOUND);
        }
        match self.bound.get() {
            None => Err(StatusCode::SERVICE_UNAVAILABLE),
            Some(bound) if bound.host == host => Ok(bound),
            Some(_) => Err(StatusCode::NOT_FOUND),
        }
    }
}

/// Whether a `Host` has the one form that a client of ours sends: `127.0.0.1:<port>`.
fn is_loopback_port(host: &str) -> bool {
    host.strip_prefix("127.0.0.1:").is_some_and(|port| {
        (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// A status and nothing else.
fn refusal(status: StatusCode) -> Reply {
    let mut response = Response::new(Empty::new().boxed());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::tool_set::{Answer, AppTool, Call};
    use futures_util::stream;
    use http_body_util::StreamBody;
    use serde_json::{Value, json};

    type Frame = Result<hyper::body::Frame<Bytes>, std::io::Error>;

    struct Nothing;

    impl ToolSet for Nothing {
        fn server_name(&self) -> &'static str {
            "nothing"
        }
        fn tools(&self) -> Vec<AppTool> {
            vec![]
        }
        async fn call(&self, _: Call) -> Answer {
            Answer::text("")
        }
    }

    fn door(port: Option<u16>) -> (Door<Nothing>, String) {
        let path = CapabilityPath::random();
        let url = path.on(1);
        let own = format!("/mcp/{}", url.secret());
        let door = Door::new(path, Nothing, CancellationToken::new());
        if let Some(port) = port {
            door.bind(port);
        }
        (door, own)
    }

    async fn status(door: &Door<Nothing>, uri: &str, hosts: &[&str]) -> u16 {
        let mut request = Request::get(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        door.answer(request).await.status().as_u16()
    }

    #[tokio::test]
    async fn only_the_one_path_under_the_one_host_is_there() {
        let (door, own) = door(Some(4711));
        let host = "127.0.0.1:4711";
        // 405: let in, and nothing is to be had with GET.
        assert_eq!(status(&door, &own, &[host]).await, 405);
        let (_, other) = super::tests::door(None);
        let whole = format!("http://{host}{own}");
        let paths = [
            "/",
            "/mcp",
            "/mcp/",
            &other,
            &format!("{own}/"),
            &format!("/{own}"),
            &format!("{own}?x=1"),
            &own.to_uppercase(),
            &own[..own.len() - 1],
            &whole,
        ];
        for path in paths {
            assert_eq!(status(&door, path, &[host]).await, 404, "{path}");
        }
        let hosts = [
            "127.0.0.1",
            "127.0.0.1:",
            "127.0.0.1:4712",
            "127.0.0.1:04711",
            "127.0.0.1:+711",
            "127.0.0.1:471100",
            "localhost:4711",
            "[::1]:4711",
            "127.0.0.2:4711",
            "evil.example:4711",
            "x@127.0.0.1:4711",
            "127.0.0.1:4711 ",
            "127.0.0.1:4711.evil.example",
            "",
        ];
        for host in hosts {
            assert_eq!(status(&door, &own, &[host]).await, 404, "{host:?}");
        }
        assert_eq!(status(&door, &own, &[]).await, 404);
        assert_eq!(status(&door, &own, &[host, host]).await, 404);
    }

    #[tokio::test]
    async fn before_the_port_is_known_only_a_rightful_client_is_put_off() {
        let (door, own) = door(None);
        assert_eq!(status(&door, &own, &["127.0.0.1:4711"]).await, 503);
        assert_eq!(status(&door, "/mcp", &["127.0.0.1:4711"]).await, 404);
        assert_eq!(status(&door, &own, &["localhost:4711"]).await, 404);
        door.bind(4711);
        assert_eq!(status(&door, &own, &["127.0.0.1:4711"]).await, 405);
    }

    fn posted(own: &str, body: Vec<u8>) -> http::request::Builder {
        let length = body.len();
        Request::post(own)
            .header(HOST, "127.0.0.1:4711")
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json")
            .header("content-length", length)
    }

    /// `tools/list`, filled up with blanks to so many bytes.
    fn listing(length: usize) -> Vec<u8> {
        let request: Value = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
        let mut text = request.to_string().into_bytes();
        text.resize(length, b' ');
        text
    }

    #[tokio::test]
    async fn a_body_up_to_the_bound_is_read_and_one_above_it_is_not() {
        let (door, own) = door(Some(4711));
        for (length, expected) in [(MAX_BODY, 200), (MAX_BODY + 1, 500)] {
            let body = listing(length);
            let request = posted(&own, body.clone())
                .body(Full::new(Bytes::from(body)))
                .unwrap();
            assert_eq!(
                door.answer(request).await.status().as_u16(),
                expected,
                "{length}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        let (door, own) = door(Some(4711));
        let stuck = StreamBody::new(stream::pending::<Frame>());
        let request = posted(&own, listing(100)).body(stuck).unwrap();
        assert_eq!(door.answer(request).await.status().as_u16(), 500);
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_an_error_of_ours() {
        let (door, own) = door(Some(4711));
        let broken = StreamBody::new(stream::iter([Frame::Err(
            std::io::ErrorKind::ConnectionReset.into(),
        )]));
        let request = posted(&own, listing(100)).body(broken).unwrap();
        assert_eq!(door.answer(request).await.status().as_u16(), 500);
    }

    #[tokio::test]
    async fn a_page_of_another_origin_is_refused() {
        let (door, own) = door(Some(4711));
        let table = [
            (None, 200),
            (Some("http://127.0.0.1:4711"), 200),
            (Some("https://127.0.0.1:4711"), 403),
            (Some("http://127.0.0.1:4712"), 403),
            (Some("http://localhost:4711"), 403),
            (Some("https://evil.example"), 403),
            (Some("null"), 403),
            (Some(""), 403),
        ];
        for (origin, expected) in table {
            let body = listing(100);
            let mut request = posted(&own, body.clone());
            if let Some(origin) = origin {
                request = request.header("origin", origin);
            }
            let request = request.body(Full::new(Bytes::from(body))).unwrap();
            assert_eq!(
                door.answer(request).await.status().as_u16(),
                expected,
                "{origin:?}"
            );
        }
    }
}
