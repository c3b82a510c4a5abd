use crate::kit::*;
use mono_store::{Limits, Start, Store, StoreError, migrate, place::Place};
use rusqlite::Connection;
use sha2::{Digest, Sha256};
use std::path::Path;

/// A database as a release with schema `number` left it, with data in every table it had.
fn build(dir: &Path, number: u32) {
    let place = Place::prepare(dir, mono_store::db::create).unwrap();
    let mut db = Connection::open(place.database()).unwrap();
    db.pragma_update(None, "foreign_keys", true).unwrap();
    migrate::up_to(&mut db, number).unwrap();
    assert_eq!(migrate::current(&db).unwrap(), number);
    if number >= 1 {
        db.execute_batch(
            r#"INSERT INTO conversations (key, id, created_at, active_at, next_seq, bytes)
                   VALUES (1, 'test:c1', 1000, 2000, 3, 74);
               INSERT INTO messages (conversation, seq, turn, role, content, bytes, created_at) VALUES
                   (1, 1, 'r1', 'user', '[{"type":"text","text":"ask 1"}]', 32, 1000),
                   (1, 2, 'r1', 'assistant', '[{"type":"text","text":"answer 1"}]', 35, 2000);
               INSERT INTO runs (key, id, conversation, delivery, source, model, status, started_at,
                       ended_at, user_text, final_text) VALUES
                   (1, 'r1', 'test:c1', 'test:c1', 'terminal', 'demo:scripted', 'succeeded', 1000, 2000, 'ask 1', 'answer 1'),
                   (2, 'r2', 'test:c1', 'test:c1', 'terminal', 'demo:scripted', 'running', 3000, NULL, 'ask 2', NULL);"#,
        )
        .unwrap();
    }
    if number >= 2 {
        db.execute_batch(
            "INSERT INTO tool_calls (run, position, call, name, state, arguments, preview, started_at, completed_at)
             VALUES (1, 1, 't1', 'Read', 'success', '{}', 'text', 1100, 1200);",
        )
        .unwrap();
    }
    if number >= 3 {
        db.execute_batch(
            "INSERT INTO provider_sessions (conversation, epoch, revision, dirty, dirty_since)
             VALUES (1, 'e1', 1, 'r2', 3000);
             UPDATE runs SET revision = 1 WHERE key = 1;
             UPDATE runs SET base_revision = 1 WHERE key = 2;",
        )
        .unwrap();
    }
}

#[test]
fn every_earlier_schema_comes_up_to_date_with_its_data() {
    for number in 0..=migrate::latest() {
        let dir = state();
        build(dir.path(), number);
        let mut store = Store::open(dir.path(), Limits::default()).unwrap();
        assert_eq!(
            store.sweep(4000).unwrap(),
            usize::from(number >= 1),
            "from {number}"
        );
        if number >= 1 {
            let begun = store
                .begin_run(&scope("r3", CONVERSATION), &start(), 5000)
                .unwrap();
            assert_eq!(
                texts(&begun.messages),
                ["ask 1", "answer 1"],
                "from {number}"
            );
            assert!(begun.account.unwrap().contains("> ask 2"));
            let shown = store.show_run(&run("r1")).unwrap().unwrap();
            assert_eq!(shown.text.as_deref(), Some("answer 1"));
            assert_eq!(shown.tools.len(), usize::from(number >= 2), "from {number}");
        } else {
            store
                .begin_run(&scope("r3", CONVERSATION), &start(), 5000)
                .unwrap();
        }
        store
            .tool_started(&run("r3"), "t1", "Read", "{}", 5001)
            .unwrap();
        store
            .tool_ended(&run("r3"), "t1", "success", "", 5002)
            .unwrap();
        store
            .commit_run(&run("r3"), &commit(pair("3")), 5003)
            .unwrap();
        drop(store);
        let db = raw(dir.path());
        assert_eq!(migrate::current(&db).unwrap(), migrate::latest());
        let check: String = db
            .query_row("PRAGMA integrity_check", [], |r| r.get(0))
            .unwrap();
        assert_eq!(check, "ok", "from {number}");
        let orphans = db
            .prepare("PRAGMA foreign_key_check")
            .unwrap()
            .query_map([], |_| Ok(()))
            .unwrap()
            .count();
        assert_eq!(orphans, 0, "from {number}");
    }
}

#[test]
fn conversations_from_before_belong_to_the_client_that_used_them_last() {
    let dir = state();
    build(dir.path(), 6);
    let db = raw(dir.path());
    db.execute_batch(
        "UPDATE runs SET status = 'succeeded', ended_at = 3000, source = 'openai' WHERE key = 1;
         UPDATE runs SET status = 'succeeded', ended_at = 3000 WHERE key = 2;",
    )
    .unwrap();
    drop(db);
    let mut store = open(dir.path());
    let mut begin = |source: &str| {
        let start = Start {
            source: source.into(),
            ..start()
        };
        let begun = store.begin_run(&scope("r3", CONVERSATION), &start, 5000);
        begun.map(|history| history.messages.len())
    };
    assert!(matches!(begin("webhook"), Err(StoreError::Taken)));
    assert_eq!(begin("openai").unwrap(), 2);
}

