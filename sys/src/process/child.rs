//! What runs between `clone3` and `execveat`, in the child: system calls and nothing else.

use super::Step;
use std::ffi::{c_char, c_int, c_long};
use std::os::fd::RawFd;
use std::ptr;

/// Capabilities in the new user namespace that a launcher needs to finish the set-up: bounding
/// set and securebits, loopback, entering a mount namespace, mounts. They rule over the child's own
/// namespaces only.
const KEPT_CAPABILITIES: [u32; 4] = [8, 12, 18, 21];

/// Everything the child needs, laid out before `clone3`: after it, only async-signal-safe system
/// calls are allowed, because another thread of the parent may have held the allocator's lock.
pub(super) struct Prepared {
    pub(super) argv: Vec<*const c_char>,
    pub(super) env: Vec<*const c_char>,
    pub(super) moves: Vec<(RawFd, RawFd)>,
    /// For each of the numbers up to the highest: whether it is in `moves`.
    pub(super) used: Vec<bool>,
    pub(super) exe: RawFd,
    pub(super) report: RawFd,
    pub(super) uid_map: Vec<u8>,
    pub(super) gid_map: Vec<u8>,
    pub(super) map_ids: bool,
}

/// Runs in the child, up to its program. Never returns, never allocates, never panics.
pub(super) fn in_child(prepared: &mut Prepared) -> ! {
    let (step, errno) = match set_up(prepared) {
        Ok(never) => match never {},
        Err(failure) => failure,
    };
    let mut report = [0_u8; 8];
    report[..4].copy_from_slice(&(step as i32).to_ne_bytes());
    report[4..].copy_from_slice(&errno.to_ne_bytes());
    // SAFETY: the buffer is valid for its 8 bytes; _exit ends the process without any handler.
    unsafe {
        libc::write(prepared.report, report.as_ptr().cast(), report.len());
        libc::_exit(127)
    }
}

fn check(result: c_long, step: Step) -> Result<c_long, (Step, c_int)> {
    if result < 0 {
        // SAFETY: errno of this thread is always readable.
        return Err((step, unsafe { *libc::__errno_location() }));
    }
    Ok(result)
}

fn set_up(prepared: &mut Prepared) -> Result<std::convert::Infallible, (Step, c_int)> {
    die_with_parent(prepared.report)?;
    place_descriptors(prepared)?;
    reset_signals();
    if prepared.map_ids {
        map_ids(prepared)?;
        keep_capabilities()?;
    }
    // SAFETY: all pointers are to null-terminated arrays of C strings that the parent's request
    // owns.
    unsafe {
        check(
            libc::syscall(
                libc::SYS_execveat,
                prepared.exe,
                c"".as_ptr(),
                prepared.argv.as_ptr(),
                prepared.env.as_ptr(),
                libc::AT_EMPTY_PATH,
            ),
            Step::Exec,
        )?;
    }
    Err((Step::Exec, libc::EINVAL))
}

fn reset_signals() {
    // SAFETY: signal calls get valid or null pointers.
    unsafe {
        // An ignored signal stays ignored over exec (the Rust runtime ignores SIGPIPE), and libc
        // would refuse the numbers that it reserves. A zeroed action is the default one.
        let default = [0_u64; 8];
        for signal in 1..=64 {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                ptr::null::<u64>(),
                8,
            );
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, ptr::null_mut());
    }
}

fn die_with_parent(report: RawFd) -> Result<(), (Step, c_int)> {
    let mut poll = libc::pollfd {
        fd: report,
        events: 0,
        revents: 0,
    };
    // SAFETY: prctl takes integers; poll gets one valid entry and does not wait.
    unsafe {
        check(
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong).into(),
            Step::ParentDeath,
        )?;
        // A parent that died before the line above sends no signal, and in a pid namespace
        // getppid() is 0 anyway. Its end of the report pipe does tell.
        check(libc::poll(&mut poll, 1, 0).into(), Step::ParentDeath)?;
    }
    if poll.revents & libc::POLLERR != 0 {
        return Err((Step::ParentDeath, libc::ESRCH));
    }
    Ok(())
}

fn place_descriptors(prepared: &mut Prepared) -> Result<(), (Step, c_int)> {
    let above = prepared.used.len() as c_int;
    // SAFETY: descriptor calls on integers, and one constant path.
    unsafe {
        // First everything out of the way, so that no move overwrites a source of a later one.
        let lift = |fd: RawFd| {
            check(
                libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, above).into(),
                Step::Descriptors,
            )
            .map(|lifted| lifted as RawFd)
        };
        prepared.report = lift(prepared.report)?;
        prepared.exe = lift(prepared.exe)?;
        for (source, _) in &mut prepared.moves {
            *source = lift(*source)?;
        }
        for (source, target) in &prepared.moves {
            check(libc::dup2(*source, *target).into(), Step::Descriptors)?;
        }
        for (number, used) in prepared.used.iter().enumerate() {
            if *used {
                continue;
            }
            let number = number as c_int;
            libc::close(number);
            if number <= 2 {
                let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
                check(null.into(), Step::Stdio)?;
                if null != number {
                    check(libc::dup2(null, number).into(), Step::Stdio)?;
                    libc::close(null);
                }
            }
        }
        check(
            libc::syscall(
                libc::SYS_close_range,
                above,
                libc::c_uint::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            ),
            Step::Close,
        )?;
    }
    Ok(())
}

fn map_ids(prepared: &Prepared) -> Result<(), (Step, c_int)> {
    // SAFETY: takes integers.
    unsafe {
        // The files below belong to root for a process that is not dumpable, and the supervisor
        // is not. The copy of its memory here ends with the exec a few lines later.
        libc::prctl(libc::PR_SET_DUMPABLE, 1 as libc::c_ulong);
    }
    write_file(c"/proc/self/setgroups", b"deny", Step::SetGroups)?;
    write_file(c"/proc/self/uid_map", &prepared.uid_map, Step::UidMap)?;
    write_file(c"/proc/self/gid_map", &prepared.gid_map, Step::GidMap)
}

fn write_file(path: &std::ffi::CStr, bytes: &[u8], step: Step) -> Result<(), (Step, c_int)> {
    // SAFETY: path is null-terminated, the buffer is valid for its length.
    unsafe {
        let fd = check(
            libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC).into(),
            step,
        )?;
        check(
            libc::write(fd as c_int, bytes.as_ptr().cast(), bytes.len()) as c_long,
            step,
        )?;
        libc::close(fd as c_int);
    }
    Ok(())
}

fn keep_capabilities() -> Result<(), (Step, c_int)> {
    let wanted = KEPT_CAPABILITIES
        .iter()
        .fold(0_u32, |set, capability| set | 1 << capability);
    crate::capability::make_inheritable(wanted).map_err(|error| {
        (
            Step::Capabilities,
            error.raw_os_error().unwrap_or(libc::EPERM),
        )
    })?;
    for capability in KEPT_CAPABILITIES {
        // SAFETY: takes integers.
        let raised = unsafe {
            libc::prctl(
                libc::PR_CAP_AMBIENT,
                libc::PR_CAP_AMBIENT_RAISE as libc::c_ulong,
                capability as libc::c_ulong,
                0 as libc::c_ulong,
                0 as libc::c_ulong,
            )
        };
        check(raised.into(), Step::Capabilities)?;
    }
    Ok(())
}
