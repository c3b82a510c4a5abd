//! The loop against fakes: every owner is one struct with a script and a log.
#![allow(clippy::unwrap_used)]

mod fake;

use super::stream::{MAX_CALLS, MAX_TEXT};
use super::*;
use crate::owners::{Denied, McpEvent, ModelEvent};
use fake::{Bench, Fake, Step, call, done, echo_tool, failed, text, wants};
use ipc_proto::edges::app_bridge::McpResult;
use ipc_proto::edges::egress::ProviderStage;
use serde_json::json;

fn results(request: &ModelRequest) -> Vec<(String, String, bool)> {
    let last = request.messages.last().unwrap();
    let result = |block: &Block| match block {
        Block::ToolResult {
            id,
            content,
            is_error,
            ..
        } => {
            let message = ChatMessage {
                role: ChatRole::User,
                content: content.clone(),
            };
            Some((id.clone(), message.plain_text(), *is_error))
        }
        _ => None,
    };
    last.content.iter().filter_map(result).collect()
}

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
async fn tools_are_called_and_their_results_go_back_in_order() {
    let bench = Bench::new();
    std::fs::write(bench.dir.path().join("a.txt"), "alpha").unwrap();
    let fake = Fake::answering([
        vec![
            text("Looking."),
            call("1", "Read", json!({"file_path": "a.txt"})),
            call("2", "Read", json!({"file_path": "none.txt"})),
            wants(),
        ],
        vec![text("It says alpha."), done()],
    ]);
    assert_eq!(bench.run(&fake).await.status, RunStatus::Succeeded);
    let requests = fake.requests.borrow();
    let results = results(&requests[1]);
    assert_eq!(results[0], ("1".into(), "alpha".into(), false));
    assert!(results[1].2 && results[1].1.contains("does not exist"));
    // What the person saw is exactly what is committed.
    assert_eq!(fake.shown(), "Looking.\n\nIt says alpha.");
    assert_eq!(fake.commit().text, fake.shown());
    assert_eq!(fake.commit().messages[1].plain_text(), "It says alpha.");
    assert!(fake.logged("tool_started 1 Read") < fake.logged("tool_ended 1 success"));
    assert!(fake.log().contains(&"tool_ended 2 error".to_owned()));
}

