//! An orderly stop: first the runs end, then everything else.

use crate::admin::Operators;
use crate::input::Input;
use crate::supervisor::Supervisor;
use crate::systemd;
use ipc_proto::Role;
use ipc_proto::edges::control::ToWorker;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Running turns may take this long to end by themselves when the daemon stops; then they are
/// cancelled, which is recorded and told to the person.
const FINISH: Duration = Duration::from_secs(7);
/// After this long they are ended.
const DRAIN: Duration = Duration::from_secs(10);
/// The other workers may take this long after that.
const STOP: Duration = Duration::from_secs(3);

/// Between two attempts to end what outlived the last deadline.
const AGAIN: Duration = Duration::from_secs(1);
/// Operators who were accepted before the end may take this long to ask.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// And this long to be answered.
const LAST_ANSWERS: Duration = Duration::from_millis(20);

/// The two deadlines of an orderly stop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopping {
    cancel_at: Instant,
    cancelled: bool,
    runs_until: Instant,
    workers_asked: bool,
    workers_until: Instant,
}

impl Supervisor {
    pub(crate) fn stop(&mut self) {
        if self.is_stopping() {
            return;
        }
        tracing::info!("stopping");
        systemd::stopping();
        let now = Instant::now();
        self.stopping = Some(Stopping {
            cancel_at: now + FINISH,
            cancelled: false,
            runs_until: now + DRAIN,
            workers_asked: false,
            workers_until: now + DRAIN + STOP,
        });
        self.refuse_waiting_runs();
        self.discard_ahead();
        for process in self
            .processes
            .values()
            .filter(|p| p.role == Role::Run && p.run.is_none())
        {
            process.kill();
        }
        self.press_stop(now);
    }

    /// Moves the stop on: first the runs end, then everything else.
    pub(crate) fn press_stop(&mut self, now: Instant) {
        let Some(mut stopping) = self.stopping else {
            return;
        };
        let runs_at_work = self
            .processes
            .values()
            .any(|p| p.role == Role::Run && p.run.is_some());
        if runs_at_work && now < stopping.runs_until {
            if now < stopping.cancel_at {
                self.wake_at(stopping.cancel_at);
                return;
            }
            self.wake_at(stopping.runs_until);
            if !stopping.cancelled {
                stopping.cancelled = true;
                self.stopping = Some(stopping);
                self.cancel_working_runs("the daemon is stopping");
            }
            return;
        }
        if !stopping.workers_asked {
            stopping.workers_asked = true;
            stopping.workers_until = now + STOP;
            for process in self.processes.values() {
                let speaks = !matches!(process.role, Role::McpServer | Role::Run);
                if !(speaks && process.send(0, ToWorker::Shutdown, vec![])) {
                    process.kill();
                }
            }
        } else if now >= stopping.workers_until {
            for process in self.processes.values() {
                process.kill();
            }
        }
        self.wake_at(stopping.workers_until.max(now + AGAIN));
        self.stopping = Some(stopping);
    }

    /// Answers everyone who was accepted; who connects now waits for the next daemon.
    pub(crate) async fn see_off(
        &mut self,
        mut inputs: mpsc::UnboundedReceiver<Input>,
        operators: &Operators,
    ) {
        operators.close();
        self.hear_out(&mut inputs, operators).await;
        // Answers are on their way to sockets that have room for them.
        tokio::time::sleep(LAST_ANSWERS).await;
    }

    /// Decides what was asked before the end.
    pub(crate) async fn hear_out(
        &mut self,
        inputs: &mut mpsc::UnboundedReceiver<Input>,
        operators: &Operators,
    ) {
        let end = tokio::time::sleep(LAST_WORDS);
        tokio::pin!(end);
        loop {
            tokio::select! {
                // What was asked comes before the end.
                biased;
                Some(input) = inputs.recv() => self.decide(input),
                () = operators.have_asked() => break,
                () = &mut end => break,
            }
        }
    }
}
