//! The worker: channels in, one database, answers out.
//!
//! Everything runs on one thread, SQLite included. There is one writer anyway, so a second thread
//! would bring a queue to bound and nothing else: here the queue is the channel's socket, a slow
//! disk slows the senders, the requests of a channel are done in order, and a stop never finds an
//! operation half done. A disk that hangs hangs the heartbeat too, which is what the supervisor
//! should see.

use crate::db::Store;
use crate::error::StoreError;
use crate::listing::Query;
use crate::record::{COMMIT_BYTES, Start, Status};
use crate::retention::Limits;
use crate::turn::WORKER_LOST;
use ipc_proto::channel::Fault;
use ipc_proto::console::{Ask, MAX_BODY};
use ipc_proto::edges::control::{EdgeName, Peer, RunScope};
use ipc_proto::edges::delivery::TOO_LATE;
use ipc_proto::edges::store::{self as edge, Reply, Request};
use ipc_proto::settings::RoleSettings;
use ipc_proto::{Body, Call, Role, RunId, Server, Until};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use worker_kit::{Event, Granted, KitError, Starting, located};

/// How long the store waits, when a run's channel closes, for the supervisor to say how the run ended,
/// before it says so itself. Where the supervisor is gone, this worker ends meanwhile and says nothing:
/// then it was no process of a run that died.
const SUPERVISOR_FIRST: Duration = Duration::from_millis(250);
/// Largest failure and append in bytes; what is kept of them is much less.
const SMALL_BODY: usize = 4 << 20;

/// The database as the channels' tasks share it. The lock is never held across a wait, so it is
/// never contended.
#[derive(Debug, Clone)]
pub struct Desk {
    store: Arc<Mutex<Store>>,
    /// Numbers channels, so that what one of them began is known when it closes.
    leases: Arc<AtomicI64>,
    /// Told of damage that was found while serving: the worker then ends, and its next start
    /// refuses with the reason.
    damage: mpsc::UnboundedSender<String>,
}

impl Desk {
    /// A desk, and where it reports damage.
    #[must_use]
    pub fn new(store: Store) -> (Self, mpsc::UnboundedReceiver<String>) {
        let (damage, reports) = mpsc::unbounded_channel();
        (
            Self {
                store: Arc::new(Mutex::new(store)),
                leases: Arc::new(AtomicI64::new(1)),
                damage,
            },
            reports,
        )
    }

    fn with<T>(&self, act: impl FnOnce(&mut Store) -> Result<T, StoreError>) -> Result<T, Fault> {
        // A panic inside an operation rolled its transaction back: the store is sound.
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut store).map_err(|error| {
            if let StoreError::Corrupt { .. } = error {
                let _ = self.damage.send(error.to_string());
            }
            fault(&error)
        })
    }

    /// A console whose channel is closed can't finish the answers that it began on it.
    fn let_replies_go(&self, lease: i64) {
        match self.with(|store| store.interrupt_replies(Some(lease))) {
            Ok(0) => {}
            Ok(replies) => tracing::warn!(replies, "interrupted: the console's channel closed"),
            Err(e) => tracing::error!("the console's answers could not be marked: {e}"),
        }
    }

    /// A run whose channel is closed can't say any more how it ended.
    async fn let_go(&self, run: &RunId) {
        if self.with(|store| store.is_running(run)) == Ok(true) {
            tokio::time::sleep(SUPERVISOR_FIRST).await;
        }
        match self.with(|store| match store.interrupt(run, WORKER_LOST, now()) {
            Err(StoreError::UnknownRun(_)) => Ok(None),
            other => other.map(Some),
        }) {
            Ok(Some(Status::Interrupted)) => {
                tracing::warn!(%run, "its channel closed before it had ended")
            }
            Ok(_) => {}
            Err(e) => tracing::error!(%run, "its end could not be recorded: {e}"),
        }
    }
}

