//! The life of a run: begin, commit, or another end.

use crate::account::{self, Tool, Turn};
use crate::conversation;
use crate::db::Store;
use crate::error::StoreError;
use crate::history::Entry;
use crate::record::{self, Commitment, Committed, Start, Status, at_most, name};
use crate::retention;
use crate::text::cut;
use ipc_proto::chat::ChatMessage;
use ipc_proto::edges::control::RunScope;
use ipc_proto::edges::store::{History, RunCommit, RunFailure, TurnMark};
use ipc_proto::{ConversationId, RunId};
use rusqlite::{OptionalExtension, Transaction, params};
use sha2::{Digest, Sha256};

/// Failure code of a run whose process ended without a word (facts 3.5).
pub const PROCESS_DEATH: &str = "process_death";
/// Failure code of a run whose channel closed before it had ended (the supervisor says the same).
pub(crate) const WORKER_LOST: &str = "worker_lost";
/// Failure code of a run that the supervisor or the kernel ended for the memory that it used.
const MEMORY_LIMIT: &str = "memory_limit";
/// What is recorded of it; the limit itself is told by the supervisor.
const MEMORY_LIMIT_TEXT: &str = "used more memory than sandbox.memoryMaxBytes allows";
/// Messages of one append without a run.
const APPEND_MESSAGES: usize = 64;

/// A run's row as far as its end depends on it.
struct Row {
    key: i64,
    conversation: String,
    status: Status,
    failure_kind: Option<String>,
    base: u64,
    revision: Option<u64>,
    digest: Option<Vec<u8>>,
}

