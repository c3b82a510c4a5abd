//! Our own server in this process, behind real pipes, for tests that play the supervisor.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use ipc_proto::edges::continuation::Claim;
use ipc_proto::edges::control::RunScope;
use ipc_proto::settings::{McpServerSettings, McpTransport, ServerApps};
use ipc_proto::{ConversationId, RunId};
use mono_app_bridge::limits::Limits;
use mono_app_bridge::servers::{Servers, Started, Starter};
use mono_mcp_fixture::Fixture;
use rmcp::model::{ErrorData, ListToolsResult, PaginatedRequestParams};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler, ServiceExt};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;

struct NeverLists;

impl ServerHandler for NeverLists {
    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        std::future::pending().await
    }
}

/// What the test's starter does for a name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Plan {
    Serve,
    /// Like a program that is not there.
    Refuse,
    /// Like a program that ends at once, with a last word.
    Die,
    /// Greets, and then answers no request for its tools.
    NeverList,
}

#[derive(Default)]
pub struct Log {
    plans: HashMap<String, Plan>,
    running: HashMap<u64, CancellationToken>,
    started: Vec<String>,
    stopped: Vec<u64>,
    next: u64,
}

#[derive(Clone, Default)]
pub struct InProcess(Arc<Mutex<Log>>);

impl InProcess {
    pub fn plan(&self, name: &str, plan: Plan) {
        self.0.lock().unwrap().plans.insert(name.to_owned(), plan);
    }

    /// Ends a server as `kill -9` does: its pipes close.
    pub fn kill(&self, process: u64) {
        self.0.lock().unwrap().running[&process].cancel();
    }

    pub fn started(&self) -> Vec<String> {
        self.0.lock().unwrap().started.clone()
    }

    pub fn stopped(&self) -> Vec<u64> {
        self.0.lock().unwrap().stopped.clone()
    }
}

impl Starter for InProcess {
    async fn start(
        &self,
        name: &str,
        run: Option<&RunId>,
        _claim: Option<Claim>,
    ) -> Result<Started, String> {
        let mut log = self.0.lock().unwrap();
        log.started.push(format!(
            "{name}{}",
            if run.is_some() { " for its run" } else { "" }
        ));
        let plan = log.plans.get(name).copied().unwrap_or(Plan::Serve);
        if plan == Plan::Refuse {
            return Err("no such program: check the command".to_owned());
        }
        log.next += 1;
        let process = log.next;
        let life = CancellationToken::new();
        log.running.insert(process, life.clone());
        let (stdin, ours_in) = pair();
        let (ours_out, stdout) = pair();
        let (ours_err, stderr) = pair();
        let input = pipe::Receiver::from_owned_fd(stdin).unwrap();
        let output = pipe::Sender::from_owned_fd(stdout).unwrap();
        tokio::spawn(async move {
            if plan == Plan::Die {
                nix::unistd::write(&stderr, b"loading\ncannot open the database\n").unwrap();
                return;
            }
            let (inner, mut outer) = tokio::io::duplex(64 * 1024);
            tokio::spawn(async move {
                if plan == Plan::NeverList {
                    if let Ok(service) = NeverLists.serve(inner).await {
                        let _ = service.waiting().await;
                    }
                } else if let Ok(service) = Fixture.serve(inner).await {
                    let _ = service.waiting().await;
                }
            });
            // The pipes are in this task's hands, so ending it ends them in the middle of a word.
            let mut pipes = tokio::io::join(input, output);
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut pipes, &mut outer) => {}
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
        let mut log = self.0.lock().unwrap();
        log.stopped.push(process);
        log.running[&process].cancel();
    }
}

/// Read end, write end.
fn pair() -> (OwnedFd, OwnedFd) {
    nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap()
}

pub fn declared(name: &str) -> McpServerSettings {
    McpServerSettings {
        name: name.to_owned(),
        transport: McpTransport::Stdio,
        shared: false,
        per_run: false,
        context: false,
        claims: false,
        apps: Some(ServerApps {
            exact_results: false,
            webrtc: true,
        }),
    }
}

pub fn servers(settings: Vec<McpServerSettings>) -> (Arc<Servers<InProcess>>, InProcess) {
    let starter = InProcess::default();
    let servers = Servers::new(settings, Limits::default(), starter.clone(), None);
    (Arc::new(servers), starter)
}

pub fn run(servers: &Servers<InProcess>, conversation: &str) -> RunScope {
    let conversation = ConversationId::parse(conversation).unwrap();
    let scope = RunScope {
        run: RunId::new(),
        delivery: conversation.clone(),
        conversation,
    };
    servers.begin(&scope.run);
    scope
}
