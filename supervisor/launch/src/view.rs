//! The file system of a process. What many have in common is made once: what is granted is taken out
//! of the machine's tree, then the tree is left for an empty one, then everything is put in its
//! place, and nothing can be written there any more. Each process gets a copy, and adds what is its
//! own.

use crate::failure::{During, Failure};
use mono_sys::mount::{self, Attributes};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, open as fcntl_open, openat, openat2};
use nix::sys::stat::{Mode, SFlag, mkdirat, mknodat};
use policy::exit::Step;
use policy::spec::{Entry, MAX_COPY, OWN, Place, SENTINEL, View};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

/// Nothing in it but directories, links and small texts; a bound for the memory it takes.
const ROOT_SIZE: &CStr = c"2m";
/// The same for the few texts that a process has for itself.
const OWN_SIZE: &CStr = c"64k";
const PROC: &str = "/proc";

/// What programs expect beside the devices themselves. There is no second kind of randomness any
/// more, and named semaphores only need a file system in memory.
const DEVICE_LINKS: [(&str, &str); 6] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/shm", "/tmp"),
    ("/dev/random", "urandom"),
];

/// Covers a file that must not be seen; its mode lets nobody open it.
const BLANK: &str = "/.hidden";

/// What an entry needs from the machine's tree before that is out of reach.
pub(crate) enum Taken {
    Nothing,
    Tree(OwnedFd),
    Bytes(Option<Vec<u8>>),
}

/// Leaves the machine's tree for the common part of a view. Needs a mount namespace of its own and
/// `CAP_SYS_ADMIN` over it.
pub(crate) fn enter_common(view: &View) -> Result<(), Failure> {
    mount::make_private().during(Step::Private)?;
    let open = |path: &Path| {
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        Ok(openat2(AT_FDCWD, path, how)?)
    };
    let taken = view
        .entries
        .iter()
        .map(|entry| take(entry, open))
        .collect::<Result<Vec<_>, _>>()?;
    // The kernel lets a user namespace mount a /proc of its own only where a whole one can be seen
    // already. The own one covers it, and nobody there can unmount anything.
    let proc = open(Path::new("/proc"))
        .and_then(mount::clone_tree)
        .during_on(Step::FileSystem, Path::new("/proc"))?;
    let root = mount::new_filesystem(
        c"tmpfs",
        &[(c"mode", c"755"), (c"size", ROOT_SIZE)],
        Attributes::NO_SUID | Attributes::NO_DEVICES | Attributes::NO_EXEC,
    )
    .during_on(Step::FileSystem, Path::new("/"))?;
    mount::enter_root(root).during(Step::Root)?;

    let mut new = Root::new();
    new.attach(&proc, Path::new(PROC), true)?;
    if view.for_programs {
        for (link, target) in DEVICE_LINKS {
            new.link(Path::new(link), Path::new(target))?;
        }
    }
    new.write(Path::new(SENTINEL), b"", 0o444)?;
    new.write(Path::new(BLANK), b"", 0o000)?;
    for (entry, taken) in view.entries.iter().zip(taken) {
        new.place(entry, taken)?;
    }
    for Place { path, directory } in &view.places {
        new.prepare(path, *directory).during_on(Step::Place, path)?;
    }
    mount::forbid_on_root(Attributes::READ_ONLY).during_on(Step::FileSystem, Path::new("/"))
}

/// Empty file systems in memory that are in no place yet.
#[derive(Default)]
pub(crate) struct Trees {
    /// Where everybody may write, with their sizes in bytes.
    temporary: Vec<(u64, OwnedFd)>,
    /// For the texts that a process has for itself.
    texts: Option<OwnedFd>,
}

impl Trees {
    /// Those that these entries need. One that can't be made is made when it is needed, where that
    /// is an error.
    pub(crate) fn make(own: &[Entry]) -> Self {
        let mut made = Self::default();
        for entry in own {
            match entry {
                Entry::Temporary { bytes, .. } => {
                    let tree = new_temporary(*bytes).ok();
                    made.temporary.extend(tree.map(|tree| (*bytes, tree)));
                }
                Entry::Text { .. } if made.texts.is_none() => made.texts = new_texts().ok(),
                _ => {}
            }
        }
        made
    }

    fn temporary(&mut self, bytes: u64) -> io::Result<OwnedFd> {
        let index = self.temporary.iter().position(|(size, _)| *size == bytes);
        match index {
            Some(index) => Ok(self.temporary.swap_remove(index).1),
            None => new_temporary(bytes),
        }
    }

    fn texts(&mut self) -> io::Result<OwnedFd> {
        self.texts.take().map_or_else(new_texts, Ok)
    }
}

