//! The messages of a thread: entered in pairs, the answer changed until it is whole.

use super::threads::{key_of, one, title_of};
use super::{BYTES, THREAD_MESSAGES, cursor, id, page, read_cursor};
use crate::db::Store;
use crate::error::StoreError;
use crate::record::at_most;
use ipc_proto::chat::Usage;
use ipc_proto::console::{
    Activity, Attachment, Author, Begun, Failure, Found, MAX_ACTIVITY, MAX_ATTACHMENTS, MAX_QUEUED,
    MAX_TEXT, Message, Standing, ThreadView,
};
use ipc_proto::reply::{MAX_PARTS, ReplyPart};
use rusqlite::{OptionalExtension, Row, Transaction, params};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What a person reads of an answer whose worker ended.
pub const INTERRUPTED: &str =
    "The answer was interrupted before it was whole. Send the message again.";
/// Messages on one page.
const PAGE: u32 = 100;
/// Bytes of one page; further messages come with the next one.
const PAGE_BYTES: u64 = 16 << 20;
/// Largest detail of a message in bytes.
const DETAIL: usize = 8 << 20;
/// Columns in the order that [`message`] reads.
const COLUMNS: &str = "id, role, created_at, text, status, detail, bytes, key";

/// What of a message has no column of its own.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Detail {
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attachments: Vec<Attachment>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<ReplyPart>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    activity: Vec<Activity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
}

fn detail_of(message: &Message) -> Result<String, StoreError> {
    at_most("text in bytes", message.text.len(), MAX_TEXT)?;
    at_most("attachments", message.attachments.len(), MAX_ATTACHMENTS)?;
    at_most("parts", message.parts.len(), MAX_PARTS)?;
    at_most("activity", message.activity.len(), MAX_ACTIVITY)?;
    let detail = Detail {
        run_id: message.run_id.clone(),
        attachments: message.attachments.clone(),
        parts: message.parts.clone(),
        activity: message.activity.clone(),
        failure: message.failure.clone(),
        usage: message.usage.clone(),
        truncated: message.truncated,
    };
    let json = serde_json::to_string(&detail).map_err(|_| StoreError::Invalid {
        field: "message",
        reason: "it is no JSON",
    })?;
    at_most("message in bytes", json.len(), DETAIL)?;
    Ok(json)
}

/// The message, its size and its key. The inner result is the stored JSON's.
type Read = Result<(Message, u64, i64), StoreError>;

fn message(row: &Row<'_>) -> rusqlite::Result<Read> {
    let (role, status, detail): (String, String, String) = (row.get(1)?, row.get(4)?, row.get(5)?);
    let (bytes, key) = (row.get(6)?, row.get(7)?);
    let mut message = Message {
        id: row.get(0)?,
        role: match role.as_str() {
            "user" => Author::User,
            _ => Author::Assistant,
        },
        created_at: row.get(2)?,
        text: row.get(3)?,
        status: Standing::parse(&status).unwrap_or(Standing::Failed),
        run_id: None,
        attachments: vec![],
        parts: vec![],
        activity: vec![],
        failure: None,
        usage: None,
        truncated: false,
    };
    let detail: Result<Detail, _> = serde_json::from_str(&detail);
    Ok(match detail {
        Ok(detail) => {
            message.run_id = detail.run_id;
            message.attachments = detail.attachments;
            message.parts = detail.parts;
            message.activity = detail.activity;
            message.failure = detail.failure;
            message.usage = detail.usage;
            message.truncated = detail.truncated;
            Ok((message, bytes, key))
        }
        Err(e) => Err(StoreError::Corrupt {
            path: PathBuf::from(crate::place::DATABASE),
            detail: format!("a message of the console: {e}"),
        }),
    })
}

fn insert(
    tx: &Transaction<'_>,
    thread: i64,
    message: &Message,
    lease: i64,
) -> Result<(), StoreError> {
    id("message", &message.id)?;
    let detail = detail_of(message)?;
    let role = match message.role {
        Author::User => "user",
        Author::Assistant => "assistant",
    };
    let added = tx
        .prepare_cached(
            "INSERT INTO console_messages
                 (thread, id, role, status, created_at, text, detail, bytes, lease)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (id) DO NOTHING",
        )?
        .execute(params![
            thread,
            message.id,
            role,
            message.status.name(),
            message.created_at,
            message.text,
            detail,
            message.text.len() + detail.len(),
            lease
        ])?;
    match added {
        1 => Ok(()),
        _ => Err(StoreError::Conflict(format!("message {}", message.id))),
    }
}

