//! Conversations, their messages, and the fence around what a provider remembers of them.

use crate::error::StoreError;
use crate::history::{self, Entry};
use crate::retention::Limits;
use ipc_proto::chat::ChatMessage;
use ipc_proto::rooms::TERMINAL;
use rusqlite::{OptionalExtension, Transaction, params};
use std::path::PathBuf;

/// What a conversation's session stands at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) epoch: String,
    pub(crate) revision: u64,
}

/// The conversation's key, if it exists.
pub(crate) fn find(tx: &Transaction<'_>, id: &str) -> Result<Option<i64>, StoreError> {
    Ok(tx
        .prepare_cached("SELECT key FROM conversations WHERE id = ?1")?
        .query_row([id], |row| row.get(0))
        .optional()?)
}

/// The conversation's key; made where it doesn't exist; active from `now` on.
pub(crate) fn enter(tx: &Transaction<'_>, id: &str, now: i64) -> Result<i64, StoreError> {
    let key = tx
        .prepare_cached(
            "INSERT INTO conversations (id, created_at, active_at) VALUES (?1, ?2, ?2)
             ON CONFLICT (id) DO UPDATE SET active_at = max(active_at, excluded.active_at)
             RETURNING key",
        )?
        .query_row(params![id, now], |row| row.get(0))?;
    tx.prepare_cached(
        "INSERT INTO provider_sessions (conversation, epoch) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
    )?
    .execute(params![key, new_epoch()])?;
    Ok(key)
}

/// Lets `source` go on in a conversation: who began it, and the operator. One that has no owner yet
/// gets it; where runs of that name are still on record, their source, since their account is told.
///
/// # Errors
/// [`StoreError::Taken`] for anyone else.
pub(crate) fn claim(tx: &Transaction<'_>, key: i64, source: &str) -> Result<(), StoreError> {
    let owner: Option<String> = tx
        .prepare_cached(
            "SELECT coalesce(owner, (SELECT source FROM runs WHERE conversation = c.id
                 ORDER BY source = ?2, key DESC LIMIT 1))
             FROM conversations AS c WHERE key = ?1",
        )?
        .query_row(params![key, TERMINAL], |row| row.get(0))?;
    let owner = owner.unwrap_or_else(|| source.to_owned());
    if owner != source && source != TERMINAL {
        return Err(StoreError::Taken);
    }
    tx.prepare_cached("UPDATE conversations SET owner = ?2 WHERE key = ?1 AND owner IS NULL")?
        .execute(params![key, owner])?;
    Ok(())
}

/// Sets the dirty fence for `run` (facts 3.2): from here to its commit, what a provider remembers
/// may differ from the history. A fence left by a run that ended without a commit is doubt, and
/// doubt is a new epoch.
///
/// # Errors
/// [`StoreError::ConversationBusy`] when the fence belongs to a run that has not ended.
pub(crate) fn fence(
    tx: &Transaction<'_>,
    key: i64,
    run: &str,
    now: i64,
) -> Result<Session, StoreError> {
    let (mut epoch, revision, dirty, busy): (String, u64, Option<String>, bool) = tx
        .prepare_cached(
            "SELECT epoch, revision, dirty, EXISTS (
                 SELECT 1 FROM runs WHERE id = provider_sessions.dirty AND status = 'running')
             FROM provider_sessions WHERE conversation = ?1",
        )?
        .query_row([key], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })?;
    if let Some(holder) = dirty {
        if busy {
            return Err(StoreError::ConversationBusy(holder));
        }
        epoch = new_epoch();
    }
    tx.prepare_cached(
        "UPDATE provider_sessions SET epoch = ?2, dirty = ?3, dirty_since = ?4 WHERE conversation = ?1",
    )?
    .execute(params![key, epoch, run, now])?;
    Ok(Session { epoch, revision })
}

/// Counts the history's change by `run` and lifts its fence. When the history changed under the
/// run, its provider session misses that change: a new epoch.
pub(crate) fn settle(
    tx: &Transaction<'_>,
    key: i64,
    run: &str,
    base: u64,
) -> Result<u64, StoreError> {
    Ok(tx
        .prepare_cached(
            "UPDATE provider_sessions SET
                 epoch = CASE WHEN revision = ?3 AND dirty = ?2 THEN epoch ELSE ?4 END,
                 revision = revision + 1, dirty = NULL, dirty_since = NULL
             WHERE conversation = ?1 RETURNING revision",
        )?
        .query_row(params![key, run, base, new_epoch()], |row| row.get(0))?)
}

