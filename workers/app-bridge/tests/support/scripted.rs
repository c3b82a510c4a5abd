//! A server that does what a test says.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use ipc_proto::RunId;
use ipc_proto::edges::continuation::Claim;
use ipc_proto::settings::{McpServerSettings, McpTransport};
use mono_app_bridge::servers::{Started, Starter};
use serde_json::{Value, json};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

#[derive(Default)]
struct State {
    tools: Vec<Value>,
    heard: Vec<Value>,
    started: u64,
    stopped: u64,
    running: Vec<(u64, CancellationToken)>,
    refusal: Option<String>,
    wants_callers: bool,
    release: CancellationToken,
}

#[derive(Clone)]
pub struct Scripted(Arc<Mutex<State>>);

pub fn tool(name: &str) -> Value {
    json!({ "name": name, "inputSchema": { "type": "object" } })
}

pub fn declared(name: &str) -> McpServerSettings {
    McpServerSettings {
        name: name.to_owned(),
        transport: McpTransport::Stdio,
        shared: false,
        per_run: false,
        context: false,
        claims: false,
        apps: None,
    }
}

impl Default for Scripted {
    fn default() -> Self {
        let names = ["echo", "wait", "hang", "progress", "ask", "log", "big"];
        Self(Arc::new(Mutex::new(State {
            tools: names.map(tool).into(),
            ..State::default()
        })))
    }
}

impl Scripted {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub fn add(&self, tool: Value) {
        self.state().tools.push(tool);
    }

    pub fn remove(&self, name: &str) {
        self.state().tools.retain(|tool| tool["name"] != name);
    }

    pub fn refuse(&self, why: &str) {
        self.state().refusal = Some(why.to_owned());
    }

    pub fn want_callers(&self) {
        self.state().wants_callers = true;
    }

    pub fn started(&self) -> u64 {
        self.state().started
    }

    /// Ends every process as `kill -9` does.
    pub fn kill(&self) {
        for (_, life) in self.state().running.drain(..) {
            life.cancel();
        }
    }

    pub fn release(&self) {
        self.state().release.cancel();
    }

    /// Messages of a method so far.
    pub fn heard(&self, method: &str) -> Vec<Value> {
        let state = self.state();
        state
            .heard
            .iter()
            .filter(|message| message["method"] == method)
            .cloned()
            .collect()
    }

