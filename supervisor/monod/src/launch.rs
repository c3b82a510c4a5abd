//! Starting confined processes: what the policy says, made concrete and handed to `mono-launch`.

mod scratch;

pub(crate) use scratch::remove_scratch;

use crate::compose::{Places, channel_secrets, has_http_servers};
use crate::input::ProcessId;
use crate::memory::{Bound, Enforcement};
use crate::ownership::{Ownership, slot};
use crate::programs::Programs;
use crate::request::Given;
use ipc_proto::Role;
use ipc_proto::edges::control::SandboxReport;
use ipc_proto::request_context::{ATTACHMENTS, OUTBOUND};
use mono_config::{Config, McpServer, McpTransport, Secret, SecretSource, ServerNetwork};
use mono_sys::process::Child;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::{Gid, Uid, chown, fchown, pipe2};
use policy::{Access, Context, Declared, Descriptors, Server, Starter, Unmet};
use scratch::{Folders, remove};
use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Why a process can't be started, or must not be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    /// Something on the way to the start.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why not.
        source: io::Error,
    },
    /// The policy can't be made concrete.
    #[error(transparent)]
    Policy(#[from] policy::CompileError),
    /// The process failed before `mono-launch` ran.
    #[error("the process can't be started: {0}")]
    Start(#[from] policy::StartError),
    /// The kernel offers less than the policy's floor; all of it at once.
    #[error("{}", list(.0))]
    Unmet(Vec<policy::Unmet>),
    /// Started as root, on a workspace that no other user could use.
    #[error(
        "monod runs as root, so agents run as other users, and {} is not shared with them: give it \
         a group of its own (chgrp GROUP, chmod g+rwxs), or start monod as an ordinary user",
        .0.display()
    )]
    Workspace(PathBuf),
    /// The role has no program.
    #[error("the role {0} has no program in this build")]
    NoProgram(Role),
}

/// Starts a process within its limit of memory.
fn start_within(
    starter: &mut Starter,
    memory: &Bound,
    launch: &policy::Launch,
    descriptors: Descriptors<'_>,
) -> Result<Child, LaunchError> {
    let started = memory
        .open()
        .map_err(io_error("the control group of the new process"))
        .and_then(|group| {
            let cgroup = group.as_ref().map(AsFd::as_fd);
            let descriptors = Descriptors {
                cgroup,
                ..descriptors
            };
            Ok(starter.start(launch, &descriptors)?)
        });
    started.inspect_err(|_| memory.remove())
}

