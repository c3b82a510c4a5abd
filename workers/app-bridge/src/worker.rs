//! The worker: grants in, calls of runs answered, servers swept.

use crate::call::CallRequest;
use crate::client::Progress;
use crate::error::{CallError, Warning};
use crate::limits::{Limits, PROGRESS_QUEUE};
use crate::servers::{Servers, Started, Starter};
use crate::web;
use ipc_proto::channel::{Call, Fault, Responder, Server};
use ipc_proto::edges::app_bridge::{
    AppBridge, MAX_LISTING, MAX_RESULT, McpResult, McpWarning, Reply, Request, ToolListing,
};
use ipc_proto::edges::control::{EdgeName, RunScope};
use ipc_proto::link::LinkError;
use ipc_proto::settings::{AppBridgeSettings, McpTransport, RoleSettings};
use ipc_proto::{Body, Role, RunId};
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::future::pending;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use worker_kit::{Control, Event, Granted, Inbox, KitError, Starting};

/// The servers' processes end with the supervisor's help; this bounds how long an orderly stop
/// waits for their connections.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// The worker's life, from its settings to its end.
///
/// # Errors
/// When the settings are of another role, the trust anchors can't be read, or the sandbox is
/// weaker than the policy.
pub async fn work(starting: Starting) -> Result<(), KitError> {
    let RoleSettings::AppBridge(settings) = starting.settings.clone() else {
        return Err(KitError::worker("these are the settings of another role"));
    };
    // Reads trust anchors from files, so it comes before the second sandbox stage.
    let http = match needs_http(&settings) {
        true => Some(web::client().map_err(KitError::worker)?),
        false => None,
    };
    let (control, inbox) = starting.ready().await?;
    let limits = Limits {
        call_inactivity: Duration::from_millis(settings.call_timeout_ms),
        call_total: Duration::from_millis(settings.call_max_total_ms),
        ..Limits::default()
    };
    let starter = Supervisor(control);
    let servers = Arc::new(Servers::new(settings.servers, limits, starter, http));
    serve(servers.clone(), inbox).await;
    // What is left ends with the supervisor, which owns the processes.
    let _ = tokio::time::timeout(CLOSE_WITHIN, servers.close()).await;
    Ok(())
}

/// Without a declared HTTP server the worker needs no trust anchors and saves their memory.
fn needs_http(settings: &AppBridgeSettings) -> bool {
    settings
        .servers
        .iter()
        .any(|server| server.transport != McpTransport::Stdio)
}

/// Starts servers by asking the supervisor.
struct Supervisor(Control);

impl Starter for Supervisor {
    async fn start(&self, name: &str, run: Option<&RunId>) -> Result<Started, String> {
        let pipes = self.0.start_server(name, run.cloned()).await;
        let pipes = pipes.map_err(|error| error.to_string())?;
        Ok(Started {
            process: pipes.server,
            stdin: pipes.stdin,
            stdout: pipes.stdout,
            stderr: pipes.stderr,
        })
    }

    async fn stop(&self, process: u64) {
        // It ends all of them itself when it ends us, and answers nobody then.
        if let Err(error) = self.0.stop_server(process).await {
            tracing::debug!(process, "a server could not be stopped: {error}");
        }
    }
}

/// Until the supervisor says to stop. One task serves one run.
async fn serve<S: Starter>(servers: Arc<Servers<S>>, mut inbox: Inbox) {
    let mut runs: JoinSet<u64> = JoinSet::new();
    let mut open: HashMap<u64, CancellationToken> = HashMap::new();
    let mut draining = false;
    while !(draining && runs.is_empty()) {
        let sweep = servers.next_sweep();
        tokio::select! {
            event = inbox.recv() => match event {
                Some(Event::Granted(grant)) if !draining => {
                    let stop = CancellationToken::new();
                    open.insert(grant.channel, stop.clone());
                    runs.spawn(serve_grant(servers.clone(), grant, stop));
                }
                Some(Event::Revoked(channel)) => {
                    if let Some(stop) = open.get(&channel) {
                        stop.cancel();
                    }
                }
                Some(Event::ServerExited { server, status }) => {
                    // Its pipe ends too, which is what its connection acts on.
                    tracing::info!(process = server, %status, "a server ended");
                    servers.ended(server, status);
                }
                Some(Event::Drain) => draining = true,
                Some(Event::Shutdown) | None => break,
                Some(_) => {}
            },
            Some(ended) = runs.join_next() => {
                if let Ok(channel) = ended {
                    open.remove(&channel);
                }
            }
            () = until(sweep) => {
                // Not awaited: a server that is slow to end holds up no grant.
                servers.sweep();
            }
        }
    }
}

async fn until(when: Option<tokio::time::Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => pending().await,
    }
}

/// Serves the channel of one run to its end, and gives back what the run held.
async fn serve_grant<S: Starter>(
    servers: Arc<Servers<S>>,
    grant: Granted,
    stop: CancellationToken,
) -> u64 {
    let channel = grant.channel;
    let (EdgeName::AppBridge, Role::Run, Some(scope)) =
        (grant.edge, grant.peer.role, grant.peer.run)
    else {
        tracing::warn!(channel, "a grant that is not a run's is not served");
        return channel;
    };
    match Server::new(grant.fd, Role::Run) {
        Ok(server) => {
            if let Err(error) = serve_run(&servers, server, &scope, &stop).await {
                tracing::warn!(channel, run = %scope.run, "the run's channel ended: {error}");
            }
        }
        Err(error) => tracing::error!(channel, "a channel can't be used: {error}"),
    }
    channel
}

