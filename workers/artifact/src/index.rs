//! What the worker knows of its directory without asking the disk: entries, charges, work in
//! flight. One inventory fills it at the start; after that every change goes through here.

use crate::manifest::Manifest;
use crate::quota::{NoRoom, Quota};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use uuid::Uuid;

/// `artifacts.retention.*` of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// How long a new artifact is kept, in days, 1 to 3650.
    pub max_age_days: u32,
    /// Most finalised artifacts kept, 1 to 1,000,000; the oldest go first.
    pub max_count: u64,
    /// Only say what would go.
    pub dry_run: bool,
}

impl Retention {
    /// The time a new artifact is kept.
    #[must_use]
    pub fn keep(&self) -> jiff::SignedDuration {
        jiff::SignedDuration::from_hours(24 * i64::from(self.max_age_days.max(1)))
    }
}

/// Why retention removes an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Past its time.
    Expired,
    /// Among the oldest of too many.
    OverCount,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "expired",
            Self::OverCount => "over artifacts.retention.maxCount",
        })
    }
}

/// What retention removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// Which artifact.
    pub id: Uuid,
    /// Its content in bytes.
    pub size: u64,
    /// Why.
    pub reason: Reason,
}

/// Where an artifact stands in the listing: newest first, ids break ties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    created_ms: i64,
    id: Uuid,
}

impl Position {
    fn of(manifest: &Manifest) -> Self {
        Self {
            created_ms: manifest.created_at.as_millisecond(),
            id: manifest.id,
        }
    }

    /// The opaque cursor after this position.
    #[must_use]
    pub fn cursor(&self) -> String {
        format!("{}.{}", self.created_ms, self.id.simple())
    }

    /// Reads a cursor back; `None` for anything [`Position::cursor`] does not write.
    #[must_use]
    pub fn parse(cursor: &str) -> Option<Self> {
        let (created, id) = cursor.split_once('.')?;
        let position = Self {
            created_ms: created.parse().ok()?,
            id: Uuid::try_parse(id).ok()?,
        };
        (position.cursor() == cursor).then_some(position)
    }
}

/// The index.
#[derive(Debug)]
pub struct Index {
    entries: BTreeMap<Uuid, Manifest>,
    by_age: BTreeSet<Position>,
    quota: Quota,
    /// Publications being written, with the size reserved: never swept.
    active: BTreeMap<Uuid, u64>,
    /// Names in staging that nobody works on, with the size charged: swept after the grace.
    leftovers: BTreeMap<String, u64>,
    /// Entries that were to go and could not be moved: shown to nobody, tried again.
    doomed: BTreeSet<Uuid>,
}

impl Index {
    /// An empty index.
    #[must_use]
    pub const fn new(ceiling: u64) -> Self {
        Self {
            entries: BTreeMap::new(),
            by_age: BTreeSet::new(),
            quota: Quota::new(ceiling),
            active: BTreeMap::new(),
            leftovers: BTreeMap::new(),
            doomed: BTreeSet::new(),
        }
    }

