//! Looking at what runs and servers use, where the kernel doesn't keep them to their limits.

use super::{KIND, Usage};
use crate::input::{Input, ProcessId};
use crate::supervisor::Supervisor;
use ipc_proto::Role;
use std::time::{Duration, Instant};

/// Between two looks.
const EVERY: Duration = Duration::from_millis(250);
/// A look that takes longer is not waited for: reading of a process's memory may wait for that
/// process.
const GIVEN_UP: Duration = Duration::from_secs(5);

impl Supervisor {
    /// Begins to look, unless that is under way or there is nothing to look at.
    pub(crate) fn watch_memory(&mut self) {
        let under_way = |since: Instant| since.elapsed() < GIVEN_UP;
        if !self.looking.is_some_and(under_way) {
            self.look_at_memory();
        }
    }

    /// The pause since the look that began then is over.
    pub(crate) fn look_again(&mut self, since: Instant) {
        // One that was given up and came back after all has a successor.
        if self.looking == Some(since) {
            self.look_at_memory();
        }
    }

    /// One look at all that is watched, on a thread of its own.
    fn look_at_memory(&mut self) {
        let watched: Vec<(ProcessId, i32, u64)> = self
            .processes
            .values()
            // An idle worker has not been told anything yet that could make it grow.
            .filter(|p| p.role == Role::McpServer || p.run.is_some())
            // The number of one that was reaped may be somebody else's.
            .filter(|p| p.exit.is_none())
            .filter_map(|p| Some((p.id, p.pid, p.memory.as_ref()?)))
            .filter(|(_, _, bound)| bound.is_watched())
            .map(|(id, pid, bound)| (id, pid, bound.limit))
            .collect();
        if watched.is_empty() {
            self.looking = None;
            return;
        }
        let since = Instant::now();
        self.looking = Some(since);
        let tell = self.tell.clone();
        tokio::task::spawn_blocking(move || {
            let usage = Usage::of_system();
            let above = |(id, pid, limit)| {
                let used = usage.against(pid, limit)?;
                (used > limit).then_some((id, used))
            };
            let above = watched.into_iter().filter_map(above).collect();
            let _ = tell.send(Input::Memory { since, above });
        });
    }

    /// Ends what was seen above its limit, and looks again later.
    pub(crate) fn memory_seen(&mut self, since: Instant, above: Vec<(ProcessId, u64)>) {
        for (id, used) in above {
            let Some(process) = self.processes.get_mut(&id) else {
                continue;
            };
            let Some(bound) = &mut process.memory else {
                continue;
            };
            bound.exceed();
            let (role, pid, limit) = (process.role, process.pid, bound.limit);
            tracing::error!(role = %role, pid, "{KIND}: {used} bytes used, {limit} allowed");
            self.end(id);
        }
        let tell = self.tell.clone();
        tokio::spawn(async move {
            tokio::time::sleep(EVERY).await;
            let _ = tell.send(Input::LookAtMemory { since });
        });
    }
}
