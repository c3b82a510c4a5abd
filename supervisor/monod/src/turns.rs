//! Runs: admission, assignment to a process, their end (docs/architecture.md, "A turn").

use crate::admission::Outcome;
use crate::capacity::admit_run;
use crate::compose::given_to_endpoints;
use crate::counters::{Outcome as Ended, Reason};
use crate::ends::told;
use crate::input::{Input, ProcessId};
use crate::memory::{self, Bound};
use crate::process::State;
use crate::rollover;
use crate::run::{Origin, Run, Stage, size_of_body};
use crate::supervisor::{Supervisor, printable};
use ipc_proto::channel::Fault;
use ipc_proto::edges::control::{EdgeName, Peer, Refusal, RunScope, RunStatus, StartRun, ToWorker};
use ipc_proto::edges::store::Request;
use ipc_proto::rooms::source_of;
use ipc_proto::{Body, Role, RunId};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long an admitted run waits for a process and for the owners it needs.
const PLACED_WITHIN: Duration = Duration::from_secs(30);
/// How long a cancelled run may take to end its commands, settle its files and record its end; each
/// has a bound of its own, and these together are less.
const CANCELLED_WITHIN: Duration = Duration::from_secs(180);
/// How long the store may take to record a run's end.
const RECORDED_WITHIN: Duration = Duration::from_secs(5);
/// The owners that every run gets a channel to.
const OWNERS: [(EdgeName, Role); 4] = [
    (EdgeName::Store, Role::Store),
    (EdgeName::Artifact, Role::Artifact),
    (EdgeName::Egress, Role::Egress),
    (EdgeName::AppBridge, Role::AppBridge),
];

impl Supervisor {
    /// A channel worker's wish.
    pub(crate) fn start_run(
        &mut self,
        channel: ProcessId,
        request: u64,
        mut start: StartRun,
        mut fds: VecDeque<OwnedFd>,
    ) {
        let Some(role) = self.processes.get(&channel).map(|p| p.role) else {
            return;
        };
        start.trigger.source = source_of(role, start.trigger.source);
        let input = (start.input.clone(), fds.pop_front());
        let answer = match self.accept_run(Origin::Channel(channel, role), start, input) {
            Ok((run, events)) => (ToWorker::RunStarted { run }, vec![events]),
            Err(Fault { code, message }) => (
                ToWorker::RunRefused {
                    refusal: Refusal { code, message },
                },
                vec![],
            ),
        };
        if let Some(process) = self.processes.get(&channel) {
            process.send(request, answer.0, answer.1);
        }
        self.dispatch();
    }

    /// Takes a run into the queue; returns its id and the reader's end of its events.
    pub(crate) fn accept_run(
        &mut self,
        origin: Origin,
        start: StartRun,
        input: (Body, Option<OwnedFd>),
    ) -> Result<(RunId, OwnedFd), Fault> {
        let result = self.queue_run(origin, start, input);
        if let Err(fault) = &result {
            let kind = Some(fault.code.as_str());
            self.counters.turn(origin.channel(), Ended::Refused, kind);
        }
        result
    }

    fn queue_run(
        &mut self,
        origin: Origin,
        start: StartRun,
        input: (Body, Option<OwnedFd>),
    ) -> Result<(RunId, OwnedFd), Fault> {
        if self.is_stopping() {
            return Err(Fault::new(
                "shutting_down",
                "the daemon is stopping; try again later",
            ));
        }
        if let Origin::Channel(_, role) = origin {
            let given = given_to_endpoints(&self.config);
            let mut names = [&start.conversation, &start.delivery].into_iter();
            if !names.all(|name| given.channel_may_name(role, name.as_str())) {
                let message = "the conversation is one of another channel or endpoint";
                return Err(Fault::new("invalid_request", message));
            }
        }
        let runs = self.runs.values();
        let runs = runs.map(|run| (run.origin, run.input_bytes()));
        let most_words = self.config.continuations.limits.max_concurrent;
        admit_run(runs, most_words, (origin, size_of_body(&input.0)))?;
        let (ours, theirs) = ipc_proto::link::pair()
            .map_err(|e| Fault::new("unavailable", format!("no descriptor for the run: {e}")))?;
        let run = RunId::new();
        let now = jiff::Timestamp::now();
        let conversation = rollover::bucket(&self.config, origin, start.conversation, now)
            .map_err(|e| Fault::new("invalid_request", e))?;
        let source = origin.channel();
        let outcome = self
            .queue
            .request(run.clone(), source, conversation.clone());
        if outcome == Outcome::Refused {
            return Err(Fault::new(
                "queue_full",
                "concurrency.maxPendingRuns runs are waiting already; try again later",
            ));
        }
        let scope = RunScope {
            run: run.clone(),
            conversation,
            delivery: start.delivery,
        };
        let mut entry = Run::new(scope, start.trigger, origin, input, ours);
        if outcome == Outcome::Admitted {
            entry.stage = Stage::Admitted(Instant::now());
        }
        self.runs.insert(run.clone(), entry);
        Ok((run, theirs))
    }

