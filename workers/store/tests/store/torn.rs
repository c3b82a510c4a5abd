//! Writes that fail in the middle of a commit. The limit that makes them fail is the process's, so
//! a child of its own goes into it.

use crate::kit::*;
use mono_store::StoreError;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use std::env;
use std::path::Path;
use std::process::Command;

const CHILD: &str = "MONO_STORE_TORN_CHILD";
const NAME: &str =
    "torn::a_write_that_fails_in_a_commit_loses_nothing_and_the_commit_can_be_repeated";

#[test]
fn a_write_that_fails_in_a_commit_loses_nothing_and_the_commit_can_be_repeated() {
    if let Ok(dir) = env::var(CHILD) {
        return child(Path::new(&dir));
    }
    let dir = state();
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(CHILD, dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("every write failed once"),
        "{output:?}"
    );
}

/// From now on no file grows over `bytes`.
fn limit(bytes: u64) {
    let (_, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    setrlimit(Resource::RLIMIT_FSIZE, bytes.min(hard), hard).unwrap();
}

fn child(dir: &Path) {
    // The kernel's signal for this would end the process; blocked, the error code is left.
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGXFSZ);
    blocked.thread_block().unwrap();
    let mut store = open(dir);
    let log = dir.join("store.sqlite-wal");
    let mut failures = 0;
    // Each round lets a few more pages of the commit through, until all of them are.
    for round in 0_u64.. {
        let (id, of) = (format!("r{round}"), format!("c{round}"));
        store.begin_run(&scope(&id, &of), &start(), 1000).unwrap();
        let commit = commit(pair(&"x".repeat(40_000)));
        limit(std::fs::metadata(&log).unwrap().len() + round * 6000);
        let tried = store.commit_run(&run(&id), &commit, 2000);
        limit(u64::MAX);
        let whole = match tried {
            Ok(_) => true,
            Err(StoreError::Database(_) | StoreError::DiskFull) => {
                failures += 1;
                assert_eq!(
                    store.show_run(&run(&id)).unwrap().unwrap().status,
                    "running"
                );
                assert!(
                    store
                        .latest_history(&conversation(&of))
                        .unwrap()
                        .messages
                        .is_empty()
                );
                assert!(!store.commit_run(&run(&id), &commit, 2000).unwrap().repeated);
                false
            }
            Err(e) => panic!("{e}"),
        };
        for earlier in 0..=round {
            let of = conversation(&format!("c{earlier}"));
            assert_eq!(store.latest_history(&of).unwrap().messages, commit.messages);
        }
        // The log is reused from its beginning after a checkpoint: then the limit lets all pass.
        if whole && failures > 3 {
            break;
        }
    }
    println!("every write failed once: {failures}");
}
