//! The worker's edge as a run sees it: over a real channel, with bodies of every size.
#![allow(clippy::unwrap_used)]

mod support;

use ipc_proto::channel::{CallError, Client, Server};
use ipc_proto::chat::Block;
use ipc_proto::edges::app_bridge::{
    AppBridge, MAX_LISTING, MAX_RESULT, McpResult, Reply, Request, ToolListing,
};
use ipc_proto::link::pair;
use ipc_proto::request_context::{AttachedFile, ProgressState};
use ipc_proto::{Body, Role, RunId};
use mono_app_bridge::progress::Post;
use mono_app_bridge::servers::Servers;
use mono_app_bridge::worker::serve_run;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use support::starter::{InProcess, Plan, declared, run, servers};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

struct Bench {
    client: Client<AppBridge>,
    servers: Arc<Servers<InProcess>>,
    starter: InProcess,
    run: RunId,
    stop: CancellationToken,
    served: JoinHandle<()>,
}

fn bench() -> Bench {
    let (servers, starter) = servers(vec![declared("s"), declared("broken")]);
    starter.plan("broken", Plan::Refuse);
    let (ours, theirs) = pair().unwrap();
    let client = Client::new(theirs, Role::AppBridge).unwrap();
    let server = Server::new(ours, Role::Run).unwrap();
    let stop = CancellationToken::new();
    let (all, scope, token) = (servers.clone(), run(&servers, "c"), stop.clone());
    let id = scope.run.clone();
    let served = tokio::spawn(async move {
        serve_run(&all, server, &scope, &token).await.unwrap();
    });
    Bench {
        client,
        servers,
        starter,
        run: id,
        stop,
        served,
    }
}

fn request(tool: &str, arguments: &Value) -> (Request, Vec<OwnedFd>) {
    let (arguments, fd) = Body::pack_json(arguments).unwrap();
    let request = Request::CallTool {
        server: "s".to_owned(),
        tool: tool.to_owned(),
        arguments,
    };
    (request, fd.into_iter().collect())
}

impl Bench {
    async fn ask(&self, tool: &str, arguments: Value) -> (Reply, VecDeque<OwnedFd>) {
        let (request, fds) = request(tool, &arguments);
        let within = Duration::from_secs(30);
        self.client.call(&request, &fds, within).await.unwrap()
    }

    async fn text(&self, tool: &str, arguments: Value) -> String {
        match self.ask(tool, arguments).await {
            (Reply::Result { result }, mut fds) => {
                let result: McpResult = result.unpack_json(&mut fds, MAX_RESULT).unwrap();
                match &result.content[..] {
                    [Block::Text { text }] => text.clone(),
                    other => panic!("{other:?}"),
                }
            }
            (other, _) => panic!("{other:?}"),
        }
    }

