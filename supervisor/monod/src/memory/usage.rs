//! What a process and all below it use, as `/proc` says it (proc(5)).

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::PathBuf;

/// Processes of one tree that are looked at; the limit of processes of a run is far below.
const MAX_TREE: usize = 65_536;

/// Reads it below a folder that is laid out as `/proc`.
#[derive(Debug)]
pub(crate) struct Usage {
    root: PathBuf,
}

impl Usage {
    pub(crate) fn of_system() -> Self {
        Self {
            root: PathBuf::from("/proc"),
        }
    }

    /// Bytes in use by a process and all below it: memory that is nobody's file, and what of it was
    /// swapped out. What several of them share is counted for each of them, so it may be too much.
    /// `None` when the process can't be seen.
    pub(crate) fn rough(&self, pid: i32) -> Option<u64> {
        self.own(pid)?;
        Some(self.tree(pid).into_iter().filter_map(|p| self.own(p)).sum())
    }

    /// As [`Usage::rough`], but what is shared is counted once where that would be more than
    /// `limit` and the kernel tells. That costs a walk through the memory of each process.
    pub(crate) fn against(&self, pid: i32, limit: u64) -> Option<u64> {
        let rough = self.rough(pid)?;
        if rough <= limit {
            return Some(rough);
        }
        let tree = self.tree(pid).into_iter();
        Some(
            tree.filter_map(|p| self.share(p).or_else(|| self.own(p)))
                .sum(),
        )
    }

    fn own(&self, pid: i32) -> Option<u64> {
        let path = self.root.join(pid.to_string()).join("status");
        sum(
            &fs::read_to_string(path).ok()?,
            &["RssAnon", "RssShmem", "VmSwap"],
        )
    }

    /// Its part of what it shares. The kernel tells only who might also trace the process.
    fn share(&self, pid: i32) -> Option<u64> {
        let path = self.root.join(pid.to_string()).join("smaps_rollup");
        sum(
            &fs::read_to_string(path).ok()?,
            &["Pss_Anon", "Pss_Shmem", "SwapPss"],
        )
    }

    fn tree(&self, root: i32) -> Vec<i32> {
        let parents = self.children(root).is_none().then(|| self.by_parent());
        let mut seen = HashSet::from([root]);
        let mut found = vec![root];
        let mut next = 0;
        while next < found.len() && found.len() < MAX_TREE {
            let children = match &parents {
                Some(parents) => parents.get(&found[next]).cloned(),
                None => self.children(found[next]),
            };
            found.extend(children.into_iter().flatten().filter(|p| seen.insert(*p)));
            next += 1;
        }
        found
    }

    /// The children of all its threads; `None` where the kernel has no such list, or the process
    /// is gone.
    fn children(&self, pid: i32) -> Option<Vec<i32>> {
        let threads = self.root.join(pid.to_string()).join("task");
        let mut children = None;
        for thread in fs::read_dir(threads).ok()?.flatten() {
            if let Ok(text) = fs::read_to_string(thread.path().join("children")) {
                let numbers = text
                    .split_whitespace()
                    .filter_map(|n| n.parse::<i32>().ok());
                children.get_or_insert_with(Vec::new).extend(numbers);
            }
        }
        children
    }

    /// Everybody's children, from the parents that each process names.
    fn by_parent(&self) -> HashMap<i32, Vec<i32>> {
        let mut all: HashMap<i32, Vec<i32>> = HashMap::new();
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            let pid = entry.file_name().to_str().and_then(|n| n.parse().ok());
            let Some(pid) = pid else { continue };
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            // The name before it may hold anything, also brackets and spaces.
            let parent = stat.rsplit_once(')').and_then(|(_, after)| {
                let parent = after.split_whitespace().nth(1)?;
                parent.parse().ok()
            });
            if let Some(parent) = parent {
                all.entry(parent).or_default().push(pid);
            }
        }
        all
    }
}

