//! All that is known of the records in memory: their places, orders and counts. Nothing here
//! depends on how many there are, but for the logarithm of it.

use crate::meta::{Id, Key, Meta, flag};
use crate::pack::Place;
use continuation_record::{Record, State, Time};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Where the newest version of something stands in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Logged {
    /// The frame.
    pub(crate) frame: u64,
    /// Makes it unique among those of one frame.
    pub(crate) order: u64,
    /// The body of the step in it.
    pub(crate) at: u64,
    /// Its length.
    pub(crate) length: u32,
}

/// One record.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) meta: Meta,
    /// The record itself, as long as it is kept in memory.
    pub(crate) held: Option<Arc<Record>>,
    /// Where it stands in the log, if no checkpoint has it yet.
    pub(crate) logged: Option<Logged>,
    /// Where the last checkpoint put it.
    pub(crate) packed: Option<Place>,
    /// Whether it has a file of its own.
    pub(crate) filed: bool,
}

/// A record that is gone, until a checkpoint knows.
#[derive(Debug, Clone)]
pub(crate) struct Grave {
    pub(crate) frame: u64,
    pub(crate) order: u64,
    pub(crate) packed: Option<Place>,
    pub(crate) filed: bool,
}

/// Numbers that are kept up with every change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records by state, in the order of [`State::ALL`].
    pub states: [usize; 10],
    /// Settled records without payload and text.
    pub compacted: usize,
    /// Delivered captures with their text.
    pub captured_text: usize,
    /// Delivered records that the history does not have.
    pub history_degraded: usize,
}

impl Counts {
    /// So many in a state.
    #[must_use]
    pub fn of(&self, state: State) -> usize {
        self.states[place(state)]
    }

    fn sum(&self, which: impl Fn(State) -> bool) -> usize {
        State::ALL
            .iter()
            .filter(|state| which(**state))
            .map(|state| self.of(*state))
            .sum()
    }

    /// Neither settled nor `delivery_unknown`.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.sum(State::is_pending)
    }

    /// Settled.
    #[must_use]
    pub fn settled(&self) -> usize {
        self.sum(State::is_settled)
    }

    /// Counted against admission: pending, and those that an operator has to resolve.
    #[must_use]
    pub fn active(&self) -> usize {
        self.pending() + self.of(State::DeliveryUnknown)
    }

    /// All.
    #[must_use]
    pub fn records(&self) -> usize {
        self.states.iter().sum()
    }

    fn count(&mut self, meta: &Meta, up: bool) {
        let step = |number: &mut usize, on: bool| {
            if on {
                *number = if up {
                    *number + 1
                } else {
                    number.saturating_sub(1)
                };
            }
        };
        step(&mut self.states[place(meta.state)], true);
        let settled = meta.state.is_settled();
        step(&mut self.compacted, settled && meta.has(flag::COMPACTED));
        step(&mut self.captured_text, meta.has(flag::CAPTURED));
        step(&mut self.history_degraded, meta.has(flag::DEGRADED));
    }
}

fn place(state: State) -> usize {
    State::ALL
        .iter()
        .position(|other| *other == state)
        .unwrap_or(0)
}

type Order = BTreeSet<(Time, Id)>;

#[derive(Debug, Default)]
pub(crate) struct Index {
    slots: HashMap<Id, Slot>,
    claims: HashMap<Key, Id>,
    fingerprints: HashMap<Key, usize>,
    origins: BTreeSet<(Key, Id)>,
    /// All, by creation.
    pages: Order,
    /// Those that something is still to happen to, by creation.
    pending: Order,
    /// The same by their deadline.
    deadlines: Order,
    /// Those that can be worked on, by their last change.
    ready: Order,
    /// Those that can be worked on later, by when.
    waiting: Order,
    /// Settled, by their last change.
    settled: Order,
    /// The same, if they have a text.
    texts: Order,
    pub(crate) counts: Counts,
    /// While the store is read, the orders are not kept; [`Index::sort`] makes them.
    loading: bool,
}

