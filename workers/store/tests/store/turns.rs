use crate::kit::*;
use ipc_proto::chat::{ChatMessage, ChatRole};
use mono_store::{Commitment, PROCESS_DEATH, Start, Status, Store, StoreError};
use std::path::Path;

#[test]
fn a_committed_turn_is_the_next_turns_history() {
    let dir = state();
    let mut store = open(dir.path());
    let begun = store
        .begin_run(&scope("r1", CONVERSATION), &start(), 1000)
        .unwrap();
    assert!(begun.messages.is_empty() && begun.account.is_none());
    assert_eq!(begun.revision, 0);
    let done = store
        .commit_run(&run("r1"), &commit(pair("1")), 2000)
        .unwrap();
    assert_eq!((done.revision, done.repeated), (1, false));
    drop(store);

    let mut store = open(dir.path());
    let again = store
        .begin_run(&scope("r2", CONVERSATION), &start(), 3000)
        .unwrap();
    assert_eq!(texts(&again.messages), ["ask 1", "answer 1"]);
    assert_eq!((again.revision, again.account), (1, None));
    assert_eq!(
        again.epoch, begun.epoch,
        "nothing happened that a provider session doesn't know"
    );
    let other = store
        .begin_run(&scope("r3", "test:c1#2026-01-01"), &start(), 3000)
        .unwrap();
    assert!(
        other.messages.is_empty(),
        "a bucket is another conversation"
    );
}

#[test]
fn a_commit_is_repeated_or_refused_by_content() {
    let dir = state();
    let mut store = open(dir.path());
    store
        .begin_run(&scope("r1", CONVERSATION), &start(), 1000)
        .unwrap();
    store
        .commit_run(&run("r1"), &commit(pair("1")), 2000)
        .unwrap();
    turn(&mut store, "r2", CONVERSATION, pair("2"), 3000);
    let again = store
        .commit_run(&run("r1"), &commit(pair("1")), 9000)
        .unwrap();
    assert_eq!((again.revision, again.repeated), (1, true));
    let mut changed = [commit(pair("1")), commit(pair("1")), commit(pair("x"))];
    changed[0].text.push('.');
    changed[1].usage.output += 1;
    for other in &changed {
        assert!(matches!(
            store.commit_run(&run("r1"), other, 9000),
            Err(StoreError::Conflict(_))
        ));
    }
    assert_eq!(
        texts(
            &store
                .latest_history(&conversation(CONVERSATION))
                .unwrap()
                .messages
        )
        .len(),
        4
    );
}

#[test]
fn the_first_terminal_state_wins() {
    let dir = state();
    let mut store = open(dir.path());
    let ends = [
        Status::Succeeded,
        Status::Failed,
        Status::Cancelled,
        Status::Interrupted,
    ];
    for (i, first) in ends.into_iter().enumerate() {
        for (j, second) in ends.into_iter().enumerate() {
            let (id, of) = (format!("r{i}{j}"), format!("c{i}{j}"));
            store.begin_run(&scope(&id, &of), &start(), 1000).unwrap();
            for (end, is_first) in [(first, true), (second, false)] {
                let got = match end {
                    Status::Succeeded => store
                        .commit_run(&run(&id), &commit(pair("1")), 2000)
                        .map(|_| end),
                    Status::Interrupted => store.interrupt(&run(&id), PROCESS_DEATH, 2000),
                    _ => store.fail_run(&run(&id), &failure(end == Status::Cancelled), 2000),
                };
                match got {
                    Ok(status) => assert_eq!(status, first),
                    Err(StoreError::Ended { status, .. }) => {
                        assert!(!is_first && end == Status::Succeeded && status == first);
                    }
                    Err(e) => panic!("{first} then {second}: {e}"),
                }
            }
            let shown = store.show_run(&run(&id)).unwrap().unwrap();
            assert_eq!(shown.status, first.name());
            let kept = store
                .latest_history(&conversation(&of))
                .unwrap()
                .messages
                .len();
            assert_eq!(kept, if first == Status::Succeeded { 2 } else { 0 });
        }
    }
}

