//! The real file system, through descriptors of its folders.

use super::{Folder, Fs, FsFile};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, FcntlArg, OFlag, fcntl, openat, renameat};
use nix::libc::flock;
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};
use std::any::Any;
use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::OnceLock;

const OWNER: &str = "continuations-owner.sqlite";
/// The bytes that SQLite locks for an exclusive transaction: pending, reserved, and all that are
/// shared (its file format, "File Locking"). Whoever owns the folder through SQLite, or looks for an
/// owner with it, and we keep each other out. The lock is the open file's: the kernel frees it with
/// the process.
const SQLITE_LOCK: Range<i64> = 0x4000_0000..0x4000_0200;

/// A state folder on a disk.
#[derive(Debug)]
pub struct RealFs {
    root: OwnedFd,
    folders: [OnceLock<OwnedFd>; 5],
}

impl RealFs {
    /// Opens a state folder that exists: mode 0700, ours, no symbolic link.
    ///
    /// # Errors
    /// When it is not so, or can't be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let root = nix::fcntl::open(path, DIR, Mode::empty())?;
        private_folder(&fstat(&root)?, "the state folder")?;
        Ok(Self {
            root,
            folders: [const { OnceLock::new() }; 5],
        })
    }

    fn cell(&self, folder: Folder) -> Option<&OnceLock<OwnedFd>> {
        let at = Folder::ALL.iter().position(|&other| other == folder)?;
        self.folders.get(at)
    }

    /// The folder's descriptor, opened when it is first needed.
    fn folder(&self, folder: Folder) -> io::Result<&OwnedFd> {
        let Some(cell) = self.cell(folder) else {
            return Ok(&self.root);
        };
        if let Some(open) = cell.get() {
            return Ok(open);
        }
        let open = openat(&self.root, folder.name(), DIR, Mode::empty())?;
        private_folder(&fstat(&open)?, folder.name())?;
        Ok(cell.get_or_init(|| open))
    }

    fn open_file(&self, folder: Folder, name: &str, write: bool) -> io::Result<Option<File>> {
        let folder = match self.folder(folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let before = match fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => return Ok(None),
            other => other?,
        };
        open_seen(folder, name, &before, write).map(Some)
    }
}

/// Opens a file that was looked at before, and no other that has taken its name since.
fn open_seen(folder: &OwnedFd, name: &str, before: &FileStat, write: bool) -> io::Result<File> {
    private_file(before, name)?;
    let access = if write {
        OFlag::O_RDWR
    } else {
        OFlag::O_RDONLY
    };
    let file = File::from(openat(folder, name, access | FILE, Mode::empty())?);
    let after = fstat(&file)?;
    private_file(&after, name)?;
    if (before.st_dev, before.st_ino) != (after.st_dev, after.st_ino) {
        return Err(unsafe_("was replaced while it was opened", name));
    }
    Ok(file)
}

/// Reads a file whole, at most `max` bytes. `halfway` is called when its size is known and nothing
/// is read yet.
fn read_whole(
    file: &mut File,
    name: &str,
    max: u64,
    halfway: impl FnOnce(),
) -> io::Result<Vec<u8>> {
    let before = fstat(file.as_fd())?;
    let size = u64::try_from(before.st_size).unwrap_or(u64::MAX);
    if size > max {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("{name:?} has {size} bytes, and at most {max} are allowed"),
        ));
    }
    halfway();
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1);
    file.by_ref().take(size + 1).read_to_end(&mut bytes)?;
    let after = fstat(file.as_fd())?;
    let same = before.st_size == after.st_size
        && before.st_mtime == after.st_mtime
        && before.st_mtime_nsec == after.st_mtime_nsec
        && bytes.len() as u64 == size;
    if same {
        Ok(bytes)
    } else {
        Err(unsafe_("changed while it was read", name))
    }
}

const DIR: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);
const FILE: OFlag = OFlag::O_NOFOLLOW
    .union(OFlag::O_CLOEXEC)
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_NOCTTY);

fn unsafe_(why: &str, name: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("{name:?} {why}; the state folder must be this user's alone"),
    )
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

fn ours(stat: &FileStat, name: &str) -> io::Result<()> {
    if stat.st_uid != geteuid().as_raw() {
        return Err(unsafe_("belongs to another user", name));
    }
    if stat.st_mode & 0o077 != 0 {
        return Err(unsafe_("is open to others", name));
    }
    Ok(())
}

fn private_folder(stat: &FileStat, name: &str) -> io::Result<()> {
    if kind(stat) != SFlag::S_IFDIR {
        return Err(unsafe_("is not a folder", name));
    }
    ours(stat, name)
}

fn private_file(stat: &FileStat, name: &str) -> io::Result<()> {
    if kind(stat) != SFlag::S_IFREG {
        return Err(unsafe_("is not a regular file", name));
    }
    if stat.st_nlink != 1 {
        return Err(unsafe_("has another link", name));
    }
    ours(stat, name)
}

impl Fs for RealFs {
    type File = File;

    fn own(&self) -> io::Result<Box<dyn Any + Send + Sync>> {
        let file = match self.create(Folder::Root, OWNER) {
            Ok(file) => {
                file.sync_data()?;
                self.sync_folder(Folder::Root)?;
                file
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let file = self.open_file(Folder::Root, OWNER, true)?;
                file.ok_or(io::ErrorKind::NotFound)?
            }
            Err(e) => return Err(e),
        };
        let lock = flock {
            l_type: nix::libc::F_WRLCK as i16,
            l_whence: nix::libc::SEEK_SET as i16,
            l_start: SQLITE_LOCK.start,
            l_len: SQLITE_LOCK.end - SQLITE_LOCK.start,
            l_pid: 0,
        };
        fcntl(&file, FcntlArg::F_OFD_SETLK(&lock)).map_err(|e| {
            io::Error::new(
                io::ErrorKind::WouldBlock,
                format!("the state folder can't be owned, another process may have it: {e}"),
            )
        })?;
        Ok(Box::new(file))
    }