/// Refuses what would be too much. The sums are the schema's: they follow every change of a message.
fn refuse_when_full(tx: &Transaction<'_>, thread: i64) -> Result<(), StoreError> {
    let bytes: u64 = tx
        .prepare_cached("SELECT coalesce(sum(bytes), 0) FROM console_threads")?
        .query_row([], |row| row.get(0))?;
    let messages: u64 = tx
        .prepare_cached("SELECT messages FROM console_threads WHERE key = ?1")?
        .query_row([thread], |row| row.get(0))?;
    if bytes > BYTES {
        return Err(StoreError::ConsoleFull("bytes"));
    }
    if messages > THREAD_MESSAGES {
        return Err(StoreError::ConsoleFull("messages of this thread"));
    }
    Ok(())
}

impl Store {
    pub(super) fn begin_reply(
        &mut self,
        thread: &str,
        (user, reply): (&Message, &Message),
        replaces: Option<&str>,
        lease: i64,
        now: i64,
    ) -> Result<Begun, StoreError> {
        let pair = user.role == Author::User && reply.role == Author::Assistant;
        if !(pair && user.status == Standing::Succeeded && reply.status.is_open()) {
            return Err(StoreError::Invalid {
                field: "message",
                reason: "a person's message and an open answer are entered together",
            });
        }
        let tx = self.write()?;
        let key = key_of(&tx, thread)?;
        let open: usize = tx
            .prepare_cached(
                "SELECT count(*) FROM console_messages
                 WHERE thread = ?1 AND status IN ('queued', 'running')",
            )?
            .query_row([key], |row| row.get(0))?;
        // One is answered, the others wait.
        if open > MAX_QUEUED {
            return Err(StoreError::QueueFull);
        }
        if let Some(replaced) = replaces {
            if open > 0 {
                return Err(StoreError::ReplyOpen);
            }
            let from: i64 = tx
                .query_row(
                    "SELECT key FROM console_messages
                     WHERE id = ?1 AND thread = ?2 AND role = 'user'",
                    params![replaced, key],
                    |row| row.get(0),
                )
                .optional()?
                .ok_or(StoreError::NotThere("message"))?;
            tx.execute(
                "DELETE FROM console_messages WHERE thread = ?1 AND key >= ?2",
                params![key, from],
            )?;
            tx.execute(
                "UPDATE console_threads SET branch = branch + 1 WHERE key = ?1",
                [key],
            )?;
        }
        insert(&tx, key, user, lease)?;
        insert(&tx, key, reply, lease)?;
        refuse_when_full(&tx, key)?;
        let fallback = match (title_of(&user.text), user.attachments.first()) {
            (title, Some(file)) if title.is_empty() => title_of(&file.name),
            (title, _) => title,
        };
        tx.execute(
            "UPDATE console_threads SET updated_at = ?2, archived = 0, unread = 0,
                 title = iif(locked OR title <> '', title, ?3) WHERE key = ?1",
            params![key, now, fallback],
        )?;
        let branch = tx.query_row(
            "SELECT branch FROM console_threads WHERE key = ?1",
            [key],
            |row| row.get(0),
        )?;
        tx.commit()?;
        Ok(Begun { branch })
    }

