//! Which time it is when the clock on the wall can't be trusted for a moment.
//!
//! Deadlines are times of the wall: "until tomorrow noon". A machine that sleeps, or an operator or a bad time
//! server that sets the clock, moves the wall in one step, and a step forward would expire everything at once.
//! So a step is not believed at once: for a grace period the service goes on from the time before it, which an
//! operator sees in health, and only then takes the new time. Waits between retries never follow the wall.
//!
//! A step may also have happened before a start: a clock without a battery that says 2038 until a time server is
//! heard. Where the wall is so far from the newest change of all that is pending that nothing of it would be left, it
//! is held the same way, and until it is believed nothing is gone on with: after a long rest all of it is too late.

use continuation_record::Time;
use std::time::Duration;

/// The largest difference that is no step but a clock being corrected.
pub const TOLERANCE_MS: i64 = 10_000;

/// The longest that a record lives, 30 days, and a day.
pub const FAR_MS: i64 = 31 * 24 * 60 * 60 * 1000;

/// A step that is not believed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// How far the wall moved, in milliseconds; negative for backwards.
    pub by_ms: i64,
    /// When it will be believed, on the monotonic clock.
    until: Duration,
}

/// The service's idea of the time.
#[derive(Debug, Clone)]
pub struct Timeline {
    grace: Duration,
    /// Wall and monotonic time of the last moment at which they agreed.
    base: (Time, Duration),
    /// The same, of the start: what waits are measured from.
    start: (Time, Duration),
    step: Option<Step>,
    /// The newest change that a start found far from the wall, until the wall is believed.
    far: Option<Time>,
}

impl Timeline {
    /// Begins at these times. A step is believed after `grace`.
    #[must_use]
    pub const fn new(wall: Time, elapsed: Duration, grace: Duration) -> Self {
        Self {
            grace,
            base: (wall, elapsed),
            start: (wall, elapsed),
            step: None,
            far: None,
        }
    }

    /// Begins over records of which those that are pending changed last at `newest`. A wall that is further from it
    /// than any of them lives is a step.
    #[must_use]
    pub fn over(newest: Option<Time>, wall: Time, elapsed: Duration, grace: Duration) -> Self {
        let line = Self::new(wall, elapsed, grace);
        match newest {
            Some(newest) if wall.since(newest) > FAR_MS => Self {
                base: (newest, elapsed),
                step: Some(Step {
                    by_ms: wall.since(newest),
                    until: elapsed + grace,
                }),
                far: Some(newest),
                ..line
            },
            _ => line,
        }
    }

    /// Whether the start's own time is not believed yet.
    #[must_use]
    pub const fn is_doubted(&self) -> bool {
        self.far.is_some()
    }

    /// The time for deadlines and for what records say.
    pub fn now(&mut self, wall: Time, elapsed: Duration) -> Time {
        let steady = since(self.base, elapsed);
        let by_ms = wall.since(steady);
        // Set right, a start's time is what any other start would have taken.
        let is_near = |newest: Time| (0..=FAR_MS).contains(&wall.since(newest));
        if by_ms.abs() <= TOLERANCE_MS || self.far.is_some_and(is_near) {
            return self.believe(wall, elapsed);
        }
        let step = match self.step {
            // A second step within the grace of the first begins the grace again.
            Some(known) if (known.by_ms - by_ms).abs() <= TOLERANCE_MS => known,
            _ => Step {
                by_ms,
                until: elapsed + self.grace,
            },
        };
        if elapsed >= step.until {
            return self.believe(wall, elapsed);
        }
        self.step = Some(step);
        steady
    }

    fn believe(&mut self, wall: Time, elapsed: Duration) -> Time {
        self.step = None;
        self.far = None;
        self.base = (wall, elapsed);
        wall
    }

    /// The time by which waits are measured. No step of the wall moves it.
    #[must_use]
    pub fn waiting(&self, elapsed: Duration) -> Time {
        since(self.start, elapsed)
    }

    /// The step that is not believed yet, and how long that will last.
    #[must_use]
    pub fn held(&self, elapsed: Duration) -> Option<(Step, Duration)> {
        self.step
            .map(|step| (step, step.until.saturating_sub(elapsed)))
    }
}

