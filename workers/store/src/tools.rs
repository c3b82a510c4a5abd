//! The lifecycle of tool calls.
//!
//! Written relaxed ([`Store::write_relaxed`]): a turn with ten tools should not wait for twenty
//! disk syncs, and what a power cut could take is an account of a turn that didn't succeed.

use crate::db::Store;
use crate::error::StoreError;
use crate::record::{self, Status, name};
use crate::text::cut;
use ipc_proto::RunId;
use rusqlite::{OptionalExtension, Transaction, params};

impl Store {
    /// Records that the run calls a tool.
    ///
    /// # Errors
    /// [`StoreError::Ended`] after the run's end, [`StoreError::TooLarge`] after
    /// [`record::TOOL_CALLS`] calls, and what every write may give.
    pub fn tool_started(
        &mut self,
        run: &RunId,
        call: &str,
        tool: &str,
        arguments: &str,
        now: i64,
    ) -> Result<(), StoreError> {
        name("tool call id", call)?;
        name("tool name", tool)?;
        self.write_relaxed(|tx| {
            let key = running(tx, run)?;
            let position: u32 = tx
                .prepare_cached(
                    "SELECT coalesce(max(position), 0) + 1 FROM tool_calls WHERE run = ?1",
                )?
                .query_row([key], |row| row.get(0))?;
            record::at_most(
                "tool calls (number)",
                position as usize,
                record::TOOL_CALLS as usize,
            )?;
            tx.prepare_cached(
                "INSERT INTO tool_calls (run, position, call, name, state, arguments, started_at)
                 VALUES (?1, ?2, ?3, ?4, 'running', ?5, ?6)",
            )?
            .execute(params![
                key,
                position,
                call,
                tool,
                cut(arguments, record::PREVIEW, record::CUT),
                now
            ])?;
            Ok(())
        })
    }

    /// Records the outcome of a call.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] for a state that is no outcome and for a call that is not out,
    /// [`StoreError::Ended`] after the run's end, and what every write may give.
    pub fn tool_ended(
        &mut self,
        run: &RunId,
        call: &str,
        state: &str,
        preview: &str,
        now: i64,
    ) -> Result<(), StoreError> {
        name("tool call id", call)?;
        if !record::TOOL_OUTCOMES.contains(&state) {
            return Err(StoreError::Invalid {
                field: "tool state",
                reason: "it is no outcome",
            });
        }
        self.write_relaxed(|tx| {
            let key = running(tx, run)?;
            let changed = tx
                .prepare_cached(
                    "UPDATE tool_calls SET state = ?3, preview = ?4, completed_at = ?5
                     WHERE run = ?1 AND position = (SELECT min(position) FROM tool_calls
                         WHERE run = ?1 AND call = ?2 AND state = 'running')",
                )?
                .execute(params![
                    key,
                    call,
                    state,
                    cut(preview, record::PREVIEW, record::CUT),
                    now
                ])?;
            if changed == 0 {
                return Err(StoreError::Invalid {
                    field: "tool call id",
                    reason: "no such call is out",
                });
            }
            Ok(())
        })
    }
}

/// The key of a run that has not ended.
fn running(tx: &Transaction<'_>, run: &RunId) -> Result<i64, StoreError> {
    let row: Option<(i64, Status)> = tx
        .prepare_cached("SELECT key, status FROM runs WHERE id = ?1")?
        .query_row([run.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    match row {
        None => Err(StoreError::UnknownRun(run.to_string())),
        Some((key, Status::Running)) => Ok(key),
        Some((_, status)) => Err(StoreError::Ended {
            run: run.to_string(),
            status,
        }),
    }
}
