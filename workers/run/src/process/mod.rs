//! Runs the commands of `Bash` and `Exec` and leaves nothing of them behind (facts 4.1, "Process
//! runner").
//!
//! Each command has a process group of its own, no input, a small environment and one pipe for
//! stdout and stderr together (so their order is kept). When its first process ends, whatever is
//! left of the group is ended, and then every descendant that fled the group by `setsid` and a
//! double fork. Commands started in the background are the one exception, until the run ends.

pub mod background;
pub mod output;
pub mod tree;

use output::{Capture, MAX_CAPTURED};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Used when the model names no limit (facts 4.1).
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest limit that the model may name.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(600);
/// Where commands are looked for when the profile doesn't say.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Names that commands may inherit; the profile gives this process their values. All others stay
/// here: exported functions (`BASH_FUNC_…`) would run, and what is meant for the worker is nobody's.
const INHERITED: [&str; 6] = ["PATH", "LANG", "USER", "LOGNAME", "SHELL", "HOME"];
/// A family of such names.
const INHERITED_PREFIX: &str = "GIT_CONFIG_";
/// Size of one read from a command's pipe.
const CHUNK: usize = 64 * 1024;

/// What to start.
#[derive(Debug, Clone)]
pub struct Spec {
    /// A name looked up in `PATH`, or a path.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// An existing directory.
    pub workdir: PathBuf,
}

/// How a command came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It exited by itself, with this status.
    Exited(i32),
    /// A signal that we didn't send ended it.
    Signalled(i32),
    /// We ended it: its time was over.
    TimedOut,
    /// We ended it: it printed more than [`MAX_CAPTURED`].
    Flooded,
    /// We ended it: the run was cancelled.
    Cancelled,
}

/// A finished command.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub ending: Ending,
    /// Its stdout and stderr in the order they were written, at most [`MAX_CAPTURED`] bytes.
    pub output: Vec<u8>,
    /// It had left processes running, which were ended.
    pub had_leftovers: bool,
    /// Some process could not be seen to end within its second.
    pub unconfirmed: bool,
}

