//! The loop against fakes: every owner is one struct with a script and a log.
#![allow(clippy::unwrap_used)]

mod calls;
mod claims;
mod drafts;
mod endpoint;
mod fake;
mod markers;
mod posts;

use super::stream::{MAX_CALLS, MAX_TEXT};
use super::*;
use crate::owners::ModelEvent;
use fake::{Bench, Fake, Step, call, done, echo_tool, failed, text, wants};
use ipc_proto::edges::egress::ProviderStage;
use serde_json::json;

#[tokio::test]
async fn a_turn_ends_in_its_one_order() {
    let bench = Bench::new();
    let fake = Fake::answering([vec![text("Hel"), text("lo"), done()]]);
    let outcome = bench.run(&fake).await;
    assert_eq!(
        outcome,
        Outcome {
            status: RunStatus::Succeeded,
            failure_kind: None
        }
    );
    assert_eq!(
        fake.log(),
        [
            "event Started",
            "begin",
            "list",
            "complete",
            "event Append",
            "event Append",
            "finalise",
            "commit",
            "event Finish"
        ]
    );
    let commit = fake.commit();
    assert_eq!(
        (commit.text.as_str(), commit.model.as_str()),
        ("Hello", "demo:one")
    );
    let said: Vec<_> = commit
        .messages
        .iter()
        .map(|m| (m.role, m.plain_text()))
        .collect();
    assert_eq!(
        said,
        [
            (ChatRole::User, "do it".to_owned()),
            (ChatRole::Assistant, "Hello".to_owned())
        ]
    );
    let request = &fake.requests.borrow()[0];
    assert!(
        request.system.contains("IDENTITY") && request.tools.iter().any(|tool| tool.name == "Bash")
    );
}

#[tokio::test]
async fn a_restart_takes_back_only_the_failed_attempt() {
    let bench = Bench::new();
    let fake = Fake::answering([
        vec![
            text("First."),
            call("1", "Glob", json!({"pattern": "*"})),
            wants(),
        ],
        vec![
            text("Wro"),
            call("x", "Bash", json!({"command": "false"})),
            Step::Say(ModelEvent::Restart),
            text("Right."),
            done(),
        ],
    ]);
    assert_eq!(bench.run(&fake).await.status, RunStatus::Succeeded);
    assert_eq!(fake.shown(), "First.\n\nRight.");
    assert_eq!(fake.commit().text, "First.\n\nRight.");
    let replaced = fake
        .events
        .borrow()
        .iter()
        .any(|e| matches!(e, RunEvent::Replace { text } if text == "First."));
    assert!(replaced && !fake.log().iter().any(|line| line.contains("Bash")));
}

#[tokio::test]
async fn a_restart_before_any_text_replaces_nothing() {
    let fake = Fake::answering([vec![Step::Say(ModelEvent::Restart), text("x"), done()]]);
    Bench::new().run(&fake).await;
    assert!(!fake.log().contains(&"event Replace".to_owned()));
}

#[tokio::test]
async fn cancelling_in_the_stream_leaves_an_account_and_no_commit() {
    let bench = Bench::new();
    let fake = Fake::answering([vec![text("Half an ans"), Step::Hang]]);
    fake.cancel_at("event Append", bench.cancel.clone());
    let outcome = bench.run(&fake).await;
    assert_eq!(
        outcome,
        Outcome {
            status: RunStatus::Cancelled,
            failure_kind: Some("cancelled".into())
        }
    );
    assert!(fake.streams_dropped.get() == 1 && fake.commits.borrow().is_empty());
    let failure = fake.failure();
    assert_eq!(
        (failure.partial_text.as_str(), failure.user_text.as_str()),
        ("Half an ans", "do it")
    );
    assert!(failure.cancelled && failure.message.contains("asked to"));
    assert!(
        fake.logged("discard") < fake.logged("fail")
            && fake.logged("fail") < fake.logged("event Failed")
    );
}

#[tokio::test]
async fn cancelling_in_a_tool_drops_the_call_and_records_it() {
    let bench = Bench::new();
    let fake = Fake::answering([vec![call("1", "echo", json!({})), wants()], vec![done()]]);
    fake.tools.borrow_mut().push(echo_tool("s"));
    fake.mcp.borrow_mut().push_back(vec![]);
    fake.cancel_at("call s echo", bench.cancel.clone());
    assert_eq!(bench.run(&fake).await.status, RunStatus::Cancelled);
    assert!(fake.log().contains(&"tool_ended 1 cancelled".to_owned()));
    assert_eq!(
        (fake.calls_dropped.get(), fake.requests.borrow().len()),
        (1, 1)
    );
}

