//! HTTP peers that answer with canned bytes: what a server may not make the host do.
#![allow(clippy::unwrap_used)]

mod support;

use mono_app_bridge::connection::{Carrier, Connection, Era};
use mono_app_bridge::limits::Limits;
use mono_app_bridge::pipes::Overflow;
use mono_app_bridge::sse::SseTransport;
use mono_app_bridge::web::{Endpoint, client, streamable};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use support::call;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// One request as it came: head and body.
type Seen = mpsc::UnboundedReceiver<String>;

/// Serves each connection's requests with what `answer` says to the request's text, one answer a
/// connection. Returns the address and what was asked.
async fn serve(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (tell, seen) = mpsc::unbounded_channel();
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (tell, answer) = (tell.clone(), answer.clone());
            tokio::spawn(async move {
                let request = read_request(&mut stream).await;
                let bytes = answer(&request);
                let _ = tell.send(request);
                let _ = stream.write_all(bytes.as_bytes()).await;
                if bytes.contains("text/event-stream") {
                    // An event stream stays open until the host hangs up.
                    let _ = stream.read(&mut [0]).await;
                }
            });
        }
    });
    (address, seen)
}

async fn read_request(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let count = stream.read(&mut chunk).await.unwrap_or(0);
        text.extend_from_slice(&chunk[..count]);
        let whole = String::from_utf8_lossy(&text).to_lowercase();
        let Some((head, body)) = whole.split_once("\r\n\r\n") else {
            assert!(count > 0, "no request");
            continue;
        };
        let length = head
            .split("content-length: ")
            .nth(1)
            .and_then(|rest| rest.lines().next()?.trim().parse().ok())
            .unwrap_or(0);
        if body.len() >= length || count == 0 {
            return String::from_utf8_lossy(&text).into_owned();
        }
    }
}

fn response(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n{body}"
    )
}

fn json(body: &str) -> String {
    response("200 OK", "content-type: application/json\r\n", body)
}

fn stream(events: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{events}"
    )
}

fn endpoint(url: &str) -> Endpoint {
    let headers = BTreeMap::from([("authorization".to_owned(), "Bearer secret".to_owned())]);
    Endpoint::new(url, &headers).unwrap()
}

fn limits() -> Limits {
    Limits {
        connect: Duration::from_secs(30),
        call_inactivity: Duration::from_secs(30),
        message: 4096,
        ..Limits::default()
    }
}

async fn connect(url: &str) -> Result<Connection, String> {
    let carrier = Carrier::default();
    let http = client().unwrap();
    let transport = streamable(http, &endpoint(url), &limits(), &carrier.overflow);
    Connection::open("s", transport, carrier, Era::Unknown, Arc::new(limits()))
        .await
        .map_err(|failed| failed.error.to_string())
}

const DISCOVERY: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}}"#;

/// Answers `server/discover`, and every call with `result`.
fn stateless(result: impl Fn() -> String) -> impl Fn(&str) -> String {
    move |request| match request.contains("server/discover") {
        true => json(DISCOVERY),
        false => result(),
    }
}

#[tokio::test]
async fn configured_headers_are_sent_and_a_call_works() {
    let result = r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[]}}"#;
    let (url, mut seen) = serve(stateless(move || json(result))).await;
    let connection = connect(&url).await.unwrap();
    connection.call(call("t").0).await.unwrap();
    for _ in 0..2 {
        let request = seen.recv().await.unwrap().to_lowercase();
        assert!(
            request.contains("authorization: bearer secret"),
            "{request}"
        );
        assert!(
            request.contains("mcp-protocol-version: 2026-07-28"),
            "{request}"
        );
    }
}

#[tokio::test]
async fn a_redirect_to_another_origin_is_not_followed() {
    let (elsewhere, mut asked) = serve(|_| json(DISCOVERY)).await;
    for status in ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"] {
        let location = format!("location: {elsewhere}/mcp\r\n");
        let (url, _) = serve(move |_| response(status, &location, "")).await;
        assert!(connect(&url).await.is_err(), "{status}");
    }
    assert!(asked.try_recv().is_err(), "the other origin was asked");
}

