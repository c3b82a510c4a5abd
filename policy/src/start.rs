//! Starting a process under its profile: the supervisor's one way to do it.

use crate::compile::Launch;
use crate::spec::descriptor;
use mono_sys::memfd::sealed_memfd;
use mono_sys::process::{Child, Namespaces, Spawn, SpawnError, Step, own_pidfd, spawn};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
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
        source: SpawnError,
        /// What to do.
        remedy: &'static str,
    },
    /// Something else.
    #[error(transparent)]
    Spawn(SpawnError),
}

const REMEDY: &str = "this system doesn't let an ordinary user make namespaces: see \
    user.max_user_namespaces, kernel.unprivileged_userns_clone and \
    kernel.apparmor_restrict_unprivileged_userns (sysctl), or the seccomp profile of the container \
    around it; or run with --allow-degraded";

/// Starts the launcher, which becomes the program. Returns when the launcher runs; how it fares is
/// in its exit status ([`crate::exit::Step`]) and on its standard error.
///
/// # Errors
/// [`StartError`].
pub fn start(launch: &Launch, descriptors: &Descriptors<'_>) -> Result<Child, StartError> {
    let spec = sealed_memfd(c"launch", &ipc_proto::codec::encode(&launch.spec)?)?;
    let own = own_pidfd()?;
    let numbered = [
        (descriptors.input, 0),
        (descriptors.output, 1),
        (descriptors.error, 2),
        (descriptors.control, descriptor::CONTROL),
        (Some(spec.as_fd()), descriptor::SPEC),
        (descriptors.program, descriptor::PROGRAM),
        (Some(own.as_fd()), descriptor::SUPERVISOR),
        (Some(descriptors.violations), descriptor::VIOLATIONS),
    ];
    let fds = numbered
        .into_iter()
        .filter_map(|(fd, number)| Some((fd?, number)))
        .collect();
    let name = CString::new(launch.spec.role.name()).map_err(io::Error::from)?;
    spawn(&Spawn {
        exe: descriptors.launcher,
        argv: vec![c"mono-launch".to_owned(), name],
        env: Vec::new(),
        fds,
        namespaces: launch.namespaces,
        id_map: launch.id_map,
        cgroup: descriptors.cgroup,
    })
    .map_err(|source| {
        let of_namespaces = matches!(
            source.step,
            Step::Clone | Step::SetGroups | Step::UidMap | Step::GidMap | Step::Capabilities
        );
        if of_namespaces && launch.namespaces != Namespaces::NONE {
            StartError::Namespaces {
                source,
                remedy: REMEDY,
            }
        } else {
            StartError::Spawn(source)
        }
    })
}
