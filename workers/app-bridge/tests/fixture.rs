//! Our own MCP server, in this process, over real pipes, in both eras.
#![allow(clippy::unwrap_used)]

mod support;

use ipc_proto::chat::Block;
use ipc_proto::settings::McpServerSettings;
use mono_app_bridge::call::CallRequest;
use mono_app_bridge::error::CallError;
use serde_json::json;
use support::starter::{Plan, declared, run, servers};
use support::{call, call_with};

fn echo(message: &str) -> CallRequest {
    call_with("echo", json!({ "message": message })).0
}

fn said(text: &str) -> Vec<Block> {
    vec![Block::Text { text: text.into() }]
}

#[tokio::test]
async fn its_tools_are_listed_and_called() {
    let (servers, _) = servers(vec![declared("s")]);
    let scope = run(&servers, "c");
    let (tools, warnings) = servers.list_tools(&scope).await;
    assert!(warnings.is_empty());
    let names: Vec<_> = tools.iter().map(|tool| tool.tool.as_str()).collect();
    assert_eq!(
        names,
        [
            "echo", "add", "fail", "slow", "big", "allocate", "crash", "silent"
        ]
    );
    assert!(tools[0].read_only && !tools[6].read_only);
    assert_eq!(tools[0].input_schema["required"], json!(["message"]));

    let result = servers.call(&scope, "s", echo("hi")).await.unwrap();
    assert_eq!((result.content, result.is_error), (said("hi"), false));
    let sum = call_with("add", json!({ "a": 1, "b": 2.5 })).0;
    let result = servers.call(&scope, "s", sum).await.unwrap();
    assert_eq!(result.structured, Some(json!({ "sum": 3.5 })));
    let fail = call_with("fail", json!({ "message": "no" })).0;
    let result = servers.call(&scope, "s", fail).await.unwrap();
    assert_eq!((result.content, result.is_error), (said("no"), true));
    let error = servers
        .call(&scope, "s", call("nothing").0)
        .await
        .unwrap_err();
    assert_eq!(error.code(), "mcp_call_refused");
    let error = servers.call(&scope, "x", echo("hi")).await.unwrap_err();
    assert_eq!(error.code(), "mcp_server_unknown");
}

#[tokio::test]
async fn a_large_result_comes_whole_and_a_too_large_one_not_at_all() {
    let (servers, starter) = servers(vec![declared("s")]);
    let scope = run(&servers, "c");
    let big = |bytes: usize| call_with("big", json!({ "bytes": bytes })).0;
    let result = servers.call(&scope, "s", big(4 << 20)).await.unwrap();
    assert_eq!(result.content, said(&"x".repeat(4 << 20)));
    let error = servers.call(&scope, "s", big(17 << 20)).await.unwrap_err();
    assert_eq!(error.code(), "mcp_result_too_large");
    // The next call gets a new server.
    servers.call(&scope, "s", echo("again")).await.unwrap();
    assert_eq!(starter.started().len(), 2);
}

#[tokio::test]
async fn progress_comes_in_order_and_before_the_result() {
    let (servers, _) = servers(vec![declared("s")]);
    let scope = run(&servers, "c");
    let (slow, mut reports, _) = call_with("slow", json!({ "ms": 50, "progress": 5 }));
    servers.call(&scope, "s", slow).await.unwrap();
    for step in 1..=5u32 {
        let report = reports.try_recv().unwrap();
        assert_eq!(
            (report.progress, report.total),
            (f64::from(step), Some(5.0))
        );
        assert_eq!(report.message.unwrap(), format!("step {step}"));
    }
}