    async fn until(&self, what: impl Fn(&State) -> bool) {
        let waiting = async {
            while !what(&self.state()) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), waiting)
            .await
            .unwrap();
    }

    /// So many calls of `wait` are there.
    pub async fn waits(&self, count: usize) {
        let waits = |message: &&Value| message["params"]["name"] == "wait";
        self.until(|state| state.heard.iter().filter(waits).count() == count)
            .await;
    }

    /// So many requests were cancelled, and each was one that is there.
    pub async fn cancelled(&self, count: usize) {
        let cancelled = |message: &&Value| message["method"] == "notifications/cancelled";
        self.until(|state| state.heard.iter().filter(cancelled).count() == count)
            .await;
        let state = self.state();
        for message in state.heard.iter().filter(cancelled) {
            let id = &message["params"]["requestId"];
            let call = state.heard.iter().find(|call| call["id"] == *id);
            assert_eq!(call.unwrap()["params"]["name"], "wait");
        }
    }

    pub async fn pinged(&self, count: usize) {
        let ping = |message: &&Value| message["method"] == "ping";
        self.until(|state| state.heard.iter().filter(ping).count() >= count)
            .await;
    }

    pub async fn stopped(&self, count: u64) {
        self.until(|state| state.stopped == count).await;
    }

    async fn serve(self, stdin: OwnedFd, stdout: OwnedFd) {
        let mut lines = BufReader::new(pipe::Receiver::from_owned_fd(stdin).unwrap()).lines();
        let (say, mut said) = tokio::sync::mpsc::unbounded_channel::<Value>();
        let mut output = pipe::Sender::from_owned_fd(stdout).unwrap();
        // Goes with this future: a process that is killed writes nothing more.
        let _writing = AbortOnDropHandle::new(tokio::spawn(async move {
            while let Some(message) = said.recv().await {
                if output
                    .write_all(format!("{message}\n").as_bytes())
                    .await
                    .is_err()
                {
                    return;
                }
            }
        }));
        let mut asking: Option<Value> = None;
        while let Ok(Some(line)) = lines.next_line().await {
            let message: Value = serde_json::from_str(&line).unwrap();
            self.state().heard.push(message.clone());
            let id = message["id"].clone();
            let result = |result: Value| json!({ "jsonrpc": "2.0", "id": id, "result": result });
            let text = |text: &str| json!({ "content": [{ "type": "text", "text": text }] });
            let answer = match message["method"].as_str() {
                Some("initialize") => {
                    let mut capabilities = json!({ "tools": {} });
                    if self.state().wants_callers {
                        capabilities["experimental"] = json!({ "mono-agent/caller-identity": {} });
                    }
                    result(
                        json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities,
                        "serverInfo": { "name": "scripted", "version": "1" } }),
                    )
                }
                Some("tools/list") => result(json!({ "tools": self.state().tools })),
                Some("ping" | "resources/subscribe" | "resources/unsubscribe") => result(json!({})),
                Some("resources/read") => result(json!({ "contents": [{
                    "uri": message["params"]["uri"], "mimeType": "text/html;profile=mcp-app",
                    "text": "<p>page", "_meta": { "ui": {} } }] })),
                Some("tools/call") => {
                    let arguments = &message["params"]["arguments"];
                    match message["params"]["name"].as_str().unwrap() {
                        "echo" => result(text(&arguments.to_string())),
                        "big" => {
                            let bytes = arguments["bytes"].as_u64().unwrap() as usize;
                            result(text(&"b".repeat(bytes)))
                        }
                        "progress" => {
                            let own = arguments["say"].as_str().unwrap();
                            let token = message["params"]["_meta"]["progressToken"].clone();
                            assert!(token.is_number(), "{message}");
                            let params =
                                json!({ "progressToken": token, "progress": 1, "message": own });
                            let _ = say.send(json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }));
                            result(text(own))
                        }
                        "log" => {
                            let params = json!({ "level": "info", "data": "l" });
                            let _ = say.send(json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": params }));
                            result(text("logged"))
                        }
                        "ask" => {
                            asking = Some(id.clone());
                            let question = arguments.get("question").cloned();
                            let question = question.unwrap_or_else(|| json!("q1"));
                            json!({ "jsonrpc": "2.0", "id": question, "method": "sampling/createMessage", "params": {} })
                        }
                        "wait" => {
                            let release = self.state().release.clone();
                            let (say, answer) = (say.clone(), result(text("released")));
                            tokio::spawn(async move {
                                release.cancelled().await;
                                let _ = say.send(answer);
                            });
                            continue;
                        }
                        "hang" => std::future::pending().await,
                        "flood" => {
                            for n in 0..20_000 {
                                let _ = say
                                    .send(json!({ "jsonrpc": "2.0", "id": n, "method": "ping" }));
                            }
                            std::future::pending().await
                        }
                        other => panic!("{other}"),
                    }
                }
                None => {
                    let Some(asked) = asking.take() else { continue };
                    let told = match message.get("result") {
                        Some(result) => format!("answered {result}"),
                        None => format!("refused {}", message["error"]["code"]),
                    };
                    json!({ "jsonrpc": "2.0", "id": asked, "result": text(&told) })
                }
                Some(_) => continue,
            };
            let _ = say.send(answer);
        }
    }
}

impl Starter for Scripted {
    async fn start(
        &self,
        _name: &str,
        run: Option<&RunId>,
        claim: Option<Claim>,
    ) -> Result<Started, String> {
        assert!(run.is_none() && claim.is_none());
        let pair = || nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
        let ((stdin, ours_in), (ours_out, stdout), (ours_err, stderr)) = (pair(), pair(), pair());
        let mut state = self.state();
        if let Some(why) = &state.refusal {
            return Err(why.clone());
        }
        state.started += 1;
        let (process, life) = (state.started, CancellationToken::new());
        state.running.push((process, life.clone()));
        let serving = self.clone().serve(stdin, stdout);
        tokio::spawn(async move {
            tokio::select! {
                () = serving => {}
                () = life.cancelled() => {}
            }
            drop(stderr);
        });
        Ok(Started {
            process,
            stdin: ours_in,
            stdout: ours_out,
            stderr: ours_err,
        })
    }

    async fn stop(&self, process: u64) {
        let mut state = self.state();
        state.stopped += 1;
        for (_, life) in state
            .running
            .extract_if(.., |(running, _)| *running == process)
        {
            life.cancel();
        }
    }
}
