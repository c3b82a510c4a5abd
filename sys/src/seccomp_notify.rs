//! System calls that a filter holds until another process has looked at them: installing such a
//! filter, and hearing of a call. No call is ever answered here; whoever made one is ended.

use std::ffi::{c_int, c_uint, c_ushort};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A call that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notice {
    id: u64,
    /// The thread that made it, in the reader's pid namespace. It stays held until its end.
    pub thread: i32,
    /// The table that the number is of, an `AUDIT_ARCH_…`.
    pub architecture: u32,
    /// The call's number.
    pub number: u32,
}

/// What a listener has to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// A call is held.
    Call(Notice),
    /// None is.
    Nothing,
    /// No process has the filter any more.
    Over,
}

/// Installs a filter on the calling thread and returns the descriptor on which calls that got
/// `SECCOMP_RET_USER_NOTIF` are heard. When its last copy is closed, such calls get `ENOSYS`. It
/// needs `no_new_privs`, and a thread can have one such filter only. Each instruction is 8 bytes
/// as the kernel reads them.
///
/// # Errors
/// `EBUSY` when an outer filter has a listener already; `EINVAL` for a program that the kernel
/// refuses, or by a kernel before 5.19.
pub fn install(program: &[[u8; 8]]) -> io::Result<OwnedFd> {
    let length = c_ushort::try_from(program.len())
        .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let program = libc::sock_fprog {
        len: length,
        filter: program.as_ptr().cast_mut().cast(),
    };
    // A held call that was heard waits for its end and can't be left by a signal.
    let flags =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: the kernel copies `len` instructions of 8 bytes, which the slice has, and writes
    // nothing; on success it returns a fresh descriptor that nobody else knows.
    unsafe {
        let listener = libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        );
        if listener < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(listener as RawFd))
    }
}

/// The next held call. Never waits, as long as one thread at a time reads: the kernel's own
/// request would.
///
/// # Errors
/// `ENOTTY` when the descriptor is no listener.
pub fn next(listener: impl AsFd) -> io::Result<Heard> {
    let fd = listener.as_fd().as_raw_fd();
    loop {
        let mut ready = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid entry, and no waiting.
        if unsafe { libc::poll(&raw mut ready, 1, 0) } < 0 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        if ready.revents & libc::POLLIN == 0 {
            return Ok(match ready.revents {
                0 => Heard::Nothing,
                _ => Heard::Over,
            });
        }
        // Room for a kernel whose structure has grown; it must be zero.
        let mut room = [0_u64; 64];
        const { assert!(size_of::<libc::seccomp_notif>() <= 512) };
        // SAFETY: the buffer is zeroed, aligned and larger than the structure.
        let got = unsafe { libc::ioctl(fd, libc::SECCOMP_IOCTL_NOTIF_RECV, room.as_mut_ptr()) };
        if got < 0 {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                // The thread ended meanwhile, or left the call for a signal before it was heard.
                Some(libc::ENOENT | libc::EINTR) => continue,
                _ => return Err(error),
            }
        }
        // SAFETY: the kernel has filled the structure, which is plain integers.
        let notice = unsafe { room.as_ptr().cast::<libc::seccomp_notif>().read() };
        return Ok(Heard::Call(Notice {
            id: notice.id,
            thread: c_int::try_from(notice.pid).unwrap_or(0),
            architecture: notice.data.arch,
            number: c_uint::from_ne_bytes(notice.data.nr.to_ne_bytes()),
        }));
    }
}

/// True while the thread of this notice still waits in its call: what was looked up by its id
/// before is then its own.
pub fn is_held(listener: impl AsFd, notice: &Notice) -> bool {
    let id = notice.id;
    // SAFETY: the kernel reads one 64-bit number.
    let valid = unsafe {
        libc::ioctl(
            listener.as_fd().as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
            &raw const id,
        )
    };
    valid == 0
}

