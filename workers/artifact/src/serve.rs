//! The worker: grants become sessions, blocking work goes to threads, the loop stays free for
//! heartbeats.

mod readers;

use crate::dir::Dir;
use crate::index::Retention;
use crate::quota::CEILING;
use crate::session::{Desk, Outcome, Request as Publication, Session};
use crate::shelf::Shelf;
use crate::verify::Roots;
use ipc_proto::LinkError;
use ipc_proto::channel::{Fault, Responder};
use ipc_proto::edges::artifact::{Artifact, Reply, Request};
use ipc_proto::edges::control::{EdgeName, Peer, RunScope};
use ipc_proto::reply::ReplyPart;
use ipc_proto::settings::{ArtifactSettings, RoleSettings};
use ipc_proto::{Body, Call, Role, Server};
use jiff::Timestamp;
use readers::serve_reader;
use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet, spawn_blocking};
use worker_kit::room::Room;
use worker_kit::{Event, Granted, KitError, Starting};

/// Publications under way at once, and readings likewise: each holds a thread or two and 1 MiB
/// of buffers, and more of them only share the same disk. Apart, so that neither can starve the
/// other.
const MAX_COPIES: usize = 2;
/// How often retention and staging are looked after.
const CLEANING: Duration = Duration::from_secs(60);

/// What every channel's task has.
#[derive(Debug, Clone)]
struct Shared {
    desk: Arc<Desk>,
    publishing: Arc<Semaphore>,
    reading: Arc<Semaphore>,
    /// Files of apps, one after the other: an app's are counted.
    keeping: Arc<Semaphore>,
}

impl Shared {
    fn new(desk: Arc<Desk>) -> Self {
        let copies = || Arc::new(Semaphore::new(MAX_COPIES));
        Self {
            desk,
            publishing: copies(),
            reading: copies(),
            keeping: Arc::new(Semaphore::new(1)),
        }
    }
}

/// Serves until the supervisor says otherwise.
///
/// # Errors
/// When the directories or the sandbox are not what they have to be.
pub async fn work(mut starting: Starting) -> Result<(), KitError> {
    let opened = open(&mut starting);
    let mut desk = starting.prepared(opened).await?;
    let (control, mut inbox) = starting.ready().await?;
    desk.shelf = desk.shelf.sharing(Room::of(control));
    let shared = Shared::new(Arc::new(desk));
    let desk = shared.desk.clone();
    // What is there already, before anything comes to it.
    spawn_blocking(move || desk.shelf.give_back());
    let mut channels = JoinSet::new();
    let mut open: HashMap<u64, AbortHandle> = HashMap::new();
    let mut runs = HashSet::new();
    let mut cleaning = tokio::time::interval(CLEANING);
    loop {
        tokio::select! {
            event = inbox.recv() => match event {
                Some(Event::Granted(Granted { channel, edge: EdgeName::Artifact, peer, fd })) => {
                    if peer.run.is_some() {
                        runs.insert(channel);
                    }
                    let task = channels.spawn(serve(shared.clone(), channel, peer, fd));
                    open.insert(channel, task);
                }
                Some(Event::Revoked(channel)) => {
                    if let Some(task) = open.remove(&channel) {
                        task.abort();
                    }
                }
                // The channels of runs end with them; then everything is settled. Those of readers
                // last as long as the readers do.
                Some(Event::Drain) => break,
                Some(Event::Shutdown) | None => return Ok(()),
                Some(other) => tracing::warn!(?other, "not for the artifact worker"),
            },
            Some(ended) = channels.join_next() => {
                if let Ok(channel) = ended {
                    open.remove(&channel);
                    runs.remove(&channel);
                }
            }
            _ = cleaning.tick() => {
                let desk = shared.desk.clone();
                spawn_blocking(move || {
                    desk.shelf.clean(&desk.retention, Timestamp::now());
                    if desk.shelf.has_spare() {
                        desk.shelf.give_back();
                    }
                });
            }
        }
    }
    while !runs.is_empty() {
        tokio::select! {
            ended = channels.join_next() => match ended {
                Some(Ok(channel)) => drop(runs.remove(&channel)),
                Some(Err(_)) => {}
                None => return Ok(()),
            },
            event = inbox.recv() => if let Some(Event::Shutdown) | None = event { return Ok(()) },
        }
    }
    Ok(())
}

