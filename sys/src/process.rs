//! Starting and ending processes by descriptor: `clone3` with a pidfd, `execveat`, `waitid`.

use std::ffi::{CString, c_char, c_int, c_long};
use std::io;
use std::ops::BitOr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use thiserror::Error;

/// A set of namespaces that a child gets for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Namespaces(u64);

impl Namespaces {
    /// No namespace of its own.
    pub const NONE: Self = Self(0);
    /// User ids and capabilities.
    pub const USER: Self = Self(libc::CLONE_NEWUSER as u64);
    /// Process ids; the child is process 1 of it.
    pub const PID: Self = Self(libc::CLONE_NEWPID as u64);
    /// Mounts.
    pub const MOUNT: Self = Self(libc::CLONE_NEWNS as u64);
    /// Network: empty, with a loopback interface that is down.
    pub const NET: Self = Self(libc::CLONE_NEWNET as u64);
    /// System V and POSIX IPC.
    pub const IPC: Self = Self(libc::CLONE_NEWIPC as u64);
    /// Host name.
    pub const UTS: Self = Self(libc::CLONE_NEWUTS as u64);

    /// True when every namespace of `other` is in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Namespaces {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The one user and group that exist in a new user namespace. They keep their number: inside as
/// outside, and never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdMap {
    /// The user, in both namespaces.
    pub uid: u32,
    /// The group, in both namespaces.
    pub gid: u32,
}

/// What a child is started with; nothing else is inherited.
#[derive(Debug)]
pub struct Spawn<'a> {
    /// The program, an ELF file opened for reading or with `O_PATH`.
    pub exe: BorrowedFd<'a>,
    /// Arguments, beginning with the program's own name.
    pub argv: Vec<CString>,
    /// The whole environment, each `NAME=value`.
    pub env: Vec<CString>,
    /// Descriptors and the numbers that they have in the child; at most [`MAX_TARGET`]. Every
    /// other descriptor is closed; a missing 0, 1 or 2 becomes `/dev/null`.
    pub fds: Vec<(BorrowedFd<'a>, RawFd)>,
    /// Namespaces of its own.
    pub namespaces: Namespaces,
    /// Needed exactly when `namespaces` has [`Namespaces::USER`].
    pub id_map: Option<IdMap>,
}

/// The highest number that a descriptor can have in a child.
pub const MAX_TARGET: RawFd = 31;

/// A started child. Dropping it neither ends nor reaps the process.
#[derive(Debug)]
pub struct Child {
    /// Its process id in the caller's namespace, for logs. Never signal by it.
    pub pid: i32,
    /// Names exactly this process, also after its id was reused.
    pub pidfd: OwnedFd,
}

/// What a child was doing when it failed before its program ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Step {
    /// Checking the arguments, in the parent.
    Arguments,
    /// `pipe2`, in the parent.
    ReportPipe,
    /// `clone3`, in the parent: also where a namespace is refused.
    Clone,
    /// Binding its life to the parent's.
    ParentDeath,
    /// Moving descriptors to their numbers.
    Descriptors,
    /// Opening `/dev/null` for a missing standard stream.
    Stdio,
    /// Closing everything else.
    Close,
    /// Writing `/proc/self/setgroups`.
    SetGroups,
    /// Writing `/proc/self/uid_map`.
    UidMap,
    /// Writing `/proc/self/gid_map`.
    GidMap,
    /// Keeping the capabilities of the new user namespace over `execveat`.
    Capabilities,
    /// `execveat`.
    Exec,
}

impl Step {
    const ALL: [Step; 12] = [
        Step::Arguments,
        Step::ReportPipe,
        Step::Clone,
        Step::ParentDeath,
        Step::Descriptors,
        Step::Stdio,
        Step::Close,
        Step::SetGroups,
        Step::UidMap,
        Step::GidMap,
        Step::Capabilities,
        Step::Exec,
    ];
}

