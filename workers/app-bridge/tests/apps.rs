//! What an app may ask, of whom, and what becomes of it.
#![allow(clippy::unwrap_used)]

mod support;

use ipc_proto::apps::{Act, AppAnswer, Claim, Decision, Inspect};
use ipc_proto::settings::{AppRule, AppsSettings, McpServerSettings, ServerApps, Verdict};
use mono_app_bridge::apps::operator::inspect;
use mono_app_bridge::apps::quota::Bounds;
use mono_app_bridge::apps::vault::{Hook, Point};
use mono_app_bridge::limits::Limits;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::stage::{Bench, PAGE, Setting, bench, claim_of, code, done, server, until};
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn a_call_is_asked_about_executed_once_and_written_down() {
    let bench = bench();
    let view = bench.watched().await;
    let asked = view
        .ask(
            "tools/call",
            json!({ "name": "app_only", "arguments": { "n": 1 } }),
        )
        .await;
    let AppAnswer::Confirm { confirmation } = asked else {
        panic!("{asked:?}")
    };
    assert_eq!(confirmation.server, "s");
    assert_eq!(confirmation.tool.as_deref(), Some("app_only"));
    assert!(confirmation.may_remember && confirmation.preview.contains("\"n\": 1"));
    assert!(bench.calls().is_empty());
    let result: Value = done(view.decide(&confirmation.id, Decision::Once).await);
    assert_eq!(result["content"][0]["text"], "ok");
    assert_eq!(bench.calls(), ["app_only"]);
    // Once: neither the answer again nor the next call.
    assert_eq!(
        code(&view.decide(&confirmation.id, Decision::Once).await),
        "app_request_invalid"
    );
    assert_eq!(code(&view.call("app_only").await), "confirm");
    assert_eq!(bench.calls(), ["app_only"]);
    assert_eq!(
        view.phases(),
        ["requested", "confirmed", "completed", "requested"]
    );
}

#[tokio::test]
async fn who_asks_is_judged_before_what_is_asked() {
    let bench = bench();
    let view = bench.watched().await;
    let other = bench.app("web:other").await;
    let own = &view.claim;
    let with = |change: fn(&mut Claim)| {
        let mut claim = own.clone();
        change(&mut claim);
        claim
    };
    for (claim, expected) in [
        (with(|c| c.invocation = "0".repeat(32)), "app_missing"),
        (with(|c| c.invocation = "../../etc".into()), "app_missing"),
        (with(|c| c.delivery = "web:other".into()), "app_forbidden"),
        (with(|c| c.run = "another".into()), "app_forbidden"),
        (with(|c| c.connection = "another".into()), "app_forbidden"),
        // This one's view and capability are no good for another's app.
        (other.clone(), "app_forbidden"),
    ] {
        let act = view.request("tools/call", json!({ "name": "plain" }));
        assert_eq!(code(&bench.act(&claim, act).await), expected, "{claim:?}");
        if claim != other {
            assert_eq!(code(&bench.act(&claim, Act::Show).await), expected);
            assert_eq!(code(&bench.act(&claim, Act::Html).await), expected);
            assert_eq!(code(&bench.act(&claim, Act::Open).await), expected);
        }
    }
    let other = bench.view(other).await;
    for (view_name, capability) in [
        (view.view.clone(), String::new()),
        (view.view.clone(), "x".repeat(43)),
        (view.view.clone(), other.capability.clone()),
        (other.view.clone(), view.capability.clone()),
        ("unknown".into(), view.capability.clone()),
    ] {
        let act = Act::Request {
            view: view_name,
            capability,
            method: "tools/call".into(),
            params: json!({ "name": "plain" }),
        };
        assert_eq!(code(&bench.act(own, act).await), "app_forbidden");
    }
    assert!(bench.calls().is_empty());
    assert!(view.phases().is_empty());
}