fn new_temporary(bytes: u64) -> io::Result<OwnedFd> {
    let size = CString::new(bytes.to_string())?;
    let options = [(c"mode", c"1777"), (c"size", size.as_c_str())];
    let attributes = Attributes::NO_SUID | Attributes::NO_DEVICES;
    mount::new_filesystem(c"tmpfs", &options, attributes)
}

fn new_texts() -> io::Result<OwnedFd> {
    let options = [(c"mode", c"755"), (c"size", OWN_SIZE)];
    let attributes = Attributes::NO_SUID | Attributes::NO_DEVICES | Attributes::NO_EXEC;
    mount::new_filesystem(c"tmpfs", &options, attributes)
}

/// Adds what a process has for itself to a copy of the common part.
pub(crate) fn complete(
    view: &View,
    own: &[Entry],
    taken: Vec<Taken>,
    mut trees: Trees,
) -> Result<(), Failure> {
    let nothing = Attributes::NO_SUID | Attributes::NO_DEVICES | Attributes::NO_EXEC;
    let pids: &[(&CStr, &CStr)] = &[(c"subset", c"pid")];
    let options = if view.for_programs { &[] } else { pids };
    mount::new_filesystem(c"proc", options, nothing | Attributes::READ_ONLY)
        .and_then(|proc| mount::attach(proc, Path::new(PROC)))
        .during_on(Step::FileSystem, Path::new(PROC))?;
    texts(own, &mut trees)?;
    // Places are there, but in what is empty and its own. (The workspace may lie in /tmp.)
    let mut empty = Root {
        directories: BTreeSet::new(),
    };
    for (entry, taken) in own.iter().zip(taken) {
        match (entry, taken) {
            (
                Entry::Show {
                    path, directory, ..
                },
                Taken::Tree(tree),
            ) => {
                if path
                    .ancestors()
                    .any(|above| empty.directories.contains(above))
                {
                    empty.attach(&tree, path, *directory)?;
                } else {
                    mount::attach(&tree, path).during_on(Step::Place, path)?;
                }
            }
            (Entry::Temporary { path, bytes }, _) => {
                let tree = trees.temporary(*bytes).during_on(Step::FileSystem, path)?;
                mount::attach(tree, path).during_on(Step::Place, path)?;
                empty.directories.insert(path.clone());
            }
            (Entry::Hide { path, directory }, _) => hide(path, *directory)?,
            (Entry::Text { .. }, _) => {}
            (Entry::Show { path, .. } | Entry::Link { path, .. } | Entry::Copy { path }, _) => {
                let odd = io::Error::other("it is for the common part of a view");
                return Err(odd).during_on(Step::Place, path);
            }
        }
    }
    Ok(())
}

/// Writes the texts that a process has for itself, into a file system of its own.
fn texts(own: &[Entry], trees: &mut Trees) -> Result<(), Failure> {
    let place = Path::new(OWN);
    let mut tree = None;
    for entry in own {
        let Entry::Text { path, text } = entry else {
            continue;
        };
        let name = path
            .strip_prefix(place)
            .ok()
            .filter(|name| name.components().count() == 1)
            .ok_or_else(|| io::Error::other("a text has its place in the common part, or in /.own"))
            .during_on(Step::Place, path)?;
        let tree = match &tree {
            Some(tree) => tree,
            None => {
                let made = trees.texts().during_on(Step::FileSystem, place)?;
                tree.insert(made)
            }
        };
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        openat(tree, name, flags, Mode::from_bits_truncate(0o444))
            .map_err(io::Error::from)
            .and_then(|file| fs::File::from(file).write_all(text.as_bytes()))
            .during_on(Step::Place, path)?;
    }
    if let Some(tree) = tree {
        mount::forbid(&tree, Attributes::READ_ONLY).during_on(Step::FileSystem, place)?;
        mount::attach(&tree, place).during_on(Step::Place, place)?;
    }
    Ok(())
}

/// Covers what must not be seen.
fn hide(path: &Path, directory: bool) -> Result<(), Failure> {
    let tree = if directory {
        let attributes = Attributes::NO_SUID
            | Attributes::NO_DEVICES
            | Attributes::NO_EXEC
            | Attributes::READ_ONLY;
        let options = [(c"mode", c"0"), (c"size", c"4k")];
        mount::new_filesystem(c"tmpfs", &options, attributes).during_on(Step::FileSystem, path)?
    } else {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let tree = fcntl_open(BLANK, flags, Mode::empty())
            .map_err(io::Error::from)
            .and_then(mount::clone_tree)
            .during_on(Step::Place, path)?;
        mount::forbid(&tree, Attributes::READ_ONLY).during_on(Step::Place, path)?;
        tree
    };
    mount::attach(tree, path).during_on(Step::Place, path)
}

