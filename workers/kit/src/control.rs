//! The control channel after the handshake: grants in, wishes out, heartbeats between.

use ipc_proto::channel::Fault;
use ipc_proto::console::{Act, Look, Order};
use ipc_proto::edges::continuation::Claim;
use ipc_proto::edges::control::{
    EdgeName, FromWorker, MAX_TURN_INPUT, Peer, Refusal, RunScope, RunStatus, StartRun, ToWorker,
    Trigger, TurnInput,
};
use ipc_proto::figures::{Figures, MAX_FIGURES};
use ipc_proto::link::{LinkError, LinkReceiver, LinkSender, Payload};
use ipc_proto::request_context::RequestContext;
use ipc_proto::{Body, Role, RunId};
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How long the supervisor may take to answer a wish; starting a process included.
const ANSWER: Duration = Duration::from_secs(30);

/// Largest answer to a look in bytes.
const MAX_SEEN: usize = 64 * 1024 * 1024;

/// A channel that this worker owns one end of.
#[derive(Debug)]
pub struct Granted {
    /// Number of the channel.
    pub channel: u64,
    /// What is spoken on it.
    pub edge: EdgeName,
    /// Who holds the other end.
    pub peer: Peer,
    /// Our end.
    pub fd: OwnedFd,
}

/// What the supervisor says to a serving worker.
#[derive(Debug)]
pub enum Event {
    /// A channel to serve or to use.
    Granted(Granted),
    /// Close the channel of this number.
    Revoked(u64),
    /// The one run of a run worker.
    Assigned {
        /// The run's scope.
        scope: RunScope,
        /// What started it.
        trigger: Trigger,
        /// Who reads the events.
        reader: Role,
        /// The person's message.
        input: Box<TurnInput>,
        /// One descriptor per edge.
        channels: Vec<(EdgeName, OwnedFd)>,
    },
    /// End the run as cancelled.
    CancelRun {
        /// For the record.
        reason: String,
    },
    /// A server process ended.
    ServerExited {
        /// Which.
        server: u64,
        /// How.
        status: String,
    },
    /// A stub has connected to the gateway.
    Stub {
        /// The connection.
        fd: OwnedFd,
        /// The process at its other end.
        pid: u32,
        /// When that process was started, in clock ticks since the machine's start.
        started: u64,
    },
    /// An operator wants something of the console's logins; [`Control::operated`] answers.
    Operate {
        /// Names the wish in the answer.
        request: u64,
        /// What.
        order: Order,
    },
    /// Finish what is running, take nothing new, then return.
    Drain,
    /// Return now. Also sent when the supervisor is gone.
    Shutdown,
}

/// Events in order. After `Shutdown` nothing more comes.
pub type Inbox = mpsc::UnboundedReceiver<Event>;

/// Why a wish was not granted.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The supervisor's refusal, with its fixed code.
    #[error("{0}")]
    Refused(#[from] Fault),
    /// It is gone or did not answer.
    #[error("the supervisor did not answer")]
    NoAnswer,
    /// The channel broke.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A body can't be packed or unpacked.
    #[error("the message's body: {0}")]
    Body(#[from] ipc_proto::body::BodyError),
}

/// A started run as its channel sees it.
#[derive(Debug)]
pub struct RunChannel {
    /// The run.
    pub run: RunId,
    /// Its events: [`ipc_proto::EventReceiver::new`].
    pub events: OwnedFd,
}

/// A started server's pipes.
#[derive(Debug)]
pub struct ServerPipes {
    /// Names the process in [`Control::stop_server`].
    pub server: u64,
    /// Write end.
    pub stdin: OwnedFd,
    /// Read end.
    pub stdout: OwnedFd,
    /// Read end.
    pub stderr: OwnedFd,
}

/// Wishes by their number; none once nobody reads answers any more.
type Waiting = Arc<Mutex<Option<HashMap<u64, Waiter>>>>;
type Waiter = oneshot::Sender<(ToWorker, VecDeque<OwnedFd>)>;

/// Asks the supervisor. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Control {
    sender: LinkSender,
    waiting: Waiting,
    next: Arc<AtomicU64>,
}

