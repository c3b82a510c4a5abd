//! What there is of apps, as the keeper counts it.

use super::folder::{FileId, Folder};
use super::manifest::Manifest;
use super::quota::{QUARANTINE_CHARGE, QUARANTINE_MOST, SEGMENTS};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::sync::Arc;

/// Logs that are kept open between two entries.
const MAX_OPEN: usize = 32;

/// What the books know of an app.
#[derive(Debug, Clone, PartialEq)]
pub struct Card {
    /// The record.
    pub id: String,
    /// Its connection.
    pub connection: String,
    /// Its server.
    pub server: String,
    /// Its tool.
    pub tool: String,
    /// For people.
    pub title: Option<String>,
    /// The run that called.
    pub run: String,
    /// Where the reply went.
    pub delivery: String,
    /// Milliseconds since 1970.
    pub created_at: i64,
    /// Milliseconds since 1970.
    pub expires_at: i64,
    /// Bytes of page, state and manifest.
    pub bytes: u64,
    /// The reply names it.
    pub kept: bool,
    /// An operator took its rights away.
    pub closed: bool,
}

/// One log file.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogFile {
    pub(super) bytes: u64,
    pub(super) id: FileId,
    /// Larger is younger.
    pub(super) age: u64,
    /// Its last line was not written whole.
    pub(super) torn: bool,
}

/// A current log that stays open. That it is still what its name leads to is looked at each time.
#[derive(Debug)]
pub(super) struct OpenLog {
    pub(super) folder: Folder,
    pub(super) file: Arc<File>,
}

#[derive(Debug)]
pub(super) struct Owner {
    pub(super) folder: FileId,
    pub(super) card: Card,
    pub(super) logs: [Option<LogFile>; SEGMENTS],
    pub(super) open: Option<OpenLog>,
    /// Bytes of entries that are owed.
    pub(super) reserved: u64,
    /// Entries that are owed.
    pub(super) under_way: u32,
    /// Its run is one of an earlier process, which may still keep it.
    pub(super) pending: bool,
    /// Read once, and exact from then on: nobody else writes here.
    pub(super) manifest: Option<Arc<Manifest>>,
}

impl Owner {
    /// Something was done in its name.
    pub(super) fn has_acted(&self) -> bool {
        self.logs.iter().any(Option::is_some)
    }

    pub(super) fn of(manifest: &Manifest, folder: FileId, bytes: u64) -> Self {
        Self {
            folder,
            card: Card {
                id: manifest.id.clone(),
                connection: manifest.connection.clone(),
                server: manifest.server.clone(),
                tool: manifest.tool.name.clone(),
                title: manifest.tool.title.clone(),
                run: manifest.run.clone(),
                delivery: manifest.delivery.clone(),
                created_at: manifest.created_at,
                expires_at: manifest.expires_at,
                bytes,
                kept: false,
                closed: false,
            },
            logs: [None; SEGMENTS],
            open: None,
            reserved: 0,
            under_way: 0,
            pending: false,
            manifest: None,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) owners: BTreeMap<String, Owner>,
    /// What is left alone, by name.
    pub(super) quarantined: BTreeSet<String>,
    /// Bytes that are being written.
    pub(super) staged: u64,
    /// Bytes that records and logs may have now, of the ceiling.
    pub(super) allowed: u64,
    /// The next log file's age.
    pub(super) age: u64,
    /// Nothing new is taken: another process has the apps.
    pub(super) left: bool,
    /// Logs with entries that may not be on the disk yet.
    pub(super) unsynced: BTreeMap<FileId, Arc<File>>,
}

impl Books {
    pub(super) fn payload(&self) -> u64 {
        let own: u64 = self.owners.values().map(|owner| owner.card.bytes).sum();
        let foreign = QUARANTINE_CHARGE.saturating_mul(self.quarantined.len() as u64);
        own + self.staged + foreign.min(QUARANTINE_MOST)
    }

    pub(super) fn audit(&self) -> u64 {
        let of = |owner: &Owner| {
            let logs = owner.logs.iter().flatten().map(|log| log.bytes);
            logs.sum::<u64>() + owner.reserved
        };
        self.owners.values().map(of).sum()
    }

    /// Makes sure that one more log may stay open.
    pub(super) fn close_logs(&mut self) {
        let open = self.owners.values().filter(|owner| owner.open.is_some());
        if open.count() >= MAX_OPEN {
            self.owners.values_mut().for_each(|owner| owner.open = None);
        }
    }

    /// Left alone from now on.
    pub(super) fn quarantine(&mut self, id: &str) {
        tracing::warn!(
            app = id,
            "an app's folder is not what it was; it is left alone"
        );
        self.owners.remove(id);
        self.quarantined.insert(id.to_owned());
    }
}