#[tokio::test]
async fn a_cancellation_after_the_commit_was_sent_comes_too_late() {
    let bench = Bench::new();
    let fake = Fake::answering([vec![text("x"), done()]]);
    fake.cancel_at("commit", bench.cancel.clone());
    assert_eq!(bench.run(&fake).await.status, RunStatus::Succeeded);
    assert!(fake.log().ends_with(&["event Finish".to_owned()]));
    let fake = Fake::answering([vec![text("x"), done()]]);
    let bench = Bench::new();
    fake.cancel_at("finalise", bench.cancel.clone());
    assert_eq!(bench.run(&fake).await.status, RunStatus::Cancelled);
    assert!(fake.commits.borrow().is_empty() && fake.log().contains(&"discard".to_owned()));
}

#[tokio::test]
async fn a_run_that_nobody_listens_to_is_cancelled() {
    let fake = Fake::answering([vec![text("x"), done()]]);
    fake.nobody_listens.set(true);
    assert_eq!(Bench::new().run(&fake).await.status, RunStatus::Cancelled);
    assert!(fake.failure().message.contains("the channel is gone"));
}

#[tokio::test(start_paused = true)]
async fn nothing_waits_for_ever() {
    let mut start = tokio::time::Instant::now();
    let mut waited = || {
        std::mem::replace(&mut start, tokio::time::Instant::now())
            .elapsed()
            .as_secs()
    };
    let fake = Fake::answering([vec![text("x"), done()]]);
    fake.listener_sleeps.set(true);
    let cancelled = Bench::new().run(&fake).await;
    assert_eq!(cancelled.status, RunStatus::Cancelled);
    assert!(fake.failure().message.contains("takes no events"));
    // The last event finds no listener either.
    assert!((300..320).contains(&waited()));

    let fake = Fake::answering([vec![Step::Hang]]);
    assert_eq!(
        Bench::new().run(&fake).await.failure_kind.as_deref(),
        Some("model_silent")
    );
    assert_eq!(waited(), 30 * 60);

    let fake = Fake::answering([vec![text("x"), done()]]);
    fake.listing_hangs.set(true);
    assert_eq!(Bench::new().run(&fake).await.status, RunStatus::Succeeded);
    assert_eq!(fake.warnings(), ["mcp_list_tools_failed"]);
    assert_eq!(waited(), 60);
}

#[tokio::test]
async fn a_models_failure_is_recorded_with_its_kind() {
    let fake = Fake::answering([vec![text("Par"), failed("provider_auth")]]);
    let outcome = Bench::new().run(&fake).await;
    assert_eq!(
        outcome,
        Outcome {
            status: RunStatus::Failed,
            failure_kind: Some("provider_auth".into())
        }
    );
    let failure = fake.failure();
    assert_eq!(
        (failure.failure_kind.as_str(), failure.partial_text.as_str()),
        ("provider_auth", "Par")
    );
    assert_eq!(failure.failovers.len(), 1);
    assert!(!failure.cancelled && fake.log().contains(&"discard".to_owned()));
}

#[tokio::test]
async fn the_partial_text_of_a_failure_is_cut() {
    let long = "é".repeat(MAX_PARTIAL);
    let fake = Fake::answering([vec![text(&long), failed("network")]]);
    Bench::new().run(&fake).await;
    assert_eq!(fake.failure().partial_text, "é".repeat(MAX_PARTIAL / 2));
}

#[tokio::test]
async fn max_turns_counts_model_requests_and_zero_is_no_bound() {
    let again = || vec![call("", "Glob", json!({"pattern": "*"})), wants()];
    for (max_turns, answers, kind) in [
        (Some(2), 2, Some("max_turns".to_owned())),
        (Some(3), 2, None),
        (Some(0), 9, None),
        (None, 9, None),
    ] {
        let mut script: Vec<Vec<Step>> = (0..answers).map(|_| again()).collect();
        script.push(vec![text("x"), done()]);
        let fake = Fake::answering(script);
        let bench = Bench {
            max_turns,
            ..Bench::new()
        };
        assert_eq!(bench.run(&fake).await.failure_kind, kind, "{max_turns:?}");
    }
}

