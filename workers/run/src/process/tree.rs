//! The processes below this one, read from `/proc`, and how they are ended.
//!
//! In its sandbox the run worker is process 1 of its namespace, so whatever a command left behind
//! becomes its child; elsewhere it is made a subreaper, which has the same effect.

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::collections::{HashMap, HashSet};
use std::io;
use std::time::Duration;
use tokio::time::Instant;

/// Time between the polite signal and the other one (facts 4.1, "Process runner").
pub const TERM_GRACE: Duration = Duration::from_secs(1);
/// Time to see that a killed group is gone.
pub const KILL_CONFIRM: Duration = Duration::from_secs(1);
/// How often a group is looked at: the kernel tells nobody when a group empties.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// One line of the process table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Process id in this namespace.
    pub pid: i32,
    /// Its parent.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Ended and not yet reaped.
    pub zombie: bool,
}

/// Reads the process table.
///
/// # Errors
/// When `/proc` is not there; a process that ends while it is read is left out.
pub fn processes() -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for dir in std::fs::read_dir("/proc")? {
        let name = dir?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read(format!("/proc/{pid}/stat")) else {
            continue;
        };
        entries.extend(parse_stat(pid, &stat));
    }
    Ok(entries)
}

/// Parses `/proc/PID/stat`. The command name may hold any byte, so fields count from its last `)`.
fn parse_stat(pid: i32, stat: &[u8]) -> Option<Entry> {
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&stat[close + 1..]).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    Some(Entry {
        pid,
        parent,
        group,
        zombie: matches!(state, "Z" | "X"),
    })
}

/// Descendants of `me` that belong to no kept group and descend from no member of one.
#[must_use]
fn strays(table: &[Entry], me: i32, kept_groups: &HashSet<i32>) -> Vec<Entry> {
    let by_pid: HashMap<i32, &Entry> = table.iter().map(|entry| (entry.pid, entry)).collect();
    table
        .iter()
        .filter(|entry| {
            let mut at = **entry;
            // Bounded by the table's length, or a pid reused mid-read could make a circle.
            for _ in 0..table.len() {
                if kept_groups.contains(&at.group) {
                    return false;
                }
                if at.parent == me {
                    return true;
                }
                match by_pid.get(&at.parent) {
                    Some(parent) => at = **parent,
                    None => return false,
                }
            }
            false
        })
        .copied()
        .collect()
}

/// True while the group has a member that is not a zombie.
#[must_use]
pub fn group_alive(group: i32) -> bool {
    if killpg(Pid::from_raw(group), None) == Err(Errno::ESRCH) {
        return false;
    }
    // A table that can't be read counts as alive: the caller then reports that it couldn't confirm.
    processes().map_or(true, |table| {
        table
            .iter()
            .any(|entry| entry.group == group && !entry.zombie)
    })
}

/// Ends a group: TERM, after a second KILL, then a second to confirm. True when it is gone.
pub async fn end_group(group: i32) -> bool {
    let pid = Pid::from_raw(group);
    let _ = killpg(pid, Signal::SIGTERM);
    // A stopped process handles TERM only when it is continued.
    let _ = killpg(pid, Signal::SIGCONT);
    if group_gone_within(group, TERM_GRACE).await {
        return true;
    }
    let _ = killpg(pid, Signal::SIGKILL);
    group_gone_within(group, KILL_CONFIRM).await
}

async fn group_gone_within(group: i32, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    while group_alive(group) {
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    true
}

/// What a sweep found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Processes killed.
    pub killed: usize,
    /// Processes still there after [`KILL_CONFIRM`].
    pub left: usize,
}

/// Kills every stray and reaps what has no other parent, until none is left or a second is over.
/// `kept_groups` are groups with an owner that ends and reaps them itself.
pub async fn sweep(kept_groups: &HashSet<i32>) -> Swept {
    let me = std::process::id().cast_signed();
    let deadline = Instant::now() + KILL_CONFIRM;
    let mut killed = HashSet::new();
    loop {
        let Ok(table) = processes() else {
            return Swept {
                killed: killed.len(),
                left: 0,
            };
        };
        let found = strays(&table, me, kept_groups);
        let living: Vec<i32> = found
            .iter()
            .filter(|entry| !entry.zombie)
            .map(|entry| entry.pid)
            .collect();
        for entry in found
            .iter()
            .filter(|entry| entry.zombie && entry.parent == me)
        {
            // By its pid and never "any child": another command's exit status is not ours to take.
            let _ = waitpid(Pid::from_raw(entry.pid), Some(WaitPidFlag::WNOHANG));
        }
        if living.is_empty() {
            return Swept {
                killed: killed.len(),
                left: 0,
            };
        }
        for pid in &living {
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
            killed.insert(*pid);
        }
        if Instant::now() >= deadline {
            return Swept {
                killed: killed.len(),
                left: living.len(),
            };
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn entry(pid: i32, parent: i32, group: i32) -> Entry {
        Entry {
            pid,
            parent,
            group,
            zombie: false,
        }
    }

    #[test]
    fn a_command_name_full_of_parentheses_hides_nothing() {
        let stat = b"42 (a) R 1 (b\xff) S 7 40 40 0 -1";
        assert_eq!(parse_stat(42, stat), Some(entry(42, 7, 40)));
        assert_eq!(
            parse_stat(1, b"1 (x) Z 0 1").map(|entry| entry.zombie),
            Some(true)
        );
        for bad in [b"".as_slice(), b"1 (x", b"1 (x) S", b"1 (x) S a b"] {
            assert_eq!(parse_stat(1, bad), None);
        }
    }

    #[test]
    fn strays_are_our_descendants_outside_the_kept_groups() {
        let table = [
            entry(1, 0, 1),
            entry(10, 1, 10),  // kept leader
            entry(11, 10, 11), // left the group, but its parent is still there
            entry(20, 1, 20),  // an orphan that left its group
            entry(21, 20, 21),
            entry(30, 99, 30), // parent unknown: not ours
        ];
        let pids = |kept: &[i32]| -> Vec<i32> {
            strays(&table, 1, &kept.iter().copied().collect())
                .iter()
                .map(|entry| entry.pid)
                .collect()
        };
        assert_eq!(pids(&[10]), [20, 21]);
        assert_eq!(pids(&[]), [10, 11, 20, 21]);
    }

    #[test]
    fn a_circle_in_the_table_ends() {
        let table = [entry(5, 6, 5), entry(6, 5, 6)];
        assert!(strays(&table, 1, &HashSet::new()).is_empty());
    }

    #[test]
    fn we_see_ourselves() {
        let me = std::process::id().cast_signed();
        assert!(processes().is_ok_and(|table| table.iter().any(|entry| entry.pid == me)));
    }
}
