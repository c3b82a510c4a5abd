//! A real `monod` with real confined workers in a folder of its own, driven through `monoctl`.

mod setup;

pub use crate::send::{Sending, Sent};
use anyhow::{Context, Result, bail};
use serde_json::Value;
pub use setup::Setup;
use setup::{Start, spawn};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything may take that has no bound of its own.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The folder with the built programs: `MONO_PROGRAMS`, or where this program was built.
#[must_use]
pub fn programs() -> PathBuf {
    if let Some(folder) = std::env::var_os("MONO_PROGRAMS") {
        return folder.into();
    }
    let me = std::env::current_exe().unwrap_or_default();
    // Cargo builds tests into `deps` below the folder of the programs.
    let mut folders = me.ancestors().skip(1);
    let own = folders.next().unwrap_or(Path::new(""));
    if own.ends_with("deps") {
        folders.next().unwrap_or(own).to_owned()
    } else {
        own.to_owned()
    }
}

/// A running daemon; ended, with all its workers, when dropped.
#[derive(Debug)]
pub struct Daemon {
    folder: Option<TempDir>,
    child: Child,
    socket: PathBuf,
    setup: Start,
}

/// Waits until something is so.
///
/// # Errors
/// When it isn't in time.
pub fn wait_for(what: &str, wish: impl Fn() -> bool) -> Result<()> {
    wait_within(what, PATIENCE, wish)
}

