//! The worker's folders by descriptor: each durable byte is reached relative to a folder that is
//! held open, never by an absolute path, and never through a link.

use nix::dir::Dir as Listing;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag, RenameFlags, openat, renameat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;

pub use worker_kit::FileId;

/// Files in the folder of one app at most: page, state, manifest, marks and the audit log.
const MAX_FILES: usize = 64;

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

/// One of our own files: regular, with one link, for nobody else.
#[must_use]
pub fn is_own(stat: &FileStat) -> bool {
    kind(stat) == SFlag::S_IFREG && stat.st_nlink == 1 && stat.st_mode & 0o177 == 0
}

/// Protects a new file, and only then writes to it and to the disk.
fn fill(file: OwnedFd, bytes: &[u8]) -> io::Result<FileId> {
    let stat = fstat(&file)?;
    if !is_own(&stat) {
        return Err(Errno::EPERM.into());
    }
    let mut file = File::from(file);
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(FileId::of(&stat))
}

/// An open folder.
#[derive(Debug)]
pub struct Folder(OwnedFd);

impl Folder {
    /// A folder that was handed over.
    ///
    /// # Errors
    /// `ENOTDIR`, or what `fstat` says.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        if kind(&fstat(&fd)?) != SFlag::S_IFDIR {
            return Err(Errno::ENOTDIR.into());
        }
        // What is handed over may only name the folder; to write it to the disk takes more.
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Self(openat(&fd, ".", flags, Mode::empty())?))
    }

    /// Opens a folder in this one.
    ///
    /// # Errors
    /// `ELOOP` or `ENOTDIR` for a symbolic link, else what `openat` says.
    pub fn open(&self, name: &str) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(Self(openat(&self.0, name, flags, Mode::empty())?))
    }

    /// Makes a folder, 0700 whatever the umask.
    ///
    /// # Errors
    /// What `mkdirat` says, `EEXIST` among it.
    pub fn make(&self, name: &str) -> io::Result<()> {
        Ok(mkdirat(&self.0, name, Mode::S_IRWXU)?)
    }

    /// Opens a folder in this one, making it when it is missing.
    ///
    /// # Errors
    /// As [`Folder::open`] and [`Folder::make`].
    pub fn open_or_make(&self, name: &str) -> io::Result<Self> {
        match self.make(name) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
            Ok(()) => self.sync()?,
        }
        self.open(name)
    }

    /// Creates a file that must not exist, protects it, and only then writes to it and to the disk.
    ///
    /// # Errors
    /// `EPERM` when it could not be made for its owner alone, and then it has no content; else
    /// what the system says.
    pub fn write_new(&self, name: &str, bytes: &[u8]) -> io::Result<FileId> {
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(&self.0, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
        let written = fill(file, bytes);
        if written.is_err() {
            // Else the name would be taken for good.
            let _ = self.remove_file(name);
        }
        written
    }

    /// Opens one of our own files to write at its end.
    ///
    /// # Errors
    /// `EBADMSG` for a file of another shape than we make, else what `openat` says.
    pub fn append(&self, name: &str) -> io::Result<(File, FileStat)> {
        let flags = OFlag::O_WRONLY
            | OFlag::O_APPEND
            | OFlag::O_NOFOLLOW
            | OFlag::O_NONBLOCK
            | OFlag::O_NOCTTY
            | OFlag::O_CLOEXEC;
        self.own(name, flags)
    }

    /// Reads one of our own files whole.
    ///
    /// # Errors
    /// `EFBIG` over `max` bytes, `EBADMSG` for a file of another shape, else what `openat` says.
    pub fn read(&self, name: &str, max: usize) -> io::Result<Vec<u8>> {
        let flags = OFlag::O_RDONLY
            | OFlag::O_NOFOLLOW
            | OFlag::O_NONBLOCK
            | OFlag::O_NOCTTY
            | OFlag::O_CLOEXEC;
        let (file, stat) = self.own(name, flags)?;
        let expected = usize::try_from(stat.st_size).unwrap_or(0).min(max);
        let mut bytes = Vec::with_capacity(expected + 1);
        file.take(max as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > max {
            return Err(Errno::EFBIG.into());
        }
        Ok(bytes)
    }

    fn own(&self, name: &str, flags: OFlag) -> io::Result<(File, FileStat)> {
        let file = openat(&self.0, name, flags, Mode::empty())?;
        let stat = fstat(&file)?;
        if is_own(&stat) {
            Ok((file.into(), stat))
        } else {
            Err(Errno::EBADMSG.into())
        }
    }

    /// Holds this folder for whoever keeps what is returned; none while another process does.
    ///
    /// # Errors
    /// What `openat` and `flock` say.
    pub fn hold(&self) -> io::Result<Option<Flock<OwnedFd>>> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let own = openat(&self.0, ".", flags, Mode::empty())?;
        match Flock::lock(own, FlockArg::LockExclusiveNonblock) {
            Ok(held) => Ok(Some(held)),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, e)) => Err(e.into()),
        }
    }

    /// Shares this folder with others who share it, for whoever keeps what is returned. Waits for who
    /// holds it.
    ///
    /// # Errors
    /// What `openat` and `flock` say.
    pub fn share(&self) -> io::Result<Flock<OwnedFd>> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let own = openat(&self.0, ".", flags, Mode::empty())?;
        Flock::lock(own, FlockArg::LockShared).map_err(|(_, e)| e.into())
    }

    /// The status of an entry, a symbolic link's own; none where there is nothing.
    ///
    /// # Errors
    /// What `fstatat` says.
    pub fn stat(&self, name: &str) -> io::Result<Option<FileStat>> {
        match fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::ENOENT) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Which folder this is.
    ///
    /// # Errors
    /// What `fstat` says.
    pub fn id(&self) -> io::Result<FileId> {
        Ok(FileId::of(&fstat(&self.0)?))
    }

    /// Makes the entries of this folder durable.
    ///
    /// # Errors
    /// What `fsync` says.
    pub fn sync(&self) -> io::Result<()> {
        Ok(nix::unistd::fsync(&self.0)?)
    }

    /// Moves an entry to a name, in this or another folder, that must be free.
    ///
    /// # Errors
    /// `EEXIST`, else what `renameat2` says.
    pub fn move_new(&self, name: &str, to: &Self, new: &str) -> io::Result<()> {
        let flags = RenameFlags::RENAME_NOREPLACE;
        Ok(renameat2(&self.0, name, &to.0, new, flags)?)
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

    /// Removes a folder of files; a missing one is as good. What holds folders of its own is not
    /// ours and stays.
    ///
    /// # Errors
    /// What `openat` and `unlinkat` say.
    pub fn remove_flat(&self, name: &str) -> io::Result<()> {
        let inner = match self.open(name) {
            Ok(inner) => inner,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        };
        for file in inner.names(MAX_FILES)? {
            inner.remove_file(&file)?;
        }
        match unlinkat(&self.0, name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// The names of the entries, at most `max`; a name that is no UTF-8 stands as it can be shown.
    ///
    /// # Errors
    /// What `getdents64` says.
    pub fn names(&self, max: usize) -> io::Result<Vec<String>> {
        // A listing has a position of its own only with a description of its own.
        let mut listing = Listing::from_fd(self.open(".")?.0)?;
        let mut names = Vec::new();
        for entry in listing.iter() {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
            if names.len() == max {
                break;
            }
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn files_are_private_before_they_have_content_and_links_are_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let folder = Folder::from_fd(fs::File::open(temp.path()).unwrap().into()).unwrap();
        folder.write_new("f", b"x").unwrap();
        let mode = fs::metadata(temp.path().join("f"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o600);
        assert!(folder.write_new("f", b"y").is_err());
        symlink("f", temp.path().join("soft")).unwrap();
        fs::hard_link(temp.path().join("f"), temp.path().join("hard")).unwrap();
        for name in ["f", "soft", "hard", "missing", "."] {
            assert!(folder.read(name, 9).is_err(), "{name}");
            assert!(folder.append(name).is_err(), "{name}");
        }
        fs::remove_file(temp.path().join("hard")).unwrap();
        assert_eq!(folder.read("f", 1).unwrap(), b"x");
        assert!(folder.read("f", 0).is_err());
        fs::set_permissions(temp.path().join("f"), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(folder.read("f", 1).is_err());
    }

    #[test]
    fn a_folder_with_folders_stays() {
        let temp = tempfile::tempdir().unwrap();
        let folder = Folder::from_fd(fs::File::open(temp.path()).unwrap().into()).unwrap();
        let inner = folder.open_or_make("a").unwrap();
        inner.write_new("f", b"").unwrap();
        folder.remove_flat("a").unwrap();
        folder.remove_flat("a").unwrap();
        folder.open_or_make("b").unwrap().make("c").unwrap();
        assert!(folder.remove_flat("b").is_err());
        assert_eq!(folder.names(9).unwrap(), ["b"]);
    }
}