/// The worker's life, for [`worker_kit::run`].
///
/// # Errors
/// When the database can't be opened or is found damaged, and what the kit reports.
pub async fn work(mut starting: Starting) -> Result<(), KitError> {
    let opened = open(&mut starting);
    let store = starting.prepared(opened).await?;
    let (desk, mut damage) = Desk::new(store);
    let (_control, mut inbox) = starting.ready().await?;
    let mut channels = JoinSet::new();
    let mut open: HashMap<u64, oneshot::Sender<()>> = HashMap::new();
    let mut runs = 0_usize;
    let mut draining = false;
    loop {
        tokio::select! {
            event = inbox.recv() => match event {
                Some(Event::Granted(granted)) if !draining && granted.edge == EdgeName::Store => {
                    let Granted { channel, peer, fd, .. } = granted;
                    let (revoke, revoked) = oneshot::channel();
                    open.insert(channel, revoke);
                    runs += usize::from(peer.run.is_some());
                    let desk = desk.clone();
                    channels.spawn(async move {
                        let is_run = peer.run.is_some();
                        serve(&desk, fd, peer, revoked).await;
                        (channel, is_run)
                    });
                }
                Some(Event::Granted(other)) => tracing::warn!(edge = ?other.edge, "a grant was not taken"),
                // Dropping the sender is the message.
                Some(Event::Revoked(channel)) => drop(open.remove(&channel)),
                Some(Event::Drain) => draining = true,
                Some(Event::Shutdown) | None => return Ok(()),
                Some(_) => {}
            },
            Some(ended) = channels.join_next() => if let Ok((channel, is_run)) = ended {
                open.remove(&channel);
                runs -= usize::from(is_run);
            },
            Some(finding) = damage.recv() => return Err(KitError::worker(finding)),
        }
        if draining && runs == 0 {
            return Ok(());
        }
    }
}

fn open(starting: &mut Starting) -> Result<Store, KitError> {
    // The profile sets this too; a worker started otherwise must not differ.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    let RoleSettings::Store(settings) = &starting.settings else {
        return Err(KitError::worker("the settings are of another role"));
    };
    let limits = Limits::from(settings);
    let state = starting
        .descriptor("state")
        .ok_or_else(|| KitError::worker("no descriptor \"state\" came with the settings"))?;
    // SQLite works by path.
    let dir = located(&state)?;
    let mut store = Store::open(&dir, limits).map_err(KitError::worker)?;
    let swept = store.sweep(now()).map_err(KitError::worker)?;
    if swept > 0 {
        tracing::warn!(
            runs = swept,
            "recorded as interrupted: they were running when the store ended"
        );
    }
    store.interrupt_replies(None).map_err(KitError::worker)?;
    Ok(store)
}

/// Serves one channel to its end. A run's channel that closes before its run has ended ends the
/// run: the descriptor is the lease.
pub async fn serve(desk: &Desk, fd: OwnedFd, peer: Peer, mut revoked: oneshot::Receiver<()>) {
    let lease = desk.leases.fetch_add(1, Ordering::Relaxed);
    match Server::<edge::Store>::new(fd, peer.role) {
        Err(error) => {
            tracing::error!(role = %peer.role, %error, "a granted channel can't be served")
        }
        Ok(mut server) => loop {
            let call = tokio::select! {
                call = server.recv() => call,
                _ = &mut revoked => break,
            };
            match call {
                Ok(Some(call)) => answer(desk, &peer, lease, call).await,
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(role = %peer.role, %error, "a channel broke");
                    break;
                }
            }
        },
    }
    if let Some(scope) = &peer.run {
        desk.let_go(&scope.run).await;
    }
    if peer.role == Role::ChannelConsole {
        desk.let_replies_go(lease);
    }
}

async fn answer(desk: &Desk, peer: &Peer, lease: i64, call: Call<edge::Store>) {
    let Call {
        request,
        mut fds,
        responder,
        ..
    } = call;
    let sent = match handle(desk, peer, lease, request, &mut fds) {
        Ok((reply, fd)) => {
            let fds: Vec<OwnedFd> = fd.into_iter().collect();
            responder.send(&reply, &fds).await
        }
        Err(fault) => responder.fault(&fault).await,
    };
    if let Err(error) = sent {
        // The requester learns of it by the end of its channel.
        tracing::debug!(role = %peer.role, %error, "an answer could not be sent");
    }
}

