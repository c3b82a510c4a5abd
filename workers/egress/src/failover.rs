//! What to do after a failed attempt: once more, the next model, or give up.
//!
//! A pure decision; the caller waits and asks again.

use crate::failure::{ErrorClass, Failure};
use std::time::Duration;

/// The rules of `runtime.retry` and of the provider client (spec facts 1.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Wait before the second attempt; doubles from there.
    pub backoff: Duration,
    /// Longest wait that doubling leads to.
    pub max_backoff: Duration,
    /// Longest wait that a provider may ask for. A longer wish leads to the next model: a person is
    /// waiting, and a wait cut short would only be refused again.
    pub max_retry_delay: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            backoff: Duration::from_millis(1000),
            max_backoff: Duration::from_millis(15_000),
            max_retry_delay: Duration::from_millis(60_000),
        }
    }
}

/// Where the chain of models stands when an attempt has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Attempts made at this model, the failed one included.
    pub made: u32,
    /// Attempts that this model gets.
    pub allowed: u32,
    /// True when another model follows.
    pub has_next: bool,
}

/// The next step.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The same model after this wait.
    Retry {
        /// How long to wait.
        after: Duration,
    },
    /// The next model, at once.
    NextModel,
    /// Every model was tried as often as it may be.
    Exhausted,
    /// Neither this model nor another would do better: the request is refused, or its answer is
    /// over our bounds.
    Refused,
}

/// Decides what follows `failure` (spec facts 3.3).
///
/// `jitter` in 0..1 spreads the waits of many runs that failed together.
pub fn decide(
    failure: &Failure,
    position: Position,
    policy: &RetryPolicy,
    jitter: f64,
) -> Decision {
    let onward = if position.has_next {
        Decision::NextModel
    } else {
        Decision::Exhausted
    };
    match failure.class {
        ErrorClass::InvalidRequest | ErrorClass::AnswerTooLarge => Decision::Refused,
        ErrorClass::ContextLimit | ErrorClass::ProviderAuth | ErrorClass::ModelUnavailable => {
            onward
        }
        ErrorClass::Overloaded
        | ErrorClass::RateLimited
        | ErrorClass::Timeout
        | ErrorClass::Network
        | ErrorClass::ServerError
        | ErrorClass::StreamCut => {
            let wish = failure.retry_after.unwrap_or(Duration::ZERO);
            if position.made >= position.allowed || wish > policy.max_retry_delay {
                return onward;
            }
            Decision::Retry {
                after: wish.max(backoff(position.made, policy, jitter)),
            }
        }
    }
}

/// Half of the doubled wait is fixed and half is chance.
fn backoff(made: u32, policy: &RetryPolicy, jitter: f64) -> Duration {
    let doubled = policy
        .backoff
        .saturating_mul(1_u32 << made.saturating_sub(1).min(20));
    doubled
        .min(policy.max_backoff)
        .mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const RETRIED: [ErrorClass; 6] = [
        ErrorClass::Overloaded,
        ErrorClass::RateLimited,
        ErrorClass::Timeout,
        ErrorClass::Network,
        ErrorClass::ServerError,
        ErrorClass::StreamCut,
    ];

    fn at(made: u32, allowed: u32, has_next: bool) -> Position {
        Position {
            made,
            allowed,
            has_next,
        }
    }

    fn after(class: ErrorClass, wish: Option<u64>, position: Position) -> Decision {
        let failure = Failure {
            retry_after: wish.map(Duration::from_millis),
            ..Failure::new(class, "x")
        };
        decide(&failure, position, &RetryPolicy::default(), 1.0)
    }

    fn wait(ms: u64) -> Decision {
        Decision::Retry {
            after: Duration::from_millis(ms),
        }
    }

    #[test]
    fn transient_classes_retry_then_move_on() {
        for class in RETRIED {
            assert_eq!(after(class, None, at(1, 2, true)), wait(1000), "{class:?}");
            assert_eq!(after(class, None, at(2, 2, true)), Decision::NextModel);
            assert_eq!(after(class, None, at(2, 2, false)), Decision::Exhausted);
        }
    }

    #[test]
    fn the_others_never_retry() {
        use ErrorClass as C;
        for class in [C::ContextLimit, C::ProviderAuth, C::ModelUnavailable] {
            assert_eq!(
                after(class, None, at(1, 10, true)),
                Decision::NextModel,
                "{class:?}"
            );
            assert_eq!(after(class, Some(1), at(1, 10, false)), Decision::Exhausted);
        }
        for class in [C::InvalidRequest, C::AnswerTooLarge] {
            assert_eq!(
                after(class, None, at(1, 10, true)),
                Decision::Refused,
                "{class:?}"
            );
        }
    }

    #[test]
    fn waits_double_up_to_the_bound() {
        let waits = [1000, 2000, 4000, 8000, 15_000, 15_000];
        for (made, ms) in (1..).zip(waits) {
            assert_eq!(
                after(ErrorClass::Network, None, at(made, 99, false)),
                wait(ms)
            );
        }
        assert_eq!(
            after(ErrorClass::Network, None, at(u32::MAX - 1, u32::MAX, false)),
            wait(15_000)
        );
    }

    #[test]
    fn the_wish_of_the_provider_is_obeyed_up_to_its_bound() {
        let limited = |wish| after(ErrorClass::RateLimited, Some(wish), at(1, 2, true));
        assert_eq!(limited(7000), wait(7000));
        assert_eq!(limited(10), wait(1000), "never sooner than the own backoff");
        assert_eq!(limited(60_000), wait(60_000));
        assert_eq!(limited(60_001), Decision::NextModel);
    }

    proptest! {
        #[test]
        fn a_wait_is_never_longer_than_the_bounds(
            class in proptest::sample::select(ErrorClass::ALL.to_vec()),
            wish in proptest::option::of(0_u64..200_000),
            made in 1_u32..20, allowed in 1_u32..11, has_next: bool, jitter in 0.0_f64..1.0,
        ) {
            let failure = Failure {
                retry_after: wish.map(Duration::from_millis),
                ..Failure::new(class, "x")
            };
            let policy = RetryPolicy::default();
            match decide(&failure, at(made, allowed, has_next), &policy, jitter) {
                Decision::Retry { after } => {
                    prop_assert!(RETRIED.contains(&class) && made < allowed);
                    prop_assert!(after >= policy.backoff / 2);
                    prop_assert!(after >= failure.retry_after.unwrap_or_default());
                    prop_assert!(after <= policy.max_retry_delay);
                }
                Decision::NextModel => prop_assert!(has_next),
                Decision::Exhausted => prop_assert!(!has_next),
                Decision::Refused => prop_assert!(matches!(
                    class,
                    ErrorClass::InvalidRequest | ErrorClass::AnswerTooLarge
                )),
            }
        }
    }
}
