//! Putting the hostile program into its place and taking down what it tells.

use crate::attack::actions;
use crate::attack::facts::{Facts, Order};
use crate::attack::hostile::DIGITS;
use crate::attack::outcome::{Outcome, RAN};
use crate::attack::scene::{Scene, program};
use crate::attack::seat::Seat;
use anyhow::{Context as _, Result, bail};
use ipc_proto::Role;
use mono_sys::process::{Child, ExitStatus, Namespaces, Spawn, pidfd_signal, spawn, wait};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc::SIGKILL;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use policy::violation::{self, Violation};
use policy::{Access, Declared, Descriptors, Server};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{IoSlice, PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

/// Outcomes by the names of their actions.
pub type Outcomes = BTreeMap<&'static str, Outcome>;

/// Longest life of one hostile process; all its attempts together take well under a second where nothing
/// else happens.
const PATIENCE: Duration = Duration::from_secs(120);

/// The programs that are needed.
#[derive(Debug, Clone)]
pub struct Programs {
    /// Where they are.
    pub folder: PathBuf,
}

impl Programs {
    fn launcher(&self) -> PathBuf {
        self.folder.join("mono-launch")
    }

    /// The hostile program.
    #[must_use]
    pub fn worker(&self) -> PathBuf {
        self.folder.join("attack-worker")
    }
}

/// The ends of a started process that are kept here.
struct Started {
    child: Child,
    /// Ends, with the calls that were ended, when no process is left; none without a sandbox.
    watching: Option<JoinHandle<Vec<Violation>>>,
    input: PipeWriter,
    output: PipeReader,
    error: PipeReader,
}

/// Tries everything inside the sandbox of a role.
///
/// # Errors
/// When the program can't be put there; a refusal of an action is an outcome.
pub fn inside(seat: Seat, programs: &Programs) -> Result<Outcomes> {
    let scene = Scene::new(seat, &programs.worker())?;
    let confine = (seat.role != Role::McpServer).then_some(seat.role);
    let names: Vec<_> = actions::all().map(|(_, action)| action.name).collect();
    let start = |order: &Order| start_inside(seat, &scene, programs, order);
    try_all(&scene.facts, confine, &names, start)
        .with_context(|| format!("inside the sandbox of {seat}"))
}

/// Tries everything without a sandbox, as the user that this process runs as, each in a process of
/// its own: what succeeds changes the process.
///
/// # Errors
/// When the program can't be started.
pub fn outside(programs: &Programs) -> Result<Outcomes> {
    // The supervisor has no sandbox of its own.
    let seat = Seat {
        role: Role::Monod,
        network: true,
    };
    let mut outcomes = Outcomes::new();
    for (_, action) in actions::all() {
        let mut scene = Scene::new(seat, &programs.worker())?;
        // All of the machine would take too long.
        scene.facts.search_from = scene.facts.root.clone();
        let start = |order: &Order| start_outside(&scene, programs, order);
        outcomes.extend(
            try_all(&scene.facts, None, &[action.name], start).context("without a sandbox")?,
        );
    }
    Ok(outcomes)
}

/// Tries these actions, as often in a new process as one is ended.
fn try_all(
    facts: &Facts,
    confine: Option<Role>,
    names: &[&'static str],
    start: impl Fn(&Order) -> Result<Started>,
) -> Result<Outcomes> {
    let mut outcomes = Outcomes::new();
    let mut rest = names;
    while !rest.is_empty() {
        let order = Order {
            facts: facts.clone(),
            confine,
            handed: Vec::new(),
            actions: rest.iter().map(|name| (*name).to_owned()).collect(),
        };
        let told = listen(start(&order)?)?;
        for (name, outcome) in rest.iter().zip(&told.outcomes) {
            outcomes.insert(*name, outcome.clone());
        }
        let done = told.outcomes.len();
        if done < rest.len() {
            let Some(last) = &told.trying else {
                bail!("it ended with {:?}: {}", told.status, told.error.trim_end());
            };
            if rest[done] != *last {
                bail!("it tried {last} in place of {}", rest[done]);
            }
            outcomes.insert(rest[done], told.ended());
        }
        rest = &rest[(done + 1).min(rest.len())..];
        if told.survivors {
            continue;
        }
        if let Some(outcome) = outcomes.get_mut("leave-an-orphan")
            && *outcome == Outcome::Done
        {
            *outcome = Outcome::Ended;
        }
    }
    Ok(outcomes)
}

/// What one process told.
struct Told {
    outcomes: Vec<Outcome>,
    /// What it was at when it ended.
    trying: Option<String>,
    status: ExitStatus,
    error: String,
    /// A forbidden call was why.
    forbidden: bool,
    /// Something that it started lived longer.
    survivors: bool,
}

impl Told {
    fn ended(&self) -> Outcome {
        match self.status {
            ExitStatus::Signalled(SIGKILL) if self.forbidden => Outcome::Killed,
            ExitStatus::Exited(RAN) => Outcome::Done,
            other => Outcome::Died(other.to_string().replace(' ', "_")),
        }
    }
}

fn listen(mut started: Started) -> Result<Told> {
    let pidfd = &started.child.pidfd;
    let timeout = PollTimeout::try_from(PATIENCE).unwrap_or(PollTimeout::MAX);
    let mut ended = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    if poll(&mut ended, timeout)? == 0 {
        pidfd_signal(pidfd, SIGKILL)?;
    }
    let status = wait(pidfd)?;
    // All that it said is in the pipe, which is larger. Whoever it started may still hold its end.
    fcntl(&started.output, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    fcntl(&started.error, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    let mut output = String::new();
    let survivors = match started.output.read_to_string(&mut output) {
        Ok(_) => false,
        Err(e) if e.raw_os_error() == Some(Errno::EAGAIN as i32) => true,
        Err(e) => return Err(e.into()),
    };
    let mut error = String::new();
    let _ = started.error.read_to_string(&mut error);
    // They live until then.
    drop(started.input);
    // With the process its namespace has ended, and with that everybody who had the filter.
    let watched = started.watching.map(JoinHandle::join);
    let violations = watched.and_then(Result::ok).unwrap_or_default();
    let pid = started.child.pid;
    let mut told = Told {
        outcomes: Vec::new(),
        trying: None,
        status,
        error,
        forbidden: violations.iter().any(|found| found.pid == pid),
        survivors,
    };
    for line in output.lines() {
        if let Some(name) = line.strip_prefix('>') {
            told.trying = Some(name.to_owned());
        } else if let Some((_, outcome)) = line.strip_prefix('=').and_then(|l| l.split_once(' ')) {
            told.outcomes.push(
                outcome
                    .parse()
                    .unwrap_or_else(|_| Outcome::Odd(outcome.to_owned())),
            );
            told.trying = None;
        }
    }
    Ok(told)
}

fn send_order(mut input: &PipeWriter, order: &Order) -> Result<()> {
    let text = serde_json::to_string(order)?;
    // The pipe holds it: nobody needs to read yet.
    anyhow::ensure!(text.len() < 60_000, "the order is too long for a pipe");
    Ok(input.write_all(format!("{:0DIGITS$}{text}", text.len()).as_bytes())?)
}

fn start_inside(seat: Seat, scene: &Scene, programs: &Programs, order: &Order) -> Result<Started> {
    let mut context = scene.context(seat);
    let server = seat.role == Role::McpServer;
    if server {
        context.server = Some(Server {
            command: programs.worker(),
            arguments: vec!["obey".into()],
            directory: None,
        });
        context.declared = vec![Declared {
            path: programs.worker(),
            access: Access::ReadExec,
        }];
    }
    let launch = policy::compile(seat.role, &context)?;
    let launcher = program(&programs.launcher())?;
    let worker = program(&programs.worker())?;
    let (control, theirs) = ipc_proto::link::pair()?;
    // A worker waits for its descriptors; the socket itself need not.
    fcntl(&theirs, FcntlArg::F_SETFL(OFlag::empty()))?;
    let handed = scene.handed(seat)?;
    let mut order = order.clone();
    order.handed = handed.iter().map(|(name, _)| name.clone()).collect();
    hand_over(&control, &handed)?;
    let pipes = Pipes::new()?;
    send_order(&pipes.input.1, &order)?;
    let (violations, their_violations) = violation::channel()?;
    let child = policy::start(
        &launch,
        &Descriptors {
            launcher: launcher.as_fd(),
            program: (!server).then(|| worker.as_fd()),
            control: (!server).then(|| theirs.as_fd()),
            input: Some(pipes.input.0.as_fd()),
            output: Some(pipes.output.1.as_fd()),
            error: Some(pipes.error.1.as_fd()),
            violations: their_violations.as_fd(),
            cgroup: None,
        },
    )?;
    drop(their_violations);
    let watching = std::thread::spawn(move || {
        let mut found = Vec::new();
        // Without a listener the launcher has failed, and its status says why.
        let _ = violation::watch(violations, |violation| found.push(*violation));
        found
    });
    Ok(pipes.started(child, Some(watching)))
}

fn start_outside(scene: &Scene, programs: &Programs, order: &Order) -> Result<Started> {
    let worker = program(&programs.worker())?;
    let (control, theirs) = ipc_proto::link::pair()?;
    fcntl(&theirs, FcntlArg::F_SETFL(OFlag::empty()))?;
    // One of each kind that workers are handed.
    let handed = [Role::Artifact, Role::Egress].map(|role| {
        let network = false;
        scene.handed(Seat { role, network })
    });
    let handed: Vec<_> = handed
        .into_iter()
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .collect();
    let mut order = order.clone();
    order.handed = handed.iter().map(|(name, _)| name.clone()).collect();
    hand_over(&control, &handed)?;
    let pipes = Pipes::new()?;
    send_order(&pipes.input.1, &order)?;
    let child = spawn(&Spawn {
        exe: worker.as_fd(),
        argv: vec![c"attack-worker".to_owned(), c"obey".to_owned()],
        env: Vec::new(),
        fds: vec![
            (pipes.input.0.as_fd(), 0),
            (pipes.output.1.as_fd(), 1),
            (pipes.error.1.as_fd(), 2),
            (theirs.as_fd(), 3),
        ],
        namespaces: Namespaces::NONE,
        id_map: None,
        cgroup: None,
    })?;
    Ok(pipes.started(child, None))
}

struct Pipes {
    input: (PipeReader, PipeWriter),
    output: (PipeReader, PipeWriter),
    error: (PipeReader, PipeWriter),
}

impl Pipes {
    fn new() -> Result<Self> {
        Ok(Self {
            input: pipe()?,
            output: pipe()?,
            error: pipe()?,
        })
    }

    fn started(self, child: Child, watching: Option<JoinHandle<Vec<Violation>>>) -> Started {
        Started {
            child,
            watching,
            input: self.input.1,
            output: self.output.0,
            error: self.error.0,
        }
    }
}

fn hand_over(control: &OwnedFd, handed: &[(String, OwnedFd)]) -> Result<()> {
    if handed.is_empty() {
        return Ok(());
    }
    let raw: Vec<_> = handed.iter().map(|(_, fd)| fd.as_raw_fd()).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let parts = [IoSlice::new(b"!")];
    sendmsg::<()>(
        control.as_raw_fd(),
        &parts,
        &rights,
        MsgFlags::empty(),
        None,
    )?;
    Ok(())
}

/// Copies the programs to where every user reaches them.
///
/// # Errors
/// When they are not there.
pub fn copied(programs: &Programs, names: &[&str], to: &Path) -> Result<Programs> {
    for name in names {
        std::fs::copy(programs.folder.join(name), to.join(name))
            .with_context(|| format!("{name} is not in {}", programs.folder.display()))?;
        // Executed below; no writer may be left.
        File::open(to.join(name))?.sync_all().ok();
    }
    Ok(Programs {
        folder: to.to_owned(),
    })
}
