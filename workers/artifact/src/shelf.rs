//! The artifact directory: publication, binding, removal.
//!
//! ```text
//! <state>/reply-files/<uuid>/{content, metadata.json}     finalised: complete, never changed
//! <state>/reply-files/.staging/<uuid>/                    its run is at work, or it is being removed
//! ```
//!
//! A directory enters and leaves the live namespace whole, by one rename. So a crash leaves a
//! complete artifact or something in staging, and the inventory of the next start sorts them out.
//!
//! Nothing of a run is shown before it is finalised, and a crash before that takes it back. So the
//! disk is waited for then, once for all files of the run, and not at each of them.

use crate::Code;
use crate::copy::{CopyError, Watch, copy_hashed};
use crate::dir::Dir;
use crate::index::{Due, Index, Retention};
use crate::manifest::{Label, Manifest, ManifestError, integrity_id};
use crate::quota::{NoRoom, charge};
use crate::sync::{Unsynced, sync_all};
use crate::verify::Source;
use ipc_proto::ConversationId;
use jiff::Timestamp;
use mono_sys::writeback::start_writeback;
use nix::fcntl::{Flock, FlockArg};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use uuid::Uuid;
use worker_kit::room::{PIECE, Room};

/// Name of the bytes in an artifact's directory.
pub(crate) const CONTENT: &str = "content";
/// Name of the manifest in an artifact's directory.
pub(crate) const METADATA: &str = "metadata.json";
/// Name of the staging directory in the live namespace.
pub(crate) const STAGING: &str = ".staging";
const LIVE: &str = "reply-files";
/// How often room is asked for that others of this worker may take meanwhile.
const TRIES: usize = 8;
/// Age after which a directory in staging that nobody works on is removed, in seconds.
pub const STAGING_GRACE: i64 = 10 * 60;

/// Why something was not published, bound or removed.
#[derive(Debug, thiserror::Error)]
pub enum ShelfError {
    /// The durable ceiling.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The copy failed.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// The bounds of a manifest's fields failed to hold.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A step on the disk failed.
    #[error("{step} of artifact {id} failed: {error}")]
    Disk {
        /// What was tried.
        step: &'static str,
        /// On which artifact.
        id: Uuid,
        /// What the kernel said.
        error: io::Error,
    },
    /// Removed while its run was still at work: by an operator, or by a restart of this worker.
    #[error("artifact {0} is not there any more")]
    Gone(Uuid),
}

impl ShelfError {
    /// What others are told.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Gone(_) => Code::Missing,
            _ => Code::PublishFailed,
        }
    }
}

/// Why the directory can't be used at all.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A step on the disk failed.
    #[error("the artifact directory: {0} failed: {1}")]
    Disk(&'static str, #[source] io::Error),
    /// The directory is readable or writable by others.
    #[error("the artifact directory has mode {0:04o}; it holds people's files: chmod 0700 it")]
    Open(u32),
    /// Another worker holds it.
    #[error("another artifact worker holds the artifact directory; stop it first")]
    Held,
}

/// The artifact directory and what is known of it. All calls block on the disk.
#[derive(Debug)]
pub struct Shelf {
    pub(crate) live: Dir,
    pub(crate) staging: Dir,
    pub(crate) index: Mutex<Index>,
    /// What a dry run has named already: it is told once and not every minute.
    named: Mutex<BTreeSet<Uuid>>,
    /// Where more of the ceiling comes from; all of it is this shelf's without.
    room: Option<Room>,
    /// Held as long as the process lives, released by the kernel however it ends.
    _lock: Flock<OwnedFd>,
}

