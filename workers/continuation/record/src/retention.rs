//! What is dropped when a continuation is settled, and which settled ones are kept for how long.

use crate::record::{OriginContextState, Receipt, ReceiptKind, Record, State};
use crate::time::Time;
use std::time::Duration;

/// How long what is kept (spec s1, "Configure a trusted continuation server").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Most settled records.
    pub terminal_max_records: usize,
    /// Age at which a settled record goes.
    pub terminal_max_age: Duration,
    /// Most captured texts.
    pub captured_max_records: usize,
    /// Age at which a captured text, or the text of a dead letter, goes.
    pub captured_max_age: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            terminal_max_records: 50_000,
            terminal_max_age: Duration::from_secs(365 * 24 * 60 * 60),
            captured_max_records: 1_000,
            captured_max_age: Duration::from_secs(30 * 24 * 60 * 60),
        }
    }
}

/// Drops what a settled record is not kept for: its payload, its snapshot, and its text unless that is what
/// it was for ([`keeps_text`]). Belongs into the change that settles it.
pub fn settle(record: &mut Record, at: Time) {
    record.result_payload = None;
    if !keeps_text(record) {
        record.synthesized_text = None;
    }
    scrub_context(record);
    record.lease_owner = None;
    record.lease_until = None;
    record.next_attempt_at = None;
    record.delivery_started_at = None;
    record.compacted_at = Some(at);
}

/// Lets go of the snapshot. Its digest and size stay, for whoever audits.
pub fn scrub_context(record: &mut Record) {
    let had_one = matches!(
        record.origin_context_state,
        OriginContextState::Pending | OriginContextState::Pinned
    );
    if had_one || record.origin_context_ref.is_some() {
        record.origin_context_state = OriginContextState::Scrubbed;
    }
    record.origin_context_ref = None;
}

/// Whether a settled record's text is kept for a bounded time: captured ones, which are read by whoever
/// verifies, and dead letters, which an operator may send again.
#[must_use]
pub fn keeps_text(record: &Record) -> bool {
    record.state == State::DeadLettered || is_captured(record)
}

/// Whether it is settled by a captured text.
#[must_use]
pub fn is_captured(record: &Record) -> bool {
    let captured = |receipt: &Receipt| receipt.kind == ReceiptKind::Captured;
    record.state == State::Delivered && record.receipt.as_ref().is_some_and(captured)
}

/// A settled record as retention sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled<'a> {
    /// Its id.
    pub id: &'a str,
    /// When it was settled.
    pub updated_at: Time,
    /// Whether it holds a text.
    pub has_text: bool,
}

/// What retention asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct Selection {
    /// Records to remove.
    pub remove: Vec<String>,
    /// Records that stay without their text.
    pub drop_text: Vec<String>,
}

impl Retention {
    /// Chooses among settled records: the newest are kept, by time and then by id.
    pub fn select<'a>(
        &self,
        settled: impl IntoIterator<Item = Settled<'a>>,
        now: Time,
    ) -> Selection {
        let mut settled: Vec<Settled<'a>> = settled.into_iter().collect();
        settled.sort_unstable_by(|a, b| (b.updated_at, b.id).cmp(&(a.updated_at, a.id)));
        let mut selection = Selection::default();
        let mut texts = 0;
        for (place, record) in settled.iter().enumerate() {
            if place >= self.terminal_max_records
                || is_older(record.updated_at, now, self.terminal_max_age)
            {
                selection.remove.push(record.id.to_owned());
            } else if record.has_text {
                texts += 1;
                if texts > self.captured_max_records || self.text_is_over(record.updated_at, now) {
                    selection.drop_text.push(record.id.to_owned());
                }
            }
        }
        selection
    }

    /// Whether a text of that age is to go.
    #[must_use]
    pub fn text_is_over(&self, updated_at: Time, now: Time) -> bool {
        is_older(updated_at, now, self.captured_max_age)
    }
}

fn is_older(at: Time, now: Time, most: Duration) -> bool {
    let most = i64::try_from(most.as_millis()).unwrap_or(i64::MAX);
    now.since(at) > most
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Time = Time::from_ms(1_900_000_000_000);

    fn settled(id: &str, age_ms: i64, has_text: bool) -> Settled<'_> {
        Settled {
            id,
            updated_at: NOW.plus_ms(-age_ms),
            has_text,
        }
    }

    const SMALL: Retention = Retention {
        terminal_max_records: 3,
        terminal_max_age: Duration::from_millis(100),
        captured_max_records: 1,
        captured_max_age: Duration::from_millis(50),
    };

    #[test]
    fn the_newest_stay_within_count_and_age() {
        let all = [
            settled("a", 10, false),
            settled("b", 20, false),
            settled("c", 20, false),
            settled("d", 20, false),
        ];
        // Of the same instant the greatest id counts as the newest.
        assert_eq!(SMALL.select(all, NOW).remove, ["b"]);
        let edge = [settled("x", 100, false), settled("y", 101, false)];
        assert_eq!(SMALL.select(edge, NOW).remove, ["y"]);
    }

    #[test]
    fn texts_have_a_count_and_an_age_of_their_own() {
        let all = [
            settled("a", 10, true),
            settled("b", 20, true),
            settled("c", 30, false),
        ];
        let selection = SMALL.select(all, NOW);
        assert_eq!(
            (selection.remove.len(), selection.drop_text),
            (0, vec!["b".to_owned()])
        );
        assert_eq!(
            SMALL.select([settled("a", 50, true)], NOW),
            Selection::default()
        );
        assert_eq!(SMALL.select([settled("a", 51, true)], NOW).drop_text, ["a"]);
    }

    #[test]
    fn nothing_is_kept_where_nothing_may_be() {
        let none = Retention {
            terminal_max_records: 0,
            ..SMALL
        };
        assert_eq!(none.select([settled("a", 0, true)], NOW).remove, ["a"]);
        let none = Retention {
            captured_max_records: 0,
            ..SMALL
        };
        assert_eq!(none.select([settled("a", 0, true)], NOW).drop_text, ["a"]);
    }

    proptest! {
        #[test]
        fn bounds_hold_and_what_goes_is_never_newer_than_what_stays(ages in proptest::collection::vec((0_i64..150, any::<bool>()), 0..30)) {
            let ids: Vec<String> = (0..ages.len()).map(|i| format!("{i:02}")).collect();
            let all: Vec<_> = ids.iter().zip(&ages).map(|(id, (age, text))| settled(id, *age, *text)).collect();
            let selection = SMALL.select(all.clone(), NOW);
            let (gone, kept): (Vec<Settled<'_>>, Vec<Settled<'_>>) = all.iter().copied().partition(|r| selection.remove.iter().any(|id| id == r.id));
            prop_assert!(kept.len() <= SMALL.terminal_max_records);
            prop_assert!(kept.iter().all(|r| NOW.since(r.updated_at) <= 100));
            let oldest_kept = kept.iter().map(|r| r.updated_at).min();
            let newest_gone = gone.iter().map(|r| r.updated_at).max();
            if let (Some(kept), Some(gone)) = (oldest_kept, newest_gone) {
                prop_assert!(gone <= kept);
            }
            let texts = kept.iter().filter(|r| r.has_text && !selection.drop_text.iter().any(|id| id == r.id));
            prop_assert!(texts.clone().count() <= SMALL.captured_max_records);
            prop_assert!(texts.into_iter().all(|r| NOW.since(r.updated_at) <= 50));
        }
    }
}
