//! What an operator asks through the admin socket.

use crate::input::{Input, ProcessId};
use crate::owner;
use crate::run::Origin;
use crate::slot::{Occupant, Slot};
use crate::status;
use crate::supervisor::Supervisor;
use ipc_proto::admin::{Admin, Answer, Ask, JsonBody};
use ipc_proto::channel::{Fault, Responder};
use ipc_proto::door::{Again, Line};
use ipc_proto::edges::control::{MAX_TURN_INPUT, StartRun, Trigger, TurnInput};
use ipc_proto::edges::{app_bridge, artifact, store};
use ipc_proto::{Body, ConversationId, Edge, Role, RunId, VERSION_MAX, VERSION_MIN};
use serde::Serialize;
use serde_json::json;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use tokio::sync::mpsc;

/// Largest list or record in bytes.
pub(crate) const MAX_RECORD: usize = 64 * 1024 * 1024;

/// Sends a value as the answer, with further descriptors after the value's own.
pub(crate) async fn answer<T: Serialize>(
    responder: Responder<Admin>,
    result: Result<(T, Vec<OwnedFd>), Fault>,
) {
    let packed = result.and_then(|(value, fds)| {
        let (result, memfd) = JsonBody::pack(&value)
            .map_err(|e| Fault::new("internal", format!("the answer can't be packed: {e}")))?;
        Ok((
            Answer::Ok { result },
            memfd.into_iter().chain(fds).collect::<Vec<_>>(),
        ))
    });
    let sent = match packed {
        Ok((answer, fds)) => responder.send(&answer, &fds).await,
        Err(Fault { code, message }) => responder.send(&Answer::Error { code, message }, &[]).await,
    };
    if let Err(e) = sent {
        tracing::debug!("an operator did not wait for the answer: {e}");
    }
}

fn now<T: Serialize + Send + 'static>(
    responder: Responder<Admin>,
    result: Result<(T, Vec<OwnedFd>), Fault>,
) {
    tokio::spawn(answer(responder, result));
}

/// Who gets what an owner answers.
pub(crate) enum Asker {
    /// `monoctl`.
    Operator(Responder<Admin>),
    /// The console, for its operator pages. Gets no descriptors.
    Console {
        process: ProcessId,
        request: u64,
        tell: mpsc::UnboundedSender<Input>,
    },
}

impl Asker {
    /// Sends the result.
    pub(crate) async fn answer(self, result: Result<(serde_json::Value, Vec<OwnedFd>), Fault>) {
        match self {
            Self::Operator(responder) => answer(responder, result).await,
            Self::Console {
                process,
                request,
                tell,
            } => {
                let result = result.map(|(value, _)| value);
                let _ = tell.send(Input::Looked {
                    process,
                    request,
                    result,
                });
            }
        }
    }
}

fn invalid(what: impl std::fmt::Display) -> Fault {
    Fault::new("invalid_request", what.to_string())
}

fn done(done: bool, role: &str) -> Result<(serde_json::Value, Vec<OwnedFd>), Fault> {
    if done {
        Ok((json!({ "role": role }), vec![]))
    } else {
        let message = format!("{role:?} is no always-on role with a worker; see `monoctl status`");
        Err(Fault::new("not_found", message))
    }
}

/// Passes an owner's answer on, as JSON.
pub(crate) fn forward<E, F>(line: Line<E>, request: E::Request, again: Again, take: F, asker: Asker)
where
    E: Edge,
    F: FnOnce(E::Reply) -> Result<Option<Body>, Fault> + Send + 'static,
{
    tokio::spawn(async move {
        let result = async {
            let (reply, mut fds) = owner::ask(line, &request, again).await?;
            let value: serde_json::Value = match take(reply)? {
                Some(body) => body
                    .unpack_json(&mut fds, MAX_RECORD)
                    .map_err(|e| Fault::new("internal", e.to_string()))?,
                None => return Err(Fault::new("not_found", "there is none with this id")),
            };
            Ok((value, fds.into_iter().collect()))
        };
        asker.answer(result.await).await;
    });
}

pub(crate) fn refuse(asker: Asker, fault: Fault) {
    tokio::spawn(asker.answer(Err(fault)));
}

pub(crate) fn unexpected() -> Fault {
    Fault::new("internal", "the worker answered something else")
}