type Answer = Result<(Reply, Option<OwnedFd>), Fault>;

/// Who asks decides what may be asked; the run and the conversation are the grant's.
fn handle(
    desk: &Desk,
    peer: &Peer,
    lease: i64,
    request: Request,
    fds: &mut VecDeque<OwnedFd>,
) -> Answer {
    match (peer.role, &peer.run) {
        (Role::Run, Some(scope)) => handle_run(desk, scope, request, fds),
        (Role::Monod, None) => handle_supervisor(desk, request),
        (Role::Continuation, None) => handle_continuation(desk, request, fds),
        (Role::ChannelConsole, None) => handle_console(desk, lease, request, fds),
        _ => Err(forbidden()),
    }
}

fn handle_run(
    desk: &Desk,
    scope: &RunScope,
    request: Request,
    fds: &mut VecDeque<OwnedFd>,
) -> Answer {
    let run = &scope.run;
    match request {
        Request::BeginRun {
            source,
            source_detail,
            model,
            user_text,
        } => {
            let start = Start {
                source,
                source_detail,
                model,
                user_text,
            };
            let history = desk.with(|store| store.begin_run(scope, &start, now()))?;
            packed(&history, |history| Reply::Began { history })
        }
        Request::ToolStarted {
            id,
            name,
            arguments,
        } => {
            desk.with(|store| store.tool_started(run, &id, &name, &arguments, now()))?;
            Ok((Reply::Recorded, None))
        }
        Request::ToolEnded { id, state, preview } => {
            desk.with(|store| store.tool_ended(run, &id, &state, &preview, now()))?;
            Ok((Reply::Recorded, None))
        }
        Request::CommitRun { commit } => {
            let commit: edge::RunCommit = unpacked(commit, fds, COMMIT_BYTES)?;
            let done = desk.with(|store| store.commit_run(run, &commit, now()))?;
            Ok((
                Reply::Committed {
                    revision: done.revision,
                },
                None,
            ))
        }
        Request::FailRun { failure } => {
            let failure: edge::RunFailure = unpacked(failure, fds, SMALL_BODY)?;
            desk.with(|store| store.fail_run(run, &failure, now()))?;
            Ok((Reply::Recorded, None))
        }
        _ => Err(forbidden()),
    }
}

fn handle_supervisor(desk: &Desk, request: Request) -> Answer {
    match request {
        Request::ListRuns {
            conversation,
            status,
            limit,
            cursor,
        } => {
            let status = status
                .map(|name| {
                    Status::parse(&name).ok_or_else(|| {
                        let names = Status::ALL.map(Status::name).join(", ");
                        Fault::new("invalid_request", format!("a status is one of {names}"))
                    })
                })
                .transpose()?;
            let query = Query {
                conversation,
                status,
                limit,
                cursor,
            };
            let page = desk.with(|store| store.list_runs(&query))?;
            packed(&page, |page| Reply::Runs { page })
        }
        Request::ShowRun { run } => match desk.with(|store| store.show_run(&run))? {
            Some(record) => packed(&record, |record| Reply::Run {
                record: Some(record),
            }),
            None => Ok((Reply::Run { record: None }, None)),
        },
        Request::Interrupt { run, failure_kind } => {
            desk.with(|store| store.interrupt(&run, &failure_kind, now()))?;
            Ok((Reply::Recorded, None))
        }
        Request::RunCommitted { run } => committedness(desk, &run),
        Request::Letters {
            conversation,
            after,
            limit,
        } => {
            let page = desk.with(|store| store.letters(conversation.as_ref(), after, limit))?;
            packed(&page, |page| Reply::Letters { page })
        }
        _ => Err(forbidden()),
    }
}

