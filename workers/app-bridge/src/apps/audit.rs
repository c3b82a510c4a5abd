//! What was done in an app's name, one log for each app (spec s0, "Lifetime and limits").
//!
//! An entry says only what the host knows by itself: never a tool's name, arguments, addresses or
//! results, which a model or a page could have filled. Before an action its entry is written and
//! the room for the entry of its end is set aside; without that there is no action.

use super::books::{Books, Card, LogFile, OpenLog, Owner};
use super::folder::{FileId, Folder, is_own};
use super::handover::refuse_left;
use super::quota::{Removal, SEGMENTS, Segment, Share, reclaim};
use super::vault::{LOGS, Point, Vault, VaultError};
use jiff::Timestamp;
use nix::sys::stat::FileStat;
use serde::Serialize;
use serde_json::Value;
use std::io::{self, Write as _};
use std::sync::Arc;

/// Where an action is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The page wants it.
    Requested,
    /// The person, or what holds for the view, allows it.
    Confirmed,
    /// It is over, whatever came of it.
    Completed,
    /// The person or a rule said no.
    Rejected,
}

/// What is done, in the host's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Method {
    /// A tool is called.
    #[serde(rename = "tools/call")]
    Call,
    /// The tools are listed.
    #[serde(rename = "tools/list")]
    List,
    /// The declared page is read.
    #[serde(rename = "resources/read")]
    Read,
    /// A link is opened.
    #[serde(rename = "ui/open-link")]
    Link,
    /// The model gets context.
    #[serde(rename = "ui/update-model-context")]
    Context,
    /// A message is proposed.
    #[serde(rename = "ui/message")]
    Message,
    /// Files are handed over.
    #[serde(rename = "ui/download-file")]
    Download,
}

/// One entry: exactly these fields.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    at: String,
    invocation_id: &'a str,
    connection_id: &'a str,
    method: Method,
    details: Details,
}

#[derive(Serialize)]
struct Details {
    phase: Phase,
}

/// Why an entry could not be written.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The logs of others can't make room for it.
    #[error("the audit logs are full, and none of them may go")]
    Full,
    /// The folder, the file or the disk.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl From<io::Error> for AuditError {
    fn from(error: io::Error) -> Self {
        Self::Vault(error.into())
    }
}

/// An action that has begun. Its end is owed.
#[derive(Debug)]
pub struct Ticket {
    vault: Arc<Vault>,
    id: String,
    method: Method,
    reserved: u64,
}

/// True for an app whose current log must stay although it has nothing under way.
pub type Protected<'a> = &'a (dyn Fn(&Card) -> bool + Sync);

fn line(card: &Card, method: Method, phase: Phase, now: Timestamp) -> Vec<u8> {
    let entry = Entry {
        // Always of the same length, so that what is set aside suffices.
        at: now.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
        invocation_id: &card.id,
        connection_id: &card.connection,
        method,
        details: Details { phase },
    };
    let mut line = serde_json::to_vec(&entry).unwrap_or_default();
    line.push(b'\n');
    line
}

impl Vault {
    /// Writes that an action begins and sets the room aside for its end.
    ///
    /// # Errors
    /// [`AuditError`]; nothing is set aside then, and the action must not happen.
    pub fn begin(
        self: &Arc<Self>,
        id: &str,
        method: Method,
        phase: Phase,
        now: Timestamp,
        protected: Protected<'_>,
    ) -> Result<Ticket, AuditError> {
        let mut books = self.books();
        refuse_left(books.left)?;
        let owner = books.owners.get_mut(id).ok_or(VaultError::Missing)?;
        let entry = line(&owner.card, method, phase, now);
        // One byte more: a torn line before it is ended first.
        let end = line(&owner.card, method, Phase::Completed, now).len() as u64 + 1;
        // Under way from here on, so that making room takes nothing of its own.
        owner.under_way += 1;
        owner.reserved += end;
        let written = self
            .make_room(&mut books, entry.len() as u64 + 1, protected)
            .and_then(|()| self.write_line(&mut books, id, entry));
        if let Err(error) = written {
            release(&mut books, id, end);
            return Err(error);
        }
        Ok(Ticket {
            vault: self.clone(),
            id: id.to_owned(),
            method,
            reserved: end,
        })
    }