#[test]
fn only_who_began_a_conversation_and_the_operator_go_on_in_it() {
    let dir = state();
    let mut store = open(dir.path());
    let mut tried = 0;
    let mut begin = |store: &mut Store, source: &str, of: &str| {
        tried += 1;
        let start = Start {
            source: source.into(),
            ..start()
        };
        let id = format!("r{tried}");
        let begun = store.begin_run(&scope(&id, of), &start, 1000)?;
        store.commit_run(&run(&id), &commit(pair("1")), 1000)?;
        Ok::<_, StoreError>(begun.messages.len())
    };
    for (owner, others) in [
        ("openai", ["webhook", "webhook:ci", "console"]),
        ("webhook:ci", ["webhook", "webhook:ci2", "openai"]),
        ("terminal", ["webhook", "console", "openai"]),
    ] {
        let of = format!("of {owner}");
        assert_eq!(begin(&mut store, owner, &of).unwrap(), 0);
        for other in others {
            let refused = begin(&mut store, other, &of);
            assert!(matches!(refused, Err(StoreError::Taken)), "{owner} {other}");
        }
        assert_eq!(begin(&mut store, "terminal", &of).unwrap(), 2);
        assert_eq!(begin(&mut store, owner, &of).unwrap(), 4);
    }
    // A refused run leaves nothing.
    assert!(store.show_run(&run("r2")).unwrap().is_none());
    // An answer that was entered before any run belongs to nobody yet.
    let delivered = pair("later");
    let (key, of) = ("d1", conversation("later"));
    store.append_history(&of, key, &delivered, 1000).unwrap();
    assert_eq!(begin(&mut store, "openai", "later").unwrap(), 2);
    assert!(begin(&mut store, "webhook", "later").is_err());
    // What is still told of runs outlives their history, and so does whose they were.
    let sql = "DELETE FROM conversations WHERE id = 'of openai'";
    let mut store = changed(store, dir.path(), sql);
    assert!(begin(&mut store, "webhook", "of openai").is_err());
    assert_eq!(begin(&mut store, "openai", "of openai").unwrap(), 0);
}

/// The store again, after a change behind its back.
fn changed(store: Store, dir: &Path, sql: &str) -> Store {
    drop(store);
    let db = raw(dir);
    db.pragma_update(None, "foreign_keys", true).unwrap();
    db.execute_batch(sql).unwrap();
    drop(db);
    open(dir)
}

#[test]
fn a_run_begins_once_and_alone_in_its_conversation() {
    let dir = state();
    let mut store = open(dir.path());
    store
        .begin_run(&scope("r1", CONVERSATION), &start(), 1000)
        .unwrap();
    assert!(matches!(
        store.begin_run(&scope("r1", "other"), &start(), 1000),
        Err(StoreError::RunExists(_))
    ));
    match store.begin_run(&scope("r2", CONVERSATION), &start(), 1000) {
        Err(StoreError::ConversationBusy(holder)) => assert_eq!(holder, "r1"),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        store.show_run(&run("r2")).unwrap(),
        None,
        "nothing of a refused begin is kept"
    );
    store.interrupt(&run("r1"), PROCESS_DEATH, 2000).unwrap();
    store
        .begin_run(&scope("r2", CONVERSATION), &start(), 3000)
        .unwrap();
}

#[test]
fn a_run_that_went_over_its_memory_has_failed_also_when_its_closed_channel_was_seen_first() {
    let dir = state();
    let mut store = open(dir.path());
    let begin = |store: &mut mono_store::Store, id: &str| {
        store
            .begin_run(&scope(id, CONVERSATION), &start(), 1000)
            .unwrap();
    };
    let shown = |store: &mut mono_store::Store, id: &str| {
        let record = store.show_run(&run(id)).unwrap().unwrap();
        (record.status, record.failure_kind.unwrap(), record.error)
    };
    let failed = (
        "failed".to_owned(),
        "memory_limit".to_owned(),
        Some("used more memory than sandbox.memoryMaxBytes allows".to_owned()),
    );
    for (id, first) in [("r1", None), ("r2", Some("worker_lost"))] {
        begin(&mut store, id);
        if let Some(first) = first {
            store.interrupt(&run(id), first, 2000).unwrap();
        }
        let status = store.interrupt(&run(id), "memory_limit", 2001).unwrap();
        assert_eq!(
            (status, shown(&mut store, id)),
            (Status::Failed, failed.clone())
        );
        // The other order, too.
        store.interrupt(&run(id), "worker_lost", 2002).unwrap();
        assert_eq!(shown(&mut store, id), failed);
    }
    // Any other end stands as it is.
    begin(&mut store, "r3");
    store.interrupt(&run("r3"), PROCESS_DEATH, 2000).unwrap();
    store.interrupt(&run("r3"), "memory_limit", 2001).unwrap();
    assert_eq!(shown(&mut store, "r3").1, PROCESS_DEATH);
}

