//! How it stands with all continuations together (spec s1, "Health and recovery").

use crate::record::{LastError, Receipt, Record, State};
use crate::time::Time;
use serde::Serialize;
use std::collections::BTreeMap;

/// The verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Nothing needs attention.
    Healthy,
    /// Work is pending, something expired, a confirmed post is missing in its history, or the clock is doubted.
    Degraded,
    /// A delivery's outcome is unknown, or something can't be delivered.
    Unhealthy,
}

/// What the verdict depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// Records by state, in the order of [`State::ALL`].
    pub by_state: [usize; 10],
    /// Confirmed posts that are missing in their history.
    pub history_degraded: usize,
    /// A step of the wall clock is not believed yet.
    pub clock_held: bool,
}

impl Standing {
    /// Records in a state.
    #[must_use]
    pub fn of(&self, state: State) -> usize {
        let place = State::ALL.iter().position(|known| *known == state);
        place.map_or(0, |place| self.by_state[place])
    }

    /// Records that something is still to happen to by itself.
    #[must_use]
    pub fn pending(&self) -> usize {
        let pending = State::ALL.into_iter().filter(|state| state.is_pending());
        pending.map(|state| self.of(state)).sum()
    }

    /// The verdict.
    #[must_use]
    pub fn health(&self) -> Health {
        if self.of(State::DeadLettered) > 0 || self.of(State::DeliveryUnknown) > 0 {
            Health::Unhealthy
        } else if self.pending() > 0
            || self.of(State::Expired) > 0
            || self.history_degraded > 0
            || self.clock_held
        {
            Health::Degraded
        } else {
            Health::Healthy
        }
    }

    /// Counts by the states' names.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<&'static str, usize> {
        State::ALL
            .into_iter()
            .map(|state| (state.name(), self.of(state)))
            .collect()
    }
}

/// A record as services and operators see it: nothing of payload, text, token, server or conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status<'a> {
    /// Its id.
    pub continuation_id: &'a str,
    /// Where it stands.
    pub state: &'static str,
    /// Its mode.
    pub mode: &'static str,
    /// The service's key of the task.
    pub task_key: &'a str,
    /// When it was claimed.
    pub created_at: Time,
    /// When it last changed.
    pub updated_at: Time,
    /// When it expires.
    pub deadline: Time,
    /// How often what was tried.
    pub attempts: Attempts,
    /// How often the origin was waited for.
    pub synthesis_deferrals: u32,
    /// The origin.
    pub origin_context: OriginContext<'a>,
    /// Where the text came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_kind: Option<crate::CompletionKind>,
    /// Not before then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Time>,
    /// What last went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<&'a LastError>,
    /// Proof of the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<&'a Receipt>,
}

/// Attempts of a [`Status`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Attempts {
    /// Times that a model was asked.
    pub synthesis: u32,
    /// Times that a channel was.
    pub delivery: u32,
}

/// The origin of a [`Status`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OriginContext<'a> {
    /// What is known of it.
    pub state: &'static str,
    /// The snapshot's digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<&'a str>,
    /// Its messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_count: Option<u32>,
}

impl<'a> From<&'a Record> for Status<'a> {
    fn from(record: &'a Record) -> Self {
        Self {
            continuation_id: &record.continuation_id,
            state: record.state.name(),
            mode: record.mode.name(),
            task_key: &record.task_key,
            created_at: record.created_at,
            updated_at: record.updated_at,
            deadline: record.deadline,
            attempts: Attempts {
                synthesis: record.synthesis_attempts,
                delivery: record.delivery_attempts,
            },
            synthesis_deferrals: record.synthesis_deferrals,
            origin_context: OriginContext {
                state: record.origin_context_state.name(),
                digest: record.origin_context_digest.as_deref(),
                message_count: record.origin_context_message_count,
            },
            completion_kind: record.completion_kind,
            next_attempt_at: record.next_attempt_at,
            last_error: record.last_error.as_ref(),
            receipt: record.receipt.as_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(states: &[State]) -> Standing {
        let mut standing = Standing::default();
        for state in states {
            let place = State::ALL.iter().position(|known| known == state);
            if let Some(place) = place {
                standing.by_state[place] += 1;
            }
        }
        standing
    }

    #[test]
    fn each_state_has_its_verdict() {
        for (state, health) in [
            (State::Claimed, Health::Degraded),
            (State::ResultReceived, Health::Degraded),
            (State::Synthesizing, Health::Degraded),
            (State::ReadyToDeliver, Health::Degraded),
            (State::DeliveryRetry, Health::Degraded),
            (State::Delivered, Health::Healthy),
            (State::DeliveryUnknown, Health::Unhealthy),
            (State::Expired, Health::Degraded),
            (State::Cancelled, Health::Healthy),
            (State::DeadLettered, Health::Unhealthy),
        ] {
            assert_eq!(with(&[state]).health(), health, "{state:?}");
            assert_eq!(
                with(&[State::DeadLettered, state]).health(),
                Health::Unhealthy
            );
        }
        assert_eq!(with(&[]).health(), Health::Healthy);
    }

    #[test]
    fn a_missing_history_and_a_doubted_clock_degrade() {
        let history = Standing {
            history_degraded: 1,
            ..with(&[State::Delivered])
        };
        assert_eq!(history.health(), Health::Degraded);
        let clock = Standing {
            clock_held: true,
            ..with(&[])
        };
        assert_eq!(clock.health(), Health::Degraded);
    }

    #[test]
    fn all_ten_states_are_counted() {
        let counts = with(&[State::Claimed, State::Claimed]).counts();
        assert_eq!(counts.len(), 10);
        assert_eq!((counts["claimed"], counts["delivered"]), (2, 0));
        assert_eq!(with(&[State::Claimed, State::DeliveryUnknown]).pending(), 1);
    }
}