fn list(unmet: &[policy::Unmet]) -> String {
    unmet
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> LaunchError {
    let what = what.into();
    move |source| LaunchError::Io { what, source }
}

impl From<io::Error> for LaunchError {
    fn from(source: io::Error) -> Self {
        io_error("a descriptor of the new process")(source)
    }
}

/// All that a worker is started with, but for what the kernel has to give it.
pub(crate) struct Prepared {
    pub(crate) id: ProcessId,
    role: Role,
    pub(crate) folders: Option<Folders>,
    launch: policy::Launch,
}

impl Prepared {
    /// True while its folders are there.
    pub(crate) fn is_whole(&self) -> bool {
        let folders = self.folders.as_ref();
        folders.is_none_or(|made| made.shared.is_at(&made.scratch))
    }

    /// Removes what was made for it, where it is not to be started.
    pub(crate) fn discard(self) {
        if let Some(made) = self.folders {
            remove(&made.scratch, self.id, Some(made.shared));
        }
    }
}

/// A started worker.
pub(crate) struct Started {
    pub(crate) child: Child,
    pub(crate) memory: Option<Bound>,
    pub(crate) control: OwnedFd,
    pub(crate) stderr: OwnedFd,
    /// The launcher sends the listener over it.
    pub(crate) violations: OwnedFd,
}

/// A started server: our ends of stdin, stdout and stderr.
pub(crate) struct ServerStarted {
    pub(crate) child: Child,
    pub(crate) memory: Bound,
    pub(crate) pipes: [OwnedFd; 3],
    /// As for a worker.
    pub(crate) violations: OwnedFd,
}

/// Starts processes.
pub(crate) struct Launcher {
    programs: Programs,
    starter: Starter,
    places: Places,
    ownership: Ownership,
    hidden: Vec<PathBuf>,
    network: bool,
    degraded: bool,
    socket: PathBuf,
    memory: Enforcement,
    /// Bytes that a run may use.
    run_memory_max: u64,
    /// Filters that a worker which serves has at least: ours, which it inherits, and its two.
    filters: u32,
}

impl Launcher {
    /// Checks what the kernel offers.
    pub(crate) fn new(
        config: &Config,
        places: &Places,
        programs: Programs,
        socket: &Path,
        allow_degraded: bool,
    ) -> Result<Self, LaunchError> {
        let privileged = nix::unistd::geteuid().is_root();
        let unmet = policy::unmet(!privileged);
        // Namespaces can be done without on the operator's word; Landlock can't.
        let namespaces = |u: &Unmet| matches!(u, Unmet::Setting { .. });
        let degraded = allow_degraded && unmet.iter().any(namespaces);
        if unmet.iter().any(|u| !allow_degraded || !namespaces(u)) {
            return Err(LaunchError::Unmet(unmet));
        }
        let meta = std::fs::metadata(&places.workspace).map_err(io_error(format!(
            "the workspace {}",
            places.workspace.display()
        )))?;
        let shared = meta.gid() != 0 && meta.mode() & 0o070 == 0o070;
        if privileged && !shared {
            return Err(LaunchError::Workspace(places.workspace.clone()));
        }
        Ok(Self {
            programs,
            starter: Starter::default(),
            places: places.clone(),
            ownership: Ownership::new(privileged, meta.gid()),
            hidden: hidden(config, socket),
            network: has_http_servers(config),
            degraded,
            socket: socket.to_owned(),
            memory: Enforcement::Watched("not looked at yet".into()),
            run_memory_max: config.run_memory_max(),
            filters: 2 + inherited_filters().map_err(io_error("/proc/self/status"))?,
        })
    }

    /// Takes what a new configuration changes for processes that start from now on.
    pub(crate) fn reconfigure(&mut self, config: &Config) {
        self.hidden = hidden(config, &self.socket);
        self.network = has_http_servers(config);
        self.run_memory_max = config.run_memory_max();
        // What it has made of the machine may be old.
        self.starter.let_go();
    }

    /// Ends what stays between starts. Started processes go on.
    pub(crate) fn let_go(&mut self) {
        self.starter.let_go();
    }

    /// Finds out how memory can be limited here. Not before it is sure that the daemon starts: this
    /// may move it into another control group.
    pub(crate) fn enforce_memory(&mut self) {
        self.memory = Enforcement::find();
    }

    /// How memory is limited here.
    pub(crate) fn memory(&self) -> &Enforcement {
        &self.memory
    }

    fn bound(&self, role: Role, id: ProcessId, limit: u64) -> Result<Bound, LaunchError> {
        let bound = self.memory.bound(role, id, limit);
        bound.map_err(io_error(
            "a control group for the memory of the new process",
        ))
    }

    pub(crate) fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    /// The Landlock ABI that a started process has at least: the launcher asks for it as a hard
    /// requirement.
    pub(crate) fn floor(&self) -> u32 {
        policy::LANDLOCK_FLOOR
    }

    /// What is missing, for status.
    pub(crate) fn degraded(&self) -> Vec<String> {
        if self.degraded {
            vec!["no namespaces: processes see each other, and files are kept apart by Landlock alone".into()]
        } else {
            vec![]
        }
    }

    /// The log level, and where the things are that a worker proves it can't reach.
    fn environment(&self) -> Vec<(String, String)> {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let mut all = vec![("MONO_PROBE_SOCKET".to_owned(), path(&self.socket))];
        if let Some(state) = self.places.store.parent() {
            all.push(("MONO_PROBE_STATE".to_owned(), path(state)));
        }
        all.extend(std::env::var("MONO_LOG").map(|level| ("MONO_LOG".to_owned(), level)));
        all
    }

    /// Makes what a worker of this role is started with.
    pub(crate) fn prepare(&self, role: Role, id: ProcessId) -> Result<Prepared, LaunchError> {
        let folders = match role {
            Role::Run => {
                let scratch = self.make_scratch(id)?;
                let shared = self.make_run_folders(&scratch, id);
                let shared = shared.inspect_err(|_| remove(&scratch, id, None))?;
                Some(Folders { scratch, shared })
            }
            _ => None,
        };
        let scratch = folders.as_ref().map(|made| made.scratch.clone());
        match policy::compile(role, &self.context(role, id, scratch)) {
            Ok(launch) => Ok(Prepared {
                id,
                role,
                folders,
                launch,
            }),
            Err(e) => {
                if let Some(made) = folders {
                    remove(&made.scratch, id, Some(made.shared));
                }
                Err(e.into())
            }
        }
    }

    /// The facts of one worker.
    fn context(&self, role: Role, id: ProcessId, scratch: Option<PathBuf>) -> Context {
        let state = match role {
            Role::Store => Some(self.places.store.clone()),
            Role::Artifact => Some(self.places.artifacts.clone()),
            Role::AppBridge => Some(self.places.apps.clone()),
            Role::Continuation => Some(self.places.continuations.clone()),
            _ => None,
        };
        Context {
            workspace: (role == Role::Run).then(|| self.places.workspace.clone()),
            scratch,
            state,
            // An owner sees its own directory only; hiding is for who sees the workspace.
            hidden: if role == Role::Run {
                self.hidden.clone()
            } else {
                vec![]
            },
            network: self.network,
            identity: self.ownership.identity(role, slot(id)),
            degraded: self.degraded,
            environment: self.environment(),
            data_max: (role == Role::Run)
                .then(|| self.memory.data_max(self.run_memory_max))
                .flatten(),
            ..Context::default()
        }
    }

    /// Starts a worker.
    pub(crate) fn worker(&mut self, prepared: &Prepared) -> Result<Started, LaunchError> {
        let Prepared {
            id, role, launch, ..
        } = prepared;
        let (id, role) = (*id, *role);
        let program = self
            .programs
            .worker(role)
            .ok_or(LaunchError::NoProgram(role))?;
        let (control, theirs) = ipc_proto::link::pair()?;
        let (stderr, their_stderr) = pipe()?;
        nonblocking(&stderr)?;
        let (violations, their_violations) = policy::violation::channel()?;
        let descriptors = Descriptors {
            launcher: self.programs.launch.as_fd(),
            program: Some(program.as_fd()),
            control: Some(theirs.as_fd()),
            input: None,
            output: None,
            error: Some(their_stderr.as_fd()),
            violations: their_violations.as_fd(),
            cgroup: None,
        };
        let (child, memory) = match role {
            Role::Run => {
                let memory = self.bound(role, id, self.run_memory_max)?;
                let child = start_within(&mut self.starter, &memory, launch, descriptors)?;
                (child, Some(memory))
            }
            _ => (self.starter.start(launch, &descriptors)?, None),
        };
        Ok(Started {
            child,
            memory,
            control,
            stderr,
            violations,
        })
    }

    /// Starts a stdio MCP server under its declared profile.
    pub(crate) fn server(
        &mut self,
        server: &McpServer,
        given: Given,
        id: ProcessId,
        scratch: &Path,
    ) -> Result<ServerStarted, LaunchError> {
        let McpTransport::Stdio {
            command,
            args,
            env,
            cwd,
        } = &server.transport
        else {
            return Err(LaunchError::NoProgram(Role::McpServer));
        };
        let sandbox = &server.sandbox;
        let declared = |paths: &[PathBuf], access: Access| {
            paths
                .iter()
                .map(move |path| Declared {
                    path: path.clone(),
                    access,
                })
                .collect::<Vec<_>>()
        };
        let mut paths = declared(&sandbox.readable_roots, Access::ReadExec);
        paths.extend(declared(&sandbox.writable_roots, Access::WriteExec));
        let context = Context {
            workspace: Some(self.places.workspace.clone()),
            scratch: Some(scratch.to_owned()),
            request: given.folders,
            declared: paths,
            hidden: self.hidden.clone(),
            network: sandbox.network == ServerNetwork::All,
            identity: self.ownership.identity(Role::McpServer, slot(id)),
            degraded: self.degraded,
            environment: server_environment(env, given.variables),
            server: Some(Server {
                command: command.into(),
                arguments: args.clone(),
                directory: cwd.clone(),
            }),
            data_max: self.memory.data_max(sandbox.memory_max_bytes),
            ..Context::default()
        };
        if let (Some(_), false) = (&context.request, self.degraded) {
            // What the run's are mounted on; it lies in a folder that is the server's alone.
            for name in [OUTBOUND, ATTACHMENTS] {
                let place = scratch.join(name);
                let made = DirBuilder::new().mode(0o700).create(&place);
                made.map_err(io_error(place.display().to_string()))?;
            }
        }
        let launch = policy::compile(Role::McpServer, &context)?;
        if let Some(identity) = &context.identity {
            chown(scratch, Some(Uid::from_raw(identity.uid)), None)
                .map_err(|e| io_error("the server's scratch directory")(e.into()))?;
        }
        let (their_stdin, stdin) = pipe()?;
        let (stdout, their_stdout) = pipe()?;
        let (stderr, their_stderr) = pipe()?;
        if let Some(identity) = &context.identity {
            // Programs open their own ends anew, by `/proc/self/fd`; those of another user refuse that.
            for own in [&their_stdin, &their_stdout, &their_stderr] {
                let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
                fchown(own, Some(uid), Some(gid))
                    .map_err(|e| io_error("the server's pipes")(e.into()))?;
            }
        }
        let (violations, their_violations) = policy::violation::channel()?;
        let descriptors = Descriptors {
            launcher: self.programs.launch.as_fd(),
            program: None,
            control: None,
            input: Some(their_stdin.as_fd()),
            output: Some(their_stdout.as_fd()),
            error: Some(their_stderr.as_fd()),
            violations: their_violations.as_fd(),
            cgroup: None,
        };
        let memory = self.bound(Role::McpServer, id, sandbox.memory_max_bytes)?;
        let child = start_within(&mut self.starter, &memory, &launch, descriptors)?;
        Ok(ServerStarted {
            child,
            memory,
            pipes: [stdin, stdout, stderr],
            violations,
        })
    }

    /// Compares what the kernel enforces on a worker, and what it says of its probes, with the
    /// policy.
    ///
    /// # Errors
    /// The weakness, for people; the worker must be ended.
    pub(crate) fn accept(
        &self,
        role: Role,
        pid: i32,
        report: &SandboxReport,
    ) -> Result<(), String> {
        let kernel =
            policy::inforce::of(pid).map_err(|e| format!("/proc/{pid} can't be read: {e}"))?;
        if kernel.seccomp != 2 {
            return Err(format!("its seccomp mode is {}, not 2", kernel.seccomp));
        }
        if kernel.filters < self.filters {
            return Err(format!(
                "{} filters are in force, not {}: its second stage is missing",
                kernel.filters, self.filters
            ));
        }
        if !kernel.no_new_privs {
            return Err("no_new_privs is off".into());
        }
        if kernel.uid == 0 || kernel.capabilities != 0 {
            return Err(format!(
                "user {} with capabilities {:#x}",
                kernel.uid, kernel.capabilities
            ));
        }
        // Only a program that could open a file which no profile grants reports 0.
        if report.landlock_abi < policy::LANDLOCK_FLOOR {
            return Err(format!("its Landlock ABI is {}", report.landlock_abi));
        }
        match report.probes.iter().find(|probe| !probe.refused) {
            Some(probe) => Err(format!("{} was not refused: {}", probe.name, probe.detail)),
            None if report.probes.is_empty() => Err(format!("{role} reported no probe")),
            None => Ok(()),
        }
    }
}

/// A server's variables: those that are configured, without the names that are the host's, and then
/// what the host gives it.
fn server_environment(
    configured: &BTreeMap<String, Secret>,
    given: Vec<(String, String)>,
) -> Vec<(String, String)> {
    let reserved = |name: &str| {
        let upper = name.to_ascii_uppercase();
        RESERVED.iter().any(|prefix| upper.starts_with(prefix))
    };
    let configured = configured.iter().filter(|(name, _)| !reserved(name));
    let configured = configured.map(|(name, value)| (name.clone(), value.expose().to_owned()));
    configured.chain(given).collect()
}

/// Beginnings of variables that the host alone sets for a server (facts 4.6).
const RESERVED: [&str; 5] = [
    "MONO_AGENT_CONTINUATION_CLAIM_",
    "MONO_AGENT_MCP_",
    "MONO_AGENT_INTERACTION_PROGRESS_",
    "MONO_AGENT_INTERACTION_BRIDGE_",
    "MONO_AGENT_ADAPTER_TOOLS_",
];

/// Filters that the daemon itself runs under, e.g. of its unit or its container.
fn inherited_filters() -> io::Result<u32> {
    Ok(policy::inforce::OwnStatus::open()?.read()?.filters)
}

/// What no run and no server sees although it may lie in the workspace.
fn hidden(config: &Config, socket: &Path) -> Vec<PathBuf> {
    let mut all = vec![
        config.runtime.state_dir.clone(),
        config.artifacts.dir.clone(),
        config.continuations.state_dir.clone(),
        config.file.clone(),
    ];
    // It starts programs of the operator's choice, with the keys that they need.
    all.extend(config.tools.mcp_config_path.clone());
    all.extend(config.env_file.clone());
    let keys = config
        .providers
        .by_id
        .values()
        .filter_map(|p| p.api_key.as_ref());
    for source in keys.chain(channel_secrets(config)) {
        if let SecretSource::File { path } = source {
            all.push(path.clone());
        }
    }
    let mut all: Vec<_> = all
        .iter()
        .filter_map(|path| path.canonicalize().ok())
        .collect();
    // Sockets are bound later than they are looked for, their folder is there already. Started by an
    // ordinary user, agents are that same user to them.
    if let Ok(path) = std::path::absolute(socket)
        && let (Some(folder), Some(name)) = (path.parent(), path.file_name())
        && let Ok(folder) = folder.canonicalize()
    {
        all.push(folder.join(name));
        all.push(folder.join(crate::boot::GATEWAY));
    }
    all
}

fn pipe() -> Result<(OwnedFd, OwnedFd), LaunchError> {
    pipe2(OFlag::O_CLOEXEC).map_err(|e| io::Error::from(e).into())
}

fn nonblocking(fd: &OwnedFd) -> Result<(), LaunchError> {
    fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(io::Error::from)?;
    Ok(())
}