#[tokio::test]
async fn cancelling_ends_the_call_here_and_there() {
    let (servers, _) = servers(vec![declared("s")]);
    let scope = run(&servers, "c");
    servers.call(&scope, "s", echo("warm")).await.unwrap();
    let (slow, mut reports, cancel) = call_with("slow", json!({ "ms": 60_000, "progress": 600 }));
    let cancelling = async {
        reports.recv().await.unwrap();
        cancel.cancel();
    };
    let (result, ()) = tokio::join!(servers.call(&scope, "s", slow), cancelling);
    assert_eq!(result.unwrap_err().code(), "mcp_call_cancelled");
    servers
        .call(&scope, "s", echo("still there"))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_killed_server_fails_its_call_and_comes_back_for_the_next() {
    let (servers, starter) = servers(vec![declared("s")]);
    let scope = run(&servers, "c");
    let (slow, mut reports, _) = call_with("slow", json!({ "ms": 60_000, "progress": 600 }));
    let killing = async {
        reports.recv().await.unwrap();
        starter.kill(1);
        tokio::task::yield_now().await;
        servers.ended(1, "used more memory than its limit".to_owned());
    };
    let (result, ()) = tokio::join!(servers.call(&scope, "s", slow), killing);
    let error = result.unwrap_err();
    assert_eq!(error.code(), "mcp_server_gone");
    let message = error.message();
    let reason = "server s ended during the call: it used more memory than its limit; ";
    assert!(message.starts_with(reason), "{message}");
    let result = servers.call(&scope, "s", echo("back")).await.unwrap();
    assert_eq!(result.content, said("back"));
    assert_eq!((starter.started().len(), starter.stopped()), (2, vec![1]));
}

#[tokio::test]
async fn a_conversation_keeps_its_server_and_shares_it_with_no_other() {
    let (servers, starter) = servers(vec![declared("s")]);
    for (conversation, processes) in [("a", 1), ("a", 1), ("b", 2), ("a", 2)] {
        let scope = run(&servers, conversation);
        servers.call(&scope, "s", echo("hi")).await.unwrap();
        servers.release(&scope.run).await;
        assert_eq!(starter.started().len(), processes, "{conversation}");
    }
    assert!(starter.stopped().is_empty());
    servers.close().await;
    let mut stopped = starter.stopped();
    stopped.sort_unstable();
    assert_eq!(stopped, [1, 2]);
}

#[tokio::test]
async fn a_shared_server_is_one_for_all_and_a_runs_own_ends_with_the_run() {
    let shared = McpServerSettings {
        shared: true,
        ..declared("shared")
    };
    let own = McpServerSettings {
        per_run: true,
        ..declared("own")
    };
    let (servers, starter) = servers(vec![shared, own]);
    for conversation in ["a", "b"] {
        let scope = run(&servers, conversation);
        for name in ["shared", "own"] {
            servers.call(&scope, name, echo("hi")).await.unwrap();
        }
        servers.release(&scope.run).await;
    }
    assert_eq!(
        starter.started(),
        ["shared", "own for its run", "own for its run"]
    );
    assert_eq!(starter.stopped(), [2, 3]);
}

#[tokio::test]
async fn the_ninth_idle_server_ends_the_longest_idle() {
    let (servers, starter) = servers(vec![declared("s")]);
    for n in 0..9 {
        let scope = run(&servers, &format!("c{n}"));
        servers.call(&scope, "s", echo("hi")).await.unwrap();
        servers.release(&scope.run).await;
    }
    assert_eq!((starter.stopped(), servers.connections()), (vec![1], 8));
}

#[tokio::test(start_paused = true)]
async fn ten_idle_minutes_end_a_server() {
    let (servers, starter) = servers(vec![declared("s")]);
    let scope = run(&servers, "c");
    servers.call(&scope, "s", echo("hi")).await.unwrap();
    assert_eq!(servers.next_sweep(), None);
    servers.release(&scope.run).await;
    tokio::time::sleep_until(servers.next_sweep().unwrap()).await;
    servers.sweep().await.unwrap();
    assert_eq!((starter.stopped(), servers.connections()), (vec![1], 0));
}

#[tokio::test]
async fn servers_that_fail_are_warnings_and_the_others_go_on() {
    let (servers, starter) = servers(vec![declared("gone"), declared("good"), declared("dies")]);
    starter.plan("gone", Plan::Refuse);
    starter.plan("dies", Plan::Die);
    let scope = run(&servers, "c");
    let (tools, warnings) = servers.list_tools(&scope).await;
    assert!(tools.len() == 8 && tools.iter().all(|tool| tool.server == "good"));
    let told: Vec<_> = warnings
        .iter()
        .map(|w| (w.code, w.server.as_str()))
        .collect();
    assert_eq!(
        told,
        [("mcp_init_failed", "gone"), ("mcp_init_failed", "dies")]
    );
    assert!(
        warnings[0].message.contains("check the command"),
        "{warnings:?}"
    );
    assert!(
        warnings[1].message.contains("cannot open the database"),
        "{warnings:?}"
    );
    // What could not be used is not kept.
    assert_eq!(servers.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_keeps_dying_is_braked_and_comes_back_when_it_is_well() {
    let (servers, starter) = servers(vec![declared("s")]);
    starter.plan("s", Plan::Refuse);
    let scope = run(&servers, "c");
    for _ in 0..5 {
        let error = servers.call(&scope, "s", echo("hi")).await.unwrap_err();
        assert_eq!(error.code(), "mcp_init_failed");
    }
    assert_eq!(starter.started().len(), 3);
    starter.plan("s", Plan::Serve);
    let error = servers.call(&scope, "s", echo("hi")).await.unwrap_err();
    assert!(error.message().contains("tried again in"), "{error}");
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    servers.call(&scope, "s", echo("hi")).await.unwrap();
}

/// It greets well each time, so only its lists can tell that it is of no use.
#[tokio::test(start_paused = true)]
async fn a_server_that_never_lists_is_braked_too() {
    let (servers, starter) = servers(vec![declared("s")]);
    starter.plan("s", Plan::NeverList);
    for _ in 0..5 {
        let scope = run(&servers, "c");
        let (tools, warnings) = servers.list_tools(&scope).await;
        assert!(tools.is_empty() && warnings.len() == 1);
        servers.release(&scope.run).await;
    }
    assert_eq!(starter.started().len(), 3);
}

#[tokio::test]
async fn callers_at_once_start_one_server() {
    let (servers, starter) = servers(vec![declared("s")]);
    let scope = run(&servers, "c");
    let calls = (0..8).map(|n| {
        let (servers, scope) = (servers.clone(), scope.clone());
        async move { servers.call(&scope, "s", echo(&n.to_string())).await }
    });
    for (n, result) in futures_util::future::join_all(calls)
        .await
        .into_iter()
        .enumerate()
    {
        assert_eq!(result.unwrap().content, said(&n.to_string()));
    }
    assert_eq!(starter.started().len(), 1);
}

#[tokio::test]
async fn a_run_that_has_ended_holds_nothing() {
    let (servers, starter) = servers(vec![declared("s")]);
    let scope = run(&servers, "c");
    servers.release(&scope.run).await;
    let error = servers.call(&scope, "s", echo("hi")).await.unwrap_err();
    assert!(matches!(error, CallError::Start { .. }), "{error}");
    assert!(starter.started().is_empty());
}

#[tokio::test]
async fn a_caller_that_stops_waiting_leaves_no_half_open_server() {
    let (servers, starter) = servers(vec![declared("s")]);
    let scope = run(&servers, "c");
    let (request, _reports, cancel) = call_with("echo", json!({ "message": "hi" }));
    let calling = servers.call(&scope, "s", request);
    let (result, ()) = tokio::join!(calling, async {
        tokio::task::yield_now().await;
        cancel.cancel();
    });
    assert_eq!(result.unwrap_err().code(), "mcp_call_cancelled");
    servers.call(&scope, "s", echo("hi")).await.unwrap();
    assert_eq!(starter.started().len(), 1);
}
