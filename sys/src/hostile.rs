//! Calls that attacks are made of, with arguments with which they would work. The attack suite
//! makes them inside every sandbox, to see them refused, and outside, to see that they work there.
//!
//! Whatever is made here is given back before the function returns.

use std::ffi::{c_int, c_long, c_uint};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

/// `syscall` with every argument as wide as a register: of a narrower one on the stack the upper
/// half would be left to chance.
macro_rules! call {
    ($number:expr $(, $argument:expr)* $(,)?) => {
        libc::syscall($number $(, $argument as c_long)*)
    };
}

mod file;
mod process;

pub use file::{handle_of, make_by_openat2, open_handle, set_file_attribute};
pub use process::{
    Meddle, Trace, fork_bomb, meddle, orphan, pidfd_getfd, pidfd_open, raise_priority, read_memory,
    schedule_in_real_time, set_owner, trace, write_memory,
};

fn done(result: c_long) -> io::Result<c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn fd(result: c_long) -> io::Result<OwnedFd> {
    let number = done(result)? as RawFd;
    // SAFETY: the callers pass the result of a call that returns a fresh descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Acts on a descriptor that this process has under this number; `None` when there is none.
pub fn with_fd<T>(number: RawFd, act: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
    // SAFETY: F_GETFD reads a flag of a number and touches no memory.
    if number < 0 || unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return None;
    }
    // SAFETY: it is open, and whoever owns it is not running: an attacker has one thread.
    Some(act(unsafe { BorrowedFd::borrow_raw(number) }))
}

/// Starts a process with these flags of `clone`; it ends at once.
///
/// # Errors
/// Why it was refused.
pub fn clone_with(flags: c_int) -> io::Result<()> {
    let flags = (flags | libc::SIGCHLD) as c_long;
    // SAFETY: without CLONE_VM and with no stack this is a fork; the child only ends.
    let child = done(unsafe { call!(libc::SYS_clone, flags, 0, 0, 0, 0) })?;
    end_child(child);
    Ok(())
}

/// The same with `clone3`, whose flags no filter sees.
///
/// # Errors
/// Why it was refused.
pub fn clone3_with(flags: u64) -> io::Result<()> {
    // SAFETY: clone_args is plain integers, for which zero means "not used".
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags;
    args.exit_signal = libc::SIGCHLD as u64;
    let size = size_of::<libc::clone_args>();
    // SAFETY: as in `clone_with`.
    let child = done(unsafe { call!(libc::SYS_clone3, &raw const args, size) })?;
    end_child(child);
    Ok(())
}

/// In the child: ends. In the parent: reaps it.
fn end_child(child: c_long) {
    // SAFETY: `_exit` runs no handlers; waiting for an own child writes nothing.
    unsafe {
        if child == 0 {
            libc::_exit(0);
        }
        libc::waitpid(child as libc::pid_t, ptr::null_mut(), 0);
    }
}

/// A call of the kernel's keyring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Finds the session's ring.
    Find,
    /// Adds a key to the process's ring.
    Add,
    /// Asks for a key that nobody has.
    Request,
}

/// Makes it.
///
/// # Errors
/// Why it was refused.
pub fn key(call: Key) -> io::Result<()> {
    // KEY_SPEC_SESSION_KEYRING and KEY_SPEC_PROCESS_KEYRING of linux/keyctl.h.
    const SESSION: c_int = -3;
    const PROCESS: c_int = -2;
    let (kind, name, payload) = (c"user", c"mono-attack", c"x");
    // SAFETY: null-terminated strings that outlive the call, and integers.
    let result = unsafe {
        match call {
            Key::Find => call!(libc::SYS_keyctl, 0, SESSION, 1, 0, 0),
            Key::Add => call!(
                libc::SYS_add_key,
                kind.as_ptr(),
                name.as_ptr(),
                payload.as_ptr(),
                1,
                PROCESS,
            ),
            Key::Request => call!(
                libc::SYS_request_key,
                kind.as_ptr(),
                c"mono-attack-none".as_ptr(),
                ptr::null::<libc::c_char>(),
                PROCESS,
            ),
        }
    };
    done(result).map(drop)
}

/// Makes a map of the kernel's virtual machine.
///
/// # Errors
/// Why it was refused.
pub fn bpf_map() -> io::Result<()> {
    // BPF_MAP_CREATE with an array of one entry: type, key size, value size, entries.
    let attributes: [u32; 32] = {
        let mut all = [0; 32];
        all[..4].copy_from_slice(&[2, 4, 4, 1]);
        all
    };
    let size = size_of_val(&attributes);
    // SAFETY: the attributes are plain words of the size that is passed.
    fd(unsafe { call!(libc::SYS_bpf, 0, attributes.as_ptr(), size) }).map(drop)
}

