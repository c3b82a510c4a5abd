//! How much memory a run and a server may use, each with all processes that it starts
//! (docs/operations.md, "Memory").
//!
//! Where the daemon has a part of the control group hierarchy to itself, the kernel enforces the
//! limit. Elsewhere the daemon looks itself, and the kernel only bounds what one process may ask for.

mod group;
mod usage;
mod watch;

use crate::input::ProcessId;
use group::Groups;
use ipc_proto::Role;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use usage::Usage;

/// The failure kind of a run that used more than its limit.
pub(crate) const KIND: &str = "memory_limit";
/// What one process may ask for beyond the limit at least: between two looks a program takes some
/// hundred megabytes, and it is to be seen above the limit before it is refused memory.
const AHEAD: u64 = 2 << 30;

/// What keeps runs and servers to their limits here.
#[derive(Debug)]
pub(crate) enum Enforcement {
    /// The kernel: each has a control group of its own.
    Group(Groups),
    /// The daemon looks at them. Why the kernel can't do it.
    Watched(String),
}

impl Enforcement {
    /// Takes the daemon's own control group into use, if it has one to itself.
    pub(crate) fn find() -> Self {
        match group::own(Path::new("/proc/self")).and_then(|own| Groups::take(&own)) {
            Ok(groups) => {
                tracing::info!("memory limits are enforced by the kernel");
                Self::Group(groups)
            }
            Err(reason) => {
                tracing::warn!(
                    "memory limits are watched by the daemon and not enforced by the kernel: {reason}"
                );
                Self::Watched(reason)
            }
        }
    }

    /// The fixed word for scripts.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Group(_) => "cgroup",
            Self::Watched(_) => "watched",
        }
    }

    /// Why the kernel doesn't enforce the limits.
    pub(crate) fn reason(&self) -> Option<&str> {
        match self {
            Self::Group(_) => None,
            Self::Watched(reason) => Some(reason),
        }
    }

    /// Bytes that a single process may ask for, used or not, under a limit of so many bytes.
    pub(crate) fn data_max(&self, limit: u64) -> Option<u64> {
        match self {
            // It counts what is used, which is better than what is asked for.
            Self::Group(_) => None,
            Self::Watched(_) => Some(limit.saturating_add(limit.max(AHEAD))),
        }
    }

    /// The bound of a process that is about to start.
    ///
    /// # Errors
    /// When its control group can't be made.
    pub(crate) fn bound(&self, role: Role, id: ProcessId, limit: u64) -> io::Result<Bound> {
        let group = match self {
            Self::Group(groups) => Some(groups.make(&format!("{role}-{}", id.0), limit)?),
            Self::Watched(_) => None,
        };
        Ok(Bound {
            limit,
            group,
            exceeded: false,
        })
    }
}

/// What a process and all below it may use. Plain data, so that another daemon can take it over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bound {
    /// Bytes.
    pub(crate) limit: u64,
    /// The folder of its control group; `None` where the daemon watches.
    group: Option<PathBuf>,
    /// It was seen above the limit and ended.
    exceeded: bool,
}

impl Bound {
    /// What a process is started in.
    ///
    /// # Errors
    /// When the folder can't be opened.
    pub(crate) fn open(&self) -> io::Result<Option<File>> {
        self.group.as_ref().map(File::open).transpose()
    }

    /// True when the daemon has to look.
    pub(crate) fn is_watched(&self) -> bool {
        self.group.is_none() && !self.exceeded
    }

    /// Notes that it was seen above its limit.
    pub(crate) fn exceed(&mut self) {
        self.exceeded = true;
    }

    fn is_exceeded(&self) -> bool {
        self.exceeded || self.group.as_deref().is_some_and(group::was_ended)
    }

    /// Bytes in use now by the process and all below it; `None` when that can't be seen.
    pub(crate) fn used(&self, pid: i32) -> Option<u64> {
        match &self.group {
            Some(group) => group::used(group),
            None => Usage::of_system().rough(pid),
        }
    }

    /// The process has ended: tells whether it was because it used too much, and removes what held
    /// it.
    pub(crate) fn ended(&self) -> bool {
        let exceeded = self.is_exceeded();
        self.remove();
        exceeded
    }

    /// Removes the control group of a process that is not there.
    pub(crate) fn remove(&self) {
        if let Some(group) = &self.group
            && let Err(e) = group::remove(group)
        {
            tracing::warn!("the control group {} stays: {e}", group.display());
        }
    }

    /// What the person is told whose run used too much.
    pub(crate) fn words_of_run(&self) -> String {
        format!(
            "The run used more memory than its limit of {} (sandbox.memoryMaxBytes) and was ended.",
            size(self.limit)
        )
    }

    /// How a server ended that used too much.
    pub(crate) fn words_of_server(&self, name: &str) -> String {
        format!(
            "used more memory than its limit of {} (tools.mcpServers.{name}.sandbox.memoryMaxBytes)",
            size(self.limit)
        )
    }
}

/// A configured size as a person would write it.
fn size(bytes: u64) -> String {
    for (unit, name) in [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{} {name}", bytes / unit);
        }
    }
    format!("{bytes} bytes")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_limit_is_told_with_its_key() {
        let bound = |limit| Bound {
            limit,
            group: None,
            exceeded: false,
        };
        assert_eq!(
            bound(4 << 30).words_of_run(),
            "The run used more memory than its limit of 4 GiB (sandbox.memoryMaxBytes) and was ended."
        );
        let server = bound(96 << 20).words_of_server("files");
        assert!(
            server.contains("96 MiB (tools.mcpServers.files.sandbox.memoryMaxBytes)"),
            "{server}"
        );
        for (bytes, words) in [
            (65 << 20, "65 MiB"),
            ((64 << 20) + 1024, "65537 KiB"),
            ((64 << 20) + 1, "67108865 bytes"),
        ] {
            assert_eq!(size(bytes), words);
        }
    }

    #[test]
    fn a_process_that_is_watched_can_pass_its_limit_before_it_is_refused_memory() {
        let watched = Enforcement::Watched(String::new());
        for limit in [64 << 20, 4 << 30, 64 << 40] {
            let data = watched.data_max(limit).unwrap();
            assert!(
                data >= limit + AHEAD && data >= 2 * limit,
                "{limit}: {data}"
            );
        }
        assert!(watched.data_max(u64::MAX).is_some());
        let bound = watched.bound(Role::Run, ProcessId(1), 5).unwrap();
        assert!(bound.is_watched() && bound.open().unwrap().is_none());
    }

    #[test]
    fn what_was_seen_above_its_limit_is_looked_at_no_more() {
        let watched = Enforcement::Watched(String::new());
        let mut bound = watched.bound(Role::McpServer, ProcessId(1), 5).unwrap();
        assert!(!bound.is_exceeded());
        bound.exceed();
        assert!(bound.is_exceeded() && !bound.is_watched());
    }
}