/// Why a command didn't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The kernel refused: no such program, no permission, no process left.
    #[error("{program:?} can't be started in {workdir:?}: {source}")]
    Spawn {
        /// What was to be started.
        program: OsString,
        /// Where.
        workdir: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// No pipe for its output.
    #[error("no pipe for the output of the command: {0}")]
    Pipe(io::Error),
    /// Too many commands in the background.
    #[error("{0} commands are running in the background, which is the most; end one first")]
    TooManyInBackground(usize),
    /// The file for a background command's output.
    #[error("no output file at {path:?}: {source}")]
    OutputFile {
        /// Where it should be.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Starts commands and knows which process groups are theirs.
#[derive(Debug)]
pub struct Runner {
    scratch: PathBuf,
    environment: Vec<(OsString, OsString)>,
    groups: Groups,
    background: Mutex<HashMap<u32, background::Running>>,
    next_id: Mutex<u32>,
}

/// Process groups that an owner will end itself: a sweep keeps away from them.
#[derive(Debug, Clone, Default)]
struct Groups(Arc<Mutex<HashSet<i32>>>);

impl Groups {
    fn lock(&self) -> MutexGuard<'_, HashSet<i32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runner {
    /// A runner whose commands get `scratch` as `TMPDIR`, and what is fit for them of this
    /// process's `environment`.
    ///
    /// # Errors
    /// When this process can't be made the one that inherits its commands' orphans.
    pub fn new(
        scratch: &Path,
        environment: impl Iterator<Item = (OsString, OsString)>,
    ) -> io::Result<Self> {
        nix::sys::prctl::set_child_subreaper(true)?;
        Ok(Self {
            scratch: scratch.to_owned(),
            environment: command_environment(scratch, environment),
            groups: Groups::default(),
            background: Mutex::default(),
            next_id: Mutex::new(1),
        })
    }

    /// Gives every further command this variable; it wins over one that is inherited.
    pub fn set_variable(&mut self, name: &str, value: &str) {
        self.environment.push((name.into(), value.into()));
    }

    /// Where output that is too long to show is put.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// A number that no other command of this run has.
    pub fn next_id(&self) -> u32 {
        let mut next = self.next_id.lock().unwrap_or_else(PoisonError::into_inner);
        let id = *next;
        *next += 1;
        id
    }

    /// Runs a command to its end, at most for `limit` and until `cancel`.
    ///
    /// # Errors
    /// When it can't be started. How it ended is no error here.
    pub async fn run(
        &self,
        spec: &Spec,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<Finished, StartError> {
        let (mut started, pipe) = self.start(spec)?;
        let pump = Pump::new(pipe, None);
        let ending = tokio::select! {
            biased;
            () = cancel.cancelled() => Ending::Cancelled,
            () = pump.flooded() => Ending::Flooded,
            () = tokio::time::sleep(limit) => Ending::TimedOut,
            status = started.child.wait() => ending_of(status),
        };
        let end = started.end(&ending).await;
        let swept = self.sweep_when_alone(started).await;
        let capture = pump.finish().await;
        // Output that was still in the pipe when the process ended counts towards the bound too.
        let ending = match ending {
            Ending::Exited(_) | Ending::Signalled(_) if capture.overflowed() => Ending::Flooded,
            other => other,
        };
        Ok(Finished {
            ending,
            output: capture.into_bytes(),
            had_leftovers: end.had_leftovers || swept.killed > 0,
            unconfirmed: !end.gone || swept.left > 0,
        })
    }

    fn start(&self, spec: &Spec) -> Result<(Started, pipe::Receiver), StartError> {
        let (reader, writer) = io::pipe().map_err(StartError::Pipe)?;
        let pipe = pipe::Receiver::from_owned_fd(reader.into()).map_err(StartError::Pipe)?;
        let mut command = Command::new(&spec.program);
        command
            .args(&spec.args)
            .current_dir(&spec.workdir)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(writer.try_clone().map_err(StartError::Pipe)?)
            .stderr(writer)
            .process_group(0)
            .kill_on_drop(true);
        let spawned = command.spawn();
        // The command owns our writing ends; while it lives the pipe would never end.
        drop(command);
        let child = spawned.map_err(|source| StartError::Spawn {
            program: spec.program.clone(),
            workdir: spec.workdir.clone(),
            source,
        })?;
        let group = child.id().unwrap_or_default().cast_signed();
        self.groups.lock().insert(group);
        Ok((
            Started {
                child,
                group,
                groups: self.groups.clone(),
            },
            pipe,
        ))
    }

    /// Kills what fled from `started`'s group, unless another foreground command runs: its
    /// processes could not be told from strays.
    async fn sweep_when_alone(&self, started: Started) -> tree::Swept {
        drop(started);
        let background = self.background_groups();
        let kept = self.groups.lock().clone();
        if kept.is_subset(&background) {
            tree::sweep(&kept).await
        } else {
            tree::Swept::default()
        }
    }

    /// Ends everything that still runs. Called once, at the end of the run.
    pub async fn shut_down(&self) -> tree::Swept {
        self.end_background().await;
        tree::sweep(&HashSet::new()).await
    }
}

fn command_environment(
    scratch: &Path,
    own: impl Iterator<Item = (OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    let fit = |name: &OsString| {
        name.to_str()
            .is_some_and(|name| INHERITED.contains(&name) || name.starts_with(INHERITED_PREFIX))
    };
    let text = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
    // Later ones win.
    let mut environment = vec![
        text("PATH", PATH),
        text("LANG", "C.UTF-8"),
        ("HOME".into(), scratch.into()),
    ];
    environment.extend(own.filter(|(name, _)| fit(name)));
    environment.extend([
        text("TERM", "dumb"),
        // Both are files that a shell would read before the command (facts 4.1).
        text("BASH_ENV", "/dev/null"),
        text("ENV", "/dev/null"),
        ("TMPDIR".into(), scratch.into()),
    ]);
    environment
}

fn ending_of(status: io::Result<ExitStatus>) -> Ending {
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Ending::Exited(code),
            (None, signal) => Ending::Signalled(signal.unwrap_or_default()),
        },
        // Only when someone else reaped our child; the exit status is then lost.
        Err(_) => Ending::Signalled(0),
    }
}

/// A started command. Dropping it kills its group: a future that is dropped leaves nothing behind.
#[derive(Debug)]
struct Started {
    child: Child,
    group: i32,
    groups: Groups,
}

struct Ended {
    gone: bool,
    had_leftovers: bool,
}

impl Started {
    async fn end(&mut self, ending: &Ending) -> Ended {
        let by_itself = matches!(ending, Ending::Exited(_) | Ending::Signalled(_));
        let had_leftovers = by_itself && tree::group_alive(self.group);
        let gone = if by_itself && !had_leftovers {
            true
        } else {
            tree::end_group(self.group).await
        };
        if !by_itself {
            // Reap the leader; killed and gone, it can't keep us waiting long.
            let _ = tokio::time::timeout(tree::KILL_CONFIRM, self.child.wait()).await;
        }
        Ended {
            gone,
            had_leftovers,
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if self.group > 0 && tree::group_alive(self.group) {
            let _ = nix::sys::signal::killpg(
                nix::unistd::Pid::from_raw(self.group),
                nix::sys::signal::Signal::SIGKILL,
            );
        }
        self.groups.lock().remove(&self.group);
    }
}

/// Reads a command's pipe so that it never blocks on a full one, and keeps what fits.
struct Pump {
    task: tokio::task::JoinHandle<Capture>,
    stop: oneshot::Sender<()>,
    flooded: CancellationToken,
}

impl Pump {
    fn new(pipe: pipe::Receiver, file: Option<std::fs::File>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let flooded = CancellationToken::new();
        let task = tokio::spawn(pump(pipe, file, stopped, flooded.clone()));
        Self {
            task,
            stop,
            flooded,
        }
    }

    async fn flooded(&self) {
        self.flooded.cancelled().await;
    }

    /// Takes what is in the pipe now and stops, even when a process that escaped still holds it.
    async fn finish(self) -> Capture {
        let _ = self.stop.send(());
        self.task
            .await
            .unwrap_or_else(|_| Capture::new(MAX_CAPTURED))
    }
}

async fn pump(
    pipe: pipe::Receiver,
    mut file: Option<std::fs::File>,
    mut stopped: oneshot::Receiver<()>,
    flooded: CancellationToken,
) -> Capture {
    let mut capture = Capture::new(MAX_CAPTURED);
    let mut chunk = vec![0; CHUNK];
    let mut stopping = false;
    loop {
        match pipe.try_read(&mut chunk) {
            Ok(0) => return capture,
            Ok(n) => {
                let kept = capture.push(&chunk[..n]);
                if let Some(file) = &mut file {
                    // A full scratch disk must not stop the command's pipe.
                    let _ = io::Write::write_all(file, kept);
                }
                if capture.overflowed() {
                    flooded.cancel();
                    if stopping {
                        return capture;
                    }
                    // A writer faster than this loop must not keep the others from their turn.
                    tokio::task::yield_now().await;
                    stopping = stopping || stopped.try_recv().is_ok();
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if stopping {
                    return capture;
                }
                tokio::select! {
                    biased;
                    _ = &mut stopped => stopping = true,
                    ready = pipe.readable() => if ready.is_err() { return capture },
                }
            }
            Err(_) => return capture,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_inherit_what_is_fit_for_them_and_nothing_else() {
        let own = [
            ("PATH", "/opt/bin"),
            ("GIT_CONFIG_COUNT", "1"),
            ("BASH_FUNC_ls%%", "() { rm; }"),
            ("BASH_ENV", "/evil"),
            ("ENV", "/evil"),
            ("LD_PRELOAD", "/evil.so"),
            ("TERM", "xterm"),
            ("TMPDIR", "/elsewhere"),
            ("MONO_PROBE_STATE", "/secret"),
            ("OPENAI_API_KEY", "sk"),
        ];
        let own = own
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let made: HashMap<_, _> = command_environment(Path::new("/scratch"), own)
            .into_iter()
            .collect();
        let mut names: Vec<_> = made.keys().filter_map(|name| name.to_str()).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "BASH_ENV",
                "ENV",
                "GIT_CONFIG_COUNT",
                "HOME",
                "LANG",
                "PATH",
                "TERM",
                "TMPDIR"
            ]
        );
        let value = |name: &str| {
            made.get(&OsString::from(name))
                .and_then(|value| value.to_str())
        };
        assert_eq!(
            (value("PATH"), value("TERM"), value("BASH_ENV")),
            (Some("/opt/bin"), Some("dumb"), Some("/dev/null"))
        );
        assert_eq!(
            (value("TMPDIR"), value("HOME")),
            (Some("/scratch"), Some("/scratch"))
        );
    }
}
