//! How long a retry waits: bounded exponential, with full random jitter per record, so that after an outage
//! the records that failed together do not come back together.

use std::time::Duration;

/// Retryable failures of one delivery; the last of them is the end.
pub const MAX_ATTEMPTS: u32 = 20;
/// The shortest wait.
pub const BASE: Duration = Duration::from_secs(1);
/// The longest wait between deliveries, and the most that a channel may ask for.
pub const DELIVERY_CAP: Duration = Duration::from_secs(60 * 60);
/// The longest wait for an origin that is not settled yet.
pub const DEFERRAL_CAP: Duration = Duration::from_secs(5 * 60);
/// The longest that a channel's or a model's own figure is followed. Without a bound one bad answer could put
/// a record off past every deadline.
pub const ASKED_CAP: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest wait there is, in milliseconds. One that lasts longer was begun on a clock that has been set
/// back since.
pub const LONGEST_MS: i64 = 24 * 60 * 60 * 1000;

/// The wait after the `attempt`th failure (from 1): between [`BASE`] and twice the exponential step, at most
/// `cap`. `random` is a uniformly drawn number; each record draws its own.
#[must_use]
pub fn wait(attempt: u32, cap: Duration, random: u64) -> Duration {
    let doubled = attempt.clamp(1, 40);
    let base = millis(BASE);
    let ceiling = base.saturating_mul(1 << doubled).min(millis(cap)).max(base);
    let span = ceiling - base + 1;
    // The multiplication's upper half is uniform over the span and needs no rejection for waits.
    let drawn = (u128::from(random) * u128::from(span)) >> 64;
    Duration::from_millis(base + u64::try_from(drawn).unwrap_or(0))
}

/// The wait that the other side asked for, within bounds.
#[must_use]
pub fn asked(wait: Duration) -> Duration {
    wait.clamp(Duration::from_millis(1), ASKED_CAP)
}

/// What follows a retryable failure of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// Another try after so long.
    After(Duration),
    /// That was the last one.
    Exhausted,
}

/// After the `attempts`th delivery attempt failed in a way that can be repeated.
pub fn delivery(attempts: u32, asked_for: Option<Duration>, random: u64) -> Next {
    if attempts >= MAX_ATTEMPTS {
        return Next::Exhausted;
    }
    Next::After(match asked_for {
        Some(time) => asked(time),
        None => wait(attempts, DELIVERY_CAP, random),
    })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn the_first_waits_are_short_and_the_last_an_hour() {
        let most = |attempt| wait(attempt, DELIVERY_CAP, u64::MAX);
        assert_eq!(most(1), Duration::from_secs(2));
        assert_eq!(most(2), Duration::from_secs(4));
        assert_eq!(most(11), Duration::from_secs(2048));
        assert_eq!(most(12), DELIVERY_CAP);
        assert_eq!(most(u32::MAX), DELIVERY_CAP);
        assert_eq!(wait(20, DEFERRAL_CAP, u64::MAX), DEFERRAL_CAP);
        for attempt in [0, 1, 19] {
            assert_eq!(wait(attempt, DELIVERY_CAP, 0), BASE);
        }
    }

    #[test]
    fn the_twentieth_retryable_failure_is_the_end() {
        assert!(matches!(delivery(19, None, 3), Next::After(_)));
        assert_eq!(delivery(20, None, 3), Next::Exhausted);
        assert_eq!(delivery(20, Some(BASE), 3), Next::Exhausted);
        assert_eq!(delivery(21, None, 3), Next::Exhausted);
    }

    #[test]
    fn what_a_channel_asks_for_is_followed_within_bounds() {
        let ask = |secs| delivery(1, Some(Duration::from_secs(secs)), 0);
        assert_eq!(ask(90), Next::After(Duration::from_secs(90)));
        assert_eq!(ask(u64::MAX / 1000), Next::After(ASKED_CAP));
        assert_eq!(ask(0), Next::After(Duration::from_millis(1)));
        assert_eq!(i64::try_from(ASKED_CAP.as_millis()), Ok(LONGEST_MS));
    }

    /// The earlier implementation's jitter depended on the attempt's number only: after an outage every record
    /// came back in the same instant.
    #[test]
    fn records_that_failed_together_do_not_retry_together() {
        let mut state = 1_u64;
        let waits: HashSet<Duration> = (0..1000)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                wait(8, DELIVERY_CAP, state)
            })
            .collect();
        assert!(waits.len() > 950, "{}", waits.len());
    }

    proptest! {
        #[test]
        fn a_wait_is_within_its_bounds(attempt: u32, random: u64, cap in 1_u64..10_000_000) {
            let cap = Duration::from_millis(cap);
            let wait = wait(attempt, cap, random);
            prop_assert!(wait >= BASE);
            prop_assert!(wait <= cap.max(BASE));
        }

        #[test]
        fn a_larger_number_waits_no_shorter(attempt in 0_u32..64, random: u64) {
            prop_assert!(wait(attempt, DELIVERY_CAP, random) <= wait(attempt, DELIVERY_CAP, random.saturating_add(1 << 40)));
        }
    }
}