#[test]
fn threads_from_before_are_weighed_once() {
    let dir = state();
    build(dir.path(), 7);
    let db = raw(dir.path());
    db.execute_batch(
        "INSERT INTO console_threads (key, id, created_at, updated_at, bytes) VALUES
             (1, 't1', 1, 1, 77), (2, 't2', 1, 1, 0);
         INSERT INTO console_messages (thread, id, role, status, created_at, text, detail, bytes, lease)
             VALUES (1, 'm1', 'user', 'succeeded', 1, 'abc', '{}', 5, 0),
                    (1, 'm2', 'assistant', 'succeeded', 1, 'd', '{}', 3, 0);",
    )
    .unwrap();
    drop(db);
    drop(open(dir.path()));
    let weighed: Vec<(u64, u64)> = raw(dir.path())
        .prepare("SELECT bytes, messages FROM console_threads ORDER BY key")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(weighed, [(8, 2), (0, 0)]);
}

/// A step that ran on somebody's database is history: a change of it would never run there.
#[test]
fn numbered_steps_are_never_edited() {
    let known = [
        "1cffbc4f8b9d80934475bb99634ac559a429f82ac08bd6c22e8248c1f98316fb",
        "4eab2c597c32485835757e67559f0a9bbf18e6f96e275dbda08edc490b02fe42",
        "98c0d954e7c3a359594afdbfb4d97dd490004b52855488bf2f573ef535385c32",
        "ec2bf5c837a4d2bc9d16913ebe3a7642a850260966d15cb45119ebc1a56890d6",
        "901680d5d27627dea58b239eb231c1549da393bf29dfb24363303ea4623f47c4",
        "0b5c0da3ad4c6718ed8e15c5a1362ff919d768596860f98381ef30dea6afad0d",
        "2860df5d5aa1421abef78702291ab8adc587b27f4e40637d3386ae36171966c1",
        "f64f28e0772b6e8c4926388049ebb3ee633d9be0090c54ca594cba65023e4222",
    ];
    let found = migrate::STEPS.map(|step| hex::encode(Sha256::digest(step)));
    assert_eq!(found, known, "add a new step instead");
}

#[test]
fn every_path_ends_in_the_same_schema() {
    let schema = |dir: &Path| -> Vec<String> {
        let db = raw(dir);
        let mut rows = db
            .prepare("SELECT coalesce(sql, name) FROM sqlite_schema ORDER BY name")
            .unwrap();
        rows.query_map([], |r| r.get(0))
            .unwrap()
            .map(Result::unwrap)
            .collect()
    };
    let fresh = state();
    drop(open(fresh.path()));
    for number in 0..=migrate::latest() {
        let dir = state();
        build(dir.path(), number);
        drop(open(dir.path()));
        assert_eq!(schema(dir.path()), schema(fresh.path()), "from {number}");
    }
}

#[test]
fn a_step_that_fails_leaves_the_number_before() {
    let dir = state();
    build(dir.path(), 1);
    let db = raw(dir.path());
    db.execute_batch("CREATE TABLE tool_calls (in_the_way)")
        .unwrap();
    drop(db);
    assert!(Store::open(dir.path(), Limits::default()).is_err());
    let db = raw(dir.path());
    assert_eq!(migrate::current(&db).unwrap(), 1);
    let kept: u32 = db
        .query_row("SELECT count(*) FROM messages", [], |r| r.get(0))
        .unwrap();
    assert_eq!(kept, 2);
}

#[test]
fn the_database_is_kept_as_it_was_before_its_schema_changes() {
    let latest = migrate::latest();
    for number in 0..=latest {
        let dir = state();
        build(dir.path(), number);
        let store = Store::open(dir.path(), Limits::default()).unwrap();
        let kept = mono_store::db::earlier(store.path(), number);
        drop(store);
        assert_eq!(
            kept.exists(),
            (1..latest).contains(&number),
            "from {number}"
        );
        if !kept.exists() {
            continue;
        }
        let meta = std::fs::metadata(&kept).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::mode(&meta) & 0o777, 0o600);
        let db = Connection::open(&kept).unwrap();
        assert_eq!(migrate::current(&db).unwrap(), number);
        let asked: String = db
            .query_row("SELECT user_text FROM runs WHERE id = 'r1'", [], |row| {
                row.get(0)
            })
            .unwrap();
        assert_eq!(asked, "ask 1");
        let id: i32 = db
            .query_row("PRAGMA application_id", [], |row| row.get(0))
            .unwrap();
        assert_eq!(id, migrate::APPLICATION_ID, "an earlier release takes it");
        // Nothing else is left, and a second start changes nothing.
        let names = || {
            let entries = std::fs::read_dir(dir.path()).unwrap();
            let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
            names
                .filter(|n| n.contains("partial") || n.contains("before"))
                .count()
        };
        assert_eq!(names(), 1);
        drop(db);
        Store::open(dir.path(), Limits::default()).unwrap();
        assert_eq!(names(), 1);
    }
}

#[test]
fn a_copy_that_cannot_be_made_leaves_the_database_as_it_is() {
    let dir = state();
    build(dir.path(), 1);
    let place = Place::prepare(dir.path(), mono_store::db::create).unwrap();
    let kept = mono_store::db::earlier(place.database(), 1);
    // Something that can't be removed as a file stands in the way.
    std::fs::create_dir(kept.with_extension("partial")).unwrap();
    let refused = Store::open(dir.path(), Limits::default()).unwrap_err();
    assert!(refused.to_string().contains("it is unchanged"), "{refused}");
    let db = Connection::open(place.database()).unwrap();
    assert_eq!(migrate::current(&db).unwrap(), 1);
}
