//! What the supervisor counts over its life, by words of fixed vocabularies. No I/O and no clock;
//! [`crate::figures`] makes metrics of it.

mod left;

pub(crate) use left::CountersLeft;

use crate::input::ProcessId;
use ipc_proto::Role;
use ipc_proto::edges::control::RunStatus;
use ipc_proto::figures::Value;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Why a worker ended that another one has to replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// It exited by itself.
    Exited,
    /// A signal that the supervisor didn't send.
    Killed,
    /// It made a system call that ends a process.
    Sandbox,
    /// It used more memory than it may.
    Memory,
    /// Its handshake or its sandbox was refused, or it said that it can't work.
    Unfit,
    /// It was not ready in time.
    Late,
    /// It left a heartbeat unanswered, or let its packets pile up.
    Hung,
    /// It broke the protocol.
    Violation,
    /// An operator restarted it.
    Operator,
    /// A reload replaced it.
    Reload,
    /// It could not even be started.
    NotStarted,
}

impl Reason {
    pub(crate) const ALL: [Self; 11] = [
        Self::Exited,
        Self::Killed,
        Self::Sandbox,
        Self::Memory,
        Self::Unfit,
        Self::Late,
        Self::Hung,
        Self::Violation,
        Self::Operator,
        Self::Reload,
        Self::NotStarted,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Killed => "killed",
            Self::Sandbox => "sandbox",
            Self::Memory => "memory",
            Self::Unfit => "unfit",
            Self::Late => "late",
            Self::Hung => "hung",
            Self::Violation => "violation",
            Self::Operator => "operator",
            Self::Reload => "reload",
            Self::NotStarted => "not_started",
        }
    }

    /// What the kernel's words for an end mean, where nothing else is known.
    fn of_status(status: &str) -> Self {
        match status.strip_prefix("ended by ") {
            Some("SIGSYS") => Self::Sandbox,
            Some(_) => Self::Killed,
            None => Self::Exited,
        }
    }
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Succeeded,
    Failed,
    Cancelled,
    /// Its process was gone without a word.
    Interrupted,
    /// It was not even queued.
    Refused,
}

impl Outcome {
    pub(crate) const ALL: [Self; 5] = [
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
        Self::Interrupted,
        Self::Refused,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
            Self::Refused => "refused",
        }
    }
}

impl From<RunStatus> for Outcome {
    fn from(status: RunStatus) -> Self {
        match status {
            RunStatus::Succeeded => Self::Succeeded,
            RunStatus::Failed => Self::Failed,
            RunStatus::Cancelled => Self::Cancelled,
        }
    }
}

/// Failure kinds that are told apart. A run worker says its kind itself, and one that was taken
/// over could say a new one each time.
const KINDS: [&str; 21] = [
    "answer_too_large",
    "context_limit",
    "empty_answer",
    "invalid_request",
    "max_turns",
    "memory_limit",
    "model_silent",
    "model_unavailable",
    "network",
    "overloaded",
    "provider_auth",
    "queue_full",
    "rate_limited",
    "server_error",
    "shutting_down",
    "stream_cut",
    "timeout",
    "unavailable",
    "worker_lost",
    "worker_unavailable",
    OTHER,
];
/// Every other one.
const OTHER: &str = "other";

fn known(kind: &str) -> &'static str {
    KINDS
        .into_iter()
        .find(|known| *known == kind)
        .unwrap_or(OTHER)
}

/// Upper bounds in seconds: from a worker that is woken at once to one that is ended as hung.
const HEARTBEAT: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0,
];
/// Up to the time in which a worker must be ready.
const START: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0,
];
/// From a scripted answer to an hour's work.
const TURN: &[f64] = &[
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
];

/// Observations of durations by size.
#[derive(Debug, Clone)]
pub(crate) struct Durations {
    bounds: &'static [f64],
    /// One for each bound.
    within: Vec<u64>,
    sum: f64,
    count: u64,
}

impl Durations {
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            within: vec![0; bounds.len()],
            sum: 0.0,
            count: 0,
        }
    }

    fn observe(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        if let Some(place) = self.bounds.iter().position(|bound| seconds <= *bound) {
            self.within[place] += 1;
        }
        self.sum += seconds;
        self.count += 1;
    }
}

impl From<&Durations> for Value {
    fn from(durations: &Durations) -> Self {
        let bounds = durations.bounds.iter().copied();
        Self::Histogram {
            sum: durations.sum,
            count: durations.count,
            buckets: bounds.zip(durations.within.iter().copied()).collect(),
        }
    }
}

/// Everything that is counted.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) restarts: BTreeMap<(Role, Reason), u64>,
    pub(crate) starts: BTreeMap<Role, Durations>,
    pub(crate) heartbeats: BTreeMap<Role, Durations>,
    pub(crate) violations: BTreeMap<Role, u64>,
    pub(crate) lines: BTreeMap<Role, u64>,
    /// By channel.
    pub(crate) turns: BTreeMap<(&'static str, Outcome), u64>,
    pub(crate) failures: BTreeMap<(&'static str, &'static str), u64>,
    pub(crate) turn_durations: BTreeMap<&'static str, Durations>,
    /// Why processes are being ended that have not ended yet.
    blamed: HashMap<ProcessId, Reason>,
}

