//! When a worker that ended comes back: a pure function of its history, the time and the policy.

use std::time::Duration;

/// How a worker's life ended; the brake depends on it (docs/operations.md, "Restart and parking").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Before it was ready: likely to happen again.
    BeforeReady,
    /// In service, after this long.
    InService(Duration),
    /// It said itself that it can't work, or its sandbox was weaker than the policy.
    Unfit,
}

/// The bounds of the brake.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    /// First delay after a worker that ended in service.
    pub(crate) first: Duration,
    /// First delay after a worker that was never ready.
    pub(crate) first_unready: Duration,
    /// Longest delay.
    pub(crate) longest: Duration,
    /// A life of this length clears the history.
    pub(crate) healthy: Duration,
    /// Restarts in a row; the ending after the last of them parks the worker.
    pub(crate) most: u32,
}

impl Policy {
    /// The supervisor's own values: 50 ms doubling to 30 s, ten restarts in a row.
    pub(crate) const DEFAULT: Self = Self {
        first: Duration::from_millis(50),
        first_unready: Duration::from_millis(400),
        longest: Duration::from_secs(30),
        healthy: Duration::from_secs(60),
        most: 10,
    };
}

/// Endings in a row of one worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// Endings since the last healthy life.
    pub(crate) in_a_row: u32,
}

/// What to do with a worker that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Decision {
    /// Start it again after this long.
    After(Duration),
    /// Leave it ended until an operator lifts it.
    Park,
}

/// Decides, and returns the history to keep. `jitter` is a number from 0 to 1 that spreads the
/// restarts of workers that ended together.
pub(crate) fn decide(
    history: History,
    ending: Ending,
    policy: &Policy,
    jitter: f64,
) -> (Decision, History) {
    let healthy = matches!(ending, Ending::InService(life) if life >= policy.healthy);
    let in_a_row = if healthy {
        1
    } else {
        history.in_a_row.saturating_add(1)
    };
    let history = History { in_a_row };
    // An unfit worker is no accident: three tries tell a passing fault from a lasting one.
    let most = if ending == Ending::Unfit {
        policy.most.min(3)
    } else {
        policy.most
    };
    if in_a_row > most {
        return (Decision::Park, history);
    }
    let first = match ending {
        Ending::InService(_) => policy.first,
        Ending::BeforeReady | Ending::Unfit => policy.first_unready,
    };
    let doubled = first
        .saturating_mul(1 << (in_a_row - 1).min(20))
        .min(policy.longest);
    (
        Decision::After(doubled.mul_f64(1.0 + jitter.clamp(0.0, 1.0) * 0.25)),
        history,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(ending: Ending, times: u32) -> Vec<Decision> {
        let mut history = History::default();
        (0..times)
            .map(|_| {
                let (decision, next) = decide(history, ending, &Policy::DEFAULT, 0.0);
                history = next;
                decision
            })
            .collect()
    }

    #[test]
    fn delays_double_up_to_the_cap_and_then_it_parks() {
        let all = run(Ending::InService(Duration::from_secs(1)), 11);
        let ms = |n| Decision::After(Duration::from_millis(n));
        assert_eq!(all[..4], [ms(50), ms(100), ms(200), ms(400)]);
        assert_eq!(all[9], ms(25_600));
        assert_eq!(all[10], Decision::Park);
    }

    #[test]
    fn a_worker_that_was_never_ready_is_braked_harder() {
        assert_eq!(
            run(Ending::BeforeReady, 1)[0],
            Decision::After(Duration::from_millis(400))
        );
        assert_eq!(
            run(Ending::BeforeReady, 8)[7],
            Decision::After(Duration::from_secs(30))
        );
    }

    #[test]
    fn an_unfit_worker_parks_after_three_tries() {
        assert_eq!(run(Ending::Unfit, 4)[3], Decision::Park);
        assert_ne!(run(Ending::Unfit, 3)[2], Decision::Park);
    }

    #[test]
    fn a_healthy_life_clears_the_history() {
        let (decision, history) = decide(
            History { in_a_row: 9 },
            Ending::InService(Duration::from_secs(60)),
            &Policy::DEFAULT,
            0.0,
        );
        assert_eq!(decision, Decision::After(Duration::from_millis(50)));
        assert_eq!(history.in_a_row, 1);
    }

    #[test]
    fn jitter_adds_at_most_a_quarter() {
        let (decision, _) = decide(
            History::default(),
            Ending::BeforeReady,
            &Policy::DEFAULT,
            1.0,
        );
        assert_eq!(decision, Decision::After(Duration::from_millis(500)));
    }

    #[test]
    fn virtual_hours_of_a_worker_that_dies_at_once() {
        // Started at most so many times in the first minute, then parked for good.
        let mut history = History::default();
        let mut at = Duration::ZERO;
        let mut starts = vec![at];
        while let (Decision::After(d), next) =
            decide(history, Ending::BeforeReady, &Policy::DEFAULT, 0.5)
        {
            history = next;
            at += d;
            starts.push(at);
        }
        assert!(
            starts
                .iter()
                .filter(|t| **t < Duration::from_secs(60))
                .count()
                <= 8,
            "{starts:?}"
        );
        assert_eq!(starts.len(), 11);
    }
}
