//! An endpoint over real connections: what a client gets, and that nothing is left of it.
#![allow(clippy::unwrap_used)]

use app_tools::{Answer, AppTool, Call, Endpoint, MAX_BODY, MAX_CONNECTIONS, ToolSet};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// Says what it was told, or works until it is cancelled.
#[derive(Default)]
struct Tools {
    working: Arc<Notify>,
    given_up: Arc<Notify>,
}

impl ToolSet for Tools {
    fn server_name(&self) -> &'static str {
        "test-tools"
    }

    fn tools(&self) -> Vec<AppTool> {
        let schema = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
        vec![
            AppTool::new("echo", "Says it again.", schema),
            AppTool::new(
                "work",
                "Works until it is cancelled.",
                json!({ "type": "object" }),
            ),
        ]
    }

    async fn call(&self, call: Call) -> Answer {
        if call.name == "echo" {
            return match call.arguments.get("text").and_then(Value::as_str) {
                Some(text) => Answer::text(text),
                None => Answer::error("text is missing"),
            };
        }
        self.working.notify_one();
        let given_up = self.given_up.clone();
        tokio::spawn(async move {
            call.cancelled.cancelled().await;
            given_up.notify_one();
        });
        std::future::pending().await
    }
}

struct Reached {
    port: u16,
    path: String,
}

fn reach(endpoint: &Endpoint) -> Reached {
    let url = endpoint
        .url()
        .reveal()
        .strip_prefix("http://127.0.0.1:")
        .unwrap();
    let (port, path) = url.split_once('/').unwrap();
    Reached {
        port: port.parse().unwrap(),
        path: format!("/{path}"),
    }
}

impl Reached {
    async fn connect(&self) -> std::io::Result<TcpStream> {
        TcpStream::connect(("127.0.0.1", self.port)).await
    }

    fn head(&self, length: usize, more: &str) -> String {
        format!(
            "POST {} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\naccept: application/json, text/event-stream\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n{more}\r\n",
            self.path, self.port
        )
    }

    async fn ask_with(&self, request: &Value, more: &str) -> (u16, Value) {
        let body = request.to_string();
        let mut stream = self.connect().await.unwrap();
        let head = self.head(body.len(), more);
        stream.write_all((head + &body).as_bytes()).await.unwrap();
        answer(stream).await
    }

    async fn ask(&self, request: &Value) -> (u16, Value) {
        self.ask_with(request, "").await
    }
}

async fn answer(mut stream: TcpStream) -> (u16, Value) {
    let mut text = String::new();
    let read = stream.read_to_string(&mut text);
    tokio::time::timeout(PATIENCE, read).await.unwrap().unwrap();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    let body = text.split_once("\r\n\r\n").unwrap().1;
    (status, serde_json::from_str(body).unwrap_or_default())
}

fn initialize(version: &str) -> Value {
    let client = json!({ "name": "test", "version": "1" });
    let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params })
}

fn calling(name: &str, arguments: Value) -> Value {
    let params = json!({ "name": name, "arguments": arguments });
    json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params })
}

#[tokio::test]
async fn each_request_stands_alone_and_a_second_client_may_initialise() {
    let endpoint = Endpoint::open(Tools::default()).await.unwrap();
    let at = reach(&endpoint);
    // Without a handshake first; then two of them, by clients of two revisions; and on.
    for round in 0..2 {
        let (status, listed) = at
            .ask(&json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }))
            .await;
        assert_eq!(status, 200, "{listed}");
        let names: Vec<&Value> = listed["result"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|t| &t["name"])
            .collect();
        assert_eq!(names, ["echo", "work"]);
        let version = ["2025-06-18", "2025-11-25"][round];
        let (status, begun) = at.ask(&initialize(version)).await;
        assert_eq!(status, 200, "{begun}");
        assert_eq!(begun["result"]["protocolVersion"], version);
        assert_eq!(begun["result"]["serverInfo"]["name"], "test-tools");
        let noted = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(at.ask(&noted).await.0, 202);
    }
    let (_, said) = at
        .ask(&calling("echo", json!({ "text": "x".repeat(10_001) })))
        .await;
    let lengths: Vec<usize> = said["result"]["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["text"].as_str().unwrap().len())
        .collect();
    assert_eq!(lengths, [10_000, 1]);
    assert_ne!(said["result"]["isError"], true);
    let (_, refused) = at.ask(&calling("echo", json!({}))).await;
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    let (_, unknown) = at.ask(&calling("nothing", json!({}))).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
}

#[tokio::test]
async fn the_revision_without_handshakes_is_spoken_too() {
    let endpoint = Endpoint::open(Tools::default()).await.unwrap();
    let at = reach(&endpoint);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let mut call = calling("echo", json!({ "text": "hello" }));
    call["params"]["_meta"] = meta.clone();
    let (status, said) = at
        .ask_with(
            &call,
            "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: echo\r\n",
        )
        .await;
    assert_eq!(
        (status, &said["result"]["content"][0]["text"]),
        (200, &json!("hello")),
        "{said}"
    );
    let discover = json!({ "jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": { "_meta": meta } });
    let (status, known) = at
        .ask_with(
            &discover,
            "mcp-protocol-version: 2026-07-28\r\nmcp-method: server/discover\r\n",
        )
        .await;
    assert_eq!(status, 200, "{known}");
    assert!(
        known["result"]["capabilities"]["tools"].is_object(),
        "{known}"
    );
}