    /// Gives processes to admitted runs, as far as processes and owners are ready.
    pub(crate) fn dispatch(&mut self) {
        let mut admitted: Vec<(Instant, RunId)> = self
            .runs
            .iter()
            .filter_map(|(id, run)| match run.stage {
                Stage::Admitted(at) => Some((at, id.clone())),
                _ => None,
            })
            .collect();
        admitted.sort();
        for (_, run) in admitted {
            if OWNERS.iter().any(|(_, role)| self.serving(*role).is_none()) {
                break;
            }
            let Some(worker) = self.idle_run_workers(true).map(|p| p.id).min() else {
                break;
            };
            self.assign(&run, worker);
        }
        self.fill_pool();
    }

    /// Admitted runs that no process works on yet.
    pub(crate) fn runs_without_process(&self) -> usize {
        self.runs
            .values()
            .filter(|r| matches!(r.stage, Stage::Admitted(_)))
            .count()
    }

    fn assign(&mut self, id: &RunId, worker: ProcessId) {
        let Some(run) = self.runs.get_mut(id) else {
            return;
        };
        let scope = run.scope.clone();
        let reader = run.reader();
        let trigger = run.trigger.clone();
        let origin = run.origin;
        let Some((input, mut fds, events)) = run.take_input() else {
            return;
        };
        run.stage = Stage::Working(worker);
        let peer = Peer {
            role: Role::Run,
            run: Some(scope.clone()),
        };
        let mut edges = Vec::new();
        // Before the app-bridge hears of the run: its servers are started with what they may claim.
        if let Some(end) = self.grant_claims(origin, &scope) {
            edges.push(EdgeName::Continuation);
            fds.push_back(end);
        }
        // Without its own channel to them, a run can't ask anything of an owner.
        let words = |(_, role): &(EdgeName, Role)| !origin.is_words_only() || *role == Role::Egress;
        for (edge, role) in OWNERS.into_iter().filter(words) {
            let end = self
                .serving(role)
                .and_then(|owner| self.grant(owner, edge, peer.clone()));
            if let Some(end) = end {
                edges.push(edge);
                fds.push_back(end);
            }
        }
        edges.push(EdgeName::Events);
        fds.push_back(events);
        self.launcher
            .name_scratch(self.processes.get_mut(&worker), id);
        let assignment = ToWorker::Assign {
            scope,
            trigger,
            reader,
            input,
            edges,
        };
        if let Some(process) = self.processes.get_mut(&worker) {
            process.run = Some(id.clone());
            process.since = Instant::now();
            if !process.send(0, assignment, fds.into_iter().collect()) {
                self.end(worker);
            }
        }
        self.watch_memory();
    }

    /// A run worker says how its run ended; what it committed is already the truth.
    pub(crate) fn run_done(
        &mut self,
        worker: ProcessId,
        status: RunStatus,
        failure_kind: Option<String>,
    ) {
        let Some(run) = self.processes.get(&worker).and_then(|p| p.run.clone()) else {
            self.violations += 1;
            self.counters.violation(Role::Run);
            self.counters.blame(worker, Reason::Violation);
            tracing::error!(
                role = "run",
                "reported the end of a run that it doesn't have"
            );
            return self.end(worker);
        };
        if !self
            .runs
            .get(&run)
            .is_some_and(|r| matches!(r.stage, Stage::Working(p) if p == worker))
        {
            return;
        }
        let kind = failure_kind.as_deref().map(printable);
        tracing::info!(role = "run", run = %run, ?status, kind, "run ended");
        self.count_turn(&run, status.into(), failure_kind.as_deref());
        let since = self.processes.get(&worker).map(|p| p.since);
        if let (Some(since), Some(entry)) = (since, self.runs.get(&run)) {
            let channel = entry.origin.channel();
            self.counters.turn_took(channel, since.elapsed());
        }
        self.expect_exit(worker);
        self.release(&run);
    }