/// Counts this process's own page faults with the kernel's profiler.
///
/// # Errors
/// Why it was refused.
pub fn perf_event() -> io::Result<()> {
    // type 1 (software), size 64, config 2 (page faults); the first words of perf_event_attr.
    let mut attributes = [0_u64; 16];
    attributes[0] = 1 | 64 << 32;
    attributes[1] = 2;
    // exclude_kernel, which ordinary users must ask for.
    attributes[5] = 1 << 5;
    // SAFETY: the attributes are of the size that they name.
    let result = unsafe { call!(libc::SYS_perf_event_open, attributes.as_ptr(), 0, -1, -1, 0) };
    fd(result).map(drop)
}

/// Asks to handle this process's own page faults.
///
/// # Errors
/// Why it was refused.
pub fn userfaultfd() -> io::Result<()> {
    // UFFD_USER_MODE_ONLY, the form that ordinary users get.
    // SAFETY: integers only.
    fd(unsafe { call!(libc::SYS_userfaultfd, libc::O_CLOEXEC | 1) }).map(drop)
}

/// Makes a ring for system calls without system calls.
///
/// # Errors
/// Why it was refused.
pub fn io_uring() -> io::Result<()> {
    let mut parameters = [0_u64; 15];
    // SAFETY: struct io_uring_params has 120 bytes, which the kernel fills.
    fd(unsafe { call!(libc::SYS_io_uring_setup, 4, parameters.as_mut_ptr()) }).map(drop)
}

/// Memory that even the kernel doesn't map.
///
/// # Errors
/// Why it was refused.
pub fn secret_memory() -> io::Result<()> {
    // SAFETY: integers only.
    fd(unsafe { call!(libc::SYS_memfd_secret, 0) }).map(drop)
}

/// Sets this process's personality.
///
/// # Errors
/// Why it was refused.
pub fn personality(flags: u64) -> io::Result<()> {
    // SAFETY: integers only.
    done(unsafe { call!(libc::SYS_personality, flags) }).map(drop)
}

/// A call of the x32 table of this kernel: `getpid`.
///
/// # Errors
/// `ENOSYS` where the kernel has no such table.
#[cfg(target_arch = "x86_64")]
pub fn x32() -> io::Result<()> {
    // SAFETY: no arguments.
    done(unsafe { call!(0x4000_0000 | libc::SYS_getpid) }).map(drop)
}

