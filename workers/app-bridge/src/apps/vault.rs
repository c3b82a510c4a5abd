//! Where apps are kept: one folder each, complete and on the disk before one rename shows it.
//!
//! What there is is looked at once, when the worker starts; from then on the books are exact and
//! every change of them and of the disk goes through one gate. What can't be inspected then, or is
//! not what it was, is charged with more than it may have and left alone until the next start.

pub use super::books::Card;
pub(super) use super::books::{Books, LogFile, Owner};
use super::folder::{FileId, Folder, is_own};
use super::manifest::{MAX_MANIFEST, MAX_STATE, Manifest, State, is_id};
use super::quota::{Bounds, SEGMENTS};
pub use super::space::Usage;
use ipc_proto::apps::MAX_HTML;
use sha2::{Digest as _, Sha256};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use worker_kit::room::Room;

/// Records at most; more than any agent shows in a year.
pub const MAX_RECORDS: usize = 10_000;
/// Manifests that are kept in memory once they were read.
const MAX_READ: usize = 64;
/// Largest state with its frame of JSON in bytes.
const MAX_STATE_FILE: usize = MAX_STATE + 1024;

pub(super) const LOGS: [&str; SEGMENTS] = ["audit.jsonl", "audit.1.jsonl", "audit.2.jsonl"];
const MANIFEST: &str = "manifest.json";
const PAGE: &str = "resource.html";
const STATE: &str = "state.json";
/// The run that made it was about to commit: the reply names it.
pub(super) const KEPT: &str = "kept";
/// An operator took its rights away.
pub(super) const CLOSED: &str = "closed";

/// Where an operation is, for a test that changes something in just that moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// An entry is about to be appended.
    Append,
    /// A log is about to be rotated.
    Rotate,
    /// A log is about to be removed to make room.
    Reclaim,
    /// A record is about to be removed.
    Clean,
    /// A record is written and not yet shown.
    Show,
}

/// Called in the middle of operations.
pub type Hook = Arc<dyn Fn(Point) + Send + Sync>;

/// Why something could not be kept, or found.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// Never there, or another's.
    #[error("there is no such app")]
    Missing,
    /// Too old.
    #[error("the app has expired")]
    Expired,
    /// Over a bound of one record.
    #[error("{0}")]
    TooLarge(String),
    /// Over the bound of all.
    #[error("there is no room for another app")]
    Full,
    /// A folder or file is not the one that it was.
    #[error("{0} is not what was made here; it is left alone until the next start")]
    Changed(String),
    /// Another process has the apps.
    #[error("apps are kept by another process by now")]
    Left,
    /// The disk.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A new record.
#[derive(Debug)]
pub struct NewApp {
    /// The manifest.
    pub manifest: Manifest,
    /// The page.
    pub html: String,
    /// Input and result.
    pub state: State,
}

/// Every app.
pub struct Vault {
    root: Folder,
    pub(super) apps: Folder,
    apps_id: FileId,
    pub(super) staging: Folder,
    books: Mutex<Books>,
    /// Where more of the ceiling comes from; all of it is this vault's without.
    pub(super) room: Option<Room>,
    pub(super) bounds: Bounds,
    pub(super) hook: Option<Hook>,
    /// Told after each entry: it is to be synced soon.
    pub(super) written: Notify,
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vault")
            .field("apps", &self.apps)
            .finish_non_exhaustive()
    }
}

impl Vault {
    /// Opens the worker's folder and looks at what is there. `now` in milliseconds since 1970.
    ///
    /// # Errors
    /// When the folder can't be used at all.
    pub fn open(root: Folder, now: i64) -> io::Result<Self> {
        Self::with(root, now, Bounds::default(), None)
    }

    /// As [`Vault::open`], with other bounds and a hook.
    ///
    /// # Errors
    /// As [`Vault::open`].
    pub fn with(root: Folder, now: i64, bounds: Bounds, hook: Option<Hook>) -> io::Result<Self> {
        let apps = root.open_or_make("apps")?;
        let staging = root.open_or_make("staging")?;
        for name in staging.names(MAX_RECORDS)? {
            if let Err(e) = staging.remove_flat(&name) {
                tracing::warn!("what was being written could not be removed: {e}");
            }
        }
        let vault = Self {
            apps_id: apps.id()?,
            root,
            apps,
            staging,
            books: Mutex::new(Books {
                allowed: bounds.ceiling,
                ..Books::default()
            }),
            room: None,
            bounds,
            hook,
            written: Notify::new(),
        };
        vault.inventory(now)?;
        Ok(vault)
    }