/// Counts a change of the history that no provider session knows of.
pub(crate) fn disturb(tx: &Transaction<'_>, key: i64) -> Result<u64, StoreError> {
    Ok(tx
        .prepare_cached(
            "UPDATE provider_sessions SET epoch = ?2, revision = revision + 1
             WHERE conversation = ?1 RETURNING revision",
        )?
        .query_row(params![key, new_epoch()], |row| row.get(0))?)
}

/// The history's revision.
pub(crate) fn revision(tx: &Transaction<'_>, key: i64) -> Result<u64, StoreError> {
    Ok(tx
        .prepare_cached("SELECT revision FROM provider_sessions WHERE conversation = ?1")?
        .query_row([key], |row| row.get(0))?)
}

/// Appends messages, each brought to the history's bound.
pub(crate) fn append(
    tx: &Transaction<'_>,
    limits: &Limits,
    key: i64,
    turn: &str,
    messages: &[ChatMessage],
    now: i64,
) -> Result<(), StoreError> {
    let mut seq: i64 = tx
        .prepare_cached("SELECT next_seq FROM conversations WHERE key = ?1")?
        .query_row([key], |row| row.get(0))?;
    let mut added: u64 = 0;
    let mut insert = tx.prepare_cached(
        "INSERT INTO messages (conversation, seq, turn, role, content, bytes, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, octet_length(?5), ?6)",
    )?;
    for message in messages {
        let content = history::fit(&message.content, limits.message_bytes);
        let json = serde_json::to_string(&content).map_err(|_| StoreError::Invalid {
            field: "a message",
            reason: "it is no JSON",
        })?;
        added += json.len() as u64;
        insert.execute(params![
            key,
            seq,
            turn,
            history::role_name(message.role),
            json,
            now
        ])?;
        seq += 1;
    }
    tx.prepare_cached(
        "UPDATE conversations SET next_seq = ?2, bytes = bytes + ?3, active_at = max(active_at, ?4)
         WHERE key = ?1",
    )?
    .execute(params![key, seq, added, now])?;
    Ok(())
}

/// The newest whole turns, oldest first ([`history::window`]).
pub(crate) fn latest(
    tx: &Transaction<'_>,
    limits: &Limits,
    key: i64,
) -> Result<Vec<Entry>, StoreError> {
    let max = limits.history_messages;
    let mut entries = tx
        .prepare_cached(
            "SELECT turn, role, content, created_at FROM messages WHERE conversation = ?1
             ORDER BY seq DESC LIMIT ?2",
        )?
        .query_map(params![key, max + 1], raw_entry)?
        .map(|row| row.map_err(StoreError::from).and_then(entry))
        .collect::<Result<Vec<_>, _>>()?;
    entries.reverse();
    // One turn that alone is over the bound: what the person said stands before what was loaded.
    if let [first, rest @ ..] = entries.as_mut_slice()
        && rest.len() == max
        && rest.iter().all(|entry| entry.turn == first.turn)
    {
        let opening = tx
            .prepare_cached(
                "SELECT turn, role, content, created_at FROM messages WHERE conversation = ?1 AND turn = ?2
                 ORDER BY seq LIMIT 1",
            )?
            .query_row(params![key, first.turn], raw_entry)?;
        *first = entry(opening)?;
    }
    Ok(history::window(&entries, max))
}

type RawEntry = (String, String, String, i64);

fn raw_entry(row: &rusqlite::Row<'_>) -> rusqlite::Result<RawEntry> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
}

/// A message that was written by us and can't be read any more is damage.
fn entry((turn, role, content, at): RawEntry) -> Result<Entry, StoreError> {
    let damage = |detail: String| StoreError::Corrupt {
        path: PathBuf::from(crate::place::DATABASE),
        detail,
    };
    let role =
        history::role_of(&role).ok_or_else(|| damage(format!("a message of role {role}")))?;
    let content =
        serde_json::from_str(&content).map_err(|e| damage(format!("a message's content: {e}")))?;
    Ok(Entry {
        turn,
        at,
        message: ChatMessage { role, content },
    })
}

/// Random: a counter could repeat after a restored backup and make an old session look current.
fn new_epoch() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}
