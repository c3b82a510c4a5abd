//! Which warm connections to keep: a pure decision over (who is used, since when, now).
//!
//! A server between two turns of its conversation is kept warm, so that the next turn pays no
//! start and an app's view finds the process that it belongs to. What is in use is never ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Idle connections kept at most, beyond those in use (design/architecture.md, "Processes").
pub const WARM_MAX: usize = 8;
/// An idle connection is ended after this long.
pub const WARM_FOR: Duration = Duration::from_secs(600);

/// Whose a connection is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Everyone's: the server is declared shareable.
    Shared,
    /// Exclusive to this conversation and kept warm between its turns.
    Conversation(String),
    /// Exclusive to this run and ended with it: the server receives the run's context.
    Run(String),
}

/// Which connection: a server and whose.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub server: String,
    pub scope: Scope,
}

impl Key {
    fn is_ordinary(&self) -> bool {
        matches!(self.scope, Scope::Conversation(_))
    }
}

#[derive(Debug, Clone)]
struct Place {
    /// Runs that hold it.
    holders: BTreeSet<String>,
    idle_since: Instant,
}

/// The books of all connections; holds no connection itself.
#[derive(Debug, Default)]
pub struct Shelf {
    places: BTreeMap<Key, Place>,
}

impl Shelf {
    /// `run` uses `key` from now until it is released.
    pub fn hold(&mut self, key: &Key, run: &str, now: Instant) {
        self.places
            .entry(key.clone())
            .or_insert_with(|| Place {
                holders: BTreeSet::new(),
                idle_since: now,
            })
            .holders
            .insert(run.to_owned());
    }

    /// `run` has ended: it holds nothing any more.
    pub fn release(&mut self, run: &str, now: Instant) {
        for place in self.places.values_mut() {
            if place.holders.remove(run) && place.holders.is_empty() {
                place.idle_since = now;
            }
        }
    }

    /// The connection is gone.
    pub fn forget(&mut self, key: &Key) {
        self.places.remove(key);
    }

    /// Connections to end now, longest idle first. They are forgotten.
    #[must_use]
    pub fn sweep(&mut self, now: Instant) -> Vec<Key> {
        let mut idle: Vec<(Instant, Key)> = self
            .places
            .iter()
            .filter(|(_, place)| place.holders.is_empty())
            .map(|(key, place)| (place.idle_since, key.clone()))
            .collect();
        idle.sort();
        // A shared server serves everyone; only its idle time ends it.
        let crowd = idle.iter().filter(|(_, key)| key.is_ordinary());
        let mut surplus = crowd.count().saturating_sub(WARM_MAX);
        let mut out = Vec::new();
        for (since, key) in idle {
            let over = matches!(key.scope, Scope::Run(_));
            let expired = now.saturating_duration_since(since) >= WARM_FOR;
            let crowded = key.is_ordinary() && surplus > 0;
            if !(over || expired || crowded) {
                continue;
            }
            surplus = surplus.saturating_sub(usize::from(key.is_ordinary()));
            self.places.remove(&key);
            out.push(key);
        }
        out
    }

    /// When the next idle connection expires, if any is idle.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.places
            .values()
            .filter(|place| place.holders.is_empty())
            .map(|place| place.idle_since + WARM_FOR)
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> Key {
        Key {
            server: "s".into(),
            scope: Scope::Conversation(format!("c{n}")),
        }
    }

    fn shared() -> Key {
        Key {
            server: "s".into(),
            scope: Scope::Shared,
        }
    }

    #[test]
    fn the_ninth_idle_connection_ends_the_longest_idle() {
        let t = Instant::now();
        let mut shelf = Shelf::default();
        for n in 0..=WARM_MAX {
            shelf.hold(&key(n), &format!("r{n}"), t);
        }
        for n in 0..=WARM_MAX {
            shelf.release(&format!("r{n}"), t + Duration::from_millis(n as u64));
        }
        assert_eq!(shelf.sweep(t + Duration::from_secs(1)), [key(0)]);
        assert!(shelf.sweep(t + Duration::from_secs(1)).is_empty());
    }

    #[test]
    fn what_is_in_use_is_never_ended_however_many() {
        let t = Instant::now();
        let mut shelf = Shelf::default();
        for n in 0..50 {
            shelf.hold(&key(n), "r", t);
        }
        assert!(shelf.sweep(t + 10 * WARM_FOR).is_empty());
        assert_eq!(shelf.next_expiry(), None);
    }

    #[test]
    fn ten_idle_minutes_end_a_connection_shared_or_not() {
        let t = Instant::now();
        let mut shelf = Shelf::default();
        for k in [key(1), shared()] {
            shelf.hold(&k, "r", t);
        }
        shelf.release("r", t);
        let idle = Duration::from_secs(10 * 60);
        let just_before = t + idle - Duration::from_millis(1);
        assert!(shelf.sweep(just_before).is_empty());
        assert_eq!(shelf.next_expiry(), Some(t + idle));
        assert_eq!(shelf.sweep(t + idle).len(), 2);
    }

    #[test]
    fn a_shared_server_is_held_until_its_last_run_ends_and_does_not_count_as_crowd() {
        let t = Instant::now();
        let mut shelf = Shelf::default();
        shelf.hold(&shared(), "a", t);
        shelf.hold(&shared(), "b", t);
        shelf.release("a", t);
        assert!(shelf.sweep(t + WARM_FOR).is_empty());
        shelf.release("b", t);
        for n in 0..WARM_MAX {
            shelf.hold(&key(n), "r", t);
        }
        shelf.release("r", t + Duration::from_secs(1));
        assert!(shelf.sweep(t + Duration::from_secs(2)).is_empty());
    }

    #[test]
    fn a_server_of_one_run_ends_with_the_run() {
        let t = Instant::now();
        let own = Key {
            server: "s".into(),
            scope: Scope::Run("r".into()),
        };
        let mut shelf = Shelf::default();
        shelf.hold(&own, "r", t);
        assert!(shelf.sweep(t).is_empty());
        shelf.release("r", t);
        assert_eq!(shelf.sweep(t), [own]);
    }

    #[test]
    fn a_new_run_of_the_conversation_takes_it_off_the_idle_list() {
        let t = Instant::now();
        let mut shelf = Shelf::default();
        shelf.hold(&key(1), "first", t);
        shelf.release("first", t);
        shelf.hold(&key(1), "second", t + Duration::from_secs(599));
        assert!(shelf.sweep(t + WARM_FOR).is_empty());
        shelf.release("second", t + WARM_FOR);
        assert_eq!(shelf.next_expiry(), Some(t + 2 * WARM_FOR));
    }
}