    /// Bytes charged.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.quota.used()
    }

    /// Bytes that may be charged.
    #[must_use]
    pub const fn ceiling(&self) -> u64 {
        self.quota.ceiling()
    }

    /// Bytes that may be charged now; the rest of the ceiling is for others.
    #[must_use]
    pub const fn allowed(&self) -> u64 {
        self.quota.allowed()
    }

    /// From now on so many bytes may be charged, of the ceiling.
    pub const fn allow(&mut self, bytes: u64) {
        self.quota.allow(bytes);
    }

    /// Number of artifacts, finalised or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True without artifacts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// One artifact, unless it is about to go.
    #[must_use]
    pub fn get(&self, id: Uuid) -> Option<&Manifest> {
        self.entries.get(&id).filter(|_| !self.doomed.contains(&id))
    }

    /// Charges a publication before its first byte.
    ///
    /// # Errors
    /// [`NoRoom`]; nothing has changed then.
    pub fn begin(&mut self, id: Uuid, size: u64) -> Result<(), NoRoom> {
        self.quota.reserve(size)?;
        self.active.insert(id, size);
        Ok(())
    }

    /// The publication is in the live namespace: its charge goes over to the entry.
    pub fn publish(&mut self, manifest: Manifest) {
        if self.active.remove(&manifest.id).is_none() {
            self.quota.found(manifest.size_bytes);
        }
        self.by_age.insert(Position::of(&manifest));
        self.entries.insert(manifest.id, manifest);
    }

    /// The publication ended without an entry. What could not be removed stays charged.
    pub fn abandon(&mut self, id: Uuid, removed: bool) {
        if let Some(size) = self.active.remove(&id) {
            self.settle(id, size, removed);
        }
    }

    /// Takes an entry out of sight before its bytes go; [`Index::gone`] or [`Index::doom`] must
    /// follow.
    pub fn hide(&mut self, id: Uuid) -> Option<Manifest> {
        let manifest = self.entries.remove(&id)?;
        self.by_age.remove(&Position::of(&manifest));
        self.active.insert(id, manifest.size_bytes);
        self.doomed.remove(&id);
        Some(manifest)
    }

    /// A hidden entry left the live namespace. What could not be removed stays charged.
    pub fn gone(&mut self, id: Uuid, removed: bool) {
        self.abandon(id, removed);
    }

    /// A hidden entry could not leave the live namespace: it still takes its room.
    pub fn doom(&mut self, manifest: Manifest) {
        self.doomed.insert(manifest.id);
        self.publish(manifest);
    }

    /// Entries that were to go and did not yet.
    #[must_use]
    pub fn doomed(&self) -> Vec<Uuid> {
        self.doomed.iter().copied().collect()
    }

    /// Replaces an entry that was rewritten in place; its times and size are the same.
    pub fn rewrite(&mut self, manifest: Manifest) {
        self.entries.insert(manifest.id, manifest);
    }

    /// Charges what an inventory found and can't use: nobody's, but it takes room.
    pub const fn quarantine(&mut self, size: u64) {
        self.quota.found(size);
    }

    /// Charges a directory in staging that nobody works on.
    pub fn leftover(&mut self, name: String, size: u64) {
        self.quota.found(size);
        self.leftovers.insert(name, size);
    }

    /// Names of the leftovers in staging.
    #[must_use]
    pub fn leftovers(&self) -> Vec<String> {
        self.leftovers.keys().cloned().collect()
    }

    /// A leftover was removed.
    pub fn swept(&mut self, name: &str) {
        if let Some(size) = self.leftovers.remove(name) {
            self.quota.release(size);
        }
    }

    fn settle(&mut self, id: Uuid, size: u64, removed: bool) {
        if removed {
            self.quota.release(size);
        } else {
            self.leftovers.insert(id.to_string(), size);
        }
    }

    /// A page, newest first, and the position to go on from when there is more.
    #[must_use]
    pub fn page(
        &self,
        limit: usize,
        after: Option<Position>,
    ) -> (Vec<&Manifest>, Option<Position>) {
        let older = match after {
            Some(position) => self.by_age.range(..position),
            None => self.by_age.range(..),
        };
        let mut positions: Vec<&Position> = older.rev().take(limit.saturating_add(1)).collect();
        let more = positions.len() > limit;
        positions.truncate(limit);
        let next = if more {
            positions.last().map(|p| **p)
        } else {
            None
        };
        (
            positions
                .iter()
                .filter_map(|p| self.entries.get(&p.id))
                .collect(),
            next,
        )
    }

    /// The files of an app, newest first.
    #[must_use]
    pub fn of_app(&self, app: Uuid) -> Vec<&Manifest> {
        let newest = self.by_age.iter().rev();
        newest
            .filter_map(|p| self.get(p.id))
            .filter(|manifest| manifest.app == Some(app))
            .collect()
    }

    /// What retention removes now, oldest first: what has expired, then what is over the count.
    /// Artifacts of runs that are not finalised are their runs' business and not counted.
    #[must_use]
    pub fn due(&self, retention: &Retention, now: Timestamp) -> Vec<Due> {
        let finalised = || {
            self.by_age
                .iter()
                .filter_map(|p| self.entries.get(&p.id))
                .filter(|m| m.delivery.is_some())
        };
        let alive = finalised().filter(|m| m.expires_at > now).count() as u64;
        let mut excess = alive.saturating_sub(retention.max_count);
        finalised()
            .filter_map(|m| {
                let reason = if m.expires_at <= now {
                    Reason::Expired
                } else if excess > 0 {
                    excess -= 1;
                    Reason::OverCount
                } else {
                    return None;
                };
                Some(Due {
                    id: m.id,
                    size: m.size_bytes,
                    reason,
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::manifest::{Label, integrity_id};
    use crate::quota::charge;
    use ipc_proto::{ConversationId, RunId};
    use proptest::prelude::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).unwrap()
    }

    fn manifest(id: u128, created_ms: i64, finalised: bool) -> Manifest {
        let conversation = ConversationId::parse("c").unwrap();
        let label = Label {
            run_id: RunId::parse("r").unwrap(),
            conversation_id: conversation.clone(),
            name: "n".into(),
            media_type: "text/plain".into(),
            app: None,
        };
        let keep = jiff::SignedDuration::from_secs(100);
        let mut m = Manifest::new(
            Uuid::from_u128(id),
            label,
            5,
            integrity_id(&[0; 32]),
            at(created_ms),
            keep,
        );
        m.delivery = finalised.then_some(conversation);
        m
    }

    fn retention(max_count: u64) -> Retention {
        Retention {
            max_age_days: 1,
            max_count,
            dry_run: false,
        }
    }

    #[test]
    fn charges_follow_a_publication_through_its_life() {
        let mut index = Index::new(3 * charge(5));
        let id = Uuid::from_u128(1);
        index.begin(id, 5).unwrap();
        index.publish(manifest(1, 0, false));
        assert_eq!(index.used(), charge(5));
        assert!(index.hide(id).is_some() && index.get(id).is_none());
        assert_eq!(index.used(), charge(5));
        index.gone(id, true);
        assert_eq!(index.used(), 0);
        // What can't be removed stays charged until it is swept.
        index.begin(id, 5).unwrap();
        index.abandon(id, false);
        assert_eq!(
            (index.used(), index.leftovers()),
            (charge(5), vec![id.to_string()])
        );
        index.swept(&id.to_string());
        index.swept(&id.to_string());
        assert_eq!(index.used(), 0);
        // What can't even be moved keeps its charge and is shown to nobody.
        index.begin(id, 5).unwrap();
        index.publish(manifest(1, 0, true));
        let hidden = index.hide(id).unwrap();
        index.doom(hidden);
        assert_eq!((index.used(), index.doomed()), (charge(5), vec![id]));
        assert!(index.get(id).is_none());
        assert!(index.hide(id).is_some() && index.doomed().is_empty());
        index.gone(id, true);
        assert_eq!(index.used(), 0);
        // What is found counts although there is no room.
        (0..4).for_each(|_| index.quarantine(5));
        assert!(index.begin(id, 0).is_err());
    }

    #[test]
    fn retention_takes_the_expired_and_the_oldest_over_the_count() {
        let mut index = Index::new(u64::MAX);
        for (id, created, finalised) in [
            (1, 0, true),
            (2, 50_000, true),
            (3, 60_000, true),
            (4, 70_000, true),
            (5, 1, false),
        ] {
            index.publish(manifest(id, created, finalised));
        }
        let due = |count, now| {
            let due = index.due(&retention(count), at(now));
            due.iter()
                .map(|due| (due.id.as_u128(), due.reason))
                .collect::<Vec<_>>()
        };
        use Reason::{Expired, OverCount};
        assert_eq!(due(10, 99_999), []);
        assert_eq!(due(10, 100_000), [(1, Expired)]);
        assert_eq!(due(2, 100_000), [(1, Expired), (2, OverCount)]);
        assert_eq!(due(2, 99_999), [(1, OverCount), (2, OverCount)]);
        assert_eq!(due(10, 1_000_000), [1, 2, 3, 4].map(|id| (id, Expired)));
    }

    #[test]
    fn a_cursor_is_only_what_we_wrote() {
        let position = Position {
            created_ms: 12,
            id: Uuid::from_u128(7),
        };
        assert_eq!(Position::parse(&position.cursor()), Some(position));
        for bad in [
            "",
            ".",
            "12.",
            "x.00000000000000000000000000000007",
            "+12.00000000000000000000000000000007",
            "12.7",
        ] {
            assert_eq!(Position::parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn pages_show_everything_once_newest_first(times in prop::collection::vec(0i64..20, 0..60), limit in 1usize..9) {
            let mut index = Index::new(u64::MAX);
            for (n, time) in times.iter().enumerate() {
                index.publish(manifest(n as u128, *time, true));
            }
            let (mut shown, mut after) = (Vec::new(), None);
            loop {
                let (page, next) = index.page(limit, after);
                prop_assert!(page.len() <= limit);
                shown.extend(page.iter().map(|m| (m.created_at.as_millisecond(), m.id)));
                match next {
                    Some(position) => after = Position::parse(&position.cursor()),
                    None => break,
                }
            }
            let mut expected: Vec<_> = times.iter().enumerate().map(|(n, t)| (*t, Uuid::from_u128(n as u128))).collect();
            expected.sort();
            expected.reverse();
            prop_assert_eq!(shown, expected);
        }

        #[test]
        fn retention_leaves_at_most_the_count_and_nothing_expired(times in prop::collection::vec(0i64..300_000, 0..40), count in 1u64..10, now in 0i64..400_000) {
            let mut index = Index::new(u64::MAX);
            for (n, time) in times.iter().enumerate() {
                index.publish(manifest(n as u128, *time, true));
            }
            for due in index.due(&retention(count), at(now)) {
                prop_assert!(index.hide(due.id).is_some());
                index.gone(due.id, true);
            }
            prop_assert!(index.len() as u64 <= count);
            prop_assert!(index.entries.values().all(|m| m.expires_at > at(now)));
            prop_assert_eq!(index.used(), index.len() as u64 * charge(5));
        }
    }
}