    fn inventory(&self, now: i64) -> io::Result<()> {
        let mut books = self.books();
        // While runs of an earlier process go on, nobody knows yet what they keep.
        let alone = self.staging.hold()?.is_some();
        let mut given_up = Vec::new();
        for name in self.apps.names(2 * MAX_RECORDS)? {
            match self.inspect(&name) {
                // The run that made it never got to its commit.
                Ok(owner)
                    if (alone && !owner.card.kept && !owner.has_acted())
                        || owner.card.expires_at <= now =>
                {
                    if let Err(e) = self.remove_folder(&name) {
                        tracing::warn!(app = name, "an old app could not be removed: {e}");
                        books.quarantine(&name);
                    }
                }
                Ok(mut owner) => {
                    // Within one app the current log is the youngest; between apps nobody knows.
                    owner.pending = !owner.card.kept;
                    if alone && owner.pending {
                        given_up.push(name.clone());
                    }
                    for log in owner.logs.iter_mut().rev().flatten() {
                        books.age += 1;
                        log.age = books.age;
                    }
                    books.owners.insert(name, owner);
                }
                Err(e) => {
                    tracing::warn!(app = name, "an app can't be read: {e}");
                    books.quarantine(&name);
                }
            }
        }
        drop(books);
        given_up.iter().for_each(|id| self.give_up(id));
        Ok(())
    }

    fn inspect(&self, name: &str) -> Result<Owner, String> {
        let io = |e: io::Error| e.to_string();
        if !is_id(name) {
            return Err("its name is none of ours".to_owned());
        }
        let folder = self.apps.open(name).map_err(io)?;
        let bytes = folder.read(MANIFEST, MAX_MANIFEST).map_err(io)?;
        let manifest = Manifest::read(&bytes, name).map_err(|e| e.to_string())?;
        let mut owner = Owner::of(&manifest, folder.id().map_err(io)?, 0);
        for file in folder.names(16).map_err(io)? {
            let stat = folder.stat(&file).map_err(io)?.ok_or("it changes")?;
            if !is_own(&stat) {
                return Err(format!("{file} is none of our files"));
            }
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            match file.as_str() {
                MANIFEST | PAGE | STATE => owner.card.bytes += size,
                KEPT => owner.card.kept = true,
                CLOSED => owner.card.closed = true,
                other => {
                    let at = LOGS.iter().position(|log| *log == other);
                    let at = at.ok_or_else(|| format!("{other} is none of our files"))?;
                    owner.logs[at] = Some(LogFile {
                        bytes: size,
                        id: FileId::of(&stat),
                        age: 0,
                        // Nobody knows how the last life ended.
                        torn: true,
                    });
                }
            }
        }
        Ok(owner)
    }

    /// Writes a record down. It can be shown as long as its run goes on, and after it once the run
    /// has kept it ([`Vault::keep`]).
    ///
    /// # Errors
    /// [`VaultError::TooLarge`], [`VaultError::Full`], or the disk's; nothing is left then.
    pub fn publish(&self, new: &NewApp, now: i64) -> Result<(), VaultError> {
        let json = |e: serde_json::Error| VaultError::TooLarge(e.to_string());
        let manifest = serde_json::to_vec(&new.manifest).map_err(json)?;
        let state = serde_json::to_vec(&new.state).map_err(json)?;
        for (what, bytes, most) in [
            ("the manifest", manifest.len(), MAX_MANIFEST),
            ("the state", state.len(), MAX_STATE_FILE),
            ("the page", new.html.len(), MAX_HTML),
        ] {
            if bytes > most {
                let text = format!("{what} has {bytes} bytes, more than {most}");
                return Err(VaultError::TooLarge(text));
            }
        }
        let charge = (manifest.len() + state.len() + new.html.len()) as u64;
        self.clean(now);
        self.reserve(charge)?;
        let id = &new.manifest.id;
        let written = self.write(id, &manifest, &state, new.html.as_bytes());
        let mut books = self.books();
        books.staged -= charge;
        match written {
            Ok(folder) => {
                let owner = Owner::of(&new.manifest, folder, charge);
                books.owners.insert(id.clone(), owner);
                Ok(())
            }
            Err(e) => {
                // It may stand there already, and only that could not be made sure of.
                let stands = !books.owners.contains_key(id) && self.remove_folder(id).is_ok();
                drop(books);
                if !stands && let Err(e) = self.staging.remove_flat(id) {
                    tracing::warn!("what was being written could not be removed: {e}");
                }
                Err(e)
            }
        }
    }

