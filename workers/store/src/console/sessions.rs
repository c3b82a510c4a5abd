//! Logins of the console. Their secrets are known as hashes alone.

use super::id;
use crate::db::Store;
use crate::error::StoreError;
use crate::text::cut;
use ipc_proto::console::{MAX_SESSIONS, Session};
use rusqlite::params;

/// What a browser called itself, in bytes. Cut.
const USER_AGENT: usize = 512;

impl Store {
    pub(super) fn sessions(&mut self) -> Result<Vec<Session>, StoreError> {
        let mut statement = self.db.prepare_cached(
            "SELECT id, hash, created_at, last_seen_at, expires_at, user_agent
             FROM console_sessions ORDER BY created_at, id",
        )?;
        let rows = statement.query_map([], |row| {
            Ok(Session {
                id: row.get(0)?,
                hash: row.get(1)?,
                created_at: row.get(2)?,
                last_seen_at: row.get(3)?,
                expires_at: row.get(4)?,
                user_agent: row.get(5)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Above the bound the one that was longest not seen goes.
    pub(super) fn keep_session(&mut self, session: &Session, now: i64) -> Result<(), StoreError> {
        id("session", &session.id)?;
        let hex = session.hash.bytes().all(|b| b.is_ascii_hexdigit());
        if session.hash.len() != 64 || !hex {
            return Err(StoreError::Invalid {
                field: "hash",
                reason: "it is no SHA-256 in hex",
            });
        }
        let tx = self.write()?;
        if session.last_seen_at > session.created_at {
            // News of a session, which may have been ended meanwhile: only a login makes one.
            tx.execute(
                "UPDATE console_sessions SET last_seen_at = ?2 WHERE id = ?1",
                params![session.id, session.last_seen_at],
            )?;
            return Ok(tx.commit()?);
        }
        tx.execute("DELETE FROM console_sessions WHERE expires_at <= ?1", [now])?;
        tx.execute(
            "INSERT INTO console_sessions (id, hash, created_at, last_seen_at, expires_at, user_agent)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (id) DO UPDATE SET last_seen_at = excluded.last_seen_at",
            params![
                session.id,
                session.hash,
                session.created_at,
                session.last_seen_at,
                session.expires_at,
                cut(&session.user_agent, USER_AGENT, "")
            ],
        )?;
        tx.execute(
            "DELETE FROM console_sessions WHERE id NOT IN (
                 SELECT id FROM console_sessions ORDER BY last_seen_at DESC, id LIMIT ?1)",
            [MAX_SESSIONS],
        )?;
        Ok(tx.commit()?)
    }

    pub(super) fn remove_session(&mut self, session: &str) -> Result<(), StoreError> {
        let tx = self.write()?;
        let removed = tx.execute("DELETE FROM console_sessions WHERE id = ?1", [session])?;
        tx.commit()?;
        match removed {
            0 => Err(StoreError::NotThere("session")),
            _ => Ok(()),
        }
    }
}