/// A descriptor for exactly the thread that made the call; a fatal signal to it ends its process.
/// `None` when it has ended meanwhile.
///
/// # Errors
/// `EMFILE` and the like; `EINVAL` by a kernel before 6.9.
pub fn caller(listener: impl AsFd, notice: &Notice) -> io::Result<Option<OwnedFd>> {
    // Of linux/pidfd.h, for which libc has no name yet.
    const PIDFD_THREAD: c_int = libc::O_EXCL;
    // SAFETY: two integers; on success a fresh descriptor that nobody else knows.
    let pidfd = unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, notice.thread, PIDFD_THREAD);
        if fd < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::ESRCH) => Ok(None),
                _ => Err(error),
            };
        }
        OwnedFd::from_raw_fd(fd as RawFd)
    };
    // Asked afterwards: while it is held, its id can't have become another thread's.
    Ok(is_held(listener, notice).then_some(pidfd))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::mpsc;

    /// Holds one call, allows the rest.
    fn holding(number: libc::c_long) -> Vec<[u8; 8]> {
        let instruction = |code: u16, jt: u8, jf: u8, k: u32| {
            let mut bytes = [0; 8];
            bytes[..2].copy_from_slice(&code.to_ne_bytes());
            (bytes[2], bytes[3]) = (jt, jf);
            bytes[4..].copy_from_slice(&k.to_ne_bytes());
            bytes
        };
        vec![
            instruction(0x20, 0, 0, 0),
            instruction(0x15, 0, 1, u32::try_from(number).unwrap()),
            instruction(0x06, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
            instruction(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
        ]
    }

    #[test]
    fn a_held_call_is_heard_and_gets_an_error_once_nobody_listens() {
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            nix::sys::prctl::set_no_new_privs().unwrap();
            let listener = install(&holding(libc::SYS_vhangup)).unwrap();
            // One listener is all that a thread can have.
            let second = install(&holding(libc::SYS_vhangup)).unwrap_err();
            assert_eq!(second.raw_os_error(), Some(libc::EBUSY));
            tell.send((listener, nix::unistd::gettid().as_raw()))
                .unwrap();
            // SAFETY: a call without arguments, which the filter holds.
            let failed = unsafe { libc::syscall(libc::SYS_vhangup) };
            (failed, io::Error::last_os_error().raw_os_error())
        });
        let (listener, thread_id) = told.recv().unwrap();
        let mut ready = libc::pollfd {
            fd: listener.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid entry.
        assert_eq!(unsafe { libc::poll(&raw mut ready, 1, 20_000) }, 1);
        let Heard::Call(notice) = next(&listener).unwrap() else {
            panic!("nothing was heard");
        };
        assert_eq!(notice.thread, thread_id);
        assert_eq!(libc::c_long::from(notice.number), libc::SYS_vhangup);
        assert!(is_held(&listener, &notice));
        assert!(caller(&listener, &notice).unwrap().is_some());
        assert_eq!(next(&listener).unwrap(), Heard::Nothing);
        drop(listener);
        assert_eq!(thread.join().unwrap(), (-1, Some(libc::ENOSYS)));
    }

    #[test]
    fn only_a_listener_is_listened_to() {
        let (reader, writer) = std::io::pipe().unwrap();
        assert_eq!(next(reader.as_fd()).unwrap(), Heard::Nothing);
        std::io::Write::write_all(&mut &writer, b"x").unwrap();
        assert_eq!(
            next(reader.as_fd()).unwrap_err().raw_os_error(),
            Some(libc::ENOTTY)
        );
        let notice = Notice {
            id: 1,
            thread: 1,
            architecture: 0,
            number: 0,
        };
        assert!(!is_held(reader.as_fd(), &notice));
        assert!(caller(reader.as_fd(), &notice).unwrap().is_none());
    }

    #[test]
    fn a_program_that_is_too_long_is_refused() {
        let error = install(&vec![[0; 8]; 70_000]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
}
