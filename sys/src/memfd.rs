//! Immutable bodies: memory files that nobody can change any more.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use thiserror::Error;

/// Without all four a sender could still change what the receiver has checked.
const REQUIRED: SealFlag = SealFlag::F_SEAL_SEAL
    .union(SealFlag::F_SEAL_SHRINK)
    .union(SealFlag::F_SEAL_GROW)
    .union(SealFlag::F_SEAL_WRITE);

/// Not executable, for ever. `nix` doesn't name it yet.
const NOEXEC_SEAL: MFdFlags = MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);

/// Why a descriptor was not accepted as an immutable body.
#[derive(Debug, Error)]
pub enum SealedError {
    /// The descriptor is no memory file, or lacks a seal.
    #[error("not a sealed memory file (seals {found:#x}, needed {needed:#x})")]
    Unsealed {
        /// The seals that the kernel reports; -1 when the file knows none.
        found: i32,
        /// The seals that are needed.
        needed: i32,
    },
    /// It holds more than the caller accepts.
    #[error("sealed memory file holds {size} bytes, at most {max} are accepted")]
    TooLarge {
        /// Bytes in the file.
        size: u64,
        /// Bytes accepted.
        max: usize,
    },
    /// A system call failed.
    #[error("reading a sealed memory file: {0}")]
    Io(#[from] io::Error),
}

/// Makes a memory file with these bytes that can't be written, grown, shrunk or unsealed.
///
/// `name` shows in `/proc/PID/fd` and says nothing secret.
///
/// # Errors
/// What the kernel says: usually `EMFILE` or `ENOMEM`.
pub fn sealed_memfd(name: &CStr, bytes: &[u8]) -> io::Result<OwnedFd> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    // Data is never a program. Kernels before 6.3 don't know the flag.
    let fd = match memfd_create(name, flags | NOEXEC_SEAL) {
        Err(Errno::EINVAL) => memfd_create(name, flags)?,
        other => other?,
    };
    let file = File::from(fd);
    // Not at the offset, which travels with the descriptor: a receiver reads from the start.
    file.write_all_at(bytes, 0)?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(REQUIRED))?;
    Ok(file.into())
}

/// Reads a whole sealed memory file from its start, after its seals and its size were checked.
///
/// Positioned reads: the offset of a descriptor is shared with its sender.
///
/// # Errors
/// [`SealedError`]; nothing is read from a file that could still change.
pub fn read_sealed(fd: impl AsFd, max: usize) -> Result<Vec<u8>, SealedError> {
    let length = sealed_length(&fd, max)?;
    let file = File::from(fd.as_fd().try_clone_to_owned()?);
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// The size of a sealed memory file in bytes, after its seals were checked.
///
/// # Errors
/// [`SealedError`], also for one of more than `max` bytes.
pub fn sealed_length(fd: impl AsFd, max: usize) -> Result<usize, SealedError> {
    let found = match fcntl(&fd, FcntlArg::F_GET_SEALS) {
        Ok(seals) => seals,
        Err(Errno::EINVAL) => -1,
        Err(errno) => return Err(io::Error::from(errno).into()),
    };
    if found < 0 || found & REQUIRED.bits() != REQUIRED.bits() {
        return Err(SealedError::Unsealed {
            found,
            needed: REQUIRED.bits(),
        });
    }
    let file = File::from(fd.as_fd().try_clone_to_owned()?);
    let size = file.metadata()?.len();
    let length = usize::try_from(size).ok().filter(|length| *length <= max);
    length.ok_or(SealedError::TooLarge { size, max })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn bytes_come_back_and_the_sender_cannot_change_them() {
        let fd = sealed_memfd(c"body", b"immutable").unwrap();
        let mut file = File::from(fd.try_clone().unwrap());
        assert_eq!(
            file.write(b"X").unwrap_err().raw_os_error(),
            Some(libc::EPERM)
        );
        assert_eq!(
            file.set_len(1).unwrap_err().raw_os_error(),
            Some(libc::EPERM)
        );
        assert_eq!(read_sealed(&fd, 9).unwrap(), b"immutable");
    }

    #[test]
    fn a_key_from_the_environment_is_not_empty_to_its_reader() {
        let mut text = String::new();
        let fd = sealed_memfd(c"key", b"sk-1").unwrap();
        File::from(fd).read_to_string(&mut text).unwrap();
        assert_eq!(text, "sk-1");
    }

    #[test]
    fn a_body_over_the_bound_is_refused_by_its_size() {
        let fd = sealed_memfd(c"body", &[7; 10]).unwrap();
        assert!(matches!(
            read_sealed(&fd, 9),
            Err(SealedError::TooLarge { size: 10, max: 9 })
        ));
    }

    #[test]
    fn an_unsealed_memory_file_a_file_and_a_pipe_are_refused() {
        let open = memfd_create(c"open", MFdFlags::MFD_ALLOW_SEALING).unwrap();
        assert!(matches!(
            read_sealed(&open, 9),
            Err(SealedError::Unsealed { .. })
        ));
        fcntl(&open, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_WRITE)).unwrap();
        assert!(matches!(
            read_sealed(&open, 9),
            Err(SealedError::Unsealed { .. })
        ));
        let file = tempfile::tempfile().unwrap();
        assert!(matches!(
            read_sealed(&file, 9),
            Err(SealedError::Unsealed { found: -1, .. })
        ));
        let (reader, _writer) = nix::unistd::pipe().unwrap();
        assert!(matches!(
            read_sealed(&reader, 9),
            Err(SealedError::Unsealed { found: -1, .. })
        ));
    }
}