#[tokio::test]
async fn what_is_wrong_is_refused_before_the_protocol() {
    let endpoint = Endpoint::open(Tools::default()).await.unwrap();
    let at = reach(&endpoint);
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    let elsewhere = Reached {
        path: "/mcp/00000000-0000-4000-8000-000000000000".into(),
        port: at.port,
    };
    assert_eq!(elsewhere.ask(&list).await.0, 404);
    assert_eq!(at.ask_with(&list, "host: evil.example\r\n").await.0, 404);
    assert_eq!(
        at.ask_with(&list, "origin: https://evil.example\r\n")
            .await
            .0,
        403
    );
    // Too large by its own word; nothing more of it has to be sent.
    let mut stream = at.connect().await.unwrap();
    stream
        .write_all(at.head(MAX_BODY + 1, "").as_bytes())
        .await
        .unwrap();
    stream.write_all(&vec![b' '; MAX_BODY + 1]).await.unwrap();
    assert_eq!(answer(stream).await.0, 500);
}

#[tokio::test]
async fn closing_ends_every_connection_and_the_work_under_way() {
    let tools = Tools::default();
    let (working, given_up) = (tools.working.clone(), tools.given_up.clone());
    let mut endpoint = Endpoint::open(tools).await.unwrap();
    let at = reach(&endpoint);
    let mut idle = at.connect().await.unwrap();
    let body = calling("work", json!({})).to_string();
    let mut busy = at.connect().await.unwrap();
    busy.write_all((at.head(body.len(), "") + &body).as_bytes())
        .await
        .unwrap();
    tokio::time::timeout(PATIENCE, working.notified())
        .await
        .unwrap();

    tokio::time::timeout(PATIENCE, endpoint.close())
        .await
        .unwrap();
    tokio::time::timeout(PATIENCE, given_up.notified())
        .await
        .unwrap();
    assert!(at.connect().await.is_err());
    let mut left = Vec::new();
    for stream in [&mut idle, &mut busy] {
        // Closed or reset: nothing comes any more, and it doesn't last.
        let read = stream.read_to_end(&mut left);
        let _ = tokio::time::timeout(PATIENCE, read).await.unwrap();
    }
    tokio::time::timeout(PATIENCE, endpoint.close())
        .await
        .unwrap();
    drop(endpoint);
    assert!(at.connect().await.is_err());
}

#[tokio::test]
async fn an_endpoint_that_is_dropped_is_closed() {
    let endpoint = Endpoint::open(Tools::default()).await.unwrap();
    let at = reach(&endpoint);
    let mut idle = at.connect().await.unwrap();
    drop(endpoint);
    let mut some = [0; 1];
    let read = idle.read(&mut some);
    assert!(matches!(
        tokio::time::timeout(PATIENCE, read).await.unwrap(),
        Ok(0) | Err(_)
    ));
    assert!(at.connect().await.is_err());
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_call() {
    let tools = Tools::default();
    let (working, given_up) = (tools.working.clone(), tools.given_up.clone());
    let endpoint = Endpoint::open(tools).await.unwrap();
    let at = reach(&endpoint);
    let body = calling("work", json!({})).to_string();
    let mut busy = at.connect().await.unwrap();
    busy.write_all((at.head(body.len(), "") + &body).as_bytes())
        .await
        .unwrap();
    tokio::time::timeout(PATIENCE, working.notified())
        .await
        .unwrap();
    drop(busy);
    tokio::time::timeout(PATIENCE, given_up.notified())
        .await
        .unwrap();
    drop(endpoint);
}

#[tokio::test]
async fn connections_over_the_bound_wait_for_their_turn() {
    let endpoint = Endpoint::open(Tools::default()).await.unwrap();
    let at = reach(&endpoint);
    let mut open = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        open.push(at.connect().await.unwrap());
    }
    // One answer for each shows that all of them were taken.
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }).to_string();
    let head = at.head(list.len(), "").replace("connection: close\r\n", "");
    for stream in &mut open {
        stream
            .write_all((head.clone() + &list).as_bytes())
            .await
            .unwrap();
        let mut some = [0; 15];
        stream.read_exact(&mut some).await.unwrap();
        assert_eq!(&some, b"HTTP/1.1 200 OK");
    }
    let again = json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/list" });
    let late = at.ask(&again);
    tokio::pin!(late);
    for _ in 0..100 {
        tokio::select! {
            biased;
            early = &mut late => panic!("answered without a slot: {early:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    open.pop();
    assert_eq!(tokio::time::timeout(PATIENCE, late).await.unwrap().0, 200);
}
