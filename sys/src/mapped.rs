//! A sealed memory file in place: for content that is only passed on, and not copied for that.

use crate::memfd::{SealedError, sealed_length};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::ptr::{self, NonNull};

/// The bytes of a sealed memory file. They can't change and can't go: nobody may write or shrink it
/// any more.
#[derive(Debug)]
pub struct Mapped {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the bytes are read only, by whoever has a reference, and stay where they are.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps a whole memory file, after its seals and its size were checked. `None` for one of huge
    /// pages, which may not be there when they are touched: that would be a `SIGBUS`. It has to be
    /// read.
    ///
    /// # Errors
    /// [`SealedError`]; nothing is mapped that could still change.
    pub fn new(fd: impl AsFd, max: usize) -> Result<Option<Self>, SealedError> {
        let length = sealed_length(&fd, max)?;
        if length == 0 {
            let start = NonNull::dangling();
            return Ok(Some(Self { start, length }));
        }
        let file = File::from(fd.as_fd().try_clone_to_owned()?);
        // SAFETY: a question without pointers.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        if i64::try_from(file.metadata()?.blksize()) != Ok(page) {
            return Ok(None);
        }
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping where the kernel likes it, of a descriptor that is open.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ,
                flags,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData);
        let start = start.map_err(io::Error::from)?;
        Ok(Some(Self { start, length }))
    }
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the mapping is readable, of this length, and lives as long as `self`; its seals
        // keep the bytes from being written and the file from being shorter.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.length > 0 {
            // SAFETY: our own mapping, to which no reference is left.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::memfd::sealed_memfd;
    use nix::sys::memfd::{MFdFlags, memfd_create};

    #[test]
    fn the_bytes_are_those_of_the_file_and_outlive_its_descriptor() {
        for length in [0, 1, 4096, 100_000] {
            let bytes: Vec<u8> = (0..length).map(|n: usize| (n % 251) as u8).collect();
            let fd = sealed_memfd(c"body", &bytes).unwrap();
            let mapped = Mapped::new(&fd, length).unwrap();
            drop(fd);
            // Machines may give every memory file huge pages.
            if let Some(mapped) = mapped {
                let moved = std::thread::spawn(move || mapped.as_ref().to_vec());
                assert_eq!(moved.join().unwrap(), bytes);
            }
        }
    }

    #[test]
    fn a_file_that_could_change_or_is_too_large_is_not_mapped() {
        let open = memfd_create(c"open", MFdFlags::MFD_ALLOW_SEALING).unwrap();
        assert!(matches!(
            Mapped::new(&open, 9),
            Err(SealedError::Unsealed { .. })
        ));
        let file = tempfile::tempfile().unwrap();
        assert!(matches!(
            Mapped::new(&file, 9),
            Err(SealedError::Unsealed { found: -1, .. })
        ));
        let large = sealed_memfd(c"body", &[7; 10]).unwrap();
        assert!(matches!(
            Mapped::new(&large, 9),
            Err(SealedError::TooLarge { size: 10, max: 9 })
        ));
    }

    #[test]
    fn a_file_of_huge_pages_is_left_to_be_read() {
        let flags = MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_HUGETLB;
        let Ok(fd) = memfd_create(c"huge", flags) else {
            // A kernel without them makes none, for an attacker neither.
            return;
        };
        let file = File::from(fd);
        file.set_len(2 << 20).unwrap();
        let seals = nix::fcntl::SealFlag::all();
        if nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_ADD_SEALS(seals)).is_ok() {
            assert!(Mapped::new(&file, 4 << 20).unwrap().is_none());
        }
    }
}
