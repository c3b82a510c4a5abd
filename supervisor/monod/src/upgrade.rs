//! A new program in the running process: `monoctl reload --exec`.
//!
//! The program on disk is asked first whether it would start. Then everything is made still, left
//! to it ([`crate::handover`]), and it becomes this process. It replaces the workers as a reload
//! does; the owners of files, which can't live beside a successor, when no run is at work.

use crate::admin::Operators;
use crate::handover::{FORMAT, Left, Luggage, ProcessLeft, ServerLeft, SlotLeft, ago, millis};
use crate::input::{Input, ProcessId};
use crate::operator::answer;
use crate::process::{Process, State, Streams};
use crate::reload::REPLACEABLE;
use crate::run::{Run, Stage};
use crate::servers::Server;
use crate::slot::Occupant;
use crate::supervisor::{Supervisor, limits};
use crate::systemd;
use crate::violations::Ear;
use ipc_proto::admin::Admin;
use ipc_proto::channel::{Fault, Responder};
use ipc_proto::edges::control::ToWorker;
use ipc_proto::{Role, RunId};
use serde_json::json;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::sync::mpsc;

/// How long the new program may take to say whether it would start.
const CHECKED_WITHIN: Duration = Duration::from_secs(30);
/// Packets to workers may take this long to reach their queues, all of them together.
const SENT_WITHIN: Duration = Duration::from_secs(2);
/// Answers and events that are on their way may take this long.
const LAST_ANSWERS: Duration = Duration::from_millis(20);
/// Bytes of what the refused program said that an operator sees.
const SAID: usize = 2_000;

/// How this program was started, and so how its successor is.
#[derive(Debug, Clone)]
pub(crate) struct Own {
    /// The file, which may hold another program by now.
    pub(crate) exe: PathBuf,
    /// Its arguments.
    pub(crate) arguments: Vec<OsString>,
}

impl Own {
    /// Reads it while the file is still the one that runs.
    pub(crate) fn read() -> io::Result<Self> {
        let arguments = std::env::args_os().skip(1);
        Ok(Self {
            exe: std::env::current_exe()?,
            arguments: arguments.filter(|a| a != "--take-over").collect(),
        })
    }

    /// Asks the program on disk whether it would start and take over. What it says when not.
    async fn check(&self) -> Result<(), String> {
        let mut command = std::process::Command::new(&self.exe);
        command
            .args(&self.arguments)
            .arg("--check")
            .arg(format!("--takes-over={FORMAT}"))
            .stdin(Stdio::null());
        let output = tokio::task::spawn_blocking(move || command.output());
        let output = match tokio::time::timeout(CHECKED_WITHIN, output).await {
            Ok(Ok(Ok(output))) => output,
            Ok(Ok(Err(e))) => return Err(format!("{} can't be run: {e}", self.exe.display())),
            Ok(Err(e)) => return Err(e.to_string()),
            Err(_) => return Err("its check takes too long".to_owned()),
        };
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said: String = said.trim().chars().take(SAID).collect();
        Err(format!("it would not start ({}): {said}", output.status))
    }
}

/// An operator's wish for the new program.
#[derive(Debug)]
pub(crate) enum Upgrade {
    /// The program is being asked.
    Checking,
    /// It would start; the operator is to be told before it does.
    Due(Responder<Admin>),
    /// Nothing is started any more.
    Leaving,
}

impl Supervisor {
    /// An operator wants the program that is on disk now.
    pub(crate) fn upgrade(&mut self, responder: Responder<Admin>) {
        if let Err(fault) = self.may_upgrade() {
            tokio::spawn(answer::<()>(responder, Err(fault)));
            return;
        }
        self.upgrade = Some(Upgrade::Checking);
        let (own, tell) = (self.own.clone(), self.tell.clone());
        tokio::spawn(async move {
            let result = own.check().await;
            let _ = tell.send(Input::Checked { result, responder });
        });
    }

