//! What has to go, so that what is kept stays bounded (facts 3.2 and 3.5).
//!
//! Two kinds of data: conversations with their history, and the records of runs. A conversation
//! with a running run is never touched, nor is the record of a running run.

use crate::error::StoreError;
use ipc_proto::settings::StoreSettings;
use rusqlite::{Transaction, params};
use std::time::Duration;

/// Records of ended runs that one begin retires at most: keeps a begin short after a long pause.
const RETIRED_AT_ONCE: u32 = 32;
/// Idle conversations that one begin drops at most, for the same reason.
const DROPPED_AT_ONCE: u32 = 32;
/// The schema refuses messages above this, whatever the settings say.
const MESSAGE_CEILING: usize = 64 * 1024;
/// Smallest message bound: room for the text that stands for a message left out.
const MESSAGE_FLOOR: usize = 256;

/// Bounds of everything that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Messages that a run starts from.
    pub history_messages: usize,
    /// Bytes of one message's content as JSON.
    pub message_bytes: usize,
    /// Bytes of all messages of all conversations.
    pub total_bytes: u64,
    /// Conversations.
    pub conversations: u64,
    /// Milliseconds without activity after which a conversation is dropped.
    pub inactive_ms: i64,
    /// Records of runs (facts 1.2, `artifacts.retention.maxCount`).
    pub runs: u64,
    /// Milliseconds after which the record of a run is retired.
    pub run_age_ms: i64,
    /// Pages of 4 KiB in use above which the oldest records of runs are retired early. Well below
    /// the size at which the database refuses to grow.
    pub pages: u64,
    /// Pages of 4 KiB at which the database refuses to grow (1 GiB): stands behind the other
    /// limits, so that a mistake there ends in a typed refusal and not in a full disk.
    pub max_pages: u32,
    /// How long a start waits for the store process before it to let go of the database.
    pub takeover: Duration,
}

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

impl Default for Limits {
    fn default() -> Self {
        Self::from(&StoreSettings::default())
    }
}

impl From<&StoreSettings> for Limits {
    fn from(settings: &StoreSettings) -> Self {
        Self {
            history_messages: settings.history_messages.max(1),
            message_bytes: settings.message_bytes.clamp(MESSAGE_FLOOR, MESSAGE_CEILING),
            total_bytes: settings.total_bytes,
            conversations: settings.conversations.max(1),
            inactive_ms: i64::from(settings.inactivity_days) * DAY_MS,
            runs: 50_000,
            run_age_ms: 365 * DAY_MS,
            pages: 196_608,
            max_pages: 262_144,
            takeover: Duration::from_secs(5),
        }
    }
}

/// Drops conversations without activity and retires old records of runs, a bounded number of each.
pub(crate) fn retire(tx: &Transaction<'_>, limits: &Limits, now: i64) -> Result<(), StoreError> {
    tx.prepare_cached(
        "DELETE FROM conversations WHERE key IN (
             SELECT key FROM conversations AS c WHERE active_at < ?1
             AND NOT EXISTS (SELECT 1 FROM runs WHERE conversation = c.id AND status = 'running')
             ORDER BY active_at, key LIMIT ?2)",
    )?
    .execute(params![
        now.saturating_sub(limits.inactive_ms),
        DROPPED_AT_ONCE
    ])?;
    let pages: u64 = tx.query_row("PRAGMA page_count", [], |row| row.get(0))?;
    let free: u64 = tx.query_row("PRAGMA freelist_count", [], |row| row.get(0))?;
    tx.prepare_cached(
        "DELETE FROM runs WHERE key IN (SELECT key FROM runs ORDER BY key LIMIT ?1)
         AND status <> 'running'
         AND (?2 OR started_at < ?3 OR key <= (SELECT max(key) FROM runs) - ?4)",
    )?
    .execute(params![
        RETIRED_AT_ONCE,
        pages.saturating_sub(free) > limits.pages,
        now.saturating_sub(limits.run_age_ms),
        limits.runs
    ])?;
    Ok(())
}

/// Brings the history back under its limits after something was added to `current`.
///
/// First goes what no run can see any more of `current` itself, then whole other conversations,
/// the longest inactive first.
///
/// # Errors
/// [`StoreError::HistoryFull`] when that is not enough: the caller's change is then rolled back.
pub(crate) fn make_room(
    tx: &Transaction<'_>,
    limits: &Limits,
    current: i64,
) -> Result<(), StoreError> {
    let mut trimmed = false;
    loop {
        let (count, bytes): (u64, u64) = tx
            .prepare_cached("SELECT count(*), coalesce(sum(bytes), 0) FROM conversations")?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let full = if bytes > limits.total_bytes {
            "bytes"
        } else if count > limits.conversations {
            "conversations"
        } else {
            return Ok(());
        };
        if full == "bytes" && !trimmed {
            trimmed = true;
            trim(tx, limits, current)?;
        } else if !evict_one(tx, current)? {
            return Err(StoreError::HistoryFull(full));
        }
    }
}

/// Removes messages of a conversation that are older than any run's window.
fn trim(tx: &Transaction<'_>, limits: &Limits, conversation: i64) -> Result<(), StoreError> {
    tx.execute(
        "DELETE FROM messages WHERE conversation = ?1 AND seq <
             (SELECT next_seq FROM conversations WHERE key = ?1) - ?2",
        params![conversation, limits.history_messages],
    )?;
    tx.execute(
        "UPDATE conversations SET bytes =
             (SELECT coalesce(sum(bytes), 0) FROM messages WHERE conversation = ?1) WHERE key = ?1",
        [conversation],
    )?;
    Ok(())
}

fn evict_one(tx: &Transaction<'_>, current: i64) -> Result<bool, StoreError> {
    let evicted = tx
        .prepare_cached(
            "DELETE FROM conversations WHERE key = (
                 SELECT key FROM conversations AS c WHERE key <> ?1
                 AND NOT EXISTS (SELECT 1 FROM runs WHERE conversation = c.id AND status = 'running')
                 ORDER BY active_at, key LIMIT 1)",
        )?
        .execute([current])?;
    Ok(evicted > 0)
}
