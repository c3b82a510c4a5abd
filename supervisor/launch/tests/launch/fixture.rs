//! A machine in small: a workspace, a scratch and a state directory, and things outside.

use ipc_proto::Role;
use mono_sys::process::{Child, ExitStatus, wait};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use policy::exit::Step;
use policy::violation::{self, Violation};
use policy::{Context, DEFAULT_BASE, Descriptors, Identity, Launch, Server, compile, start};
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Where the programs under test are, when it isn't where cargo put them.
pub(crate) const BINARIES: &str = "MONO_TEST_BINARIES";

pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

pub(crate) struct Fixture {
    place: TempDir,
    pub(crate) degraded: bool,
}

/// What a started program said and how it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
    pub(crate) error: String,
    /// The forbidden calls that it, or what it started, was ended for.
    pub(crate) forbidden: Vec<Violation>,
}

/// Who takes notice of a program's forbidden calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hearing {
    /// They are heard, and end it.
    Watched,
    /// The listener was taken and dropped.
    Dropped,
    /// Nobody takes the listener.
    Nobody,
}

fn take(socket: &OwnedFd) -> std::io::Result<OwnedFd> {
    let mut ready = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    poll(&mut ready, PollTimeout::NONE)?;
    Ok(violation::receive(socket)?.listener)
}

/// A worker that waits.
pub(crate) struct Held {
    pub(crate) child: Child,
    pub(crate) input: PipeWriter,
    #[expect(dead_code, reason = "open, so that writing doesn't end the worker")]
    output: BufReader<PipeReader>,
}

impl Ended {
    /// The outcome of one argument of the probe.
    pub(crate) fn of(&self, action: &str) -> &str {
        let line = self.output.lines().find_map(|line| {
            line.strip_prefix(action)
                .and_then(|rest| rest.strip_prefix(" = "))
        });
        line.unwrap_or_else(|| panic!("no outcome of {action}: {self:?}"))
    }
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let place = tempfile::Builder::new()
            .prefix("mono-launch-")
            .tempdir()
            .unwrap();
        fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
        let fixture = Self {
            place,
            degraded: false,
        };
        for directory in [
            "workspace",
            "scratch",
            "state",
            "outside",
            "workspace/.state",
        ] {
            fs::create_dir(fixture.path(directory)).unwrap();
        }
        for file in [
            "outside/secret",
            "workspace/.state/secret",
            "workspace/.key",
            "state/old",
        ] {
            fs::write(fixture.path(file), "secret").unwrap();
        }
        fixture
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn own(&self, directory: &str, identity: Option<&Identity>) -> Option<PathBuf> {
        let path = self.path(directory);
        if let Some(who) = identity {
            chown(&path, Some(who.uid), Some(who.gid)).unwrap();
        }
        Some(path)
    }

    /// The facts for a role, with its directories made its own.
    pub(crate) fn context(&self, role: Role) -> Context {
        let identity = is_root().then(|| Identity::of(role, 0, DEFAULT_BASE, None));
        let tools = matches!(role, Role::Run | Role::McpServer);
        Context {
            workspace: self.own("workspace", identity.as_ref().filter(|_| tools)),
            scratch: self.own("scratch", identity.as_ref().filter(|_| tools)),
            state: self.own("state", identity.as_ref().filter(|_| !tools)),
            hidden: match self.degraded {
                // What lies in a hidden folder may be named itself, too.
                false => [
                    "workspace/.state",
                    "workspace/.state/secret",
                    "workspace/.key",
                ]
                .map(|name| self.path(name))
                .to_vec(),
                true => Vec::new(),
            },
            identity,
            degraded: self.degraded,
            ..Context::default()
        }
    }

    /// Runs the probe as a worker of this role.
    pub(crate) fn probe(&self, role: Role, actions: &[&str]) -> Ended {
        self.probe_with(role, &self.context(role), actions)
    }

    pub(crate) fn probe_with(&self, role: Role, context: &Context, actions: &[&str]) -> Ended {
        let mut launch = compile(role, context).unwrap();
        launch
            .spec
            .arguments
            .extend(actions.iter().map(|action| (*action).to_owned()));
        self.start(&launch, true)
    }

    /// Runs a command as an MCP server.
    pub(crate) fn server(&self, command: &str, arguments: &[&str]) -> Ended {
        let mut context = self.context(Role::McpServer);
        context.server = Some(Server {
            command: command.into(),
            arguments: arguments
                .iter()
                .map(|argument| (*argument).to_owned())
                .collect(),
            directory: None,
        });
        self.start(&compile(Role::McpServer, &context).unwrap(), false)
    }