    /// Writes an entry that nothing follows.
    ///
    /// # Errors
    /// [`AuditError`].
    pub fn note(
        self: &Arc<Self>,
        id: &str,
        method: Method,
        phase: Phase,
        now: Timestamp,
        protected: Protected<'_>,
    ) -> Result<(), AuditError> {
        let mut books = self.books();
        refuse_left(books.left)?;
        let owner = books.owners.get_mut(id).ok_or(VaultError::Missing)?;
        let entry = line(&owner.card, method, phase, now);
        owner.under_way += 1;
        let written = self
            .make_room(&mut books, entry.len() as u64 + 1, protected)
            .and_then(|()| self.write_line(&mut books, id, entry));
        release(&mut books, id, 0);
        written
    }

    /// What was done in an app's name, oldest first. Lines that were not written whole are left out.
    ///
    /// # Errors
    /// [`VaultError`].
    pub fn log(&self, id: &str) -> Result<Vec<Value>, VaultError> {
        let books = self.books();
        let owner = books.owners.get(id).ok_or(VaultError::Missing)?;
        let folder = self.folder_of(owner)?;
        let mut entries = Vec::new();
        for (name, log) in LOGS.iter().zip(&owner.logs).rev() {
            let Some(log) = log else { continue };
            let most = usize::try_from(log.bytes).unwrap_or(usize::MAX);
            let bytes = folder.read(name, most)?;
            let lines = bytes.split(|byte| *byte == b'\n');
            entries.extend(lines.filter_map(|line| serde_json::from_slice(line).ok()));
        }
        Ok(entries)
    }

