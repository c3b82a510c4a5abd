#![allow(clippy::unwrap_used)]

use super::super::quota::Bounds;
use super::super::vault::tests::{app, folder, id};
use super::super::vault::{Hook, Usage};
use super::*;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Entries are all of about this length.
const ENTRY: u64 = 220;
/// A log file of the tests.
const MAX_SEGMENT: u64 = 20 * ENTRY;

fn at() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn nobody(_: &Card) -> bool {
    false
}

fn bounds(reserve: u64) -> Bounds {
    Bounds {
        reserve,
        segment: MAX_SEGMENT,
        ..Bounds::default()
    }
}

struct Bench {
    temp: tempfile::TempDir,
    vault: Arc<Vault>,
}

impl Bench {
    fn new(reserve: u64) -> Self {
        Self::hooked(reserve, None)
    }

    fn hooked(reserve: u64, hook: Option<Hook>) -> Self {
        let temp = tempfile::tempdir().unwrap();
        Self::at(temp, reserve, hook)
    }

    fn at(temp: tempfile::TempDir, reserve: u64, hook: Option<Hook>) -> Self {
        let vault = Vault::with(folder(temp.path()), 1_000, bounds(reserve), hook).unwrap();
        Self {
            temp,
            vault: Arc::new(vault),
        }
    }

    fn with_apps(self, count: usize) -> Self {
        for n in 0..count {
            self.vault.publish(&app(n, "<p>"), 1_000).unwrap();
        }
        for run in ["run-0", "run-1"] {
            let all: Vec<String> = (0..count).map(id).collect();
            self.vault.keep(run, &all).unwrap();
        }
        self
    }

    fn begin(&self, n: usize) -> Result<Ticket, AuditError> {
        self.vault
            .begin(&id(n), Method::Call, Phase::Confirmed, at(), &nobody)
    }

    fn note(&self, n: usize) -> Result<(), AuditError> {
        self.vault
            .note(&id(n), Method::Call, Phase::Rejected, at(), &nobody)
    }

    fn fill(&self, n: usize, bytes: u64) {
        let before = self.usage().audit;
        while self.usage().audit < before + bytes {
            self.note(n).unwrap();
        }
    }

    fn usage(&self) -> Usage {
        self.vault.usage()
    }

    fn file(&self, n: usize, name: &str) -> PathBuf {
        self.temp.path().join("apps").join(id(n)).join(name)
    }
}

#[test]
fn an_entry_says_only_what_the_host_knows() {
    let bench = Bench::new(1 << 20).with_apps(1);
    bench.begin(0).unwrap().complete(at()).unwrap();
    let entries = bench.vault.log(&id(0)).unwrap();
    let entry = |phase: &str| {
        json!({ "at": "2027-01-15T08:00:00.000Z", "invocationId": id(0),
            "connectionId": "c".repeat(32), "method": "tools/call", "details": { "phase": phase } })
    };
    assert_eq!(entries, [entry("confirmed"), entry("completed")]);
}

#[test]
fn the_end_is_written_into_room_that_was_set_aside() {
    let bench = Bench::new(4 * ENTRY).with_apps(2);
    let ticket = bench.begin(0).unwrap();
    // The other may have the rest, not what is owed.
    while bench.note(1).is_ok() && bench.vault.log(&id(1)).unwrap().len() < 9 {}
    assert!(bench.usage().audit <= 4 * ENTRY);
    ticket.complete(at()).unwrap();
    let phases: Vec<_> = bench.vault.log(&id(0)).unwrap();
    assert_eq!(phases[1]["details"]["phase"], "completed");
    // With the end in it, too.
    let written = |n: usize| fs::metadata(bench.file(n, LOGS[0])).unwrap().len();
    assert!(written(0) + written(1) <= 4 * ENTRY);
}

#[test]
fn whoever_leaves_in_the_middle_leaves_an_end() {
    let bench = Bench::new(1 << 20).with_apps(1);
    drop(bench.begin(0).unwrap());
    assert_eq!(bench.vault.log(&id(0)).unwrap().len(), 2);
    let usage = bench.usage();
    assert_eq!(
        usage.audit,
        fs::metadata(bench.file(0, LOGS[0])).unwrap().len()
    );
}

