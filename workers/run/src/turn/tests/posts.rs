//! What servers post that are told of the request.

use super::fake::{Bench, Fake, call, done, text, wants};
use ipc_proto::edges::control::RunStatus;
use ipc_proto::edges::events::RunEvent;
use ipc_proto::request_context::{AttachedFile, ProgressState};
use serde_json::json;

fn posted(message: &str) -> RunEvent {
    RunEvent::Posted {
        server: "work".into(),
        key: "k".into(),
        message: message.into(),
        state: ProgressState::Running,
    }
}

fn bench() -> Bench {
    let file = AttachedFile {
        name: "1-a".into(),
        dev: 1,
        ino: 2,
    };
    Bench {
        attached: Some(vec![file]),
        ..Bench::new()
    }
}

#[tokio::test]
async fn what_servers_post_is_told_until_the_turn_is_to_be_settled() {
    let bench = bench();
    let fake = Fake::answering([
        vec![
            call("1", "Bash", json!({ "command": "sleep 0.1" })),
            wants(),
        ],
        vec![text("Done."), done()],
    ]);
    fake.posts
        .borrow_mut()
        .extend([posted("one"), posted("two")]);
    assert_eq!(bench.run(&fake).await.status, RunStatus::Succeeded);
    let told = |message: &str| {
        fake.events
            .borrow()
            .iter()
            .any(|event| *event == posted(message))
    };
    assert!(told("one") && told("two"));
    // Servers are started when their tools are listed, and know their files by then.
    assert!(fake.logged("accompany with 1 files") < fake.logged("list"));
    assert!(fake.logged("posted") < fake.logged("part"));
    assert!(fake.logged("part") < fake.logged("finalise"));
}

#[tokio::test]
async fn a_turn_that_is_not_accompanied_asks_for_no_posts() {
    let bench = Bench::new();
    let fake = Fake::answering([vec![text("Done."), done()]]);
    assert_eq!(bench.run(&fake).await.status, RunStatus::Succeeded);
    let log = fake.log();
    assert!(
        !log.iter().any(|line| line.starts_with("accompany")),
        "{log:?}"
    );
}

#[tokio::test]
async fn a_bridge_that_is_lost_with_the_posts_ends_the_turn() {
    for what in ["accompany with 1 files", "posted"] {
        let bench = bench();
        let fake = Fake::answering([
            vec![call("1", "Bash", json!({ "command": "sleep 60" })), wants()],
            vec![text("Done."), done()],
        ]);
        fake.posts.borrow_mut().push_back(posted("one"));
        *fake.lose.borrow_mut() = Some((what, "app-bridge"));
        let outcome = bench.run(&fake).await;
        assert_eq!(
            outcome.failure_kind.as_deref(),
            Some("worker_lost"),
            "{what}"
        );
    }
}