impl Control {
    fn waiting(&self) -> MutexGuard<'_, Option<HashMap<u64, Waiter>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(
        &self,
        message: &FromWorker,
        fds: &[OwnedFd],
    ) -> Result<(ToWorker, VecDeque<OwnedFd>), ControlError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (tell, answer) = oneshot::channel();
        match self.waiting().as_mut() {
            Some(waiting) => waiting.insert(id, tell),
            None => return Err(ControlError::NoAnswer),
        };
        let fds = ipc_proto::link::borrow(fds);
        self.sender
            .send(
                id,
                u32::try_from(ANSWER.as_millis()).unwrap_or(0),
                message,
                &fds,
            )
            .await?;
        let result = tokio::time::timeout(ANSWER, answer).await;
        if let Some(waiting) = self.waiting().as_mut() {
            waiting.remove(&id);
        }
        match result {
            Ok(Ok(reply)) => Ok(reply),
            _ => Err(ControlError::NoAnswer),
        }
    }

    /// Starts a run (channel workers).
    ///
    /// # Errors
    /// [`ControlError::Refused`] with `queue_full`, `shutting_down`, `starting` or `invalid_request`.
    pub async fn start_run(
        &self,
        conversation: ipc_proto::ConversationId,
        delivery: ipc_proto::ConversationId,
        trigger: Trigger,
        input: &TurnInput,
    ) -> Result<RunChannel, ControlError> {
        let (input, fd) = Body::pack_json(input)?;
        let start = StartRun {
            conversation,
            delivery,
            trigger,
            input,
        };
        let fds: Vec<_> = fd.into_iter().collect();
        match self.ask(&FromWorker::StartRun { start }, &fds).await? {
            (ToWorker::RunStarted { run }, mut fds) => match fds.pop_front() {
                Some(events) => Ok(RunChannel { run, events }),
                None => Err(ControlError::NoAnswer),
            },
            (ToWorker::RunRefused { refusal }, _) => Err(Fault {
                code: refusal.code,
                message: refusal.message,
            }
            .into()),
            _ => Err(ControlError::NoAnswer),
        }
    }

    /// Ends a run that this channel started.
    ///
    /// # Errors
    /// When the supervisor is gone.
    pub async fn cancel_run(&self, run: RunId, reason: &str) -> Result<(), ControlError> {
        self.ask(
            &FromWorker::CancelRun {
                run,
                reason: reason.to_owned(),
            },
            &[],
        )
        .await
        .map(|_| ())
    }

    /// Starts a configured stdio server (app-bridge).
    ///
    /// # Errors
    /// [`ControlError::Refused`] with `server_failed` and the reason.
    pub async fn start_server(
        &self,
        name: &str,
        run: Option<RunId>,
    ) -> Result<ServerPipes, ControlError> {
        let wish = FromWorker::StartServer {
            name: name.to_owned(),
            run,
        };
        self.started(&wish).await
    }

    async fn started(&self, wish: &FromWorker) -> Result<ServerPipes, ControlError> {
        match self.ask(wish, &[]).await? {
            (ToWorker::ServerStarted { server }, mut fds) => {
                match (fds.pop_front(), fds.pop_front(), fds.pop_front()) {
                    (Some(stdin), Some(stdout), Some(stderr)) => Ok(ServerPipes {
                        server,
                        stdin,
                        stdout,
                        stderr,
                    }),
                    _ => Err(ControlError::NoAnswer),
                }
            }
            (ToWorker::ServerFailed { message }, _) => {
                Err(Fault::new("server_failed", message).into())
            }
            _ => Err(ControlError::NoAnswer),
        }
    }

    /// Starts a configured stdio server that may claim continuations for a run (app-bridge).
    ///
    /// # Errors
    /// As [`Control::start_server`].
    pub async fn start_claiming_server(
        &self,
        name: &str,
        run: RunId,
        claim: Claim,
    ) -> Result<ServerPipes, ControlError> {
        let wish = FromWorker::StartClaimingServer {
            name: name.to_owned(),
            run,
            claim,
        };
        self.started(&wish).await
    }

    /// Starts a configured stdio server that is told of the request it works for (app-bridge).
    ///
    /// # Errors
    /// As [`Control::start_server`].
    pub async fn start_server_of_request(
        &self,
        name: &str,
        run: RunId,
        context: RequestContext,
        claim: Option<Claim>,
    ) -> Result<ServerPipes, ControlError> {
        let wish = FromWorker::StartServerOfRequest {
            name: name.to_owned(),
            run,
            context,
            claim,
        };
        self.started(&wish).await
    }

    /// Says how the continuations stand (the continuation worker).
    ///
    /// # Errors
    /// When the supervisor is gone.
    pub async fn health(&self, health: &serde_json::Value) -> Result<(), ControlError> {
        let bytes = serde_json::to_vec(health).map_err(ipc_proto::body::BodyError::from)?;
        let health = FromWorker::Health {
            health: Body::Inline(bytes),
        };
        Ok(self.sender.send(0, 0, &health, &[]).await?)
    }

    /// Ends a server and its whole process tree.
    ///
    /// # Errors
    /// When the supervisor is gone.
    pub async fn stop_server(&self, server: u64) -> Result<(), ControlError> {
        self.ask(&FromWorker::StopServer { server }, &[])
            .await
            .map(|_| ())
    }

    /// How many durable bytes this worker may have (owners of rich replies), given what it holds and
    /// wants.
    ///
    /// # Errors
    /// When the supervisor is gone.
    pub async fn room(&self, held: u64, wanted: u64) -> Result<u64, ControlError> {
        match self.ask(&FromWorker::Room { held, wanted }, &[]).await? {
            (ToWorker::Room { granted }, _) => Ok(granted),
            _ => Err(ControlError::NoAnswer),
        }
    }

    /// What the supervisor counts (the metrics worker).
    ///
    /// # Errors
    /// When the supervisor is gone, or its answer can't be read.
    pub async fn figures(&self) -> Result<Figures, ControlError> {
        match self.ask(&FromWorker::Figures, &[]).await? {
            (ToWorker::Figures { body }, mut fds) => Ok(body.unpack_json(&mut fds, MAX_FIGURES)?),
            _ => Err(ControlError::NoAnswer),
        }
    }

    /// What the supervisor shows of the daemon (the console), as `monoctl` would print it.
    ///
    /// # Errors
    /// [`ControlError::Refused`] with the fixed code that `monoctl` would get.
    pub async fn look(&self, at: Look) -> Result<serde_json::Value, ControlError> {
        self.see(&FromWorker::Look { at }).await
    }

    /// Does for an operator (the console) what `monoctl` would, and gives what that would print.
    ///
    /// # Errors
    /// As [`Control::look`].
    pub async fn act(&self, act: Act) -> Result<serde_json::Value, ControlError> {
        self.see(&FromWorker::Act { act }).await
    }

    async fn see(&self, wish: &FromWorker) -> Result<serde_json::Value, ControlError> {
        match self.ask(wish, &[]).await? {
            (ToWorker::Seen { body }, mut fds) => Ok(body.unpack_json(&mut fds, MAX_SEEN)?),
            (ToWorker::NotSeen { refusal }, _) => Err(Fault {
                code: refusal.code,
                message: refusal.message,
            }
            .into()),
            _ => Err(ControlError::NoAnswer),
        }
    }

    /// Answers [`Event::Operate`].
    ///
    /// # Errors
    /// When the supervisor is gone.
    pub async fn operated(
        &self,
        request: u64,
        result: Result<serde_json::Value, Fault>,
    ) -> Result<(), ControlError> {
        let (answer, fd) = match result {
            Ok(value) => {
                let (body, fd) = Body::pack_json(&value)?;
                (FromWorker::Operated { body }, fd)
            }
            Err(Fault { code, message }) => {
                let refusal = Refusal { code, message };
                (FromWorker::NotOperated { refusal }, None)
            }
        };
        let fds: Vec<_> = fd.into_iter().collect();
        let fds = ipc_proto::link::borrow(&fds);
        Ok(self.sender.send(request, 0, &answer, &fds).await?)
    }

    /// Says how the run ended (run workers, once, after the commit).
    ///
    /// # Errors
    /// When the supervisor is gone.
    pub async fn run_done(
        &self,
        status: RunStatus,
        failure_kind: Option<String>,
    ) -> Result<(), ControlError> {
        Ok(self
            .sender
            .send(
                0,
                0,
                &FromWorker::RunDone {
                    status,
                    failure_kind,
                },
                &[],
            )
            .await?)
    }
}

