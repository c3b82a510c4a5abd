//! What a model writes of markers is in no text of ours.

use super::fake::{Bench, Fake, Step, call, done, echo_tool, failed, text, wants};
use super::*;
use crate::owners::{Denied, McpEvent};
use ipc_proto::edges::app_bridge::McpResult;
use ipc_proto::marker::{ids, marker};
use serde_json::json;

const ID: &str = "0123456789abcdef0123456789abcdef";

fn thought(text: &str) -> Step {
    Step::Say(ModelEvent::Thought(text.to_owned()))
}

/// Everything that somebody is told while it streams, in its order.
fn told(fake: &Fake) -> String {
    let events = fake.events.borrow();
    let told = events.iter().filter_map(|event| match event {
        RunEvent::Append { text } | RunEvent::Thought { text } | RunEvent::Replace { text } => {
            Some(text.clone())
        }
        _ => None,
    });
    told.collect()
}

#[tokio::test]
async fn a_marker_that_the_model_writes_is_told_to_nobody_wherever_it_is_cut() {
    let theirs = "[kirocrew-mcp-app:01234567-89ab-cdef-0123-456789abcdef]";
    for written in [marker(ID), theirs.to_owned()] {
        for at in 1..written.len() {
            let (one, two) = written.split_at(at);
            let fake = Fake::answering([
                vec![
                    thought(one),
                    thought(two),
                    text("Before "),
                    text(one),
                    text(&format!("{two} after.")),
                    call("1", "Glob", json!({"pattern": "*"})),
                    wants(),
                ],
                vec![text("Then "), text(one), text(two), done()],
            ]);
            assert_eq!(Bench::new().run(&fake).await.status, RunStatus::Succeeded);
            let shown = "Before  after.\n\nThen ";
            assert_eq!(
                (told(&fake).as_str(), fake.shown().as_str()),
                (shown, shown)
            );
            let commit = fake.commit();
            assert_eq!(commit.text, shown);
            let said = commit.messages.last().unwrap().plain_text();
            assert_eq!(said, "Then ");
            // Nor does the model read it again.
            let requests = fake.requests.borrow();
            let again = serde_json::to_string(&requests[1]).unwrap();
            assert_eq!(ids(&again).count(), 0, "{again}");
        }
    }
}

#[tokio::test]
async fn what_only_begins_like_a_marker_is_shown_whole() {
    let fake = Fake::answering([vec![text("a [mono-mcp"), text("-app:01"), done()]]);
    Bench::new().run(&fake).await;
    assert_eq!(fake.commit().text, "a [mono-mcp-app:01");
    assert_eq!(fake.shown(), "a [mono-mcp-app:01");
}

/// What was held back belongs to the attempt that is void.
#[tokio::test]
async fn a_restart_forgets_the_beginning_of_a_marker() {
    let (one, two) = (&marker(ID)[..20], &marker(ID)[20..]);
    let fake = Fake::answering([vec![
        text(&format!("Wrong {one}")),
        Step::Say(ModelEvent::Restart),
        text(two),
        done(),
    ]]);
    Bench::new().run(&fake).await;
    assert_eq!(fake.commit().text, two);
    let fake = Fake::answering([vec![text(&format!("Half {one}")), failed("overloaded")]]);
    Bench::new().run(&fake).await;
    assert_eq!(fake.failure().partial_text, "Half ");
}

/// Of a server: how far it is, what came of it, and why nothing did.
#[tokio::test]
async fn a_marker_in_the_words_of_a_server_is_for_nobody() {
    let bench = Bench::new();
    let marked = format!("said {}", marker(ID));
    let fake = Fake::answering([
        vec![
            call("1", "echo", json!({})),
            call("2", "echo", json!({})),
            wants(),
        ],
        vec![text("done"), done()],
    ]);
    fake.tools.borrow_mut().push(echo_tool("s"));
    let progress = McpEvent::Progress {
        progress: 1.0,
        total: None,
        message: Some(marked.clone()),
    };
    let result = McpResult {
        content: vec![Block::Text {
            text: "fine".into(),
        }],
        structured: None,
        is_error: false,
        app: None,
    };
    let denied = Denied {
        code: "mcp_call_failed".into(),
        message: marked,
    };
    fake.mcp.borrow_mut().extend([
        vec![progress, McpEvent::Ended(Ok(result))],
        vec![McpEvent::Ended(Err(denied))],
    ]);
    assert_eq!(bench.run(&fake).await.status, RunStatus::Succeeded);
    let events = fake.events.borrow();
    let shown = |event: &RunEvent| matches!(event, RunEvent::ToolProgress { message: Some(m), .. } if m == "said ");
    assert!(events.iter().any(shown), "{events:?}");
    assert_eq!(ids(&format!("{events:?}")).count(), 0, "{events:?}");
    let again = serde_json::to_string(&fake.requests.borrow()[1]).unwrap();
    assert!(
        again.contains("said ") && ids(&again).count() == 0,
        "{again}"
    );
}