    pub(crate) fn start(&self, launch: &Launch, worker: bool) -> Ended {
        self.start_heard(launch, worker, Hearing::Watched)
    }

    pub(crate) fn start_heard(&self, launch: &Launch, worker: bool, hearing: Hearing) -> Ended {
        let launcher = File::open(binary("mono-launch")).unwrap();
        let program = File::open(binary("launch-probe")).unwrap();
        let (mut output, output_writer) = std::io::pipe().unwrap();
        let (mut error, error_writer) = std::io::pipe().unwrap();
        let (violations, theirs) = violation::channel().unwrap();
        let violations = (hearing != Hearing::Nobody).then_some(violations);
        let child = start(
            launch,
            &Descriptors {
                launcher: launcher.as_fd(),
                program: worker.then(|| program.as_fd()),
                control: None,
                input: None,
                output: Some(output_writer.as_fd()),
                error: Some(error_writer.as_fd()),
                violations: theirs.as_fd(),
                cgroup: None,
            },
        )
        .unwrap();
        drop((output_writer, error_writer, theirs));
        let listening = std::thread::spawn(move || {
            let mut forbidden = Vec::new();
            let watched = match violations {
                Some(socket) if hearing == Hearing::Watched => {
                    violation::watch(socket, |found| forbidden.push(*found))
                }
                Some(socket) => take(&socket).map(drop),
                None => Ok(()),
            };
            (watched, forbidden)
        });
        let mut ended = Ended {
            status: ExitStatus::Exited(0),
            output: String::new(),
            error: String::new(),
            forbidden: Vec::new(),
        };
        output.read_to_string(&mut ended.output).unwrap();
        error.read_to_string(&mut ended.error).unwrap();
        ended.status = wait(&child.pidfd).unwrap();
        let (watched, forbidden) = listening.join().unwrap();
        // A launcher that fails sends no listener.
        let failed =
            matches!(ended.status, ExitStatus::Exited(code) if Step::from_code(code).is_some());
        assert!(watched.is_ok() || failed, "{watched:?} {ended:?}");
        ended.forbidden = forbidden;
        ended
    }

    /// Starts the probe as a worker and returns once it has done its actions; it then waits for
    /// the end of its input.
    pub(crate) fn hold(&self, role: Role, actions: &[&str]) -> Held {
        let mut launch = compile(role, &self.context(role)).unwrap();
        let actions = actions.iter().chain(&["hold"]);
        launch
            .spec
            .arguments
            .extend(actions.map(|action| (*action).to_owned()));
        let launcher = File::open(binary("mono-launch")).unwrap();
        let program = File::open(binary("launch-probe")).unwrap();
        let (input_reader, input) = std::io::pipe().unwrap();
        let (output, output_writer) = std::io::pipe().unwrap();
        let (violations, theirs) = violation::channel().unwrap();
        let child = start(
            &launch,
            &Descriptors {
                launcher: launcher.as_fd(),
                program: Some(program.as_fd()),
                control: None,
                input: Some(input_reader.as_fd()),
                output: Some(output_writer.as_fd()),
                error: None,
                violations: theirs.as_fd(),
                cgroup: None,
            },
        )
        .unwrap();
        drop((output_writer, theirs));
        std::thread::spawn(move || violation::watch(violations, |_| ()));
        let mut output = BufReader::new(output);
        let mut line = String::new();
        while line != "held\n" {
            line.clear();
            assert_ne!(
                output.read_line(&mut line).unwrap(),
                0,
                "it ended too early"
            );
        }
        Held {
            child,
            input,
            output,
        }
    }

    /// Copies the programs under test, and these tests, to where every user reaches them.
    pub(crate) fn copy_binaries(&self) -> PathBuf {
        let place = self.path("outside");
        let tests = std::env::current_exe().unwrap();
        // By another process: a file that this one writes can't be executed while a child that
        // another test has just forked still holds the descriptor.
        let copied = Command::new("cp")
            .args([
                &binary("mono-launch"),
                &binary("launch-probe"),
                &tests,
                &place,
            ])
            .status();
        assert!(copied.unwrap().success());
        place
    }
}

pub(crate) fn binary(name: &str) -> PathBuf {
    match std::env::var_os(BINARIES) {
        Some(place) => Path::new(&place).join(name),
        None if name == "mono-launch" => env!("CARGO_BIN_EXE_mono-launch").into(),
        None => env!("CARGO_BIN_EXE_launch-probe").into(),
    }
}