fn since((wall, at): (Time, Duration), elapsed: Duration) -> Time {
    let passed = elapsed.saturating_sub(at).as_millis();
    wall.plus_ms(i64::try_from(passed).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const GRACE: Duration = Duration::from_secs(600);
    const DAY: i64 = 86_400_000;
    const START: Time = Time::from_ms(1_900_000_000_000);

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn timeline() -> Timeline {
        Timeline::new(START, at(0), GRACE)
    }

    #[test]
    fn an_undisturbed_wall_is_believed() {
        let mut line = timeline();
        for secs in [1, 3600, 90_000] {
            let wall = START.plus_ms(1000 * secs + 9000);
            assert_eq!(line.now(wall, at(secs as u64)), wall);
            assert_eq!(line.held(at(secs as u64)), None);
            line = timeline();
        }
    }

    #[test]
    fn a_jump_of_a_month_forward_expires_nothing_for_the_grace_and_is_seen() {
        let mut line = timeline();
        let jump = 31 * DAY;
        assert_eq!(
            line.now(START.plus_ms(jump + 1000), at(1)),
            START.plus_ms(1000)
        );
        let (step, left) = line.held(at(1)).unwrap();
        assert_eq!((step.by_ms, left), (jump, GRACE));
        let before = line.now(START.plus_ms(jump + 600_000), at(600));
        assert_eq!(before, START.plus_ms(600_000));
        let after = START.plus_ms(jump + 601_000);
        assert_eq!(line.now(after, at(601)), after);
        assert_eq!(line.held(at(601)), None);
    }

    #[test]
    fn a_jump_that_is_taken_back_leaves_no_trace() {
        let mut line = timeline();
        line.now(START.plus_ms(DAY), at(1));
        assert_eq!(line.now(START.plus_ms(2000), at(2)), START.plus_ms(2000));
        assert_eq!(line.held(at(2)), None);
    }

    #[test]
    fn a_second_jump_has_a_grace_of_its_own() {
        let mut line = timeline();
        line.now(START.plus_ms(DAY + 1000), at(1));
        line.now(START.plus_ms(3 * DAY + 500_000), at(500));
        let held = line.now(START.plus_ms(3 * DAY + 700_000), at(700));
        assert_eq!(held, START.plus_ms(700_000));
        let wall = START.plus_ms(3 * DAY + 1_101_000);
        assert_eq!(line.now(wall, at(1101)), wall);
    }

    #[test]
    fn a_start_that_would_leave_nothing_is_doubted_for_the_grace() {
        let begin = |days: i64, more: i64| {
            let wall = START.plus_ms(days * DAY + more);
            (wall, Timeline::over(Some(START), wall, at(0), GRACE))
        };
        for (days, more, doubted) in [
            (0, 0, false),
            (31, 0, false),
            (31, 1, true),
            (4_000, 0, true),
        ] {
            let (wall, mut line) = begin(days, more);
            assert_eq!(line.is_doubted(), doubted, "{days} {more}");
            let now = line.now(wall, at(0));
            assert_eq!(now, if doubted { START } else { wall }, "{days} {more}");
        }
        // A clock that is behind says nothing about what is over.
        assert!(!begin(-4_000, 0).1.is_doubted());
        assert!(!Timeline::over(None, START, at(0), GRACE).is_doubted());

        let (wall, mut line) = begin(4_000, 0);
        let (step, left) = line.held(at(0)).unwrap();
        assert_eq!((step.by_ms, left), (4_000 * DAY, GRACE));
        let before = line.now(wall.plus_ms(599_000), at(599));
        assert_eq!((before, line.is_doubted()), (START.plus_ms(599_000), true));
        let after = wall.plus_ms(600_000);
        assert_eq!(
            (line.now(after, at(600)), line.is_doubted()),
            (after, false)
        );
        assert_eq!(line.held(at(600)), None);
    }

    #[test]
    fn a_start_whose_clock_is_set_right_is_doubted_no_longer() {
        let far = START.plus_ms(4_000 * DAY);
        let mut line = Timeline::over(Some(START), far, at(0), GRACE);
        line.now(far.plus_ms(60_000), at(60));
        let right = START.plus_ms(3 * DAY);
        assert_eq!(line.now(right, at(61)), right);
        assert!(!line.is_doubted() && line.held(at(61)).is_none());
        // Set to another far time, it is doubted anew.
        let mut line = Timeline::over(Some(START), far, at(0), GRACE);
        let other = START.plus_ms(400 * DAY);
        line.now(other, at(500));
        assert_eq!(
            line.now(other.plus_ms(200_000), at(700)),
            START.plus_ms(700_000)
        );
        let believed = other.plus_ms(600_000);
        assert_eq!(line.now(believed, at(1100)), believed);
    }

    #[test]
    fn a_jump_back_freezes_no_wait() {
        let mut line = timeline();
        line.now(START.plus_ms(-DAY), at(1));
        assert_eq!(line.waiting(at(30)), START.plus_ms(30_000));
        line.now(START.plus_ms(-DAY + 700_000), at(700));
        assert_eq!(line.waiting(at(700)), START.plus_ms(700_000));
    }
}