    fn make_room(
        &self,
        books: &mut Books,
        bytes: u64,
        protected: Protected<'_>,
    ) -> Result<(), AuditError> {
        let wanted = books.audit() + bytes;
        if wanted <= self.bounds.reserve {
            return Ok(());
        }
        let shares = books.owners.values().map(|owner| Share {
            owner: owner.card.id.clone(),
            segments: owner.logs.map(|log| {
                log.map(|log| Segment {
                    bytes: log.bytes,
                    age: log.age,
                })
            }),
            protected: owner.under_way > 0 || protected(&owner.card),
        });
        let plan =
            reclaim(shares.collect(), wanted - self.bounds.reserve).ok_or(AuditError::Full)?;
        for Removal { owner, segment, .. } in plan {
            self.point(Point::Reclaim);
            if let Err(error) = self.remove_log(books, &owner, segment) {
                if let AuditError::Vault(VaultError::Changed(_)) = &error {
                    books.quarantine(&owner);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn remove_log(&self, books: &mut Books, id: &str, segment: usize) -> Result<(), AuditError> {
        let owner = books.owners.get_mut(id).ok_or(VaultError::Missing)?;
        let folder = self.folder_of(owner)?;
        if segment == 0 {
            owner.open = None;
        }
        if let Some(log) = owner.logs[segment] {
            unchanged(&folder, LOGS[segment], log.id)?;
            folder.remove_file(LOGS[segment])?;
            folder.sync()?;
        }
        owner.logs[segment] = None;
        Ok(())
    }

    fn write_line(&self, books: &mut Books, id: &str, mut line: Vec<u8>) -> Result<(), AuditError> {
        let age = books.age + 1;
        if books
            .owners
            .get(id)
            .is_some_and(|owner| owner.open.is_none())
        {
            books.close_logs();
        }
        let owner = books.owners.get_mut(id).ok_or(VaultError::Missing)?;
        if owner.logs[0].is_some_and(|log| log.bytes + line.len() as u64 + 1 > self.bounds.segment)
        {
            self.point(Point::Rotate);
            self.rotate(owner)?;
        }
        self.point(Point::Append);
        let (log, open) = self.current_log(owner, age)?;
        if log.torn && log.bytes > 0 {
            line.insert(0, b'\n');
        }
        // On the disk a moment later, with those of others: a page that polls would wait for the
        // disk with each call.
        let written = (&*open.file).write_all(&line);
        let bytes = match written {
            Ok(()) => log.bytes + line.len() as u64,
            // Some of it may stand there.
            Err(_) => open.file.metadata().map_or(log.bytes, |data| data.len()),
        };
        let file = open.file.clone();
        owner.open = Some(open);
        owner.logs[0] = Some(LogFile {
            bytes,
            age,
            torn: written.is_err(),
            ..log
        });
        books.age = age;
        books.unsynced.entry(log.id).or_insert(file);
        self.written.notify_one();
        Ok(written?)
    }

    /// The current log, open, when all that leads to it is what it was.
    fn current_log(&self, owner: &mut Owner, age: u64) -> Result<(LogFile, OpenLog), AuditError> {
        let open = match owner.open.take() {
            Some(open) => {
                self.check_owner(owner)?;
                open
            }
            None => {
                let folder = self.folder_of(owner)?;
                if owner.logs[0].is_none() {
                    // In the books before anything else can fail: its name is taken from now on.
                    owner.logs[0] = Some(LogFile {
                        bytes: 0,
                        id: folder.write_new(LOGS[0], b"")?,
                        age,
                        torn: false,
                    });
                    folder.sync()?;
                }
                let (file, _) = folder.append(LOGS[0])?;
                let file = Arc::new(file);
                OpenLog { folder, file }
            }
        };
        let changed = || VaultError::Changed(format!("the log of {}", owner.card.id));
        let log = owner.logs[0].ok_or_else(changed)?;
        let stat = unchanged(&open.folder, LOGS[0], log.id)?;
        if u64::try_from(stat.st_size) == Ok(log.bytes) {
            Ok((log, open))
        } else {
            Err(changed().into())
        }
    }

    /// Writes to the disk what was added to the logs. Returns when it is there.
    pub fn sync_logs(&self) {
        let due = std::mem::take(&mut self.books().unsynced);
        for file in due.into_values() {
            if let Err(error) = file.sync_data() {
                tracing::error!("an audit log may not be on the disk: {error}");
            }
        }
    }

    /// Ends when entries were written that are not synced.
    pub async fn written(&self) {
        self.written.notified().await;
    }

    /// The current log becomes history, the oldest history goes.
    fn rotate(&self, owner: &mut Owner) -> Result<(), AuditError> {
        owner.open = None;
        let folder = self.folder_of(owner)?;
        for (name, log) in LOGS.iter().zip(&owner.logs) {
            if let Some(log) = log {
                unchanged(&folder, name, log.id)?;
            }
        }
        for segment in (0..SEGMENTS).rev() {
            let Some(log) = owner.logs[segment] else {
                continue;
            };
            if segment + 1 == SEGMENTS {
                folder.remove_file(LOGS[segment])?;
            } else {
                folder.move_new(LOGS[segment], &folder, LOGS[segment + 1])?;
                owner.logs[segment + 1] = Some(log);
            }
            owner.logs[segment] = None;
        }
        folder.sync()?;
        Ok(())
    }
}

fn unchanged(folder: &Folder, name: &str, id: FileId) -> Result<FileStat, VaultError> {
    let stat = folder.stat(name)?;
    let own = stat.filter(|stat| is_own(stat) && FileId::of(stat) == id);
    own.ok_or_else(|| VaultError::Changed(format!("the log file {name}")))
}

fn release(books: &mut Books, id: &str, bytes: u64) {
    if let Some(owner) = books.owners.get_mut(id) {
        owner.under_way = owner.under_way.saturating_sub(1);
        owner.reserved = owner.reserved.saturating_sub(bytes);
    }
}

impl Ticket {
    /// Writes that the action is over, into the room that was set aside.
    ///
    /// # Errors
    /// [`AuditError`]: what was done stays done, and must not be done again by itself.
    pub fn complete(mut self, now: Timestamp) -> Result<(), AuditError> {
        self.end(now)
    }

    fn end(&mut self, now: Timestamp) -> Result<(), AuditError> {
        let reserved = std::mem::take(&mut self.reserved);
        if reserved == 0 {
            return Ok(());
        }
        let mut books = self.vault.books();
        let Some(owner) = books.owners.get(&self.id) else {
            return Err(VaultError::Missing.into());
        };
        let entry = line(&owner.card, self.method, Phase::Completed, now);
        let written = self.vault.write_line(&mut books, &self.id, entry);
        release(&mut books, &self.id, reserved);
        written
    }
}

impl Drop for Ticket {
    /// Whoever did it is gone in the middle: it is over all the same.
    fn drop(&mut self) {
        if let Err(error) = self.end(Timestamp::now()) {
            tracing::error!(
                app = self.id,
                "the end of an app's action was not written: {error}"
            );
        }
    }
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;