fn open(starting: &mut Starting) -> Result<Desk, KitError> {
    let RoleSettings::Artifact(settings) = &starting.settings else {
        return Err(KitError::worker("the settings are of another role"));
    };
    let ArtifactSettings {
        max_age_days,
        max_count,
        dry_run,
        private_paths,
    } = settings.clone();
    let mut directory = |name: &str| -> Result<Option<Dir>, KitError> {
        let given = starting.descriptor(name).map(Dir::from_fd).transpose();
        given.map_err(|e| KitError::worker(format!("descriptor {name:?} is no directory: {e}")))
    };
    let state = directory("state")?
        .ok_or_else(|| KitError::worker("no descriptor \"state\" came with the settings"))?;
    let own = state.id().map_err(KitError::worker)?;
    let roots = Roots::new(
        directory("workspace")?,
        directory("outbound")?,
        &private_paths,
        own,
    );
    let shelf = Shelf::open(&state, CEILING, Timestamp::now()).map_err(KitError::worker)?;
    Ok(Desk {
        shelf,
        roots,
        retention: Retention {
            max_age_days,
            max_count,
            dry_run,
        },
    })
}

/// One channel, to its end. Gives the channel's number back.
async fn serve(shared: Shared, channel: u64, peer: Peer, fd: OwnedFd) -> u64 {
    match Server::<Artifact>::new(fd, peer.role) {
        Err(error) => tracing::error!(channel, %error, "a granted channel can't be served"),
        Ok(server) => match (peer.role, peer.run) {
            (Role::Run, Some(scope)) => serve_run(&shared, server, scope).await,
            (Role::Run, None) => tracing::error!(channel, "a run's channel came without its scope"),
            (role, _) => serve_reader(&shared, server, role).await,
        },
    }
    channel
}

/// A run's requests are served one after the other: its budget has one order.
async fn serve_run(shared: &Shared, mut server: Server<Artifact>, scope: RunScope) {
    let run = scope.run.clone();
    let mut session = Some(Session::new(shared.desk.clone(), scope));
    let mut waiting = VecDeque::new();
    loop {
        let next = match waiting.pop_front() {
            Some(call) => Ok(Some(call)),
            None => server.recv().await,
        };
        let call = match next {
            Ok(Some(call)) if call.responder.is_cancelled() => continue,
            Ok(Some(call)) => call,
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(%run, %error, "a run's channel broke");
                break;
            }
        };
        let Some(mut own) = session.take() else { break };
        let cancelled = Arc::new(AtomicBool::new(false));
        let flag = cancelled.clone();
        let Call {
            request,
            mut fds,
            responder,
            ..
        } = call;
        let Ok(permit) = shared.publishing.clone().acquire_owned().await else {
            break;
        };
        let mut work = spawn_blocking(move || {
            let _permit = permit;
            let reply = match request {
                Request::Enter { part } => enter(&mut own, part, &mut fds),
                request => answer_run(&mut own, request, fds.pop_front(), &flag),
            };
            (own, reply)
        });
        // The channel is read on while the copy runs: a withdrawal or the end of the run arrives
        // there, and a copy that nobody waits for stops at its next chunk.
        let mut broken = None;
        let done = tokio::select! {
            done = &mut work => done,
            error = withdrawn(&mut server, &responder, &mut waiting) => {
                broken = error;
                cancelled.store(true, Ordering::Relaxed);
                work.await
            }
        };
        let Ok((mut own, reply)) = done else {
            tracing::error!(%run, "a publication panicked");
            break;
        };
        if own.is_finalised() && responder.is_cancelled() {
            // Finalising comes before the commit: a run that no longer waits has not committed.
            own = match spawn_blocking(move || own.discard().map(|()| own)).await {
                Ok(Ok(own)) => own,
                _ => break,
            };
        }
        session = Some(own);
        if let Some(error) = broken {
            tracing::warn!(%run, %error, "a run's channel broke");
            break;
        }
        let sent = match reply {
            Ok((reply, fd)) => {
                responder
                    .send(&reply, &fd.into_iter().collect::<Vec<_>>())
                    .await
            }
            Err(fault) => responder.fault(&fault).await,
        };
        if let Err(error) = sent {
            tracing::debug!(%run, %error, "a reply found nobody");
        }
    }
    // Removing files blocks; the session's end belongs on a thread too.
    let _ = spawn_blocking(move || drop(session)).await;
}

