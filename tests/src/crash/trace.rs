//! One process and its threads, stopped before and after each of their system calls.

use super::registers;
use anyhow::{Context as _, Result, bail};
use nix::errno::Errno;
use nix::libc::{PTRACE_SYSCALL_INFO_ENTRY, PTRACE_SYSCALL_INFO_EXIT, SYS_kill, c_void};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command};

/// What the process is told when it is traced.
pub(super) const GO: &str = "go\n";
/// Longest string that is read from the process, in bytes.
const MAX_TEXT: usize = 4096;

/// Before or after the kernel does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// Before.
    Entry,
    /// After.
    Exit,
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Pass,
    /// The process is killed here: before, the call is not made; after, its caller never learns.
    Kill,
    /// The call is not made and fails. Only before.
    Fail(Errno),
}

/// A thread that stands before or after a call.
#[derive(Debug)]
pub struct Stop {
    /// Where.
    pub edge: Edge,
    /// The call's number.
    pub call: i64,
    /// Its arguments.
    pub args: [u64; 6],
    process: Pid,
    thread: Pid,
}

impl Stop {
    /// What the descriptor in an argument is of, as `/proc` shows it.
    #[must_use]
    pub fn file(&self, argument: usize) -> Option<String> {
        let number = self.args[argument] as i32;
        let link = format!("/proc/{}/fd/{number}", self.process);
        let target = std::fs::read_link(link).ok()?;
        Some(target.to_string_lossy().into_owned())
    }

    /// The string that an argument points to, as far as it can be read.
    #[must_use]
    pub fn text(&self, argument: usize) -> Option<String> {
        let start = self.args[argument];
        let mut bytes = Vec::new();
        while bytes.len() < MAX_TEXT {
            let at = start.checked_add(bytes.len() as u64)?;
            let word = ptrace::read(self.thread, at as *mut c_void).ok()?;
            for byte in word.to_ne_bytes() {
                if byte == 0 {
                    return String::from_utf8(bytes).ok();
                }
                bytes.push(byte);
            }
        }
        None
    }
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// By itself.
    Exited(i32),
    /// By us.
    Killed,
    /// By a signal that was not ours.
    Signaled(Signal),
}

/// What is left of a process.
#[derive(Debug)]
pub struct Ended {
    /// How it ended.
    pub end: End,
    /// What it had said until then.
    pub said: String,
}

/// Runs a program that waits for [`GO`] on its input, and asks `decide` at each call that it makes
/// between its two marks. When this returns, the process and its threads are gone.
pub(super) fn trace(
    mut command: Command,
    decide: &mut dyn FnMut(&Stop) -> Action,
) -> Result<Ended> {
    let child = command
        .spawn()
        .context("the traced process can't be started")?;
    let process = Pid::from_raw(i32::try_from(child.id())?);
    let mut tracer = Tracer {
        process,
        active: false,
        killed: false,
        failing: HashMap::new(),
    };
    let result = tracer.follow(child, decide);
    if result.is_err() {
        let _ = kill(process, Signal::SIGKILL);
    }
    result
}

struct Tracer {
    process: Pid,
    /// Between the marks.
    active: bool,
    killed: bool,
    /// Threads in a call that fails.
    failing: HashMap<Pid, Errno>,
}

impl Tracer {
    fn follow(
        &mut self,
        mut child: Child,
        decide: &mut dyn FnMut(&Stop) -> Action,
    ) -> Result<Ended> {
        let options = ptrace::Options::PTRACE_O_TRACESYSGOOD
            | ptrace::Options::PTRACE_O_TRACECLONE
            | ptrace::Options::PTRACE_O_EXITKILL;
        ptrace::seize(self.process, options)
            .context("a process may not be traced here (is ptrace forbidden in this container?)")?;
        ptrace::interrupt(self.process)?;
        let mut input = child.stdin.take().context("it has no input")?;
        let mut output = child.stdout.take().context("it has no output")?;
        let mut told = false;
        let mut end = None;
        loop {
            let status = match waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)) {
                Err(Errno::ECHILD) => break,
                Err(Errno::EINTR) => continue,
                other => other?,
            };
            match status {
                WaitStatus::PtraceSyscall(thread) => {
                    let goes_on = self.at_call(thread, decide)?;
                    if goes_on {
                        resume(thread, None)?;
                    }
                }
                WaitStatus::PtraceEvent(thread, ..) => {
                    resume(thread, None)?;
                    if !told {
                        // From its next call on nothing escapes.
                        input.write_all(GO.as_bytes())?;
                        told = true;
                    }
                }
                WaitStatus::Stopped(thread, signal) => resume(thread, Some(signal))?,
                WaitStatus::Exited(pid, code) if pid == self.process => {
                    end = Some(End::Exited(code))
                }
                WaitStatus::Signaled(pid, signal, _) if pid == self.process => {
                    let ours = self.killed && signal == Signal::SIGKILL;
                    end = Some(if ours {
                        End::Killed
                    } else {
                        End::Signaled(signal)
                    });
                }
                _ => {}
            }
        }
        drop(input);
        let mut said = String::new();
        output.read_to_string(&mut said)?;
        let Some(end) = end else {
            bail!("the traced process ended unseen");
        };
        Ok(Ended { end, said })
    }

    /// False when the process was killed.
    fn at_call(&mut self, thread: Pid, decide: &mut dyn FnMut(&Stop) -> Action) -> Result<bool> {
        let edge = match ptrace::syscall_info(thread).map(|info| info.op) {
            Ok(PTRACE_SYSCALL_INFO_ENTRY) => Edge::Entry,
            Ok(PTRACE_SYSCALL_INFO_EXIT) => Edge::Exit,
            // Killed meanwhile, with its process.
            Err(Errno::ESRCH) => return Ok(true),
            other => bail!("a stop that is neither before nor after a call: {other:?}"),
        };
        if edge == Edge::Exit
            && let Some(error) = self.failing.remove(&thread)
        {
            registers::fail(thread, error)?;
            return Ok(true);
        }
        let (call, args) = match registers::call(thread) {
            Ok(call) => call,
            Err(Errno::ESRCH) => return Ok(true),
            Err(e) => bail!("the registers of the traced process can't be read: {e}"),
        };
        if call == SYS_kill {
            if edge == Edge::Entry && args[1] == 0 {
                self.active = !self.active;
            }
            return Ok(true);
        }
        if !self.active {
            return Ok(true);
        }
        let stop = Stop {
            edge,
            call,
            args,
            process: self.process,
            thread,
        };
        match decide(&stop) {
            Action::Pass => Ok(true),
            Action::Kill => {
                self.killed = true;
                kill(self.process, Signal::SIGKILL)?;
                Ok(false)
            }
            Action::Fail(error) => {
                registers::skip(thread)?;
                self.failing.insert(thread, error);
                Ok(true)
            }
        }
    }
}

fn resume(thread: Pid, signal: Option<Signal>) -> Result<()> {
    match ptrace::syscall(thread, signal) {
        // Killed meanwhile.
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
