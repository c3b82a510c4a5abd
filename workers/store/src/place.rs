//! Where the database lives, and whether that place can be trusted.
//!
//! The state directory and everything of the database in it belong to the store's own user and to
//! nobody else. A place that another user could have prepared or could change is refused: history
//! read from it would be put before a model as the truth.

use nix::libc;
use std::fs::{DirBuilder, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// File name of the database inside the state directory.
pub const DATABASE: &str = "store.sqlite";

/// Where a new database is built before it gets its name.
const INITIALIZING: &str = "store.sqlite.initializing";

/// Files that SQLite may keep beside the database.
const COMPANIONS: [&str; 3] = [
    "store.sqlite-wal",
    "store.sqlite-shm",
    "store.sqlite-journal",
];

/// What is wrong with one file or directory.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
pub enum Defect {
    /// A link could be pointed at another user's file.
    #[error("it is a symbolic link")]
    Symlink,
    /// Neither the regular file nor the directory that was expected.
    #[error("it is not a {0}")]
    Kind(&'static str),
    /// Somebody else's.
    #[error("it belongs to user {found}, not to user {expected}")]
    Owner {
        /// The owner found.
        found: u32,
        /// The store's user.
        expected: u32,
    },
    /// Group or others have rights.
    #[error("its mode is {0:04o}, group and others must have no rights (chmod go= it)")]
    Mode(u32),
    /// A second name outside the state directory may exist.
    #[error("it has {0} hard links, exactly one is allowed")]
    Links(u64),
}

/// Why the state directory can't be used.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The kernel refused a step.
    #[error("{step} {path} failed: {source}")]
    Io {
        /// What was tried.
        step: &'static str,
        /// On which path.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The place is not exclusively ours.
    #[error("refusing {path}: {defect}")]
    Unsafe {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it.
        defect: Defect,
    },
    /// The main file is gone while its log is there: creating a new one would hide the loss.
    #[error(
        "{0} is missing but its write-ahead log is there: restore the database, or move the log away to start empty"
    )]
    Orphaned(PathBuf),
}

/// What is expected at a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Directory,
    File,
}

/// The facts about an inode that decide whether it is ours alone.
struct Facts {
    symlink: bool,
    directory: bool,
    regular: bool,
    uid: u32,
    mode: u32,
    links: u64,
}

impl From<&Metadata> for Facts {
    fn from(meta: &Metadata) -> Self {
        let kind = meta.file_type();
        Self {
            symlink: kind.is_symlink(),
            directory: kind.is_dir(),
            regular: kind.is_file() && !kind.is_fifo() && !kind.is_socket(),
            uid: meta.uid(),
            mode: meta.mode() & 0o7777,
            links: meta.nlink(),
        }
    }
}

/// The decision, without I/O.
fn judge(facts: &Facts, kind: Kind, owner: u32) -> Result<(), Defect> {
    if facts.symlink {
        return Err(Defect::Symlink);
    }
    match kind {
        Kind::Directory if !facts.directory => return Err(Defect::Kind("directory")),
        Kind::File if !facts.regular => return Err(Defect::Kind("regular file")),
        Kind::File if facts.links != 1 => return Err(Defect::Links(facts.links)),
        _ => {}
    }
    if facts.uid != owner {
        return Err(Defect::Owner {
            found: facts.uid,
            expected: owner,
        });
    }
    if facts.mode & 0o077 != 0 {
        return Err(Defect::Mode(facts.mode));
    }
    Ok(())
}

/// The verified place of the database.
#[derive(Debug)]
pub struct Place {
    database: PathBuf,
    owner: u32,
    /// Device and inode of the database file when it was verified.
    identity: (u64, u64),
}

