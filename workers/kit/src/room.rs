//! The part that this worker has of the room for durable bytes of rich replies, which two owners
//! share (spec s0, "Lifetime and limits"). The supervisor, which outlives both, keeps the account.

use crate::control::Control;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use tokio::runtime::Handle;

/// Room is asked for and given back in such pieces, so that not every file is a question.
pub const PIECE: u64 = 1 << 20;

/// Bytes held and wanted to bytes granted; none when nobody answers.
type Ask = Box<dyn Fn(u64, u64) -> Option<u64> + Send + Sync>;

/// Asks for room and gives it back. Every call waits for the supervisor: none belongs on a loop.
pub struct Room {
    ask: Ask,
    // Answers are applied in the order in which they were asked for.
    asking: Mutex<()>,
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").finish_non_exhaustive()
    }
}

/// The next whole piece.
#[must_use]
pub const fn whole(bytes: u64) -> u64 {
    match bytes.checked_next_multiple_of(PIECE) {
        Some(whole) => whole,
        None => u64::MAX,
    }
}

impl Room {
    /// Room that the supervisor grants. To be called within a runtime.
    #[must_use]
    pub fn of(control: Control) -> Self {
        let runtime = Handle::current();
        Self::asking(Box::new(move |held, wanted| {
            let granted = runtime.block_on(control.room(held, wanted));
            granted
                .inspect_err(|error| tracing::warn!("no room was granted: {error}"))
                .ok()
        }))
    }

    /// Room that somebody else grants.
    #[must_use]
    pub fn asking(ask: Ask) -> Self {
        Self {
            ask,
            asking: Mutex::new(()),
        }
    }

    /// Asks for more. `need` says how much is held and how much is needed in all; `apply` is told
    /// how much there may be from now on. False when that is not enough, or nobody answered.
    pub fn more(&self, need: impl FnOnce() -> (u64, u64), apply: impl FnOnce(u64)) -> bool {
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let (held, needed) = need();
        let Some(granted) = (self.ask)(held, whole(needed)) else {
            return false;
        };
        apply(granted);
        granted >= needed
    }

    /// Says what is held, and keeps no more. `shrink` sets the own bound to what it returns, so
    /// that nothing grows into what is given back meanwhile.
    pub fn less(&self, shrink: impl FnOnce() -> u64) {
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let held = shrink();
        // Unanswered, the account says more than is held, which is safe.
        let _ = (self.ask)(held, held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn room_is_asked_for_in_whole_pieces_and_less_is_enough_where_it_is() {
        let asked: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
        let seen = asked.clone();
        let left = Arc::new(AtomicU64::new(10 * PIECE));
        let most = left.clone();
        let room = Room::asking(Box::new(move |held, wanted| {
            if let Ok(mut asked) = seen.lock() {
                asked.push((held, wanted));
            }
            Some(held.max(wanted.min(most.load(Ordering::Relaxed))))
        }));
        let bound = AtomicU64::new(0);
        let more = |held, needed| {
            room.more(
                || (held, needed),
                |granted| bound.store(granted, Ordering::Relaxed),
            )
        };
        assert!(more(0, 1));
        assert_eq!(bound.load(Ordering::Relaxed), PIECE);
        left.store(PIECE + 10, Ordering::Relaxed);
        assert!(more(PIECE, PIECE + 10) && !more(PIECE, PIECE + 11));
        room.less(|| 5);
        let all = asked.lock().map(|asked| asked.clone()).unwrap_or_default();
        let two = 2 * PIECE;
        assert_eq!(all, [(0, PIECE), (PIECE, two), (PIECE, two), (5, 5)]);
    }

    #[test]
    fn without_an_answer_there_is_no_room() {
        let room = Room::asking(Box::new(|_, _| None));
        assert!(!room.more(|| (0, 1), |_| unreachable!("nothing was granted")));
        assert_eq!((whole(0), whole(1), whole(u64::MAX)), (0, PIECE, u64::MAX));
    }
}
