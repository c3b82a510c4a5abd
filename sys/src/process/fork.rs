//! The one call that begins a process.

use super::Child;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

/// `libc` has it as a 32-bit number, in which it doesn't fit.
const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;
/// The same.
const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// Copies the process with these flags and default signal handlers, in a control group if one is
/// given: `None` in the copy, and the copy in the original.
///
/// # Errors
/// What `clone3` says.
///
/// # Safety
/// The copy has only the calling thread, and what other threads were changing stays half changed in
/// it: where there may be any, it allocates nothing, locks nothing and does not return.
pub(super) unsafe fn fork(
    flags: u64,
    exit_signal: c_int,
    cgroup: Option<BorrowedFd<'_>>,
) -> io::Result<Option<Child>> {
    let mut pidfd: c_int = -1;
    // SAFETY: clone_args is plain integers, for which zero means "not used".
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = libc::CLONE_PIDFD as u64 | CLONE_CLEAR_SIGHAND | flags;
    args.pidfd = ptr::from_mut(&mut pidfd) as u64;
    args.exit_signal = exit_signal as u64;
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: without CLONE_VM and with no stack the copy runs on its own copy of this stack.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            ptr::from_mut(&mut args),
            size_of::<libc::clone_args>(),
        )
    };
    match pid {
        0 => Ok(None),
        1.. => Ok(Some(Child {
            pid: i32::try_from(pid).unwrap_or(-1),
            // SAFETY: the kernel has stored a fresh descriptor that nobody else knows.
            pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
        })),
        _ => Err(io::Error::last_os_error()),
    }
}
