//! A server that fails to start, or to list its tools, is not started again for every call: a pure
//! function of how often and when it failed.

use std::time::{Duration, Instant};

/// Failures in a row that are forgiven before the brake takes hold.
pub const FREE_FAILURES: u32 = 3;
const FIRST_WAIT: Duration = Duration::from_secs(5);
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// May a server be started now?
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Start,
    /// Not before this much time has passed.
    Wait(Duration),
}

/// How the last starts of one server went.
#[derive(Debug, Clone, Copy, Default)]
pub struct Brake {
    failures: u32,
    last: Option<Instant>,
}

impl Brake {
    /// A list of tools or the result of a call clears the record.
    pub fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// There was no connection, or no list.
    pub fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.last = Some(now);
    }

    /// Failures in a row so far.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Five seconds after the third failure in a row, doubled by each further one, at most five
    /// minutes.
    pub fn decide(&self, now: Instant) -> Decision {
        let Some(last) = self.last.filter(|_| self.failures >= FREE_FAILURES) else {
            return Decision::Start;
        };
        let doublings = (self.failures - FREE_FAILURES).min(16);
        let wait = FIRST_WAIT.saturating_mul(1 << doublings).min(LONGEST_WAIT);
        match (last + wait).checked_duration_since(now) {
            Some(left) if !left.is_zero() => Decision::Wait(left),
            _ => Decision::Start,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_are_free_then_waits_double_up_to_a_cap() {
        let t = Instant::now();
        let mut brake = Brake::default();
        let mut waits = Vec::new();
        for _ in 0..12 {
            waits.push(match brake.decide(t) {
                Decision::Start => 0,
                Decision::Wait(left) => left.as_secs(),
            });
            brake.failed(t);
        }
        assert_eq!(waits, [0, 0, 0, 5, 10, 20, 40, 80, 160, 300, 300, 300]);
    }

    #[test]
    fn the_brake_lets_go_when_its_time_is_over() {
        let t = Instant::now();
        let mut brake = Brake::default();
        for _ in 0..FREE_FAILURES {
            brake.failed(t);
        }
        assert_eq!(
            brake.decide(t + Duration::from_secs(4)),
            Decision::Wait(Duration::from_secs(1))
        );
        assert_eq!(brake.decide(t + FIRST_WAIT), Decision::Start);
    }

    #[test]
    fn success_clears_the_record() {
        let t = Instant::now();
        let mut brake = Brake::default();
        for _ in 0..9 {
            brake.failed(t);
        }
        brake.succeeded();
        assert_eq!((brake.failures(), brake.decide(t)), (0, Decision::Start));
    }

    #[test]
    fn no_count_overflows() {
        let t = Instant::now();
        let mut brake = Brake {
            failures: u32::MAX,
            last: Some(t),
        };
        brake.failed(t);
        assert_eq!(brake.decide(t), Decision::Wait(LONGEST_WAIT));
    }
}