#[test]
fn doubt_about_a_provider_session_is_a_new_epoch() {
    let dir = state();
    let mut store = open(dir.path());
    let mut epochs = Vec::new();
    let mut begin = |store: &mut mono_store::Store, id: &str| {
        let begun = store
            .begin_run(&scope(id, CONVERSATION), &start(), 1000)
            .unwrap();
        epochs.push(begun.epoch);
    };
    begin(&mut store, "r0");
    store
        .commit_run(&run("r0"), &commit(pair("0")), 1000)
        .unwrap();
    begin(&mut store, "r1"); // [1] as [0]: clean
    store.fail_run(&run("r1"), &failure(false), 1000).unwrap();
    begin(&mut store, "r2"); // [2] new: a failed turn may have reached the provider
    store
        .commit_run(&run("r2"), &commit(pair("2")), 1000)
        .unwrap();
    begin(&mut store, "r3"); // [3] as [2]: clean again
    store
        .append_history(&conversation(CONVERSATION), "d1", &pair("d")[1..], 1000)
        .unwrap();
    store
        .commit_run(&run("r3"), &commit(pair("3")), 1000)
        .unwrap();
    begin(&mut store, "r4"); // [4] new: the history changed under r3
    drop(store);
    let mut store = open(dir.path());
    assert_eq!(store.sweep(2000).unwrap(), 1);
    begin(&mut store, "r5"); // [5] new: the process died
    assert_eq!(epochs[0], epochs[1]);
    assert_eq!(epochs[2], epochs[3]);
    for (a, b) in [(1, 2), (3, 4), (4, 5), (0, 2), (0, 4)] {
        assert_ne!(epochs[a], epochs[b], "{a} {b}");
    }
    let history = store.latest_history(&conversation(CONVERSATION)).unwrap();
    assert_eq!(
        texts(&history.messages),
        [
            "ask 0", "answer 0", "ask 2", "answer 2", "answer d", "ask 3", "answer 3"
        ]
    );
    assert_eq!(history.revision, 4);
}

#[test]
fn unsuccessful_turns_are_told_until_a_turn_succeeds() {
    let dir = state();
    let mut store = open(dir.path());
    store
        .begin_run(&scope("r1", CONVERSATION), &start(), 1000)
        .unwrap();
    store
        .tool_started(
            &run("r1"),
            "t1",
            "Bash",
            "{\"command\":\"TOKEN=abc123 make\"}",
            1001,
        )
        .unwrap();
    store.fail_run(&run("r1"), &failure(true), 1002).unwrap();
    store
        .begin_run(&scope("r2", CONVERSATION), &start(), 2000)
        .unwrap();
    store.interrupt(&run("r2"), PROCESS_DEATH, 2001).unwrap();
    let account = store
        .begin_run(&scope("r3", CONVERSATION), &start(), 3000)
        .unwrap()
        .account
        .unwrap();
    for expected in [
        "was cancelled (cancelled)",
        "> please deploy",
        "> Working on it",
        "tool Bash (interrupted), with: {\"command\":\"TOKEN=[redacted] make\"}",
        "process ended (process_death)",
    ] {
        assert!(account.contains(expected), "{expected} in {account}");
    }
    store
        .commit_run(&run("r3"), &commit(pair("3")), 3001)
        .unwrap();
    assert_eq!(
        store
            .begin_run(&scope("r4", CONVERSATION), &start(), 4000)
            .unwrap()
            .account,
        None
    );
    assert_eq!(
        store
            .begin_run(&scope("r5", "another"), &start(), 4000)
            .unwrap()
            .account,
        None
    );
}

