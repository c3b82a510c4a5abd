//! How long a process may take: to become ready, to answer a heartbeat, to go.

use crate::process::State;
use std::time::{Duration, Instant};

/// Between heartbeats.
pub(crate) const TICK: Duration = Duration::from_secs(2);
/// From start to `Ready`.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// A worker that leaves a heartbeat unanswered this long is ended.
const HUNG_AFTER: Duration = Duration::from_secs(30);
/// A run worker may live this long after it reported its end.
const LINGER: Duration = Duration::from_secs(5);

/// What is to be done about a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Nothing: it is within its time.
    Waits,
    /// It answered the last heartbeat: it gets another one.
    Answered,
    /// It was not ready in time.
    Late,
    /// It left a heartbeat unanswered.
    Hung,
    /// It has nothing to do any more and is still there.
    Lingers,
}

/// Looks at a process that stands so since `since`. `asked` is when the heartbeat was sent that it
/// has not answered.
#[must_use]
pub(crate) fn find(state: State, since: Instant, asked: Option<Instant>, now: Instant) -> Finding {
    let age = now.duration_since(since);
    match (state, asked) {
        (State::Starting, _) if age > READY_WITHIN => Finding::Late,
        (State::Ending, _) if age > LINGER => Finding::Lingers,
        (State::Starting | State::Ending, _) => Finding::Waits,
        (State::Serving | State::Draining, Some(sent)) if is_hung(sent, now) => Finding::Hung,
        (State::Serving | State::Draining, Some(_)) => Finding::Waits,
        (State::Serving | State::Draining, None) => Finding::Answered,
    }
}

/// True when a heartbeat is unanswered too long. Looked at every [`TICK`], so at the tick that is
/// nearest to the bound: the one after it would be late by a whole tick.
fn is_hung(sent: Instant, now: Instant) -> bool {
    now.duration_since(sent) + TICK / 2 >= HUNG_AFTER
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found of a process that stands so for some milliseconds, and was sent a heartbeat
    /// so many milliseconds ago.
    fn after(state: State, age: u64, asked: Option<u64>) -> Finding {
        let start = Instant::now();
        let now = start + Duration::from_secs(3_600);
        let ago = |ms| now - Duration::from_millis(ms);
        find(state, ago(age), asked.map(ago), now)
    }

    #[test]
    fn a_worker_has_twenty_seconds_to_be_ready() {
        assert_eq!(after(State::Starting, 0, None), Finding::Waits);
        assert_eq!(after(State::Starting, 20_000, None), Finding::Waits);
        assert_eq!(after(State::Starting, 20_001, None), Finding::Late);
    }

    #[test]
    fn a_heartbeat_may_stay_unanswered_for_thirty_seconds() {
        for state in [State::Serving, State::Draining] {
            // Ticks are never quite on time.
            for (ms, hung) in [
                (0, false),
                (27_990, false),
                (28_400, false),
                (29_990, true),
                (30_010, true),
            ] {
                let found = after(state, 600_000, Some(ms)) == Finding::Hung;
                assert_eq!(found, hung, "{ms}");
            }
            assert_eq!(after(state, 600_000, Some(0)), Finding::Waits);
            assert_eq!(after(state, 600_000, None), Finding::Answered);
        }
    }

    #[test]
    fn a_run_worker_that_is_done_has_five_seconds_to_go() {
        // Whether it answers doesn't matter any more.
        for asked in [None, Some(60_000)] {
            assert_eq!(after(State::Ending, 0, asked), Finding::Waits);
            assert_eq!(after(State::Ending, 5_000, asked), Finding::Waits);
            assert_eq!(after(State::Ending, 5_001, asked), Finding::Lingers);
        }
    }
}