/// The sum of named lines of the form `Name:   12 kB`, in bytes; `None` when there is none of them.
fn sum(text: &str, names: &[&str]) -> Option<u64> {
    let mut total = None;
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        if names.contains(&name)
            && let Some(kib) = value
                .split_whitespace()
                .next()
                .and_then(|n| n.parse::<u64>().ok())
        {
            total = Some(
                total
                    .unwrap_or(0_u64)
                    .saturating_add(kib.saturating_mul(1024)),
            );
        }
    }
    total
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::path::Path;
    use tempfile::TempDir;

    /// A process with 10 KiB of its own, 5 KiB that it shares and 1 KiB that was swapped out.
    fn process(root: &Path, pid: i32, parent: i32, children: &str, lists: bool) {
        let task = root.join(format!("{pid}/task/{pid}"));
        fs::create_dir_all(&task).unwrap();
        if lists {
            fs::write(task.join("children"), children).unwrap();
        }
        let status = "Name:\ta: b\nVmRSS:\t99 kB\nRssAnon:\t10 kB\nRssFile:\t 84 kB\n\
                      RssShmem:\t5 kB\nVmSwap:\t1 kB\nThreads:\t1\n";
        let folder = root.join(pid.to_string());
        fs::write(folder.join("status"), status).unwrap();
        let stat = format!("{pid} (a) b (c) S {parent} 1 1 0\n");
        fs::write(folder.join("stat"), stat).unwrap();
    }

    fn machine(lists: bool) -> (TempDir, Usage) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        process(root, 1, 0, "10 90 ", lists);
        process(root, 10, 1, "11 ", lists);
        process(root, 11, 10, "12 13", lists);
        process(root, 12, 11, "", lists);
        // Started by another thread of it.
        process(root, 14, 11, "", lists);
        if lists {
            let second = root.join("11/task/15");
            fs::create_dir_all(&second).unwrap();
            fs::write(second.join("children"), "14").unwrap();
        }
        process(root, 90, 1, "", lists);
        let usage = Usage { root: root.into() };
        (folder, usage)
    }

    #[test]
    fn a_tree_is_counted_whole_and_nothing_beside_it() {
        for lists in [true, false] {
            let (_folder, usage) = machine(lists);
            let mut tree = usage.tree(10);
            tree.sort_unstable();
            tree.retain(|pid| usage.own(*pid).is_some());
            assert_eq!(tree, [10, 11, 12, 14], "{lists}");
            // 13 has just ended.
            assert_eq!(usage.rough(10), Some(4 * 16 * 1024), "{lists}");
            assert_eq!(usage.rough(77), None);
        }
    }

    #[test]
    fn what_is_shared_counts_once_where_it_decides_and_can_be_told() {
        let (folder, usage) = machine(true);
        let limit = 60 * 1024;
        assert_eq!(usage.against(10, limit), Some(64 * 1024));
        for pid in [11, 12] {
            let rollup = "Rss: 99 kB\nPss: 90 kB\nPss_Anon: 4 kB\nPss_File: 84 kB\nPss_Shmem: 2 kB\n\
                          SwapPss: 1 kB\n";
            fs::write(folder.path().join(format!("{pid}/smaps_rollup")), rollup).unwrap();
        }
        assert_eq!(usage.against(10, limit), Some((16 + 7 + 7 + 16) * 1024));
        // Below the limit nobody's memory is walked through.
        assert_eq!(usage.against(10, 64 * 1024), Some(64 * 1024));
    }

    #[test]
    fn a_loop_in_a_table_that_changes_while_it_is_read_ends() {
        let (folder, usage) = machine(true);
        fs::write(folder.path().join("12/task/12/children"), "10 11").unwrap();
        assert_eq!(usage.rough(10), Some(4 * 16 * 1024));
    }

    #[test]
    fn this_process_and_its_memory_can_be_seen() {
        let me = i32::try_from(std::process::id()).unwrap();
        let usage = Usage::of_system();
        let before = usage.rough(me).unwrap();
        let taken = vec![1_u8; 64 << 20];
        let after = usage.rough(me).unwrap();
        assert!(after > before + (32 << 20), "{before} {after}");
        let exact = usage.against(me, 0).unwrap();
        assert!(exact > 32 << 20, "{exact}");
        drop(taken);
    }
}