    fn write(
        &self,
        id: &str,
        manifest: &[u8],
        state: &[u8],
        html: &[u8],
    ) -> Result<FileId, VaultError> {
        self.staging.make(id)?;
        let folder = self.staging.open(id)?;
        folder.write_new(PAGE, html)?;
        folder.write_new(STATE, state)?;
        folder.write_new(MANIFEST, manifest)?;
        folder.sync()?;
        self.point(Point::Show);
        self.check()?;
        self.staging.move_new(id, &self.apps, id)?;
        self.apps.sync()?;
        Ok(folder.id()?)
    }

    /// A run is about to commit: of its apps these stay, and the others go.
    ///
    /// # Errors
    /// The disk's; then all of the run's apps are gone.
    pub fn keep(&self, run: &str, ids: &[String]) -> Result<(), VaultError> {
        let own = self.of_run(run);
        let kept = own.iter().filter(|id| ids.contains(id));
        let marked = kept
            .map(|id| self.mark(id, KEPT))
            .collect::<Result<Vec<()>, _>>();
        let failed = marked.is_err();
        for id in own.iter().filter(|id| failed || !ids.contains(id)) {
            self.give_up(id);
        }
        marked.map(|_| ())
    }

    /// A run has ended: what of it was not kept goes.
    pub fn settle(&self, run: &str) {
        for id in self.of_run(run) {
            if self.card(&id).is_some_and(|card| !card.kept) {
                self.give_up(&id);
            }
        }
    }

    /// The run of an app does without it: it goes. What was done in its name stays on record, and
    /// the app with it, without rights.
    pub(crate) fn give_up(&self, id: &str) {
        let acted = self.books().owners.get(id).is_some_and(Owner::has_acted);
        // In this order: after a crash in between it has no rights and is given up again.
        let put_away = || self.mark(id, CLOSED).and_then(|()| self.mark(id, KEPT));
        if !acted || put_away().is_err() {
            self.remove(id);
        }
    }

    /// Takes an app's rights away for good.
    ///
    /// # Errors
    /// [`VaultError::Missing`], or the disk's.
    pub fn close(&self, id: &str) -> Result<(), VaultError> {
        self.mark(id, CLOSED)
    }

