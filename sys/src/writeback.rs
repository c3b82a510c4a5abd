//! Starting to write a file to the disk without waiting for it.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

/// Starts writing what is cached of a file, and does not wait.
///
/// It promises nothing: durability is what `fsync` says. But a file whose blocks are on their way
/// already goes along with the journal's next commit, so that the `fsync` of several small files
/// costs one commit and not one for each.
///
/// # Errors
/// What `sync_file_range` says; a caller that syncs later may well ignore it.
pub fn start_writeback(file: impl AsFd) -> io::Result<()> {
    let number = file.as_fd().as_raw_fd();
    // SAFETY: the arguments are a descriptor that lives through the call and three integers; no
    // memory is passed.
    let result = unsafe { libc::sync_file_range(number, 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_file_takes_it_and_a_pipe_does_not() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"x").unwrap();
        start_writeback(&file).unwrap();
        let (reader, _writer) = nix::unistd::pipe().unwrap();
        assert!(start_writeback(&reader).is_err());
    }
}