/// Can be worked on, now or at some time.
fn is_candidate(meta: &Meta) -> bool {
    matches!(
        meta.state,
        State::ResultReceived | State::DeliveryRetry | State::ReadyToDeliver
    ) && !meta.has(flag::LEASED)
}

impl Index {
    pub(crate) fn loading() -> Self {
        Self {
            loading: true,
            ..Self::default()
        }
    }

    /// Ends loading.
    pub(crate) fn sort(&mut self) {
        self.loading = false;
        let mut pages = Vec::with_capacity(self.slots.len());
        let mut settled = Vec::with_capacity(self.slots.len());
        let mut others = Vec::new();
        for slot in self.slots.values() {
            let meta = &slot.meta;
            pages.push((meta.created, meta.id.clone()));
            if meta.state.is_settled() {
                settled.push((meta.updated, meta.id.clone()));
            }
            others.push(meta.clone());
        }
        self.pages = pages.into_iter().collect();
        self.settled = settled.into_iter().collect();
        for meta in others {
            self.enter_small(&meta);
        }
    }

    pub(crate) fn get(&self, id: &Id) -> Option<&Slot> {
        self.slots.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: &Id) -> Option<&mut Slot> {
        self.slots.get_mut(id)
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.values()
    }

    pub(crate) fn claim(&self, key: &Key) -> Option<&Id> {
        self.claims.get(key)
    }

    pub(crate) fn active_of(&self, fingerprint: &Key) -> usize {
        self.fingerprints.get(fingerprint).copied().unwrap_or(0)
    }

    /// Puts a record in the place of what has its name.
    pub(crate) fn put(&mut self, slot: Slot) -> Option<Slot> {
        let id = slot.meta.id.clone();
        let old = self.remove(&id);
        self.claims.insert(slot.meta.claim, id.clone());
        self.counts.count(&slot.meta, true);
        if let Some(active) = &slot.meta.active {
            *self.fingerprints.entry(active.fingerprint).or_default() += 1;
        }
        if !self.loading {
            let meta = &slot.meta;
            self.pages.insert((meta.created, id.clone()));
            if meta.state.is_settled() {
                self.settled.insert((meta.updated, id.clone()));
            }
            let meta = slot.meta.clone();
            self.enter_small(&meta);
        }
        self.slots.insert(id, slot);
        old
    }

    fn enter_small(&mut self, meta: &Meta) {
        let id = &meta.id;
        if meta.state.is_settled() && meta.has(flag::TEXT) {
            self.texts.insert((meta.updated, id.clone()));
        }
        let Some(active) = &meta.active else {
            return;
        };
        if meta.state.is_pending() {
            self.pending.insert((meta.created, id.clone()));
            self.deadlines.insert((active.deadline, id.clone()));
            if let Some(origin) = active.origin {
                self.origins.insert((origin, id.clone()));
            }
        }
        if is_candidate(meta) {
            match active.next {
                Some(next) if meta.state != State::ReadyToDeliver => {
                    self.waiting.insert((next, id.clone()));
                }
                _ => {
                    self.ready.insert((meta.updated, id.clone()));
                }
            }
        }
    }

    pub(crate) fn remove(&mut self, id: &Id) -> Option<Slot> {
        let slot = self.slots.remove(id)?;
        let meta = &slot.meta;
        if self.claims.get(&meta.claim) == Some(id) {
            self.claims.remove(&meta.claim);
        }
        self.counts.count(meta, false);
        if let Some(active) = &meta.active
            && let Some(count) = self.fingerprints.get_mut(&active.fingerprint)
        {
            *count -= 1;
            if *count == 0 {
                self.fingerprints.remove(&active.fingerprint);
            }
        }
        if self.loading {
            return Some(slot);
        }
        let at = |time: Time| (time, id.clone());
        self.pages.remove(&at(meta.created));
        if meta.state.is_settled() {
            self.settled.remove(&at(meta.updated));
            self.texts.remove(&at(meta.updated));
        }
        if let Some(active) = &meta.active {
            self.pending.remove(&at(meta.created));
            self.deadlines.remove(&at(active.deadline));
            self.ready.remove(&at(meta.updated));
            if let Some(next) = active.next {
                self.waiting.remove(&at(next));
            }
            if let Some(origin) = active.origin {
                self.origins.remove(&(origin, id.clone()));
            }
        }
        Some(slot)
    }

