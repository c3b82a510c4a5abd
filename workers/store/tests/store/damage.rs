use crate::kit::*;
use mono_store::{Limits, Store, StoreError, migrate};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

type Damage = fn(&mut Vec<u8>);

fn filled(dir: &Path) {
    let mut store = open(dir);
    for i in 0..20 {
        turn(
            &mut store,
            &format!("r{i}"),
            &format!("c{i}"),
            pair(&"x".repeat(3000)),
            1000,
        );
    }
}

/// Damages the file, then expects the refusal and an untouched file.
fn refused(change: impl FnOnce(&mut Vec<u8>)) -> StoreError {
    let dir = state();
    filled(dir.path());
    let file = dir.path().join("store.sqlite");
    let mut bytes = fs::read(&file).unwrap();
    change(&mut bytes);
    fs::write(&file, &bytes).unwrap();
    let error = Store::open(dir.path(), Limits::default()).unwrap_err();
    assert!(
        error.to_string().contains(file.to_str().unwrap()),
        "{error} names the file"
    );
    assert!(
        fs::read(&file).unwrap() == bytes,
        "a damaged file is left as it was"
    );
    error
}

#[test]
fn damage_is_reported_and_never_replaced() {
    let page = 4096;
    let cases: [(&str, Damage); 5] = [
        ("empty", |b| b.clear()),
        ("no header", |b| b[..16].fill(b'x')),
        ("cut", |b| b.truncate(b.len() / 2)),
        ("a page of noise", |b| {
            let middle = b.len() / 8192 * 4096;
            b[middle..middle + 4096].fill(0xa5);
        }),
        ("other text", |b| {
            *b = b"not a database at all, but long enough to be looked at".repeat(100)
        }),
    ];
    for (name, change) in cases {
        let error = refused(change);
        assert!(
            matches!(error, StoreError::Corrupt { .. }),
            "{name}: {error}"
        );
    }
    // The schema's own page.
    assert!(matches!(
        refused(|b| b[100..page].fill(0xff)),
        StoreError::Corrupt { .. }
    ));
}

#[test]
fn foreign_and_newer_databases_are_left_alone() {
    for (sql, newer) in [
        ("PRAGMA application_id = 1", false),
        ("PRAGMA application_id = 0", false),
        ("PRAGMA user_version = 99", true),
    ] {
        let dir = state();
        filled(dir.path());
        let db = raw(dir.path());
        db.execute_batch(sql).unwrap();
        // Folds the log into the file, as a clean end does.
        db.close().unwrap();
        let before = fs::read(dir.path().join("store.sqlite")).unwrap();
        match Store::open(dir.path(), Limits::default()).unwrap_err() {
            StoreError::Newer {
                found: 99, known, ..
            } if newer => assert_eq!(known, migrate::latest()),
            StoreError::Foreign { .. } if !newer => {}
            other => panic!("{sql}: {other}"),
        }
        assert!(fs::read(dir.path().join("store.sqlite")).unwrap() == before);
    }
}

#[test]
fn one_process_at_a_time() {
    let dir = state();
    let mut first = open(dir.path());
    let limits = Limits {
        takeover: Duration::from_millis(50),
        ..Limits::default()
    };
    assert!(matches!(
        Store::open(dir.path(), limits),
        Err(StoreError::InUse)
    ));
    // The holder was not disturbed.
    turn(&mut first, "r1", CONVERSATION, pair("1"), 1000);
    drop(first);
    Store::open(dir.path(), limits).unwrap();
}

#[test]
fn everything_on_disk_is_the_owners_alone() {
    let dir = state();
    let mut store = open(dir.path());
    turn(&mut store, "r1", CONVERSATION, pair("1"), 1000);
    let mut names = Vec::new();
    for entry in fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(
            entry.metadata().unwrap().mode() & 0o7777,
            0o600,
            "{:?}",
            entry.file_name()
        );
        names.push(entry.file_name().into_string().unwrap());
    }
    names.sort();
    assert_eq!(names, ["store.sqlite", "store.sqlite-wal"]);
    drop(store);
    let file = dir.path().join("store.sqlite");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o660)).unwrap();
    assert!(matches!(
        Store::open(dir.path(), Limits::default()),
        Err(StoreError::Place(_))
    ));
}

#[test]
fn the_disk_settings_are_in_force() {
    let dir = state();
    let store = open(dir.path());
    assert_eq!(
        store.settings().unwrap(),
        ["wal", "exclusive", "2", "1", "1"]
    );
}

#[test]
fn what_was_evicted_is_gone_from_the_files() {
    let dir = state();
    let mut store = Store::open(
        dir.path(),
        Limits {
            conversations: 1,
            ..Limits::default()
        },
    )
    .unwrap();
    let secret = "a-phrase-that-stands-nowhere-else";
    let messages = vec![ipc_proto::chat::ChatMessage::text(
        ipc_proto::chat::ChatRole::User,
        secret.repeat(200),
    )];
    turn(&mut store, "r1", "a", messages, 1000);
    turn(&mut store, "r2", "b", pair("1"), 2000);
    drop(store);
    let bytes = fs::read(dir.path().join("store.sqlite")).unwrap();
    let found = bytes
        .windows(secret.len())
        .filter(|w| *w == secret.as_bytes())
        .count();
    // The run's record keeps its answer (this helper uses the message as the answer) and nothing else.
    assert!(found <= 200, "{found}");
    assert!(!dir.path().join("store.sqlite-wal").exists());
}