/// Waits until something is so, with a bound of its own.
///
/// # Errors
/// When it isn't in time.
pub fn wait_within(what: &str, patience: Duration, wish: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + patience;
    while !wish() {
        if Instant::now() > deadline {
            bail!("not in time: {what}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Waits for the end of a daemon that is expected to refuse.
fn refusal(mut child: Child, folder: &Path) -> Result<(i32, String)> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status.code().unwrap_or(-1), log_of(folder)));
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            bail!("it started:\n{}", log_of(folder));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether no process comes or goes by itself, as a status shows it.
#[must_use]
pub fn rests(status: &Value) -> bool {
    let workers = status["workers"].as_array().map_or(&[][..], Vec::as_slice);
    let count = |state: &str| workers.iter().filter(|w| w["state"] == state).count();
    count("idle") >= 2 && count("starting") + count("ending") == 0
}

fn log_of(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("monod.log")).unwrap_or_default()
}

impl Daemon {
    /// The folder that holds everything.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.as_ref().map_or(Path::new(""), TempDir::path)
    }

    /// The agent's workspace.
    #[must_use]
    pub fn workspace(&self) -> PathBuf {
        self.folder().join("workspace")
    }

    /// What the daemon and its workers logged.
    #[must_use]
    pub fn log(&self) -> String {
        log_of(self.folder())
    }

    /// Waits until all of these words are in the log. What a worker logs comes through the
    /// supervisor, so it may be there after the worker's answer.
    ///
    /// # Panics
    /// When they aren't in time, with the log.
    pub fn await_logged(&self, words: &[&str]) {
        for words in words {
            let logged = wait_for(words, || self.log().contains(words));
            assert!(logged.is_ok(), "not logged: {words}\n{}", self.log());
        }
    }

    /// The daemon's process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// A `monoctl` command for this daemon.
    #[must_use]
    pub fn monoctl(&self) -> Command {
        let mut command = Command::new(programs().join("monoctl"));
        command.arg("--socket").arg(&self.socket);
        command
    }

    /// Runs `monoctl` with these arguments.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn run(&self, arguments: &[&str]) -> Result<Output> {
        Ok(self.monoctl().args(arguments).output()?)
    }

    /// Runs `monoctl` with these arguments, which is to succeed.
    ///
    /// # Errors
    /// When it does not, with its words.
    pub fn done(&self, arguments: &[&str]) -> Result<Output> {
        let output = self.run(arguments)?;
        if !output.status.success() {
            bail!("monoctl {arguments:?}: {output:?}");
        }
        Ok(output)
    }

    /// Changes the configuration's file, for the next reload.
    ///
    /// # Errors
    /// When it can't be read or written.
    pub fn configure(&self, change: impl FnOnce(&mut Value)) -> Result<()> {
        let file = self.folder().join("mono-agent.config.json");
        let mut config = serde_json::from_slice(&std::fs::read(&file)?)?;
        change(&mut config);
        Ok(std::fs::write(&file, config.to_string())?)
    }

    /// Runs a command with these bytes on its standard input.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn pipe(&self, mut command: Command, input: &[u8]) -> Result<Output> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut stdin = child.stdin.take().context("no stdin")?;
        let input = input.to_owned();
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output()?;
        // It may have ended without reading everything.
        let _ = writer.join();
        Ok(output)
    }

    /// Runs `monoctl … --json` and parses what it printed.
    ///
    /// # Errors
    /// When it printed no JSON.
    pub fn json(&self, arguments: &[&str]) -> Result<Value> {
        let out = self.monoctl().args(arguments).arg("--json").output()?;
        serde_json::from_slice(&out.stdout).with_context(|| {
            format!(
                "monoctl {arguments:?}: {}",
                String::from_utf8_lossy(&out.stderr)
            )
        })
    }

    /// Sends one message and waits for the end of its run.
    ///
    /// # Errors
    /// When monoctl can't be started.
    pub fn send(&self, conversation: &str, text: &str) -> Result<Sent> {
        self.start_send(conversation, text)?.finish()
    }

    /// Sends one message, which is to be answered.
    ///
    /// # Errors
    /// When the run fails, with all that was told of it.
    pub fn answered(&self, conversation: &str, text: &str) -> Result<Sent> {
        let sent = self.send(conversation, text)?;
        if sent.code != 0 {
            bail!("not answered: {sent:?}");
        }
        Ok(sent)
    }

    /// Starts `monoctl send` and returns it, so that something can happen meanwhile.
    ///
    /// # Errors
    /// When monoctl can't be started.
    pub fn start_send(&self, conversation: &str, text: &str) -> Result<Sending> {
        let mut command = self.monoctl();
        command.args(["send", "--json", "--conversation", conversation, "--", text]);
        Sending::start(&mut command)
    }

    /// `monoctl status --json`.
    ///
    /// # Errors
    /// When there is no daemon.
    pub fn status(&self) -> Result<Value> {
        self.json(&["status"])
    }

    /// The process of an always-on role.
    ///
    /// # Errors
    /// When it has none.
    pub fn worker(&self, role: &str) -> Result<i32> {
        let status = self.status()?;
        let worker = status["workers"]
            .as_array()
            .and_then(|all| all.iter().find(|w| w["role"] == role && w["pid"].is_i64()))
            .with_context(|| format!("no {role} worker"))?;
        Ok(i32::try_from(worker["pid"].as_i64().unwrap_or(0))?)
    }

    /// Waits until another process than `old` serves an always-on role.
    ///
    /// # Errors
    /// When none does in time.
    pub fn wait_replaced(&mut self, role: &str, old: i32) -> Result<()> {
        self.wait_until(&format!("serving {role} again"), |status| {
            let workers = status["workers"].as_array();
            workers.into_iter().flatten().any(|w| {
                w["role"] == role
                    && w["state"] == "serving"
                    && w["pid"].as_i64() != Some(old.into())
            })
        })
        .map(drop)
    }

    /// The workers of a role in a state, as `monoctl status` lists them.
    ///
    /// # Errors
    /// When there is no daemon.
    pub fn workers(&self, role: &str, state: &str) -> Result<Vec<Value>> {
        let status = self.status()?;
        let all = status["workers"].as_array().cloned().unwrap_or_default();
        let wanted = |w: &Value| w["role"] == role && w["state"] == state;
        Ok(all.into_iter().filter(wanted).collect())
    }

    /// `monoctl runs show`.
    ///
    /// # Errors
    /// When there is no such run.
    pub fn show(&self, run: &str) -> Result<Value> {
        self.json(&["runs", "show", run])
    }

    /// `monoctl runs show`, once the run has ended.
    ///
    /// # Errors
    /// When it doesn't in time.
    pub fn settled(&self, run: &str) -> Result<Value> {
        wait_for("the end of the run is on record", || {
            self.show(run)
                .is_ok_and(|r| r["status"].is_string() && r["status"] != "running")
        })?;
        self.show(run)
    }

    /// Fetches a published file with `monoctl artifacts get`.
    ///
    /// # Errors
    /// With its words when it refuses.
    pub fn fetch(&self, id: &str) -> Result<Vec<u8>> {
        let out = self.run(&["artifacts", "get", id, "-o", "-"])?;
        if !out.status.success() {
            bail!("{}", String::from_utf8_lossy(&out.stderr));
        }
        Ok(out.stdout)
    }

    /// Starts a second daemon in the same folder, which is expected to refuse.
    ///
    /// # Errors
    /// When it starts nevertheless.
    pub fn refused_beside(&self) -> Result<(i32, String)> {
        refusal(
            spawn(self.folder(), &self.socket, &self.setup)?,
            self.folder(),
        )
    }

    /// `kill -9` of a process.
    ///
    /// # Errors
    /// When it is gone already.
    pub fn kill(&self, pid: i32) -> Result<()> {
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(pid),
            nix::sys::signal::Signal::SIGKILL,
        )
        .with_context(|| format!("kill {pid}"))
    }

    /// Where the OpenAI-compatible API listens.
    ///
    /// # Errors
    /// When the log doesn't say so.
    pub fn api(&self) -> Result<String> {
        self.listener("channel-openai")
    }

    /// Where a role listens.
    ///
    /// # Errors
    /// When the log doesn't say so.
    pub fn listener(&self, role: &str) -> Result<String> {
        let log = self.log();
        let of = format!("role={role}");
        let line = log
            .lines()
            .rfind(|l| l.contains("listening on http") && l.contains(&of))
            .context("no listener")?;
        let address = line.split("listening on ").nth(1).context("no address")?;
        Ok(address
            .split_whitespace()
            .next()
            .unwrap_or_default()
            .to_owned())
    }

    /// Waits until the status is healthy.
    ///
    /// # Errors
    /// When it ends or isn't in time, with its log.
    pub fn wait_healthy(&mut self) -> Result<()> {
        self.wait_until("healthy", |status| status["ok"] == true)
            .map(drop)
    }

    /// Waits until no process comes or goes by itself: two idle run workers are there, and nothing
    /// starts or ends. Returns that status.
    ///
    /// # Errors
    /// As [`Daemon::wait_until`].
    pub fn at_rest(&mut self) -> Result<Value> {
        self.wait_until("at rest", rests)
    }

    /// Waits until the status is as wished, and returns it: the next one may be another.
    ///
    /// # Errors
    /// When the daemon ends or the time is over, with its log.
    pub fn wait_until(&mut self, what: &str, wish: impl Fn(&Value) -> bool) -> Result<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("monod ended with {status}:\n{}", self.log());
            }
            let status = if self.socket.exists() {
                self.status().ok()
            } else {
                None
            };
            match status {
                Some(status) if wish(&status) => return Ok(status),
                _ if Instant::now() < deadline => {}
                status => bail!("not {what} in time: {status:?}\n{}", self.log()),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asks the daemon to end, as an operator would.
    ///
    /// # Errors
    /// When it is gone already.
    pub fn terminate(&self) -> Result<()> {
        use nix::sys::signal::{Signal, kill};
        Ok(kill(
            nix::unistd::Pid::from_raw(self.pid()),
            Signal::SIGTERM,
        )?)
    }

    /// Waits until the daemon has ended by itself and returns its exit code.
    ///
    /// # Errors
    /// When it doesn't end in time.
    pub fn wait_end(&mut self) -> Result<i32> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.code().unwrap_or(-1));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("monod did not stop:\n{}", self.log())
    }

    /// The gateway's socket.
    #[must_use]
    pub fn gateway(&self) -> PathBuf {
        self.socket.with_file_name("gateway.sock")
    }

    /// Ends the daemon as an operator would and returns its exit code.
    ///
    /// # Errors
    /// When it doesn't end in time.
    pub fn stop(&mut self) -> Result<i32> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(status.code().unwrap_or(-1));
        }
        self.terminate()?;
        self.wait_end()
    }

    /// `kill -9` of the daemon.
    ///
    /// # Errors
    /// When it is gone already.
    pub fn kill_daemon(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts the daemon again in the same folder.
    ///
    /// # Errors
    /// When it isn't healthy in time.
    pub fn restart(&mut self) -> Result<()> {
        self.child = spawn(self.folder(), &self.socket, &self.setup)?;
        self.wait_healthy()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.stop().is_err() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- monod.log ---\n{}", self.log());
        }
    }
}
