//! What the console's threads may hold, and what it costs to know how much they do.

use crate::console::{asked, begin, edit, new, person, reply, save, show, tried};
use crate::kit::*;
use ipc_proto::console::{
    Activity, ActivityKind, Ask, Begun, MAX_ACTIVITY, MAX_QUEUED, MAX_TEXT, Message, Standing,
    Thread,
};
use mono_store::{Store, StoreError, console};
use rusqlite::StatementStatus;
use std::path::Path;

#[test]
fn bounds_hold() {
    let dir = state();
    let mut store = open(dir.path());
    new(&mut store, "t1", 1);
    for n in 0..=MAX_QUEUED {
        asked::<serde_json::Value>(&mut store, begin("t1", &n.to_string(), "q", None), 2);
    }
    let more = tried::<serde_json::Value>(&mut store, begin("t1", "x", "q", None), 2);
    assert!(matches!(more, Err(StoreError::QueueFull)), "{more:?}");

    new(&mut store, "t2", 1);
    let over = |store: &mut Store, change: fn(&mut Message)| {
        let mut reply = reply("big", "", Standing::Running);
        change(&mut reply);
        let user = person("small", "q");
        let ask = Ask::Begin {
            thread: "t2".into(),
            user,
            reply,
            replaces: None,
        };
        tried::<serde_json::Value>(store, ask, 2)
    };
    let step = Activity {
        id: "c".into(),
        kind: ActivityKind::Status,
        name: None,
        title: None,
        arguments: None,
        result: None,
        is_error: false,
        started_at: 1,
        ended_at: None,
        truncated: false,
        text: None,
    };
    assert!(over(&mut store, |m| m.text = "x".repeat(MAX_TEXT + 1)).is_err());
    assert!(over(&mut store, |m| m.status = Standing::Succeeded).is_err());
    assert!(over(&mut store, |m| m.id = "a b".into()).is_err());
    assert!(over(&mut store, |m| m.id = "x".repeat(65)).is_err());
    assert!(over(&mut store, |m| m.id = "u1".into()).is_err());
    let mut many = reply("a1", "", Standing::Running);
    many.activity = vec![step; MAX_ACTIVITY + 1];
    assert!(tried::<()>(&mut store, Ask::Save { message: many }, 2).is_err());
    assert!(show(&mut store, "t2").messages.is_empty());
    for ask in [
        Ask::NewThread { id: "t1".into() },
        Ask::NewThread { id: "../x".into() },
        Ask::NewThread { id: String::new() },
        edit("nope", None, None, None),
        begin("nope", "y", "q", None),
        save("nope", "", Standing::Failed),
        Ask::ShowMessage { id: "nope".into() },
        Ask::RemoveSession { id: "nope".into() },
    ] {
        assert!(
            tried::<serde_json::Value>(&mut store, ask.clone(), 3).is_err(),
            "{ask:?}"
        );
    }
}

#[test]
fn threads_and_the_messages_of_one_are_bounded_in_number() {
    let dir = state();
    let mut store = open(dir.path());
    new(&mut store, "t1", 1);
    drop(store);
    // Each by its own call would take minutes on a slow disk.
    let raw = raw(dir.path());
    let many = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)";
    let threads = "INSERT INTO console_threads (id, created_at, updated_at)
                   SELECT 'many-' || i, 1, 1 FROM n";
    raw.execute(&format!("{many} {threads}"), [4_998]).unwrap();
    let messages = "INSERT INTO console_messages
                    (thread, id, role, status, created_at, text, detail, bytes, lease)
                    SELECT (SELECT key FROM console_threads WHERE id = 't1'),
                           'm-' || i, 'user', 'succeeded', 1, 'x', '{}', 3, 0 FROM n";
    raw.execute(&format!("{many} {messages}"), [9_998]).unwrap();
    drop(raw);
    let mut store = open(dir.path());
    new(&mut store, "last", 1);
    let full = tried::<Thread>(&mut store, Ask::NewThread { id: "more".into() }, 1);
    assert!(
        matches!(full, Err(StoreError::ConsoleFull("threads"))),
        "{full:?}"
    );
    let begun =
        |store: &mut Store, n| tried::<serde_json::Value>(store, begin("t1", n, "q", None), 2);
    begun(&mut store, "1").unwrap();
    let full = begun(&mut store, "2");
    let of_this =
        matches!(&full, Err(StoreError::ConsoleFull(what)) if what.contains("this thread"));
    assert!(of_this, "{full:?}");
    // Another thread has its own.
    asked::<serde_json::Value>(&mut store, begin("last", "3", "q", None), 2);
}