impl Place {
    /// Verifies the state directory and the database files in it. Makes the directory (0700) where
    /// there is none, and a new database (0600) with `build`.
    ///
    /// A new database gets its name when it is complete and synced. So a database that is empty or
    /// half is never the trace of an interrupted start: it is damage, and can be called so.
    ///
    /// Only call this **before** SQLite has the file open: closing a second descriptor of it would
    /// drop SQLite's locks.
    ///
    /// # Errors
    /// [`PlaceError`] when anything there is a link, another user's, or open to others, and what
    /// `build` gives.
    pub fn prepare<E: From<PlaceError>>(
        dir: &Path,
        build: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<Self, E> {
        Self::prepare_as(dir, nix::unistd::geteuid().as_raw(), build)
    }

    fn prepare_as<E: From<PlaceError>>(
        dir: &Path,
        owner: u32,
        build: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<Self, E> {
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed("creating", dir)(e).into());
            }
            _ => {}
        }
        check(dir, Kind::Directory, owner)?;
        // The parents are the supervisor's business; below this directory no link is followed.
        let dir = dir.canonicalize().map_err(failed("resolving", dir))?;
        let database = dir.join(DATABASE);
        let mut companions = false;
        for name in COMPANIONS {
            companions |= check_if_there(&dir.join(name), owner)?;
        }
        if !check_if_there(&database, owner)? {
            if companions {
                return Err(PlaceError::Orphaned(database).into());
            }
            let new = dir.join(INITIALIZING);
            create(&new, owner)?;
            build(&new)?;
            std::fs::rename(&new, &database).map_err(failed("naming", &database))?;
            sync_dir(&dir)?;
        }
        let meta = check(&database, Kind::File, owner)?;
        Ok(Self {
            database,
            owner,
            identity: (meta.dev(), meta.ino()),
        })
    }

    /// The database file, without a link in its path.
    #[must_use]
    pub fn database(&self) -> &Path {
        &self.database
    }

    /// Verifies, after SQLite opened the path, that the name still leads to the verified file and
    /// that SQLite's own files are as private. Looks at names only, never opens them.
    ///
    /// # Errors
    /// [`PlaceError`] when a file was exchanged or is open to others.
    pub fn verify(&self) -> Result<(), PlaceError> {
        let meta = check(&self.database, Kind::File, self.owner)?;
        if (meta.dev(), meta.ino()) != self.identity {
            return Err(PlaceError::Io {
                step: "verifying",
                path: self.database.clone(),
                source: io::Error::other("the file was exchanged while it was opened"),
            });
        }
        for name in COMPANIONS {
            check_if_there(&self.database.with_file_name(name), self.owner)?;
        }
        Ok(())
    }
}

fn check(path: &Path, kind: Kind, owner: u32) -> Result<Metadata, PlaceError> {
    let meta = path
        .symlink_metadata()
        .map_err(failed("looking at", path))?;
    judge(&Facts::from(&meta), kind, owner).map_err(|defect| PlaceError::Unsafe {
        path: path.to_owned(),
        defect,
    })?;
    Ok(meta)
}

