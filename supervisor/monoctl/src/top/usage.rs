//! What processes use, as `/proc` says it.

use std::collections::HashMap;
use std::time::Instant;

/// One process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    parent: i32,
    /// When it started, in clock ticks since boot: tells it from a later one of the same number.
    started: u64,
    /// Processor time, in clock ticks.
    ticks: u64,
    pages: u64,
}

/// All processes that can be seen, at one moment.
#[derive(Debug)]
pub(crate) struct Sample {
    at: Instant,
    processes: HashMap<i32, Process>,
    children: HashMap<i32, Vec<i32>>,
}

/// What a process and all below it use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Usage {
    pub(crate) rss_bytes: u64,
    /// Of one processor, in percent; `None` until there is an earlier sample.
    pub(crate) cpu_percent: Option<f64>,
}

/// The kernel's units.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Units {
    ticks_per_second: u64,
    page_bytes: u64,
}

impl Units {
    /// This system's.
    pub(crate) fn of_system() -> Self {
        use nix::unistd::{SysconfVar, sysconf};
        let value = |name, usual| {
            let found = sysconf(name).ok().flatten();
            found.map_or(usual, i64::unsigned_abs).max(1)
        };
        Self {
            ticks_per_second: value(SysconfVar::CLK_TCK, 100),
            page_bytes: value(SysconfVar::PAGE_SIZE, 4096),
        }
    }
}

impl Sample {
    /// Reads it.
    pub(crate) fn take() -> Self {
        let at = Instant::now();
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Self::new(
            at,
            numbers.filter_map(|pid: i32| {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
                Some((pid, parse(&stat)?))
            }),
        )
    }

    fn new(at: Instant, processes: impl Iterator<Item = (i32, Process)>) -> Self {
        let processes: HashMap<_, _> = processes.collect();
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for (pid, process) in &processes {
            children.entry(process.parent).or_default().push(*pid);
        }
        Self {
            at,
            processes,
            children,
        }
    }

    /// What a process and all below it use; `None` when it can't be seen.
    pub(crate) fn usage(&self, pid: i32, earlier: Option<&Self>, units: Units) -> Option<Usage> {
        self.processes.get(&pid)?;
        let tree = self.tree(pid);
        let pages: u64 = tree.iter().map(|(_, p)| p.pages).sum();
        let cpu_percent = earlier.and_then(|earlier| {
            let seconds = self.at.checked_duration_since(earlier.at)?.as_secs_f64();
            let ticks: u64 = tree
                .iter()
                .map(|(pid, p)| earlier.spent_until(*pid, p))
                .sum();
            let used = ticks as f64 / units.ticks_per_second as f64;
            (seconds > 0.0).then_some(100.0 * used / seconds)
        });
        Some(Usage {
            rss_bytes: pages.saturating_mul(units.page_bytes),
            cpu_percent,
        })
    }

    /// The ticks that a process, as it is now, has spent since this sample.
    fn spent_until(&self, pid: i32, now: &Process) -> u64 {
        let before = self.processes.get(&pid);
        let before = before.filter(|before| before.started == now.started);
        now.ticks.saturating_sub(before.map_or(0, |p| p.ticks))
    }

    fn tree(&self, root: i32) -> Vec<(i32, Process)> {
        let mut found = Vec::new();
        let mut waiting = vec![root];
        // Each process has one parent, so none is met twice; the bound is for a table that
        // changed while it was read.
        while let Some(pid) = waiting.pop() {
            if found.len() > self.processes.len() {
                break;
            }
            if let Some(process) = self.processes.get(&pid) {
                found.push((pid, *process));
            }
            waiting.extend(self.children.get(&pid).into_iter().flatten());
        }
        found
    }
}

/// `/proc/PID/stat`: see proc(5). The name in it may hold anything, also brackets and spaces.
fn parse(stat: &str) -> Option<Process> {
    let (_, after) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Process {
        parent: fields.get(1)?.parse().ok()?,
        ticks: number(11)?.saturating_add(number(12)?),
        started: number(19)?,
        pages: number(21)?,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    const UNITS: Units = Units {
        ticks_per_second: 100,
        page_bytes: 4096,
    };

    fn process(parent: i32, started: u64, ticks: u64) -> Process {
        Process {
            parent,
            started,
            ticks,
            pages: 10,
        }
    }

    #[test]
    fn the_kernels_line_is_read_behind_any_name() {
        let stat = "7 (a) b (c) R 3 7 7 0 -1 4194304 1 0 0 0 12 30 5 6 20 0 1 0 900 1000 55 18446744073709551615 1";
        let expected = Process {
            parent: 3,
            started: 900,
            ticks: 42,
            pages: 55,
        };
        assert_eq!(parse(stat), Some(expected));
        assert_eq!(parse("7 (x) R 3"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_worker_uses_what_its_tree_uses() {
        let start = Instant::now();
        let before = Sample::new(
            start,
            [(1, process(0, 5, 100)), (9, process(1, 6, 10))].into_iter(),
        );
        let now = Sample::new(
            start + Duration::from_secs(2),
            [
                (1, process(0, 5, 150)),
                // Another process with the number of one that ended, and a grandchild.
                (9, process(1, 7, 20)),
                (10, process(9, 8, 30)),
                (11, process(0, 8, 1000)),
            ]
            .into_iter(),
        );
        let usage = now.usage(1, Some(&before), UNITS).unwrap();
        assert_eq!(usage.rss_bytes, 3 * 10 * 4096);
        // 50 + 20 + 30 ticks in 2 s.
        assert_eq!(usage.cpu_percent, Some(50.0));
        assert_eq!(now.usage(1, None, UNITS).unwrap().cpu_percent, None);
        assert_eq!(now.usage(2, Some(&before), UNITS), None);
    }

    #[test]
    fn a_table_with_a_loop_in_it_ends() {
        let looped = [(1, process(2, 1, 1)), (2, process(1, 1, 1))].into_iter();
        let sample = Sample::new(Instant::now(), looped);
        assert!(sample.usage(1, None, UNITS).is_some());
    }

    #[test]
    fn this_process_can_be_seen() {
        let me = i32::try_from(std::process::id()).unwrap();
        let usage = Sample::take().usage(me, None, Units::of_system()).unwrap();
        assert!(usage.rss_bytes > 100_000, "{usage:?}");
    }
}