#[tokio::test]
async fn a_redirect_within_the_origin_is_followed_but_not_for_ever() {
    let (url, _) = serve(|request| match request.starts_with("POST /mcp/ ") {
        true => json(DISCOVERY),
        false => response("307 Temporary", "location: /mcp/\r\n", ""),
    })
    .await;
    connect(&format!("{url}/mcp")).await.unwrap();
    let (url, mut seen) = serve(|_| response("307 Temporary", "location: /again\r\n", "")).await;
    assert!(connect(&url).await.is_err());
    let mut asked = 0;
    while seen.try_recv().is_ok() {
        asked += 1;
    }
    assert!(asked <= 5, "{asked} requests");
}

#[tokio::test]
async fn an_oversized_answer_is_refused_as_json_and_as_an_event() {
    let big = format!(
        r#"{{"jsonrpc":"2.0","id":1,"result":{{"content":[{{"type":"text","text":"{}"}}]}}}}"#,
        "x".repeat(5000)
    );
    let (as_json, as_event) = (json(&big), stream(&format!("data: {big}\n\n")));
    for answer in [as_json, as_event] {
        let (url, _) = serve(stateless(move || answer.clone())).await;
        let connection = connect(&url).await.unwrap();
        let error = connection.call(call("t").0).await.unwrap_err();
        assert_eq!(error.code(), "mcp_result_too_large", "{error}");
    }
}

#[tokio::test]
async fn a_failing_status_is_a_refusal_and_keeps_the_connection() {
    let (url, _) = serve(stateless(|| response("503 Unavailable", "", "busy"))).await;
    let connection = connect(&url).await.unwrap();
    let error = connection.call(call("t").0).await.unwrap_err();
    assert_eq!(error.code(), "mcp_call_refused");
    assert!(error.message().contains("503") && connection.is_usable());
}

#[tokio::test]
async fn a_host_that_is_not_there_is_said_so_at_once() {
    let error = connect("http://127.0.0.1:1/mcp").await.unwrap_err();
    assert!(error.to_lowercase().contains("refused"), "{error}");
    assert!(!error.contains("secret"));
}

async fn open_sse(url: &str, overflow: Overflow) -> Result<SseTransport, String> {
    SseTransport::open(client().unwrap(), &endpoint(url), 4096, overflow)
        .await
        .map_err(|error| error.to_string())
}

#[tokio::test]
async fn an_old_server_may_not_name_an_endpoint_elsewhere() {
    let (elsewhere, mut asked) = serve(|_| json(DISCOVERY)).await;
    let event = format!("event: endpoint\ndata: {elsewhere}/post\n\n");
    let (url, _) = serve(move |_| stream(&event)).await;
    let error = open_sse(&url, Overflow::default()).await.err().unwrap();
    assert!(error.contains("another origin"), "{error}");
    assert!(asked.try_recv().is_err());
}

#[tokio::test]
async fn an_old_server_that_names_no_endpoint_is_refused() {
    for answer in [
        json(DISCOVERY),
        response("404 Not Found", "content-type: text/event-stream\r\n", ""),
        stream("data: hello\n\n"),
        stream(&format!("event: endpoint\ndata: /{}\n\n", "x".repeat(4200))),
    ] {
        let (url, _) = serve(move |_| answer.clone()).await;
        assert!(open_sse(&url, Overflow::default()).await.is_err());
    }
}

#[tokio::test]
async fn an_old_servers_oversized_event_ends_its_connection_with_the_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut events, _) = listener.accept().await.unwrap();
        read_request(&mut events).await;
        let first = stream("event: endpoint\ndata: /post\n\n");
        events.write_all(first.as_bytes()).await.unwrap();
        let (mut post, _) = listener.accept().await.unwrap();
        read_request(&mut post).await;
        let accepted = response("202 Accepted", "", "");
        post.write_all(accepted.as_bytes()).await.unwrap();
        let huge = format!("data: {}\n\n", "x".repeat(5000));
        events.write_all(huge.as_bytes()).await.unwrap();
        let _ = events.read(&mut [0]).await;
    });
    let carrier = Carrier::default();
    let overflow = carrier.overflow.clone();
    let transport = open_sse(&url, overflow.clone()).await.unwrap();
    let opened =
        Connection::open("s", transport, carrier, Era::Handshake, Arc::new(limits())).await;
    assert!(opened.is_err() && overflow.happened());
}
