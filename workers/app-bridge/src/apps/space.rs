//! The part that apps have of the ceiling which they share with reply files.

use super::handover::refuse_left;
use super::vault::{Books, MAX_RECORDS, Vault, VaultError};
use worker_kit::room::{PIECE, Room};

/// How often room is asked for that others of this worker may take meanwhile.
const TRIES: usize = 8;

impl Vault {
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
