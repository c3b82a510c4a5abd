//! Threads: listed, begun, renamed, put away, removed.

use super::{THREADS, cursor, id, page, read_cursor};
use crate::db::Store;
use crate::error::StoreError;
use ipc_proto::console::{MAX_TITLE, Thread, ThreadPage};
use rusqlite::{OptionalExtension, Row, Transaction, params};

/// Threads on one page.
const PAGE: u32 = 100;
/// Columns in the order that [`thread`] reads.
pub(super) const COLUMNS: &str = "t.id, t.title, t.locked, t.created_at, t.updated_at, t.archived,
    t.unread, EXISTS (SELECT 1 FROM console_messages AS m
        WHERE m.thread = t.key AND m.status IN ('queued', 'running'))";

pub(super) fn thread(row: &Row<'_>) -> rusqlite::Result<Thread> {
    Ok(Thread {
        id: row.get(0)?,
        title: row.get(1)?,
        title_locked: row.get(2)?,
        created_at: row.get(3)?,
        updated_at: row.get(4)?,
        archived: row.get(5)?,
        unread: row.get(6)?,
        running: row.get(7)?,
    })
}

/// The key of a thread.
pub(super) fn key_of(tx: &Transaction<'_>, id: &str) -> Result<i64, StoreError> {
    tx.prepare_cached("SELECT key FROM console_threads WHERE id = ?1")?
        .query_row([id], |row| row.get(0))
        .optional()?
        .ok_or(StoreError::NotThere("thread"))
}

pub(super) fn one(tx: &Transaction<'_>, key: i64) -> Result<Thread, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM console_threads AS t WHERE t.key = ?1");
    Ok(tx.prepare_cached(&sql)?.query_row([key], thread)?)
}

/// A title from what a person typed: one line, no control characters, at most [`MAX_TITLE`]
/// characters.
pub(super) fn title_of(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
    let shown = words.join(" ");
    let mut kept = shown.chars().filter(|c| !c.is_control());
    let mut title: String = kept.by_ref().take(MAX_TITLE).collect();
    if kept.next().is_some() {
        title.pop();
        title.truncate(title.trim_end().len());
        title.push('…');
    }
    title
}

impl Store {
    pub(super) fn threads(
        &mut self,
        archived: bool,
        limit: u32,
        after: Option<&str>,
    ) -> Result<ThreadPage, StoreError> {
        let limit = page(limit, PAGE)?;
        let [at, key] = match after {
            Some(text) => read_cursor('t', text)?,
            None => [i64::MAX, i64::MAX],
        };
        // One more than asked tells whether there is another page.
        let sql = format!(
            "SELECT {COLUMNS}, t.key FROM console_threads AS t
             WHERE t.archived = ?1 AND (t.updated_at, t.key) < (?2, ?3)
             ORDER BY t.updated_at DESC, t.key DESC LIMIT ?4"
        );
        let mut rows = self
            .db
            .prepare_cached(&sql)?
            .query_map(params![archived, at, key, limit + 1], |row| {
                Ok((thread(row)?, row.get::<_, i64>(8)?))
            })?
            .collect::<Result<Vec<_>, _>>()?;
        let more = rows.len() > limit as usize;
        rows.truncate(limit as usize);
        let last = rows.last().filter(|_| more);
        Ok(ThreadPage {
            next: last.map(|(thread, key)| cursor('t', &[thread.updated_at, *key])),
            threads: rows.into_iter().map(|(thread, _)| thread).collect(),
        })
    }

    pub(super) fn new_thread(&mut self, thread: &str, now: i64) -> Result<Thread, StoreError> {
        id("thread", thread)?;
        let tx = self.write()?;
        let count: u64 = tx.query_row("SELECT count(*) FROM console_threads", [], |r| r.get(0))?;
        if count >= THREADS {
            return Err(StoreError::ConsoleFull("threads"));
        }
        let added = tx.execute(
            "INSERT INTO console_threads (id, created_at, updated_at) VALUES (?1, ?2, ?2)
             ON CONFLICT (id) DO NOTHING",
            params![thread, now],
        )?;
        if added == 0 {
            return Err(StoreError::Conflict(format!("thread {thread}")));
        }
        let key = tx.last_insert_rowid();
        let made = one(&tx, key)?;
        tx.commit()?;
        Ok(made)
    }

    pub(super) fn edit_thread(
        &mut self,
        thread: &str,
        title: Option<&str>,
        archived: Option<bool>,
        read: Option<bool>,
    ) -> Result<Thread, StoreError> {
        let title = title.map(title_of);
        if title.as_deref() == Some("") {
            return Err(StoreError::Invalid {
                field: "title",
                reason: "it is empty",
            });
        }
        let tx = self.write()?;
        let key = key_of(&tx, thread)?;
        if let Some(title) = title {
            // A person's title stays: facts 2.9.
            tx.execute(
                "UPDATE console_threads SET title = ?2, locked = 1 WHERE key = ?1",
                params![key, title],
            )?;
        }
        tx.execute(
            "UPDATE console_threads SET archived = coalesce(?2, archived),
                 unread = coalesce(NOT ?3, unread) WHERE key = ?1",
            params![key, archived, read],
        )?;
        let edited = one(&tx, key)?;
        tx.commit()?;
        Ok(edited)
    }

    pub(super) fn remove_thread(&mut self, thread: &str) -> Result<(), StoreError> {
        let tx = self.write()?;
        let key = key_of(&tx, thread)?;
        if one(&tx, key)?.running {
            return Err(StoreError::ReplyOpen);
        }
        tx.execute("DELETE FROM console_threads WHERE key = ?1", [key])?;
        Ok(tx.commit()?)
    }
}

#[cfg(test)]
mod tests {
    use super::title_of;

    #[test]
    fn a_title_is_one_short_line() {
        for (text, title) in [
            ("Hello  there\nsecond", "Hello there"),
            ("\n \n x\u{7}y ", "xy"),
            ("", ""),
            (" \t", ""),
        ] {
            assert_eq!(title_of(text), title);
        }
        assert_eq!(title_of(&"é".repeat(80)), "é".repeat(80));
        let long = title_of(&"é".repeat(81));
        assert_eq!(long.chars().count(), 80);
        assert!(long.ends_with("é…"));
    }
}
