//! The app-bridge against real servers: the reference server over its three transports, and our
//! own as a process.
#![allow(clippy::unwrap_used)]

use ipc_proto::chat::Block;
use ipc_proto::edges::continuation::Claim;
use ipc_proto::edges::control::RunScope;
use ipc_proto::settings::{McpServerSettings, McpTransport};
use ipc_proto::{ConversationId, RunId};
use mono_app_bridge::call::CallRequest;
use mono_app_bridge::client::Progress;
use mono_app_bridge::limits::Limits;
use mono_app_bridge::servers::{Servers, Started, Starter};
use mono_app_bridge::web;
use mono_tests::everything::Everything;
use mono_tests::{node, program};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Starts the named programs as the supervisor would, without its sandbox.
#[derive(Clone)]
struct Processes {
    command: Arc<dyn Fn() -> Command + Send + Sync>,
    children: Arc<Mutex<Vec<Child>>>,
}

impl Processes {
    fn new(command: impl Fn() -> Command + Send + Sync + 'static) -> Self {
        Self {
            command: Arc::new(command),
            children: Arc::default(),
        }
    }

    fn count(&self) -> usize {
        self.children.lock().unwrap().len()
    }

    fn kill_last(&self) {
        end(self.children.lock().unwrap().last_mut().unwrap());
    }
}

