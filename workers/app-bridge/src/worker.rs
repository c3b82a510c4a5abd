//! The worker: grants in, calls of runs answered, servers swept.

mod drafts;

use crate::apps::capture::Shown;
use crate::apps::desk::Answered;
use crate::apps::files::Content;
use crate::apps::folder::Folder;
use crate::apps::house;
use crate::apps::operator::inspect;
use crate::call::CallRequest;
use crate::client::Progress;
use crate::content::convert;
use crate::error::{CallError, Warning};
use crate::gateway::broker::{Broker, Holder};
use crate::gateway::session;
use crate::limits::{Limits, PROGRESS_QUEUE};
use crate::progress::pass_on;
use crate::progress::route::Listening;
use crate::servers::{Servers, Starter};
use crate::supervised::Supervisor;
use crate::web;
use ipc_proto::apps::{AppAsk, Inspect, MAX_ANSWER, MAX_ASK, MAX_FILE};
use ipc_proto::channel::{Call, Fault, Responder, Server};
use ipc_proto::edges::app_bridge::{
    AppBridge, MAX_LISTING, MAX_RESULT, McpResult, McpWarning, Reply, Request, ToolListing,
};
use ipc_proto::edges::control::{EdgeName, RunScope};
use ipc_proto::link::LinkError;
use ipc_proto::request_context::MAX_ATTACHED;
use ipc_proto::settings::{AppBridgeSettings, McpTransport, RoleSettings};
use ipc_proto::{Body, Client, Role};
use std::collections::{HashMap, HashSet, VecDeque};
use std::convert::Infallible;
use std::future::pending;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use worker_kit::{Event, Granted, Inbox, KitError, Starting};

/// The servers' processes end with the supervisor's help; this bounds how long an orderly stop
/// waits for their connections.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// The worker's life, from its settings to its end.
///
/// # Errors
/// When the settings are of another role, the trust anchors can't be read, or the sandbox is
/// weaker than the policy.
pub async fn work(mut starting: Starting) -> Result<(), KitError> {
    let RoleSettings::AppBridge(settings) = starting.settings.clone() else {
        return Err(KitError::worker("these are the settings of another role"));
    };
    // Reads trust anchors from files, so it comes before the second sandbox stage.
    let http = match needs_http(&settings) {
        true => Some(web::client().map_err(KitError::worker)?),
        false => None,
    };
    let shows_apps = settings.servers.iter().any(|server| server.apps.is_some());
    // Opened before anything hostile is read, where nobody else has it.
    let folder = own_folder(&mut starting);
    let opened = match shows_apps {
        true => folder.and_then(|folder| house::find(folder).map_err(KitError::worker).map(Ok)),
        false => Ok(Err(folder.ok())),
    };
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) => {
            starting.fail(&error.to_string()).await;
            return Err(error);
        }
    };
    let posting = starting.descriptor("listener").map(Listening::new);
    let posting = match posting.transpose() {
        Ok(posting) => posting,
        Err(problem) => {
            starting.fail(&problem).await;
            return Err(KitError::worker(problem));
        }
    };
    let (control, inbox) = starting.ready().await?;
    let limits = Limits {
        apps: shows_apps,
        call_inactivity: Duration::from_millis(settings.call_timeout_ms),
        call_total: Duration::from_millis(settings.call_max_total_ms),
        ..Limits::default()
    };
    let starter = Supervisor(control.clone());
    let servers = Servers::new(settings.servers.clone(), limits, starter, http);
    let servers = Arc::new(servers);
    let _apps = AbortOnDropHandle::new(match opened {
        Ok(found) => tokio::spawn(house::keep(servers.clone(), found, settings.apps, control)),
        Err(folder) => tokio::spawn(house::count(folder, control)),
    });
    let gateway = settings.gateway.as_ref().map(|gateway| {
        let gateway = Broker::new(servers.clone(), gateway.into());
        tokio::spawn(gateway.clone().keep_house());
        gateway
    });
    let (stop, stopping) = watch::channel(false);
    let posting = posting.map(|listening| {
        servers.board().listen_at(listening.url());
        tokio::spawn(listening.serve(servers.board().clone(), stopping))
    });
    let posting = posting.map(AbortOnDropHandle::new);
    // A port that is always the same is the next one's from then on.
    let hand_on = settings.progress_port_is_fixed.then_some(&stop);
    serve(servers.clone(), gateway.as_ref(), inbox, hand_on).await;
    drop(posting);
    if let Some(gateway) = gateway {
        gateway.close();
    }
    // What is left ends with the supervisor, which owns the processes.
    let _ = tokio::time::timeout(CLOSE_WITHIN, servers.close()).await;
    if let Some(desk) = servers.stand().own() {
        let vault = desk.vault().clone();
        let _ = tokio::task::spawn_blocking(move || vault.sync_logs()).await;
    }
    Ok(())
}

