//! What is done to other processes, and with too many of one's own.

use super::{done, fd};
use std::ffi::c_long;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::ptr;

/// How a debugger takes hold of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trace {
    /// `PTRACE_ATTACH`.
    Attach,
    /// `PTRACE_SEIZE`, which doesn't stop it.
    Seize,
    /// `PTRACE_TRACEME`: the parent becomes the debugger.
    Me,
}

/// Takes hold of another process as a debugger does, and lets it go again.
///
/// # Errors
/// Why it was refused.
pub fn trace(how: Trace, pid: i32) -> io::Result<()> {
    let request = match how {
        Trace::Attach => libc::PTRACE_ATTACH,
        Trace::Seize => libc::PTRACE_SEIZE,
        Trace::Me => libc::PTRACE_TRACEME,
    };
    // SAFETY: these requests read and write no memory of this process.
    done(unsafe { call!(libc::SYS_ptrace, request as c_long, pid, 0, 0) })?;
    if how != Trace::Me {
        // A tracee must have stopped before it can be let go; the end of this process does it too.
        // SAFETY: a status word is filled; the detach touches no memory.
        unsafe {
            let mut status = 0;
            if how == Trace::Attach {
                libc::waitpid(pid, &mut status, libc::__WALL);
            } else {
                call!(
                    libc::SYS_ptrace,
                    libc::PTRACE_INTERRUPT as c_long,
                    pid,
                    0,
                    0
                );
                libc::waitpid(pid, &mut status, libc::__WALL);
            }
            call!(libc::SYS_ptrace, libc::PTRACE_DETACH as c_long, pid, 0, 0);
        }
    }
    Ok(())
}

/// Names a process by descriptor.
///
/// # Errors
/// Why it was refused.
pub fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: integers only; the result is a fresh descriptor.
    fd(unsafe { call!(libc::SYS_pidfd_open, pid, 0) })
}

/// Takes a copy of another process's descriptor. The call is made even for a pid that can't be
/// opened, so that a filter has something to answer.
///
/// # Errors
/// Why it was refused.
pub fn pidfd_getfd(pid: i32, number: RawFd) -> io::Result<OwnedFd> {
    let process = pidfd_open(pid);
    let raw = process.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    // SAFETY: integers only; the result is a fresh descriptor.
    fd(unsafe { call!(libc::SYS_pidfd_getfd, raw, number, 0) })
}

/// Something that is asked of, or done to, another process by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meddle {
    /// Whether it shares its files with this one.
    Compare,
    /// Where its list of locks is.
    RobustList,
    /// Its limit of open files: asked.
    AskLimit,
    /// Its limit of core dumps: set to what it is.
    SetLimit,
    /// Its processors: set to what they are.
    Affinity,
    /// Its priority: made worse by nothing.
    Priority,
    /// Its I/O priority.
    IoPriority,
    /// Its pages: where they are.
    Pages,
    /// A signal with a payload.
    Queue,
    /// A signal to one thread.
    Thread,
    /// A signal to one thread of one process.
    ThreadOfProcess,
    /// A signal by descriptor.
    ByDescriptor,
    /// Advice about its memory.
    Advise,
}

/// Does it. Where it works it changes nothing.
///
/// # Errors
/// Why it was refused.
pub fn meddle(what: Meddle, pid: i32) -> io::Result<()> {
    // Ignored by whoever doesn't ask for it.
    let signal = libc::SIGURG;
    // SAFETY: every pointer is to a local of the right type that outlives the call, or null where
    // the kernel takes null; nothing of this process is written but those locals.
    let result = unsafe {
        match what {
            // 2 is KCMP_FILES of linux/kcmp.h.
            Meddle::Compare => call!(libc::SYS_kcmp, libc::getpid(), pid, 2, 0, 0),
            Meddle::RobustList => {
                let (mut head, mut length) = (ptr::null_mut::<libc::c_void>(), 0_usize);
                call!(
                    libc::SYS_get_robust_list,
                    pid,
                    &raw mut head,
                    &raw mut length
                )
            }
            Meddle::AskLimit | Meddle::SetLimit => {
                let mut old: libc::rlimit = std::mem::zeroed();
                let resource = if what == Meddle::AskLimit {
                    libc::RLIMIT_NOFILE
                } else {
                    libc::RLIMIT_CORE
                };
                let none = ptr::null::<libc::rlimit>();
                let asked = call!(libc::SYS_prlimit64, pid, resource, none, &raw mut old);
                if what == Meddle::AskLimit || asked < 0 {
                    asked
                } else {
                    let unread = ptr::null_mut::<libc::rlimit>();
                    call!(libc::SYS_prlimit64, pid, resource, &raw const old, unread)
                }
            }
            Meddle::Affinity => {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                let size = size_of::<libc::cpu_set_t>();
                if libc::sched_getaffinity(0, size, &mut set) < 0 {
                    -1
                } else {
                    c_long::from(libc::sched_setaffinity(pid, size, &set))
                }
            }
            Meddle::Priority => c_long::from(libc::setpriority(
                libc::PRIO_PROCESS,
                pid.cast_unsigned(),
                // Its own, which it always may: everything here began with the same.
                libc::getpriority(libc::PRIO_PROCESS, 0),
            )),
            // IOPRIO_WHO_PROCESS, class best-effort, level 4: the default.
            Meddle::IoPriority => call!(libc::SYS_ioprio_set, 1, pid, 2 << 13 | 4),
            Meddle::Pages => {
                let none = ptr::null::<libc::c_void>();
                call!(libc::SYS_move_pages, pid, 0, none, none, none, 0)
            }
            Meddle::Queue => {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                info.si_signo = signal;
                info.si_code = -1;
                call!(libc::SYS_rt_sigqueueinfo, pid, signal, &raw const info)
            }
            Meddle::Thread => call!(libc::SYS_tkill, pid, signal),
            Meddle::ThreadOfProcess => call!(libc::SYS_tgkill, pid, pid, signal),
            Meddle::ByDescriptor => {
                let process = pidfd_open(pid)?;
                let none = ptr::null::<libc::siginfo_t>();
                let raw = process.as_raw_fd();
                call!(libc::SYS_pidfd_send_signal, raw, signal, none, 0)
            }
            Meddle::Advise => {
                let process = pidfd_open(pid)?;
                let none = ptr::null::<libc::iovec>();
                let raw = process.as_raw_fd();
                call!(libc::SYS_process_madvise, raw, none, 0, libc::MADV_COLD, 0)
            }
        }
    };
    done(result).map(drop)
}

