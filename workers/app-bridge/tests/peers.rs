//! Odd and hostile peers, each line of theirs written here. The clock is paused: waits cost nothing
//! and end exactly when they should.
#![allow(clippy::unwrap_used)]

mod support;

use ipc_proto::chat::Block;
use mono_app_bridge::connection::Era;
use mono_app_bridge::error::{CallError, ListError};
use mono_app_bridge::limits::Limits;
use serde_json::json;
use std::time::Duration;
use support::{Peer, call, connected, discovery, limits, open, stateless, text};
use tokio::time::Instant;

const S: Duration = Duration::from_secs(1);

/// Waits out small scheduling latencies of the paused clock.
fn about(elapsed: Duration, expected: Duration) -> bool {
    elapsed >= expected && elapsed < expected + S / 2
}

#[tokio::test(start_paused = true)]
async fn a_server_that_knows_discovery_is_spoken_to_without_a_handshake() {
    let (connection, _peer) = stateless(limits()).await;
    assert_eq!(
        (connection.era(), connection.revision()),
        (Era::Stateless, "2026-07-28".into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_discovery_gets_the_handshake_at_once() {
    let began = Instant::now();
    let (connection, _peer) = connected(limits()).await;
    assert_eq!(
        (connection.era(), connection.revision()),
        (Era::Handshake, "2025-11-25".into())
    );
    assert!(about(began.elapsed(), Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ignores_discovery_costs_our_bound_and_not_ten_seconds() {
    let began = Instant::now();
    let (connection, _peer) = open(limits(), Era::Unknown, |mut peer| async {
        peer.expect("server/discover").await;
        peer.initialize().await;
        peer
    })
    .await;
    assert_eq!(connection.unwrap().era(), Era::Handshake);
    assert!(about(began.elapsed(), limits().discover));
}

#[tokio::test(start_paused = true)]
async fn a_slow_start_whose_answers_come_late_still_makes_a_connection() {
    let (connection, _peer) = open(limits(), Era::Unknown, |mut peer| async {
        // As from a launcher that downloads first: both requests wait in the pipe.
        tokio::time::sleep(5 * S).await;
        let discover = peer.expect("server/discover").await;
        peer.refuse(&discover, -32601).await;
        peer.initialize().await;
        peer
    })
    .await;
    assert_eq!(connection.unwrap().era(), Era::Handshake);
}

#[tokio::test(start_paused = true)]
async fn a_slow_stateless_server_fails_once_and_is_greeted_rightly_the_next_time() {
    let slow = |mut peer: Peer| async move {
        tokio::time::sleep(5 * S).await;
        let discover = peer.expect("server/discover").await;
        peer.answer(&discover, discovery()).await;
        let initialize = peer.expect("initialize").await;
        peer.refuse(&initialize, -32601).await;
        peer
    };
    let (connection, _peer) = open(limits(), Era::Unknown, slow).await;
    let failed = connection.unwrap_err();
    assert_eq!(failed.next, Era::Stateless);
    let slow = |mut peer: Peer| async move {
        tokio::time::sleep(5 * S).await;
        peer.discover().await;
        peer
    };
    let (connection, _peer) = open(limits(), failed.next, slow).await;
    assert_eq!(connection.unwrap().era(), Era::Stateless);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_discovery_badly_is_greeted_plainly_the_next_time() {
    let odd = |mut peer: Peer| async move {
        let discover = peer.expect("server/discover").await;
        peer.answer(&discover, json!({})).await;
        peer
    };
    let (connection, _peer) = open(limits(), Era::Unknown, odd).await;
    assert_eq!(connection.unwrap_err().next, Era::Handshake);
    let ends = |mut peer: Peer| async move {
        peer.expect("server/discover").await;
    };
    let (connection, ()) = open(limits(), Era::Unknown, ends).await;
    assert_eq!(connection.unwrap_err().next, Era::Handshake);
    let (connection, _peer) = open(limits(), Era::Handshake, |mut peer| async {
        peer.initialize().await;
        peer
    })
    .await;
    assert!(connection.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_at_all_is_given_up_within_the_bound() {
    let began = Instant::now();
    let (connection, _peer) = open(limits(), Era::Unknown, |peer| async { peer }).await;
    let error = connection.unwrap_err().error.to_string();
    assert!(error.contains("20s"), "{error}");
    assert!(about(began.elapsed(), limits().connect));
}

#[tokio::test(start_paused = true)]
async fn garbage_on_standard_output_is_skipped() {
    let (connection, _peer) = open(limits(), Era::Unknown, |mut peer| async {
        peer.raw(b"Starting server...\n{\"half\":\n\n\xff\xfe\n")
            .await;
        peer.greet().await;
        peer
    })
    .await;
    assert!(connection.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_list_of_several_pages_is_read_to_its_end() {
    let (connection, mut peer) = connected(limits()).await;
    let tool = |name: &str| {
        json!({ "name": name, "inputSchema": { "type": "object" },
            "annotations": { "readOnlyHint": name == "a" } })
    };
    let script = async {
        let first = peer.expect("tools/list").await;
        assert!(first["params"]["cursor"].is_null());
        peer.answer(&first, json!({ "tools": [tool("a")], "nextCursor": "p2" }))
            .await;
        let second = peer.expect("tools/list").await;
        assert_eq!(second["params"]["cursor"], "p2");
        peer.answer(&second, json!({ "tools": [tool("b")] })).await;
    };
    let (listed, ()) = tokio::join!(connection.list_tools(), script);
    let (tools, warnings) = listed.unwrap();
    assert_eq!(
        tools
            .iter()
            .map(|t| (t.tool.as_str(), t.read_only))
            .collect::<Vec<_>>(),
        [("a", true), ("b", false)]
    );
    assert!(warnings.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_server_without_tools_need_not_know_the_method() {
    let (connection, mut peer) = connected(limits()).await;
    let script = async {
        let list = peer.expect("tools/list").await;
        peer.refuse(&list, -32601).await;
    };
    let (listed, ()) = tokio::join!(connection.list_tools(), script);
    assert!(listed.unwrap().0.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_never_comes_ends_at_its_limit() {
    let (connection, mut peer) = connected(limits()).await;
    let (listed, _) = tokio::join!(connection.list_tools(), peer.expect("tools/list"));
    assert_eq!(listed.unwrap_err(), ListError::TimedOut(limits().list));
}

#[tokio::test(start_paused = true)]
async fn a_list_is_asked_for_once_when_the_server_promises_to_say_changes() {
    let (connection, peer) = open(limits(), Era::Handshake, |mut peer| async {
        let initialize = peer.expect("initialize").await;
        peer.answer(
            &initialize,
            json!({ "protocolVersion": "2025-06-18",
            "capabilities": { "tools": { "listChanged": true } },
            "serverInfo": { "name": "n", "version": "1" } }),
        )
        .await;
        peer.expect("notifications/initialized").await;
        peer
    })
    .await;
    let (connection, mut peer) = (connection.unwrap(), peer);
    for round in 0..2 {
        let script = async {
            let list = peer.expect("tools/list").await;
            peer.answer(&list, json!({ "tools": [] })).await;
        };
        let (listed, ()) = tokio::join!(connection.list_tools(), script);
        listed.unwrap();
        // Nobody answers here, so this one must come from memory.
        connection.list_tools().await.unwrap();
        if round == 0 {
            peer.send(json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }))
                .await;
            // The notice is taken in before the next request, since the stream has an order.
            tokio::time::sleep(S).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn progress_reaches_the_caller_and_keeps_the_call_alive() {
    let (connection, mut peer) = connected(limits()).await;
    let (request, mut reports, _) = call("t");
    let script = async {
        let call = peer.expect("tools/call").await;
        for n in 1..=4 {
            tokio::time::sleep(8 * S).await;
            peer.progress(&call, n).await;
        }
        peer.answer(&call, text("done")).await;
    };
    let (result, ()) = tokio::join!(connection.call(request), script);
    assert_eq!(
        result.unwrap().content,
        [Block::Text {
            text: "done".into()
        }]
    );
    let mut seen = Vec::new();
    while let Ok(report) = reports.try_recv() {
        seen.push(report.progress);
    }
    assert_eq!(seen, [1.0, 2.0, 3.0, 4.0]);
}

#[tokio::test(start_paused = true)]
async fn progress_for_another_call_does_not_count() {
    let (connection, mut peer) = connected(limits()).await;
    let (request, mut reports, _) = call("t");
    let script = async {
        let mut call = peer.expect("tools/call").await;
        call["params"]["_meta"]["progressToken"] = json!(4711);
        tokio::time::sleep(S).await;
        peer.progress(&call, 1).await;
        peer.expect("ping").await;
    };
    let (result, ()) = tokio::join!(connection.call(request), script);
    // It was heard, so it is not silent; but the call itself made no progress.
    assert!(matches!(result, Err(CallError::Inactive { .. })));
    assert!(reports.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn no_progress_extends_the_hard_limit() {
    let (connection, mut peer) = connected(limits()).await;
    let (request, _reports, _) = call("t");
    let began = Instant::now();
    let script = async {
        let call = peer.expect("tools/call").await;
        for n in 1..=12 {
            tokio::time::sleep(5 * S).await;
            peer.progress(&call, n).await;
        }
        let cancelled = peer.past_probes("notifications/cancelled").await;
        assert_eq!(cancelled["params"]["requestId"], call["id"]);
    };
    let (result, ()) = tokio::join!(connection.call(request), script);
    let error = result.unwrap_err();
    assert!(matches!(error, CallError::TooLong { .. }), "{error}");
    assert_eq!(error.code(), "mcp_call_timeout");
    assert!(about(began.elapsed(), limits().call_total));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_pings_is_slow_and_keeps_its_connection() {
    let (connection, mut peer) = connected(limits()).await;
    let (request, _reports, _) = call("t");
    let began = Instant::now();
    let script = async {
        let call = peer.expect("tools/call").await;
        loop {
            let message = peer.next().await;
            match message["method"].as_str().unwrap() {
                "ping" => peer.answer(&message, json!({})).await,
                "notifications/cancelled" => {
                    break assert_eq!(message["params"]["requestId"], call["id"]);
                }
                other => panic!("{other}"),
            }
        }
    };
    let (result, ()) = tokio::join!(connection.call(request), script);
    let error = result.unwrap_err();
    assert!(matches!(error, CallError::Inactive { .. }), "{error}");
    assert_eq!(error.code(), "mcp_call_timeout");
    assert!(about(began.elapsed(), limits().call_inactivity));
    assert!(connection.is_usable());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_nothing_is_silent_and_loses_its_connection() {
    let (connection, mut peer) = connected(limits()).await;
    let (request, _reports, _) = call("t");
    let began = Instant::now();
    let (result, ()) = tokio::join!(connection.call(request), async {
        peer.expect("tools/call").await;
    });
    assert_eq!(result.unwrap_err().code(), "mcp_server_silent");
    assert!(about(began.elapsed(), limits().call_inactivity));
    assert!(!connection.is_usable());
}

#[tokio::test(start_paused = true)]
async fn a_stateless_peer_is_probed_by_discovery() {
    let (connection, mut peer) = stateless(limits()).await;
    let (request, _reports, _) = call("t");
    let script = async {
        peer.expect("tools/call").await;
        let probe = peer.expect("server/discover").await;
        peer.answer(&probe, discovery()).await;
    };
    let (result, ()) = tokio::join!(connection.call(request), script);
    assert_eq!(result.unwrap_err().code(), "mcp_call_timeout");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_ends_at_once_and_the_server_is_told() {
    let (connection, mut peer) = connected(limits()).await;
    let (request, _reports, cancel) = call("t");
    let script = async {
        let call = peer.expect("tools/call").await;
        cancel.cancel();
        let told = peer.expect("notifications/cancelled").await;
        assert_eq!(told["params"]["requestId"], call["id"]);
        call
    };
    let (result, first) = tokio::join!(connection.call(request), script);
    assert_eq!(result.unwrap_err().code(), "mcp_call_cancelled");
    // A server that ignores it answers all the same, late, with progress: nobody minds.
    peer.progress(&first, 9).await;
    peer.answer(&first, text("too late")).await;
    let (request, mut reports, _) = call("t");
    let script = async {
        let call = peer.expect("tools/call").await;
        peer.answer(&call, text("second")).await;
    };
    let (result, ()) = tokio::join!(connection.call(request), script);
    assert_eq!(
        result.unwrap().content,
        [Block::Text {
            text: "second".into()
        }]
    );
    assert!(reports.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_during_a_call_is_gone_at_once() {
    let (connection, mut peer) = connected(limits()).await;
    let (request, _reports, _) = call("t");
    let began = Instant::now();
    let script = async {
        peer.expect("tools/call").await;
        drop(peer);
    };
    let (result, ()) = tokio::join!(connection.call(request), script);
    assert_eq!(result.unwrap_err().code(), "mcp_server_gone");
    assert!(about(began.elapsed(), Duration::ZERO));
    assert!(!connection.is_usable());
}

#[tokio::test(start_paused = true)]
async fn an_oversized_message_ends_the_connection_with_its_reason() {
    let small = Limits {
        message: 4096,
        ..limits()
    };
    let (connection, mut peer) = connected(small).await;
    let (request, _reports, _) = call("t");
    let script = async {
        let call = peer.expect("tools/call").await;
        peer.answer(&call, text(&"x".repeat(5000))).await;
    };
    let (result, ()) = tokio::join!(connection.call(request), script);
    assert_eq!(result.unwrap_err().code(), "mcp_result_too_large");
    assert!(!connection.is_usable());
}

#[tokio::test(start_paused = true)]
async fn oversized_arguments_never_leave() {
    let small = Limits {
        arguments: 100,
        ..limits()
    };
    let (connection, _peer) = connected(small).await;
    let (request, _reports, _) = support::call_with("t", json!({ "a": "x".repeat(100) }));
    let error = connection.call(request).await.unwrap_err();
    assert!(
        matches!(error, CallError::TooLarge { limit: 100, .. }),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_read_is_wedged_and_replaced() {
    let (connection, _peer) = connected(limits()).await;
    // More than the pipe takes, so the write blocks; the peer never reads.
    let (request, _reports, _) = support::call_with("t", json!({ "a": "x".repeat(200_000) }));
    let error = connection.call(request).await.unwrap_err();
    assert_eq!(error.code(), "mcp_server_silent");
    assert!(!connection.is_usable());
}

#[tokio::test(start_paused = true)]
async fn calls_in_flight_are_bounded() {
    let (connection, _peer) = connected(limits()).await;
    let calls = (0..17).map(|_| connection.call(call("t").0));
    let results = futures_util::future::join_all(calls).await;
    let codes: Vec<_> = results.into_iter().map(|r| r.unwrap_err().code()).collect();
    assert_eq!(
        codes
            .iter()
            .filter(|code| **code == "mcp_server_busy")
            .count(),
        1
    );
    assert_eq!(
        codes
            .iter()
            .filter(|code| **code == "mcp_server_silent")
            .count(),
        16
    );
}

#[tokio::test(start_paused = true)]
async fn a_refusal_keeps_its_code_and_is_made_printable() {
    let (connection, mut peer) = connected(limits()).await;
    let (request, _reports, _) = call("t");
    let script = async {
        let call = peer.expect("tools/call").await;
        peer.send(json!({ "jsonrpc": "2.0", "id": call["id"],
            "error": { "code": -32602, "message": "bad\u{1b}[2Jargument" } }))
            .await;
    };
    let (result, ()) = tokio::join!(connection.call(request), script);
    let error = result.unwrap_err();
    assert_eq!(error.code(), "mcp_call_refused");
    assert!(
        error.message().contains("bad [2Jargument (-32602)"),
        "{}",
        error.message()
    );
    assert!(connection.is_usable());
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_another_kind_is_against_the_protocol() {
    let (connection, mut peer) = connected(limits()).await;
    let (request, _reports, _) = call("t");
    let script = async {
        let call = peer.expect("tools/call").await;
        peer.answer(&call, json!({ "tools": [] })).await;
    };
    let (result, ()) = tokio::join!(connection.call(request), script);
    assert_eq!(result.unwrap_err().code(), "mcp_protocol_error");
}

#[tokio::test(start_paused = true)]
async fn a_result_that_the_tool_marks_as_an_error_is_a_result() {
    let (connection, mut peer) = connected(limits()).await;
    let (request, _reports, _) = call("t");
    let script = async {
        let call = peer.expect("tools/call").await;
        peer.answer(&call, json!({ "content": [], "isError": true }))
            .await;
    };
    let (result, ()) = tokio::join!(connection.call(request), script);
    assert!(result.unwrap().is_error);
}

#[tokio::test(start_paused = true)]
async fn a_server_of_the_handshake_era_that_asks_the_person_is_declined() {
    let (connection, mut peer) = connected(limits()).await;
    let (request, _reports, _) = call("t");
    let script = async {
        let call = peer.expect("tools/call").await;
        peer.send(
            json!({ "jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {
            "message": "password?", "requestedSchema": { "type": "object", "properties": {} } } }),
        )
        .await;
        let declined = peer.next().await;
        assert_eq!(declined["result"]["action"], "decline", "{declined}");
        peer.send(
            json!({ "jsonrpc": "2.0", "id": 2, "method": "sampling/createMessage",
            "params": { "messages": [], "maxTokens": 9 } }),
        )
        .await;
        let refused = peer.next().await;
        assert_eq!(refused["error"]["code"], -32601, "{refused}");
        peer.answer(&call, text("went on without")).await;
    };
    let (result, ()) = tokio::join!(connection.call(request), script);
    assert!(result.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_stateless_server_that_asks_back_is_declined_and_its_state_returned() {
    let (connection, mut peer) = stateless(limits()).await;
    let (request, _reports, _) = call("t");
    let script = async {
        let first = peer.expect("tools/call").await;
        let meta = &first["params"]["_meta"];
        assert_eq!(
            meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28",
            "{first}"
        );
        peer.answer(&first, json!({ "resultType": "input_required", "requestState": "opaque",
            "inputRequests": { "q": { "method": "elicitation/create", "params": { "mode": "form",
                "message": "sure?", "requestedSchema": { "type": "object", "properties": {} } } } } }))
            .await;
        let second = peer.expect("tools/call").await;
        assert_eq!(second["params"]["requestState"], "opaque");
        assert_eq!(
            second["params"]["inputResponses"]["q"]["action"], "decline",
            "{second}"
        );
        let mut done = text("done");
        done["resultType"] = json!("complete");
        peer.answer(&second, done).await;
    };
    let (result, ()) = tokio::join!(connection.call(request), script);
    assert_eq!(
        result.unwrap().content,
        [Block::Text {
            text: "done".into()
        }]
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_without_end_is_stopped() {
    let (connection, mut peer) = stateless(limits()).await;
    let (request, _reports, _) = call("t");
    let script = async {
        for _ in 0..limits().input_rounds {
            let call = peer.expect("tools/call").await;
            peer.answer(
                &call,
                json!({ "resultType": "input_required", "requestState": "again" }),
            )
            .await;
        }
    };
    let (result, ()) = tokio::join!(connection.call(request), script);
    assert_eq!(result.unwrap_err().code(), "mcp_protocol_error");
}

#[tokio::test(start_paused = true)]
async fn closing_ends_the_servers_input() {
    let (connection, mut peer) = connected(limits()).await;
    let ((), closed) = tokio::join!(connection.close(), peer.closed());
    assert!(closed && !connection.is_usable());
}