/// Starts the task that reads the control channel.
pub(crate) fn serve(sender: LinkSender, mut receiver: LinkReceiver) -> (Control, Inbox) {
    let control = Control {
        sender: sender.clone(),
        waiting: Arc::new(Mutex::new(Some(HashMap::new()))),
        next: Arc::new(1.into()),
    };
    let asked = control.clone();
    let (tell, inbox) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let packet = match receiver.recv::<ToWorker>().await {
                Ok(Some(packet)) => packet,
                Ok(None) => break,
                Err(e) => {
                    tracing::error!("the control channel broke: {e}");
                    break;
                }
            };
            let mut fds = packet.fds;
            let Payload::Message(message) = packet.payload else {
                break;
            };
            let event = match message {
                ToWorker::Ping { seq } => {
                    if sender
                        .send(0, 0, &FromWorker::Pong { seq }, &[])
                        .await
                        .is_err()
                    {
                        break;
                    }
                    continue;
                }
                ToWorker::Grant {
                    channel,
                    edge,
                    peer,
                } => match fds.pop_front() {
                    Some(fd) => Event::Granted(Granted {
                        channel,
                        edge,
                        peer,
                        fd,
                    }),
                    None => continue,
                },
                ToWorker::Revoke { channel } => Event::Revoked(channel),
                ToWorker::Assign {
                    scope,
                    trigger,
                    reader,
                    input,
                    edges,
                } => match input.unpack_json(&mut fds, MAX_TURN_INPUT) {
                    Ok(input) if edges.len() == fds.len() => Event::Assigned {
                        scope,
                        trigger,
                        reader,
                        input: Box::new(input),
                        channels: edges.into_iter().zip(fds).collect(),
                    },
                    Ok(_) => {
                        tracing::error!("the assignment's descriptors don't match its edges");
                        break;
                    }
                    Err(e) => {
                        tracing::error!("the run's input can't be read: {e}");
                        break;
                    }
                },
                ToWorker::CancelRun { reason } => Event::CancelRun { reason },
                ToWorker::ServerExited { server, status } => Event::ServerExited { server, status },
                ToWorker::Stub { pid, started } => match fds.pop_front() {
                    Some(fd) => Event::Stub { fd, pid, started },
                    None => continue,
                },
                ToWorker::Operate { order } => Event::Operate {
                    request: packet.id,
                    order,
                },
                ToWorker::Drain => Event::Drain,
                ToWorker::Shutdown => break,
                answer @ (ToWorker::RunStarted { .. }
                | ToWorker::RunRefused { .. }
                | ToWorker::ServerStarted { .. }
                | ToWorker::ServerFailed { .. }
                | ToWorker::Figures { .. }
                | ToWorker::Seen { .. }
                | ToWorker::NotSeen { .. }
                | ToWorker::Room { .. }
                | ToWorker::Done) => {
                    let waiter = asked.waiting().as_mut().and_then(|w| w.remove(&packet.id));
                    if let Some(waiter) = waiter {
                        let _ = waiter.send((answer, fds));
                    }
                    continue;
                }
                ToWorker::Welcome { .. } => break,
            };
            if tell.send(event).is_err() {
                break;
            }
        }
        *asked.waiting() = None;
        let _ = tell.send(Event::Shutdown);
    });
    (control, inbox)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ipc_proto::Link;
    use ipc_proto::link::pair;
    use ipc_proto::table::Guard;

    #[tokio::test]
    async fn a_wish_after_the_shutdown_waits_for_nobody() {
        let (supervisors, workers) = pair().unwrap();
        let supervisor = Link::new(supervisors, Guard::serving(Role::AppBridge)).unwrap();
        let worker = Link::new(workers, Guard::serving(Role::Monod)).unwrap();
        let (control, mut inbox) = serve(worker.sender, worker.receiver);
        supervisor
            .sender
            .send(0, 0, &ToWorker::Shutdown, &[])
            .await
            .unwrap();
        assert!(matches!(inbox.recv().await, Some(Event::Shutdown)));
        let asked = tokio::time::timeout(Duration::from_secs(30), control.stop_server(1));
        assert!(matches!(asked.await, Ok(Err(ControlError::NoAnswer))));
    }
}
