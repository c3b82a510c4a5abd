use crate::kit::*;
use ipc_proto::chat::{Block, ChatMessage, ChatRole};
use mono_store::{Limits, Query, Store, StoreError, history, record};
use proptest::prelude::*;

const DAY: i64 = 24 * 60 * 60 * 1000;

fn with(dir: &std::path::Path, change: impl FnOnce(&mut Limits)) -> Store {
    let mut limits = Limits::default();
    change(&mut limits);
    Store::open(dir, limits).unwrap()
}

fn long(bytes: usize) -> Vec<ChatMessage> {
    vec![ChatMessage::text(ChatRole::User, "x".repeat(bytes))]
}

fn known(store: &mut Store, of: &str) -> bool {
    !store
        .latest_history(&conversation(of))
        .unwrap()
        .messages
        .is_empty()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Any sequence of turns of any sizes: what a run is given is bounded, in order, in whole
    /// turns, the newest, and of this conversation only.
    #[test]
    fn history_is_the_newest_whole_turns_within_the_limits(
        turns in prop::collection::vec((1usize..8, any::<bool>(), 0usize..900), 1..14),
    ) {
        let dir = state();
        let mut store = with(dir.path(), |l| { l.history_messages = 10; l.message_bytes = 300; });
        let mut expected: Vec<Vec<String>> = Vec::new();
        for (i, (count, ours, size)) in turns.into_iter().enumerate() {
            let of = if ours { CONVERSATION } else { "noise" };
            let messages: Vec<_> = (0..count)
                .map(|n| ChatMessage::text(ChatRole::User, format!("{i}.{n} {}", "é".repeat(size))))
                .collect();
            turn(&mut store, &format!("r{i}"), of, messages.clone(), 1000);
            if ours {
                let fitted = messages.iter().map(|m| history::fit(&m.content, 300));
                expected.push(fitted.map(|content| ChatMessage { role: ChatRole::User, content }.plain_text()).collect());
            }
        }
        let mut kept = Vec::new();
        for turn in expected.into_iter().rev() {
            if kept.len() + turn.len() > 10 {
                break;
            }
            kept.splice(0..0, turn);
        }
        let begun = store.begin_run(&scope("last", CONVERSATION), &start(), 1000).unwrap();
        for message in &begun.messages {
            prop_assert!(history::size(&message.content) <= 300);
        }
        prop_assert_eq!(texts(&begun.messages), kept);
    }
}

#[test]
fn the_documented_limits_are_the_defaults() {
    let limits = Limits::default();
    assert_eq!(
        (limits.history_messages, limits.message_bytes),
        (64, 64 * 1024)
    );
    assert_eq!(
        (limits.total_bytes, limits.conversations),
        (256 << 20, 10_000)
    );
    assert_eq!(limits.inactive_ms, 365 * DAY);
}

#[test]
fn sixty_four_messages_of_64_kib_are_given_at_most() {
    let dir = state();
    let mut store = open(dir.path());
    for i in 0..40 {
        let text = format!("{i} {}", "\u{1f600}".repeat(30_000));
        let messages = vec![
            ChatMessage::text(ChatRole::User, &text),
            ChatMessage::text(ChatRole::Assistant, "ok"),
        ];
        turn(&mut store, &format!("r{i}"), CONVERSATION, messages, 1000);
    }
    let history = store
        .begin_run(&scope("last", CONVERSATION), &start(), 1000)
        .unwrap()
        .messages;
    assert_eq!(history.len(), 64);
    assert!(history[0].plain_text().starts_with("8 "));
    for message in history.iter().step_by(2) {
        let size = history::size(&message.content);
        assert!((65_500..=65_536).contains(&size), "{size}");
        assert!(message.plain_text().ends_with(history::MARK));
    }
}