    fn may_upgrade(&self) -> Result<(), Fault> {
        if self.is_stopping() {
            return Err(Fault::new("shutting_down", "the daemon is stopping"));
        }
        if self.upgrade.is_some() {
            return Err(Fault::new("busy", "the program is being replaced already"));
        }
        let (_, needs_restart) = self.read_again()?;
        if needs_restart.is_empty() {
            return Ok(());
        }
        // The new program would read these values and find the old ones in force.
        let all: Vec<String> = needs_restart.iter().map(ToString::to_string).collect();
        let message = format!(
            "these settings need a restart, which does what this would: {}",
            all.join("; ")
        );
        Err(Fault::new("needs_restart", message))
    }

    /// The program on disk has answered.
    pub(crate) fn checked(&mut self, result: Result<(), String>, responder: Responder<Admin>) {
        let refusal = match result {
            Ok(()) if self.is_stopping() => Fault::new("shutting_down", "the daemon is stopping"),
            Ok(()) => {
                self.upgrade = Some(Upgrade::Due(responder));
                return;
            }
            Err(problem) => {
                tracing::error!("the new program is not taken: {problem}");
                Fault::new("program_refused", problem)
            }
        };
        self.upgrade = None;
        tokio::spawn(answer::<()>(responder, Err(refusal)));
    }

    /// True when the next thing to do is to become the new program.
    pub(crate) fn upgrade_is_due(&self) -> bool {
        matches!(self.upgrade, Some(Upgrade::Due(_))) && !self.is_stopping()
    }

    /// True while nothing new may be started.
    pub(crate) fn is_leaving(&self) -> bool {
        matches!(self.upgrade, Some(Upgrade::Leaving))
    }

    /// Makes everything still and packs it.
    pub(crate) async fn leave(
        mut self,
        mut inputs: mpsc::UnboundedReceiver<Input>,
        operators: &Operators,
    ) -> (Left, Luggage) {
        let due = self.upgrade.replace(Upgrade::Leaving);
        systemd::reloading();
        operators.close();
        if let Some(Upgrade::Due(responder)) = due {
            let version = env!("CARGO_PKG_VERSION");
            answer(responder, Ok((json!({ "replaces": version }), vec![]))).await;
        }
        self.hear_out(&mut inputs, operators).await;
        let mut streams = Vec::new();
        for process in self.processes.values_mut() {
            streams.push((process.id, process.quieten().await));
        }
        // What they said before they were no longer listened to.
        while let Ok(input) = inputs.try_recv() {
            self.decide(input);
        }
        // They have the old program; what waits for one gets one of the new.
        let renewed: Vec<_> = (self.processes.values())
            .filter(|p| p.state == State::Starting || (p.role == Role::Run && p.run.is_none()))
            .map(|p| p.id)
            .collect();
        for id in renewed {
            self.dismiss(id);
        }
        self.discard_ahead();
        // The new program has a launcher of its own version.
        self.launcher.let_go();
        let all = self.processes.values_mut();
        let last: Vec<_> = all.filter_map(|p| Some((p.id, p.last_sent()?))).collect();
        for id in not_sent(last).await {
            if let Some(process) = self.processes.get(&id) {
                tracing::error!(role = %process.role, pid = process.pid, "reads nothing: ended");
                process.kill();
            }
        }
        tokio::time::sleep(LAST_ANSWERS).await;
        self.pack(streams)
    }

    fn pack(self, streams: Vec<(ProcessId, Streams)>) -> (Left, Luggage) {
        let mut luggage = Luggage::default();
        let mut streams: std::collections::HashMap<_, _> = streams.into_iter().collect();
        let listeners = self.listeners.into_iter();
        let listeners = listeners
            .map(|(role, listener)| (role, luggage.put(OwnedFd::from(listener))))
            .collect();
        let gateway = self.gateway.map(|gateway| luggage.put(gateway));
        let slots = self.slots.into_iter().map(|slot| SlotLeft {
            role: slot.role,
            process: slot.process().map(|id| id.0),
            restarts: slot.restarts,
            draining: slot.is_draining(),
            last_words: slot.last_words,
        });
        let slots = slots.collect();
        let processes = self.processes.into_values().map(|process| {
            let streams = streams.remove(&process.id).unwrap_or_default();
            pack_process(process, streams, &mut luggage)
        });
        let processes = processes.collect();
        let runs = self.runs.into_values();
        let runs = runs.map(|run| run.pack(&mut luggage)).collect();
        let servers = self.servers.into_iter().map(|(number, server)| ServerLeft {
            number,
            name: server.name,
            process: server.process.0,
            owner: server.owner.0,
            run: server.run,
        });
        let left = Left {
            format: FORMAT,
            uptime_ms: millis(self.started.elapsed()),
            stop: self.stopping.is_some(),
            violations: self.violations,
            forbidden: self.forbidden,
            counters: self.counters.into(),
            next_process: self.next_process,
            next_channel: self.next_channel,
            next_server: self.next_server,
            next_ping: self.next_ping,
            listeners,
            gateway,
            slots,
            processes,
            runs,
            queue: self.queue,
            servers: servers.collect(),
            leftovers: self.leftovers,
            logbook: self.logbook,
            rooms: self.rooms,
        };
        (left, luggage)
    }

