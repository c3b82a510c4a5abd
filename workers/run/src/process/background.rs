//! Commands that outlive their tool call: `background: true`. Their output goes to a file in the
//! scratch directory, and they end with the run at the latest.

use super::output::MAX_CAPTURED;
use super::{Ending, Pump, Runner, Spec, StartError, Started, ending_of};
use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Commands that may run in the background at once.
pub const MAX_BACKGROUND: usize = 8;

/// A command that was started in the background.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Background {
    /// Its number in this run.
    pub id: u32,
    /// Its process group, for `kill -- -GROUP`.
    pub group: i32,
    /// Where its output goes; the last line says how it ended.
    pub output: PathBuf,
}

#[derive(Debug)]
pub(super) struct Running {
    group: i32,
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

impl Runner {
    /// Starts a command and returns at once. It may run for `limit`, or as long as the run.
    ///
    /// # Errors
    /// When it can't be started, or [`MAX_BACKGROUND`] are running.
    pub fn start_in_background(
        &self,
        spec: &Spec,
        limit: Option<Duration>,
    ) -> Result<Background, StartError> {
        let mut running = self
            .background
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        running.retain(|_, command| !command.task.is_finished());
        if running.len() >= MAX_BACKGROUND {
            return Err(StartError::TooManyInBackground(running.len()));
        }
        let id = self.next_id();
        let output = self.scratch.join(format!("background-{id}.txt"));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&output)
            .map_err(|source| StartError::OutputFile {
                path: output.clone(),
                source,
            })?;
        let (started, pipe) = self.start(spec)?;
        let group = started.group;
        let cancel = CancellationToken::new();
        let pump = Pump::new(pipe, Some(file));
        let task = tokio::spawn(watch(started, pump, limit, cancel.clone(), output.clone()));
        running.insert(
            id,
            Running {
                group,
                cancel,
                task,
            },
        );
        Ok(Background { id, group, output })
    }

    pub(super) fn background_groups(&self) -> HashSet<i32> {
        let running = self
            .background
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        running
            .values()
            .filter(|command| !command.task.is_finished())
            .map(|command| command.group)
            .collect()
    }

    pub(super) async fn end_background(&self) {
        let running = std::mem::take(
            &mut *self
                .background
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for command in running.values() {
            command.cancel.cancel();
        }
        for command in running.into_values() {
            // Each ends by its own bounds; all of them are ending at once.
            let _ = command.task.await;
        }
    }
}

async fn watch(
    mut started: Started,
    pump: Pump,
    limit: Option<Duration>,
    cancel: CancellationToken,
    output: PathBuf,
) {
    let over = async {
        match limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    let ending = tokio::select! {
        biased;
        () = cancel.cancelled() => Ending::Cancelled,
        () = pump.flooded() => Ending::Flooded,
        () = over => Ending::TimedOut,
        status = started.child.wait() => ending_of(status),
    };
    started.end(&ending).await;
    pump.finish().await;
    note_ending(&output, ending);
}

fn note_ending(output: &Path, ending: Ending) {
    let line = match ending {
        Ending::Exited(code) => format!("[exit code {code}]"),
        Ending::Signalled(signal) => format!("[ended by signal {signal}]"),
        Ending::TimedOut => "[ended: its time was over]".to_owned(),
        Ending::Flooded => format!("[ended: it printed more than {MAX_CAPTURED} bytes]"),
        Ending::Cancelled => "[ended with the run]".to_owned(),
    };
    if let Ok(mut file) = OpenOptions::new().append(true).open(output) {
        let _ = writeln!(file, "\n{line}");
    }
}
