//! Is the descriptor that a run handed over the file that its request names?
//!
//! The run worker opened it, and the run worker is not believed: this side walks the path from
//! its own descriptor of the root, without following any link, and compares what it finds with
//! what it was given (spec s0, "Publishing a reply file").

use crate::Code;
use crate::dir::{Dir, FileId, is_regular};
use crate::skeleton::skeleton;
use crate::source::{SourceError, SourcePath};
use ipc_proto::RunId;
use ipc_proto::edges::artifact::Root;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{FileStat, fstat};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Largest file in bytes (spec s0, "Publishing a reply file").
pub const MAX_FILE: u64 = 20 * 1024 * 1024;

/// Name of the directory in a run's scratch directory from which it may publish.
const OUTBOUND: &str = "outbound";

/// Why a request's file is not published.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The path alone is refused.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The supervisor gave no such root.
    #[error("there is no {0:?} root here")]
    NoRoot(Root),
    /// Nothing by that path.
    #[error("nothing is at {component:?}; write the file first")]
    Missing {
        /// The component that is missing.
        component: String,
    },
    /// A link, a non-directory on the way, or a directory this worker may not pass.
    #[error("{component:?} can't be passed: {error}")]
    Walk {
        /// Where the walk ended.
        component: String,
        /// What the kernel said.
        error: io::Error,
    },
    /// In a host-private folder, by name or by identity.
    #[error("{component:?} is private to the host")]
    Private {
        /// The component that is or leads to a private place.
        component: String,
    },
    /// The run could not open the file.
    #[error("no descriptor came with the request")]
    NoDescriptor,
    /// FIFO, socket, device, directory.
    #[error("the descriptor is of no regular file")]
    NotRegular,
    /// Not opened for reading only.
    #[error("the descriptor is not opened read-only")]
    Mode,
    /// Another name for the file may lie outside the root.
    #[error("the file has {0} links, one is allowed; publish a copy")]
    Links(u64),
    /// The descriptor is of another file than the path.
    #[error("the path and the descriptor are different files")]
    Swapped,
    /// Over [`MAX_FILE`].
    #[error("the file has {0} bytes, at most {MAX_FILE} are published")]
    TooLarge(u64),
    /// The kernel refused a question about the descriptor.
    #[error("the descriptor can't be examined: {0}")]
    Descriptor(#[source] io::Error),
}

impl VerifyError {
    /// What the model is told.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Missing { .. } => Code::Missing,
            Self::TooLarge(_) => Code::TooLarge,
            _ => Code::PublishFailed,
        }
    }
}