    /// What can be worked on at this time, oldest change first.
    pub(crate) fn due(&mut self, now: Time, count: usize) -> Vec<Id> {
        while let Some((next, id)) = self.waiting.first()
            && *next <= now
        {
            if let Some(slot) = self.slots.get(id) {
                self.ready.insert((slot.meta.updated, id.clone()));
            }
            self.waiting.pop_first();
        }
        self.ready
            .iter()
            .take(count)
            .map(|(_, id)| id.clone())
            .collect()
    }

    pub(crate) fn next_due(&self) -> Option<Time> {
        self.waiting.first().map(|(next, _)| *next)
    }

    /// Of those that are pending, how many wait for no later time than this.
    pub(crate) fn due_count(&self, now: Time) -> usize {
        let later = self
            .waiting
            .iter()
            .rev()
            .take_while(|(next, _)| *next > now)
            .count();
        self.counts.pending().saturating_sub(later)
    }

    pub(crate) fn past_deadline(&self, now: Time, count: usize) -> Vec<Id> {
        self.deadlines
            .iter()
            .take_while(|(deadline, _)| *deadline <= now)
            .take(count)
            .map(|(_, id)| id.clone())
            .collect()
    }

    pub(crate) fn oldest_pending(&self) -> Option<Time> {
        self.pending.first().map(|(created, _)| *created)
    }

    /// When one of those that are pending changed last.
    pub(crate) fn newest_pending(&self) -> Option<Time> {
        let slots = self.pending.iter().map(|(_, id)| self.slots.get(id));
        slots.flatten().map(|slot| slot.meta.updated).max()
    }

    /// What a start finds unfinished, or waiting for longer than this.
    pub(crate) fn interrupted(&self, longest: Time) -> Vec<Id> {
        let waits = |meta: &Meta| meta.active.as_ref().and_then(|active| active.next);
        self.pending
            .iter()
            .filter(|(_, id)| {
                self.slots.get(id).is_some_and(|slot| {
                    slot.meta.state == State::Synthesizing
                        || slot.meta.flags & (flag::LEASED | flag::SENDING | flag::UNCOMMITTED) != 0
                        || waits(&slot.meta).is_some_and(|next| next > longest)
                })
            })
            .map(|(_, id)| id.clone())
            .collect()
    }

    pub(crate) fn members(&self, origin: Key) -> Vec<Id> {
        // No name of a continuation is empty, so this is before all of the origin.
        let from = (origin, Id::Text("".into()));
        self.origins
            .range(from..)
            .take_while(|(key, _)| *key == origin)
            .map(|(_, id)| id.clone())
            .collect()
    }

    /// Newest first, after this one.
    pub(crate) fn page(&self, after: Option<(Time, Id)>, count: usize) -> Vec<Id> {
        let take = |order: &mut dyn Iterator<Item = &(Time, Id)>| {
            order.take(count).map(|(_, id)| id.clone()).collect()
        };
        match after {
            None => take(&mut self.pages.iter().rev()),
            Some(after) => take(&mut self.pages.range(..after).rev()),
        }
    }

    /// Settled records that are too many or too old, oldest first.
    pub(crate) fn to_remove(&self, max: usize, before: Time, count: usize) -> Vec<Id> {
        over(&self.settled, max, before, count)
    }

    /// Texts of settled records, likewise.
    pub(crate) fn to_strip(&self, max: usize, before: Time, count: usize) -> Vec<Id> {
        over(&self.texts, max, before, count)
    }
}

fn over(order: &Order, max: usize, before: Time, count: usize) -> Vec<Id> {
    let excess = order.len().saturating_sub(max);
    order
        .iter()
        .enumerate()
        .take_while(|(at, (time, _))| *at < excess || *time < before)
        .take(count)
        .map(|(_, (_, id))| id.clone())
        .collect()
}