    /// Goes on with what the earlier image left, and replaces its workers.
    ///
    /// # Errors
    /// When a descriptor is missing; then the daemon must start anew.
    pub(crate) fn take_over_from(&mut self, left: Left, mut luggage: Luggage) -> io::Result<()> {
        self.started = ago(left.uptime_ms);
        self.violations = left.violations;
        self.forbidden = left.forbidden;
        self.counters = left.counters.into();
        self.next_process = left.next_process;
        self.next_channel = left.next_channel;
        self.next_server = left.next_server;
        self.next_ping = left.next_ping;
        self.logbook = left.logbook;
        self.rooms = left.rooms;
        self.leftovers = left.leftovers;
        self.queue = left.queue;
        self.queue.set_limits(limits(&self.config));
        for process in left.processes {
            let process = self.unpack_process(process, &mut luggage)?;
            self.processes.insert(process.id, process);
        }
        for slot in left.slots {
            let filled = slot.process.map(ProcessId);
            let filled = filled.filter(|id| self.processes.get(id).is_some_and(|p| !p.dismissed));
            let Some(ours) = self.slots.iter_mut().find(|s| s.role == slot.role) else {
                // The new program doesn't know the role any more.
                filled.into_iter().for_each(|id| self.dismiss(id));
                continue;
            };
            ours.restarts = slot.restarts;
            ours.last_words = slot.last_words;
            if let Some(id) = filled {
                ours.occupant = Occupant::Filled(id);
                // One that an operator drains gets no successor.
                ours.outdated = !slot.draining;
                if slot.draining {
                    ours.leave_empty();
                }
            }
        }
        for run in left.runs {
            let run = Run::unpack(run, &mut luggage)?;
            self.runs.insert(run.scope.run.clone(), run);
        }
        for server in left.servers {
            let entry = Server {
                name: server.name,
                process: ProcessId(server.process),
                owner: ProcessId(server.owner),
                run: server.run,
            };
            self.servers.insert(server.number, entry);
        }
        for role in [
            Role::Store,
            Role::Artifact,
            Role::AppBridge,
            Role::Continuation,
        ] {
            if let Some(id) = self.serving(role) {
                self.reach(role, id);
            }
        }
        // Their recording was on its way; a second one changes nothing.
        let closing = self
            .runs
            .iter()
            .filter(|(_, run)| matches!(run.stage, Stage::Closing));
        let closing: Vec<RunId> = closing.map(|(id, _)| id.clone()).collect();
        for run in closing {
            self.record_interrupted(run, "worker_lost");
        }
        self.announced = true;
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            "took over from the earlier program"
        );
        self.reap();
        self.replace_outdated();
        self.tell_ready();
        if left.stop {
            self.stop();
        }
        Ok(())
    }

    fn replace_outdated(&mut self) {
        let outdated: Vec<Role> = (self.slots.iter())
            .filter(|slot| slot.outdated && REPLACEABLE.contains(&slot.role))
            .map(|slot| slot.role)
            .collect();
        for role in outdated {
            if let Err(e) = self.replace(role) {
                tracing::error!(role = %role, "its successor can't start: {e}");
            }
        }
        self.fill();
        self.renew_owners();
        self.dispatch();
    }

    /// Ends owners with an earlier program when no run needs them; the next one starts at once.
    pub(crate) fn renew_owners(&mut self) {
        let at_work = |run: &Run| matches!(run.stage, Stage::Working(_) | Stage::Closing);
        if self.is_stopping() || self.is_leaving() || self.runs.values().any(at_work) {
            return;
        }
        let due: Vec<(Role, ProcessId)> = (self.slots.iter())
            .filter(|slot| slot.outdated && !REPLACEABLE.contains(&slot.role))
            .filter_map(|slot| Some((slot.role, self.serving(slot.role)?)))
            .collect();
        for (role, id) in due {
            tracing::info!(role = %role, "its worker makes room for one of the new program");
            self.part_from(role);
            let process = self.processes.get(&id);
            if process.is_some_and(|p| p.send(0, ToWorker::Shutdown, vec![])) {
                self.expect_exit(id);
            } else {
                self.end(id);
            }
        }
    }

    fn unpack_process(&self, left: ProcessLeft, luggage: &mut Luggage) -> io::Result<Process> {
        let child = mono_sys::process::Child {
            pid: left.pid,
            pidfd: luggage.take(left.pidfd)?,
        };
        let mut open = |packed: Option<_>| packed.map(|p| luggage.take(p)).transpose();
        let streams = Streams {
            control: open(left.control)?,
            stderr: open(left.stderr)?,
            begun: left.begun_line,
        };
        let mut process = Process::new(ProcessId(left.id), left.role, child, left.scratch);
        process.folders = left.folders;
        process.namespaces = left.namespaces.map(known_namespaces);
        process.memory = left.memory;
        process.state = left.state;
        process.since = ago(left.age_ms);
        process.protocol = left.protocol;
        process.sandbox = left.sandbox;
        process.last_line = left.last_line;
        process.run = left.run;
        process.dismissed = left.dismissed;
        process.forbidden_calls = left.forbidden_calls;
        process.follow(streams, &self.tell)?;
        match left.ear {
            Some((fd, awaited)) => {
                process.hear(Ear::packed(luggage.take(fd)?, awaited), &self.tell);
            }
            None => process.kill(),
        }
        Ok(process)
    }
}