impl Supervisor {
    /// One request of an operator.
    pub(crate) fn asked(
        &mut self,
        ask: Ask,
        mut fds: VecDeque<OwnedFd>,
        responder: Responder<Admin>,
    ) {
        match ask {
            Ask::Hello {
                version_min,
                version_max,
            } => {
                let common = ipc_proto::common_version(
                    (VERSION_MIN, VERSION_MAX),
                    (version_min, version_max),
                );
                let result = match common {
                    Some(version) => Ok((
                        json!({ "version": version, "daemon": env!("CARGO_PKG_VERSION") }),
                        vec![],
                    )),
                    None => Err(Fault::new(
                        "no_common_version",
                        format!(
                            "this monoctl speaks versions {version_min} to {version_max}, the daemon \
                             {VERSION_MIN} to {VERSION_MAX}; install the same release of both"
                        ),
                    )),
                };
                now(responder, result);
            }
            Ask::Status => now(responder, Ok((self.status(), vec![]))),
            Ask::Config => now(responder, Ok((json!({ "fields": self.reports }), vec![]))),
            Ask::Console { order } => self.operate_console(order, responder),
            Ask::Send {
                conversation,
                input,
            } => {
                let result = self.send(&conversation, input, &mut fds);
                now(responder, result);
                self.dispatch();
            }
            Ask::CancelRun { run } => {
                let result = RunId::parse(&run).map_err(invalid).and_then(|run| {
                    if self.cancel_run(&run, "cancelled by an operator") {
                        Ok((json!({ "cancelled": true }), vec![]))
                    } else {
                        Err(Fault::new("not_found", "no such run is at work or waiting"))
                    }
                });
                now(responder, result);
            }
            Ask::ListRuns {
                conversation,
                status,
                limit,
                cursor,
            } => {
                let asker = Asker::Operator(responder);
                self.list_runs(conversation, status, limit, cursor, asker);
            }
            Ask::ShowRun { run } => self.show_run(&run, Asker::Operator(responder)),
            Ask::ListArtifacts { limit, cursor } => {
                self.list_artifacts(limit, cursor, Asker::Operator(responder));
            }
            Ask::GetArtifact { id } => {
                let take = |reply| match reply {
                    artifact::Reply::Opened { record } => Ok(Some(record)),
                    artifact::Reply::Refused { code, .. } => {
                        let message = ipc_proto::reply::failure_message(&code);
                        Err(Fault::new(&code, message))
                    }
                    _ => Err(unexpected()),
                };
                let request = artifact::Request::Open {
                    id,
                    integrity_id: None,
                    delivery: None,
                    run: None,
                };
                let line = self.line_to(&self.owners.artifact, Role::Artifact);
                let asker = Asker::Operator(responder);
                forward(line, request, Again::Harmless, take, asker);
            }
            Ask::Letters {
                conversation,
                after,
                limit,
            } => self.letters(conversation, after, limit, Asker::Operator(responder)),
            Ask::Continuations { order } => {
                self.operate_continuations(&order, Asker::Operator(responder));
            }
            Ask::Inspect { what } => {
                let asker = Asker::Operator(responder);
                let ask = match Body::pack_json(&what) {
                    // No question is so long that it needs a descriptor.
                    Ok((ask, None)) => ask,
                    _ => return refuse(asker, invalid("the question is too long")),
                };
                let take = |reply| match reply {
                    app_bridge::Reply::Inspected { answer } => Ok(Some(answer)),
                    _ => Err(unexpected()),
                };
                let request = app_bridge::Request::Inspect { ask };
                let line = self.line_to(&self.owners.bridge, Role::AppBridge);
                // Some of what is asked is done.
                forward(line, request, Again::Never, take, asker);
            }
            Ask::Unpark { role } => {
                let result = if self.unpark(&role) {
                    Ok((json!({ "unparked": role }), vec![]))
                } else {
                    Err(Fault::new(
                        "not_parked",
                        format!("no worker of the role {role:?} is parked"),
                    ))
                };
                now(responder, result);
            }
            Ask::Restart { role } => now(responder, done(self.restart(&role), &role)),
            Ask::Drain { role } => now(responder, done(self.drain(&role), &role)),
            Ask::Logs { role, run, after } => {
                let page = self.logbook.read(role.as_deref(), run.as_deref(), after);
                now(responder, Ok((page, vec![])));
            }
            Ask::Reload => {
                let result = self.reload().map(|report| (report, vec![]));
                now(responder, result);
            }
            Ask::Upgrade => self.upgrade(responder),
            Ask::Stop => {
                now(responder, Ok((json!({ "stopping": true }), vec![])));
                self.stop();
            }
        }
    }

    /// A page of runs, for whoever asks.
    pub(crate) fn list_runs(
        &self,
        conversation: Option<String>,
        status: Option<String>,
        limit: u32,
        cursor: Option<String>,
        asker: Asker,
    ) {
        let conversation = match conversation.as_deref().map(ConversationId::parse) {
            None => None,
            Some(Ok(id)) => Some(id),
            Some(Err(e)) => return refuse(asker, invalid(e)),
        };
        let request = store::Request::ListRuns {
            conversation,
            status,
            limit,
            cursor,
        };
        let take = |reply| match reply {
            store::Reply::Runs { page } => Ok(Some(page)),
            _ => Err(unexpected()),
        };
        let line = self.line_to(&self.owners.store, Role::Store);
        forward(line, request, Again::Harmless, take, asker);
    }