/// A process could not be started.
#[derive(Debug, Error)]
#[error("starting a process failed at {step:?}: {source}")]
pub struct SpawnError {
    /// Where.
    pub step: Step,
    /// Why.
    pub source: io::Error,
}

impl From<SpawnError> for io::Error {
    fn from(error: SpawnError) -> Self {
        io::Error::new(error.source.kind(), error)
    }
}

fn failed(step: Step) -> impl FnOnce(io::Error) -> SpawnError {
    move |source| SpawnError { step, source }
}

fn invalid(reason: &'static str) -> SpawnError {
    SpawnError {
        step: Step::Arguments,
        source: io::Error::new(io::ErrorKind::InvalidInput, reason),
    }
}

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

/// Capabilities in the new user namespace that a launcher needs to finish the set-up: bounding
/// set and securebits, loopback, mounts. They rule over the child's own namespaces only.
const KEPT_CAPABILITIES: [u32; 3] = [8, 12, 21];

/// `libc` has it as a 32-bit number, in which it doesn't fit.
const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;

/// Everything the child needs, laid out before `clone3`: after it, only async-signal-safe system
/// calls are allowed, because another thread of the parent may have held the allocator's lock.
struct Prepared {
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    moves: Vec<(RawFd, RawFd)>,
    /// For each of the numbers up to the highest: whether it is in `moves`.
    used: Vec<bool>,
    exe: RawFd,
    report: RawFd,
    uid_map: Vec<u8>,
    gid_map: Vec<u8>,
    map_ids: bool,
}

/// Starts a program by descriptor in namespaces of its own.
///
/// The child has default signal handlers, an empty signal mask, its own copy of nothing but the
/// named descriptors, and dies with the calling **thread** (so call it from one that lives as
/// long as the process). Returns when the program runs or its start has failed.
///
/// In a new user namespace the child keeps what its launcher needs (`CAP_SYS_ADMIN`,
/// `CAP_NET_ADMIN`, `CAP_SETPCAP`) as ambient capabilities over the `exec`.
///
/// # Errors
/// [`SpawnError`] with the step; the child is reaped in that case.
pub fn spawn(request: &Spawn<'_>) -> Result<Child, SpawnError> {
    let mut argv: Vec<*const c_char> = request.argv.iter().map(|arg| arg.as_ptr()).collect();
    let mut env: Vec<*const c_char> = request.env.iter().map(|entry| entry.as_ptr()).collect();
    if argv.is_empty() {
        return Err(invalid("a program needs its own name as first argument"));
    }
    argv.push(ptr::null());
    env.push(ptr::null());
    let wants_user = request.namespaces.contains(Namespaces::USER);
    if wants_user != request.id_map.is_some() {
        return Err(invalid(
            "an id map belongs to a user namespace, and the other way round",
        ));
    }
    if request
        .id_map
        .is_some_and(|map| map.uid == 0 || map.gid == 0)
    {
        return Err(invalid(
            "user and group 0 are never mapped into a user namespace",
        ));
    }
    let mut used = vec![false; 3];
    let mut moves = Vec::with_capacity(request.fds.len());
    for (fd, target) in &request.fds {
        let Some(index) = usize::try_from(*target)
            .ok()
            .filter(|_| *target <= MAX_TARGET)
        else {
            return Err(invalid(
                "a descriptor's number in the child is out of range",
            ));
        };
        if used.len() <= index {
            used.resize(index + 1, false);
        }
        if std::mem::replace(&mut used[index], true) {
            return Err(invalid("two descriptors for one number in the child"));
        }
        moves.push((fd.as_raw_fd(), *target));
    }
    let map = |id: u32| format!("{id} {id} 1").into_bytes();
    let (reader, writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)
        .map_err(|errno| failed(Step::ReportPipe)(errno.into()))?;
    let mut prepared = Prepared {
        argv,
        env,
        moves,
        used,
        exe: request.exe.as_raw_fd(),
        report: writer.as_raw_fd(),
        uid_map: request.id_map.map(|ids| map(ids.uid)).unwrap_or_default(),
        gid_map: request.id_map.map(|ids| map(ids.gid)).unwrap_or_default(),
        map_ids: wants_user,
    };

    let child = clone_child(&mut prepared, request.namespaces).map_err(failed(Step::Clone))?;
    drop(writer);
    let mut report = [0_u8; 8];
    let got = read_full(reader.as_fd(), &mut report).map_err(failed(Step::ReportPipe))?;
    if got == 0 {
        // The pipe was closed by a successful exec (or the child was killed: its pidfd tells).
        return Ok(child);
    }
    // The child has said why and is on its way out; without this it would stay a zombie.
    let _ = wait(&child.pidfd);
    let [a, b, c, d, e, f, g, h] = report;
    let step = usize::try_from(i32::from_ne_bytes([a, b, c, d])).ok();
    Err(SpawnError {
        step: step
            .and_then(|step| Step::ALL.get(step).copied())
            .unwrap_or(Step::Clone),
        source: io::Error::from_raw_os_error(i32::from_ne_bytes([e, f, g, h])),
    })
}

