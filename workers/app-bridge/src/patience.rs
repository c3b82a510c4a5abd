//! When to go on waiting for a call, when to probe its server, and when to give up: a pure function
//! of what happened and of the time.
//!
//! A call that takes long is not a fault. What matters to the person is *why* nothing comes back:
//! a server that answers a probe is slow and keeps its connection; one that answers nothing is
//! silent, and is replaced.

use std::time::{Duration, Instant};

/// What to do now about a call in flight.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing before this moment.
    WaitUntil(Instant),
    /// Ask the server whether it is there, then ask again.
    Probe,
    /// Give up: no progress, but the server was heard since the call began.
    Inactive,
    /// Give up: nothing was heard from the server since the call began.
    Silent,
    /// Give up: the hard limit of one call.
    TooLong,
}

/// What is known about one call in flight.
#[derive(Debug, Clone)]
pub struct Patience {
    began: Instant,
    /// The call's own last sign of life: its beginning, then each progress report.
    active: Instant,
    /// Anything at all from the server.
    heard: Option<Instant>,
    probed: Option<Instant>,
    inactivity: Duration,
    total: Duration,
}

/// Probes of one inactivity period. More than one, since the first may meet a short stall.
const PROBES: u32 = 4;
/// A healthy server needs no probe more often than this.
const PROBE_EVERY_MAX: Duration = Duration::from_secs(20);

impl Patience {
    /// A call that begins now, with its two limits.
    pub fn new(now: Instant, inactivity: Duration, total: Duration) -> Self {
        Self {
            began: now,
            active: now,
            heard: None,
            probed: None,
            inactivity,
            total,
        }
    }

    /// The call reported progress.
    pub fn progress(&mut self, now: Instant) {
        self.active = now;
        self.heard(now);
    }

    /// Something came from the server at `when`; what came before the call began does not count.
    pub fn heard(&mut self, when: Instant) {
        if when > self.began && self.heard.is_none_or(|before| when > before) {
            self.heard = Some(when);
        }
    }

    /// A probe was sent.
    pub fn probed(&mut self, now: Instant) {
        self.probed = Some(now);
    }

    /// What to do at `now`. The hard limit wins over the soft one, since it can't be reset.
    pub fn step(&self, now: Instant) -> Step {
        let hard = self.began + self.total;
        let soft = self.active + self.inactivity;
        if now >= hard {
            return Step::TooLong;
        }
        if now >= soft {
            return match self.heard {
                Some(_) => Step::Inactive,
                None => Step::Silent,
            };
        }
        let last_sign = [self.heard, self.probed]
            .into_iter()
            .flatten()
            .fold(self.active, Instant::max);
        let probe = last_sign + (self.inactivity / PROBES).min(PROBE_EVERY_MAX);
        if now >= probe {
            return Step::Probe;
        }
        Step::WaitUntil(probe.min(soft).min(hard))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn call() -> (Instant, Patience) {
        let t = Instant::now();
        (t, Patience::new(t, 40 * S, 100 * S))
    }

    #[test]
    fn waits_then_probes_then_waits_again() {
        let (t, mut p) = call();
        assert_eq!(p.step(t), Step::WaitUntil(t + 10 * S));
        assert_eq!(p.step(t + 10 * S), Step::Probe);
        p.probed(t + 10 * S);
        assert_eq!(p.step(t + 10 * S), Step::WaitUntil(t + 20 * S));
    }

    #[test]
    fn a_peer_that_answers_nothing_is_silent() {
        let (t, mut p) = call();
        p.probed(t + 30 * S);
        assert_eq!(p.step(t + 40 * S), Step::Silent);
    }

    #[test]
    fn a_peer_that_answers_a_probe_is_slow() {
        let (t, mut p) = call();
        p.probed(t + 10 * S);
        p.heard(t + 11 * S);
        assert_eq!(p.step(t + 40 * S), Step::Inactive);
    }

    #[test]
    fn what_was_heard_before_the_call_proves_nothing() {
        let (t, mut p) = call();
        p.heard(t - S);
        p.heard(t);
        assert_eq!(p.step(t + 40 * S), Step::Silent);
    }

    #[test]
    fn progress_resets_the_soft_limit_but_never_the_hard_one() {
        let (t, mut p) = call();
        for n in 1..=3u32 {
            p.progress(t + 30 * n * S);
        }
        assert!(matches!(p.step(t + 99 * S), Step::WaitUntil(_)));
        assert_eq!(p.step(t + 100 * S), Step::TooLong);
    }

    #[test]
    fn being_heard_does_not_reset_the_soft_limit() {
        let (t, mut p) = call();
        p.heard(t + 39 * S);
        assert_eq!(p.step(t + 40 * S), Step::Inactive);
    }

    #[test]
    fn probes_are_at_most_twenty_seconds_apart() {
        let t = Instant::now();
        let p = Patience::new(t, 1000 * S, 2000 * S);
        assert_eq!(p.step(t), Step::WaitUntil(t + 20 * S));
    }

    /// The loop that drives this must always make headway: a wait lies in the future.
    #[test]
    fn a_wait_always_ends_later() {
        let (t, mut p) = call();
        let mut now = t;
        for _ in 0..200 {
            match p.step(now) {
                Step::WaitUntil(then) => {
                    assert!(then > now);
                    now = then;
                }
                Step::Probe => p.probed(now),
                Step::Silent => return,
                other => panic!("{other:?}"),
            }
        }
        panic!("never gave up");
    }
}