impl Counters {
    /// A worker is ready, so long after its start.
    pub(crate) fn ready(&mut self, role: Role, after: Duration) {
        let new = || Durations::new(START);
        self.starts.entry(role).or_insert_with(new).observe(after);
    }

    /// A heartbeat is answered.
    pub(crate) fn heartbeat(&mut self, role: Role, after: Duration) {
        let new = || Durations::new(HEARTBEAT);
        let heartbeats = self.heartbeats.entry(role).or_insert_with(new);
        heartbeats.observe(after);
    }

    /// A worker did what it has no right to.
    pub(crate) fn violation(&mut self, role: Role) {
        *self.violations.entry(role).or_default() += 1;
    }

    /// A worker logged a line.
    pub(crate) fn line(&mut self, role: Role) {
        *self.lines.entry(role).or_default() += 1;
    }

    /// The supervisor ends a process; the first reason counts.
    pub(crate) fn blame(&mut self, process: ProcessId, reason: Reason) {
        self.blamed.entry(process).or_insert(reason);
    }

    /// Why a process ended that has ended in this way; asked once for each.
    #[must_use]
    pub(crate) fn verdict(&mut self, process: ProcessId, unfit: bool, status: &str) -> Reason {
        match self.blamed.remove(&process) {
            Some(reason) => reason,
            None if unfit => Reason::Unfit,
            None => Reason::of_status(status),
        }
    }

    /// A worker is to be replaced.
    pub(crate) fn restart(&mut self, role: Role, reason: Reason) {
        *self.restarts.entry((role, reason)).or_default() += 1;
    }

    /// A turn ended.
    pub(crate) fn turn(&mut self, channel: &'static str, outcome: Outcome, kind: Option<&str>) {
        *self.turns.entry((channel, outcome)).or_default() += 1;
        if outcome != Outcome::Succeeded
            && outcome != Outcome::Cancelled
            && let Some(kind) = kind
        {
            *self.failures.entry((channel, known(kind))).or_default() += 1;
        }
    }

    /// A turn ended that a process had worked on for so long.
    pub(crate) fn turn_took(&mut self, channel: &'static str, duration: Duration) {
        let new = || Durations::new(TURN);
        let durations = self.turn_durations.entry(channel).or_insert_with(new);
        durations.observe(duration);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mono_sys::process::ExitStatus;

    #[test]
    fn an_end_has_the_first_reason_that_is_known() {
        let mut counters = Counters::default();
        let killed = ExitStatus::Signalled(9).to_string();
        let (first, second) = (ProcessId(1), ProcessId(2));
        counters.blame(first, Reason::Hung);
        counters.blame(first, Reason::Operator);
        assert_eq!(counters.verdict(first, true, &killed), Reason::Hung);
        // Each process ends once.
        assert_eq!(counters.verdict(first, false, &killed), Reason::Killed);
        assert_eq!(counters.verdict(second, true, &killed), Reason::Unfit);
        for (status, reason) in [
            (ExitStatus::Exited(0), Reason::Exited),
            (ExitStatus::Exited(101), Reason::Exited),
            (ExitStatus::Signalled(31), Reason::Sandbox),
            (ExitStatus::Signalled(11), Reason::Killed),
            (ExitStatus::Signalled(64), Reason::Killed),
        ] {
            assert_eq!(Reason::of_status(&status.to_string()), reason, "{status}");
        }
    }

    #[test]
    fn whatever_a_worker_says_there_is_a_bounded_number_of_kinds() {
        let mut counters = Counters::default();
        for n in 0..1000 {
            let kind = format!("kind-{n}");
            counters.turn("terminal", Outcome::Failed, Some(&kind));
        }
        counters.turn("terminal", Outcome::Failed, Some("timeout"));
        counters.turn("terminal", Outcome::Cancelled, Some("cancelled"));
        counters.turn("terminal", Outcome::Succeeded, Some("timeout"));
        let failures: Vec<_> = counters.failures.into_iter().collect();
        assert_eq!(
            failures,
            [(("terminal", OTHER), 1000), (("terminal", "timeout"), 1)]
        );
        assert_eq!(counters.turns[&("terminal", Outcome::Failed)], 1001);
    }

    #[test]
    fn a_duration_is_in_the_first_bucket_that_holds_it() {
        let mut durations = Durations::new(&[0.5, 1.0]);
        for ms in [100, 500, 501, 1_000, 1_001] {
            durations.observe(Duration::from_millis(ms));
        }
        let Value::Histogram {
            sum,
            count,
            buckets,
        } = Value::from(&durations)
        else {
            panic!("no histogram");
        };
        assert_eq!((count, buckets), (5, vec![(0.5, 2), (1.0, 2)]));
        assert!((sum - 3.102).abs() < 1e-9);
    }

    #[test]
    fn bounds_rise_and_words_are_plain() {
        for bounds in [HEARTBEAT, START, TURN] {
            assert!(bounds.windows(2).all(|pair| pair[0] < pair[1]));
        }
        let reasons = Reason::ALL.map(Reason::name).into_iter();
        let outcomes = Outcome::ALL.map(Outcome::name).into_iter();
        for word in reasons.chain(outcomes).chain(KINDS) {
            let plain = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(word.chars().all(plain), "{word}");
        }
    }
}