    /// The process of a run is gone. When it had not reported the end, the end is recorded first,
    /// so that the conversation's next turn knows of it.
    pub(crate) fn run_process_exited(
        &mut self,
        id: &RunId,
        status: &str,
        last_line: &str,
        over: Option<&Bound>,
    ) {
        let Some(run) = self.runs.get_mut(id) else {
            return;
        };
        if !matches!(run.stage, Stage::Working(_)) {
            return;
        }
        tracing::error!(role = "run", run = %id, "its process is gone: {}", told(status, last_line));
        run.stage = Stage::Closing;
        let kind = match over {
            Some(bound) => {
                run.fail(false, memory::KIND, &bound.words_of_run());
                memory::KIND
            }
            None => {
                run.fall_silent();
                "worker_lost"
            }
        };
        self.count_turn(id, Ended::Interrupted, Some(kind));
        self.record_interrupted(id.clone(), kind);
    }

    fn count_turn(&mut self, run: &RunId, ended: Ended, kind: Option<&str>) {
        if let Some(run) = self.runs.get(run) {
            self.counters.turn(run.origin.channel(), ended, kind);
        }
    }

    /// True while a process is to say how this run ends.
    pub(crate) fn is_at_work(&self, run: &RunId) -> bool {
        let run = self.runs.get(run);
        run.is_some_and(|run| matches!(run.stage, Stage::Working(_)))
    }

    /// Puts a lost run's end on record; [`Input::Interrupted`] says when that is done.
    pub(crate) fn record_interrupted(&self, run: RunId, failure_kind: &'static str) {
        let store = self.owners.store.now();
        let tell = self.tell.clone();
        tokio::spawn(async move {
            if let Some(store) = store {
                let interrupt = Request::Interrupt {
                    run: run.clone(),
                    failure_kind: failure_kind.into(),
                };
                if let Err(e) = store.call(&interrupt, &[], RECORDED_WITHIN).await {
                    // The store marks what it finds running as interrupted when it starts.
                    tracing::warn!(run = %run, "its end could not be recorded now: {e}");
                }
            }
            let _ = tell.send(Input::Interrupted { run });
        });
    }

    /// Frees a run's slot and starts what waited for it.
    pub(crate) fn release(&mut self, id: &RunId) {
        self.runs.remove(id);
        for next in self.queue.finished(id) {
            if let Some(run) = self.runs.get_mut(&next) {
                run.stage = Stage::Admitted(Instant::now());
            }
        }
        self.renew_owners();
        self.dispatch();
        self.press_stop(Instant::now());
    }

    /// A channel ends a run that it started itself, or that its predecessor did: that one finishes
    /// what it began, and the new one has its pages.
    pub(crate) fn cancel_from_channel(
        &mut self,
        channel: ProcessId,
        request: u64,
        run: &RunId,
        reason: &str,
    ) {
        let asker = self.processes.get(&channel).map(|process| process.role);
        let owned = self.runs.get(run).is_some_and(|run| match run.origin {
            Origin::Channel(own, role) => own == channel || Some(role) == asker,
            Origin::Admin => false,
        });
        if owned {
            self.cancel_run(run, reason);
        }
        if let Some(process) = self.processes.get(&channel) {
            process.send(request, ToWorker::Done, vec![]);
        }
    }

    /// Ends a run as cancelled. False when there is no such run.
    pub(crate) fn cancel_run(&mut self, id: &RunId, reason: &str) -> bool {
        let Some(run) = self.runs.get_mut(id) else {
            return false;
        };
        match run.stage {
            Stage::Working(worker) => {
                run.cancelled.get_or_insert_with(Instant::now);
                let cancel = ToWorker::CancelRun {
                    reason: printable(reason),
                };
                if let Some(process) = self.processes.get(&worker)
                    && !process.send(0, cancel, vec![])
                {
                    self.end(worker);
                }
            }
            Stage::Waiting | Stage::Admitted(_) => {
                run.fail(true, "cancelled", "the run was cancelled before it began");
                self.count_turn(id, Ended::Cancelled, None);
                self.release(id);
            }
            Stage::Closing => {}
        }
        true
    }

    /// Cancels every run that a process works on.
    pub(crate) fn cancel_working_runs(&mut self, reason: &str) {
        let working: Vec<RunId> = self
            .runs
            .iter()
            .filter(|(_, run)| matches!(run.stage, Stage::Working(_)))
            .map(|(id, _)| id.clone())
            .collect();
        for id in working {
            self.cancel_run(&id, reason);
        }
    }

