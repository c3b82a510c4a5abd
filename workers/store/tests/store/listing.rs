use crate::kit::*;
use mono_store::{Query, Status, StoreError};

fn all() -> Query {
    Query {
        conversation: None,
        status: None,
        limit: 100,
        cursor: None,
    }
}

#[test]
fn pages_meet_without_gap_or_overlap_while_runs_begin() {
    let dir = state();
    let mut store = open(dir.path());
    for i in 0..10 {
        turn(
            &mut store,
            &format!("r{i}"),
            &format!("c{}", i % 2),
            pair("x"),
            1000 + i,
        );
    }
    let mut query = Query { limit: 3, ..all() };
    let mut seen = Vec::new();
    loop {
        let page = store.list_runs(&query).unwrap();
        seen.extend(page.runs.into_iter().map(|r| r.run_id));
        turn(
            &mut store,
            &format!("new{}", seen.len()),
            "c9",
            pair("y"),
            9000,
        );
        match page.next_cursor {
            Some(next) => query.cursor = Some(next),
            None => break,
        }
    }
    let expected: Vec<_> = (0..10).rev().map(|i| format!("r{i}")).collect();
    assert_eq!(seen, expected);
}

#[test]
fn a_listing_is_filtered_by_conversation_and_status() {
    let dir = state();
    let mut store = open(dir.path());
    turn(&mut store, "ok0", "a", pair("x"), 1000);
    for (id, of, cancelled) in [
        ("bad0", "a", false),
        ("bad1", "b", false),
        ("off0", "a", true),
    ] {
        store.begin_run(&scope(id, of), &start(), 1000).unwrap();
        store.fail_run(&run(id), &failure(cancelled), 1500).unwrap();
    }
    store.begin_run(&scope("on0", "b"), &start(), 1000).unwrap();
    let mut ids = |conversation: Option<&str>, status| {
        let query = Query {
            conversation: conversation.map(crate::kit::conversation),
            status,
            ..all()
        };
        let page = store.list_runs(&query).unwrap();
        assert_eq!(page.next_cursor, None);
        page.runs.into_iter().map(|r| r.run_id).collect::<Vec<_>>()
    };
    assert_eq!(ids(None, None), ["on0", "off0", "bad1", "bad0", "ok0"]);
    assert_eq!(ids(Some("a"), None), ["off0", "bad0", "ok0"]);
    assert_eq!(ids(Some("a"), Some(Status::Failed)), ["bad0"]);
    assert_eq!(ids(None, Some(Status::Failed)), ["bad1", "bad0"]);
    assert_eq!(ids(Some("b"), Some(Status::Running)), ["on0"]);
    assert!(ids(Some("nobody"), None).is_empty());
}

#[test]
fn limits_and_cursors_fail_closed() {
    let dir = state();
    let mut store = open(dir.path());
    assert!(matches!(
        store.list_runs(&Query { limit: 0, ..all() }),
        Err(StoreError::Invalid { .. })
    ));
    assert!(matches!(
        store.list_runs(&Query {
            limit: 101,
            ..all()
        }),
        Err(StoreError::TooLarge { .. })
    ));
    for bad in [
        "",
        "r",
        "r0",
        "r-1",
        "r01",
        "r+1",
        "x1",
        "1",
        "rffffffffffffffff",
        "r1 ",
        "R1",
    ] {
        let refused = store.list_runs(&Query {
            cursor: Some(bad.into()),
            ..all()
        });
        assert!(
            matches!(
                refused,
                Err(StoreError::Invalid {
                    field: "cursor",
                    ..
                })
            ),
            "{bad}"
        );
    }
}

#[test]
fn a_shown_run_has_everything_and_a_listed_one_is_short() {
    let dir = state();
    let mut store = open(dir.path());
    store
        .begin_run(&scope("r1", CONVERSATION), &start(), 1_767_225_600_000)
        .unwrap();
    let done = commit(pair("1"));
    store
        .commit_run(&run("r1"), &done, 1_767_225_601_500)
        .unwrap();
    let shown = store.show_run(&run("r1")).unwrap().unwrap();
    assert_eq!(shown.started_at, "2026-01-01T00:00:00Z");
    assert_eq!(shown.ended_at.as_deref(), Some("2026-01-01T00:00:01.5Z"));
    assert_eq!(
        (shown.duration_ms, shown.text.as_deref()),
        (Some(1500), Some("answer 1"))
    );
    assert_eq!(
        (&shown.usage, &shown.failover_history),
        (&done.usage, &done.failovers)
    );
    assert_eq!(shown.messages.len(), 2);
    let listed = store.list_runs(&all()).unwrap().runs.remove(0);
    assert_eq!((listed.text, listed.messages.len()), (None, 0));
    assert_eq!(listed.usage, done.usage);
    assert_eq!(store.show_run(&run("r2")).unwrap(), None);
}