#[tokio::test]
async fn what_is_asked_is_judged_by_the_server_as_it_is_now() {
    let bench = bench();
    let view = bench.watched().await;
    for (tool, expected) in [
        ("model_only", "app_tool_forbidden"),
        ("nobody", "app_tool_forbidden"),
        ("odd", "app_tool_forbidden"),
        ("unknown", "app_tool_forbidden"),
        ("plain", "confirm"),
        ("app_only", "confirm"),
    ] {
        assert_eq!(code(&view.call(tool).await), expected, "{tool}");
    }
    for arguments in [json!({ "n": "1" }), json!({ "m": 1 })] {
        let params = json!({ "name": "plain", "arguments": arguments });
        assert_eq!(
            code(&view.ask("tools/call", params).await),
            "app_arguments_invalid"
        );
    }
    // Each time the tools are asked for anew, and what was taken back is gone.
    let lists = bench.stage.play().lists;
    let AppAnswer::Confirm { confirmation } = view.call("app_only").await else {
        panic!()
    };
    assert_eq!(bench.stage.play().lists, lists + 1);
    bench.stage.play().tools[2].1 = json!({ "visibility": ["model"] });
    let late = view.decide(&confirmation.id, Decision::View).await;
    assert_eq!(code(&late), "app_tool_forbidden");
    assert!(bench.calls().is_empty());
    let listed: Value = done(view.ask("tools/list", json!({})).await);
    let names: Vec<_> = listed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["name"].clone())
        .collect();
    assert!(names.contains(&"plain".into()) && !names.contains(&"app_only".into()));
    assert!(!names.contains(&"model_only".into()) && !names.contains(&"nobody".into()));
}

#[tokio::test]
async fn a_yes_for_the_view_is_for_one_tool_of_one_view() {
    let bench = bench();
    let view = bench.watched().await;
    let call = |tool: &'static str| json!({ "name": tool });
    let first = view
        .allowed("tools/call", call("app_only"), Decision::View)
        .await;
    assert_eq!(code(&first), "done");
    assert_eq!(code(&view.call("app_only").await), "done");
    assert_eq!(code(&view.call("plain").await), "confirm");
    let again = bench.view(view.claim.clone()).await;
    assert_eq!(code(&again.call("app_only").await), "confirm");
    let close = Act::Close {
        view: view.view.clone(),
    };
    bench.act(&view.claim, close).await;
    assert_eq!(code(&view.call("app_only").await), "app_forbidden");
}

#[tokio::test]
async fn a_no_is_final_and_written_down() {
    let bench = bench();
    let view = bench.watched().await;
    let answer = view
        .allowed("tools/call", json!({ "name": "plain" }), Decision::Deny)
        .await;
    assert_eq!(code(&answer), "app_declined");
    assert_eq!(view.phases(), ["requested", "rejected"]);
    assert!(bench.calls().is_empty());
}

fn rules(list: &[(&str, Verdict)]) -> AppsSettings {
    let rule = |(tool, decision): &(&str, Verdict)| AppRule {
        tool: (*tool).to_owned(),
        decision: *decision,
    };
    AppsSettings {
        max_age_days: 1,
        rules: list.iter().map(rule).collect(),
        ..AppsSettings::default()
    }
}

#[tokio::test]
async fn rules_deny_ask_each_time_and_fail_closed() {
    let bench = Bench::set(Setting {
        apps: rules(&[("@s/plain", Verdict::Deny), ("@s/app_*", Verdict::Ask)]),
        ..Setting::default()
    });
    let view = bench.watched().await;
    assert_eq!(code(&view.call("plain").await), "app_tool_forbidden");
    let AppAnswer::Confirm { confirmation } = view.call("app_only").await else {
        panic!()
    };
    assert!(!confirmation.may_remember);
    let remembered = view.decide(&confirmation.id, Decision::View).await;
    assert_eq!(code(&remembered), "app_request_invalid");
    assert_eq!(code(&view.call("leak").await), "confirm");
    let bench = Bench::set(Setting {
        apps: rules(&[("broken", Verdict::Allow)]),
        ..Setting::default()
    });
    let view = bench.watched().await;
    assert_eq!(code(&view.call("plain").await), "app_tool_forbidden");
    assert!(bench.calls().is_empty());
}