#[test]
fn the_console_never_fills_the_store() {
    let dir = state();
    let mut store = open(dir.path());
    new(&mut store, "t1", 1);
    let large = "x".repeat(MAX_TEXT);
    let most = console::BYTES / MAX_TEXT as u64;
    let refused = (0..=most).find(|n| {
        let ask = begin("t1", &n.to_string(), &large, None);
        let begun = tried::<serde_json::Value>(&mut store, ask, 2);
        if let Err(e) = &begun {
            assert!(matches!(e, StoreError::ConsoleFull("bytes")), "{e}");
            return true;
        }
        let ended = tried::<()>(&mut store, save(&n.to_string(), "", Standing::Failed), 3);
        ended.unwrap();
        false
    });
    let refused = refused.unwrap();
    assert!(refused >= most - 2, "{refused} of {most}");
    assert_eq!(
        show(&mut store, "t1").messages.last().unwrap().id,
        format!("a{}", refused - 1)
    );
}

/// What each thread is said to hold, and what its messages do.
fn sums(dir: &Path) -> Vec<[(u64, u64); 2]> {
    let db = raw(dir);
    let mut statement = db
        .prepare(
            "SELECT t.bytes, t.messages, coalesce(sum(m.bytes), 0), count(m.key)
             FROM console_threads AS t LEFT JOIN console_messages AS m ON m.thread = t.key
             GROUP BY t.key ORDER BY t.key",
        )
        .unwrap();
    let rows = statement.query_map([], |row| {
        Ok([(row.get(0)?, row.get(1)?), (row.get(2)?, row.get(3)?)])
    });
    rows.unwrap().map(Result::unwrap).collect()
}

#[test]
fn what_a_thread_holds_follows_every_change_of_its_messages() {
    let dir = state();
    let mut store = open(dir.path());
    for thread in ["t1", "t2", "t3"] {
        new(&mut store, thread, 1);
    }
    for n in ["1", "2", "3"] {
        asked::<Begun>(&mut store, begin("t1", n, "ask", None), 2);
        let grown = save(n, &"x".repeat(100), Standing::Succeeded);
        asked::<()>(&mut store, grown, 3);
    }
    asked::<()>(&mut store, save("3", "shorter", Standing::Succeeded), 4);
    asked::<Begun>(&mut store, begin("t1", "4", "instead", Some("u2")), 5);
    asked::<Begun>(&mut store, begin("t2", "5", "open", None), 6);
    store.interrupt_replies(None).unwrap();
    // A change that is refused is none.
    let refused = tried::<()>(&mut store, begin("t1", "4", "again", None), 7);
    assert!(refused.is_err());
    asked::<Begun>(&mut store, begin("t3", "6", "gone", None), 8);
    asked::<()>(&mut store, save("6", "", Standing::Failed), 8);
    let id = "t3".to_owned();
    asked::<()>(&mut store, Ask::RemoveThread { id }, 9);
    drop(store);
    let found = sums(dir.path());
    assert_eq!(found.len(), 2);
    for [said, held] in found {
        assert_eq!(said, held);
        assert!(held.0 > 0 && held.1 > 1);
    }
}

/// To save a message is as much work in a long thread as in a short one.
#[test]
fn a_saved_message_does_not_read_the_others() {
    let dir = state();
    let mut store = open(dir.path());
    new(&mut store, "short", 1);
    new(&mut store, "long", 1);
    asked::<Begun>(&mut store, begin("short", "s", "ask", None), 2);
    for n in 0..500 {
        let n = format!("l{n}");
        asked::<Begun>(&mut store, begin("long", &n, "ask", None), 2);
        asked::<()>(&mut store, save(&n, "", Standing::Failed), 2);
    }
    drop(store);
    let db = raw(dir.path());
    let steps = |message: &str| {
        let mut statement = db
            .prepare(
                "UPDATE console_messages SET detail = '{ }', bytes = octet_length(text) + 3
                 WHERE id = ?1",
            )
            .unwrap();
        assert_eq!(statement.execute([message]).unwrap(), 1);
        statement.get_status(StatementStatus::VmStep)
    };
    let (short, long) = (steps("as"), steps("al499"));
    assert!(short > 0 && short == long, "{short} {long}");
    drop(db);
    for [said, held] in sums(dir.path()) {
        assert_eq!(said, held);
    }
}