#[tokio::test]
async fn a_lost_worker_fails_the_turn_and_is_named() {
    // (what is lost, the worker, discarded, recorded)
    let table = [
        ("begin", "store", true, false),
        ("list", "app-bridge", true, true),
        ("complete", "egress", true, true),
        ("tool_started 1 echo", "store", true, false),
        ("call s echo", "app-bridge", true, true),
        ("finalise", "artifact", false, true),
        ("commit", "store", false, false),
    ];
    for (lost, worker, discarded, recorded) in table {
        let fake = Fake::answering([
            vec![call("1", "echo", json!({})), wants()],
            vec![text("x"), done()],
        ]);
        fake.tools.borrow_mut().push(echo_tool("s"));
        *fake.lose.borrow_mut() = Some((lost, worker));
        let outcome = Bench::new().run(&fake).await;
        assert_eq!(
            outcome.failure_kind.as_deref(),
            Some("worker_lost"),
            "{lost}"
        );
        assert_eq!(
            fake.log().contains(&"discard".to_owned()),
            discarded,
            "{lost}"
        );
        assert_eq!(!fake.failures.borrow().is_empty(), recorded, "{lost}");
        let events = fake.events.borrow();
        let Some(RunEvent::Failed {
            cancelled: false,
            kind,
            message,
        }) = events.last()
        else {
            panic!("{events:?}")
        };
        assert!(
            kind == "worker_lost" && message.contains(worker),
            "{message}"
        );
    }
}

#[tokio::test]
async fn an_answer_of_a_fallback_says_so_in_one_line() {
    let mut script = vec![text("Hi."), done()];
    if let Some(Step::Say(ModelEvent::Done {
        failovers, model, ..
    })) = script.last_mut()
    {
        failovers.push(fake::failover());
        *model = "demo:two".into();
    }
    let fake = Fake::answering([script]);
    Bench::new().run(&fake).await;
    let commit = fake.commit();
    assert_eq!(
        commit.text,
        "Hi.\n\n[Answered by demo:two; demo:one was not available (overloaded).]"
    );
    assert_eq!(
        (
            commit.messages[1].plain_text().as_str(),
            commit.text == fake.shown()
        ),
        ("Hi.", true)
    );
    assert_eq!(commit.failovers.len(), 1);
}

#[tokio::test]
async fn an_empty_or_cut_answer_is_committed_with_a_warning() {
    let fake = Fake::answering([vec![done()]]);
    assert_eq!(Bench::new().run(&fake).await.status, RunStatus::Succeeded);
    assert_eq!(
        (fake.warnings(), fake.commit().text.as_str()),
        (vec!["empty_answer".to_owned()], "")
    );
    assert_eq!(fake.commit().messages[1].plain_text(), NO_TEXT);
    let cut = ModelEvent::Done {
        finish: FinishReason::Length,
        model: "m".into(),
        failovers: vec![],
    };
    let fake = Fake::answering([vec![text("x"), Step::Say(cut)]]);
    Bench::new().run(&fake).await;
    assert_eq!(fake.warnings(), ["answer_cut"]);
}

#[tokio::test]
async fn long_texts_travel_in_bounded_pieces() {
    let long = "ü".repeat(MAX_PIECE);
    let fake = Fake::answering([vec![
        text(&long),
        Step::Say(ModelEvent::Thought(long.clone())),
        done(),
    ]]);
    Bench::new().run(&fake).await;
    let events = fake.events.borrow();
    let fits = |event: &RunEvent| match event {
        RunEvent::Append { text } | RunEvent::Thought { text } => text.len() <= MAX_PIECE,
        _ => true,
    };
    assert!(events.iter().all(fits));
    drop(events);
    assert_eq!(fake.shown(), long);
}

