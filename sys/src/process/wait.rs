//! Signalling, watching and reaping processes by descriptor.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// It called `exit` with this status, 0 to 255.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
}

impl std::fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ExitStatus::Exited(status) => write!(f, "exited with {status}"),
            ExitStatus::Signalled(signal) => match nix::sys::signal::Signal::try_from(*signal) {
                Ok(signal) => write!(f, "ended by {signal}"),
                Err(_) => write!(f, "ended by signal {signal}"),
            },
        }
    }
}

/// Sends a signal to exactly this process.
///
/// # Errors
/// `ESRCH` when it has ended already.
pub fn pidfd_signal(pidfd: impl AsFd, signal: i32) -> io::Result<()> {
    // SAFETY: a descriptor, an integer and a null pointer, which means "as kill would".
    let sent = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_fd().as_raw_fd(),
            signal,
            ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// A descriptor for this process itself, for others to see its end by.
///
/// # Errors
/// `EMFILE` and the like.
pub fn own_pidfd() -> io::Result<OwnedFd> {
    // SAFETY: two integers; on success a fresh descriptor that nobody else knows.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// Waits for the end of a child and reaps it.
///
/// # Errors
/// `ECHILD` when it was reaped before.
pub fn wait(pidfd: impl AsFd) -> io::Result<ExitStatus> {
    loop {
        match waitid(pidfd.as_fd(), 0) {
            Ok(Some(status)) => return Ok(status),
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reaps a child if it has ended; `None` while it runs. A pidfd becomes readable at the end, so
/// an event loop watches it and then calls this.
///
/// # Errors
/// `ECHILD` when it was reaped before.
pub fn try_wait(pidfd: impl AsFd) -> io::Result<Option<ExitStatus>> {
    waitid(pidfd.as_fd(), libc::WNOHANG)
}

fn waitid(pidfd: BorrowedFd<'_>, flags: c_int) -> io::Result<Option<ExitStatus>> {
    // SAFETY: siginfo_t is plain data for which zero is valid, and waitid fills it for a child
    // (si_pid stays 0 when WNOHANG found none), which makes reading the SIGCHLD fields right.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let id = pidfd.as_raw_fd() as libc::id_t;
        if libc::waitid(libc::P_PIDFD, id, &mut info, libc::WEXITED | flags) < 0 {
            return Err(io::Error::last_os_error());
        }
        if info.si_pid() == 0 {
            return Ok(None);
        }
        Ok(Some(match info.si_code {
            libc::CLD_EXITED => ExitStatus::Exited(info.si_status()),
            _ => ExitStatus::Signalled(info.si_status()),
        }))
    }
}