#[test]
fn a_log_is_rotated_at_its_bound_and_keeps_two_older_ones() {
    let bench = Bench::new(8 * MAX_SEGMENT).with_apps(1);
    bench.fill(0, 3 * MAX_SEGMENT - 4 * ENTRY);
    for name in LOGS {
        let bytes = fs::metadata(bench.file(0, name)).unwrap().len();
        assert!(bytes <= MAX_SEGMENT && bytes > 0, "{name} {bytes}");
    }
    let oldest = fs::read(bench.file(0, LOGS[1])).unwrap();
    while fs::read(bench.file(0, LOGS[2])).unwrap() != oldest {
        bench.note(0).unwrap();
    }
    assert!(bench.usage().audit <= 3 * MAX_SEGMENT);
    let files = fs::read_dir(bench.file(0, "")).unwrap();
    assert_eq!(
        files
            .filter(|f| f
                .as_ref()
                .unwrap()
                .file_name()
                .to_string_lossy()
                .contains("audit"))
            .count(),
        3
    );
}

#[test]
fn room_is_made_of_history_first_and_of_no_protected_log() {
    let reserve = 3 * MAX_SEGMENT;
    let bench = Bench::new(reserve).with_apps(3);
    bench.fill(0, MAX_SEGMENT + 10 * ENTRY);
    bench.fill(1, reserve - bench.usage().audit - 2 * ENTRY);
    assert!(bench.file(0, LOGS[1]).exists() && bench.file(1, LOGS[1]).exists());
    // The third app's entries cost the one with most its history, and nobody else anything.
    for _ in 0..4 {
        bench.note(2).unwrap();
    }
    assert!(!bench.file(0, LOGS[1]).exists() && bench.file(1, LOGS[1]).exists());
    assert!(bench.file(0, LOGS[0]).exists() && bench.file(1, LOGS[0]).exists());
    assert!(bench.usage().audit <= reserve);
}

#[test]
fn when_nothing_may_go_nothing_goes_and_nothing_is_done() {
    let bench = Bench::new(6 * ENTRY).with_apps(3);
    bench.fill(0, 2 * ENTRY);
    bench.fill(1, 2 * ENTRY);
    let before = fs::read(bench.file(0, LOGS[0])).unwrap();
    let seen = |card: &Card| card.id != id(2);
    let refused = loop {
        match bench
            .vault
            .begin(&id(2), Method::Call, Phase::Confirmed, at(), &seen)
        {
            Ok(ticket) => ticket.complete(at()).unwrap(),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, AuditError::Full));
    assert_eq!(fs::read(bench.file(0, LOGS[0])).unwrap(), before);
    assert!(bench.file(1, LOGS[0]).exists());
    // One that nobody looks at any more makes room.
    let seen = |card: &Card| card.id == id(1);
    for _ in 0..3 {
        bench
            .vault
            .note(&id(2), Method::Call, Phase::Rejected, at(), &seen)
            .unwrap();
    }
    assert!(!bench.file(0, LOGS[0]).exists() && bench.file(1, LOGS[0]).exists());
}

#[test]
fn a_log_under_way_is_no_candidate() {
    let bench = Bench::new(5 * ENTRY).with_apps(2);
    let ticket = bench.begin(0).unwrap();
    while bench
        .vault
        .note(&id(1), Method::Call, Phase::Rejected, at(), &|c| {
            c.id == id(1)
        })
        .is_ok()
    {}
    assert!(bench.file(0, LOGS[0]).exists());
    ticket.complete(at()).unwrap();
}

