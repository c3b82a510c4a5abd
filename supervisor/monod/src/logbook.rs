//! The latest lines of every worker, for `monoctl logs`. The journal keeps the rest.

use ipc_proto::Role;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

/// Lines kept in memory.
const KEPT: usize = 4_096;
/// Lines in one answer.
const PAGE: usize = 500;

/// One line of a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Counts up from 1 over the life of the daemon.
    pub(crate) seq: u64,
    /// Milliseconds since 1970.
    at_ms: u128,
    role: String,
    pid: i32,
    run: Option<String>,
    text: String,
}

/// What `monoctl logs` gets.
#[derive(Debug, Serialize)]
pub(crate) struct Page {
    entries: Vec<Entry>,
    /// Ask for what comes after this one.
    last: u64,
    /// Lines that were dropped before they were asked for.
    missed: u64,
}

/// The lines.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Logbook {
    entries: VecDeque<Entry>,
    next: u64,
}

impl Logbook {
    /// Enters a line.
    pub(crate) fn enter(&mut self, (role, pid): (Role, i32), run: Option<&str>, text: &str) {
        if self.entries.len() == KEPT {
            self.entries.pop_front();
        }
        self.next += 1;
        let at_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_millis());
        self.entries.push_back(Entry {
            seq: self.next,
            at_ms,
            role: role.name().to_owned(),
            pid,
            run: run.map(str::to_owned),
            text: text.to_owned(),
        });
    }

    /// Lines that are no longer kept.
    pub(crate) fn dropped(&self) -> u64 {
        self.next - self.entries.len() as u64
    }

    /// Lines after `after` of one role or all, of one run or all; the newest when `after` is 0.
    pub(crate) fn read(&self, role: Option<&str>, run: Option<&str>, after: u64) -> Page {
        let oldest = self.entries.front().map_or(self.next + 1, |e| e.seq);
        let wanted = self.entries.iter().filter(|e| {
            e.seq > after
                && role.is_none_or(|role| e.role == role)
                && run.is_none_or(|run| e.run.as_deref() == Some(run))
        });
        let mut entries: Vec<Entry> = if after == 0 {
            let all: Vec<_> = wanted.collect();
            all[all.len().saturating_sub(PAGE)..]
                .iter()
                .map(|e| (*e).clone())
                .collect()
        } else {
            wanted.take(PAGE).cloned().collect()
        };
        entries.shrink_to_fit();
        let last = match entries.last() {
            Some(entry) if entries.len() == PAGE => entry.seq,
            _ => self.next,
        };
        let missed = if after == 0 {
            0
        } else {
            (oldest.saturating_sub(1)).saturating_sub(after)
        };
        Page {
            entries,
            last,
            missed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(lines: u64) -> Logbook {
        let mut book = Logbook::default();
        for n in 0..lines {
            let role = if n % 2 == 0 { Role::Store } else { Role::Run };
            book.enter((role, 7), (n % 2 == 1).then_some("r1"), &n.to_string());
        }
        book
    }

    #[test]
    fn the_newest_come_first_and_following_misses_nothing() {
        let mut book = book(1_000);
        let page = book.read(None, None, 0);
        assert_eq!(
            (page.entries.len(), page.last, page.missed),
            (PAGE, 1_000, 0)
        );
        assert_eq!(page.entries[0].seq, 501);
        book.enter((Role::Store, 7), None, "new");
        let page = book.read(None, None, 1_000);
        assert_eq!((page.entries.len(), page.last), (1, 1_001));
        assert!(book.read(None, None, 1_001).entries.is_empty());
    }

    #[test]
    fn roles_and_runs_are_told_apart() {
        let book = book(10);
        assert_eq!(book.read(Some("store"), None, 0).entries.len(), 5);
        assert_eq!(book.read(None, Some("r1"), 0).entries.len(), 5);
        assert_eq!(book.read(Some("store"), Some("r1"), 0).entries.len(), 0);
    }

    #[test]
    fn what_was_dropped_is_counted() {
        let book = book(KEPT as u64 + 100);
        assert_eq!(book.entries.len(), KEPT);
        assert_eq!((book.read(None, None, 1).missed, book.dropped()), (99, 100));
    }
}