    /// Later answers for conversations of the terminal.
    fn letters(&self, conversation: Option<String>, after: u64, limit: u32, asker: Asker) {
        let conversation = match conversation.as_deref().map(ConversationId::parse) {
            None => None,
            Some(Ok(id)) => Some(id),
            Some(Err(e)) => return refuse(asker, invalid(e)),
        };
        let request = store::Request::Letters {
            conversation,
            after,
            limit,
        };
        let take = |reply| match reply {
            store::Reply::Letters { page } => Ok(Some(page)),
            _ => Err(unexpected()),
        };
        let line = self.line_to(&self.owners.store, Role::Store);
        forward(line, request, Again::Harmless, take, asker);
    }

    /// One run, for whoever asks.
    pub(crate) fn show_run(&self, run: &str, asker: Asker) {
        let run = match RunId::parse(run) {
            Ok(run) => run,
            Err(e) => return refuse(asker, invalid(e)),
        };
        let take = |reply| match reply {
            store::Reply::Run { record } => Ok(record),
            _ => Err(unexpected()),
        };
        let line = self.line_to(&self.owners.store, Role::Store);
        let request = store::Request::ShowRun { run };
        forward(line, request, Again::Harmless, take, asker);
    }

    /// A page of artifacts, for whoever asks.
    pub(crate) fn list_artifacts(&self, limit: u32, cursor: Option<String>, asker: Asker) {
        let take = |reply| match reply {
            artifact::Reply::Artifacts { page } => Ok(Some(page)),
            artifact::Reply::Refused { code, .. } => Err(Fault::new(&code, "refused")),
            _ => Err(unexpected()),
        };
        let request = artifact::Request::List { limit, cursor };
        let line = self.line_to(&self.owners.artifact, Role::Artifact);
        forward(line, request, Again::Harmless, take, asker);
    }

    fn send(
        &mut self,
        conversation: &str,
        input: JsonBody,
        fds: &mut VecDeque<OwnedFd>,
    ) -> Result<(serde_json::Value, Vec<OwnedFd>), Fault> {
        let conversation = ConversationId::parse(conversation).map_err(invalid)?;
        let input: TurnInput = input.unpack(fds, MAX_TURN_INPUT).map_err(invalid)?;
        let input = Body::pack_json(&input).map_err(invalid)?;
        let start = StartRun {
            conversation: conversation.clone(),
            delivery: conversation,
            trigger: Trigger {
                source: "terminal".into(),
                detail: None,
            },
            input: input.0.clone(),
        };
        let (run, events) = self.accept_run(Origin::Admin, start, input)?;
        Ok((json!({ "run": run }), vec![events]))
    }

    pub(crate) fn status(&self) -> status::Status {
        let mut workers: Vec<status::Worker> = self
            .slots
            .iter()
            .map(|slot| self.slot_status(slot))
            .collect();
        let fills_slot = |id| self.slots.iter().any(|slot| slot.process() == Some(id));
        let mut others: Vec<_> = self
            .processes
            .values()
            .filter(|p| !fills_slot(p.id))
            .collect();
        others.sort_by_key(|p| p.id);
        for process in others {
            let restarts = if process.role == Role::Run {
                self.pool().restarts
            } else {
                0
            };
            let mut worker = status::worker(process, restarts, self.launcher.floor());
            worker.beside = !matches!(process.role, Role::Run | Role::McpServer);
            worker.name = self
                .servers
                .values()
                .find(|s| s.process == process.id)
                .map(|s| s.name.clone());
            workers.push(worker);
        }
        if self.pool().occupant == Occupant::Parked {
            workers.push(status::absent(self.pool()));
        }
        let (working, waiting) = self.queue.counts();
        let status = status::Status::new(
            workers,
            status::Runs {
                working,
                assigned: self.working_runs(),
                waiting,
            },
            self.violations,
            self.forbidden.clone(),
            self.started.elapsed(),
            self.launcher.degraded(),
            self.launcher.memory(),
        );
        status
            .stopping(self.is_stopping())
            .with_continuations(self.known_health().cloned())
    }

    fn slot_status(&self, slot: &Slot) -> status::Worker {
        match slot.process().and_then(|id| self.processes.get(&id)) {
            Some(process) => {
                let mut worker = status::worker(process, slot.restarts, self.launcher.floor());
                worker.outdated = slot.outdated;
                worker
            }
            None => status::absent(slot),
        }
    }
}