/// The worker's own folder, where apps are kept.
fn own_folder(starting: &mut Starting) -> Result<Folder, KitError> {
    let folder = starting
        .descriptor("state")
        .ok_or_else(|| KitError::worker("no descriptor \"state\" came with the settings"))?;
    Folder::from_fd(folder).map_err(KitError::worker)
}

/// Without a declared HTTP server the worker needs no trust anchors and saves their memory.
fn needs_http(settings: &AppBridgeSettings) -> bool {
    settings
        .servers
        .iter()
        .any(|server| server.transport != McpTransport::Stdio)
}

/// Until the supervisor says to stop. One task serves one run, or one of the others.
async fn serve<S: Starter>(
    servers: Arc<Servers<S>>,
    gateway: Option<&Arc<Broker<S>>>,
    mut inbox: Inbox,
    hand_on: Option<&watch::Sender<bool>>,
) {
    let mut tasks: JoinSet<u64> = JoinSet::new();
    let mut open: HashMap<u64, CancellationToken> = HashMap::new();
    let mut runs: HashSet<u64> = HashSet::new();
    let mut draining = false;
    // The channels of runs end with them. Those of the console and of operators last as long as
    // this worker.
    while !(draining && runs.is_empty()) {
        let sweep = servers.next_sweep();
        tokio::select! {
            event = inbox.recv() => match event {
                // Comes before the run's own channel, so that its servers are started with it.
                Some(Event::Granted(grant)) if grant.edge == EdgeName::Continuation => {
                    let scope = grant.peer.run.filter(|_| grant.peer.role == Role::Continuation);
                    match (scope, Client::new(grant.fd, Role::Continuation)) {
                        (Some(scope), Ok(client)) if !draining => {
                            servers.claims().enter(scope.run, client);
                        }
                        _ => tracing::warn!("a channel for claims was not taken"),
                    }
                }
                Some(Event::Granted(grant)) if grant.edge == EdgeName::Artifact => {
                    keep_there(&servers, grant);
                }
                Some(Event::Granted(grant)) if grant.edge == EdgeName::Delivery => {
                    show_there(gateway, grant);
                }
                Some(Event::Stub { fd, pid, started }) if !draining => {
                    serve_stub(gateway, fd, Holder { pid, started });
                }
                Some(Event::Granted(grant)) if !draining => {
                    let stop = CancellationToken::new();
                    open.insert(grant.channel, stop.clone());
                    if grant.peer.role == Role::Run {
                        runs.insert(grant.channel);
                    }
                    tasks.spawn(serve_grant(servers.clone(), grant, stop));
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
                Some(Event::Drain) => {
                    draining = true;
                    if let Some(stop) = hand_on {
                        stop.send_replace(true);
                    }
                    // Stubs go to the next one, and their sessions go on there.
                    if let Some(gateway) = gateway {
                        gateway.close();
                    }
                    // So do the apps. What runs of this process keep is said where it always is.
                    if let Some(desk) = servers.stand().own().cloned() {
                        tokio::spawn(async move { desk.hand_over().await });
                    }
                }
                Some(Event::Shutdown) | None => break,
                Some(_) => {}
            },
            Some(ended) = tasks.join_next() => {
                if let Ok(channel) = ended {
                    open.remove(&channel);
                    runs.remove(&channel);
                }
            }
            () = until(sweep) => {
                // Not awaited: a server that is slow to end holds up no grant.
                servers.sweep();
            }
            () = servers.became_idle() => {
                servers.sweep();
            }
        }
    }
}

/// The artifact worker is there: it keeps the files of apps.
fn keep_there<S: Starter>(servers: &Servers<S>, grant: Granted) {
    let role = grant.peer.role;
    let keeper = Some(servers.stand().keeper()).filter(|_| role == Role::Artifact);
    let taken = keeper.map(|keeper| keeper.open(grant.fd, role));
    if !matches!(taken, Some(Ok(()))) {
        tracing::warn!("a channel to the artifact worker was not taken");
    }
}

/// The console is there: apps of the gateway are shown in it.
fn show_there<S: Starter>(gateway: Option<&Arc<Broker<S>>>, grant: Granted) {
    let role = grant.peer.role;
    let gateway = gateway.filter(|_| role == Role::ChannelConsole);
    let taken = gateway.map(|gateway| gateway.console.open(grant.fd, role));
    if !matches!(taken, Some(Ok(()))) {
        tracing::warn!("a channel to the console was not taken");
    }
}

fn serve_stub<S: Starter>(gateway: Option<&Arc<Broker<S>>>, fd: OwnedFd, holder: Holder) {
    let Some(gateway) = gateway.cloned() else {
        return tracing::warn!("a stub's connection was not taken: the gateway is off");
    };
    tokio::spawn(async move {
        if let Err(error) = session::serve(gateway, fd, holder).await {
            tracing::warn!(pid = holder.pid, "a stub's connection ended: {error}");
        }
    });
}

async fn until(when: Option<tokio::time::Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => pending().await,
    }
}