    async fn code(&self, tool: &str, arguments: Value) -> String {
        match self.ask(tool, arguments).await {
            (Reply::Failed { code, message }, _) => {
                assert!(!message.is_empty());
                code
            }
            (other, _) => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_run_lists_the_tools_and_learns_what_is_missing() {
    let bench = bench();
    let within = Duration::from_secs(30);
    let answer = bench.client.call(&Request::ListTools, &[], within).await;
    let (Reply::Tools { listing }, mut fds) = answer.unwrap() else {
        panic!("another answer");
    };
    let listing: ToolListing = listing.unpack_json(&mut fds, MAX_LISTING).unwrap();
    assert_eq!(listing.tools.len(), 8);
    assert_eq!(listing.tools[0].server, "s");
    assert_eq!(listing.warnings.len(), 1);
    assert_eq!(listing.warnings[0].code, "mcp_init_failed");
    assert_eq!(listing.warnings[0].server, "broken");
}

#[tokio::test]
async fn small_and_large_bodies_go_both_ways() {
    let bench = bench();
    assert_eq!(bench.text("echo", json!({ "message": "hi" })).await, "hi");
    let large = "x".repeat(1 << 20);
    assert_eq!(bench.text("echo", json!({ "message": large })).await, large);
    let big = bench.text("big", json!({ "bytes": 5 << 20 })).await;
    assert_eq!(big.len(), 5 << 20);
}

#[tokio::test]
async fn every_failure_has_its_code() {
    let bench = bench();
    assert_eq!(bench.code("nothing", json!({})).await, "mcp_call_refused");
    assert_eq!(bench.code("echo", json!([])).await, "invalid_arguments");
    let huge = json!({ "message": "x".repeat(3 << 20) });
    assert_eq!(bench.code("echo", huge).await, "invalid_arguments");
    let huge = bench.code("big", json!({ "bytes": 17 << 20 })).await;
    assert_eq!(huge, "mcp_result_too_large");
}

#[tokio::test]
async fn progress_is_streamed_before_the_result() {
    let bench = bench();
    let (request, fds) = request("slow", &json!({ "ms": 200, "progress": 100 }));
    let mut replies = bench.client.stream(&request, &fds, None).await.unwrap();
    let mut seen = 0;
    while let Some(reply) = replies.next().await {
        match reply.unwrap().0 {
            Reply::Progress {
                progress,
                total,
                message,
            } => {
                seen += 1;
                assert_eq!((progress, total), (f64::from(seen), Some(100.0)));
                assert_eq!(message.unwrap(), format!("step {seen}"));
            }
            Reply::Result { .. } => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, 100);
}

/// More progress than the stream has credit for, and a run that doesn't take it.
#[tokio::test]
async fn a_run_that_reads_no_progress_still_gets_its_result() {
    let bench = bench();
    let (request, fds) = request("slow", &json!({ "ms": 300, "progress": 300 }));
    let mut replies = bench.client.stream(&request, &fds, None).await.unwrap();
    // A second call that takes longer: when it has ended, so has the first.
    bench.ask("slow", json!({ "ms": 600 })).await;
    let mut last = None;
    while let Some(reply) = replies.next().await {
        last = Some(reply.unwrap().0);
    }
    assert!(matches!(last, Some(Reply::Result { .. })), "{last:?}");
}

#[tokio::test]
async fn a_run_hears_what_its_servers_post_until_it_withdraws() {
    let bench = bench();
    let board = bench.servers.board().clone();
    board.listen_at("http://127.0.0.1:1/v1/progress".into());
    let file = AttachedFile {
        name: "1-a".into(),
        dev: 1,
        ino: 2,
    };
    let accompany = Request::Accompany {
        attachments: vec![file.clone()],
    };
    let mut posts = bench.client.stream(&accompany, &[], None).await.unwrap();
    // Answered after it: the first request has been taken.
    bench.ask("echo", json!({ "message": "hi" })).await;
    let context = board.context(&bench.run, "s");
    assert_eq!(context.attachments, [file]);
    let token = context.progress.unwrap().token.0;
    let post = |message: &str| Post {
        key: "k".into(),
        message: message.into(),
        state: ProgressState::Running,
    };
    board.post(&token, post("one")).unwrap();
    match posts.next().await {
        Some(Ok((
            Reply::Posted {
                server, message, ..
            },
            _,
        ))) => {
            assert_eq!((server.as_str(), message.as_str()), ("s", "one"));
        }
        other => panic!("{other:?}"),
    }
    drop(posts);
    let withdrawn = async {
        while board.knows(&token) {
            tokio::task::yield_now().await;
        }
    };
    let withdrawn = tokio::time::timeout(Duration::from_secs(20), withdrawn);
    withdrawn.await.unwrap();
    assert_eq!(board.context(&bench.run, "s").progress, None);
}

#[tokio::test]
async fn withdrawing_a_call_cancels_it_and_nothing_else() {
    let bench = bench();
    let (slow, fds) = request("slow", &json!({ "ms": 60_000, "progress": 600 }));
    let mut replies = bench.client.stream(&slow, &fds, None).await.unwrap();
    assert!(matches!(
        replies.next().await,
        Some(Ok((Reply::Progress { .. }, _)))
    ));
    drop(replies);
    assert_eq!(bench.text("echo", json!({ "message": "hi" })).await, "hi");
}

#[tokio::test]
async fn a_deadline_ends_a_call() {
    let bench = bench();
    let (slow, fds) = request("slow", &json!({ "ms": 60_000 }));
    let deadline = Some(Duration::from_millis(300));
    let mut replies = bench.client.stream(&slow, &fds, deadline).await.unwrap();
    match replies.next().await {
        Some(Ok((Reply::Failed { code, .. }, _))) => assert_eq!(code, "mcp_call_cancelled"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_run_that_closes_its_channel_gives_its_server_back_warm() {
    let bench = bench();
    let (slow, fds) = request("slow", &json!({ "ms": 60_000, "progress": 600 }));
    let mut replies = bench.client.stream(&slow, &fds, None).await.unwrap();
    assert!(replies.next().await.is_some());
    drop((replies, bench.client));
    let ended = tokio::time::timeout(Duration::from_secs(60), bench.served).await;
    ended.unwrap().unwrap();
    assert!(bench.servers.next_sweep().is_some(), "it is idle now");
    assert!(bench.starter.stopped().is_empty(), "and not ended");
}

#[tokio::test]
async fn a_revoked_grant_ends_the_channel_and_its_calls() {
    let bench = bench();
    let (slow, fds) = request("slow", &json!({ "ms": 60_000, "progress": 600 }));
    let mut replies = bench.client.stream(&slow, &fds, None).await.unwrap();
    assert!(replies.next().await.is_some());
    bench.stop.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(60), bench.served).await;
    ended.unwrap().unwrap();
    let after = bench
        .client
        .call(&Request::ListTools, &[], Duration::from_secs(5))
        .await;
    assert!(
        matches!(after, Err(CallError::Gone(_) | CallError::Link(_))),
        "{after:?}"
    );
}
