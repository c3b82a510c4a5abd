//! The worker: grants in, calls of runs answered, servers swept.

mod drafts;
mod run;
mod visitors;

pub use run::serve_run;
pub use visitors::serve_visitor;

use crate::apps::folder::Folder;
use crate::apps::house;
use crate::gateway::broker::{Broker, Holder};
use crate::gateway::session;
use crate::limits::Limits;
use crate::progress::route::Listening;
use crate::servers::{Servers, Starter};
use crate::supervised::Supervisor;
use crate::web;
use ipc_proto::channel::{Call, Fault, Responder, Server};
use ipc_proto::edges::app_bridge::{AppBridge, Reply};
use ipc_proto::edges::control::EdgeName;
use ipc_proto::link::LinkError;
use ipc_proto::settings::{AppBridgeSettings, McpTransport, RoleSettings};
use ipc_proto::{Body, Client, Role};
use std::collections::{HashMap, HashSet};
use std::future::pending;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
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
    let opened = starting.prepared(opened).await?;
    let posting = starting.descriptor("listener").map(Listening::new);
    let posting = starting.prepared(posting.transpose()).await?;
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

/// Takes calls until the asker closes its channel, `stop` is cancelled, or it breaks the protocol. What
/// is under way then is cancelled, and ends in order.
///
/// # Errors
/// When the asker broke the protocol.
async fn attend(
    mut server: Server<AppBridge>,
    stop: &CancellationToken,
    mut begin: impl FnMut(Call<AppBridge>, &mut JoinSet<()>),
) -> Result<(), LinkError> {
    let mut calls = JoinSet::new();
    let outcome = loop {
        tokio::select! {
            call = server.recv() => match call {
                Ok(Some(call)) => begin(call, &mut calls),
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
    outcome
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
