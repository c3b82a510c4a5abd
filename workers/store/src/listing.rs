//! Runs as an operator sees them.

use crate::db::Store;
use crate::error::StoreError;
use crate::history::role_of;
use crate::record::{self, Status};
use ipc_proto::chat::ChatRole;
use ipc_proto::edges::store::{MessageRecord, RunPage, RunRecord, ToolRecord};
use ipc_proto::{ConversationId, RunId};
use rusqlite::types::ToSql;
use rusqlite::{OptionalExtension, Row, params};
use std::path::PathBuf;

/// Which runs to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Only this conversation.
    pub conversation: Option<ConversationId>,
    /// Only this status.
    pub status: Option<Status>,
    /// 1 to [`record::PAGE`].
    pub limit: u32,
    /// From an earlier page.
    pub cursor: Option<String>,
}

/// Columns of a listing, in the order that [`summary`] reads.
const SUMMARY: &str = "key, id, conversation, status, source, source_detail, model, started_at,
    ended_at, failure_kind, error, usage, failovers";

impl Store {
    /// One page of runs, newest first. Pages don't shift when runs begin in between.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] for a limit out of range or a cursor that is none of ours.
    pub fn list_runs(&mut self, query: &Query) -> Result<RunPage, StoreError> {
        if query.limit == 0 {
            return Err(StoreError::Invalid {
                field: "limit",
                reason: "it is 0",
            });
        }
        record::at_most("limit", query.limit as usize, record::PAGE as usize)?;
        let before = query.cursor.as_deref().map(decode).transpose()?;
        let mut filters = Vec::new();
        let mut values: Vec<Box<dyn ToSql>> = Vec::new();
        let mut filter = |column: &str, value: Box<dyn ToSql>| {
            values.push(value);
            filters.push(format!("{column} ?{}", values.len()));
        };
        if let Some(key) = before {
            filter("key <", Box::new(key));
        }
        if let Some(conversation) = &query.conversation {
            filter("conversation =", Box::new(conversation.as_str().to_owned()));
        }
        if let Some(status) = query.status {
            filter("status =", Box::new(status));
        }
        let clause = if filters.is_empty() {
            String::new()
        } else {
            format!("WHERE {}", filters.join(" AND "))
        };
        // One more than asked tells whether there is another page.
        let sql = format!(
            "SELECT {SUMMARY} FROM runs {clause} ORDER BY key DESC LIMIT {}",
            query.limit + 1
        );
        let mut statement = self.db.prepare_cached(&sql)?;
        let mut rows = statement
            .query_map(rusqlite::params_from_iter(values), summary)?
            .map(|row| row.map_err(StoreError::from)?)
            .collect::<Result<Vec<_>, StoreError>>()?;
        let more = rows.len() > query.limit as usize;
        rows.truncate(query.limit as usize);
        let next_cursor = rows.last().filter(|_| more).map(|(key, _)| encode(*key));
        Ok(RunPage {
            runs: rows.into_iter().map(|(_, run)| run).collect(),
            next_cursor,
        })
    }

    /// Everything about one run; `None` when there is no record of it.
    ///
    /// # Errors
    /// When the database can't be read.
    pub fn show_run(&mut self, run: &RunId) -> Result<Option<RunRecord>, StoreError> {
        let tx = self.db.transaction()?;
        let sql = format!("SELECT {SUMMARY}, final_text, parts FROM runs WHERE id = ?1");
        let found = tx
            .prepare_cached(&sql)?
            .query_row([run.as_str()], |row| {
                let text: Option<String> = row.get(13)?;
                let parts: Option<String> = row.get(14)?;
                Ok((summary(row)?, text, parts))
            })
            .optional()?;
        let Some((summary, text, parts)) = found else {
            return Ok(None);
        };
        let (key, mut record) = summary?;
        record.text = text;
        record.parts = parsed("parts", parts)?;
        record.tools = tx
            .prepare_cached(
                "SELECT call, name, state, completed_at - started_at, started_at, arguments, preview
                 FROM tool_calls WHERE run = ?1 ORDER BY position",
            )?
            .query_map(params![key], |row| {
                Ok(ToolRecord {
                    id: row.get(0)?,
                    name: row.get(1)?,
                    state: row.get(2)?,
                    duration_ms: row.get::<_, Option<i64>>(3)?.map(elapsed),
                    started_at: Some(rfc3339(row.get(4)?)),
                    arguments: row.get(5)?,
                    preview: row.get(6)?,
                })
            })?
            .collect::<Result<_, _>>()?;
        record.messages = tx
            .prepare_cached(
                "SELECT role, bytes FROM messages WHERE turn = ?1 ORDER BY conversation, seq",
            )?
            .query_map([run.as_str()], |row| {
                let role: String = row.get(0)?;
                Ok(MessageRecord {
                    role: role_of(&role).unwrap_or(ChatRole::User),
                    bytes: row.get(1)?,
                })
            })?
            .collect::<Result<_, _>>()?;
        Ok(Some(record))
    }
}

/// The outer result is the database's, the inner one the stored JSON's.
type Summary = Result<(i64, RunRecord), StoreError>;

fn summary(row: &Row<'_>) -> rusqlite::Result<Summary> {
    let (started, ended): (i64, Option<i64>) = (row.get(7)?, row.get(8)?);
    let (usage, failovers): (Option<String>, Option<String>) = (row.get(11)?, row.get(12)?);
    let key = row.get(0)?;
    let mut record = RunRecord {
        run_id: row.get(1)?,
        conversation_id: row.get(2)?,
        status: row.get(3)?,
        source: row.get(4)?,
        source_detail: row.get(5)?,
        model: row.get(6)?,
        started_at: rfc3339(started),
        ended_at: ended.map(rfc3339),
        duration_ms: ended.map(|ended| elapsed(ended - started)),
        failure_kind: row.get(9)?,
        error: row.get(10)?,
        text: None,
        parts: Vec::new(),
        usage: Default::default(),
        failover_history: Vec::new(),
        tools: Vec::new(),
        messages: Vec::new(),
    };
    Ok((|| {
        record.usage = parsed("usage", usage)?;
        record.failover_history = parsed("failovers", failovers)?;
        Ok((key, record))
    })())
}

/// The stored JSON, or the empty value where there is none.
fn parsed<T: serde::de::DeserializeOwned + Default>(
    what: &str,
    json: Option<String>,
) -> Result<T, StoreError> {
    let Some(json) = json else {
        return Ok(T::default());
    };
    serde_json::from_str(&json).map_err(|e| StoreError::Corrupt {
        path: PathBuf::from(crate::place::DATABASE),
        detail: format!("{what} of a run: {e}"),
    })
}

/// Clocks may be set back; a duration is never negative.
fn elapsed(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0)
}

pub(crate) fn rfc3339(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms)
        .unwrap_or(jiff::Timestamp::UNIX_EPOCH)
        .to_string()
}

fn encode(key: i64) -> String {
    format!("r{key:x}")
}

fn decode(cursor: &str) -> Result<i64, StoreError> {
    cursor
        .strip_prefix('r')
        .and_then(|hex| i64::from_str_radix(hex, 16).ok())
        // One spelling only, so that nothing else is taken for a cursor.
        .filter(|key| *key > 0 && encode(*key) == cursor)
        .ok_or(StoreError::Invalid {
            field: "cursor",
            reason: "it is not from a page of this listing",
        })
}