#[tokio::test]
async fn readers_go_side_by_side_and_mcp_calls_one_by_one() {
    let bench = Bench::new();
    let fetch = |id| call(id, "WebFetch", json!({"url": "https://example.com/"}));
    // Each fetch waits for the other: they end only when both are under way.
    let fake = Fake::answering([vec![fetch("1"), fetch("2"), wants()], vec![done()]]);
    fake.fetches_meet.set(true);
    assert_eq!(bench.run(&fake).await.status, RunStatus::Succeeded);
    let fake = Fake::answering([
        vec![
            fetch("1"),
            call("2", "echo", json!({})),
            fetch("3"),
            wants(),
        ],
        vec![done()],
    ]);
    fake.tools.borrow_mut().push(echo_tool("s"));
    assert_eq!(bench.run(&fake).await.status, RunStatus::Succeeded);
    let log = fake.log();
    let order: Vec<&str> = log
        .iter()
        .filter(|line| line.starts_with("tool_"))
        .map(String::as_str)
        .collect();
    assert_eq!(
        order,
        [
            "tool_started 1 WebFetch",
            "tool_ended 1 success",
            "tool_started 2 echo",
            "tool_ended 2 success",
            "tool_started 3 WebFetch",
            "tool_ended 3 success"
        ]
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
    let fake = Fake::answering([vec![text("x"), done()]]);
    fake.listener_sleeps.set(true);
    let cancelled = Bench::new().run(&fake).await;
    assert_eq!(cancelled.status, RunStatus::Cancelled);
    assert!(fake.failure().message.contains("takes no events"));

    let fake = Fake::answering([vec![Step::Hang]]);
    assert_eq!(
        Bench::new().run(&fake).await.failure_kind.as_deref(),
        Some("model_silent")
    );

    let fake = Fake::answering([vec![text("x"), done()]]);
    fake.listing_hangs.set(true);
    assert_eq!(Bench::new().run(&fake).await.status, RunStatus::Succeeded);
    assert_eq!(fake.warnings(), ["mcp_list_tools_failed"]);
}

#[tokio::test]
async fn calls_that_make_no_sense_are_told_to_the_model() {
    let bench = Bench::new();
    let raw = |id: &str, name: &str, arguments: &str| {
        Step::Say(ModelEvent::ToolCall {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
        })
    };
    let fake = Fake::answering([
        vec![
            raw("1", "Read", "{\"file_path\": "),
            raw("2", "Read", "{\"path\": \"x\"}"),
            raw("3", "Reed", "{}"),
            raw("4", "Glob", ""),
            wants(),
        ],
        vec![done()],
    ]);
    assert_eq!(bench.run(&fake).await.status, RunStatus::Succeeded);
    let requests = fake.requests.borrow();
    let told = results(&requests[1]);
    assert!(told.iter().all(|(_, _, is_error)| *is_error));
    assert!(told[0].1.contains("not valid JSON") && told[1].1.contains("file_path"));
    assert!(told[2].1.contains("Did you mean \"Read\"") && told[3].1.contains("pattern"));
    assert!(fake.log().contains(&"tool_ended 1 rejected".to_owned()));
    // What goes back to the model is JSON whatever it wrote.
    let assistant = &requests[1].messages[requests[1].messages.len() - 2];
    let Block::ToolUse { arguments, .. } = &assistant.content[0] else {
        panic!("{assistant:?}")
    };
    assert_eq!(
        *arguments,
        json!({"invalid_arguments": "{\"file_path\": "}).to_string()
    );
}

#[tokio::test]
async fn ids_and_names_are_made_fit_to_go_back() {
    let bench = Bench::new();
    let glob = |id: &str| call(id, "Glob", json!({"pattern": "*"}));
    let fake = Fake::answering([
        vec![
            glob("a"),
            glob("a"),
            glob(""),
            glob(&"x".repeat(257)),
            glob("i d"),
            wants(),
        ],
        vec![glob("a"), call("n", "file system.read", json!({})), wants()],
        vec![done()],
    ]);
    assert_eq!(bench.run(&fake).await.status, RunStatus::Succeeded);
    let requests = fake.requests.borrow();
    let ids = |n: usize| {
        results(&requests[n])
            .into_iter()
            .map(|(id, _, _)| id)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        ids(1),
        ["a", "call-1-1", "call-1-2", "call-1-3", "call-1-4"]
    );
    assert_eq!(ids(2), ["call-2-0", "n"]);
    assert!(
        fake.log()
            .contains(&"tool_started n file_system_read".to_owned())
    );
}

#[tokio::test]
async fn files_are_announced_once_and_the_twenty_first_is_refused() {
    let bench = Bench::new();
    for n in 0..21 {
        std::fs::write(bench.dir.path().join(format!("f{n}")), format!("{n}")).unwrap();
    }
    let publish = |n: usize| {
        call(
            &format!("p{n}"),
            "PublishReplyFile",
            json!({"path": format!("f{n}")}),
        )
    };
    let mut calls: Vec<Step> = (0..21).map(publish).collect();
    calls.push(call("again", "PublishReplyFile", json!({"path": "f0"})));
    calls.push(wants());
    let fake = Fake::answering([calls, vec![text("Done."), done()]]);
    assert_eq!(bench.run(&fake).await.status, RunStatus::Succeeded);
    let requests = fake.requests.borrow();
    let told = results(&requests[1]);
    assert!(!told[19].2 && told[19].1.contains("\"published\":true"));
    assert_eq!(
        told[20].1,
        json!({"published": false, "code": "reply_part_too_large"}).to_string()
    );
    assert!(!told[21].2, "the same bytes again are the same part");
    let announced = fake
        .log()
        .iter()
        .filter(|line| *line == "event Part")
        .count();
    assert_eq!((announced, fake.commit().parts.len()), (20, 20));
}

#[tokio::test]
async fn an_owner_that_names_too_many_parts_is_cut_to_the_bound() {
    let fake = Fake::answering([vec![text("x"), done()]]);
    fake.parts
        .borrow_mut()
        .extend((0..MAX_PARTS + 1).map(|n| fake::attachment(&n.to_string())));
    Bench::new().run(&fake).await;
    assert_eq!(fake.commit().parts.len(), MAX_PARTS);
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
async fn mcp_tools_keep_their_server_their_progress_and_their_failures() {
    let bench = Bench::new();
    let fake = Fake::answering([
        vec![
            call("1", "mcp__b__echo", json!({"x": 1})),
            call("2", "mcp__a__echo", json!({})),
            wants(),
        ],
        vec![done()],
    ]);
    fake.tools
        .borrow_mut()
        .extend([echo_tool("a"), echo_tool("b")]);
    let answer = McpResult {
        content: vec![Block::Text {
            text: "from b".into(),
        }],
        structured: None,
        is_error: false,
    };
    let progress = McpEvent::Progress {
        progress: 1.0,
        total: Some(2.0),
        message: Some("m".repeat(2000)),
    };
    let denied = Denied {
        code: "mcp_server_silent".into(),
        message: "no sign of life".into(),
    };
    fake.mcp.borrow_mut().extend([
        vec![progress, McpEvent::Ended(Ok(answer))],
        vec![McpEvent::Ended(Err(denied))],
    ]);
    assert_eq!(bench.run(&fake).await.status, RunStatus::Succeeded);
    assert!(fake.log().contains(&"call b echo".to_owned()));
    assert!(fake.log().contains(&"tool_ended 2 timeout".to_owned()));
    let requests = fake.requests.borrow();
    let told = results(&requests[1]);
    assert_eq!((told[0].1.as_str(), told[0].2), ("from b", false));
    assert!(told[1].2 && told[1].1.contains("mcp_server_silent"));
    let events = fake.events.borrow();
    let passed_on = |event: &RunEvent| matches!(event, RunEvent::ToolProgress { message: Some(m), .. } if m.len() == 1024);
    assert!(events.iter().any(passed_on));
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

#[tokio::test]
async fn secrets_in_arguments_are_not_recorded() {
    let fake = Fake::answering([
        vec![call("1", "echo", json!({"api_key": "hunter2"})), wants()],
        vec![done()],
    ]);
    fake.tools.borrow_mut().push(echo_tool("s"));
    Bench::new().run(&fake).await;
    let events = fake.events.borrow();
    let shown = events.iter().find_map(|event| match event {
        RunEvent::ToolStarted { arguments, .. } => Some(arguments.clone()),
        _ => None,
    });
    assert_eq!(shown.as_deref(), Some("{\"api_key\":\"[redacted]\"}"));
    assert_eq!(
        fake.recorded.borrow().as_slice(),
        ["{\"api_key\":\"[redacted]\"}"]
    );
    assert!(
        fake.called_with.borrow()[0].to_string().contains("hunter2"),
        "the server gets the real ones"
    );
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