fn handle_continuation(desk: &Desk, request: Request, fds: &mut VecDeque<OwnedFd>) -> Answer {
    match request {
        Request::RunCommitted { run } => committedness(desk, &run),
        Request::LatestHistory { conversation } => {
            let history = desk.with(|store| store.latest_history(&conversation))?;
            packed(&history, |history| Reply::Began { history })
        }
        Request::AppendHistory {
            conversation,
            key,
            messages,
        } => {
            let messages: Vec<ipc_proto::chat::ChatMessage> = unpacked(messages, fds, SMALL_BODY)?;
            let done =
                desk.with(|store| store.append_history(&conversation, &key, &messages, now()))?;
            Ok((
                Reply::Committed {
                    revision: done.revision,
                },
                None,
            ))
        }
        Request::LeaveLetter {
            conversation,
            key,
            text,
            until,
        } => {
            in_time(until)?;
            let text = text
                .unpack_text(fds, SMALL_BODY)
                .map_err(|e| Fault::new("invalid_request", e.to_string()))?;
            desk.with(|store| store.leave_letter(&conversation, &key, &text, now()))?;
            Ok((Reply::Recorded, None))
        }
        _ => Err(forbidden()),
    }
}

fn handle_console(
    desk: &Desk,
    lease: i64,
    request: Request,
    fds: &mut VecDeque<OwnedFd>,
) -> Answer {
    let Request::Console { ask } = request else {
        return Err(forbidden());
    };
    let ask = unpacked(ask, fds, MAX_BODY)?;
    if let Ask::Deliver { until, .. } = &ask {
        in_time(*until)?;
    }
    let answer = desk.with(|store| store.console(ask, lease, now()))?;
    packed(&answer, |answer| Reply::Console { answer })
}

/// A request that lay here while the disk hung: whoever made it has written down by now that nobody knows what
/// became of it, and an operator may have looked.
fn in_time(until: Until) -> Result<(), Fault> {
    if until.is_over() {
        return Err(Fault::new(TOO_LATE, "nobody waits for that any more"));
    }
    Ok(())
}

fn committedness(desk: &Desk, run: &RunId) -> Answer {
    let state = desk.with(|store| store.commitment(run))?.name().to_owned();
    Ok((Reply::Committedness { state }, None))
}

fn packed<T: Serialize>(value: &T, reply: impl FnOnce(Body) -> Reply) -> Answer {
    let (body, fd) = Body::pack_json(value).map_err(|e| {
        tracing::error!("an answer can't be packed: {e}");
        Fault::new(
            "internal",
            "the answer can't be packed; see the store's log",
        )
    })?;
    Ok((reply(body), fd))
}

fn unpacked<T: DeserializeOwned>(
    body: Body,
    fds: &mut VecDeque<OwnedFd>,
    max: usize,
) -> Result<T, Fault> {
    body.unpack_json(fds, max)
        .map_err(|e| Fault::new("invalid_request", e.to_string()))
}

fn forbidden() -> Fault {
    Fault::new("forbidden", "this channel may not ask for that")
}

/// The fixed code and a sentence without paths; the detail goes to the log.
fn fault(error: &StoreError) -> Fault {
    let code = match error {
        StoreError::Invalid { .. } | StoreError::TooLarge { .. } => "invalid_request",
        StoreError::UnknownRun(_) => "not_found",
        StoreError::RunExists(_) | StoreError::Conflict(_) => "conflict",
        StoreError::Ended { .. } => "ended",
        StoreError::ConversationBusy(_) => "busy",
        StoreError::Taken => "conversation_taken",
        StoreError::HistoryFull(_) => "history_full",
        StoreError::DiskFull => "disk_full",
        StoreError::NotThere(_) => "not_found",
        StoreError::ReplyOpen => "running",
        StoreError::QueueFull => "queue_full",
        StoreError::ConsoleFull(_) => "storage_full",
        StoreError::Place(_)
        | StoreError::Corrupt { .. }
        | StoreError::Foreign { .. }
        | StoreError::Newer { .. }
        | StoreError::Copy { .. }
        | StoreError::InUse
        | StoreError::Database(_) => {
            tracing::error!("{error}");
            return Fault::new("unavailable", "the database failed; see the store's log");
        }
    };
    Fault::new(code, error.to_string())
}

/// Milliseconds since 1970.
fn now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_millis()).ok())
        .unwrap_or(0)
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