/// Makes a process the one that a descriptor's signals go to.
///
/// # Errors
/// Why it was refused.
pub fn set_owner(descriptor: impl AsFd, pid: i32) -> io::Result<()> {
    let raw = descriptor.as_fd().as_raw_fd();
    // SAFETY: integers only.
    done(unsafe { libc::fcntl(raw, libc::F_SETOWN, pid) }.into()).map(drop)
}

/// Starts up to `count` processes that wait, ends them all again, and says how many there were.
///
/// # Errors
/// The kernel's refusal, when it came before the last.
pub fn fork_bomb(count: usize) -> io::Result<usize> {
    let mut children = Vec::with_capacity(count);
    let mut refused = None;
    for _ in 0..count {
        // SAFETY: the child calls nothing but `pause`, which is async-signal-safe.
        match unsafe { libc::fork() } {
            0 => loop {
                // SAFETY: it takes no argument.
                unsafe { libc::pause() };
            },
            -1 => {
                refused = Some(io::Error::last_os_error());
                break;
            }
            child => children.push(child),
        }
    }
    for child in &children {
        // SAFETY: integers and null only; these are children of this process and not reaped yet.
        unsafe {
            libc::kill(*child, libc::SIGKILL);
            libc::waitpid(*child, ptr::null_mut(), 0);
        }
    }
    refused.map_or(Ok(children.len()), Err)
}

/// Starts a process that leaves its parent and its session, and waits for the end of standard
/// input.
///
/// # Errors
/// Why no process could be started.
pub fn orphan() -> io::Result<()> {
    // SAFETY: both children call only async-signal-safe functions, on their own copy of memory.
    unsafe {
        match libc::fork() {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                libc::setsid();
                if libc::fork() == 0 {
                    libc::signal(libc::SIGTERM, libc::SIG_IGN);
                    let mut byte = 0_u8;
                    while libc::read(0, ptr::from_mut(&mut byte).cast(), 1) > 0 {}
                }
                libc::_exit(0);
            }
            child => libc::waitpid(child, ptr::null_mut(), 0),
        };
    }
    Ok(())
}

/// Reads the memory of another process at an address there.
///
/// # Errors
/// Why it was refused.
pub fn read_memory(pid: i32, address: usize) -> io::Result<()> {
    move_memory(libc::SYS_process_vm_readv, pid, address)
}

/// Writes the memory of another process at an address there: a zero byte.
///
/// # Errors
/// Why it was refused.
pub fn write_memory(pid: i32, address: usize) -> io::Result<()> {
    move_memory(libc::SYS_process_vm_writev, pid, address)
}

fn move_memory(call: c_long, pid: i32, address: usize) -> io::Result<()> {
    let mut byte = 0_u8;
    let local = libc::iovec {
        iov_base: ptr::from_mut(&mut byte).cast(),
        iov_len: 1,
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: 1,
    };
    // SAFETY: the local part is one byte of this stack; the kernel checks the remote part.
    done(unsafe { call!(call, pid, &raw const local, 1, &raw const remote, 1, 0) }).map(drop)
}

/// Takes more of the processor than others get.
///
/// # Errors
/// Why it was refused.
pub fn raise_priority() -> io::Result<()> {
    // SAFETY: integers only.
    done(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -5) }.into()).map(drop)
}

/// Takes the processor until it gives it back itself.
///
/// # Errors
/// Why it was refused.
pub fn schedule_in_real_time() -> io::Result<()> {
    // SAFETY: sched_param is plain integers, of which some C libraries have more.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = 1;
    // SAFETY: the parameters outlive the call.
    done(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) }.into())
        .map(drop)
}
