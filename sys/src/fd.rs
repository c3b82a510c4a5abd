//! Descriptors that arrive by number: the ones a process is started with.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers above this are never handed over at a start, so they can't be taken.
pub const MAX_STARTED: RawFd = 63;

static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Takes ownership of a descriptor that this process was started with.
///
/// Each number can be taken once in the life of the process: a second owner of one number would
/// close it under the first. The descriptor must be open (else `EBADF`) and gets close-on-exec,
/// because a child must receive it by intention and never by inheritance.
///
/// # Errors
/// `EINVAL` outside `0..=63`, `EBUSY` when taken before, `EBADF` when it is not open.
pub fn take_fd(number: RawFd) -> io::Result<OwnedFd> {
    if !(0..=MAX_STARTED).contains(&number) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: F_GETFD reads a flag of a number and touches no memory.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    if TAKEN.fetch_or(1 << number, Ordering::SeqCst) & (1 << number) != 0 {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    // SAFETY: as above; F_SETFD sets a flag of an open descriptor.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the number is open, and the bitmap makes this the only owner made from it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Puts descriptors at numbers, open over an `exec`; what was there is closed. Numbers above
/// [`MAX_STARTED`] are refused, and a source must lie above every number that is asked for, so that
/// no move overwrites one.
///
/// Only for a process that is about to `exec`: other owners of such numbers would close them.
///
/// # Errors
/// `EINVAL` for a number out of range, else what `dup2` says.
pub fn place(moves: &[(BorrowedFd<'_>, RawFd)]) -> io::Result<()> {
    let highest = moves.iter().map(|(_, number)| *number).max();
    let fits = |(source, number): &(BorrowedFd<'_>, RawFd)| {
        (0..=MAX_STARTED).contains(number) && Some(source.as_raw_fd()) > highest
    };
    if !moves.iter().all(fits) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    for (source, number) in moves {
        // SAFETY: two integers; no memory is passed.
        if unsafe { libc::dup2(source.as_raw_fd(), *number) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Marks every descriptor numbered `first` and above close-on-exec.
///
/// # Errors
/// What `close_range` says.
pub fn cloexec_from(first: u32) -> io::Result<()> {
    let flags = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: the arguments are three integers; no memory is passed.
    if unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, flags) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::fd::{AsFd, IntoRawFd};

    #[test]
    fn a_number_is_taken_once_and_becomes_cloexec() {
        let raw = std::fs::File::open("/dev/null").unwrap().into_raw_fd();
        let duplicate = nix::fcntl::fcntl(
            // SAFETY: the descriptor was leaked on purpose and stays open for the test.
            unsafe { std::os::fd::BorrowedFd::borrow_raw(raw) },
            nix::fcntl::FcntlArg::F_DUPFD(40),
        )
        .unwrap();
        let fd = take_fd(duplicate).unwrap();
        let flags = nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_GETFD).unwrap();
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        assert_eq!(
            take_fd(fd.as_raw_fd()).unwrap_err().raw_os_error(),
            Some(libc::EBUSY)
        );
    }

    #[test]
    fn descriptors_are_put_at_numbers_below_their_own_only() {
        let high = |source: &std::fs::File, least| {
            nix::fcntl::fcntl(source, nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(least)).unwrap()
        };
        let file = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: fresh numbers that nobody else knows.
        let own = |number| unsafe { OwnedFd::from_raw_fd(number) };
        let source = own(high(&file, 62));
        for number in [-1, source.as_raw_fd(), MAX_STARTED + 1] {
            let refused = place(&[(source.as_fd(), number)]).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EINVAL), "{number}");
        }
        let target = own(high(&file, 50));
        place(&[(source.as_fd(), target.as_raw_fd())]).unwrap();
        let flags = nix::fcntl::fcntl(&target, nix::fcntl::FcntlArg::F_GETFD).unwrap();
        assert_eq!(flags, 0, "open over an exec");
    }

    #[test]
    fn closed_and_impossible_numbers_are_refused() {
        assert_eq!(take_fd(-1).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(take_fd(64).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(take_fd(63).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}
