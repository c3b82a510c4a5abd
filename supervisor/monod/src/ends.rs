//! How processes end, and what follows from it.

use crate::counters::Reason;
use crate::input::{Input, ProcessId};
use crate::memory::Bound;
use crate::process::{Process, State};
use crate::restart::Ending;
use crate::supervisor::{Supervisor, jitter, printable};
use ipc_proto::Role;
use std::time::{Duration, Instant};

/// The last lines of a process that has ended may take this long.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

impl Supervisor {
    pub(crate) fn channel_ended(&mut self, id: ProcessId, error: Option<String>) {
        let Some(process) = self.processes.get_mut(&id) else {
            return;
        };
        process.stream_ended();
        if process.exit.is_some() {
            return self.reap();
        }
        let broken = error.is_some();
        if let Some(error) = error {
            self.violations += 1;
            self.counters.violation(process.role);
            self.counters.blame(id, Reason::Violation);
            tracing::error!(role = %process.role, pid = process.pid, "{}", printable(&error));
            process.last_line = printable(&error);
        }
        match process.state {
            // A run worker that reported its end closes its channel on its way out.
            State::Ending => {}
            State::Draining if !broken => self.expect_exit(id),
            _ => self.end(id),
        }
    }

    /// A process logs nothing more. Its end may have waited for that.
    pub(crate) fn lines_ended(&mut self, id: ProcessId) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.stream_ended();
            if process.exit.is_some() {
                self.reap();
            }
        }
    }

    /// Ends a process that is no longer wanted; its end counts against nobody.
    pub(crate) fn dismiss(&mut self, id: ProcessId) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.dismissed = true;
            process.ending = true;
            process.kill();
        }
    }

    /// Ends a process at once.
    pub(crate) fn end(&mut self, id: ProcessId) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.state = if process.state == State::Starting {
                State::Starting
            } else {
                State::Ending
            };
            process.ending = true;
            process.kill();
        }
    }

    /// Takes every process that has ended. Signals coalesce, so all of them are looked at. What one
    /// said last is heard first: it is often the reason.
    pub(crate) fn reap(&mut self) {
        let now = Instant::now();
        let mut late = None;
        let mut ended = Vec::new();
        for process in self.processes.values_mut() {
            if process.exit.is_none()
                && let Some(status) = process.ended()
            {
                process.exit = Some((process.state, status));
                process.ended_at = now;
                process.state = State::Ending;
            }
            if process.exit.is_some() {
                let until = process.ended_at + HEARD_WITHIN;
                if process.is_talking() && now < until {
                    late = late.max(Some(until));
                } else {
                    ended.push(process.id);
                }
            }
        }
        for id in ended {
            self.exited(id);
        }
        if let Some(until) = late {
            self.reap_at(until);
        }
        self.press_stop(now);
    }

    /// A descendant of an ended process may hold its standard error, e.g. where it has no process
    /// namespace of its own.
    fn reap_at(&self, at: Instant) {
        let tell = self.tell.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(at.into()).await;
            let _ = tell.send(Input::ChildEnded);
        });
    }

    fn exited(&mut self, id: ProcessId) {
        let Some(mut process) = self.processes.remove(&id) else {
            return;
        };
        let Some((state, status)) = process.exit.take() else {
            return;
        };
        let status = status.as_str();
        process.state = state;
        let role = process.role;
        if let Some(scratch) = process.scratch.clone() {
            self.leave_scratch(id, process.run.as_ref(), scratch, process.folders);
        }
        let over = process.memory.take().filter(Bound::ended);
        if over.is_some() {
            self.counters.blame(id, Reason::Memory);
        } else if process.forbidden_call.is_some() {
            self.counters.blame(id, Reason::Sandbox);
        }
        let reason = self.counters.verdict(id, process.unfit, status);
        if role == Role::McpServer {
            return self.server_exited(id, status, over.as_ref());
        }
        if process.dismissed {
            return self.fill_pool();
        }
        let ending = match (process.unfit, process.state) {
            (true, _) => Ending::Unfit,
            (_, State::Starting) => Ending::BeforeReady,
            _ => Ending::InService(process.since.elapsed()),
        };
        if role == Role::Run {
            process.memory = over;
            return self.run_worker_exited(process, status, ending, reason);
        }
        if self.is_stopping() {
            return;
        }
        if state == State::Draining {
            tracing::info!(role = %role, pid = process.pid, "drained: {status}");
        } else {
            tracing::warn!(role = %role, pid = process.pid, "{}", told(status, &process.last_line));
        }
        let current = self.slots.iter().any(|s| s.process() == Some(id));
        if current {
            self.part_from(role);
        }
        if role == Role::AppBridge {
            self.end_servers_of(id);
        }
        if let Some(slot) = self.slots.iter_mut().find(|s| s.successor == Some(id)) {
            slot.successor = None;
            tracing::error!(role = %role, "the new worker can't serve; the old one stays");
        }
        if let Some(slot) = self.slots.iter_mut().find(|s| s.process() == Some(id)) {
            if slot.outdated && state == State::Ending {
                // It made room for its successor of another program.
                slot.outdated = false;
                slot.start_now();
                self.counters.restart(role, Reason::Reload);
                return self.fill();
            }
            let drained = slot.is_draining();
            slot.restarts += u32::from(!drained);
            if !drained {
                self.counters.restart(role, reason);
            }
            slot.last_words = if drained {
                format!("drained, {status}")
            } else {
                told(status, &process.last_line)
            };
            let decision = slot.vacate(ending, Instant::now(), jitter());
            self.after(role, decision);
        }
    }

    fn run_worker_exited(
        &mut self,
        process: Process,
        status: &str,
        ending: Ending,
        reason: Reason,
    ) {
        if let Some(run) = process.run {
            if self.is_at_work(&run) {
                self.counters.restart(Role::Run, reason);
            }
            let over = process.memory.as_ref();
            self.run_process_exited(&run, status, &process.last_line, over);
        } else if !self.is_stopping() {
            let told = told(status, &process.last_line);
            tracing::warn!(role = "run", pid = process.pid, "{told}");
            self.pool_slot.restarts += 1;
            self.counters.restart(Role::Run, reason);
            self.pool_slot.last_words = told;
            let decision = self.pool_slot.vacate(ending, Instant::now(), jitter());
            return self.after(Role::Run, decision);
        }
        self.fill_pool();
    }
}

/// How a worker ended, and its last words: most often the reason, and sometimes only what it did
/// before.
pub(crate) fn told(status: &str, last_words: &str) -> String {
    match last_words.trim() {
        "" => status.to_owned(),
        words => format!("{status}; last words: {words}"),
    }
}
