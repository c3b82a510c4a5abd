//! Who waits for what: requests of several callers to one server, under numbers of our own.
//!
//! Pure but for the channel of our own questions.

use std::collections::HashMap;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Names a caller of one server.
pub type CallerId = u64;

/// What a request is, as far as its answer is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// Its answer passes.
    Plain,
    /// A listing of tools: the first page, or another.
    List {
        /// No cursor was given.
        first: bool,
    },
    /// A call of a tool, where apps are shown.
    Call {
        /// The tool.
        tool: String,
        /// Its arguments as JSON.
        arguments: String,
    },
}

/// A request of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Who.
    pub caller: CallerId,
    /// Its own id as it wrote it.
    pub id: String,
    /// What.
    pub shape: Shape,
    /// Its own progress token as it wrote it.
    pub token: Option<String>,
}

/// The answer to a question of our own: a result or an error, as JSON.
pub type Told = Result<String, String>;

/// Who waits.
#[derive(Debug)]
pub enum Waits {
    /// A caller.
    Caller(Asked),
    /// We do.
    Own(oneshot::Sender<Told>),
}

/// Why a request is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Taken {
    /// The caller's id is in use.
    #[error("the id is in use")]
    InUse,
    /// Too many are under way.
    #[error("too many requests are under way")]
    TooMany,
}

/// What is outstanding at one server.
#[derive(Debug, Default)]
pub struct Ledger {
    last: u64,
    pending: HashMap<u64, (Waits, Instant)>,
    numbers: HashMap<(CallerId, String), u64>,
}

impl Ledger {
    /// Takes a caller's request; its number is its id and its progress token at the server.
    ///
    /// # Errors
    /// [`Taken`].
    pub fn enter(&mut self, asked: Asked, most: usize, now: Instant) -> Result<u64, Taken> {
        let key = (asked.caller, asked.id.clone());
        if self.numbers.contains_key(&key) {
            return Err(Taken::InUse);
        }
        let own = self
            .numbers
            .keys()
            .filter(|(caller, _)| *caller == asked.caller);
        if own.count() >= most {
            return Err(Taken::TooMany);
        }
        let number = self.number();
        self.numbers.insert(key, number);
        self.pending.insert(number, (Waits::Caller(asked), now));
        Ok(number)
    }

    /// Takes a question of our own.
    pub fn own(&mut self, tell: oneshot::Sender<Told>, now: Instant) -> u64 {
        let number = self.number();
        self.pending.insert(number, (Waits::Own(tell), now));
        number
    }

    /// The number of the request that is entered next.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.last + 1
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The server has answered: who waited, if somebody still does.
    pub fn take(&mut self, number: u64) -> Option<Waits> {
        let (waits, _) = self.pending.remove(&number)?;
        if let Waits::Caller(asked) = &waits {
            self.numbers.remove(&(asked.caller, asked.id.clone()));
        }
        Some(waits)
    }

    /// The number of a caller's request.
    #[must_use]
    pub fn find(&self, caller: CallerId, id: &str) -> Option<u64> {
        self.numbers.get(&(caller, id.to_owned())).copied()
    }

    /// Who hears of a request's progress, and under which token.
    #[must_use]
    pub fn progress(&self, number: u64) -> Option<(CallerId, &str)> {
        match &self.pending.get(&number)?.0 {
            Waits::Caller(asked) => Some((asked.caller, asked.token.as_deref()?)),
            Waits::Own(_) => None,
        }
    }

    /// A caller is gone: the numbers of what it waited for.
    pub fn forget(&mut self, caller: CallerId) -> Vec<u64> {
        let own = self.numbers.extract_if(|(whose, _), _| *whose == caller);
        let mut numbers: Vec<u64> = own.map(|(_, number)| number).collect();
        numbers.sort_unstable();
        for number in &numbers {
            self.pending.remove(number);
        }
        numbers
    }

    /// Everybody who waits; nobody does any more.
    pub fn drain(&mut self) -> Vec<Waits> {
        self.numbers.clear();
        let mut all: Vec<_> = self.pending.drain().collect();
        all.sort_unstable_by_key(|(number, _)| *number);
        all.into_iter().map(|(_, (waits, _))| waits).collect()
    }

    /// When the oldest request came that is not answered.
    #[must_use]
    pub fn oldest(&self) -> Option<Instant> {
        self.pending.values().map(|(_, since)| *since).min()
    }

    /// Requests that are not answered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// True when nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn asked(caller: CallerId, id: &str) -> Asked {
        Asked {
            caller,
            id: id.to_owned(),
            shape: Shape::Plain,
            token: Some(format!("\"{caller}-{id}\"")),
        }
    }

    #[test]
    fn two_callers_may_use_the_same_id() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        let one = ledger.enter(asked(1, "7"), 9, now).unwrap();
        let two = ledger.enter(asked(2, "7"), 9, now).unwrap();
        assert!(one != two);
        assert_eq!(ledger.enter(asked(1, "7"), 9, now), Err(Taken::InUse));
        // Not the number 7: ids are compared as they are written.
        assert!(ledger.enter(asked(1, "\"7\""), 9, now).is_ok());
        assert_eq!(ledger.progress(two), Some((2, "\"2-7\"")));
        assert_eq!(ledger.find(2, "7"), Some(two));
        assert!(matches!(ledger.take(two), Some(Waits::Caller(a)) if a.caller == 2));
        assert!(ledger.take(two).is_none() && ledger.progress(two).is_none());
        assert_eq!(ledger.find(2, "7"), None);
    }

    #[test]
    fn one_caller_has_a_bound_of_its_own() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        ledger.enter(asked(1, "1"), 2, now).unwrap();
        ledger.enter(asked(1, "2"), 2, now).unwrap();
        assert_eq!(ledger.enter(asked(1, "3"), 2, now), Err(Taken::TooMany));
        assert!(ledger.enter(asked(2, "3"), 2, now).is_ok());
    }

    #[test]
    fn a_caller_that_goes_leaves_the_others_theirs() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        let mine = ledger.enter(asked(1, "1"), 9, now).unwrap();
        let theirs = ledger.enter(asked(2, "1"), 9, now).unwrap();
        let (tell, _told) = oneshot::channel();
        let own = ledger.own(tell, now);
        assert_eq!(ledger.forget(1), [mine]);
        assert!(ledger.take(mine).is_none());
        assert_eq!(ledger.len(), 2);
        assert!(ledger.take(theirs).is_some() && ledger.take(own).is_some());
        assert!(ledger.is_empty() && ledger.oldest().is_none());
    }

    proptest! {
        /// Each answer goes to the one who asked, whatever the order.
        #[test]
        fn answers_find_their_callers(
            requests in proptest::collection::vec((0u64..4, 0u32..20), 0..60),
            order in any::<prop::sample::Index>(),
        ) {
            let (mut ledger, now) = (Ledger::default(), Instant::now());
            let mut open = vec![];
            for (caller, id) in requests {
                if let Ok(number) = ledger.enter(asked(caller, &id.to_string()), 100, now) {
                    open.push((number, caller, id));
                }
            }
            if !open.is_empty() {
                let by = order.index(open.len());
                open.rotate_left(by);
            }
            for (number, caller, id) in open {
                let Some(Waits::Caller(found)) = ledger.take(number) else { panic!() };
                prop_assert_eq!((found.caller, found.id), (caller, id.to_string()));
            }
            prop_assert!(ledger.is_empty());
        }
    }
}