#[tokio::test]
async fn sixty_a_minute_and_not_one_more() {
    let bench = bench();
    let view = bench.watched().await;
    let first = view
        .allowed("tools/call", json!({ "name": "plain" }), Decision::View)
        .await;
    assert_eq!(code(&first), "done");
    for n in 1..60 {
        assert_eq!(code(&view.call("plain").await), "done", "{n}");
    }
    assert_eq!(code(&view.call("plain").await), "app_rate_limited");
    // Of the connection, not of the view.
    let again = bench.view(view.claim.clone()).await;
    assert_eq!(
        code(&again.ask("tools/list", json!({})).await),
        "app_rate_limited"
    );
}

#[tokio::test]
async fn requests_and_results_are_bounded_at_both_edges() {
    let bench = bench();
    let view = bench.watched().await;
    let params = |bytes: usize| {
        let mut params = json!({ "uri": PAGE, "pad": "" });
        let frame = params.to_string().len();
        params["pad"] = "x".repeat(bytes - frame).into();
        params
    };
    assert_eq!(
        code(&view.ask("resources/read", params(64 << 10)).await),
        "done"
    );
    let over = view.ask("resources/read", params((64 << 10) + 1)).await;
    assert_eq!(code(&over), "app_request_too_large");
    // Of the result only the text grows.
    let big = || view.allowed("tools/call", json!({ "name": "big" }), Decision::Once);
    let frame = done::<Value>(big().await).to_string().len();
    for (bytes, expected) in [(1 << 20, "done"), ((1 << 20) + 1, "app_result_too_large")] {
        bench.stage.play().big = bytes - frame;
        assert_eq!(code(&big().await), expected);
    }
    // What was done is written down as done, whatever became of its result.
    assert_eq!(view.phases().last().unwrap(), "completed");
}

#[tokio::test]
async fn only_the_own_page_is_read() {
    let bench = bench();
    let view = bench.watched().await;
    let read: Value = done(view.ask("resources/read", json!({ "uri": PAGE })).await);
    assert_eq!(read["contents"][0]["text"], "<p>page");
    for uri in [
        "ui://stage/other",
        "ui://stage/page/",
        "file:///etc/passwd",
        "",
    ] {
        let answer = view.ask("resources/read", json!({ "uri": uri })).await;
        assert_eq!(code(&answer), "app_resource_forbidden", "{uri}");
    }
    for method in [
        "resources/list",
        "prompts/list",
        "ping",
        "sampling/createMessage",
        "",
    ] {
        assert_eq!(
            code(&view.ask(method, json!({})).await),
            "app_request_invalid"
        );
    }
}

#[tokio::test]
async fn a_closed_view_takes_its_calls_with_it() {
    let bench = bench();
    let view = bench.watched().await;
    let AppAnswer::Confirm { confirmation } = view.call("slow").await else {
        panic!()
    };
    let called = view.decide(&confirmation.id, Decision::Once);
    let closed = async {
        until(&bench.stage, |play| play.calls == ["slow"]).await;
        let close = Act::Close {
            view: view.view.clone(),
        };
        bench.act(&view.claim, close).await
    };
    let (called, closed) = tokio::join!(called, closed);
    assert_eq!(
        (code(&called), code(&closed)),
        ("app_connection_closed", "done")
    );
    until(&bench.stage, |play| play.cancelled == 1).await;
    assert_eq!(view.phases(), ["requested", "confirmed", "completed"]);
}