fn end(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

impl Drop for Processes {
    fn drop(&mut self) {
        if Arc::strong_count(&self.children) == 1 {
            self.children.lock().unwrap().iter_mut().for_each(end);
        }
    }
}

impl Starter for Processes {
    async fn start(
        &self,
        _name: &str,
        _run: Option<&RunId>,
        _claim: Option<Claim>,
    ) -> Result<Started, String> {
        let mut child = (self.command)()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut children = self.children.lock().unwrap();
        let started = Started {
            process: children.len() as u64,
            stdin: OwnedFd::from(child.stdin.take().unwrap()),
            stdout: OwnedFd::from(child.stdout.take().unwrap()),
            stderr: OwnedFd::from(child.stderr.take().unwrap()),
        };
        children.push(child);
        Ok(started)
    }

    async fn stop(&self, process: u64) {
        let index = usize::try_from(process).unwrap();
        end(&mut self.children.lock().unwrap()[index]);
    }
}

fn transport(server: &Everything) -> McpTransport {
    let (url, headers) = (server.url(), BTreeMap::new());
    if url.ends_with("/sse") {
        McpTransport::Sse { url, headers }
    } else {
        McpTransport::Http { url, headers }
    }
}

struct Bench {
    servers: Arc<Servers<Processes>>,
    processes: Processes,
    scope: RunScope,
}

impl Bench {
    fn new(transport: McpTransport, processes: Processes, limits: Limits) -> Self {
        let settings = McpServerSettings {
            name: "s".to_owned(),
            transport,
            shared: false,
            per_run: false,
            context: false,
            claims: false,
            apps: None,
        };
        let http = Some(web::client().unwrap());
        let servers = Arc::new(Servers::new(
            vec![settings],
            limits,
            processes.clone(),
            http,
        ));
        let conversation = ConversationId::parse("c").unwrap();
        let scope = RunScope {
            run: RunId::new(),
            delivery: conversation.clone(),
            conversation,
        };
        servers.begin(&scope.run);
        Self {
            servers,
            processes,
            scope,
        }
    }

    async fn call(&self, tool: &str, arguments: Value) -> Result<(String, Vec<Progress>), String> {
        self.interrupted(tool, arguments, |_| {}).await
    }

    /// The text of the result with its progress reports, or the failure's code. `interrupt` is
    /// called when the first report has come: the call is surely under way then.
    async fn interrupted(
        &self,
        tool: &str,
        arguments: Value,
        interrupt: impl FnOnce(&CancellationToken),
    ) -> Result<(String, Vec<Progress>), String> {
        let (progress, mut reports) = mpsc::channel(64);
        let cancel = CancellationToken::new();
        let request = CallRequest {
            tool: tool.to_owned(),
            arguments: arguments.as_object().unwrap().clone(),
            progress,
            cancel: cancel.clone(),
        };
        let follow = async {
            let mut seen: Vec<Progress> = reports.recv().await.into_iter().collect();
            interrupt(&cancel);
            while let Some(report) = reports.recv().await {
                seen.push(report);
            }
            seen
        };
        let (result, seen) = tokio::join!(self.servers.call(&self.scope, "s", request), follow);
        let result = result.map_err(|error| error.code().to_owned())?;
        let text = result.content.iter().map(|block| match block {
            Block::Text { text } => text.clone(),
            other => format!("{other:?}"),
        });
        Ok((text.collect(), seen))
    }
}

fn everything() -> Processes {
    Processes::new(|| {
        let mut command = Command::new(node::node());
        command.arg(node::server_everything()).arg("stdio");
        command
    })
}

fn own() -> Processes {
    let path = program::binary("mono-mcp-fixture", "mcp-fixture");
    Processes::new(move || Command::new(&path))
}

fn nothing() -> Processes {
    Processes::new(|| Command::new("/nonexistent"))
}

fn stdio() -> McpTransport {
    McpTransport::Stdio
}

/// What every transport has to be able to do.
async fn exercise(bench: &Bench) {
    let (tools, warnings) = bench.servers.list_tools(&bench.scope).await;
    assert!(warnings.is_empty(), "{warnings:?}");
    assert!(tools.len() >= 13, "{tools:?}");
    let echo = tools.iter().find(|tool| tool.tool == "echo").unwrap();
    assert!(echo.read_only && echo.input_schema["properties"]["message"].is_object());

    let (said, _) = bench
        .call("echo", json!({ "message": "hi" }))
        .await
        .unwrap();
    assert_eq!(said, "Echo: hi");

    let arguments = json!({ "duration": 1, "steps": 4 });
    let (said, seen) = bench
        .call("trigger-long-running-operation", arguments)
        .await
        .unwrap();
    assert!(said.contains("completed"), "{said}");
    let steps: Vec<f64> = seen.iter().map(|report| report.progress).collect();
    assert_eq!(steps, [1.0, 2.0, 3.0, 4.0]);

    let large = "x".repeat(1 << 20);
    let (said, _) = bench
        .call("echo", json!({ "message": large }))
        .await
        .unwrap();
    assert_eq!(said.len(), "Echo: ".len() + (1 << 20));

    let (said, _) = bench.call("get-tiny-image", json!({})).await.unwrap();
    assert!(said.contains("image/png"), "{said}");
    let arguments = json!({ "location": "Chicago" });
    let (said, _) = bench
        .call("get-structured-content", arguments)
        .await
        .unwrap();
    assert!(said.contains("temperature"), "{said}");

    // The reference server ignores cancellation: that must cost neither the time nor the session.
    let began = Instant::now();
    let arguments = json!({ "duration": 600, "steps": 6000 });
    let operation = "trigger-long-running-operation";
    let cancelled = bench
        .interrupted(operation, arguments, CancellationToken::cancel)
        .await;
    assert_eq!(cancelled.unwrap_err(), "mcp_call_cancelled");
    assert!(began.elapsed() < Duration::from_secs(60));
    let (said, _) = bench
        .call("echo", json!({ "message": "after" }))
        .await
        .unwrap();
    assert_eq!(said, "Echo: after");
}

#[tokio::test]
async fn the_reference_server_over_stdio() {
    let bench = Bench::new(stdio(), everything(), Limits::default());
    exercise(&bench).await;
    assert_eq!(bench.processes.count(), 1);
    bench.servers.close().await;
}

#[tokio::test]
async fn the_reference_server_over_streamable_http() {
    let server = Everything::start("streamableHttp").unwrap();
    let bench = Bench::new(transport(&server), nothing(), Limits::default());
    exercise(&bench).await;
    bench.servers.close().await;
}

#[tokio::test]
async fn the_reference_server_over_the_old_transport() {
    let server = Everything::start("sse").unwrap();
    let bench = Bench::new(transport(&server), nothing(), Limits::default());
    exercise(&bench).await;
    bench.servers.close().await;
}

/// A declaration of an address seldom says which transport is meant.
#[tokio::test]
async fn an_old_server_declared_as_http_is_found_all_the_same() {
    let server = Everything::start("sse").unwrap();
    let McpTransport::Sse { url, headers } = transport(&server) else {
        panic!("another transport");
    };
    let bench = Bench::new(
        McpTransport::Http { url, headers },
        nothing(),
        Limits::default(),
    );
    let (said, _) = bench
        .call("echo", json!({ "message": "hi" }))
        .await
        .unwrap();
    assert_eq!(said, "Echo: hi");
    bench.servers.close().await;
}

#[tokio::test]
async fn progress_keeps_a_call_alive_and_its_absence_ends_it() {
    let limits = Limits {
        call_inactivity: Duration::from_secs(6),
        ..Limits::default()
    };
    let bench = Bench::new(stdio(), everything(), limits);
    // Four steps of 2 s: longer than the limit together, each one well within it.
    let arguments = json!({ "duration": 8, "steps": 4 });
    bench
        .call("trigger-long-running-operation", arguments)
        .await
        .unwrap();
    // One step of a minute says nothing on the way, though the server answers the probe.
    let arguments = json!({ "duration": 60, "steps": 1 });
    let failed = bench
        .call("trigger-long-running-operation", arguments)
        .await;
    assert_eq!(failed.unwrap_err(), "mcp_call_timeout");
    // Slow is not broken: the same process goes on.
    bench
        .call("echo", json!({ "message": "hi" }))
        .await
        .unwrap();
    assert_eq!(bench.processes.count(), 1);
    bench.servers.close().await;
}

#[tokio::test]
async fn a_killed_process_fails_its_call_and_is_started_for_the_next() {
    let bench = Bench::new(stdio(), everything(), Limits::default());
    bench
        .call("echo", json!({ "message": "hi" }))
        .await
        .unwrap();
    let arguments = json!({ "duration": 600, "steps": 6000 });
    let operation = "trigger-long-running-operation";
    let failed = bench
        .interrupted(operation, arguments, |_| bench.processes.kill_last())
        .await;
    assert_eq!(failed.unwrap_err(), "mcp_server_gone");
    let (said, _) = bench
        .call("echo", json!({ "message": "back" }))
        .await
        .unwrap();
    assert_eq!((said.as_str(), bench.processes.count()), ("Echo: back", 2));
    bench.servers.close().await;
}

#[tokio::test]
async fn a_restarted_http_server_is_found_again() {
    for mode in ["streamableHttp", "sse"] {
        let mut server = Everything::start(mode).unwrap();
        let bench = Bench::new(transport(&server), nothing(), Limits::default());
        bench
            .call("echo", json!({ "message": "hi" }))
            .await
            .unwrap();
        server.kill().unwrap();
        let failed = bench
            .call("echo", json!({ "message": "hi" }))
            .await
            .unwrap_err();
        assert!(
            ["mcp_server_gone", "mcp_init_failed"].contains(&failed.as_str()),
            "{mode}: {failed}"
        );
        server.restart().unwrap();
        let (said, _) = bench
            .call("echo", json!({ "message": "back" }))
            .await
            .unwrap();
        assert_eq!(said, "Echo: back", "{mode}");
        bench.servers.close().await;
    }
}

#[tokio::test]
async fn our_own_server_that_crashes_comes_back_and_one_that_falls_silent_is_replaced() {
    let limits = Limits {
        call_inactivity: Duration::from_secs(6),
        ..Limits::default()
    };
    let bench = Bench::new(stdio(), own(), limits);
    assert_eq!(
        bench.call("crash", json!({})).await.unwrap_err(),
        "mcp_server_gone"
    );
    let (said, _) = bench
        .call("echo", json!({ "message": "one" }))
        .await
        .unwrap();
    assert_eq!(said, "one");
    assert_eq!(
        bench.call("silent", json!({})).await.unwrap_err(),
        "mcp_server_silent"
    );
    let (said, _) = bench
        .call("echo", json!({ "message": "two" }))
        .await
        .unwrap();
    assert_eq!((said.as_str(), bench.processes.count()), ("two", 3));
    bench.servers.close().await;
}
