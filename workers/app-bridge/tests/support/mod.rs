//! A peer whose every line the test writes itself, over an in-memory pipe.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod stage;
pub mod starter;

use mono_app_bridge::call::CallRequest;
use mono_app_bridge::client::Progress;
use mono_app_bridge::connection::{Carrier, Connection, Era, Failed};
use mono_app_bridge::limits::Limits;
use mono_app_bridge::pipes::transport;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Short limits; with a paused clock their length costs nothing.
pub fn limits() -> Limits {
    Limits {
        connect: Duration::from_secs(20),
        discover: Duration::from_secs(2),
        list: Duration::from_secs(5),
        call_inactivity: Duration::from_secs(10),
        call_total: Duration::from_secs(60),
        ..Limits::default()
    }
}

pub struct Peer {
    lines: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    write: WriteHalf<DuplexStream>,
}

impl Peer {
    /// The next message that the host sends.
    pub async fn next(&mut self) -> Value {
        let line = self.lines.next_line().await.unwrap();
        serde_json::from_str(&line.expect("the host closed the pipe")).unwrap()
    }

    /// The next message, which must be of this method.
    pub async fn expect(&mut self, method: &str) -> Value {
        let message = self.next().await;
        assert_eq!(message["method"], method, "{message}");
        message
    }

    /// The next message of this method; the host's probes before it go unanswered.
    pub async fn past_probes(&mut self, method: &str) -> Value {
        loop {
            let message = self.next().await;
            if message["method"] != "ping" {
                assert_eq!(message["method"], method, "{message}");
                return message;
            }
        }
    }

    /// True when the host closes the pipe without a further message.
    pub async fn closed(&mut self) -> bool {
        matches!(self.lines.next_line().await, Ok(None) | Err(_))
    }

    pub async fn raw(&mut self, bytes: &[u8]) {
        // The host may have hung up by now; the test sees that elsewhere.
        let _ = self.write.write_all(bytes).await;
    }

    pub async fn send(&mut self, message: Value) {
        self.raw(format!("{message}\n").as_bytes()).await;
    }

    pub async fn answer(&mut self, request: &Value, result: Value) {
        self.send(json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }))
            .await;
    }

    pub async fn refuse(&mut self, request: &Value, code: i32) {
        self.send(json!({ "jsonrpc": "2.0", "id": request["id"],
            "error": { "code": code, "message": "no" } }))
            .await;
    }

    pub async fn progress(&mut self, request: &Value, progress: u32) {
        let token = &request["params"]["_meta"]["progressToken"];
        self.send(
            json!({ "jsonrpc": "2.0", "method": "notifications/progress",
            "params": { "progressToken": token, "progress": progress } }),
        )
        .await;
    }

    /// A server of the handshake era, up to its first request.
    pub async fn greet(&mut self) {
        let discover = self.expect("server/discover").await;
        self.refuse(&discover, -32601).await;
        self.initialize().await;
    }

    pub async fn initialize(&mut self) {
        let initialize = self.expect("initialize").await;
        assert_eq!(initialize["params"]["protocolVersion"], "2025-11-25");
        self.answer(
            &initialize,
            json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                "serverInfo": { "name": "scripted", "version": "1" } }),
        )
        .await;
        self.expect("notifications/initialized").await;
    }

    /// A server of the stateless era.
    pub async fn discover(&mut self) {
        let discover = self.expect("server/discover").await;
        self.answer(&discover, discovery()).await;
    }
}

pub fn discovery() -> Value {
    json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"],
        "capabilities": { "tools": {} }, "ttlMs": 0, "cacheScope": "private",
        "serverInfo": { "name": "scripted", "version": "1" } })
}

pub fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

/// Opens a connection to a peer that runs `script` at the same time.
pub async fn open<S, F, T>(limits: Limits, era: Era, script: S) -> (Result<Connection, Failed>, T)
where
    S: FnOnce(Peer) -> F,
    F: Future<Output = T>,
{
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (read, write) = tokio::io::split(theirs);
    let peer = Peer {
        lines: BufReader::new(read).lines(),
        write,
    };
    let carrier = Carrier::default();
    let (output, input) = tokio::io::split(ours);
    let transport = transport(output, input, limits.message, &carrier.overflow);
    let opening = Connection::open("s", transport, carrier, era, Arc::new(limits));
    tokio::join!(opening, script(peer))
}

/// A connection to a server of the handshake era, and its peer.
pub async fn connected(limits: Limits) -> (Connection, Peer) {
    let (connection, peer) = open(limits, Era::Unknown, |mut peer| async {
        peer.greet().await;
        peer
    })
    .await;
    (connection.unwrap(), peer)
}

/// A connection to a server of the stateless era, and its peer.
pub async fn stateless(limits: Limits) -> (Connection, Peer) {
    let (connection, peer) = open(limits, Era::Unknown, |mut peer| async {
        peer.discover().await;
        peer
    })
    .await;
    (connection.unwrap(), peer)
}

pub fn call(tool: &str) -> (CallRequest, mpsc::Receiver<Progress>, CancellationToken) {
    call_with(tool, json!({}))
}

pub fn call_with(
    tool: &str,
    arguments: Value,
) -> (CallRequest, mpsc::Receiver<Progress>, CancellationToken) {
    let (progress, reports) = mpsc::channel(32);
    let cancel = CancellationToken::new();
    let arguments: Map<String, Value> = arguments.as_object().unwrap().clone();
    let request = CallRequest {
        tool: tool.to_owned(),
        arguments,
        progress,
        cancel: cancel.clone(),
    };
    (request, reports, cancel)
}
