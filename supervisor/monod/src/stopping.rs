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

/// What an orderly stop does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Nothing: somebody is within his time.
    Wait,
    /// The runs that a process works on are cancelled.
    CancelRuns,
    /// No run is waited for any more; the other workers are asked to end.
    AskWorkers,
    /// Whatever is still there is ended.
    EndAll,
}

impl Stopping {
    fn begun(now: Instant) -> Self {
        Self {
            cancel_at: now + FINISH,
            cancelled: false,
            runs_until: now + DRAIN,
            workers_asked: false,
            workers_until: now + DRAIN + STOP,
        }
    }

    /// Moves on: what is to be done now, and when to look again.
    #[must_use]
    fn step(&mut self, now: Instant, runs_at_work: bool) -> (Step, Instant) {
        if runs_at_work && now < self.runs_until {
            if now < self.cancel_at {
                return (Step::Wait, self.cancel_at);
            }
            let first = !std::mem::replace(&mut self.cancelled, true);
            let step = if first { Step::CancelRuns } else { Step::Wait };
            return (step, self.runs_until);
        }
        let step = if !self.workers_asked {
            self.workers_asked = true;
            self.workers_until = now + STOP;
            Step::AskWorkers
        } else if now >= self.workers_until {
            Step::EndAll
        } else {
            Step::Wait
        };
        (step, self.workers_until.max(now + AGAIN))
    }
}

impl Supervisor {
    pub(crate) fn stop(&mut self) {
        if self.is_stopping() {
            return;
        }
        tracing::info!("stopping");
        systemd::stopping();
        let now = Instant::now();
        self.stopping = Some(Stopping::begun(now));
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
        let (step, again) = stopping.step(now, runs_at_work);
        self.stopping = Some(stopping);
        self.wake_at(again);
        match step {
            Step::Wait => {}
            Step::CancelRuns => self.cancel_working_runs("the daemon is stopping"),
            Step::AskWorkers => {
                for process in self.processes.values() {
                    let speaks = !matches!(process.role, Role::McpServer | Role::Run);
                    if !(speaks && process.send(0, ToWorker::Shutdown, vec![])) {
                        process.kill();
                    }
                }
            }
            Step::EndAll => {
                for process in self.processes.values() {
                    if process.exit.is_none() {
                        tracing::warn!(role = %process.role, pid = process.pid, "did not end in time");
                    }
                    process.kill();
                }
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_have_seven_seconds_to_finish_ten_to_be_cancelled_and_the_rest_three_more() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut stopping = Stopping::begun(start);
        // A turn never ends, nor does a worker.
        for (ms, step, again) in [
            (0, Step::Wait, 7_000),
            (6_999, Step::Wait, 7_000),
            (7_000, Step::CancelRuns, 10_000),
            (7_001, Step::Wait, 10_000),
            (9_999, Step::Wait, 10_000),
            (10_000, Step::AskWorkers, 13_000),
            (12_999, Step::Wait, 13_999),
            (13_000, Step::EndAll, 14_000),
            // What can't be ended is tried again, and not without a pause.
            (14_000, Step::EndAll, 15_000),
        ] {
            assert_eq!(stopping.step(at(ms), true), (step, at(again)), "{ms}");
        }
    }

    #[test]
    fn workers_are_asked_when_no_turn_is_left_and_have_three_seconds_from_then() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut stopping = Stopping::begun(start);
        for (ms, runs, step, again) in [
            (0, true, Step::Wait, 7_000),
            (500, false, Step::AskWorkers, 3_500),
            (3_499, false, Step::Wait, 4_499),
            (3_500, false, Step::EndAll, 4_500),
        ] {
            assert_eq!(stopping.step(at(ms), runs), (step, at(again)), "{ms}");
        }
        let mut idle = Stopping::begun(start);
        assert_eq!(idle.step(start, false), (Step::AskWorkers, at(3_000)));
    }
}