#[test]
fn payloads_do_not_block_the_audit() {
    let temp = tempfile::tempdir().unwrap();
    let bounds = Bounds {
        ceiling: 20_000,
        ..bounds(4_000)
    };
    let vault = Vault::with(folder(temp.path()), 1_000, bounds, None).unwrap();
    let vault = Arc::new(vault);
    let page = "x".repeat(5_000);
    let mut n = 1;
    while vault.publish(&app(n, &page), 1_000).is_ok() {
        n += 2;
    }
    vault.keep("run-1", &[id(1), id(3), id(5)]).unwrap();
    let ticket = vault
        .begin(&id(1), Method::Call, Phase::Confirmed, at(), &nobody)
        .unwrap();
    ticket.complete(at()).unwrap();
    assert!(vault.card(&id(3)).is_some());
}

fn exchange(path: &Path) {
    let copy = path.with_extension("copy");
    fs::copy(path, &copy).unwrap();
    fs::remove_file(path).unwrap();
    fs::rename(&copy, path).unwrap();
}

#[test]
fn a_file_that_is_exchanged_in_the_middle_is_not_written_to() {
    for point in [Point::Append, Point::Rotate, Point::Reclaim] {
        let place: Arc<Mutex<Option<PathBuf>>> = Arc::default();
        let seen = place.clone();
        let hook: Hook = Arc::new(move |now| {
            if now == point
                && let Some(path) = seen.lock().unwrap().take()
            {
                exchange(&path);
            }
        });
        let bench = Bench::hooked(3 * MAX_SEGMENT, Some(hook)).with_apps(2);
        let victim = match point {
            Point::Append => {
                bench.note(0).unwrap();
                bench.file(0, LOGS[0])
            }
            Point::Rotate => {
                bench.fill(0, MAX_SEGMENT - ENTRY);
                bench.file(0, LOGS[0])
            }
            _ => {
                bench.fill(1, MAX_SEGMENT + ENTRY);
                bench.fill(0, 3 * MAX_SEGMENT - bench.usage().audit - ENTRY);
                if bench.file(0, LOGS[2]).exists() {
                    bench.file(0, LOGS[2])
                } else {
                    bench.file(0, LOGS[1])
                }
            }
        };
        let before = fs::read(&victim).unwrap();
        *place.lock().unwrap() = Some(victim.clone());
        let mut refused = false;
        for _ in 0..4 {
            refused |= matches!(
                bench.note(usize::from(point == Point::Reclaim)),
                Err(AuditError::Vault(VaultError::Changed(_)))
            );
        }
        assert!(refused, "{point:?}");
        assert_eq!(fs::read(&victim).unwrap(), before, "{point:?}");
    }
}

#[test]
fn links_are_never_followed_and_second_names_never_written() {
    let bench = Bench::new(1 << 20).with_apps(2);
    bench.note(0).unwrap();
    bench.note(1).unwrap();
    let outside = bench.temp.path().join("outside");
    fs::write(&outside, b"precious").unwrap();
    fs::remove_file(bench.file(0, LOGS[0])).unwrap();
    std::os::unix::fs::symlink(&outside, bench.file(0, LOGS[0])).unwrap();
    assert!(bench.note(0).is_err());
    fs::hard_link(bench.file(1, LOGS[0]), bench.temp.path().join("second")).unwrap();
    assert!(bench.note(1).is_err());
    assert_eq!(fs::read(&outside).unwrap(), b"precious");
}

#[test]
fn after_a_start_the_books_are_as_before_and_a_torn_line_hurts_nobody() {
    let bench = Bench::new(1 << 20).with_apps(1);
    bench.begin(0).unwrap().complete(at()).unwrap();
    let audit = bench.usage().audit;
    let Bench { temp, vault } = bench;
    drop(vault);
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(temp.path().join("apps").join(id(0)).join(LOGS[0]))
        .unwrap();
    std::io::Write::write_all(&mut file, b"{\"at\":\"20").unwrap();
    let bench = Bench::at(temp, 1 << 20, None);
    assert_eq!(bench.usage().audit, audit + 9);
    bench.note(0).unwrap();
    let phases: Vec<_> = bench.vault.log(&id(0)).unwrap();
    let phases: Vec<_> = phases
        .iter()
        .map(|e| e["details"]["phase"].clone())
        .collect();
    assert_eq!(phases, ["confirmed", "completed", "rejected"]);
}