/// What must not change between the check and the end of the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint {
    id: FileId,
    links: u64,
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Fingerprint {
    fn of(stat: &FileStat) -> Self {
        Self {
            id: FileId::of(stat),
            links: stat.st_nlink,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

/// A verified file: regular, one link, read-only, of publishable size.
#[derive(Debug)]
pub struct Source {
    fd: OwnedFd,
    before: Fingerprint,
    /// Size in bytes, at most [`MAX_FILE`].
    pub size: u64,
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Source {
    /// True while the file is what it was when it was verified.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        fstat(&self.fd).is_ok_and(|now| Fingerprint::of(&now) == self.before)
    }
}

/// The places that may be published from, and those inside them that may not.
#[derive(Debug)]
pub struct Roots {
    workspace: Option<Dir>,
    scratch: Option<Dir>,
    private: Vec<Vec<String>>,
    own: FileId,
}

impl Roots {
    /// `workspace` is the root itself, `scratch` holds one directory per run with an `outbound`
    /// directory in it. `private` are paths
    /// relative to the workspace that are never published; `own` is this worker's state directory,
    /// which is refused wherever it appears.
    #[must_use]
    pub fn new(workspace: Option<Dir>, scratch: Option<Dir>, private: &[String], own: FileId) -> Self {
        let private = private
            .iter()
            .map(|path| path.split('/').filter(|c| !c.is_empty() && *c != ".").map(str::to_owned).collect())
            .filter(|path: &Vec<String>| !path.is_empty())
            .collect();
        Self { workspace, scratch, private, own }
    }

    /// Checks a request: the path first, then what is there, then what was handed over.
    ///
    /// # Errors
    /// [`VerifyError`]; the descriptor is closed then.
    pub fn verify(&self, root: Root, run: &RunId, path: &str, handed: Option<OwnedFd>) -> Result<Source, VerifyError> {
        let path = SourcePath::parse(path)?;
        let private = if root == Root::Workspace { self.refuse_private_name(&path)? } else { Vec::new() };
        let start = match root {
            Root::Workspace => self.workspace.as_ref().map(|dir| dir.step(".", true)),
            Root::Outbound => self.scratch.as_ref().map(|dir| {
                Dir::from_fd(dir.step(run.as_str(), true)?)?.step(OUTBOUND, true)
            }),
        };
        let start = start.ok_or(VerifyError::NoRoot(root))?.map_err(|e| walk_error(".", e))?;
        let there = self.walk(start, &path, &private)?;
        examine(handed.ok_or(VerifyError::NoDescriptor)?, there)
    }

    /// Names are compared as [`skeleton`]s, for file systems that fold case or normal forms.
    /// Returns the identities of what is private now, for names that can't be compared.
    fn refuse_private_name(&self, path: &SourcePath) -> Result<Vec<FileId>, VerifyError> {
        let components: Vec<&str> =
            path.directories().iter().map(String::as_str).chain([path.file_name()]).collect();
        let mut identities = vec![self.own];
        for private in &self.private {
            let within = components.len() >= private.len()
                && private.iter().zip(&components).all(|(p, c)| skeleton(p) == skeleton(c));
            if within {
                return Err(VerifyError::Private { component: components[private.len() - 1].to_owned() });
            }
            identities.extend(self.identity_of(private));
        }
        Ok(identities)
    }

    /// `None` when there is nothing there (yet).
    fn identity_of(&self, path: &[String]) -> Option<FileId> {
        let root = self.workspace.as_ref()?;
        let (last, directories) = path.split_last()?;
        let mut at: Option<Dir> = None;
        for component in directories {
            at = Some(Dir::from_fd(at.as_ref().unwrap_or(root).step(component, true).ok()?).ok()?);
        }
        let fd = at.as_ref().unwrap_or(root).step(last, false).ok()?;
        Some(FileId::of(&fstat(&fd).ok()?))
    }

    fn walk(&self, start: OwnedFd, path: &SourcePath, private: &[FileId]) -> Result<FileStat, VerifyError> {
        let look = |fd: &OwnedFd, component: &str| -> Result<FileStat, VerifyError> {
            let stat = fstat(fd).map_err(|e| walk_error(component, e.into()))?;
            let id = FileId::of(&stat);
            if id == self.own || private.contains(&id) {
                return Err(VerifyError::Private { component: component.to_owned() });
            }
            Ok(stat)
        };
        let mut at = Dir::from_fd(start).map_err(|e| walk_error(".", e))?;
        for component in path.directories() {
            let next = at.step(component, true).map_err(|e| walk_error(component, e))?;
            look(&next, component)?;
            at = Dir::from_fd(next).map_err(|e| walk_error(component, e))?;
        }
        let name = path.file_name();
        let file = at.step(name, false).map_err(|e| walk_error(name, e))?;
        look(&file, name)
    }
}

fn walk_error(component: &str, error: io::Error) -> VerifyError {
    let component = component.to_owned();
    if error.kind() == io::ErrorKind::NotFound {
        VerifyError::Missing { component }
    } else {
        VerifyError::Walk { component, error }
    }
}

fn examine(fd: OwnedFd, there: FileStat) -> Result<Source, VerifyError> {
    let descriptor = |e: Errno| VerifyError::Descriptor(e.into());
    let stat = fstat(&fd).map_err(descriptor)?;
    if !is_regular(&there) || !is_regular(&stat) {
        return Err(VerifyError::NotRegular);
    }
    let flags = OFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFL).map_err(descriptor)?);
    if flags & OFlag::O_ACCMODE != OFlag::O_RDONLY || flags.contains(OFlag::O_PATH) {
        return Err(VerifyError::Mode);
    }
    if FileId::of(&stat) != FileId::of(&there) {
        return Err(VerifyError::Swapped);
    }
    if stat.st_nlink != 1 {
        return Err(VerifyError::Links(stat.st_nlink));
    }
    let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
    if size > MAX_FILE {
        return Err(VerifyError::TooLarge(size));
    }
    Ok(Source { fd, before: Fingerprint::of(&stat), size })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    struct Fixture {
        temp: tempfile::TempDir,
        roots: Roots,
        run: RunId,
    }

    fn dir(path: &Path) -> Dir {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Dir::from_fd(nix::fcntl::open(path, flags, nix::sys::stat::Mode::empty()).unwrap()).unwrap()
    }

    /// workspace `w` with the state directory inside, outbound `o`, and a file outside both.
    fn fixture() -> Fixture {
        let temp = tempfile::tempdir().unwrap();
        let at = |p: &str| temp.path().join(p);
        fs::create_dir_all(at("w/sub/deep")).unwrap();
        fs::create_dir_all(at("w/state/reply-files")).unwrap();
        fs::create_dir_all(at("w/conf")).unwrap();
        fs::create_dir_all(at("o/run-1/outbound")).unwrap();
        fs::create_dir_all(at("o/run-2/outbound")).unwrap();
        for file in ["w/a.txt", "w/sub/deep/b.txt", "w/state/reply-files/c.txt", "w/conf/agent.json", "o/run-1/outbound/d.txt", "o/run-2/outbound/e.txt", "outside.txt"] {
            fs::write(at(file), file).unwrap();
        }
        let private = ["conf/agent.json".to_owned(), "Later/place".to_owned(), "./".to_owned()];
        let own = dir(&at("w/state")).id().unwrap();
        let roots = Roots::new(Some(dir(&at("w"))), Some(dir(&at("o"))), &private, own);
        Fixture { temp, roots, run: RunId::parse("run-1").unwrap() }
    }

    impl Fixture {
        fn at(&self, path: &str) -> PathBuf {
            self.temp.path().join(path)
        }

        /// Hands over `opened`, claims `path`.
        fn claim(&self, root: Root, path: &str, opened: &str) -> Result<Source, VerifyError> {
            let fd = File::open(self.at(opened)).ok().map(OwnedFd::from);
            self.roots.verify(root, &self.run, path, fd)
        }
    }

    #[test]
    fn a_file_below_either_root_passes() {
        let f = fixture();
        assert_eq!(f.claim(Root::Workspace, "a.txt", "w/a.txt").unwrap().size, 7);
        assert!(f.claim(Root::Workspace, "./sub//deep/b.txt", "w/sub/deep/b.txt").is_ok());
        assert!(f.claim(Root::Outbound, "d.txt", "o/run-1/outbound/d.txt").is_ok());
    }

    #[test]
    fn another_run_s_outbound_directory_is_out_of_reach() {
        let f = fixture();
        assert!(matches!(f.claim(Root::Outbound, "e.txt", "o/run-2/outbound/e.txt"), Err(VerifyError::Missing { .. })));
        assert!(matches!(f.claim(Root::Outbound, "run-2/outbound/e.txt", "o/run-2/outbound/e.txt"), Err(VerifyError::Missing { .. })));
        assert!(matches!(f.claim(Root::Outbound, "../../run-2/outbound/e.txt", "o/run-2/outbound/e.txt"), Err(VerifyError::Source(_))));
    }

    #[test]
    fn climbing_absolute_and_sensitive_paths_are_refused_before_the_disk_is_asked() {
        let f = fixture();
        for path in ["../outside.txt", "/etc/hostname", "sub/../../outside.txt", ".env", "x/id_rsa"] {
            assert!(matches!(f.claim(Root::Workspace, path, "outside.txt"), Err(VerifyError::Source(_))), "{path}");
        }
    }

    #[test]
    fn a_symlink_in_any_place_of_the_path_is_refused() {
        let f = fixture();
        symlink(f.at("outside.txt"), f.at("w/final.txt")).unwrap();
        symlink("a.txt", f.at("w/inside.txt")).unwrap();
        symlink("sub", f.at("w/first")).unwrap();
        symlink("deep", f.at("w/sub/second")).unwrap();
        symlink("/proc/self/root", f.at("w/magic")).unwrap();
        for (path, opened) in [
            ("final.txt", "outside.txt"),
            ("inside.txt", "w/a.txt"),
            ("first/deep/b.txt", "w/sub/deep/b.txt"),
            ("sub/second/b.txt", "w/sub/deep/b.txt"),
            ("magic/etc/hostname", "outside.txt"),
        ] {
            // A last component that is a link is seen as itself: no regular file.
            let refused = f.claim(Root::Workspace, path, opened).unwrap_err();
            let expected = if path.contains('/') { matches!(refused, VerifyError::Walk { .. }) } else { matches!(refused, VerifyError::NotRegular) };
            assert!(expected, "{path}: {refused}");
        }
    }

    #[test]
    fn a_fifo_a_socket_a_device_and_a_directory_are_refused_without_blocking() {
        let f = fixture();
        nix::unistd::mkfifo(&f.at("w/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(f.at("w/socket")).unwrap();
        for path in ["fifo", "socket", "sub"] {
            assert!(matches!(f.claim(Root::Workspace, path, "w/a.txt"), Err(VerifyError::NotRegular)), "{path}");
        }
        // The named file is regular, the descriptor is not.
        let (reader, _writer) = nix::unistd::pipe().unwrap();
        for fd in [reader, File::open("/dev/null").unwrap().into(), File::open(f.at("w/sub")).unwrap().into()] {
            let refused = f.roots.verify(Root::Workspace, &f.run, "a.txt", Some(fd));
            assert!(matches!(refused, Err(VerifyError::NotRegular)), "{refused:?}");
        }
        // A device by its own path: the root is /dev here.
        let roots = Roots::new(Some(dir(Path::new("/dev"))), None, &[], f.roots.own);
        let null = File::open("/dev/null").unwrap().into();
        assert!(matches!(roots.verify(Root::Workspace, &f.run, "null", Some(null)), Err(VerifyError::NotRegular)));
    }

    #[test]
    fn the_descriptor_must_be_the_named_file_read_only_and_singly_linked() {
        let f = fixture();
        assert!(matches!(f.claim(Root::Workspace, "a.txt", "outside.txt"), Err(VerifyError::Swapped)));
        assert!(matches!(f.claim(Root::Workspace, "a.txt", "no such file"), Err(VerifyError::NoDescriptor)));
        assert!(matches!(f.claim(Root::Workspace, "sub/no.txt", "w/a.txt"), Err(VerifyError::Missing { .. })));
        assert!(matches!(f.claim(Root::Workspace, "a.txt/b", "w/a.txt"), Err(VerifyError::Walk { .. })));
        let writable = File::options().read(true).write(true).open(f.at("w/a.txt")).unwrap();
        let refused = f.roots.verify(Root::Workspace, &f.run, "a.txt", Some(writable.into()));
        assert!(matches!(refused, Err(VerifyError::Mode)));
        let handle = dir(&f.at("w")).step("a.txt", false).unwrap();
        assert!(matches!(f.roots.verify(Root::Workspace, &f.run, "a.txt", Some(handle)), Err(VerifyError::Mode)));
        fs::hard_link(f.at("outside.txt"), f.at("w/linked.txt")).unwrap();
        assert!(matches!(f.claim(Root::Workspace, "linked.txt", "w/linked.txt"), Err(VerifyError::Links(2))));
        // Opened, then replaced by a rename: the path is another file now.
        let opened = File::open(f.at("w/a.txt")).unwrap();
        fs::rename(f.at("w/sub/deep/b.txt"), f.at("w/a.txt")).unwrap();
        let refused = f.roots.verify(Root::Workspace, &f.run, "a.txt", Some(opened.into()));
        assert!(matches!(refused, Err(VerifyError::Swapped)));
    }

    #[test]
    fn private_places_inside_the_workspace_are_refused_by_name_and_by_identity() {
        let f = fixture();
        let refused = |path: &str, opened: &str| matches!(f.claim(Root::Workspace, path, opened), Err(VerifyError::Private { .. }));
        assert!(refused("state/reply-files/c.txt", "w/state/reply-files/c.txt"));
        assert!(refused("conf/agent.json", "w/conf/agent.json"));
        // Not there yet, in another case and normal form.
        assert!(refused("later/pla\u{301}ce/x.txt", "w/a.txt"));
        assert!(!refused("later/x.txt", "w/a.txt"));
        // The same file by another path of the same workspace.
        fs::rename(f.at("w/conf/agent.json"), f.at("w/sub/plain.json")).unwrap();
        fs::write(f.at("w/conf/agent.json"), b"new").unwrap();
        assert!(!refused("sub/plain.json", "w/sub/plain.json"));
        fs::hard_link(f.at("w/conf/agent.json"), f.at("w/sub/alias.json")).unwrap();
        assert!(refused("sub/alias.json", "w/sub/alias.json"));
    }

    #[test]
    fn twenty_mebibytes_pass_and_one_byte_more_is_too_large() {
        let f = fixture();
        let file = File::create(f.at("w/big.bin")).unwrap();
        file.set_len(MAX_FILE).unwrap();
        assert_eq!(f.claim(Root::Workspace, "big.bin", "w/big.bin").unwrap().size, MAX_FILE);
        file.set_len(MAX_FILE + 1).unwrap();
        let refused = f.claim(Root::Workspace, "big.bin", "w/big.bin").unwrap_err();
        assert!(matches!(refused, VerifyError::TooLarge(size) if size == MAX_FILE + 1));
        assert_eq!(refused.code(), Code::TooLarge);
    }

    #[test]
    fn a_missing_root_is_named() {
        let f = fixture();
        let roots = Roots::new(None, None, &[], f.roots.own);
        for root in [Root::Workspace, Root::Outbound] {
            assert!(matches!(roots.verify(root, &f.run, "a.txt", None), Err(VerifyError::NoRoot(r)) if r == root));
        }
    }
}
