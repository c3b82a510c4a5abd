//! Is the descriptor that a run handed over the file that its request names?
//!
//! The run worker opened it, and the run worker is not believed: this side walks the path from
//! its own descriptor of the root, without following any link, and compares what it finds with
//! what it was given (spec s0, "Publishing a reply file").

use crate::Code;
use crate::dir::{Dir, FileId, is_regular};
use crate::skeleton::skeleton;
use crate::source::{SourceError, SourcePath};
use ipc_proto::body::BodyError;
use ipc_proto::edges::artifact::Root;
use ipc_proto::request_context::OUTBOUND;
use ipc_proto::{Body, RunId};
use mono_sys::memfd::SealedError;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{FileStat, fstat};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Largest file in bytes (spec s0, "Publishing a reply file").
pub const MAX_FILE: u64 = ipc_proto::reply::MAX_FILE as u64;

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
    /// What came is no sealed memory file of the size that was said.
    #[error("what came can't be kept: {0}")]
    Content(#[source] BodyError),
    /// The kernel refused a question about the descriptor.
    #[error("the descriptor can't be examined: {0}")]
    Descriptor(#[source] io::Error),
}

impl VerifyError {
    /// What the model is told.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Missing { .. } | Self::NoDescriptor => Code::Missing,
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
    /// What came as a sealed memory file, which nobody can change any more.
    ///
    /// # Errors
    /// [`VerifyError`]: not sealed, or more than [`MAX_FILE`].
    pub fn sealed(content: Body, fds: &mut VecDeque<OwnedFd>) -> Result<Self, VerifyError> {
        let most = usize::try_from(MAX_FILE).unwrap_or(usize::MAX);
        let (fd, size) = content.sealed(fds, most).map_err(|error| match error {
            BodyError::Sealed(SealedError::TooLarge { size, .. }) => VerifyError::TooLarge(size),
            other => VerifyError::Content(other),
        })?;
        let stat = fstat(&fd).map_err(|e| VerifyError::Descriptor(e.into()))?;
        Ok(Self {
            before: Fingerprint::of(&stat),
            fd,
            size,
        })
    }

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
    pub fn new(
        workspace: Option<Dir>,
        scratch: Option<Dir>,
        private: &[String],
        own: FileId,
    ) -> Self {
        let private = private
            .iter()
            .map(|path| {
                path.split('/')
                    .filter(|c| !c.is_empty() && *c != ".")
                    .map(str::to_owned)
                    .collect()
            })
            .filter(|path: &Vec<String>| !path.is_empty())
            .collect();
        Self {
            workspace,
            scratch,
            private,
            own,
        }
    }

    /// Checks a request: the path first, then what is there, then what was handed over.
    ///
    /// # Errors
    /// [`VerifyError`]; the descriptor is closed then.
    pub fn verify(
        &self,
        root: Root,
        run: &RunId,
        path: &str,
        handed: Option<OwnedFd>,
    ) -> Result<Source, VerifyError> {
        let path = SourcePath::parse(path)?;
        let private = if root == Root::Workspace {
            self.refuse_private_name(&path)?
        } else {
            Vec::new()
        };
        let start = match root {
            Root::Workspace => self.workspace.as_ref().map(|dir| dir.step(".", true)),
            Root::Outbound => self
                .scratch
                .as_ref()
                .map(|dir| Dir::from_fd(dir.step(run.as_str(), true)?)?.step(OUTBOUND, true)),
        };
        let start = start
            .ok_or(VerifyError::NoRoot(root))?
            .map_err(|e| walk_error(".", e))?;
        let there = self.walk(start, &path, &private)?;
        examine(handed.ok_or(VerifyError::NoDescriptor)?, there)
    }

    /// Names are compared as [`skeleton`]s, for file systems that fold case or normal forms.
    /// Returns the identities of what is private now, for names that can't be compared.
    fn refuse_private_name(&self, path: &SourcePath) -> Result<Vec<FileId>, VerifyError> {
        let components: Vec<&str> = path
            .directories()
            .iter()
            .map(String::as_str)
            .chain([path.file_name()])
            .collect();
        let mut identities = vec![self.own];
        for private in &self.private {
            let within = components.len() >= private.len()
                && private
                    .iter()
                    .zip(&components)
                    .all(|(p, c)| skeleton(p) == skeleton(c));
            if within {
                return Err(VerifyError::Private {
                    component: components[private.len() - 1].to_owned(),
                });
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

    fn walk(
        &self,
        start: OwnedFd,
        path: &SourcePath,
        private: &[FileId],
    ) -> Result<FileStat, VerifyError> {
        let look = |fd: &OwnedFd, component: &str| -> Result<FileStat, VerifyError> {
            let stat = fstat(fd).map_err(|e| walk_error(component, e.into()))?;
            let id = FileId::of(&stat);
            if id == self.own || private.contains(&id) {
                return Err(VerifyError::Private {
                    component: component.to_owned(),
                });
            }
            Ok(stat)
        };
        let mut at = Dir::from_fd(start).map_err(|e| walk_error(".", e))?;
        for component in path.directories() {
            let next = at
                .step(component, true)
                .map_err(|e| walk_error(component, e))?;
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
    Ok(Source {
        fd,
        before: Fingerprint::of(&stat),
        size,
    })
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
