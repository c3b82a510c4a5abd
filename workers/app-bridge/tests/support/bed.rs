//! A gateway with a scripted server, and stubs as a test plays them.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use crate::scripted::Scripted;
use ipc_proto::settings::McpServerSettings;
use mono_app_bridge::gateway::GatewayLimits;
use mono_app_bridge::gateway::broker::{Broker, Holder};
use mono_app_bridge::gateway::session;
use mono_app_bridge::limits::Limits;
use mono_app_bridge::servers::Servers;
use serde_json::{Value, json};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

pub const HOLDER: Holder = Holder {
    pid: 7,
    started: 70,
};

pub struct Bed {
    pub broker: Arc<Broker<Scripted>>,
    pub server: Scripted,
}

impl Bed {
    pub fn new(settings: Vec<McpServerSettings>, limits: GatewayLimits) -> Self {
        let server = Scripted::default();
        let servers = Servers::new(settings, Limits::default(), server.clone(), None);
        let limits = GatewayLimits {
            shows_apps: false,
            ..limits
        };
        let broker = Broker::new(Arc::new(servers), limits);
        Self { broker, server }
    }

    /// A connection as the supervisor hands it over.
    pub fn connect(&self, holder: Holder) -> Stub {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let fd: OwnedFd = theirs.into_std().unwrap().into();
        tokio::spawn(session::serve(self.broker.clone(), fd, holder));
        Stub {
            stream: ours,
            read: vec![],
            anchor: None,
        }
    }

    /// Ends every process, and waits until that is noticed.
    pub async fn kill(&self) {
        self.server.kill();
        let noticed = async {
            while self.broker.stats().backends > 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), noticed)
            .await
            .unwrap();
    }

    /// A stub whose client has shaken hands.
    pub async fn greeted(&self, server: &str, token: u8) -> Stub {
        let mut stub = self.registered(server, token, None).await;
        let result = stub.initialize().await;
        assert_eq!(
            result["result"]["serverInfo"]["name"], "scripted",
            "{result}"
        );
        stub
    }

    pub async fn registered(&self, server: &str, token: u8, anchor: Option<&str>) -> Stub {
        let mut stub = self.connect(HOLDER);
        stub.register(1, server, &format!("{token:02x}").repeat(32), anchor)
            .await;
        let line = stub.line().await.unwrap();
        assert!(line.starts_with("#registered "), "{line}");
        stub
    }
}

pub struct Stub {
    pub stream: UnixStream,
    read: Vec<u8>,
    pub anchor: Option<String>,
}

impl Stub {
    pub async fn say(&mut self, line: &str) {
        self.stream.write_all(line.as_bytes()).await.unwrap();
        self.stream.write_all(b"\n").await.unwrap();
    }

    pub async fn register(
        &mut self,
        version: u32,
        server: &str,
        token: &str,
        anchor: Option<&str>,
    ) {
        let register =
            json!({ "version": version, "server": server, "session": token, "anchor": anchor });
        self.say(&format!("#register {register}")).await;
    }

    /// The next line; none at the end.
    pub async fn line(&mut self) -> Option<String> {
        let reading = async {
            loop {
                if let Some(end) = self.read.iter().position(|b| *b == b'\n') {
                    let rest = self.read.split_off(end + 1);
                    let mut line = std::mem::replace(&mut self.read, rest);
                    line.pop();
                    return Some(String::from_utf8(line).unwrap());
                }
                let mut buffer = vec![0; 65_536];
                match self.stream.read(&mut buffer).await {
                    Ok(0) | Err(_) => return None,
                    Ok(read) => self.read.extend_from_slice(&buffer[..read]),
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), reading)
            .await
            .unwrap()
    }

    /// The next message; remembers anchors.
    pub async fn message(&mut self) -> Value {
        loop {
            let line = self.line().await.expect("a message");
            if let Some(anchor) = line.strip_prefix("#anchor ") {
                self.anchor = Some(anchor.to_owned());
            } else if !line.starts_with('#') {
                return serde_json::from_str(&line).unwrap();
            }
        }
    }

    pub async fn initialize(&mut self) -> Value {
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": { "sampling": {} },
            "clientInfo": { "name": "test", "version": "1" } });
        let answer = self.ask(json!("init"), "initialize", params).await;
        self.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
            .await;
        answer
    }

    pub async fn send(&mut self, id: Value, method: &str, params: Value) {
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.say(&line.to_string()).await;
    }

    pub async fn ask(&mut self, id: Value, method: &str, params: Value) -> Value {
        self.send(id.clone(), method, params).await;
        let answer = self.message().await;
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    pub async fn call(&mut self, id: u32, tool: &str, arguments: Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments });
        self.ask(json!(id), "tools/call", params).await
    }
}

pub fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"))
}

pub fn error(answer: &Value) -> &str {
    answer["error"]["message"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"))
}