/// Answers one run until it closes its channel, `stop` is cancelled, or it breaks the protocol.
///
/// # Errors
/// When the run broke the protocol.
pub async fn serve_run<S: Starter>(
    servers: &Arc<Servers<S>>,
    mut server: Server<AppBridge>,
    scope: &RunScope,
    stop: &CancellationToken,
) -> Result<(), LinkError> {
    servers.begin(&scope.run);
    let mut calls = JoinSet::new();
    let outcome = loop {
        tokio::select! {
            call = server.recv() => match call {
                Ok(Some(call)) => {
                    calls.spawn(answer(servers.clone(), scope.clone(), call));
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            },
            () = stop.cancelled() => break Ok(()),
            Some(_) = calls.join_next() => {}
        }
    };
    // Cancels what is under way, and each call then tells its server.
    drop(server);
    while calls.join_next().await.is_some() {}
    servers.release(&scope.run).await;
    outcome
}

async fn answer<S: Starter>(servers: Arc<Servers<S>>, scope: RunScope, call: Call<AppBridge>) {
    let Call {
        request,
        mut fds,
        deadline,
        responder,
    } = call;
    let sent = match request {
        Request::ListTools => {
            let listing = tokio::select! {
                biased;
                () = responder.cancelled() => return,
                listing = servers.list_tools(&scope) => listing,
            };
            let (tools, warnings) = listing;
            let listing = ToolListing {
                tools,
                warnings: warnings.into_iter().map(warning).collect(),
            };
            reply(&responder, &listing, MAX_LISTING, |listing| Reply::Tools {
                listing,
            })
            .await
        }
        Request::CallTool {
            server,
            tool,
            arguments,
        } => {
            let wish = Wish {
                server,
                tool,
                arguments,
                deadline,
            };
            match call_tool(&servers, &scope, wish, &mut fds, &responder).await {
                Ok(result) => {
                    reply(&responder, &result, MAX_RESULT, |result| Reply::Result {
                        result,
                    })
                    .await
                }
                Err((code, message)) => {
                    tracing::info!(run = %scope.run, code, "{message}");
                    let code = code.to_owned();
                    responder.send(&Reply::Failed { code, message }, &[]).await
                }
            }
        }
    };
    if let Err(error) = sent {
        tracing::debug!(run = %scope.run, "an answer was not taken: {error}");
    }
}

struct Wish {
    server: String,
    tool: String,
    arguments: Body,
    deadline: Option<Duration>,
}

/// Calls, and passes progress on meanwhile. A slow reader of progress never holds the call up.
async fn call_tool<S: Starter>(
    servers: &Arc<Servers<S>>,
    scope: &RunScope,
    wish: Wish,
    fds: &mut VecDeque<OwnedFd>,
    responder: &Responder<AppBridge>,
) -> Result<McpResult, (&'static str, String)> {
    let arguments = wish
        .arguments
        .unpack_json(fds, servers.limits().arguments)
        .map_err(|error| ("invalid_arguments", error.to_string()))?;
    let (progress, mut reports) = mpsc::channel(PROGRESS_QUEUE);
    let cancel = CancellationToken::new();
    let request = CallRequest {
        tool: wish.tool,
        arguments,
        progress,
        cancel: cancel.clone(),
    };
    let forward = async {
        while let Some(report) = reports.recv().await {
            if responder.send(&progress_reply(report), &[]).await.is_err() {
                break;
            }
        }
        pending::<Infallible>().await
    };
    let withdrawn = async {
        tokio::select! {
            () = responder.cancelled() => {}
            () = until(wish.deadline.map(|left| tokio::time::Instant::now() + left)) => {}
        }
        cancel.cancel();
        pending::<Infallible>().await
    };
    tokio::select! {
        biased;
        never = forward => match never {},
        never = withdrawn => match never {},
        result = servers.call(scope, &wish.server, request) => {
            result.map_err(|error: CallError| (error.code(), error.message()))
        }
    }
}

fn progress_reply(report: Progress) -> Reply {
    Reply::Progress {
        progress: report.progress,
        total: report.total,
        message: report.message,
    }
}

fn warning(warning: Warning) -> McpWarning {
    McpWarning {
        code: warning.code.to_owned(),
        server: warning.server,
        message: warning.message,
    }
}

/// Sends a final answer as JSON in a body of at most `max` bytes.
async fn reply<T: serde::Serialize>(
    responder: &Responder<AppBridge>,
    value: &T,
    max: usize,
    wrap: impl FnOnce(Body) -> Reply,
) -> Result<(), LinkError> {
    let bytes = match serde_json::to_vec(value) {
        Ok(bytes) if bytes.len() <= max => bytes,
        Ok(bytes) => {
            let text = format!("the answer has {} bytes, more than {max}", bytes.len());
            return responder.fault(&Fault::new("too_large", text)).await;
        }
        Err(error) => {
            let fault = Fault::new("internal", format!("the answer has no JSON form: {error}"));
            return responder.fault(&fault).await;
        }
    };
    match Body::pack(bytes) {
        Ok((body, fd)) => {
            let fds: Vec<OwnedFd> = fd.into_iter().collect();
            responder.send(&wrap(body), &fds).await
        }
        Err(error) => {
            responder
                .fault(&Fault::new("internal", error.to_string()))
                .await
        }
    }
}