#[test]
fn a_start_ends_what_was_running() {
    let dir = state();
    let mut store = open(dir.path());
    turn(&mut store, "done", "a", pair("1"), 1000);
    store
        .begin_run(&scope("lost", "b"), &start(), 1000)
        .unwrap();
    store
        .tool_started(&run("lost"), "t1", "Bash", "{}", 1000)
        .unwrap();
    drop(store);
    let mut store = open(dir.path());
    assert_eq!(store.sweep(5000).unwrap(), 1);
    assert_eq!(store.sweep(6000).unwrap(), 0);
    let lost = store.show_run(&run("lost")).unwrap().unwrap();
    assert_eq!(
        (lost.status.as_str(), lost.failure_kind.as_deref()),
        ("interrupted", Some("process_death"))
    );
    assert_eq!(
        (lost.duration_ms, lost.tools[0].state.as_str()),
        (Some(4000), "interrupted")
    );
    for (id, expected) in [
        ("done", Commitment::Committed),
        ("lost", Commitment::Failed),
        ("never", Commitment::Unknown),
    ] {
        assert_eq!(store.commitment(&run(id)).unwrap(), expected);
    }
    store.begin_run(&scope("now", "b"), &start(), 7000).unwrap();
    assert_eq!(store.commitment(&run("now")).unwrap(), Commitment::Running);
}

#[test]
fn an_append_without_a_run_enters_once() {
    let dir = state();
    let mut store = open(dir.path());
    let (to, message) = (
        conversation(CONVERSATION),
        [ChatMessage::text(ChatRole::Assistant, "later")],
    );
    let first = store
        .append_history(&to, "delivery-1", &message, 1000)
        .unwrap();
    let again = store
        .append_history(&to, "delivery-1", &message, 2000)
        .unwrap();
    assert_eq!(
        (
            first.revision,
            first.repeated,
            again.revision,
            again.repeated
        ),
        (1, false, 1, true)
    );
    let other = [ChatMessage::text(ChatRole::Assistant, "different")];
    for (to, message) in [(&to, &other), (&conversation("elsewhere"), &message)] {
        assert!(matches!(
            store.append_history(to, "delivery-1", message, 1),
            Err(StoreError::Conflict(_))
        ));
    }
    assert!(matches!(
        store.append_history(&to, "k", &[], 1),
        Err(StoreError::Invalid { .. })
    ));
    assert_eq!(
        texts(&store.latest_history(&to).unwrap().messages),
        ["later"]
    );
    assert!(
        store
            .latest_history(&conversation("elsewhere"))
            .unwrap()
            .messages
            .is_empty()
    );
}

#[test]
fn tool_calls_are_recorded_while_the_run_is_running() {
    let dir = state();
    let mut store = open(dir.path());
    let r1 = run("r1");
    assert!(matches!(
        store.tool_started(&r1, "t", "Bash", "{}", 1),
        Err(StoreError::UnknownRun(_))
    ));
    store
        .begin_run(&scope("r1", CONVERSATION), &start(), 1000)
        .unwrap();
    // The same id again, as some models do.
    for at in [1000, 1010] {
        store.tool_started(&r1, "call_0", "Read", "{}", at).unwrap();
        store
            .tool_ended(&r1, "call_0", "success", "text", at + 7)
            .unwrap();
    }
    store
        .tool_started(&r1, "call_1", "Bash", &"é".repeat(5000), 1020)
        .unwrap();
    for (call, state) in [
        ("call_0", "success"),
        ("call_9", "success"),
        ("call_1", "running"),
        ("call_1", "x"),
    ] {
        let refused = store.tool_ended(&r1, call, state, "", 1);
        assert!(
            matches!(refused, Err(StoreError::Invalid { .. })),
            "{call} {state}"
        );
    }
    let tools = store.show_run(&r1).unwrap().unwrap().tools;
    let lines: Vec<_> = tools
        .iter()
        .map(|t| (t.id.as_str(), t.state.as_str(), t.duration_ms))
        .collect();
    assert_eq!(
        lines,
        [
            ("call_0", "success", Some(7)),
            ("call_0", "success", Some(7)),
            ("call_1", "running", None)
        ]
    );
    store.commit_run(&r1, &commit(pair("1")), 2000).unwrap();
    assert!(matches!(
        store.tool_ended(&r1, "call_1", "success", "", 1),
        Err(StoreError::Ended { .. })
    ));
    assert!(matches!(
        store.tool_started(&r1, "t", "Bash", "", 1),
        Err(StoreError::Ended { .. })
    ));
    assert_eq!(
        store.show_run(&r1).unwrap().unwrap().tools[2].state,
        "interrupted"
    );
}