    /// Ends the processes of runs that were cancelled and go on all the same.
    pub(crate) fn end_stubborn_runs(&mut self, now: Instant) {
        let stubborn = |run: &Run| match run.stage {
            Stage::Working(worker) => is_stubborn(run.cancelled, now).then_some(worker),
            _ => None,
        };
        let workers: Vec<ProcessId> = self.runs.values().filter_map(stubborn).collect();
        for worker in workers {
            if let Some(process) = self.processes.get_mut(&worker).filter(|p| !p.ending) {
                process.last_line = "went on although its run was cancelled".to_owned();
                self.end(worker);
            }
        }
    }

    /// Ends admitted runs that found no process in time, or for which none will come.
    pub(crate) fn expire_runs(&mut self, now: Instant) {
        let needed = OWNERS.map(|(_, role)| role);
        let slots = self.slots.iter().filter(|s| needed.contains(&s.role));
        let slots: Vec<_> = slots.chain([self.pool()]).collect();
        let is_late =
            |at: Instant| is_unplaced(at, now) || slots.iter().any(|slot| slot.is_hopeless(at));
        let late: Vec<RunId> = self
            .runs
            .iter()
            .filter(|(_, r)| matches!(r.stage, Stage::Admitted(at) if is_late(at)))
            .map(|(id, _)| id.clone())
            .collect();
        for id in late {
            let missing: Vec<_> = OWNERS
                .iter()
                .filter(|(_, role)| self.serving(*role).is_none())
                .map(|(_, role)| role.name())
                .collect();
            let message = match missing.as_slice() {
                [] => "no run worker became ready in time; see `monoctl status`".to_owned(),
                names => format!("not serving: {}; see `monoctl status`", names.join(", ")),
            };
            if let Some(run) = self.runs.get_mut(&id) {
                run.fail(false, "worker_unavailable", &message);
            }
            self.count_turn(&id, Ended::Failed, Some("worker_unavailable"));
            self.release(&id);
        }
    }

    /// The daemon stops: runs that have no process yet are refused.
    pub(crate) fn refuse_waiting_runs(&mut self) {
        let waiting: Vec<RunId> = self
            .runs
            .iter()
            .filter(|(_, r)| matches!(r.stage, Stage::Waiting | Stage::Admitted(_)))
            .map(|(id, _)| id.clone())
            .collect();
        for id in waiting {
            if let Some(run) = self.runs.get_mut(&id) {
                run.fail(true, "shutting_down", "the daemon is stopping");
            }
            self.count_turn(&id, Ended::Cancelled, None);
            self.runs.remove(&id);
            // Nothing that this admits will start: it is in the list as well.
            let _ = self.queue.finished(&id);
        }
    }

    /// Runs at work, for status.
    pub(crate) fn working_runs(&self) -> usize {
        self.processes
            .values()
            .filter(|p| p.run.is_some() && p.state == State::Serving)
            .count()
    }
}

/// True when a run that was admitted at some time waits too long for a process.
fn is_unplaced(admitted: Instant, now: Instant) -> bool {
    now.duration_since(admitted) > PLACED_WITHIN
}

/// True when a run goes on too long after it was cancelled.
fn is_stubborn(cancelled: Option<Instant>, now: Instant) -> bool {
    cancelled.is_some_and(|at| now.duration_since(at) > CANCELLED_WITHIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_counts_wherever_it_is() {
        let sealed = Body::Sealed(7);
        assert_eq!(
            size_of_body(&sealed) + size_of_body(&Body::Inline(vec![0; 3])),
            10
        );
    }

    #[test]
    fn an_admitted_run_waits_half_a_minute_for_a_process() {
        let at = Instant::now();
        let after = |ms| at + Duration::from_millis(ms);
        assert!(!is_unplaced(at, at) && !is_unplaced(at, after(30_000)));
        assert!(is_unplaced(at, after(30_001)));
    }

    #[test]
    fn a_cancelled_run_has_three_minutes_to_end() {
        let at = Instant::now();
        let after = |seconds| at + Duration::from_secs(seconds);
        assert!(!is_stubborn(None, after(1_000)));
        assert!(!is_stubborn(Some(at), at) && !is_stubborn(Some(at), after(180)));
        assert!(is_stubborn(Some(at), after(181)));
    }
}
