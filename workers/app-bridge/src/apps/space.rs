//! The part that apps have of the ceiling which they share with reply files.

use super::books::Books;
use super::handover::refuse_left;
use super::vault::{MAX_RECORDS, Vault, VaultError};
use worker_kit::room::{PIECE, Room};

/// How often room is asked for that others of this worker may take meanwhile.
const TRIES: usize = 8;

/// How much is kept, for an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Records.
    pub records: usize,
    /// Bytes of records, and what things that are left alone are charged with.
    pub payload: u64,
    /// Bytes of audit logs, owed entries with them.
    pub audit: u64,
    /// The bound of both.
    pub ceiling: u64,
    /// Of it, the part of the audit.
    pub reserve: u64,
    /// Things that are left alone.
    pub quarantined: usize,
}

impl Vault {
    /// How much is kept.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let books = self.books();
        Usage {
            records: books.owners.len(),
            payload: books.payload(),
            audit: books.audit(),
            ceiling: self.bounds.ceiling,
            reserve: self.bounds.reserve,
            quarantined: books.quarantined.len(),
        }
    }

    /// Charges a record, with more room where that is needed.
    pub(super) fn reserve(&self, charge: u64) -> Result<(), VaultError> {
        for _ in 0..TRIES {
            {
                let mut books = self.books();
                refuse_left(books.left)?;
                if books.owners.len() >= MAX_RECORDS {
                    return Err(VaultError::Full);
                }
                if self.held(&books) + charge <= books.allowed {
                    books.staged += charge;
                    return Ok(());
                }
            }
            let room = self.room.as_ref().ok_or(VaultError::Full)?;
            let need = || {
                let held = self.held(&self.books());
                (held, held + charge)
            };
            if !room.more(need, |granted| self.books().allowed = granted) {
                return Err(VaultError::Full);
            }
        }
        Err(VaultError::Full)
    }

    /// Bytes of records, and all that may become bytes of logs.
    fn held(&self, books: &Books) -> u64 {
        books.payload() + self.bounds.reserve
    }

    /// Shares the ceiling from now on: beyond what it has, the vault asks for room.
    #[must_use]
    pub fn sharing(mut self, room: Room) -> Self {
        let mut books = self.books();
        books.allowed = self.held(&books);
        drop(books);
        self.room = Some(room);
        self
    }

    /// Says what is held, and gives back what is not. Waits for the supervisor.
    pub fn give_back(&self) {
        let Some(room) = &self.room else { return };
        room.less(|| {
            let mut books = self.books();
            books.allowed = self.held(&books);
            books.allowed
        });
    }

    /// Removes what has expired, and gives back what room that leaves.
    pub fn tidy(&self, now: i64) {
        self.clean(now);
        let spare = {
            let books = self.books();
            books.allowed.saturating_sub(self.held(&books))
        };
        if spare > 2 * PIECE {
            self.give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::quota::Bounds;
    use super::super::vault::tests::{app, folder, id};
    use super::*;
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};

    /// Grants up to a bound, as the supervisor does, and remembers what was said.
    #[derive(Default)]
    struct Account {
        most: AtomicU64,
        said: Mutex<Vec<(u64, u64)>>,
    }

    fn shared(path: &Path, account: &Arc<Account>) -> Vault {
        let account = account.clone();
        let room = Room::asking(Box::new(move |held, wanted| {
            account.said.lock().unwrap().push((held, wanted));
            Some(held.max(wanted.min(account.most.load(Ordering::Relaxed))))
        }));
        let bounds = Bounds {
            reserve: 4_000,
            ..Bounds::default()
        };
        let vault = Vault::with(folder(path), 1_000, bounds, None).unwrap();
        vault.sharing(room)
    }

    fn publish(vault: &Vault, n: usize) -> Result<(), VaultError> {
        vault.publish(&app(n, "<p>"), 1_000)
    }

    #[test]
    fn an_app_is_kept_when_its_last_byte_has_room_and_not_when_it_has_none() {
        let account: Arc<Account> = Arc::default();
        let temp = tempfile::tempdir().unwrap();
        let vault = shared(temp.path(), &account);
        assert!(matches!(publish(&vault, 1), Err(VaultError::Full)));
        account.most.store(PIECE, Ordering::Relaxed);
        publish(&vault, 1).unwrap();
        let one = vault.usage().payload;
        // The pieces that were granted are used before more is asked for.
        publish(&vault, 3).unwrap();
        assert_eq!(account.said.lock().unwrap().len(), 2);
        vault.give_back();
        account.most.store(3 * one + 4_000 - 1, Ordering::Relaxed);
        assert!(matches!(publish(&vault, 5), Err(VaultError::Full)));
        account.most.store(3 * one + 4_000, Ordering::Relaxed);
        publish(&vault, 5).unwrap();
        assert_eq!(vault.usage().records, 3);
    }

    #[test]
    fn what_is_there_is_said_after_a_start_and_what_goes_is_given_back() {
        let account: Arc<Account> = Arc::default();
        account.most.store(u64::MAX, Ordering::Relaxed);
        let temp = tempfile::tempdir().unwrap();
        let vault = shared(temp.path(), &account);
        publish(&vault, 1).unwrap();
        vault.keep("run-1", &[id(1)]).unwrap();
        let held = vault.usage().payload + 4_000;
        drop(vault);
        let vault = shared(temp.path(), &account);
        vault.give_back();
        let last = || *account.said.lock().unwrap().last().unwrap();
        assert_eq!(last(), (held, held));
        // Spare room of less than a few pieces is kept for the next one.
        publish(&vault, 3).unwrap();
        vault.tidy(1_000);
        assert_eq!(last().1, PIECE);
        // What has expired frees room for files.
        let large = app(5, &"x".repeat(3 << 20));
        vault.publish(&large, 1_000).unwrap();
        vault.tidy(i64::MAX);
        assert_eq!((vault.usage().records, last()), (0, (4_000, 4_000)));
    }

    #[test]
    fn two_that_are_published_at_once_both_find_their_room() {
        let account: Arc<Account> = Arc::default();
        account.most.store(u64::MAX, Ordering::Relaxed);
        let temp = tempfile::tempdir().unwrap();
        let vault = shared(temp.path(), &account);
        std::thread::scope(|scope| {
            for n in 0..8 {
                let vault = &vault;
                scope.spawn(move || {
                    vault.publish(&app(n, &"x".repeat(700_000)), 1_000).unwrap();
                });
            }
        });
        assert_eq!(vault.usage().records, 8);
        let books = vault.books();
        assert!(vault.held(&books) <= books.allowed);
    }
}