impl Store {
    /// Records the run as running, sets the dirty fence and gives what the run starts from.
    ///
    /// # Errors
    /// [`StoreError::RunExists`], [`StoreError::ConversationBusy`] while another turn of the
    /// conversation has not ended, [`StoreError::Taken`] in a conversation of somebody else's, and
    /// what every write may give.
    pub fn begin_run(
        &mut self,
        scope: &RunScope,
        start: &Start,
        now: i64,
    ) -> Result<History, StoreError> {
        name("source", &start.source)?;
        name("model", &start.model)?;
        let (run, limits) = (scope.run.as_str(), self.limits);
        let tx = self.write()?;
        if find(&tx, run)?.is_some() {
            return Err(StoreError::RunExists(run.to_owned()));
        }
        retention::retire(&tx, &limits, now)?;
        let key = conversation::enter(&tx, scope.conversation.as_str(), now)?;
        conversation::claim(&tx, key, &start.source)?;
        let session = conversation::fence(&tx, key, run, now)?;
        let detail = start
            .source_detail
            .as_deref()
            .map(|text| cut(text, record::SOURCE_DETAIL, record::CUT));
        tx.prepare_cached(
            "INSERT INTO runs (id, conversation, delivery, source, source_detail, model, status,
                 started_at, user_text, base_revision)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'running', ?7, ?8, ?9)",
        )?
        .execute(params![
            run,
            scope.conversation.as_str(),
            scope.delivery.as_str(),
            start.source,
            detail,
            start.model,
            now,
            cut(&start.user_text, record::USER_TEXT, record::CUT),
            session.revision
        ])?;
        retention::make_room(&tx, &limits, key)?;
        let latest = conversation::latest(&tx, &limits, key)?;
        let account = account::account(&unsuccessful(&tx, scope.conversation.as_str())?);
        tx.commit()?;
        Ok(History {
            account,
            epoch: session.epoch,
            revision: session.revision,
            ..history_of(latest)
        })
    }

    /// Makes the run part of the truth, in one transaction: history, session, run, fence.
    ///
    /// The same commit again gives the same answer.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] for another commit of the same run, [`StoreError::Ended`] when it
    /// ended otherwise before, [`StoreError::UnknownRun`], and what every write may give.
    pub fn commit_run(
        &mut self,
        run: &RunId,
        commit: &RunCommit,
        now: i64,
    ) -> Result<Committed, StoreError> {
        name("model", &commit.model)?;
        at_most(
            "messages (number)",
            commit.messages.len(),
            record::COMMIT_MESSAGES,
        )?;
        at_most("answer (bytes)", commit.text.len(), record::FINAL_TEXT)?;
        at_most(
            "failovers (number)",
            commit.failovers.len(),
            record::FAILOVERS,
        )?;
        let parts = json(&commit.parts)?;
        at_most("parts (bytes)", parts.len(), record::PARTS)?;
        let digest = Sha256::digest(json(commit)?);
        let (id, limits) = (run.as_str(), self.limits);
        let tx = self.write()?;
        let row = find(&tx, id)?.ok_or_else(|| StoreError::UnknownRun(id.to_owned()))?;
        match (row.status, row.revision) {
            (Status::Running, _) => {}
            (Status::Succeeded, Some(revision))
                if row.digest.as_deref() == Some(digest.as_slice()) =>
            {
                return Ok(Committed {
                    revision,
                    repeated: true,
                });
            }
            (Status::Succeeded, _) => return Err(StoreError::Conflict(id.to_owned())),
            (status, _) => {
                return Err(StoreError::Ended {
                    run: id.to_owned(),
                    status,
                });
            }
        }
        let key = conversation::enter(&tx, &row.conversation, now)?;
        conversation::append(&tx, &limits, key, id, &commit.messages, now)?;
        let revision = conversation::settle(&tx, key, id, row.base)?;
        tx.prepare_cached(
            "UPDATE runs SET status = 'succeeded', ended_at = ?2, model = ?3, final_text = ?4,
                 usage = ?5, parts = ?6, failovers = ?7, revision = ?8, digest = ?9
             WHERE key = ?1",
        )?
        .execute(params![
            row.key,
            now,
            commit.model,
            commit.text,
            json(&commit.usage)?,
            parts,
            json(&commit.failovers)?,
            revision,
            digest.as_slice()
        ])?;
        close_tools(&tx, row.key, now)?;
        retention::make_room(&tx, &limits, key)?;
        tx.commit()?;
        Ok(Committed {
            revision,
            repeated: false,
        })
    }

    /// Records that the run failed or was cancelled. Returns how the run ended: that is another
    /// status when it had ended before, since the first terminal state wins.
    ///
    /// The fence stays: the next begin takes it for the doubt that it is.
    ///
    /// # Errors
    /// [`StoreError::UnknownRun`], and what every write may give.
    pub fn fail_run(
        &mut self,
        run: &RunId,
        failure: &RunFailure,
        now: i64,
    ) -> Result<Status, StoreError> {
        name("failure kind", &failure.failure_kind)?;
        at_most(
            "failovers (number)",
            failure.failovers.len(),
            record::FAILOVERS,
        )?;
        let status = if failure.cancelled {
            Status::Cancelled
        } else {
            Status::Failed
        };
        let (usage, failovers) = (json(&failure.usage)?, json(&failure.failovers)?);
        self.end(run, status, &failure.failure_kind, now, |tx, key| {
            tx.prepare_cached(
                "UPDATE runs SET error = ?2, partial_text = ?3, usage = ?4, failovers = ?5,
                     user_text = CASE WHEN ?6 = '' THEN user_text ELSE ?6 END
                 WHERE key = ?1",
            )?
            .execute(params![
                key,
                cut(&failure.message, record::ERROR, record::CUT),
                cut(&failure.partial_text, record::PARTIAL_TEXT, record::CUT),
                usage,
                failovers,
                cut(&failure.user_text, record::USER_TEXT, record::CUT)
            ])?;
            Ok(())
        })
    }

    /// Records that the run's process died without saying how the run ended; as failed, when it is
    /// known to have gone over its limit of memory. Returns as [`Store::fail_run`].
    ///
    /// # Errors
    /// As [`Store::fail_run`].
    pub fn interrupt(
        &mut self,
        run: &RunId,
        failure_kind: &str,
        now: i64,
    ) -> Result<Status, StoreError> {
        name("failure kind", failure_kind)?;
        if failure_kind != MEMORY_LIMIT {
            return self.end(run, Status::Interrupted, failure_kind, now, |_, _| Ok(()));
        }
        self.end(run, Status::Failed, failure_kind, now, |tx, key| {
            tx.prepare_cached("UPDATE runs SET error = ?2 WHERE key = ?1")?
                .execute(params![key, MEMORY_LIMIT_TEXT])?;
            Ok(())
        })
    }

    fn end(
        &mut self,
        run: &RunId,
        status: Status,
        failure_kind: &str,
        now: i64,
        more: impl FnOnce(&Transaction<'_>, i64) -> Result<(), StoreError>,
    ) -> Result<Status, StoreError> {
        let tx = self.write()?;
        let row =
            find(&tx, run.as_str())?.ok_or_else(|| StoreError::UnknownRun(run.to_string()))?;
        // The closed channel of an ended process is often seen before the supervisor tells why the
        // process ended.
        let guessed = row.status == Status::Interrupted
            && row.failure_kind.as_deref() == Some(WORKER_LOST)
            && failure_kind == MEMORY_LIMIT;
        if row.status != Status::Running && !guessed {
            return Ok(row.status);
        }
        tx.prepare_cached(
            "UPDATE runs SET status = ?2, failure_kind = ?3, ended_at = ?4 WHERE key = ?1",
        )?
        .execute(params![row.key, status, failure_kind, now])?;
        more(&tx, row.key)?;
        close_tools(&tx, row.key, now)?;
        tx.commit()?;
        Ok(status)
    }

    /// Ends every run that is recorded as running: at a start nobody can be running any more,
    /// since the database is held exclusively. Returns how many there were.
    ///
    /// # Errors
    /// What every write may give.
    pub fn sweep(&mut self, now: i64) -> Result<usize, StoreError> {
        let tx = self.write()?;
        tx.execute(
            "UPDATE tool_calls SET state = 'interrupted', completed_at = ?1 WHERE state = 'running'
             AND run IN (SELECT key FROM runs WHERE status = 'running')",
            [now],
        )?;
        let swept = tx.execute(
            "UPDATE runs SET status = 'interrupted', failure_kind = ?2, ended_at = ?1 WHERE status = 'running'",
            params![now, PROCESS_DEATH],
        )?;
        tx.commit()?;
        Ok(swept)
    }

    /// Whether the run began and has not ended.
    ///
    /// # Errors
    /// When the database can't be read.
    pub(crate) fn is_running(&mut self, run: &RunId) -> Result<bool, StoreError> {
        let tx = self.db.transaction()?;
        Ok(find(&tx, run.as_str())?.is_some_and(|row| row.status == Status::Running))
    }

    /// Whether the run became part of the truth.
    ///
    /// # Errors
    /// When the database can't be read.
    pub fn commitment(&mut self, run: &RunId) -> Result<Commitment, StoreError> {
        let tx = self.db.transaction()?;
        Ok(match find(&tx, run.as_str())?.map(|row| row.status) {
            None => Commitment::Unknown,
            Some(Status::Running) => Commitment::Running,
            Some(Status::Succeeded) => Commitment::Committed,
            Some(Status::Failed | Status::Cancelled | Status::Interrupted) => Commitment::Failed,
        })
    }

    /// The latest history of a conversation, without a run (spec s1, `detached_latest`). A
    /// conversation that doesn't exist has an empty one.
    ///
    /// # Errors
    /// When the database can't be read.
    pub fn latest_history(&mut self, conversation: &ConversationId) -> Result<History, StoreError> {
        let limits = self.limits;
        let tx = self.db.transaction()?;
        let (latest, revision) = match conversation::find(&tx, conversation.as_str())? {
            None => (Vec::new(), 0),
            Some(key) => (
                conversation::latest(&tx, &limits, key)?,
                conversation::revision(&tx, key)?,
            ),
        };
        Ok(History {
            revision,
            ..history_of(latest)
        })
    }

    /// Enters messages into a history without a run (spec s1, history-only commit). The same key
    /// enters once.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the key was used for something else, and what every write may give.
    pub fn append_history(
        &mut self,
        conversation: &ConversationId,
        key: &str,
        messages: &[ChatMessage],
        now: i64,
    ) -> Result<Committed, StoreError> {
        name("append key", key)?;
        if messages.is_empty() {
            return Err(StoreError::Invalid {
                field: "messages",
                reason: "there are none",
            });
        }
        at_most("messages (number)", messages.len(), APPEND_MESSAGES)?;
        let digest = Sha256::digest(json(&(conversation.as_str(), messages))?);
        let limits = self.limits;
        let tx = self.write()?;
        let before: Option<(Vec<u8>, u64)> = tx
            .prepare_cached("SELECT digest, revision FROM appends WHERE key = ?1")?
            .query_row([key], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        match before {
            Some((known, revision)) if known == digest.as_slice() => {
                return Ok(Committed {
                    revision,
                    repeated: true,
                });
            }
            Some(_) => return Err(StoreError::Conflict(key.to_owned())),
            None => {}
        }
        let into = conversation::enter(&tx, conversation.as_str(), now)?;
        tx.prepare_cached("DELETE FROM appends WHERE conversation = ?1 AND created_at < ?2")?
            .execute(params![into, now.saturating_sub(limits.run_age_ms)])?;
        // A run id can't hold a colon: no turn of a run has this name.
        conversation::append(&tx, &limits, into, &format!("append:{key}"), messages, now)?;
        let revision = conversation::disturb(&tx, into)?;
        tx.prepare_cached(
            "INSERT INTO appends (key, conversation, digest, revision, created_at) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![key, into, digest.as_slice(), revision, now])?;
        retention::make_room(&tx, &limits, into)?;
        tx.commit()?;
        Ok(Committed {
            revision,
            repeated: false,
        })
    }
}

fn history_of(entries: Vec<Entry>) -> History {
    let mark = |Entry { turn, at, .. }: &Entry| TurnMark {
        turn: turn.clone(),
        at: *at,
    };
    History {
        turns: entries.iter().map(mark).collect(),
        messages: entries.into_iter().map(|entry| entry.message).collect(),
        account: None,
        epoch: String::new(),
        revision: 0,
    }
}

fn find(tx: &Transaction<'_>, run: &str) -> Result<Option<Row>, StoreError> {
    Ok(tx
        .prepare_cached(
            "SELECT key, conversation, status, base_revision, revision, digest, failure_kind FROM runs WHERE id = ?1",
        )?
        .query_row([run], |row| {
            Ok(Row {
                key: row.get(0)?,
                conversation: row.get(1)?,
                status: row.get(2)?,
                base: row.get(3)?,
                revision: row.get(4)?,
                digest: row.get(5)?,
                failure_kind: row.get(6)?,
            })
        })
        .optional()?)
}

/// Calls that are still out when their run ends: whether they had their effect is not known.
fn close_tools(tx: &Transaction<'_>, run: i64, now: i64) -> Result<(), StoreError> {
    tx.prepare_cached(
        "UPDATE tool_calls SET state = 'interrupted', completed_at = ?2 WHERE run = ?1 AND state = 'running'",
    )?
    .execute(params![run, now])?;
    Ok(())
}

/// The turns of a conversation since its last success, oldest first.
fn unsuccessful(tx: &Transaction<'_>, conversation: &str) -> Result<Vec<Turn>, StoreError> {
    let mut turns = Vec::new();
    let mut rows = tx.prepare_cached(
        "SELECT key, status, failure_kind, user_text, coalesce(partial_text, '') FROM runs
         WHERE conversation = ?1 AND status <> 'running' ORDER BY key DESC LIMIT ?2",
    )?;
    let mut rows = rows.query(params![conversation, account::TURNS])?;
    while let Some(row) = rows.next()? {
        let status: Status = row.get(1)?;
        if status == Status::Succeeded {
            break;
        }
        turns.push(Turn {
            status,
            failure_kind: row.get(2)?,
            user_text: row.get(3)?,
            partial_text: row.get(4)?,
            tools: tools(tx, row.get(0)?)?,
        });
    }
    turns.reverse();
    Ok(turns)
}

fn tools(tx: &Transaction<'_>, run: i64) -> Result<Vec<Tool>, StoreError> {
    Ok(tx
        .prepare_cached(
            "SELECT name, state, arguments, preview FROM tool_calls WHERE run = ?1 ORDER BY position",
        )?
        .query_map([run], |row| {
            Ok(Tool { name: row.get(0)?, state: row.get(1)?, arguments: row.get(2)?, preview: row.get(3)? })
        })?
        .collect::<Result<_, _>>()?)
}

fn json<T: serde::Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|_| StoreError::Invalid {
        field: "the body",
        reason: "it is no JSON",
    })
}
