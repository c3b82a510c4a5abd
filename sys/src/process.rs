//! Starting and ending processes by descriptor: `clone3` with a pidfd, `execveat`, `waitid`.

mod child;
mod copy;
mod fork;
mod namespaces;
mod parent;
mod wait;

pub use copy::{Alone, Side};
pub use namespaces::{
    KINDS, Namespaces, differing_namespaces, own_namespace, own_namespaces, own_namespaces_of,
    unshare,
};
pub use parent::ends_with_us;
pub use wait::{ExitStatus, own_pidfd, pidfd_signal, try_wait, wait};

use child::{Prepared, in_child};
use fork::fork;
use nix::fcntl::OFlag;
use std::ffi::{CString, c_char};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use thiserror::Error;

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
    /// A folder of the control group file system (version 2) that the child begins in; the
    /// caller's own group when `None`.
    pub cgroup: Option<BorrowedFd<'a>>,
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
    /// `pipe2`, in the parent, or waiting for the parent.
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

/// Starts a program by descriptor in namespaces of its own.
///
/// The child has default signal handlers, an empty signal mask, its own copy of nothing but the
/// named descriptors, and dies with the calling **thread** (so call it from one that lives as
/// long as the process). Returns when the program runs or its start has failed.
///
/// In a new user namespace the child keeps what its launcher needs (`CAP_SYS_ADMIN`,
/// `CAP_NET_ADMIN`, `CAP_SETPCAP`, `CAP_SYS_CHROOT`) as ambient capabilities over the `exec`.
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
    let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC)
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

    let child = clone_child(&mut prepared, request).map_err(failed(Step::Clone))?;
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

fn clone_child(prepared: &mut Prepared, request: &Spawn<'_>) -> io::Result<Child> {
    use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};

    // A handler of the parent that runs in the child would act on the parent's descriptors.
    let mut before = SigSet::empty();
    pthread_sigmask(
        SigmaskHow::SIG_SETMASK,
        Some(&SigSet::all()),
        Some(&mut before),
    )?;
    // SAFETY: the child calls nothing but `in_child`, which neither allocates nor returns.
    let forked = unsafe { fork(request.namespaces.bits(), libc::SIGCHLD, request.cgroup) };
    let child = forked.map(|child| child.unwrap_or_else(|| in_child(prepared)));
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
    child
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
            cgroup: None,
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
    fn namespaces_have_the_names_that_the_kernel_gives_them() {
        for (kind, name) in KINDS.into_iter().zip(own_namespaces().unwrap()) {
            let link = std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
            assert_eq!(link.to_str(), Some(&*name));
            assert_eq!(own_namespace(kind).unwrap(), name);
        }
    }

    #[test]
    fn namespaces_of_its_own_can_be_told_from_the_callers() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let child = shell("read line", vec![(reader.as_fd(), 0)]).unwrap();
        assert_eq!(differing_namespaces(child.pid).unwrap(), [""; 0]);
        pidfd_signal(&child.pidfd, libc::SIGKILL).unwrap();
        wait(&child.pidfd).unwrap();
        // Only root makes others without one of users.
        let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
        let id_map = (!uid.is_root()).then(|| IdMap {
            uid: uid.as_raw(),
            gid: gid.as_raw(),
        });
        let (user, expected) = match id_map {
            Some(_) => (Namespaces::USER, vec!["ipc", "user", "uts"]),
            None => (Namespaces::NONE, vec!["ipc", "uts"]),
        };
        let exe = File::open("/bin/sh").unwrap();
        let child = spawn(&Spawn {
            exe: exe.as_fd(),
            argv: vec![c"sh".into(), c"-c".into(), c"read line".into()],
            env: vec![],
            fds: vec![(reader.as_fd(), 0)],
            namespaces: user | Namespaces::IPC | Namespaces::UTS,
            id_map,
            cgroup: None,
        })
        .unwrap();
        assert_eq!(differing_namespaces(child.pid).unwrap(), expected);
        pidfd_signal(&child.pidfd, libc::SIGKILL).unwrap();
        wait(&child.pidfd).unwrap();
    }

    /// The folder of this process's control group of version 2; none on a system without.
    fn own_group() -> Option<std::path::PathBuf> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let place = mounts.lines().find(|line| line.contains(" cgroup2 "))?;
        Some(std::path::Path::new(place.split(' ').nth(1)?).join(own))
    }

    #[test]
    fn a_child_begins_in_its_control_group_or_not_at_all() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let exe = File::open("/bin/sh").unwrap();
        let waiting = |group: &File| {
            spawn(&Spawn {
                exe: exe.as_fd(),
                argv: vec![c"sh".into(), c"-c".into(), c"read line".into()],
                env: vec![],
                fds: vec![(reader.as_fd(), 0)],
                namespaces: Namespaces::NONE,
                id_map: None,
                cgroup: Some(group.as_fd()),
            })
        };
        let no_group = waiting(&File::open("/proc").unwrap()).unwrap_err();
        assert_eq!(no_group.step, Step::Clone);
        // Who may make a group may also start something in it.
        let name = format!("mono-sys-test-{}", std::process::id());
        let group = own_group().map(|own| own.join(&name));
        let Some(group) = group.filter(|group| std::fs::create_dir(group).is_ok()) else {
            assert!(!nix::unistd::geteuid().is_root(), "root can make no group");
            return;
        };
        let child = waiting(&File::open(&group).unwrap());
        let place = child.as_ref().map(|child| {
            let place = std::fs::read_to_string(format!("/proc/{}/cgroup", child.pid));
            pidfd_signal(&child.pidfd, libc::SIGKILL).unwrap();
            wait(&child.pidfd).unwrap();
            place.unwrap()
        });
        // Who was reaped may leave the group a moment later.
        let gone = (0..3_000).any(|_| {
            let removed = std::fs::remove_dir(&group);
            if removed.is_err() {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            removed.is_ok()
        });
        assert!(gone, "{group:?} can't be removed");
        let place = place.unwrap();
        assert!(place.contains(&format!("/{name}\n")), "{place}");
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
        // A plain shell's own redirection takes numbers of one digit only.
        let script = format!(
            "read a </proc/self/fd/{high}; read b </proc/self/fd/{low}; echo $a $b $ONLY; \
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
        let mut numbers: Vec<i32> = lines.by_ref().map_while(|line| line.parse().ok()).collect();
        // The shell lists them by their digits.
        numbers.sort_unstable();
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
            cgroup: None,
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