    fn mark(&self, id: &str, mark: &str) -> Result<(), VaultError> {
        let mut books = self.books();
        let owner = books.owners.get_mut(id).ok_or(VaultError::Missing)?;
        let folder = self.folder_of(owner)?;
        match folder.write_new(mark, b"") {
            Ok(_) => folder.sync()?,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e.into()),
        }
        match mark {
            KEPT => (owner.card.kept, owner.pending) = (true, false),
            _ => owner.card.closed = true,
        }
        Ok(())
    }

    fn of_run(&self, run: &str) -> Vec<String> {
        let books = self.books();
        let own = books.owners.values().filter(|owner| owner.card.run == run);
        own.map(|owner| owner.card.id.clone()).collect()
    }

    /// What the books know.
    #[must_use]
    pub fn card(&self, id: &str) -> Option<Card> {
        self.books().owners.get(id).map(|owner| owner.card.clone())
    }

    /// Everything that is kept, newest first.
    #[must_use]
    pub fn cards(&self) -> Vec<Card> {
        let books = self.books();
        let kept = books.owners.values().filter(|owner| owner.card.kept);
        let mut cards: Vec<Card> = kept.map(|owner| owner.card.clone()).collect();
        cards.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        cards
    }

    /// Reads a record; one that has expired is gone with that.
    ///
    /// # Errors
    /// [`VaultError::Missing`] also for what can't be read any more, [`VaultError::Expired`].
    pub fn manifest(&self, id: &str, now: i64) -> Result<Arc<Manifest>, VaultError> {
        let known = |owner: &Owner| {
            owner
                .manifest
                .clone()
                .filter(|_| owner.card.expires_at > now)
        };
        if let Some(known) = self.books().owners.get(id).and_then(known) {
            return Ok(known);
        }
        let folder = self.reading(id, now)?;
        let bytes = folder.read(MANIFEST, MAX_MANIFEST)?;
        let manifest = Manifest::read(&bytes, id).map_err(|e| {
            tracing::warn!(app = id, "an app can't be read: {e}");
            VaultError::Missing
        })?;
        let manifest = Arc::new(manifest);
        let mut books = self.books();
        // Those that nobody looks at are read again; few are looked at at once.
        if books
            .owners
            .values()
            .filter(|o| o.manifest.is_some())
            .count()
            >= MAX_READ
        {
            books
                .owners
                .values_mut()
                .for_each(|owner| owner.manifest = None);
        }
        if let Some(owner) = books.owners.get_mut(id) {
            owner.manifest = Some(manifest.clone());
        }
        Ok(manifest)
    }

    /// Reads what a page is shown with.
    ///
    /// # Errors
    /// As [`Vault::manifest`].
    pub fn state(&self, id: &str, now: i64) -> Result<State, VaultError> {
        let bytes = self.reading(id, now)?.read(STATE, MAX_STATE_FILE)?;
        serde_json::from_slice(&bytes).map_err(|e| {
            tracing::warn!(app = id, "an app's state can't be read: {e}");
            VaultError::Missing
        })
    }

    /// Reads a page, which must be the one that was written.
    ///
    /// # Errors
    /// As [`Vault::manifest`].
    pub fn html(&self, manifest: &Manifest, now: i64) -> Result<Vec<u8>, VaultError> {
        let bytes = self.reading(&manifest.id, now)?.read(PAGE, MAX_HTML)?;
        if hash(&bytes) == manifest.html_hash {
            return Ok(bytes);
        }
        tracing::warn!(app = manifest.id, "an app's page is not what was written");
        Err(VaultError::Missing)
    }

    fn reading(&self, id: &str, now: i64) -> Result<Folder, VaultError> {
        let books = self.books();
        let owner = books.owners.get(id).ok_or(VaultError::Missing)?;
        if owner.card.expires_at <= now {
            // What it has under way still owes an entry.
            let busy = owner.under_way > 0;
            drop(books);
            if !busy {
                self.remove(id);
            }
            return Err(VaultError::Expired);
        }
        self.folder_of(owner)
    }

    /// Removes what has expired and has nothing under way.
    pub fn clean(&self, now: i64) {
        let due: Vec<String> = {
            let books = self.books();
            if books.left {
                return;
            }
            let due = books.owners.values();
            let due = due.filter(|owner| owner.card.expires_at <= now && owner.under_way == 0);
            due.map(|owner| owner.card.id.clone()).collect()
        };
        for id in due {
            self.remove(&id);
        }
    }

    pub(super) fn remove(&self, id: &str) {
        let mut books = self.books();
        let Some(owner) = books.owners.get(id) else {
            return;
        };
        self.point(Point::Clean);
        let removed = self
            .folder_of(owner)
            .and_then(|_| Ok(self.remove_folder(id)?));
        match removed {
            Ok(()) => drop(books.owners.remove(id)),
            Err(VaultError::Changed(_)) => books.quarantine(id),
            Err(e) => tracing::warn!(app = id, "an app could not be removed yet: {e}"),
        }
    }

    /// In one step out of sight, then gone: a crash in between leaves nothing half.
    fn remove_folder(&self, id: &str) -> io::Result<()> {
        self.apps.move_new(id, &self.staging, id)?;
        // From here on nobody finds it, and the next start removes what is left.
        let gone = self.apps.sync().and_then(|()| self.staging.remove_flat(id));
        if let Err(e) = gone {
            tracing::warn!(
                app = id,
                "what is left of an app could not be removed yet: {e}"
            );
        }
        Ok(())
    }

    /// The folder of all apps is the one that was opened.
    pub(super) fn check(&self) -> Result<(), VaultError> {
        let stat = self.root.stat("apps")?;
        if stat.is_some_and(|stat| FileId::of(&stat) == self.apps_id) {
            Ok(())
        } else {
            Err(VaultError::Changed("the folder of all apps".to_owned()))
        }
    }

    /// What an app's name leads to is the folder that was made.
    pub(super) fn check_owner(&self, owner: &Owner) -> Result<(), VaultError> {
        self.check()?;
        let stat = self.apps.stat(&owner.card.id)?;
        if stat.is_some_and(|stat| FileId::of(&stat) == owner.folder) {
            Ok(())
        } else {
            Err(changed(owner))
        }
    }

    /// The folder of one app, which is the one that was made.
    pub(super) fn folder_of(&self, owner: &Owner) -> Result<Folder, VaultError> {
        self.check()?;
        let folder = self.apps.open(&owner.card.id).map_err(|_| changed(owner))?;
        if folder.id()? == owner.folder {
            Ok(folder)
        } else {
            Err(changed(owner))
        }
    }

    pub(super) fn point(&self, point: Point) {
        if let Some(hook) = &self.hook {
            hook(point);
        }
    }

    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn changed(owner: &Owner) -> VaultError {
    VaultError::Changed(format!("the folder of {}", owner.card.id))
}

/// SHA-256 in hexadecimal.
#[must_use]
pub fn hash(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

#[cfg(test)]
#[path = "vault_tests.rs"]
pub(crate) mod tests;