fn read_full(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match nix::unistd::read(fd, &mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(filled)
}

fn clone_child(prepared: &mut Prepared, namespaces: Namespaces) -> io::Result<Child> {
    use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};

    // A handler of the parent that runs in the child would act on the parent's descriptors.
    let mut before = SigSet::empty();
    pthread_sigmask(
        SigmaskHow::SIG_SETMASK,
        Some(&SigSet::all()),
        Some(&mut before),
    )?;
    let mut pidfd: c_int = -1;
    // SAFETY: clone_args is plain integers, for which zero means "not used".
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = libc::CLONE_PIDFD as u64 | CLONE_CLEAR_SIGHAND | namespaces.0;
    args.pidfd = ptr::from_mut(&mut pidfd) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    // SAFETY: without CLONE_VM and with no stack this is a fork: the child runs on its own copy
    // of this stack. It calls nothing but `in_child`, which neither allocates nor returns.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            ptr::from_mut(&mut args),
            size_of::<libc::clone_args>(),
        )
    };
    if pid == 0 {
        in_child(prepared);
    }
    let error = io::Error::last_os_error();
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
    if pid < 0 {
        return Err(error);
    }
    // SAFETY: the kernel has stored a fresh descriptor that nobody else knows.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Child {
        pid: i32::try_from(pid).unwrap_or(-1),
        pidfd,
    })
}