/// A call of the 32-bit table by its own instruction: `getpid`.
///
/// # Errors
/// None in practice: without such a table the process ends.
#[cfg(target_arch = "x86_64")]
pub fn int80() -> io::Result<()> {
    let mut result: i64 = 20;
    // SAFETY: the call takes no argument and touches no memory; the registers that the kernel may
    // clear are named.
    unsafe {
        std::arch::asm!("int 0x80", inout("rax") result,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    if result < 0 {
        return Err(io::Error::from_raw_os_error((-result) as i32));
    }
    Ok(())
}

/// Reads this process's table of local segments.
///
/// # Errors
/// Why it was refused.
#[cfg(target_arch = "x86_64")]
pub fn local_segments() -> io::Result<()> {
    let mut table = [0_u8; 64];
    // SAFETY: the buffer has the size that is passed.
    done(unsafe { call!(libc::SYS_modify_ldt, 0, table.as_mut_ptr(), table.len()) }).map(drop)
}

/// A call with a number that no kernel has.
///
/// # Errors
/// Always.
pub fn unknown_call() -> io::Result<()> {
    // SAFETY: there is no such call.
    done(unsafe { call!(4_095) }).map(drop)
}

/// Watches what all processes open.
///
/// # Errors
/// Why it was refused.
pub fn watch_everything() -> io::Result<()> {
    // FAN_CLASS_NOTIF without FAN_REPORT_FID is for the privileged.
    // SAFETY: integers only.
    fd(unsafe { call!(libc::SYS_fanotify_init, 1, libc::O_RDONLY) }).map(drop)
}

/// Asks how much the kernel's log holds.
///
/// # Errors
/// Why it was refused.
pub fn kernel_log() -> io::Result<()> {
    const SIZE_BUFFER: c_int = 10;
    const READ_ALL: c_int = 3;
    let mut buffer = [0_u8; 64];
    // SAFETY: the buffer has the size that is passed.
    unsafe {
        done(call!(libc::SYS_syslog, SIZE_BUFFER, 0, 0))?;
        done(call!(
            libc::SYS_syslog,
            READ_ALL,
            buffer.as_mut_ptr(),
            buffer.len()
        ))?;
    }
    Ok(())
}

/// An attribute of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attribute {
    /// It can be debugged by processes of its user.
    Dumpable,
    /// It outlives its parent.
    Independent,
    /// Its capabilities outlive a change of user.
    KeepCapabilities,
    /// Root gets no special treatment any more: a change of the securebits.
    Securebits,
    /// `CAP_NET_RAW` for every program that it executes.
    Ambient,
    /// Orphans below it become its own.
    Reaper,
}

/// Sets it.
///
/// # Errors
/// Why it was refused.
pub fn set_attribute(attribute: Attribute) -> io::Result<()> {
    let (option, first, second): (c_int, c_int, c_int) = match attribute {
        Attribute::Dumpable => (libc::PR_SET_DUMPABLE, 1, 0),
        Attribute::Independent => (libc::PR_SET_PDEATHSIG, 0, 0),
        Attribute::KeepCapabilities => (libc::PR_SET_KEEPCAPS, 1, 0),
        Attribute::Securebits => (libc::PR_SET_SECUREBITS, 1, 0),
        Attribute::Ambient => (libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, 13),
        Attribute::Reaper => (libc::PR_SET_CHILD_SUBREAPER, 1, 0),
    };
    if attribute == Attribute::Ambient {
        // Only what is inheritable can be raised.
        let _ = crate::capability::make_inheritable(1 << 13);
    }
    // SAFETY: integers only.
    let result = unsafe { call!(libc::SYS_prctl, option, first, second, 0, 0) };
    done(result).map(drop)
}

/// Makes a page executable that was written before.
///
/// # Errors
/// Why it was refused.
pub fn protect_executable() -> io::Result<()> {
    // SAFETY: a fresh anonymous page that nobody points to, unmapped again at once.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let page = libc::mmap(ptr::null_mut(), 4096, access, flags, -1, 0);
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let access = libc::PROT_READ | libc::PROT_EXEC;
        let result = done(libc::mprotect(page, 4096, access).into());
        libc::munmap(page, 4096);
        result.map(drop)
    }
}

/// A socket of any family, kind and protocol.
///
/// # Errors
/// Why it was refused.
pub fn socket(family: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: integers only.
    fd(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) }.into())
}

/// Waits on a listening socket of any protocol.
///
/// # Errors
/// Why it was refused.
pub fn listen(socket: impl AsFd) -> io::Result<()> {
    let raw = socket.as_fd().as_raw_fd();
    // SAFETY: integers only.
    done(unsafe { libc::listen(raw, 1) }.into()).map(drop)
}

/// Sends to the given UDP or TCP address with the flag that connects a TCP socket on the way.
///
/// # Errors
/// Why it was refused; `EINPROGRESS` when it is on its way.
pub fn send_and_connect(socket: impl AsFd, port: u16) -> io::Result<()> {
    // SAFETY: sockaddr_in is plain data for which zero is valid.
    let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    address.sin_family = libc::AF_INET as libc::sa_family_t;
    address.sin_port = port.to_be();
    address.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
    let flags = libc::MSG_FASTOPEN | libc::MSG_NOSIGNAL;
    // SAFETY: the address has the size that is passed, and the payload one byte.
    let result = unsafe {
        libc::sendto(
            socket.as_fd().as_raw_fd(),
            b"x".as_ptr().cast(),
            1,
            flags,
            ptr::from_ref(&address).cast(),
            size_of::<libc::sockaddr_in>() as c_uint,
        )
    };
    done(result as c_long).map(drop)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn processes_are_started_and_none_is_left() {
        assert_eq!(fork_bomb(3).unwrap(), 3);
        clone_with(0).unwrap();
        clone3_with(0).unwrap();
        let left = std::fs::read_to_string("/proc/thread-self/children");
        assert_eq!(left.unwrap_or_default().trim(), "");
    }

    #[test]
    fn a_process_reaches_its_own_memory_and_a_file_has_a_handle() {
        let byte = 7_u8;
        read_memory(std::process::id() as i32, ptr::from_ref(&byte) as usize).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        match handle_of(file.path()) {
            Ok(handle) => assert_eq!(handle.len(), 136),
            // A file system without handles.
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP)),
        }
        assert_eq!(
            open_handle(-1, b"short").unwrap_err().raw_os_error(),
            Some(libc::EINVAL)
        );
        assert_eq!(
            unknown_call().unwrap_err().raw_os_error(),
            Some(libc::ENOSYS)
        );
    }
}