#[test]
fn a_turn_over_the_window_keeps_what_the_person_said() {
    let dir = state();
    let mut store = with(dir.path(), |l| l.history_messages = 4);
    turn(&mut store, "r0", CONVERSATION, pair("old"), 1000);
    let mut messages = vec![ChatMessage::text(ChatRole::User, "do it")];
    for i in 0..5 {
        let call = Block::ToolUse {
            id: format!("t{i}"),
            name: "Read".into(),
            arguments: "{}".into(),
        };
        let content = vec![Block::Text {
            text: format!("{i}"),
        }];
        let result = Block::ToolResult {
            id: format!("t{i}"),
            name: "Read".into(),
            content,
            is_error: false,
        };
        messages.push(ChatMessage {
            role: ChatRole::Assistant,
            content: vec![call],
        });
        messages.push(ChatMessage {
            role: ChatRole::User,
            content: vec![result],
        });
    }
    messages.push(ChatMessage::text(ChatRole::Assistant, "done"));
    turn(&mut store, "r1", CONVERSATION, messages.clone(), 1000);
    let history = store
        .begin_run(&scope("r2", CONVERSATION), &start(), 1000)
        .unwrap()
        .messages;
    // The call and its result, which both are in the window, and no half of an earlier one.
    assert_eq!(history, [&messages[..1], &messages[9..]].concat());
}

#[test]
fn the_oldest_inactive_conversations_go_when_the_history_is_full() {
    let dir = state();
    let mut store = with(dir.path(), |l| l.total_bytes = 40_200);
    for (i, of) in ["a", "b", "c"].into_iter().enumerate() {
        turn(
            &mut store,
            &format!("r{i}"),
            of,
            long(10_000),
            1000 + i as i64,
        );
    }
    store
        .begin_run(&scope("busy", "a"), &start(), 2000)
        .unwrap();
    turn(&mut store, "r4", "d", long(10_000), 3000);
    turn(&mut store, "r5", "b", long(100), 4000);
    assert!(["a", "b", "d"].iter().all(|of| known(&mut store, of)));
    // "c" is now the longest inactive one without a running run; "a" has one.
    assert!(!known(&mut store, "c"));
    turn(&mut store, "r6", "e", long(10_000), 5000);
    assert!(known(&mut store, "a") && !known(&mut store, "d") && known(&mut store, "b"));
    assert_eq!(
        store.show_run(&run("r2")).unwrap().unwrap().status,
        "succeeded",
        "the record stays"
    );
}

#[test]
fn a_conversation_gives_up_what_no_run_sees_before_others_go() {
    let dir = state();
    let mut store = with(dir.path(), |l| {
        l.total_bytes = 30_000;
        l.history_messages = 2;
    });
    turn(&mut store, "other", "other", long(10_000), 1);
    for i in 0..6 {
        turn(
            &mut store,
            &format!("r{i}"),
            CONVERSATION,
            long(9_000),
            1000,
        );
    }
    assert!(known(&mut store, "other"));
    assert_eq!(
        store
            .latest_history(&conversation(CONVERSATION))
            .unwrap()
            .messages
            .len(),
        2
    );
}

#[test]
fn a_history_full_of_running_turns_refuses_and_keeps_all() {
    let dir = state();
    let mut store = with(dir.path(), |l| {
        l.total_bytes = 25_000;
        l.conversations = 3;
    });
    for (i, of) in ["a", "b"].into_iter().enumerate() {
        turn(&mut store, &format!("r{i}"), of, long(10_000), 1000);
        store
            .begin_run(&scope(&format!("busy{i}"), of), &start(), 1000)
            .unwrap();
    }
    store.begin_run(&scope("r2", "c"), &start(), 1000).unwrap();
    match store.commit_run(&run("r2"), &commit(long(10_000)), 1000) {
        Err(StoreError::HistoryFull("bytes")) => {}
        other => panic!("{other:?}"),
    }
    match store.begin_run(&scope("r3", "d"), &start(), 1000) {
        Err(StoreError::HistoryFull("conversations")) => {}
        other => panic!("{other:?}"),
    }
    assert!(known(&mut store, "a") && known(&mut store, "b") && !known(&mut store, "c"));
    // The refused commit left the run running: a smaller one goes through.
    store
        .commit_run(&run("r2"), &commit(pair("small")), 1000)
        .unwrap();
}