/// Serves one channel to its end, and gives back what a run held.
async fn serve_grant<S: Starter>(
    servers: Arc<Servers<S>>,
    grant: Granted,
    stop: CancellationToken,
) -> u64 {
    let channel = grant.channel;
    let role = grant.peer.role;
    let known = matches!(
        (grant.edge, role, &grant.peer.run),
        (EdgeName::AppBridge, Role::Run, Some(_))
            | (
                EdgeName::AppBridge,
                Role::ChannelConsole | Role::Monod,
                None
            )
    );
    if !known {
        tracing::warn!(channel, "a grant of an edge that is not ours is not served");
        return channel;
    }
    match (Server::new(grant.fd, role), grant.peer.run) {
        (Ok(server), Some(scope)) => {
            if let Err(error) = serve_run(&servers, server, &scope, &stop).await {
                tracing::warn!(channel, run = %scope.run, "the run's channel ended: {error}");
            }
        }
        (Ok(server), None) => {
            if let Err(error) = serve_visitor(&servers, server, &stop).await {
                tracing::warn!(channel, %role, "a channel ended: {error}");
            }
        }
        (Err(error), _) => tracing::error!(channel, "a channel can't be used: {error}"),
    }
    channel
}

/// Answers the console or an operator. Requests run side by side; what is under way when the
/// channel ends is ended in order.
///
/// # Errors
/// When the asker broke the protocol.
pub async fn serve_visitor<S: Starter>(
    servers: &Arc<Servers<S>>,
    mut server: Server<AppBridge>,
    stop: &CancellationToken,
) -> Result<(), LinkError> {
    let mut calls = JoinSet::new();
    let outcome = loop {
        tokio::select! {
            call = server.recv() => match call {
                Ok(Some(call)) => {
                    calls.spawn(visit(servers.clone(), call));
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            },
            () = stop.cancelled() => break Ok(()),
            Some(_) = calls.join_next() => {}
        }
    };
    drop(server);
    while calls.join_next().await.is_some() {}
    outcome
}

async fn visit<S: Starter>(servers: Arc<Servers<S>>, call: Call<AppBridge>) {
    let Call {
        request,
        mut fds,
        responder,
        ..
    } = call;
    let sent = match request {
        Request::App { ask } => match ask.unpack_json::<AppAsk>(&mut fds, MAX_ASK) {
            Ok(ask) => answer_app(&servers, ask, None, &responder).await,
            Err(error) => {
                let fault = Fault::new("invalid_request", error.to_string());
                responder.fault(&fault).await
            }
        },
        Request::Hand { ask, content } => {
            let handed = ask
                .unpack_json::<AppAsk>(&mut fds, MAX_ASK)
                .and_then(|ask| Ok((ask, content.sealed(&mut fds, MAX_FILE)?)));
            match handed {
                Ok((ask, (file, bytes))) => {
                    let content = Some(Content { file, bytes });
                    answer_app(&servers, ask, content, &responder).await
                }
                Err(error) => {
                    let fault = Fault::new("invalid_request", error.to_string());
                    responder.fault(&fault).await
                }
            }
        }
        Request::Inspect { ask } => {
            let ask = ask.unpack_json::<Inspect>(&mut fds, MAX_ASK);
            let seen = match ask {
                Ok(ask) => inspect(&servers, ask).await,
                Err(error) => Err(Fault::new("invalid_request", error.to_string())),
            };
            match seen {
                Ok(seen) => {
                    reply(&responder, &seen, MAX_ANSWER, |answer| Reply::Inspected {
                        answer,
                    })
                    .await
                }
                Err(fault) => responder.fault(&fault).await,
            }
        }
        Request::ListTools
        | Request::CallTool { .. }
        | Request::CallDrafted { .. }
        | Request::DraftApp { .. }
        | Request::DraftInput { .. }
        | Request::KeepApps { .. }
        | Request::Accompany { .. } => {
            responder
                .fault(&Fault::new("forbidden", "only for a run"))
                .await
        }
    };
    if let Err(error) = sent {
        tracing::debug!("an answer was not taken: {error}");
    }
}

/// Answers the console; when it no longer waits, what is under way ends, and only then this.
async fn answer_app<S: Starter>(
    servers: &Arc<Servers<S>>,
    ask: AppAsk,
    content: Option<Content>,
    responder: &Responder<AppBridge>,
) -> Result<(), LinkError> {
    let Some(desk) = servers.stand().soon().await else {
        let fault = Fault::new("not_enabled", "apps are not shown here");
        return responder.fault(&fault).await;
    };
    let gone = CancellationToken::new();
    let answering = desk.answer(servers, ask, content, gone.clone());
    tokio::pin!(answering);
    let answered = tokio::select! {
        answered = &mut answering => answered,
        () = responder.cancelled() => {
            gone.cancel();
            answering.await
        }
    };
    match answered {
        Answered::Json(answer) => {
            reply(responder, &answer, MAX_ANSWER, |answer| Reply::App {
                answer,
            })
            .await
        }
        Answered::Page(page) => send(responder, page, |page| Reply::Page { page }).await,
    }
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
                Ok(Some(call)) => match call.request {
                    // At once: what the run asks for next may start a server.
                    Request::Accompany { attachments } if attachments.len() <= MAX_ATTACHED => {
                        let posts = servers.board().accompany(&scope.run, attachments);
                        calls.spawn(pass_on(servers.board().clone(), scope.run.clone(), posts, call.responder));
                    }
                    _ => {
                        calls.spawn(answer(servers.clone(), scope.clone(), call));
                    }
                },
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
    if let Some(desk) = servers.stand().own() {
        desk.settle(scope.run.as_str()).await;
    }
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
            let (mut tools, warnings) = listing;
            drafts::without_apps(&servers, &mut tools);
            let listing = ToolListing {
                tools,
                warnings: warnings.into_iter().map(warning).collect(),
            };
            reply(&responder, &listing, MAX_LISTING, |listing| Reply::Tools {
                listing,
            })
            .await
        }
        request @ (Request::CallTool { .. } | Request::CallDrafted { .. }) => {
            let Some(wish) = Wish::of(request, deadline) else {
                return;
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
        Request::KeepApps { invocations } => {
            keep_apps(&servers, &scope, invocations, &responder).await
        }
        Request::DraftApp { server, tool } => {
            drafts::draft(&servers, &scope, &server, &tool, &responder).await
        }
        Request::DraftInput { draft, text } => {
            drafts::input(&servers, &scope, &draft, text, &mut fds, &responder).await
        }
        Request::Accompany { .. } => {
            let fault = Fault::new("invalid_request", "too many files");
            responder.fault(&fault).await
        }
        Request::App { .. } | Request::Inspect { .. } | Request::Hand { .. } => {
            responder
                .fault(&Fault::new("forbidden", "not for a run"))
                .await
        }
    };
    if let Err(error) = sent {
        tracing::debug!(run = %scope.run, "an answer was not taken: {error}");
    }
}

async fn keep_apps<S: Starter>(
    servers: &Arc<Servers<S>>,
    scope: &RunScope,
    invocations: Vec<String>,
    responder: &Responder<AppBridge>,
) -> Result<(), LinkError> {
    let kept = match servers.stand().own() {
        None => Ok(Ok(())),
        Some(desk) => {
            let (vault, run) = (desk.vault().clone(), scope.run.clone());
            let keep = move || vault.keep(run.as_str(), &invocations);
            tokio::task::spawn_blocking(keep).await
        }
    };
    match kept {
        Ok(Ok(())) => responder.send(&Reply::AppsKept, &[]).await,
        Ok(Err(error)) => {
            tracing::error!(run = %scope.run, "a run's apps can't be kept: {error}");
            let code = "app_resource_invalid".to_owned();
            let message = "the apps of the reply could not be kept".to_owned();
            responder.send(&Reply::Failed { code, message }, &[]).await
        }
        Err(_) => {
            responder
                .fault(&Fault::new("internal", "the keeper was lost"))
                .await
        }
    }
}

struct Wish {
    draft: Option<String>,
    server: String,
    tool: String,
    arguments: Body,
    deadline: Option<Duration>,
}

impl Wish {
    fn of(request: Request, deadline: Option<Duration>) -> Option<Self> {
        let (draft, server, tool, arguments) = match request {
            Request::CallTool {
                server,
                tool,
                arguments,
            } => (None, server, tool, arguments),
            Request::CallDrafted {
                draft,
                server,
                tool,
                arguments,
            } => (Some(draft), server, tool, arguments),
            _ => return None,
        };
        Some(Self {
            draft,
            server,
            tool,
            arguments,
            deadline,
        })
    }
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
    let draft = wish.draft.as_deref();
    let result = tokio::select! {
        biased;
        never = forward => match never {},
        never = withdrawn => match never {},
        result = call_and_capture(servers, scope, &wish.server, request, draft) => result,
    };
    drafts::end(servers, scope, draft);
    result.map_err(|error: CallError| (error.code(), error.message()))
}

/// The result of a call, and the app that shows it.
async fn call_and_capture<S: Starter>(
    servers: &Arc<Servers<S>>,
    scope: &RunScope,
    server: &str,
    request: CallRequest,
    draft: Option<&str>,
) -> Result<McpResult, CallError> {
    let settings = servers.settings(server);
    let Some(settings) = settings.filter(|settings| settings.apps.is_some()) else {
        return servers.call(scope, server, request).await;
    };
    let (tool, arguments) = (request.tool.clone(), request.arguments.clone());
    drafts::called(servers, scope, draft, &arguments);
    let (connection, result) = servers.call_raw(scope, server, request).await?;
    let shown = Shown {
        scope,
        settings,
        tool: &tool,
        arguments: &arguments,
        connection: &connection,
        result: &result,
    };
    let app = match servers.stand().soon().await {
        Some(desk) => {
            let run = scope.run.as_str();
            let draft = draft.and_then(|draft| desk.find_draft(run, draft));
            desk.capture_drafted(shown, draft).await
        }
        None => None,
    };
    let mut converted = convert(result, servers.limits())?;
    converted.app = app;
    Ok(converted)
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
    send(responder, bytes, wrap).await
}

/// Sends a final answer as it is.
async fn send(
    responder: &Responder<AppBridge>,
    bytes: Vec<u8>,
    wrap: impl FnOnce(Body) -> Reply,
) -> Result<(), LinkError> {
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
