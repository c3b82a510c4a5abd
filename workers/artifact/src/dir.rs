//! Directories by descriptor: every durable byte of this worker is reached through these few
//! calls, relative to a directory that is held open and never by an absolute path.

use nix::dir::Dir as Listing;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, RenameFlags, ResolveFlag, openat, openat2, renameat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub use worker_kit::FileId;

/// `openat2` gives `EAGAIN` when a rename anywhere raced with the resolution; honest races end
/// soon, and one without end is an attack.
const RESOLVE_RETRIES: usize = 16;
/// Most files in one artifact's directory: content, manifest, and a manifest being replaced.
const MAX_FILES: usize = 64;

/// What a status says the file is.
#[must_use]
pub const fn is_regular(stat: &FileStat) -> bool {
    SFlag::from_bits_truncate(stat.st_mode)
        .intersection(SFlag::S_IFMT)
        .bits()
        == SFlag::S_IFREG.bits()
}

/// An open directory.
#[derive(Debug)]
pub struct Dir(OwnedFd);

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Dir> for OwnedFd {
    fn from(dir: Dir) -> Self {
        dir.0
    }
}

impl Dir {
    /// A directory that was handed over, opened in whatever way; fails on anything else.
    ///
    /// # Errors
    /// `ENOTDIR`, or what `fstat` says.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let kind = SFlag::from_bits_truncate(fstat(&fd)?.st_mode) & SFlag::S_IFMT;
        if kind == SFlag::S_IFDIR {
            Ok(Self(fd))
        } else {
            Err(Errno::ENOTDIR.into())
        }
    }

    /// Opens a directory in this one, for listing and syncing. `.` gives a description of its own.
    ///
    /// # Errors
    /// `ELOOP` or `ENOTDIR` for a symbolic link, else what `openat` says.
    pub fn open(&self, name: &str) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(Self(openat(&self.0, name, flags, Mode::empty())?))
    }

    /// Opens a directory in this one, making it (0700) when it is missing.
    ///
    /// # Errors
    /// As [`Dir::open`] and [`Dir::make`].
    pub fn open_or_make(&self, name: &str) -> io::Result<Self> {
        match self.make(name) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => self.open(name),
            Err(e) => Err(e),
            Ok(()) => {
                self.sync()?;
                self.open(name)
            }
        }
    }

    /// Makes a directory, 0700 whatever the umask.
    ///
    /// # Errors
    /// What `mkdirat` says, `EEXIST` among it.
    pub fn make(&self, name: &str) -> io::Result<()> {
        Ok(mkdirat(&self.0, name, Mode::S_IRWXU)?)
    }

    /// Steps into a component of a path that somebody else controls: no symbolic link, no magic
    /// link, nothing above, and only a handle (`O_PATH`), so that no device or FIFO is opened.
    ///
    /// # Errors
    /// `ELOOP` for any link, `ENOTDIR` for a file when `directory`, else what `openat2` says.
    pub fn step(&self, name: &str, directory: bool) -> io::Result<OwnedFd> {
        let kind = if directory {
            OFlag::O_DIRECTORY
        } else {
            OFlag::empty()
        };
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | kind)
            .resolve(
                ResolveFlag::RESOLVE_BENEATH
                    | ResolveFlag::RESOLVE_NO_SYMLINKS
                    | ResolveFlag::RESOLVE_NO_MAGICLINKS,
            );
        for _ in 0..RESOLVE_RETRIES {
            match openat2(&self.0, name, how) {
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                other => return Ok(other?),
            }
        }
        Err(Errno::EAGAIN.into())
    }

    /// Creates a file that must not exist, 0600, for writing.
    ///
    /// # Errors
    /// What `openat` says.
    pub fn create(&self, name: &str) -> io::Result<File> {
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(openat(&self.0, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?.into())
    }

    /// Opens one of our own files for reading: regular, with one link, and nothing that blocks.
    ///
    /// # Errors
    /// `EBADMSG` for a file of another shape than we make, else what `openat` says.
    pub fn read(&self, name: &str) -> io::Result<File> {
        let flags = OFlag::O_RDONLY
            | OFlag::O_NOFOLLOW
            | OFlag::O_NONBLOCK
            | OFlag::O_NOCTTY
            | OFlag::O_CLOEXEC;
        let file = openat(&self.0, name, flags, Mode::empty())?;
        let stat = fstat(&file)?;
        if is_regular(&stat) && stat.st_nlink == 1 {
            Ok(file.into())
        } else {
            Err(Errno::EBADMSG.into())
        }
    }

    /// Reads one of our own small files whole.
    ///
    /// # Errors
    /// `EFBIG` over `max` bytes, else as [`Dir::read`].
    pub fn read_small(&self, name: &str, max: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read(name)?
            .take(max as u64 + 1)
            .read_to_end(&mut bytes)?;
        if bytes.len() > max {
            Err(Errno::EFBIG.into())
        } else {
            Ok(bytes)
        }
    }

    /// The status of an entry, a symbolic link's own.
    ///
    /// # Errors
    /// What `fstatat` says.
    pub fn stat(&self, name: &str) -> io::Result<FileStat> {
        Ok(fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW)?)
    }

    /// Which directory this is.
    ///
    /// # Errors
    /// What `fstat` says.
    pub fn id(&self) -> io::Result<FileId> {
        Ok(FileId::of(&fstat(&self.0)?))
    }

    /// Makes the entries of this directory durable.
    ///
    /// # Errors
    /// What `fsync` says; `EBADF` on a directory opened as a path only.
    pub fn sync(&self) -> io::Result<()> {
        Ok(nix::unistd::fsync(&self.0)?)
    }

    /// Moves an entry to another directory where the name must be free.
    ///
    /// # Errors
    /// `EEXIST`, else what `renameat2` says.
    pub fn move_new(&self, name: &str, to: &Self) -> io::Result<()> {
        Ok(renameat2(
            &self.0,
            name,
            &to.0,
            name,
            RenameFlags::RENAME_NOREPLACE,
        )?)
    }

    /// Removes a file; a missing one is as good.
    ///
    /// # Errors
    /// What `unlinkat` says.
    pub fn remove_file(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Removes a directory of files, or a stray file; a missing one is as good. What holds
    /// directories of its own is not ours and stays (`ENOTEMPTY`).
    ///
    /// # Errors
    /// What `unlinkat` says.
    pub fn remove_flat(&self, name: &str) -> io::Result<()> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let inner = match openat(&self.0, name, flags, Mode::empty()) {
            Ok(fd) => Self(fd),
            Err(Errno::ENOTDIR | Errno::ELOOP) => return self.remove_file(name),
            Err(Errno::ENOENT) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        for file in inner.names(MAX_FILES)?.names {
            match unlinkat(&inner.0, file.as_str(), UnlinkatFlags::NoRemoveDir) {
                Ok(()) | Err(Errno::ENOENT | Errno::EISDIR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        match unlinkat(&self.0, name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// The names of the entries, without `.` and `..`, at most `max` of them.
    ///
    /// # Errors
    /// What `getdents64` says.
    pub fn names(&self, max: usize) -> io::Result<Names> {
        // A listing has a position of its own only with a description of its own.
        let mut listing = Listing::from_fd(self.open(".")?.0)?;
        let mut found = Names::default();
        for entry in listing.iter() {
            let entry = entry?;
            match entry.file_name().to_str() {
                Ok("." | "..") => {}
                Ok(name) if found.names.len() < max => found.names.push(name.to_owned()),
                _ => found.others += 1,
            }
        }
        Ok(found)
    }
}

/// A bounded listing.
#[derive(Debug, Default)]
pub struct Names {
    /// Names, in no order.
    pub names: Vec<String>,
    /// Entries over the bound, or whose names are no UTF-8.
    pub others: u64,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    fn here() -> (tempfile::TempDir, Dir) {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::from_fd(fs::File::open(temp.path()).unwrap().into()).unwrap();
        (temp, dir)
    }

    #[test]
    fn what_is_made_is_private() {
        let (temp, dir) = here();
        dir.open_or_make("d").unwrap().create("f").unwrap();
        dir.open_or_make("d").unwrap();
        let mode = |path: &str| fs::metadata(temp.path().join(path)).unwrap().mode() & 0o7777;
        assert_eq!((mode("d"), mode("d/f")), (0o700, 0o600));
        assert!(dir.open("d").unwrap().create("f").is_err());
    }

    #[test]
    fn links_of_either_kind_and_special_files_are_not_read() {
        let (temp, dir) = here();
        fs::write(temp.path().join("f"), b"x").unwrap();
        symlink("f", temp.path().join("soft")).unwrap();
        fs::hard_link(temp.path().join("f"), temp.path().join("hard")).unwrap();
        nix::unistd::mkfifo(&temp.path().join("fifo"), Mode::S_IRWXU).unwrap();
        for name in ["f", "soft", "hard", "fifo", "missing", "."] {
            assert!(dir.read(name).is_err(), "{name}");
        }
        fs::remove_file(temp.path().join("hard")).unwrap();
        assert_eq!(dir.read_small("f", 1).unwrap(), b"x");
        assert_eq!(
            dir.read_small("f", 0).unwrap_err().raw_os_error(),
            Some(Errno::EFBIG as i32)
        );
    }

    #[test]
    fn moving_and_removing_touch_nothing_else() {
        let (temp, dir) = here();
        let (a, b) = (
            dir.open_or_make("a").unwrap(),
            dir.open_or_make("b").unwrap(),
        );
        a.open_or_make("x").unwrap().create("f").unwrap();
        b.open_or_make("x").unwrap();
        assert_eq!(
            a.move_new("x", &b).unwrap_err().raw_os_error(),
            Some(Errno::EEXIST as i32)
        );
        b.remove_flat("x").unwrap();
        a.move_new("x", &b).unwrap();
        b.remove_flat("x").unwrap();
        b.remove_flat("x").unwrap();
        symlink(temp.path().join("a"), temp.path().join("b/l")).unwrap();
        fs::write(temp.path().join("a/kept"), b"").unwrap();
        b.remove_flat("l").unwrap();
        b.open_or_make("deep")
            .unwrap()
            .open_or_make("deeper")
            .unwrap();
        assert!(b.remove_flat("deep").is_err());
        assert_eq!(b.names(10).unwrap().names, ["deep"]);
        assert!(temp.path().join("a/kept").exists());
        assert!(Dir::from_fd(fs::File::open(temp.path().join("a/kept")).unwrap().into()).is_err());
    }

    #[test]
    fn a_listing_is_bounded_and_can_be_repeated() {
        let (temp, dir) = here();
        for n in 0..5 {
            fs::write(temp.path().join(n.to_string()), b"").unwrap();
        }
        for _ in 0..2 {
            let found = dir.names(3).unwrap();
            assert_eq!((found.names.len(), found.others), (3, 2));
        }
    }
}
