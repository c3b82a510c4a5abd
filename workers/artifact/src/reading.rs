//! Reading an artifact: who may, whether it is still what was published, and a copy that can't
//! change any more.

use crate::Code;
use crate::copy::{CopyError, copy_hashed};
use crate::dir::is_regular;
use crate::index::{Position, Retention};
use crate::manifest::{MAX_MANIFEST, Manifest, integrity_id};
use crate::shelf::{CONTENT, METADATA, Shelf};
use ipc_proto::edges::artifact::{ArtifactPage, ArtifactUsage};
use ipc_proto::{ConversationId, RunId};
use jiff::Timestamp;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::fstat;
use std::fs::File;
use std::io::{self, Seek as _};
use std::os::fd::OwnedFd;
use uuid::Uuid;

/// Not executable, for ever. `nix` doesn't name it yet.
const NOEXEC_SEAL: MFdFlags = MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);

/// Most artifacts on one page.
pub const MAX_PAGE: u32 = 100;

/// Why an artifact is not handed out.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No such id, not finalised, bound to another conversation, or part of another message: not
    /// told apart.
    #[error("no such artifact for this reader")]
    Missing,
    /// Past its time.
    #[error("the artifact expired")]
    Expired,
    /// The reader expects other bytes than were published.
    #[error("the artifact's integrity id is not the expected one")]
    Unexpected,
    /// The files on the disk are not the ones that were published.
    #[error("the artifact's {0} is not what was published")]
    Damaged(&'static str),
    /// A file of it can't be read.
    #[error("the artifact's {0} can't be read: {1}")]
    Unreadable(&'static str, #[source] io::Error),
    /// No memory file could be made or filled.
    #[error("no sealed copy: {0}")]
    Copy(#[source] io::Error),
}

impl ReadError {
    /// What the reader is told; `None` for a fault of ours that says nothing about the artifact.
    #[must_use]
    pub const fn code(&self) -> Option<Code> {
        match self {
            Self::Missing => Some(Code::Missing),
            Self::Expired => Some(Code::Expired),
            Self::Unexpected | Self::Damaged(_) | Self::Unreadable(..) => {
                Some(Code::IntegrityFailed)
            }
            Self::Copy(_) => None,
        }
    }
}

/// What a reader asks for.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// The opaque id.
    pub id: &'a str,
    /// The integrity id that the reader was given; operators may do without.
    pub integrity_id: Option<&'a str>,
    /// The conversation it must be bound to; operators may do without.
    pub delivery: Option<&'a ConversationId>,
    /// The run whose reply it must be part of; operators may do without.
    pub run: Option<&'a RunId>,
}

impl<'a> Wish<'a> {
    /// An operator's: whoever it belongs to.
    #[must_use]
    pub const fn of(id: &'a str) -> Self {
        Self {
            id,
            integrity_id: None,
            delivery: None,
            run: None,
        }
    }
}

impl Shelf {
    /// Verifies an artifact and gives a sealed memory file with exactly the verified bytes, its
    /// offset at the start.
    ///
    /// Spec s0, "Machine delivery outcome wire contract": ownership of conversation and message, expiry, expected integrity
    /// id, then manifest, size and hash of what is retained.
    ///
    /// # Errors
    /// [`ReadError`]; not one byte is handed out then.
    pub fn read(&self, wish: Wish<'_>, now: Timestamp) -> Result<(Manifest, OwnedFd), ReadError> {
        let manifest = self.find(wish, now)?;
        let home = self
            .live
            .open(wish.id)
            .map_err(|e| unreadable("directory", e))?;
        let bytes = home
            .read_small(METADATA, MAX_MANIFEST)
            .map_err(|e| unreadable("manifest", e))?;
        if Manifest::parse(&bytes).ok().as_ref() != Some(&manifest) {
            return Err(ReadError::Damaged("manifest"));
        }
        let content = home.read(CONTENT).map_err(|e| unreadable("content", e))?;
        let stat = fstat(&content).map_err(|e| unreadable("content", e.into()))?;
        if !is_regular(&stat) || u64::try_from(stat.st_size) != Ok(manifest.size_bytes) {
            return Err(ReadError::Damaged("size"));
        }
        let sealed = sealed_copy(&content, &manifest)?;
        Ok((manifest, sealed))
    }

    fn find(&self, wish: Wish<'_>, now: Timestamp) -> Result<Manifest, ReadError> {
        let id = Uuid::try_parse(wish.id)
            .ok()
            .filter(|id| id.to_string() == wish.id)
            .ok_or(ReadError::Missing)?;
        let manifest = self.index().get(id).cloned().ok_or(ReadError::Missing)?;
        let Some(bound) = &manifest.delivery else {
            return Err(ReadError::Missing);
        };
        let foreign = wish.delivery.is_some_and(|asked| asked != bound)
            || wish.run.is_some_and(|asked| *asked != manifest.run_id);
        if foreign {
            return Err(ReadError::Missing);
        }
        if manifest.expires_at <= now {
            return Err(ReadError::Expired);
        }
        if wish
            .integrity_id
            .is_some_and(|expected| expected != manifest.integrity_id)
        {
            return Err(ReadError::Unexpected);
        }
        Ok(manifest)
    }

    /// A page for operators, newest first; `None` for a cursor that is none of ours.
    #[must_use]
    pub fn list(&self, limit: u32, cursor: Option<&str>) -> Option<ArtifactPage> {
        let after = match cursor {
            Some(cursor) => Some(Position::parse(cursor)?),
            None => None,
        };
        let index = self.index();
        let (page, next) = index.page(limit.clamp(1, MAX_PAGE) as usize, after);
        Some(ArtifactPage {
            artifacts: page.into_iter().map(Manifest::record).collect(),
            next_cursor: next.map(|position| position.cursor()),
            usage: None,
        })
    }

    /// What is kept, beside what may be.
    #[must_use]
    pub fn usage(&self, retention: &Retention, now: Timestamp) -> ArtifactUsage {
        let index = self.index();
        ArtifactUsage {
            used_bytes: index.used(),
            ceiling_bytes: index.ceiling(),
            count: index.len() as u64,
            max_count: retention.max_count,
            due: index.due(retention, now).len() as u64,
            dry_run: retention.dry_run,
        }
    }
}

fn unreadable(what: &'static str, error: io::Error) -> ReadError {
    match error.kind() {
        // Removed by somebody's hand, or by retention a moment ago.
        io::ErrorKind::NotFound if what == "directory" => ReadError::Missing,
        _ => ReadError::Unreadable(what, error),
    }
}

fn sealed_copy(content: &File, manifest: &Manifest) -> Result<OwnedFd, ReadError> {
    let fault = |e: Errno| ReadError::Copy(e.into());
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    // Data is never a program. Kernels before 6.3 don't know the flag.
    let fd = match memfd_create(c"mono-reply-file", flags | NOEXEC_SEAL) {
        Err(Errno::EINVAL) => memfd_create(c"mono-reply-file", flags).map_err(fault)?,
        other => other.map_err(fault)?,
    };
    let mut copy = File::from(fd);
    let digest =
        copy_hashed(content, Some(&copy), manifest.size_bytes, &|_| true).map_err(|error| {
            match error {
                CopyError::Read(error) => ReadError::Unreadable("content", error),
                CopyError::Write(error) => ReadError::Copy(error),
                CopyError::Changed | CopyError::Cancelled(_) => ReadError::Damaged("size"),
            }
        })?;
    if integrity_id(&digest) != manifest.integrity_id {
        return Err(ReadError::Damaged("hash"));
    }
    copy.rewind().map_err(ReadError::Copy)?;
    let seals = SealFlag::F_SEAL_SEAL
        | SealFlag::F_SEAL_SHRINK
        | SealFlag::F_SEAL_GROW
        | SealFlag::F_SEAL_WRITE;
    fcntl(&copy, FcntlArg::F_ADD_SEALS(seals)).map_err(fault)?;
    Ok(copy.into())
}