#[test]
fn conversations_are_counted() {
    let dir = state();
    let mut store = with(dir.path(), |l| l.conversations = 5);
    for i in 0..12 {
        turn(
            &mut store,
            &format!("r{i}"),
            &format!("c{i}"),
            pair("x"),
            1000 + i,
        );
    }
    let left: Vec<_> = (0..12)
        .filter(|i| known(&mut store, &format!("c{i}")))
        .collect();
    assert_eq!(left, [7, 8, 9, 10, 11]);
}

#[test]
fn a_year_without_activity_ends_a_conversation() {
    let dir = state();
    let mut store = open(dir.path());
    turn(&mut store, "r0", "old", pair("x"), 0);
    turn(&mut store, "r1", "busy", pair("x"), 0);
    store.begin_run(&scope("r2", "busy"), &start(), 0).unwrap();
    turn(&mut store, "r3", "new", pair("x"), DAY);
    turn(&mut store, "r4", "now", pair("x"), 365 * DAY);
    assert!(known(&mut store, "old"), "365 days are not over yet");
    turn(&mut store, "r5", "now", pair("x"), 365 * DAY + 1);
    assert!(!known(&mut store, "old") && known(&mut store, "busy") && known(&mut store, "new"));
}

#[test]
fn records_of_runs_are_retired_by_number_and_age_but_never_running_ones() {
    let dir = state();
    let mut store = with(dir.path(), |l| l.runs = 4);
    store.begin_run(&scope("busy", "b"), &start(), 0).unwrap();
    for i in 0..10 {
        turn(&mut store, &format!("r{i}"), CONVERSATION, pair("x"), 1000);
    }
    let query = Query {
        conversation: None,
        status: None,
        limit: 100,
        cursor: None,
    };
    let ids = |store: &mut Store| {
        store
            .list_runs(&query)
            .unwrap()
            .runs
            .into_iter()
            .map(|r| r.run_id)
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&mut store), ["r9", "r8", "r7", "r6", "r5", "busy"]);
    assert_eq!(
        store
            .latest_history(&conversation(CONVERSATION))
            .unwrap()
            .messages
            .len(),
        20
    );
    store
        .begin_run(&scope("late", "l"), &start(), 366 * DAY)
        .unwrap();
    assert_eq!(ids(&mut store), ["late", "busy"]);
}

#[test]
fn the_keys_of_appends_are_kept_for_a_year() {
    let dir = state();
    let mut store = open(dir.path());
    let mut append = |key: &str, now| {
        store
            .append_history(&conversation(CONVERSATION), key, &pair("x"), now)
            .unwrap()
            .repeated
    };
    assert!(!append("old", 0));
    assert!(!append("between", 365 * DAY) && append("old", 365 * DAY));
    assert!(!append("later", 365 * DAY + 1) && !append("old", 365 * DAY + 1));
    assert!(append("between", 365 * DAY + 1));
}