    fn has(&self, folder: Folder) -> io::Result<bool> {
        match self.folder(folder) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn make(&self, folder: Folder) -> io::Result<()> {
        Ok(mkdirat(&self.root, folder.name(), Mode::S_IRWXU)?)
    }

    fn list(&self, folder: Folder) -> io::Result<Vec<String>> {
        if !self.has(folder)? {
            return Ok(Vec::new());
        }
        let own = openat(self.folder(folder)?, ".", DIR, Mode::empty())?;
        let mut names = Vec::new();
        for entry in Dir::from_fd(own)?.iter() {
            let entry = entry?;
            if entry.file_type() == Some(nix::dir::Type::Directory) {
                continue;
            }
            let name = entry.file_name().to_str().map_err(|_| {
                io::Error::new(io::ErrorKind::InvalidData, "a file's name is not UTF-8")
            })?;
            names.push(name.to_owned());
        }
        Ok(names)
    }

    fn len(&self, folder: Folder, name: &str) -> io::Result<Option<u64>> {
        let folder = match self.folder(folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        match fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => Ok(None),
            Err(e) => Err(e.into()),
            Ok(stat) => {
                private_file(&stat, name)?;
                Ok(Some(u64::try_from(stat.st_size).unwrap_or(0)))
            }
        }
    }

    fn read(&self, folder: Folder, name: &str, max: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(mut file) = self.open_file(folder, name, false)? else {
            return Ok(None);
        };
        read_whole(&mut file, name, max, || ()).map(Some)
    }

    fn create(&self, folder: Folder, name: &str) -> io::Result<File> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | FILE;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        Ok(File::from(openat(self.folder(folder)?, name, flags, mode)?))
    }

    fn open(&self, folder: Folder, name: &str) -> io::Result<Option<File>> {
        self.open_file(folder, name, true)
    }

    fn rename(&self, folder: Folder, from: &str, to: &str) -> io::Result<()> {
        let folder = self.folder(folder)?;
        Ok(renameat(folder, from, folder, to)?)
    }

    fn remove(&self, folder: Folder, name: &str) -> io::Result<()> {
        Ok(unlinkat(
            self.folder(folder)?,
            name,
            UnlinkatFlags::NoRemoveDir,
        )?)
    }

    fn sync_folder(&self, folder: Folder) -> io::Result<()> {
        Ok(nix::unistd::fsync(self.folder(folder)?)?)
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(nix::unistd::syncfs(&self.root)?)
    }
}

impl FsFile for File {
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::{self, Permissions};
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    /// A folder, and a private file in it for each name, with the name as its content.
    fn folder(names: &[&str]) -> (tempfile::TempDir, OwnedFd) {
        let temp = tempfile::tempdir().unwrap();
        for name in names {
            let path = temp.path().join(name);
            fs::write(&path, name).unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
        }
        let folder = nix::fcntl::open(temp.path(), DIR, Mode::empty()).unwrap();
        (temp, folder)
    }

    #[test]
    fn a_file_that_takes_the_name_of_one_that_was_looked_at_is_not_opened() {
        for write in [false, true] {
            let (temp, folder) = folder(&["record", "other"]);
            let at = |name: &str| temp.path().join(name);
            let seen = fstatat(&folder, "record", AtFlags::AT_SYMLINK_NOFOLLOW).unwrap();
            open_seen(&folder, "record", &seen, write).unwrap();
            // As private, of the same size, and another one. The first is still there, so its
            // number isn't given to anybody else.
            fs::rename(at("record"), at("kept")).unwrap();
            fs::rename(at("other"), at("record")).unwrap();
            let refused = open_seen(&folder, "record", &seen, write).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
            assert!(refused.to_string().contains("was replaced"), "{refused}");
            fs::rename(at("kept"), at("record")).unwrap();
            open_seen(&folder, "record", &seen, write).unwrap();
        }
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_refused() {
        let (temp, folder) = folder(&["record"]);
        let path = temp.path().join("record");
        let open = || {
            let seen = fstatat(&folder, "record", AtFlags::AT_SYMLINK_NOFOLLOW).unwrap();
            open_seen(&folder, "record", &seen, false).unwrap()
        };
        let read = |max, halfway: &dyn Fn()| read_whole(&mut open(), "record", max, halfway);
        assert_eq!(read(6, &|| ()).unwrap(), b"record");
        let large = read(5, &|| ()).unwrap_err();
        assert_eq!(large.kind(), io::ErrorKind::FileTooLarge);
        let append = || {
            let mut file = File::options().append(true).open(&path).unwrap();
            file.write_all(b"!").unwrap();
        };
        let cut = || {
            File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_len(2)
                .unwrap()
        };
        // As many bytes as before, written later.
        let rewrite = || {
            let file = File::options().write(true).open(&path).unwrap();
            let later = std::time::SystemTime::now() + std::time::Duration::from_secs(7);
            file.set_modified(later).unwrap();
        };
        for change in [&append as &dyn Fn(), &cut, &rewrite] {
            let refused = read(100, change).unwrap_err();
            assert!(refused.to_string().contains("changed while"), "{refused}");
            assert!(read(100, &|| ()).is_ok());
        }
    }
}