impl Shelf {
    /// Opens the state directory, takes it for this process, and makes its inventory.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(state: &Dir, ceiling: u64, now: Timestamp) -> Result<Self, OpenError> {
        let mode = state
            .stat(".")
            .map_err(|e| OpenError::Disk("stat", e))?
            .st_mode
            & 0o7777;
        if mode & 0o077 != 0 {
            return Err(OpenError::Open(mode));
        }
        // A description of our own: the one handed over is shared with the supervisor, and a lock
        // belongs to a description.
        let reopened = || state.open(".").map_err(|e| OpenError::Disk("open", e));
        let lock = Flock::lock(reopened()?.into(), FlockArg::LockExclusiveNonblock)
            .map_err(|_| OpenError::Held)?;
        // What was handed over may be a mere handle, which can't be synced.
        let live = reopened()?
            .open_or_make(LIVE)
            .map_err(|e| OpenError::Disk("open reply-files", e))?;
        let staging = live
            .open_or_make(STAGING)
            .map_err(|e| OpenError::Disk("open .staging", e))?;
        let shelf = Self {
            live,
            staging,
            index: Mutex::new(Index::new(ceiling)),
            named: Mutex::default(),
            room: None,
            _lock: lock,
        };
        shelf
            .inventory(now)
            .map_err(|e| OpenError::Disk("inventory", e))?;
        Ok(shelf)
    }

    /// Shares the ceiling from now on: beyond what it has, the shelf asks for room.
    #[must_use]
    pub fn sharing(mut self, room: Room) -> Self {
        let mut index = self.index();
        let used = index.used();
        index.allow(used);
        drop(index);
        self.room = Some(room);
        self
    }

    /// Says what is used, and gives back what is not. Waits for the supervisor.
    pub fn give_back(&self) {
        let Some(room) = &self.room else { return };
        room.less(|| {
            let mut index = self.index();
            let used = index.used();
            index.allow(used);
            used
        });
    }

    /// True when more than a piece or two is not used any more.
    #[must_use]
    pub fn has_spare(&self) -> bool {
        let index = self.index();
        self.room.is_some() && index.allowed().saturating_sub(index.used()) > 2 * PIECE
    }

    /// Charges a publication, with more room where that is needed.
    fn begin(&self, id: Uuid, size: u64) -> Result<(), NoRoom> {
        for _ in 0..TRIES {
            let begun = self.index().begin(id, size);
            let (Err(_), Some(room)) = (&begun, &self.room) else {
                return begun;
            };
            let need = || {
                let used = self.index().used();
                (used, used.saturating_add(charge(size)))
            };
            if !room.more(need, |granted| self.index().allow(granted)) {
                return begun;
            }
        }
        self.index().begin(id, size)
    }

    /// The index. A panic elsewhere leaves it consistent: every change is one call.
    pub(crate) fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes charged against the ceiling.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.index().used()
    }

    /// Number of artifacts, finalised or not.
    #[must_use]
    pub fn count(&self) -> usize {
        self.index().len()
    }

    /// Copies a verified source into staging, where it is until [`Shelf::finalise`].
    ///
    /// # Errors
    /// [`ShelfError`]; nothing of it is left then, in the directory or in the account.
    pub fn publish(
        &self,
        source: &Source,
        label: Label,
        keep: jiff::SignedDuration,
        now: Timestamp,
        watch: &Watch<'_>,
    ) -> Result<Manifest, ShelfError> {
        // Version 4: the id is the only thing a reader needs to name, so it must not be guessable.
        let id = Uuid::new_v4();
        self.begin(id, source.size)?;
        match self.copy(id, source, watch) {
            Ok(digest) => {
                let integrity_id = integrity_id(&digest);
                let manifest = Manifest::new(id, label, source.size, integrity_id, now, keep);
                self.index().publish(manifest.clone());
                Ok(manifest)
            }
            Err(error) => {
                let removed = self.staging.remove_flat(&id.to_string());
                self.index().abandon(id, removed.is_ok());
                Err(error)
            }
        }
    }

    fn copy(&self, id: Uuid, source: &Source, watch: &Watch<'_>) -> Result<[u8; 32], ShelfError> {
        let disk = |step| move |error| ShelfError::Disk { step, id, error };
        let name = id.to_string();
        self.staging.make(&name).map_err(disk("mkdir"))?;
        let home = self.staging.open(&name).map_err(disk("open"))?;
        let content = home.create(CONTENT).map_err(disk("create content"))?;
        let digest = copy_hashed(source, Some(&content), source.size, watch)?;
        if !source.is_unchanged() {
            return Err(CopyError::Changed.into());
        }
        // Only speed depends on it: the sync finds the blocks on their way.
        let _ = start_writeback(&content);
        Ok(digest)
    }

    /// Binds the artifacts of one run to the conversation they are delivered to and moves them into
    /// the live namespace. On return they are durable.
    ///
    /// # Errors
    /// [`ShelfError`]; some may be moved then, and [`Shelf::discard`] takes them all back.
    pub fn finalise(&self, ids: &[Uuid], delivery: &ConversationId) -> Result<(), ShelfError> {
        let Some(&first) = ids.first() else {
            return Ok(());
        };
        let mut bound = Vec::with_capacity(ids.len());
        let mut unsynced = Vec::with_capacity(3 * ids.len());
        for &id in ids {
            let disk = |step| move |error| ShelfError::Disk { step, id, error };
            let mut manifest = self.index().get(id).cloned().ok_or(ShelfError::Gone(id))?;
            manifest.delivery = Some(delivery.clone());
            let home = self.staging.open(&id.to_string()).map_err(disk("open"))?;
            let content = home.read(CONTENT).map_err(disk("open content"))?;
            let metadata = home.create(METADATA).map_err(disk("create manifest"))?;
            begin_write(&metadata, &manifest.encode()?).map_err(disk("write manifest"))?;
            bound.push(manifest);
            let unsynced_of = |step, file| Unsynced { step, id, file };
            unsynced.extend([
                unsynced_of("sync content", content.into()),
                unsynced_of("sync manifest", metadata.into()),
                unsynced_of("sync directory", home.into()),
            ]);
        }
        sync_all(&unsynced)?;
        drop(unsynced);
        // Everything inside is on the disk before a name says that it is there.
        for manifest in &bound {
            let id = manifest.id;
            let disk = |step| move |error| ShelfError::Disk { step, id, error };
            self.staging
                .move_new(&id.to_string(), &self.live)
                .map_err(disk("rename"))?;
        }
        self.live.sync().map_err(|error| ShelfError::Disk {
            step: "sync reply-files",
            id: first,
            error,
        })?;
        let mut index = self.index();
        for manifest in bound {
            index.rewrite(manifest);
        }
        Ok(())
    }

    /// Removes artifacts, finalised or not; those that are gone already are as good.
    ///
    /// # Errors
    /// The first [`ShelfError`]; the others are tried all the same.
    pub fn discard(&self, ids: &[Uuid]) -> Result<(), ShelfError> {
        let mut outcome = Ok(());
        for &id in ids {
            outcome = outcome.and(self.remove(id));
        }
        if let (Ok(()), Some(&id)) = (&outcome, ids.first()) {
            // Else a crash could bring back what its run was told is gone.
            outcome = self.live.sync().map_err(|error| ShelfError::Disk {
                step: "sync reply-files",
                id,
                error,
            });
        }
        outcome
    }

    fn remove(&self, id: Uuid) -> Result<(), ShelfError> {
        let Some(manifest) = self.index().hide(id) else {
            return Ok(());
        };
        let name = id.to_string();
        match self.live.move_new(&name, &self.staging) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                self.index().doom(manifest);
                Err(ShelfError::Disk {
                    step: "rename",
                    id,
                    error,
                })
            }
            // Moved, or removed by somebody's hand.
            _ => {
                let removed = self.staging.remove_flat(&name);
                self.index().gone(id, removed.is_ok());
                Ok(())
            }
        }
    }

    /// Retention and the sweep of staging; returns how many artifacts went, or would go.
    pub fn clean(&self, retention: &Retention, now: Timestamp) -> usize {
        self.sweep(now);
        let doomed = self.index().doomed();
        if let Err(error) = self.discard(&doomed) {
            tracing::warn!(%error, "what was taken back can't be removed; it is tried again");
        }
        let due = self.index().due(retention, now);
        if retention.dry_run {
            for Due { id, size, reason } in self.unnamed(&due) {
                tracing::info!(artifact = %id, bytes = size, %reason, "retention would remove this (dry run)");
            }
            return due.len();
        }
        for Due { id, size, reason } in &due {
            tracing::info!(artifact = %id, bytes = size, %reason, "retention removes this");
        }
        let ids: Vec<_> = due.iter().map(|due| due.id).collect();
        if let Err(error) = self.discard(&ids) {
            tracing::warn!(%error, "retention could not remove everything; it tries again");
        }
        due.len()
    }

    /// Those of `due` that were not among them the last time.
    fn unnamed(&self, due: &[Due]) -> Vec<Due> {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *named, due.iter().map(|due| due.id).collect());
        let new = due.iter().filter(|due| !before.contains(&due.id));
        new.copied().collect()
    }

    /// Removes what crashes left in staging, once it is old enough to be nobody's.
    pub(crate) fn sweep(&self, now: Timestamp) {
        let leftovers = self.index().leftovers();
        for name in leftovers {
            let old = match self.staging.stat(&name) {
                Ok(stat) => now.as_second().saturating_sub(stat.st_mtime) >= STAGING_GRACE,
                Err(error) => error.kind() == io::ErrorKind::NotFound,
            };
            if !old {
                continue;
            }
            match self.staging.remove_flat(&name) {
                Ok(()) => self.index().swept(&name),
                Err(error) => {
                    tracing::warn!(name, %error, "an old staging directory can't be removed")
                }
            }
        }
    }
}

/// Writes a whole new file; its sync must follow.
fn begin_write(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    // Only speed depends on it: the sync finds the blocks on their way.
    let _ = start_writeback(file);
    Ok(())
}