#[test]
fn a_full_disk_is_a_typed_refusal_and_loses_nothing() {
    let dir = state();
    let mut store = with(dir.path(), |l| l.max_pages = 200);
    let mut done = 0;
    let refused = loop {
        let (id, of) = (format!("r{done}"), format!("c{done}"));
        let tried = store
            .begin_run(&scope(&id, &of), &start(), 1000)
            .and_then(|_| store.commit_run(&run(&id), &commit(long(30_000)), 1000));
        match tried {
            Ok(_) => done += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(refused, StoreError::DiskFull), "{refused}");
    assert!(done > 3);
    drop(store);
    let mut store = open(dir.path());
    for i in 0..done {
        assert_eq!(
            texts(
                &store
                    .latest_history(&conversation(&format!("c{i}")))
                    .unwrap()
                    .messages
            )[0]
            .len(),
            30_000
        );
    }
    // With room again, work goes on.
    store.sweep(2000).unwrap();
    turn(&mut store, "after", "after", long(30_000), 3000);
}

#[test]
fn records_give_way_before_the_database_reaches_its_size() {
    let dir = state();
    let mut store = with(dir.path(), |l| {
        l.pages = 150;
        l.max_pages = 300;
        l.conversations = 1;
    });
    for i in 0..60 {
        turn(
            &mut store,
            &format!("r{i}"),
            &format!("c{i}"),
            long(30_000),
            1000,
        );
    }
    assert!(store.show_run(&run("r0")).unwrap().is_none());
    assert!(store.show_run(&run("r59")).unwrap().is_some());
}

#[test]
fn every_bound_of_a_field_is_kept() {
    let dir = state();
    let mut store = open(dir.path());
    let (over, name_over) = (|n: usize| "x".repeat(n + 1), "x".repeat(record::NAME + 1));
    for (source, model) in [
        (name_over.as_str(), "m"),
        ("s", name_over.as_str()),
        ("", "m"),
        ("s", ""),
    ] {
        let start = mono_store::Start {
            source: source.into(),
            model: model.into(),
            ..start()
        };
        assert!(
            store
                .begin_run(&scope("bad", CONVERSATION), &start, 1)
                .is_err()
        );
    }
    let mut wordy = start();
    wordy.user_text = over(record::USER_TEXT);
    wordy.source_detail = Some(over(record::SOURCE_DETAIL));
    store
        .begin_run(&scope("r1", CONVERSATION), &wordy, 1)
        .unwrap();
    let r1 = run("r1");
    let part = ipc_proto::reply::ReplyPart::Failure {
        id: over(record::PARTS),
        code: "c".into(),
        message: "m".into(),
        related_part_id: None,
    };
    let base = || commit(pair("x"));
    let refused = [
        mono_commit(base(), |c| {
            c.messages = vec![c.messages[0].clone(); record::COMMIT_MESSAGES + 1]
        }),
        mono_commit(base(), |c| c.text = over(record::FINAL_TEXT)),
        mono_commit(base(), |c| {
            c.failovers = vec![c.failovers[0].clone(); record::FAILOVERS + 1]
        }),
        mono_commit(base(), |c| c.parts = vec![part]),
    ];
    for commit in refused {
        assert!(matches!(
            store.commit_run(&r1, &commit, 1),
            Err(StoreError::TooLarge { .. })
        ));
    }
    for (call, name) in [
        (name_over.as_str(), "n"),
        ("c", name_over.as_str()),
        ("", "n"),
        ("c", ""),
    ] {
        assert!(store.tool_started(&r1, call, name, "", 1).is_err());
    }
    for i in 0..record::TOOL_CALLS {
        store
            .tool_started(&r1, &format!("t{i}"), "n", "", 1)
            .unwrap();
    }
    assert!(matches!(
        store.tool_started(&r1, "t", "n", "", 1),
        Err(StoreError::TooLarge { .. })
    ));
    let mut failed = failure(false);
    failed.message = over(record::ERROR);
    failed.partial_text = over(record::PARTIAL_TEXT);
    store.fail_run(&r1, &failed, 1).unwrap();
    let shown = store.show_run(&r1).unwrap().unwrap();
    assert_eq!(shown.error.unwrap().len(), record::ERROR);
    assert_eq!(shown.source_detail.unwrap().len(), record::SOURCE_DETAIL);
}

fn mono_commit(
    mut commit: ipc_proto::edges::store::RunCommit,
    change: impl FnOnce(&mut ipc_proto::edges::store::RunCommit),
) -> ipc_proto::edges::store::RunCommit {
    change(&mut commit);
    commit
}
