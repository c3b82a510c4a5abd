//! Letters: later answers for conversations of the terminal (spec s1, "Synthesis and delivery").
//!
//! A terminal is not there when a background task ends, so its answer is left here, where
//! `monoctl` finds it. That it is entered is its delivery.

use crate::db::Store;
use crate::error::StoreError;
use crate::listing::rfc3339;
use crate::record::{at_most, name};
use ipc_proto::ConversationId;
use ipc_proto::edges::delivery::MAX_TEXT;
use ipc_proto::edges::store::{Letter, LetterPage};
use rusqlite::{OptionalExtension, params};

/// Letters that are kept: the newest.
pub const LETTERS: u64 = 10_000;
/// Bytes of all letters that are kept.
pub const BYTES: u64 = 64 << 20;
/// Letters on one page. Refused above it.
pub const PAGE: u32 = 100;
/// Bytes of one page; further letters come with the next one.
const PAGE_BYTES: usize = 8 << 20;

impl Store {
    /// Leaves a letter. The same key leaves one.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the key was used for another text or conversation, and what
    /// every write may give.
    pub fn leave_letter(
        &mut self,
        conversation: &ConversationId,
        key: &str,
        text: &str,
        now: i64,
    ) -> Result<(), StoreError> {
        name("letter key", key)?;
        at_most("text (bytes)", text.len(), MAX_TEXT)?;
        let tx = self.write()?;
        let before: Option<(String, String)> = tx
            .prepare_cached("SELECT conversation, text FROM letters WHERE key = ?1")?
            .query_row([key], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        if let Some((known, left)) = before {
            return if known == conversation.as_str() && left == text {
                Ok(())
            } else {
                Err(StoreError::Conflict(key.to_owned()))
            };
        }
        tx.prepare_cached(
            "INSERT INTO letters (key, conversation, text, created_at) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![key, conversation.as_str(), text, now])?;
        tx.prepare_cached(
            "DELETE FROM letters WHERE number <= (SELECT max(number) FROM letters) - ?1",
        )?
        .execute([LETTERS])?;
        // The oldest go until the rest fits.
        tx.prepare_cached(
            "DELETE FROM letters WHERE number <= coalesce((SELECT max(number) FROM (
                 SELECT number, sum(octet_length(text)) OVER (ORDER BY number DESC) AS total
                 FROM letters) WHERE total > ?1), 0)",
        )?
        .execute([BYTES])?;
        Ok(tx.commit()?)
    }

    /// Letters after a number, the oldest first.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] for a limit out of range.
    pub fn letters(
        &mut self,
        conversation: Option<&ConversationId>,
        after: u64,
        limit: u32,
    ) -> Result<LetterPage, StoreError> {
        if limit == 0 {
            return Err(StoreError::Invalid {
                field: "limit",
                reason: "it is 0",
            });
        }
        at_most("limit", limit as usize, PAGE as usize)?;
        let tx = self.db.transaction()?;
        let newest = tx.query_row("SELECT coalesce(max(number), 0) FROM letters", [], |row| {
            row.get(0)
        })?;
        let mut statement = tx.prepare_cached(
            "SELECT number, conversation, key, created_at, text FROM letters
             WHERE number > ?1 AND (?2 IS NULL OR conversation = ?2) ORDER BY number LIMIT ?3",
        )?;
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let conversation = conversation.map(ConversationId::as_str);
        let mut rows = statement.query(params![after, conversation, limit])?;
        let (mut letters, mut bytes) = (Vec::new(), 0);
        while let Some(row) = rows.next()? {
            let text: String = row.get(4)?;
            bytes += text.len();
            if bytes > PAGE_BYTES && !letters.is_empty() {
                break;
            }
            letters.push(Letter {
                number: row.get(0)?,
                conversation_id: row.get(1)?,
                delivery_id: row.get(2)?,
                at: rfc3339(row.get(3)?),
                text,
            });
        }
        Ok(LetterPage { letters, newest })
    }
}