fn known_namespaces(names: Vec<String>) -> Vec<&'static str> {
    let known = mono_sys::process::KINDS.into_iter();
    known
        .filter(|kind| names.iter().any(|n| n == kind))
        .collect()
}

fn pack_process(process: Process, streams: Streams, luggage: &mut Luggage) -> ProcessLeft {
    // Missing only when no descriptor is left.
    let ear = process.ear.as_ref().and_then(|ear| ear.pack().ok());
    let ear = ear.map(|(fd, awaited)| (luggage.put(fd), awaited));
    ProcessLeft {
        id: process.id.0,
        role: process.role,
        pid: process.pid,
        pidfd: luggage.put(process.pidfd),
        control: streams.control.map(|fd| luggage.put(fd)),
        stderr: streams.stderr.map(|fd| luggage.put(fd)),
        begun_line: streams.begun,
        namespaces: process
            .namespaces
            .map(|all| all.into_iter().map(str::to_owned).collect()),
        state: process.state,
        age_ms: millis(process.since.elapsed()),
        protocol: process.protocol,
        sandbox: process.sandbox,
        last_line: process.last_line,
        run: process.run,
        scratch: process.scratch,
        folders: process.folders,
        memory: process.memory,
        dismissed: process.dismissed,
        ear,
        forbidden_calls: process.forbidden_calls,
    }
}

/// Whose last packets were not taken within [`SENT_WITHIN`], all together.
async fn not_sent<Id>(last: Vec<(Id, impl Future)>) -> Vec<Id> {
    let deadline = tokio::time::Instant::now() + SENT_WITHIN;
    let mut late = Vec::new();
    for (id, sent) in last {
        if tokio::time::timeout_at(deadline, sent).await.is_err() {
            late.push(id);
        }
    }
    late
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_for_two_seconds_is_told_apart_and_holds_up_nobody() {
        let after = |ms| tokio::time::sleep(Duration::from_millis(ms));
        let start = tokio::time::Instant::now();
        let last = vec![
            (1, after(0)),
            (2, after(9_000)),
            (3, after(1_900)),
            (4, after(2_100)),
        ];
        assert_eq!(not_sent(last).await, [2, 4]);
        assert_eq!(start.elapsed(), SENT_WITHIN);
        assert!(
            not_sent(Vec::<(u8, tokio::time::Sleep)>::new())
                .await
                .is_empty()
        );
    }
}