#[tokio::test]
async fn an_answer_over_its_bounds_ends_the_turn() {
    let most = "x".repeat(MAX_TEXT - 1024);
    let kind = async |script: Vec<Step>| {
        Bench::new()
            .run(&Fake::answering([script, vec![done()]]))
            .await
            .failure_kind
    };
    assert_eq!(kind(vec![text(&most), done()]).await, None);
    assert_eq!(
        kind(vec![text(&most), text("y"), done()]).await.as_deref(),
        Some("answer_too_large")
    );
    let calls = |n: usize| {
        let mut script: Vec<Step> = (0..n).map(|_| call("", "Unknown", json!({}))).collect();
        script.push(wants());
        script
    };
    assert_eq!(kind(calls(MAX_CALLS)).await, None);
    let arguments = json!({"x": "y".repeat(8 * 1024 * 1024)});
    assert_eq!(
        kind(vec![call("1", "Glob", arguments), wants()])
            .await
            .as_deref(),
        Some("answer_too_large")
    );
    assert_eq!(
        kind(calls(MAX_CALLS + 1)).await.as_deref(),
        Some("answer_too_large")
    );
}

#[tokio::test]
async fn usage_and_stages_are_passed_on_and_added_up() {
    let usage = Usage {
        input: 3,
        output: 2,
        ..Usage::default()
    };
    let stage = ModelEvent::Status {
        stage: ProviderStage::RetryStarted,
        model: "m".into(),
        detail: None,
    };
    let round = |last| {
        vec![
            Step::Say(stage.clone()),
            Step::Say(ModelEvent::Usage(usage.clone())),
            last,
        ]
    };
    let mut first = round(call("1", "Glob", json!({"pattern": "*"})));
    first.push(wants());
    let fake = Fake::answering([first, round(done())]);
    Bench::new().run(&fake).await;
    assert_eq!(
        (fake.commit().usage.input, fake.commit().usage.output),
        (6, 4)
    );
    assert!(fake.log().contains(&"event ProviderStatus".to_owned()));
}

#[test]
fn history_keeps_text_and_only_says_that_there_was_an_image() {
    let image = Block::Image {
        media_type: "image/png".into(),
        data: "AAAA".into(),
    };
    let message = ChatMessage {
        role: ChatRole::User,
        content: vec![
            Block::Text {
                text: "see ".into(),
            },
            image,
        ],
    };
    assert_eq!(stored(&message).plain_text(), "see [image/png, 3 bytes]");
    let long = ChatMessage::text(ChatRole::User, "x".repeat(MAX_MESSAGE + 1));
    assert_eq!(stored(&long).plain_text().len(), MAX_MESSAGE);
}

#[tokio::test]
async fn a_first_transcript_is_kept_up_to_the_historys_window() {
    let fake = Fake::answering([vec![text("x"), done()]]);
    Bench {
        preceding: 100,
        ..Bench::new()
    }
    .run(&fake)
    .await;
    let messages = fake.commit().messages;
    assert_eq!(
        (messages.len(), messages[0].plain_text().as_str()),
        (MAX_HISTORY, "before 38")
    );
    assert_eq!(fake.requests.borrow()[0].messages.len(), 101);
}

#[tokio::test]
async fn a_transcript_is_not_added_again_to_a_conversation_that_is_known() {
    let fake = Fake::answering([vec![text("x"), done()]]);
    *fake.history.borrow_mut() = vec![ChatMessage::text(ChatRole::User, "earlier")];
    Bench {
        preceding: 3,
        ..Bench::new()
    }
    .run(&fake)
    .await;
    assert_eq!(fake.commit().messages.len(), 2);
    let asked = fake.requests.borrow()[0].messages.clone();
    assert!(
        asked.iter().all(|m| !m.plain_text().contains("before")),
        "{asked:?}"
    );
    assert_eq!(asked[0].plain_text(), "earlier");
}

#[tokio::test]
async fn a_worker_that_dies_while_a_tool_runs_ends_the_turn_at_once() {
    let call = call("1", "echo", json!({}));
    let fake = Fake::answering([vec![call, wants()]]);
    fake.tools.borrow_mut().push(fake::echo_tool("s"));
    fake.mcp.borrow_mut().push_back(vec![]);
    fake.dies_at.set(Some("call s echo"));
    let outcome = Bench::new().run(&fake).await;
    assert_eq!(outcome.failure_kind.as_deref(), Some("worker_lost"));
    assert_eq!(fake.calls_dropped.get(), 1);
    assert!(fake.failures.borrow().is_empty() && fake.log().contains(&"discard".to_owned()));
}