/// Runs in the child, up to its program. Never returns, never allocates, never panics.
fn in_child(prepared: &mut Prepared) -> ! {
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
    if prepared.map_ids {
        map_ids(prepared)?;
        keep_capabilities()?;
    }
    // SAFETY: all pointers are to null-terminated arrays of C strings that the parent's request
    // owns; signal calls get valid or null pointers.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};

    fn shell(script: &str, fds: Vec<(BorrowedFd<'_>, RawFd)>) -> Result<Child, SpawnError> {
        let exe = File::open("/bin/sh").unwrap();
        spawn(&Spawn {
            exe: exe.as_fd(),
            argv: vec![c"sh".into(), c"-c".into(), CString::new(script).unwrap()],
            env: vec![c"ONLY=this".into()],
            fds,
            namespaces: Namespaces::NONE,
            id_map: None,
        })
    }

    fn output(script: &str) -> String {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let child = shell(script, vec![(writer.as_fd(), 1)]).unwrap();
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(wait(&child.pidfd).unwrap(), ExitStatus::Exited(0), "{text}");
        text
    }

    #[test]
    fn every_exit_status_and_signal_is_reported_exactly() {
        for status in [0, 1, 77, 255] {
            let child = shell(&format!("exit {status}"), vec![]).unwrap();
            assert_eq!(wait(&child.pidfd).unwrap(), ExitStatus::Exited(status));
        }
        let child = shell("kill -SEGV $$", vec![]).unwrap();
        assert_eq!(
            wait(&child.pidfd).unwrap(),
            ExitStatus::Signalled(libc::SIGSEGV)
        );
    }

    #[test]
    fn a_running_child_is_signalled_by_its_pidfd_and_reaped_once() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let child = shell("read line", vec![(reader.as_fd(), 0)]).unwrap();
        assert_eq!(try_wait(&child.pidfd).unwrap(), None);
        pidfd_signal(&child.pidfd, libc::SIGTERM).unwrap();
        assert_eq!(
            wait(&child.pidfd).unwrap(),
            ExitStatus::Signalled(libc::SIGTERM)
        );
        assert_eq!(
            wait(&child.pidfd).unwrap_err().raw_os_error(),
            Some(libc::ECHILD)
        );
        let again = pidfd_signal(&child.pidfd, libc::SIGTERM);
        assert_eq!(again.unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn only_the_named_descriptors_and_environment_arrive() {
        // Numbers chosen so that a target is the number of another source.
        let (first, mut first_in) = std::io::pipe().unwrap();
        let (second, mut second_in) = std::io::pipe().unwrap();
        let (mut result, writer) = std::io::pipe().unwrap();
        first_in.write_all(b"one\n").unwrap();
        second_in.write_all(b"two\n").unwrap();
        let (low, high) = (first.as_raw_fd(), second.as_raw_fd());
        assert!(low <= MAX_TARGET && high <= MAX_TARGET);
        let script = format!(
            "read a <&{high}; read b <&{low}; echo $a $b $ONLY; \
             cd /proc/self/fd; for fd in *; do [ -e $fd ] && echo $fd; done; env"
        );
        let child = shell(
            &script,
            vec![
                (first.as_fd(), high),
                (second.as_fd(), low),
                (writer.as_fd(), 1),
            ],
        )
        .unwrap();
        drop(writer);
        let mut text = String::new();
        result.read_to_string(&mut text).unwrap();
        assert_eq!(wait(&child.pidfd).unwrap(), ExitStatus::Exited(0));
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("one two this"));
        let mut expected = vec![0, 1, 2, low, high];
        expected.sort_unstable();
        let numbers: Vec<i32> = lines.by_ref().map_while(|line| line.parse().ok()).collect();
        assert_eq!(numbers, expected);
        assert!(text.contains("ONLY=this"));
        assert!(
            !text.contains("PATH=/") || !text.contains("HOME="),
            "{text}"
        );
    }

    #[test]
    fn signals_are_as_for_a_fresh_process() {
        let text = output(
            "while read name value; do case $name in SigBlk:|SigIgn:) echo $value;; esac; done \
             </proc/self/status",
        );
        assert_eq!(text, "0000000000000000\n0000000000000000\n");
    }

    #[test]
    fn a_start_that_fails_names_its_step_and_leaves_no_child() {
        let not_a_program = File::open("/dev/null").unwrap();
        let request = |namespaces, id_map| Spawn {
            exe: not_a_program.as_fd(),
            argv: vec![c"x".into()],
            env: vec![],
            fds: vec![],
            namespaces,
            id_map,
        };
        let error = spawn(&request(Namespaces::NONE, None)).unwrap_err();
        assert_eq!(error.step, Step::Exec);
        assert_eq!(error.source.raw_os_error(), Some(libc::EACCES));
        let error = spawn(&request(Namespaces::USER, None)).unwrap_err();
        assert_eq!(error.step, Step::Arguments);
        let root = Some(IdMap { uid: 0, gid: 5 });
        assert_eq!(
            spawn(&request(Namespaces::USER, root)).unwrap_err().step,
            Step::Arguments
        );
        let mut twice = request(Namespaces::NONE, None);
        twice.fds = vec![(not_a_program.as_fd(), 4), (not_a_program.as_fd(), 4)];
        assert_eq!(spawn(&twice).unwrap_err().step, Step::Arguments);
        twice.fds = vec![(not_a_program.as_fd(), MAX_TARGET + 1)];
        assert_eq!(spawn(&twice).unwrap_err().step, Step::Arguments);
    }
}
