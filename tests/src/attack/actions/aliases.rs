//! The same files by other names: `..`, links, `/proc`, handles, descriptors.

use super::files::read;
use super::{Action, action};
use crate::attack::facts::Facts;
use crate::attack::outcome::Outcome;
use mono_sys::hostile;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, open, openat};
use nix::sys::stat::{FchmodatFlags, Mode, fchmod, fchmodat, fstatat};
use nix::unistd::{ftruncate, linkat, symlinkat};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::path::{Path, PathBuf};

pub(super) const ACTIONS: &[Action] = &[
    action("key-by-dot-dot", |f| read(&upwards(&f.key()))),
    action("key-by-dot-dot-from-own-place", |f| {
        read(&f.place().join(upwards(&f.key())))
    }),
    action("key-by-symlink", |f| {
        let link = f.place().join("to-key");
        made_and_read(symlinkat(&f.key(), AT_FDCWD, &link), &link)
    }),
    action("key-by-planted-symlink", |f| {
        read(&f.workspace().join("planted"))
    }),
    action("key-by-hard-link", |f| {
        let link = f.place().join("hard-to-key");
        let made = linkat(AT_FDCWD, &f.key(), AT_FDCWD, &link, AtFlags::empty());
        made_and_read(made, &link)
    }),
    action("key-by-own-root", |f| {
        read(&under("/proc/self/root", &f.key()))
    }),
    action("key-by-thread-root", |f| {
        read(&under("/proc/thread-self/root", &f.key()))
    }),
    action("key-by-first-root", |f| {
        read(&under("/proc/1/root", &f.key()))
    }),
    action("key-by-victim-root", |f| {
        read(&under(&format!("/proc/{}/root", f.victim), &f.key()))
    }),
    action("key-by-any-root", |f| {
        by_processes(|process| read(&under(&format!("{process}/root"), &f.key())))
    }),
    action("key-by-own-directory", |f| {
        read(&Path::new("/proc/self/cwd").join(upwards(&f.key())))
    }),
    action("key-by-any-directory", |f| {
        let rest = upwards(&f.key());
        by_processes(|process| read(&Path::new(process).join("cwd").join(&rest)))
    }),
    action("key-by-any-number", |f| {
        // Also descriptors that somebody forgot to close.
        let rest = upwards(&f.key());
        first_breach((3..64).map(|raw| open_below(raw, &rest)))
    }),
    action("key-by-handle", |f| {
        let mount = open("/", OFlag::O_DIRECTORY, Mode::empty());
        let raw = mount.as_ref().map_or(-1, std::os::fd::AsRawFd::as_raw_fd);
        Outcome::of(hostile::open_handle(raw, &f.handle))
    }),
    action("key-by-handed-folder", |f| {
        let rest = upwards(&f.key());
        first_breach(folders(f).map(|raw| open_below(raw, &rest)))
    }),
    action("look-by-handed-folder", |f| {
        let rest = upwards(&f.own_elsewhere());
        first_breach(
            folders(f)
                .map(|raw| borrowed(raw, |fd| fstatat(fd, &rest, AtFlags::empty()).map(drop))),
        )
    }),
    action("chmod-by-handed-folder", |f| {
        let rest = upwards(&f.own_elsewhere());
        let mode = Mode::from_bits_truncate(0o644);
        let flags = FchmodatFlags::FollowSymlink;
        first_breach(folders(f).map(|raw| borrowed(raw, |fd| fchmodat(fd, &rest, mode, flags))))
    }),
    action("write-by-handed-folder", |f| {
        let rest = upwards(&f.open().join("by-descriptor"));
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT;
        first_breach(
            folders(f)
                .map(|raw| borrowed(raw, |fd| openat(fd, &rest, flags, Mode::S_IRWXU).map(drop))),
        )
    }),
    action("truncate-handed-file", |f| {
        borrowed(f.handed("key"), |fd| ftruncate(fd, 0))
    }),
    action("chmod-handed-file", |f| {
        borrowed(f.handed("key"), |fd| {
            fchmod(fd, Mode::S_IRUSR | Mode::S_IWUSR)
        })
    }),
    action("reopen-handed-file-for-writing", |f| {
        let path = format!("/proc/self/fd/{}", f.handed("key"));
        Outcome::of(OpenOptions::new().append(true).open(path))
    }),
    action("link-handed-file-out", |f| {
        // The kernel's way to name an unnamed file: by its descriptor.
        let path = PathBuf::from(format!("/proc/self/fd/{}", f.handed("key")));
        let to = f.place().join("handed");
        Outcome::of(linkat(
            AT_FDCWD,
            &path,
            AT_FDCWD,
            &to,
            AtFlags::AT_SYMLINK_FOLLOW,
        ))
    }),
    action("overwrite-own-program", |_| {
        let opened = OpenOptions::new().write(true).open("/proc/self/exe");
        match opened {
            // Let in, and only too early: it works as soon as the program has ended.
            Err(error) if error.raw_os_error() == Some(Errno::ETXTBSY as i32) => Outcome::Reached,
            other => Outcome::of(other),
        }
    }),
    action("read-other-programs", |_| {
        by_processes(|process| read(&Path::new(process).join("exe")))
    }),
];

/// The way up to the root and down again, from wherever that is.
fn upwards(path: &Path) -> PathBuf {
    let mut way: PathBuf = std::iter::repeat_n("..", 24).collect();
    way.extend(path.components().skip(1));
    way
}

fn under(prefix: &str, path: &Path) -> PathBuf {
    PathBuf::from(format!("{prefix}{}", path.display()))
}

fn made_and_read(made: nix::Result<()>, link: &Path) -> Outcome {
    let outcome = match made {
        Ok(()) => read(link),
        Err(errno) => Outcome::from(io::Error::from(errno)),
    };
    let _ = fs::remove_file(link);
    outcome
}

/// Every other process that can be seen.
pub(super) fn processes() -> impl Iterator<Item = String> {
    let own = std::process::id().to_string();
    let names = fs::read_dir("/proc").into_iter().flatten().flatten();
    names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(move |name| name.bytes().all(|b| b.is_ascii_digit()) && *name != own)
        .map(|name| format!("/proc/{name}"))
}

/// Tries it on every other process that can be seen; nothing when there is none.
pub(super) fn by_processes(attempt: impl Fn(&str) -> Outcome) -> Outcome {
    first_breach(processes().map(|process| attempt(&process)))
}

/// The first success, else the last refusal, else nothing.
pub(super) fn first_breach(outcomes: impl Iterator<Item = Outcome>) -> Outcome {
    let mut last = Outcome::Nothing;
    for outcome in outcomes {
        last = outcome;
        if last.is_breach() {
            break;
        }
    }
    last
}

/// Descriptors of folders that it was handed.
fn folders(f: &Facts) -> impl Iterator<Item = RawFd> {
    let folder = |name: &str| matches!(name, "state" | "workspace" | "outbound");
    f.handed
        .iter()
        .filter(move |(name, _)| folder(name))
        .map(|(_, raw)| *raw)
}

fn open_below(raw: RawFd, rest: &Path) -> Outcome {
    borrowed(raw, |fd| {
        openat(fd, rest, OFlag::O_RDONLY, Mode::empty()).map(drop)
    })
}

/// Acts on a descriptor by its number; nothing when it was not handed.
pub(super) fn borrowed(raw: RawFd, act: impl Fn(BorrowedFd<'_>) -> nix::Result<()>) -> Outcome {
    match mono_sys::hostile::with_fd(raw, act) {
        None => Outcome::Nothing,
        Some(result) => Outcome::of::<(), Errno>(result),
    }
}
