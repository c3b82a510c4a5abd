//! Tool calls of a turn: order, names, results, reply parts.

use super::fake::{self, Bench, Fake, Step, call, done, echo_tool, text, wants};
use crate::owners::{Denied, McpEvent, ModelEvent};
use ipc_proto::chat::{Block, ChatMessage, ChatRole, ModelRequest};
use ipc_proto::edges::app_bridge::McpResult;
use ipc_proto::edges::control::RunStatus;
use ipc_proto::edges::events::RunEvent;
use ipc_proto::reply::{MAX_PARTS, ReplyPart};
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
        app: None,
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

fn with_app(id: &str) -> Vec<McpEvent> {
    let content = vec![Block::Text { text: "ok".into() }];
    vec![McpEvent::Ended(Ok(McpResult {
        content,
        structured: None,
        is_error: false,
        app: Some(Box::new(fake::app(id))),
    }))]
}

/// A turn whose calls each bring an app.
fn with_apps(count: usize) -> Fake {
    let mut calls: Vec<Step> = (0..count)
        .map(|n| call(&n.to_string(), "echo", json!({})))
        .collect();
    calls.push(wants());
    let fake = Fake::answering([calls, vec![text("done"), done()]]);
    fake.tools.borrow_mut().push(echo_tool("s"));
    let answers = (0..count).map(|n| with_app(&format!("app-{n}")));
    fake.mcp.borrow_mut().extend(answers);
    fake
}

#[tokio::test]
async fn an_app_is_told_of_once_kept_before_the_commit_and_part_of_the_reply() {
    let fake = with_apps(1);
    Bench::new().run(&fake).await;
    assert_eq!(fake.commit().parts, [fake::app("app-0")]);
    let log = fake.log();
    let at = |what: &str| log.iter().position(|line| line == what).unwrap();
    assert!(at("enter app-0") < at("finalise"));
    assert!(at("finalise") < at("keep app-0") && at("keep app-0") < at("commit"));
    let events = fake.events.borrow();
    let parts = events
        .iter()
        .filter(|event| matches!(event, RunEvent::Part { .. }));
    assert_eq!(parts.count(), 1);
}

#[tokio::test]
async fn an_app_without_a_place_is_said_to_the_model_and_not_kept() {
    let fake = with_apps(MAX_PARTS + 1);
    Bench::new().run(&fake).await;
    assert_eq!(fake.commit().parts.len(), MAX_PARTS);
    let requests = fake.requests.borrow();
    let told = results(&requests[1]);
    assert_eq!((told[0].1.as_str(), told[0].2), ("ok", false));
    assert!(told[MAX_PARTS].1.starts_with("ok") && told[MAX_PARTS].1.contains("not shown"));
    let kept = fake
        .log()
        .into_iter()
        .find(|line| line.starts_with("keep "));
    assert!(!kept.unwrap().contains(&format!("app-{MAX_PARTS}")));
}

#[tokio::test]
async fn apps_that_can_not_be_kept_are_failures_in_their_places() {
    let fake = with_apps(2);
    fake.apps_lost.set(true);
    assert_eq!(Bench::new().run(&fake).await.status, RunStatus::Succeeded);
    let parts = fake.commit().parts;
    assert_eq!(parts.len(), 2);
    assert!(parts.iter().all(|part| matches!(
        part, ReplyPart::Failure { code, .. } if code == "app_resource_invalid")));
}

#[tokio::test]
async fn a_turn_that_fails_takes_its_apps_back() {
    let fake = with_apps(1);
    *fake.lose.borrow_mut() = Some(("commit", "store"));
    Bench::new().run(&fake).await;
    // Whether that commit stands is not known, so what it names stays.
    assert_eq!(
        fake.log()
            .iter()
            .filter(|line| line.starts_with("keep"))
            .count(),
        1
    );
    let fake = with_apps(1);
    *fake.lose.borrow_mut() = Some(("finalise", "artifact"));
    Bench::new().run(&fake).await;
    assert!(fake.log().contains(&"keep ".to_owned()));
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