#[tokio::test]
async fn whoever_stops_waiting_cancels_at_the_server_before_it_ends() {
    let bench = bench();
    let view = bench.watched().await;
    let AppAnswer::Confirm { confirmation } = view.call("slow").await else {
        panic!()
    };
    let gone = CancellationToken::new();
    let act = Act::Decide {
        view: view.view.clone(),
        capability: view.capability.clone(),
        confirmation: confirmation.id,
        decision: Decision::Once,
    };
    let leave = async {
        until(&bench.stage, |play| play.calls == ["slow"]).await;
        gone.cancel();
    };
    let (_, ()) = tokio::join!(bench.act_until(&view.claim, act, gone.clone()), leave);
    until(&bench.stage, |play| play.cancelled == 1).await;
    assert_eq!(view.phases().last().unwrap(), "completed");
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_withdrawn() {
    let bench = Bench::set(Setting {
        limits: Limits {
            app_call: Duration::from_millis(200),
            ..Limits::default()
        },
        ..Setting::default()
    });
    let view = bench.watched().await;
    let answer = view
        .allowed("tools/call", json!({ "name": "slow" }), Decision::Once)
        .await;
    assert_eq!(code(&answer), "app_timeout");
    until(&bench.stage, |play| play.cancelled == 1).await;
    // The connection is good for the next one.
    assert_eq!(code(&view.call("plain").await), "confirm");
}

#[tokio::test]
async fn a_server_s_own_refusal_is_passed_on_as_such() {
    let bench = bench();
    let view = bench.watched().await;
    let answer = view
        .allowed("tools/call", json!({ "name": "refuse" }), Decision::Once)
        .await;
    let AppAnswer::Refused { code, rpc, .. } = answer else {
        panic!()
    };
    let rpc = rpc.unwrap();
    assert_eq!(
        (code.as_str(), rpc.code, rpc.message.as_str()),
        ("app_tool_failed", -32602, "not today")
    );
}

#[tokio::test]
async fn an_app_whose_server_has_ended_is_shown_and_not_connected() {
    let bench = bench();
    let view = bench.watched().await;
    assert!(bench.record(&view.claim).await.connected);
    bench.stage.kill();
    let mut answer = view.call("plain").await;
    // The end of a pipe may come a moment after the call.
    for _ in 0..50 {
        if code(&answer) == "app_connection_closed" {
            break;
        }
        answer = view.call("plain").await;
    }
    assert_eq!(code(&answer), "app_connection_closed");
    let record = bench.record(&view.claim).await;
    assert!(!record.connected && record.input == json!({ "n": 1 }));
    assert_eq!(code(&bench.act(&view.claim, Act::Html).await), "done");
    let read = view.ask("resources/read", json!({ "uri": PAGE })).await;
    assert_eq!(code(&read), "app_connection_closed");
    // What needs no server still may be asked.
    let link = view
        .ask("ui/open-link", json!({ "url": "https://example.com/" }))
        .await;
    assert_eq!(code(&link), "confirm");
}

#[tokio::test]
async fn nine_conversations_leave_eight_connections() {
    let bench = bench();
    let mut claims = Vec::new();
    for n in 0..9 {
        claims.push(bench.app(&format!("web:{n}")).await);
    }
    bench.servers.sweep().await.unwrap();
    assert!(!bench.record(&claims[0]).await.connected);
    for claim in &claims[1..] {
        assert!(bench.record(claim).await.connected);
    }
    // Used last, kept longest.
    let view = bench.view(claims[1].clone()).await;
    assert_eq!(code(&view.ask("tools/list", json!({})).await), "done");
    bench.app("web:9").await;
    bench.servers.sweep().await.unwrap();
    assert!(bench.record(&claims[1]).await.connected);
    assert!(!bench.record(&claims[2]).await.connected);
}

#[tokio::test]
async fn an_app_s_own_result_brings_no_second_app() {
    let bench = bench();
    let view = bench.watched().await;
    let records = bench.desk.vault().usage().records;
    let answer = view
        .allowed("tools/call", json!({ "name": "show" }), Decision::Once)
        .await;
    let result: Value = done(answer);
    assert_eq!(result["content"], json!([{ "type": "text", "text": "ok" }]));
    assert_eq!(bench.desk.vault().usage().records, records);
}

#[tokio::test]
async fn credentials_are_taken_out_unless_the_configuration_wants_them() {
    for (exact, shown) in [
        (false, "key [redacted]"),
        (true, "key sk-live-abcdefghijklmnop1234"),
    ] {
        let apps = ServerApps {
            exact_results: exact,
            webrtc: false,
        };
        let bench = Bench::set(Setting {
            server: McpServerSettings {
                apps: Some(apps),
                ..server()
            },
            ..Setting::default()
        });
        bench
            .stage
            .play()
            .tools
            .push(("leak2".into(), json!({ "resourceUri": PAGE })));
        let view = bench.watched().await;
        let answer = view
            .allowed("tools/call", json!({ "name": "leak" }), Decision::Once)
            .await;
        let result: Value = done(answer);
        assert_eq!(result["content"][0]["text"], shown);
        let record = bench.record(&view.claim).await;
        assert!(!record.redacted && !record.webrtc);
    }
}

#[tokio::test]
async fn what_a_page_asks_for_is_granted_by_the_host_and_the_rest_is_told() {
    let bench = Bench::set(Setting {
        apps: AppsSettings {
            max_age_days: 1,
            allowed_origins: vec!["https://*.example.com".into(), "nonsense".into()],
            clipboard: true,
            rules: vec![],
        },
        ..Setting::default()
    });
    bench.stage.play().page = json!({ "prefersBorder": false,
        "csp": { "connectDomains": ["https://a.example.com", "https://evil.example"] },
        "permissions": { "clipboardWrite": {}, "camera": {} } });
    let claim = bench.app("web:t").await;
    let record = bench.record(&claim).await;
    assert_eq!(record.csp.connect_domains, ["https://a.example.com"]);
    assert_eq!(record.permissions, json!({ "clipboardWrite": {} }));
    assert_eq!(record.prefers_border, Some(false));
    let told: Vec<_> = record
        .refused
        .iter()
        .map(|w| (&*w.kind, &*w.value))
        .collect();
    assert_eq!(
        told,
        [
            ("connect", "https://evil.example"),
            ("permission", "camera")
        ]
    );
}

#[tokio::test]
async fn without_room_in_the_audit_nothing_is_done() {
    let bench = Bench::set(Setting {
        bounds: Bounds {
            reserve: 300,
            ..Bounds::default()
        },
        ..Setting::default()
    });
    let view = bench.watched().await;
    // The question itself fits, the answer's entries don't.
    let answer = view
        .allowed("tools/call", json!({ "name": "plain" }), Decision::Once)
        .await;
    assert_eq!(code(&answer), "app_audit_failed");
    assert!(bench.calls().is_empty());
}

#[tokio::test]
async fn an_end_that_can_not_be_written_is_a_conflict_and_the_call_stands() {
    let place: Arc<Mutex<Option<std::path::PathBuf>>> = Arc::default();
    let (seen, appended) = (place.clone(), Arc::new(AtomicUsize::new(0)));
    let hook: Hook = Arc::new(move |point| {
        // Requested, confirmed, and then the end.
        if point == Point::Append
            && appended.fetch_add(1, Ordering::Relaxed) == 2
            && let Some(log) = seen.lock().unwrap().clone()
        {
            std::fs::remove_file(log).unwrap();
        }
    });
    let bench = Bench::set(Setting {
        hook: Some(hook),
        ..Setting::default()
    });
    let view = bench.watched().await;
    let log = bench
        .temp
        .path()
        .join("apps")
        .join(&view.claim.invocation)
        .join("audit.jsonl");
    *place.lock().unwrap() = Some(log);
    let answer = view
        .allowed("tools/call", json!({ "name": "plain" }), Decision::Once)
        .await;
    assert_eq!(code(&answer), "app_audit_incomplete");
    // Done, and done once.
    assert_eq!(bench.calls(), ["plain"]);
}

#[tokio::test]
async fn proposals_go_to_the_person() {
    let bench = bench();
    let view = bench.watched().await;
    let link = json!({ "url": "https://example.com/a" });
    let AppAnswer::Confirm { confirmation } = view.ask("ui/open-link", link.clone()).await else {
        panic!()
    };
    assert_eq!(confirmation.host.as_deref(), Some("example.com"));
    assert!(!confirmation.may_remember);
    let opened: Value = done(view.decide(&confirmation.id, Decision::Once).await);
    assert_eq!(opened["url"], "https://example.com/a");
    // Each time anew.
    assert_eq!(code(&view.ask("ui/open-link", link).await), "confirm");
    let context = |text: &str| json!({ "content": [{ "type": "text", "text": text }] });
    let kept: Value = done(
        view.allowed("ui/update-model-context", context("one"), Decision::View)
            .await,
    );
    assert_eq!(kept, json!({ "kept": true, "text": "one" }));
    assert_eq!(
        code(&view.ask("ui/update-model-context", context("two")).await),
        "done"
    );
    let message = json!({ "role": "user", "content": [{ "type": "text", "text": "hi" }] });
    let said: Value = done(view.ask("ui/message", message.clone()).await);
    assert_eq!(said["text"], "hi");
    assert_eq!(
        code(&view.ask("ui/message", message).await),
        "app_rate_limited"
    );
    assert!(bench.calls().is_empty());
}

#[tokio::test]
async fn four_questions_wait_at_most() {
    let bench = bench();
    let view = bench.watched().await;
    for _ in 0..4 {
        assert_eq!(code(&view.call("plain").await), "confirm");
    }
    assert_eq!(code(&view.call("plain").await), "app_rate_limited");
}

#[tokio::test]
async fn an_operator_sees_an_app_and_closes_it() {
    let bench = bench();
    let view = bench.watched().await;
    let id = view.claim.invocation.clone();
    let ask = |what: Inspect| inspect(&bench.servers, what);
    let listed = ask(Inspect::Apps {
        limit: 1,
        cursor: None,
    })
    .await
    .unwrap();
    assert_eq!(listed["apps"][0]["id"], id.as_str());
    // The last page, as that of every list.
    assert!(listed.get("nextCursor").is_none(), "{listed}");
    assert_eq!(
        (&listed["apps"][0]["connected"], &listed["apps"][0]["views"]),
        (&json!(true), &json!(1))
    );
    let servers = ask(Inspect::Servers).await.unwrap();
    assert_eq!(servers["servers"][0]["connections"], 1);
    let probed = ask(Inspect::Probe { server: "s".into() }).await.unwrap();
    assert_eq!(
        (&probed["ok"], probed["tools"].as_array().unwrap().len()),
        (&json!(true), 10)
    );
    assert!(
        ask(Inspect::Probe {
            server: "none".into()
        })
        .await
        .is_err()
    );
    ask(Inspect::CloseApp { id: id.clone() }).await.unwrap();
    // Its views are gone, and a new one may do nothing.
    assert_eq!(code(&view.call("plain").await), "app_forbidden");
    let again = bench.view(view.claim.clone()).await;
    assert_eq!(code(&again.call("plain").await), "app_connection_closed");
    assert!(!bench.record(&view.claim).await.connected);
    let stats = ask(Inspect::Stats).await.unwrap();
    assert_eq!(stats["apps"]["captured"], 1);
    for what in [
        Inspect::App { id: "none".into() },
        Inspect::Audit { id: "none".into() },
        Inspect::CloseApp { id: "none".into() },
        Inspect::Apps {
            limit: 5,
            cursor: Some("none".into()),
        },
    ] {
        assert!(ask(what).await.is_err());
    }
}

#[tokio::test]
async fn an_app_is_shown_while_its_run_goes_on_and_goes_with_it_when_it_is_not_kept() {
    let bench = bench();
    let scope = bench.run("web:t");
    let part = bench.capture(&scope, "show").await.unwrap();
    let claim = claim_of(&scope, &part);
    let shown: Value = done(bench.act(&claim, Act::Show).await);
    assert_eq!(shown["connected"], true);
    let other = Claim {
        delivery: "web:u".into(),
        ..claim.clone()
    };
    assert_eq!(code(&bench.act(&other, Act::Show).await), "app_forbidden");
    let opened: Value = done(bench.act(&claim, Act::Open).await);
    assert!(opened["view"].is_string());
    bench.desk.settle(scope.run.as_str()).await;
    assert_eq!(code(&bench.act(&claim, Act::Show).await), "app_missing");
    assert_eq!(bench.desk.vault().usage().records, 0);
}