/// True when the file is there (and sound).
fn check_if_there(path: &Path, owner: u32) -> Result<bool, PlaceError> {
    match check(path, Kind::File, owner) {
        Ok(_) => Ok(true),
        Err(PlaceError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// An empty private file; what an interrupted start left under the name is removed first.
fn create(path: &Path, owner: u32) -> Result<(), PlaceError> {
    if check_if_there(path, owner)? {
        std::fs::remove_file(path).map_err(failed("removing", path))?;
    }
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path)
        .map(drop)
        .map_err(failed("creating", path))
}

fn sync_dir(path: &Path) -> Result<(), PlaceError> {
    std::fs::File::open(path)
        .and_then(|dir| dir.sync_all())
        .map_err(failed("syncing", path))
}

fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PlaceError {
    let path = path.to_owned();
    move |source| PlaceError::Io { step, path, source }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn ours() -> u32 {
        nix::unistd::geteuid().as_raw()
    }

    fn prepare(dir: &Path) -> Result<Place, PlaceError> {
        Place::prepare(dir, |_| Ok(()))
    }

    fn private_dir() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
        dir
    }

    fn defect(result: Result<Place, PlaceError>) -> Defect {
        match result {
            Err(PlaceError::Unsafe { defect, .. }) => defect,
            other => panic!("expected a defect, got {other:?}"),
        }
    }

    #[test]
    fn a_new_place_is_made_for_the_owner_only() {
        let parent = private_dir();
        let dir = parent.path().join("store");
        let place = prepare(&dir).unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(
            fs::metadata(place.database()).unwrap().mode() & 0o7777,
            0o600
        );
        place.verify().unwrap();
        prepare(&dir).unwrap();
    }

    #[test]
    fn every_right_of_group_or_others_is_refused() {
        for mode in [0o610, 0o620, 0o640, 0o601, 0o602, 0o604, 0o666] {
            let dir = private_dir();
            let file = prepare(dir.path()).unwrap().database().to_owned();
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            assert_eq!(defect(prepare(dir.path())), Defect::Mode(mode));
        }
        for mode in [0o710, 0o720, 0o740, 0o701, 0o755, 0o777] {
            let dir = private_dir();
            fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
            assert_eq!(defect(prepare(dir.path())), Defect::Mode(mode));
        }
    }

    #[test]
    fn links_of_both_kinds_are_refused() {
        for name in [DATABASE, COMPANIONS[0], COMPANIONS[1], COMPANIONS[2]] {
            let dir = private_dir();
            let target = dir.path().join("target");
            fs::write(&target, b"").unwrap();
            fs::set_permissions(&target, Permissions::from_mode(0o600)).unwrap();
            symlink(&target, dir.path().join(name)).unwrap();
            assert_eq!(defect(prepare(dir.path())), Defect::Symlink, "{name}");

            let dir = private_dir();
            let target = dir.path().join("target");
            fs::write(&target, b"").unwrap();
            fs::set_permissions(&target, Permissions::from_mode(0o600)).unwrap();
            fs::hard_link(&target, dir.path().join(name)).unwrap();
            assert_eq!(defect(prepare(dir.path())), Defect::Links(2), "{name}");
        }
        let parent = private_dir();
        fs::create_dir(parent.path().join("real")).unwrap();
        symlink(parent.path().join("real"), parent.path().join("link")).unwrap();
        assert_eq!(
            defect(prepare(&parent.path().join("link"))),
            Defect::Symlink
        );
    }

    #[test]
    fn another_owner_and_other_kinds_are_refused() {
        let dir = private_dir();
        let (found, expected) = (ours(), ours() + 1);
        assert_eq!(
            defect(Place::prepare_as(dir.path(), expected, |_| Ok(()))),
            Defect::Owner { found, expected }
        );
        fs::create_dir(dir.path().join(DATABASE)).unwrap();
        assert_eq!(defect(prepare(dir.path())), Defect::Kind("regular file"));
        let file = dir.path().join("file");
        fs::write(&file, b"").unwrap();
        assert_eq!(defect(prepare(&file)), Defect::Kind("directory"));
    }

    #[test]
    fn a_log_without_its_database_is_not_started_over() {
        let dir = private_dir();
        let wal = dir.path().join(COMPANIONS[0]);
        fs::write(&wal, b"x").unwrap();
        fs::set_permissions(&wal, Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(prepare(dir.path()), Err(PlaceError::Orphaned(_))));
        assert!(!dir.path().join(DATABASE).exists());
    }

    #[test]
    fn a_new_database_is_named_when_it_is_complete() {
        let dir = private_dir();
        let half = |new: &Path| -> Result<(), PlaceError> {
            fs::write(new, b"half").unwrap();
            Err(failed("building", new)(io::Error::other("interrupted")))
        };
        assert!(Place::prepare(dir.path(), half).is_err());
        assert!(!dir.path().join(DATABASE).exists());
        let place = Place::prepare(dir.path(), |new| -> Result<(), PlaceError> {
            assert_eq!(
                fs::read(new).unwrap(),
                b"",
                "nothing of the interrupted start is taken over"
            );
            fs::write(new, b"whole").unwrap();
            Ok(())
        });
        assert_eq!(fs::read(place.unwrap().database()).unwrap(), b"whole");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        Place::prepare(dir.path(), |_| -> Result<(), PlaceError> {
            panic!("built twice")
        })
        .unwrap();
    }

    #[test]
    fn an_exchanged_file_is_noticed() {
        let dir = private_dir();
        let place = prepare(dir.path()).unwrap();
        let other = dir.path().join("other");
        fs::write(&other, b"").unwrap();
        fs::set_permissions(&other, Permissions::from_mode(0o600)).unwrap();
        fs::rename(&other, place.database()).unwrap();
        assert!(matches!(
            place.verify(),
            Err(PlaceError::Io {
                step: "verifying",
                ..
            })
        ));
    }
}