/// Ends when the call is withdrawn or the channel has ended; with the error when the run broke the
/// protocol: such a channel is served no more. Requests that come meanwhile wait; the channel
/// bounds how many.
async fn withdrawn(
    server: &mut Server<Artifact>,
    responder: &Responder<Artifact>,
    waiting: &mut VecDeque<Call<Artifact>>,
) -> Option<LinkError> {
    loop {
        tokio::select! {
            () = responder.cancelled() => return None,
            next = server.recv() => match next {
                Ok(Some(call)) => waiting.push_back(call),
                Ok(None) => return None,
                Err(error) => return Some(error),
            },
        }
    }
}

type Answer = Result<(Reply, Option<OwnedFd>), Fault>;

/// Largest part of another owner in bytes.
const MAX_ENTERED: usize = 16 * 1024;

/// A part that is no file: it only takes its place.
fn enter(session: &mut Session, part: Body, fds: &mut VecDeque<OwnedFd>) -> Answer {
    let invalid = |e: String| Fault::new("invalid_request", e);
    let part: ReplyPart = part
        .unpack_json(fds, MAX_ENTERED)
        .map_err(|e| invalid(e.to_string()))?;
    if !matches!(part, ReplyPart::McpApp { .. }) {
        return Err(invalid("only an app is entered".to_owned()));
    }
    outcome(session.enter(part).map_err(settled)?)
}

fn settled(error: crate::session::Settled) -> Fault {
    Fault::new("settled", error.to_string())
}

fn outcome(outcome: Outcome) -> Answer {
    match outcome {
        Outcome::Published(part) => {
            let (part, fd) = Body::pack_json(&part).map_err(internal)?;
            Ok((Reply::Published { part }, fd))
        }
        Outcome::Refused(code, part) => {
            let packed = part
                .map(|part| Body::pack_json(&part))
                .transpose()
                .map_err(internal)?;
            let (part, fd) = packed.map_or((None, None), |(part, fd)| (Some(part), fd));
            let code = code.as_str().to_owned();
            Ok((Reply::Refused { code, part }, fd))
        }
    }
}

fn answer_run(
    session: &mut Session,
    request: Request,
    source: Option<OwnedFd>,
    cancelled: &AtomicBool,
) -> Answer {
    match request {
        Request::Publish {
            root,
            path,
            name,
            media_type,
        } => {
            let publication = Publication {
                root,
                path,
                name,
                media_type,
                source,
            };
            let watch = |_| !cancelled.load(Ordering::Relaxed);
            let published = session.publish(publication, Timestamp::now(), &watch);
            outcome(published.map_err(settled)?)
        }
        Request::Finalise => {
            let parts = session.finalise().map_err(settled)?;
            let (parts, fd) = Body::pack_json(&parts).map_err(internal)?;
            Ok((Reply::Finalised { parts }, fd))
        }
        Request::Discard => {
            session.discard().map_err(internal)?;
            Ok((Reply::Discarded, None))
        }
        Request::Open { .. }
        | Request::List { .. }
        | Request::Enter { .. }
        | Request::Keep { .. }
        | Request::Kept { .. } => Err(Fault::new("forbidden", "not for a run")),
    }
}

/// The requester learns that something is wrong here, the log what.
fn internal(error: impl std::fmt::Display) -> Fault {
    tracing::error!(%error, "a request failed");
    Fault::new(
        "internal",
        "the artifact worker could not do this; its log says why",
    )
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
