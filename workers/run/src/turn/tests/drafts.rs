//! What a person sees of calls while the model still writes them.

use super::fake::{self, Bench, Fake, Step, call, done, echo_tool, text, wants};
use crate::owners::{Denied, McpEvent, ModelEvent};
use ipc_proto::edges::app_bridge::{MAX_DRAFT_INPUT, McpResult, McpTool};
use ipc_proto::edges::control::RunStatus;
use ipc_proto::edges::events::RunEvent;
use serde_json::json;
use std::time::Duration;

fn written(call: u32, name: &str, text: &str) -> Step {
    Step::Say(ModelEvent::Arguments {
        call,
        name: name.to_owned(),
        text: text.to_owned(),
    })
}

fn pause() -> Step {
    Step::Pause(Duration::from_millis(150))
}

fn shown_tool() -> McpTool {
    McpTool {
        app: true,
        ..echo_tool("s")
    }
}

fn console() -> Bench {
    Bench {
        source: "console",
        ..Bench::new()
    }
}

fn fake(answers: impl IntoIterator<Item = Vec<Step>>, drafts: &[&str]) -> Fake {
    let fake = Fake::answering(answers);
    *fake.tools.borrow_mut() = vec![shown_tool()];
    *fake.drafts.borrow_mut() = drafts.iter().map(|id| fake::app(id)).collect();
    fake
}

fn with_app(id: &str) -> McpEvent {
    McpEvent::Ended(Ok(McpResult {
        content: vec![],
        structured: None,
        is_error: false,
        app: Some(Box::new(fake::app(id))),
    }))
}

/// What the console is told of apps, in order.
fn told(fake: &Fake) -> Vec<String> {
    let told = |event: &RunEvent| match event {
        RunEvent::AppDraft { .. } => Some("draft".to_owned()),
        RunEvent::AppInput { id, arguments } => {
            let arguments = arguments.clone().unpack(&mut Default::default(), 1 << 20);
            let arguments = String::from_utf8(arguments.unwrap()).unwrap();
            Some(format!("input {id} {arguments}"))
        }
        RunEvent::AppCalled { id } => Some(format!("called {id}")),
        RunEvent::AppGone { id } => Some(format!("gone {id}")),
        RunEvent::Part { .. } => Some("part".to_owned()),
        _ => None,
    };
    fake.events.borrow().iter().filter_map(told).collect()
}

fn writing() -> Vec<Step> {
    vec![
        written(0, "echo", r#"{"a":"#),
        pause(),
        written(0, "echo", r#""one"#),
        pause(),
        written(0, "echo", r#" two"}"#),
        pause(),
        call("1", "echo", json!({ "a": "one two" })),
        wants(),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_call_is_shown_as_it_is_written_made_and_answered() {
    let fake = fake([writing(), vec![text("x"), done()]], &["d"]);
    fake.mcp.borrow_mut().push_back(vec![with_app("d")]);
    assert_eq!(console().run(&fake).await.status, RunStatus::Succeeded);
    assert_eq!(fake.requests.borrow()[0].streamed, ["echo"]);
    assert_eq!(
        told(&fake),
        [
            "draft",
            r#"input d {"so far":"{\"a\":"}"#,
            r#"input d {"so far":"{\"a\":\"one"}"#,
            r#"input d {"so far":"{\"a\":\"one two\"}"}"#,
            "called d",
            "part",
        ]
    );
    assert!(fake.log().contains(&"call s echo as d".to_owned()));
    // It is for the eye alone.
    assert_eq!(*fake.called_with.borrow(), [json!({ "a": "one two" })]);
}

#[tokio::test(start_paused = true)]
async fn another_app_a_failure_and_a_call_that_is_not_made_end_the_draft() {
    let failed = McpEvent::Ended(Err(Denied {
        code: "mcp_call_timeout".into(),
        message: "m".into(),
    }));
    for (event, end) in [
        (with_app("other"), vec!["part", "gone d"]),
        (failed, vec!["gone d"]),
    ] {
        let fake = fake([writing(), vec![text("x"), done()]], &["d"]);
        fake.mcp.borrow_mut().push_back(vec![event]);
        console().run(&fake).await;
        let told = told(&fake);
        assert_eq!(told[4], "called d");
        assert_eq!(told[5..], end);
    }
    let mut broken = writing();
    broken[6] = Step::Say(ModelEvent::ToolCall {
        id: "1".into(),
        name: "echo".into(),
        arguments: "[".into(),
    });
    let mut void = writing();
    void[6] = Step::Say(ModelEvent::Restart);
    void[7] = text("y");
    void.push(done());
    let mut fewer = writing();
    fewer[6] = text("y");
    fewer[7] = done();
    for answer in [broken, void, fewer] {
        let fake = fake([answer, vec![text("x"), done()]], &["d"]);
        console().run(&fake).await;
        assert_eq!(told(&fake)[4..], ["gone d"]);
        assert!(!fake.log().iter().any(|line| line.starts_with("call ")));
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_page_that_does_not_come() {
    for hangs in [true, false] {
        let fake = fake([writing(), vec![text("x"), done()]], &[]);
        fake.draft_hangs.set(hangs);
        fake.mcp.borrow_mut().push_back(vec![with_app("a")]);
        assert_eq!(console().run(&fake).await.status, RunStatus::Succeeded);
        assert_eq!(told(&fake), ["part"]);
        assert!(fake.log().contains(&"call s echo".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_console_is_shown_drafts_and_only_of_tools_with_a_page() {
    let fake = fake([writing(), vec![text("x"), done()]], &["d"]);
    Bench::new().run(&fake).await;
    assert!(fake.requests.borrow()[0].streamed.is_empty());
    let plain = Fake::answering([writing(), vec![text("x"), done()]]);
    *plain.tools.borrow_mut() = vec![echo_tool("s")];
    console().run(&plain).await;
    assert!(plain.requests.borrow()[0].streamed.is_empty() && told(&plain).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_hostile_model_is_held_to_few_drafts_a_few_looks_and_so_many_bytes() {
    let mut answer = Vec::new();
    for _ in 0..500 {
        for call in 0..20 {
            answer.push(written(call, "echo", "x"));
        }
    }
    let much = "y".repeat(MAX_DRAFT_INPUT);
    answer.extend([
        written(0, "echo", &much),
        pause(),
        written(0, "echo", "z"),
        pause(),
    ]);
    answer.extend([text("x"), done()]);
    let ids = ["a", "b", "c", "d", "e", "f"];
    let fake = fake([answer], &ids);
    console().run(&fake).await;
    let log = fake.log();
    let asked = |what: &str| log.iter().filter(|line| line.starts_with(what)).count();
    assert_eq!(asked("draft s echo"), super::super::drafts::MAX_DRAFTS);
    // All of it came at once.
    assert!(asked("draft_input") <= 2 * super::super::drafts::MAX_DRAFTS);
    assert!(log.iter().all(|line| line.len() < MAX_DRAFT_INPUT));
}