/// Takes what an entry needs out of the machine's tree.
pub(crate) fn take(
    entry: &Entry,
    open: impl Fn(&Path) -> io::Result<OwnedFd>,
) -> Result<Taken, Failure> {
    match entry {
        Entry::Show {
            source,
            write,
            execute,
            device,
            ..
        } => {
            let tree = open(source)
                .and_then(mount::clone_tree)
                .during_on(Step::Grant, source)?;
            let mut forbidden = Attributes::NO_SUID;
            for (allowed, attribute) in [
                (*write, Attributes::READ_ONLY),
                (*execute, Attributes::NO_EXEC),
                (*device, Attributes::NO_DEVICES),
            ] {
                if !allowed {
                    forbidden = forbidden | attribute;
                }
            }
            mount::forbid(&tree, forbidden).during_on(Step::Grant, source)?;
            Ok(Taken::Tree(tree))
        }
        Entry::Copy { path } => read(path).map(Taken::Bytes).during_on(Step::Grant, path),
        Entry::Link { .. } | Entry::Text { .. } | Entry::Temporary { .. } | Entry::Hide { .. } => {
            Ok(Taken::Nothing)
        }
    }
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // What this user can't read, the program will do without.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        other => other?,
    };
    // Enough for most, so that it is read at once.
    let mut bytes = Vec::with_capacity(16 * 1024);
    file.take(MAX_COPY + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= MAX_COPY).then_some(bytes))
}

/// The new root, while it is filled.
struct Root {
    /// Directories that are known to be there. What isn't known is made without a look before:
    /// the kernel says when there is something already, and each look costs as much as an attempt.
    directories: BTreeSet<PathBuf>,
}

impl Root {
    fn new() -> Self {
        Self {
            directories: BTreeSet::from(["/".into()]),
        }
    }

    fn place(&mut self, entry: &Entry, taken: Taken) -> Result<(), Failure> {
        match (entry, taken) {
            (
                Entry::Show {
                    path, directory, ..
                },
                Taken::Tree(tree),
            ) => self.attach(&tree, path, *directory),
            (Entry::Copy { path }, Taken::Bytes(Some(bytes))) => self.write(path, &bytes, 0o444),
            (Entry::Text { path, text }, _) => self.write(path, text.as_bytes(), 0o444),
            (Entry::Link { path, target }, _) => self.link(path, target),
            // A file to copy that the machine doesn't have.
            (Entry::Copy { .. } | Entry::Show { .. }, _) => Ok(()),
            (Entry::Temporary { path, .. } | Entry::Hide { path, .. }, _) => {
                let odd = io::Error::other("it is for one process alone");
                Err(odd).during_on(Step::Place, path)
            }
        }
    }

    /// Attaches a tree at a place that is made for it where there is none.
    fn attach(&mut self, tree: &OwnedFd, path: &Path, directory: bool) -> Result<(), Failure> {
        self.prepare(path, directory).during_on(Step::Place, path)?;
        mount::attach(tree, path).during_on(Step::Place, path)
    }

    /// Makes a place to mount on, unless it is there.
    fn prepare(&mut self, path: &Path, directory: bool) -> io::Result<()> {
        if directory {
            return self.directory(path);
        }
        self.above(path)?;
        let mode = Mode::from_bits_truncate(0o644);
        there(mknodat(AT_FDCWD, path, SFlag::S_IFREG, mode, 0))
    }

    fn link(&mut self, path: &Path, target: &Path) -> Result<(), Failure> {
        self.above(path).during_on(Step::Place, path)?;
        symlink(target, path).during_on(Step::Place, path)
    }

    fn write(&mut self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
        let written = self.above(path).and_then(|()| {
            let mut options = OpenOptions::new();
            options
                .write(true)
                .create_new(true)
                .mode(mode)
                .open(path)?
                .write_all(bytes)
        });
        written.during_on(Step::Place, path)
    }

    /// Makes the directory that something lies in.
    fn above(&mut self, path: &Path) -> io::Result<()> {
        path.parent()
            .map_or(Ok(()), |parent| self.directory(parent))
    }

    /// Makes a directory with everything above it, unless it is there.
    fn directory(&mut self, path: &Path) -> io::Result<()> {
        if self.directories.contains(path) {
            return Ok(());
        }
        self.above(path)?;
        there(mkdirat(AT_FDCWD, path, Mode::from_bits_truncate(0o755)))?;
        self.directories.insert(path.to_owned());
        Ok(())
    }
}

/// Fine also when there was something before.
fn there(made: nix::Result<()>) -> io::Result<()> {
    match made {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
