//! Starting a process under its profile: the supervisor's one way to do it.

use crate::compile::Launch;
use crate::exit;
use crate::request::{self, Purpose, Reply};
use crate::spec::{Base, VERSION, View, descriptor};
use ipc_proto::Role;
use mono_sys::memfd::sealed_memfd;
use mono_sys::process::{
    Child, ExitStatus, IdMap, Namespaces, Spawn, SpawnError, Step, own_namespaces, own_pidfd,
    pidfd_signal, spawn, wait,
};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;

/// The descriptors that a process is started with.
#[derive(Debug, Clone, Copy)]
pub struct Descriptors<'a> {
    /// `mono-launch`.
    pub launcher: BorrowedFd<'a>,
    /// The worker's executable; `None` for an MCP server, which is found by name inside.
    pub program: Option<BorrowedFd<'a>>,
    /// The worker's end of its control channel; `None` for an MCP server.
    pub control: Option<BorrowedFd<'a>>,
    /// Standard input; `/dev/null` when `None`.
    pub input: Option<BorrowedFd<'a>>,
    /// Standard output; `/dev/null` when `None`.
    pub output: Option<BorrowedFd<'a>>,
    /// Standard error; `/dev/null` when `None`. The launcher reports on it too.
    pub error: Option<BorrowedFd<'a>>,
    /// The launcher's end of [`crate::violation::channel`]. Who keeps the other end must end the
    /// processes that it tells of.
    pub violations: BorrowedFd<'a>,
    /// The control group (version 2) that its whole tree begins in; the supervisor's when `None`.
    pub cgroup: Option<BorrowedFd<'a>>,
}

