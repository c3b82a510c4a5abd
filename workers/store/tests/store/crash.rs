//! `kill -9` in the middle of commits: what was acknowledged is there, and nothing is half there.

use crate::kit::*;
use mono_store::{Commitment, Store};
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const CHILD: &str = "MONO_STORE_CRASH_CHILD";
const ROUNDS: u64 = 30;

/// Messages of a turn; their number and size differ, so that a half commit would show.
fn messages(id: &str) -> Vec<ipc_proto::chat::ChatMessage> {
    let n: usize = id.bytes().map(usize::from).sum();
    (0..2 + n % 5)
        .flat_map(|i| pair(&format!("{id} {i} {}", "x".repeat(n * 37 % 5000))))
        .collect()
}

/// Commits without end and says each one that was acknowledged.
fn child(dir: &Path, round: &str) -> ! {
    let mut store = open(dir);
    store.sweep(1000).unwrap();
    for i in 0.. {
        let id = format!("r{round}.{i}");
        let of = format!("c{}", i % 3);
        store.begin_run(&scope(&id, &of), &start(), 1000).unwrap();
        store
            .tool_started(&run(&id), "t", "Read", "{}", 1000)
            .unwrap();
        store
            .commit_run(&run(&id), &commit(messages(&id)), 1000)
            .unwrap();
        let mut out = std::io::stdout().lock();
        writeln!(out, "ack {id}").unwrap();
        out.flush().unwrap();
    }
    unreachable!("the loop has no end")
}

#[test]
fn acknowledged_commits_outlive_kill_9_and_no_half_commit_does() {
    if let Ok(round) = env::var(CHILD) {
        child(
            Path::new(&env::var("MONO_STORE_CRASH_DIR").unwrap()),
            &round,
        );
    }
    let dir = state();
    let mut acknowledged = Vec::new();
    let mut begun_only = 0;
    for round in 0..ROUNDS {
        let mut process = Command::new(env::current_exe().unwrap())
            .args([
                "--exact",
                "crash::acknowledged_commits_outlive_kill_9_and_no_half_commit_does",
                "--nocapture",
            ])
            .env(CHILD, round.to_string())
            .env("MONO_STORE_CRASH_DIR", dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let wanted = 1 + (round * 7) % 11;
        let mut acks = 0;
        let mut take = |line: String| {
            // The harness may have written on the same line before.
            if let Some(at) = line.find("ack ") {
                acknowledged.push(line[at + 4..].to_owned());
                return 1;
            }
            0
        };
        while acks < wanted {
            acks += take(lines.next().unwrap().unwrap());
        }
        // Not to wait for anything: the kill falls on another point of a commit in each round.
        std::thread::sleep(Duration::from_micros(round * 173 % 4000));
        process.kill().unwrap();
        assert_eq!(process.wait().unwrap().signal(), Some(9));
        for line in lines {
            take(line.unwrap());
        }
        begun_only += check(dir.path(), &acknowledged);
    }
    assert!(acknowledged.len() as u64 > ROUNDS);
    // The kills did fall between begin and commit, or this test would prove little.
    assert!(begun_only > 0);
}

/// Returns how many runs the kill left without a commit.
fn check(dir: &Path, acknowledged: &[String]) -> usize {
    let mut store: Store = open(dir);
    let swept = store.sweep(2000).unwrap();
    for id in acknowledged {
        assert_eq!(
            store.commitment(&run(id)).unwrap(),
            Commitment::Committed,
            "{id}"
        );
        let shown = store.show_run(&run(id)).unwrap().unwrap();
        assert_eq!(shown.messages.len(), messages(id).len(), "{id}");
        // Repeating the commit finds it unchanged.
        assert!(
            store
                .commit_run(&run(id), &commit(messages(id)), 3000)
                .unwrap()
                .repeated,
            "{id}"
        );
    }
    drop(store);
    let db = raw(dir);
    let count = |sql: &str| -> u64 { db.query_row(sql, [], |row| row.get(0)).unwrap() };
    assert_eq!(
        count("SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"),
        0
    );
    assert_eq!(
        count(
            "SELECT count(*) FROM messages WHERE turn NOT IN (SELECT id FROM runs WHERE status = 'succeeded')"
        ),
        0
    );
    assert_eq!(
        count(
            "SELECT count(*) FROM runs WHERE status = 'succeeded' AND id NOT IN (SELECT turn FROM messages)"
        ),
        0
    );
    assert_eq!(
        count(
            "SELECT count(*) FROM conversations AS c WHERE bytes <>
                 (SELECT coalesce(sum(bytes), 0) FROM messages WHERE conversation = c.key)
             OR next_seq <> (SELECT coalesce(max(seq), 0) + 1 FROM messages WHERE conversation = c.key)"
        ),
        0
    );
    // A revision for each commit, and each fence either lifted or left by a run without a commit.
    assert_eq!(
        count(
            "SELECT count(*) FROM provider_sessions JOIN conversations AS c ON c.key = conversation
             WHERE revision <> (SELECT count(*) FROM runs WHERE conversation = c.id AND status = 'succeeded')
             OR dirty IN (SELECT id FROM runs WHERE status = 'succeeded')"
        ),
        0
    );
    swept
}
