//! Ctrl-C and `kill` while something of ours runs: what was started is asked to end, and this program
//! ends when it has ended.

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};

/// How a program ends that a person interrupted.
const INTERRUPTED: i32 = 130;

/// What is to end with this program.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt {
    /// The process that the main thread waits for.
    awaited: Arc<Mutex<Option<Pid>>>,
}

impl Interrupt {
    /// Takes these signals from now on. Call it before the first thread is started. Processes that are
    /// started later have them held back until they say otherwise.
    pub(crate) fn watch() -> Result<Self> {
        let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
        signals
            .thread_block()
            .context("signals can't be held back")?;
        let interrupt = Self::default();
        let awaited = interrupt.awaited.clone();
        std::thread::spawn(move || {
            while signals.wait().is_ok() {
                let awaited = *awaited.lock().unwrap_or_else(PoisonError::into_inner);
                match awaited {
                    // The main thread sees its end, and ends.
                    Some(pid) => drop(kill(pid, Signal::SIGTERM)),
                    None => std::process::exit(INTERRUPTED),
                }
            }
        });
        Ok(interrupt)
    }

    /// From now on a signal ends this process, and the main thread goes on.
    pub(crate) fn ends(&self, child: &Child) {
        let pid = i32::try_from(child.id()).ok().map(Pid::from_raw);
        *self.awaited.lock().unwrap_or_else(PoisonError::into_inner) = pid;
    }
}