/// A process could not be started.
#[derive(Debug, Error)]
pub enum StartError {
    /// The spec could not be put into a packet's size.
    #[error("the launch spec can't be encoded: {0}")]
    Spec(#[from] ipc_proto::codec::CodecError),
    /// The memory file or the pidfd could not be made.
    #[error("preparing a start: {0}")]
    Prepare(#[from] io::Error),
    /// The kernel refuses namespaces.
    #[error("{source}; {remedy}")]
    Namespaces {
        /// What the kernel said.
        source: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// The launcher has ended or made no sense; nothing was started.
    #[error("the launcher started nothing: {how}")]
    Launcher {
        /// How that was seen.
        how: String,
    },
    /// Something else.
    #[error(transparent)]
    Spawn(SpawnError),
}

impl StartError {
    fn namespaces(source: io::Error) -> Self {
        Self::Namespaces {
            source,
            remedy: REMEDY,
        }
    }
}

const REMEDY: &str = "this system doesn't let an ordinary user make namespaces: see \
    user.max_user_namespaces, kernel.unprivileged_userns_clone and \
    kernel.apparmor_restrict_unprivileged_userns (sysctl), or the seccomp profile of the container \
    around it; or run with --allow-degraded";

/// The answer to a request may take this long.
const ANSWERED_WITHIN: u16 = 20_000;
/// What a launcher that failed left behind may take this long to end.
const ENDED_WITHIN: Duration = Duration::from_secs(2);

/// Starts processes, each through a launcher. The launcher of the runs stays: what all of them see
/// is made once.
///
/// Processes die with the thread that started their launcher, so use it from one that lives as long
/// as the process.
#[derive(Debug, Default)]
pub struct Starter {
    kept: Option<Launcher>,
}

impl Starter {
    /// Starts a process. Returns when it exists; how it fares is in its exit status
    /// ([`crate::exit::Step`]) and on its standard error.
    ///
    /// # Errors
    /// [`StartError`]; there is no process then.
    pub fn start(
        &mut self,
        launch: &Launch,
        descriptors: &Descriptors<'_>,
    ) -> Result<Child, StartError> {
        if launch.spec.role != Role::Run {
            return start(launch, descriptors);
        }
        let kept = self.kept.take().filter(|kept| kept.serves(launch));
        // One that stays may have ended meanwhile, and nothing was started then.
        let (launcher, child) = match kept.map(|kept| kept.request(launch, descriptors)) {
            Some(Err(StartError::Launcher { .. })) | None => {
                Launcher::new(launch, descriptors.launcher, true)?.request(launch, descriptors)?
            }
            Some(other) => other?,
        };
        self.kept = Some(launcher);
        Ok(child)
    }

    /// Ends the launcher that stays. Processes that it has started go on.
    pub fn let_go(&mut self) {
        self.kept = None;
    }

    /// The process of the launcher that stays, for tests and measurements.
    #[must_use]
    pub fn staying(&self) -> Option<i32> {
        self.kept.as_ref().map(|kept| kept.process.pid)
    }
}

/// Starts a process through a launcher of its own.
///
/// # Errors
/// As [`Starter::start`].
pub fn start(launch: &Launch, descriptors: &Descriptors<'_>) -> Result<Child, StartError> {
    let launcher = Launcher::new(launch, descriptors.launcher, false)?;
    Ok(launcher.request(launch, descriptors)?.1)
}

/// A running launcher; dropping it ends it.
#[derive(Debug)]
struct Launcher {
    process: Child,
    requests: OwnedFd,
    // What it was started for.
    view: Option<View>,
    filter: Arc<Vec<u8>>,
    namespaces: Namespaces,
    id_map: Option<IdMap>,
}

impl Launcher {
    fn new(launch: &Launch, program: BorrowedFd<'_>, stays: bool) -> Result<Self, StartError> {
        let base = Base {
            version: VERSION,
            namespaces: launch.namespaces.bits(),
            stays,
            ids: launch.id_map.map(|ids| (ids.uid, ids.gid)),
            supervisors: own_namespaces()?,
            view: launch.view.clone(),
            filter: launch.filter.as_ref().clone(),
        };
        let base = sealed_memfd(c"launch", &ipc_proto::codec::encode(&base)?)?;
        let own = own_pidfd()?;
        let (requests, theirs) = crate::violation::channel()?;
        let name = CString::new(launch.spec.role.name()).map_err(io::Error::from)?;
        // Its own serve to prepare what its processes see; they get theirs.
        let mut namespaces = Namespaces::NONE;
        for namespace in [Namespaces::USER, Namespaces::MOUNT] {
            if launch.namespaces.contains(namespace) {
                namespaces = namespaces | namespace;
            }
        }
        let process = spawn(&Spawn {
            exe: program,
            argv: vec![c"mono-launch".to_owned(), name],
            env: Vec::new(),
            fds: vec![
                (theirs.as_fd(), descriptor::REQUESTS),
                (base.as_fd(), descriptor::BASE),
                (own.as_fd(), descriptor::SUPERVISOR),
            ],
            namespaces,
            id_map: launch.id_map,
            cgroup: None,
        })
        .map_err(|source| {
            let of_namespaces = matches!(
                source.step,
                Step::Clone | Step::SetGroups | Step::UidMap | Step::GidMap | Step::Capabilities
            );
            if of_namespaces && namespaces != Namespaces::NONE {
                StartError::namespaces(source.into())
            } else {
                StartError::Spawn(source)
            }
        })?;
        Ok(Self {
            process,
            requests,
            view: launch.view.clone(),
            filter: Arc::clone(&launch.filter),
            namespaces: launch.namespaces,
            id_map: launch.id_map,
        })
    }

    fn serves(&self, launch: &Launch) -> bool {
        self.namespaces == launch.namespaces
            && self.id_map == launch.id_map
            && self.view == launch.view
            && self.filter == launch.filter
    }

    /// Asks for a process, and gives itself back when there is one.
    fn request(
        self,
        launch: &Launch,
        descriptors: &Descriptors<'_>,
    ) -> Result<(Self, Child), StartError> {
        let (held, release) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(io::Error::from)?;
        let passed = [
            (Some(held.as_fd()), Purpose::Release),
            (descriptors.input, Purpose::Input),
            (descriptors.output, Purpose::Output),
            (descriptors.error, Purpose::Error),
            (descriptors.control, Purpose::Control),
            (descriptors.program, Purpose::Program),
            (Some(descriptors.violations), Purpose::Violations),
            (descriptors.cgroup, Purpose::Cgroup),
        ];
        let passed: Vec<_> = passed
            .into_iter()
            .filter_map(|(fd, purpose)| Some((purpose, fd?)))
            .collect();
        match self.ask(launch, &passed) {
            Ok(Some((Reply::Started { pid }, Some(pidfd)))) => {
                // A process that is gone already has told why.
                let _ = nix::unistd::write(&release, &[0]);
                Ok((self, Child { pid, pidfd }))
            }
            Ok(Some((Reply::Refused { errno }, _))) => {
                Err(StartError::namespaces(io::Error::from_raw_os_error(errno)))
            }
            Ok(_) => Err(self.failed(release, None)),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                Err(self.failed(release, None))
            }
            Err(error) => Err(self.failed(release, Some(error))),
        }
    }

    fn ask(
        &self,
        launch: &Launch,
        passed: &[(Purpose, BorrowedFd<'_>)],
    ) -> io::Result<Option<(Reply, Option<OwnedFd>)>> {
        request::send(&self.requests, &launch.spec, passed)?;
        let mut ready = [PollFd::new(self.requests.as_fd(), PollFlags::POLLIN)];
        loop {
            match poll(&mut ready, PollTimeout::from(ANSWERED_WITHIN)) {
                Err(Errno::EINTR) => {}
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                other => {
                    other?;
                    return request::answer(&self.requests);
                }
            }
        }
    }

    /// Ends a launcher that has answered wrongly or not at all. Who knows whether there is a process:
    /// one that was not released ends by itself when the last word to it is gone, and until its
    /// release it is in the launcher's group.
    fn failed(self, release: OwnedFd, error: Option<io::Error>) -> StartError {
        drop(release);
        let _ = pidfd_signal(&self.process.pidfd, libc::SIGKILL);
        let group = Pid::from_raw(-self.process.pid);
        let until = Instant::now() + ENDED_WITHIN;
        let mut end = None;
        while let Ok(status) = waitpid(group, Some(WaitPidFlag::WNOHANG))
            && Instant::now() < until
        {
            match status {
                WaitStatus::StillAlive => std::thread::sleep(Duration::from_millis(1)),
                WaitStatus::Exited(pid, code) if pid.as_raw() == self.process.pid => {
                    end = Some(ExitStatus::Exited(code));
                }
                _ => {}
            }
        }
        // It ended before it had a group.
        let end = end.or_else(|| wait(&self.process.pidfd).ok());
        let how = match (error, end) {
            (Some(error), _) => error.to_string(),
            (None, Some(ExitStatus::Exited(code))) => match exit::Step::from_code(code) {
                Some(step) => format!("{} failed; {}", step.doing(), step.remedy()),
                None => format!("it exited with {code}"),
            },
            (None, _) => "it was killed".to_owned(),
        };
        StartError::Launcher { how }
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        // Both fail where it has ended and was waited for.
        let _ = pidfd_signal(&self.process.pidfd, libc::SIGKILL);
        let _ = wait(&self.process.pidfd);
    }
}