    /// Whoever saves an answer that is not whole holds it from now on: the channel that it was begun
    /// on may be of an earlier life of this process. One that has ended stays so, unless it was this
    /// process that ended it: another channel may have taken it back.
    pub(super) fn save_reply(
        &mut self,
        message: &Message,
        lease: i64,
        now: i64,
    ) -> Result<(), StoreError> {
        let detail = detail_of(message)?;
        let tx = self.write()?;
        let (key, thread, was): (i64, i64, String) = tx
            .query_row(
                "SELECT key, thread, status FROM console_messages
                 WHERE id = ?1 AND role = 'assistant'",
                [&message.id],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .optional()?
            .ok_or(StoreError::NotThere("message"))?;
        let over =
            Standing::parse(&was).is_some_and(|was| !was.is_open() && was != Standing::Interrupted);
        if over && message.status.is_open() {
            return Err(StoreError::Conflict(format!("message {}", message.id)));
        }
        tx.prepare_cached(
            "UPDATE console_messages SET status = ?2, text = ?3, detail = ?4, bytes = ?5, lease = ?6
             WHERE key = ?1",
        )?
        .execute(params![
            key,
            message.status.name(),
            message.text,
            detail,
            message.text.len() + detail.len(),
            lease
        ])?;
        let ended = !message.status.is_open();
        let news = ended && Standing::parse(&was).is_some_and(Standing::is_open);
        tx.execute(
            "UPDATE console_threads SET updated_at = ?2, unread = unread OR ?3 WHERE key = ?1",
            params![thread, now, news && message.status != Standing::Cancelled],
        )?;
        Ok(tx.commit()?)
    }

    /// Enters an answer that comes later, behind whatever stands in the thread. The same message
    /// again changes nothing.
    pub(super) fn deliver(
        &mut self,
        thread: &str,
        message: &Message,
        now: i64,
    ) -> Result<(), StoreError> {
        if message.role != Author::Assistant || message.status != Standing::Succeeded {
            return Err(StoreError::Invalid {
                field: "message",
                reason: "only a whole answer is delivered",
            });
        }
        let tx = self.write()?;
        let key = key_of(&tx, thread)?;
        let before: Option<(i64, String)> = tx
            .query_row(
                "SELECT thread, text FROM console_messages WHERE id = ?1",
                [&message.id],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .optional()?;
        match before {
            Some((known, text)) if known == key && text == message.text => return Ok(()),
            Some(_) => return Err(StoreError::Conflict(format!("message {}", message.id))),
            None => {}
        }
        // It is whole: nobody holds it.
        insert(&tx, key, message, 0)?;
        refuse_when_full(&tx, key)?;
        tx.execute(
            "UPDATE console_threads SET updated_at = ?2, unread = 1 WHERE key = ?1",
            params![key, now],
        )?;
        Ok(tx.commit()?)
    }

    pub(super) fn show_thread(
        &mut self,
        thread: &str,
        before: Option<&str>,
        limit: u32,
    ) -> Result<ThreadView, StoreError> {
        let limit = page(limit, PAGE)?;
        let [before] = match before {
            Some(text) => read_cursor('m', text)?,
            None => [i64::MAX],
        };
        let tx = self.db.transaction()?;
        let key = key_of(&tx, thread)?;
        let shown = one(&tx, key)?;
        let branch = tx.query_row(
            "SELECT branch FROM console_threads WHERE key = ?1",
            [key],
            |row| row.get(0),
        )?;
        let sql = format!(
            "SELECT {COLUMNS} FROM console_messages WHERE thread = ?1 AND key < ?2
             ORDER BY key DESC"
        );
        let mut statement = tx.prepare_cached(&sql)?;
        let mut rows = statement.query(params![key, before])?;
        let (mut messages, mut bytes, mut previous) = (Vec::new(), 0, None);
        let mut last = 0;
        while let Some(row) = rows.next()? {
            let (message, size, key) = message(row)??;
            bytes += size;
            let full = messages.len() == limit as usize || bytes > PAGE_BYTES;
            if full && !messages.is_empty() {
                previous = Some(cursor('m', &[last]));
                break;
            }
            last = key;
            messages.push(message);
        }
        messages.reverse();
        Ok(ThreadView {
            thread: shown,
            messages,
            previous,
            branch,
        })
    }

    pub(super) fn show_message(&mut self, message_id: &str) -> Result<Found, StoreError> {
        let tx = self.db.transaction()?;
        let sql = format!(
            "SELECT {COLUMNS}, (SELECT t.id FROM console_threads AS t WHERE t.key = thread)
             FROM console_messages WHERE id = ?1"
        );
        let (read, thread) = tx
            .prepare_cached(&sql)?
            .query_row([message_id], |row| Ok((message(row)?, row.get(8)?)))
            .optional()?
            .ok_or(StoreError::NotThere("message"))?;
        let (message, ..) = read?;
        Ok(Found { thread, message })
    }

    /// Marks answers that nobody will finish as interrupted: those of one channel, or all of them. Apps
    /// that one had so far go with their run.
    /// Returns how many.
    ///
    /// # Errors
    /// When the database can't be written.
    pub fn interrupt_replies(&mut self, lease: Option<i64>) -> Result<usize, StoreError> {
        let failure = serde_json::json!({ "kind": "interrupted", "message": INTERRUPTED });
        let tx = self.write()?;
        let sql = "UPDATE console_messages SET status = 'interrupted',
                 detail = json_set(detail, '$.failure', json(?1), '$.parts', json('[]')),
                 bytes = octet_length(text) + octet_length(
                     json_set(detail, '$.failure', json(?1), '$.parts', json('[]')))
             WHERE status IN ('queued', 'running') AND (?2 IS NULL OR lease = ?2)";
        let changed = tx.execute(sql, params![failure.to_string(), lease])?;
        tx.commit()?;
        Ok(changed)
    }
}
