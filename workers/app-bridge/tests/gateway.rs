//! The gateway against a server that does what a test says, over real pipes and sockets.
#![allow(clippy::unwrap_used)]

#[path = "support/bed.rs"]
mod bed;
#[path = "support/scripted.rs"]
mod scripted;

use bed::{Bed, HOLDER, error, text};
use ipc_proto::settings::{AppsSettings, McpServerSettings, McpTransport, ServerApps};
use mono_app_bridge::apps::desk::Desk;
use mono_app_bridge::apps::folder::Folder;
use mono_app_bridge::apps::vault::Vault;
use mono_app_bridge::gateway::GatewayLimits;
use mono_app_bridge::gateway::broker::{Broker, Holder};
use mono_app_bridge::limits::Limits;
use mono_app_bridge::servers::Servers;
use scripted::{Scripted, declared, tool};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

#[tokio::test]
async fn a_client_lists_and_calls_and_sees_only_what_is_for_a_model() {
    let bed = Bed::new(vec![declared("s")], GatewayLimits::default());
    let hidden = json!({ "ui": { "visibility": ["app"] } });
    bed.server
        .add(json!({ "name": "hidden", "inputSchema": {}, "_meta": hidden }));
    let mut stub = bed.greeted("s", 1).await;
    let listing = stub.ask(json!(1), "tools/list", json!({})).await;
    let names: Vec<_> = listing["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| &t["name"])
        .collect();
    assert!(
        names.iter().all(|name| **name != "hidden") && names.len() > 3,
        "{names:?}"
    );
    assert!(stub.anchor.as_ref().unwrap().contains("echo"));
    assert_eq!(
        text(&stub.call(2, "echo", json!({ "a": 1 })).await),
        r#"{"a":1}"#
    );
    // Who knows it all the same may not call it.
    assert!(error(&stub.call(3, "hidden", json!({})).await).contains("not for a model"));
    let twice = r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"echo","name":"hidden"}}"#;
    stub.say(twice).await;
    assert!(error(&stub.message().await).contains("one tool"));
    assert_eq!(bed.server.heard("tools/call").len(), 1);
    // The server is told of the client's own capabilities, but not of apps.
    let greeting = &bed.server.heard("initialize")[0]["params"];
    assert_eq!(greeting["capabilities"], json!({ "sampling": {} }));
    assert_eq!(greeting["clientInfo"]["name"], "test");
    assert_eq!(bed.server.heard("notifications/initialized").len(), 1);
    let stats = bed.broker.stats();
    assert_eq!((stats.sessions, stats.backends, stats.requests), (1, 1, 4));
}

#[tokio::test]
async fn two_stubs_share_a_process_where_that_is_declared_and_use_the_same_ids() {
    let mut settings = declared("s");
    settings.shared = true;
    let bed = Bed::new(vec![settings], GatewayLimits::default());
    let (mut one, mut two) = (bed.greeted("s", 1).await, bed.greeted("s", 2).await);
    assert_eq!(bed.server.started(), 1);
    assert_eq!(
        bed.server.heard("initialize")[0]["params"]["clientInfo"]["name"],
        "mono"
    );
    // Both wait under the same id and the same progress token.
    let params = |say: &str| json!({ "name": "progress", "arguments": { "say": say }, "_meta": { "progressToken": "p" } });
    one.send(json!(5), "tools/call", params("one")).await;
    two.send(json!(5), "tools/call", params("two")).await;
    for (stub, own) in [(&mut one, "one"), (&mut two, "two")] {
        let progress = stub.message().await;
        assert_eq!(progress["params"]["progressToken"], "p");
        assert_eq!(progress["params"]["message"], own);
        let answer = stub.message().await;
        assert_eq!((&answer["id"], text(&answer)), (&json!(5), own));
    }
    // What can't be attributed is for nobody, and nobody's question is answered for all.
    one.call(6, "log", json!({})).await;
    assert_eq!(text(&one.call(7, "ask", json!({})).await), "refused -32601");
    assert_eq!(text(&two.call(6, "echo", json!({})).await), "{}");
}

#[tokio::test]
async fn without_a_declaration_each_stub_has_a_process_and_its_questions() {
    let bed = Bed::new(vec![declared("s")], GatewayLimits::default());
    let (mut one, _two) = (bed.greeted("s", 1).await, bed.greeted("s", 2).await);
    assert_eq!(bed.server.started(), 2);
    one.send(
        json!(1),
        "tools/call",
        json!({ "name": "ask", "arguments": {} }),
    )
    .await;
    let asked = one.message().await;
    assert_eq!(asked["method"], "sampling/createMessage");
    let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "said": "yes" } });
    one.say(&answer.to_string()).await;
    assert_eq!(text(&one.message().await), r#"answered {"said":"yes"}"#);
    one.send(
        json!(2),
        "tools/call",
        json!({ "name": "log", "arguments": {} }),
    )
    .await;
    assert_eq!(one.message().await["method"], "notifications/message");
}

#[tokio::test]
async fn a_killed_server_is_told_and_replaced_without_a_second_handshake_of_the_client() {
    let bed = Bed::new(vec![declared("s")], GatewayLimits::default());
    let mut stub = bed.greeted("s", 1).await;
    stub.ask(json!(1), "tools/list", json!({})).await;
    stub.send(
        json!(2),
        "tools/call",
        json!({ "name": "wait", "arguments": {} }),
    )
    .await;
    bed.server.waits(1).await;
    bed.server.kill();
    let answer = stub.message().await;
    assert!(error(&answer).contains("not repeated"), "{answer}");
    assert_eq!(text(&stub.call(3, "echo", json!({})).await), "{}");
    assert_eq!(
        (bed.server.started(), bed.server.heard("initialize").len()),
        (2, 2)
    );
    let stats = bed.broker.stats();
    assert_eq!(
        (stats.replaced, stats.mismatched, stats.outstanding),
        (1, 0, 0)
    );
}

#[tokio::test]
async fn a_replacement_with_more_tools_passes_and_one_with_others_does_not() {
    for (change, refused) in [
        ("more", None),
        ("changed", Some("echo (changed)")),
        ("less", Some("echo (gone)")),
    ] {
        let bed = Bed::new(vec![declared("s")], GatewayLimits::default());
        let mut stub = bed.greeted("s", 1).await;
        stub.ask(json!(1), "tools/list", json!({})).await;
        match change {
            "more" => bed.server.add(tool("new")),
            "less" => bed.server.remove("echo"),
            _ => {
                bed.server.remove("echo");
                bed.server.add(json!({ "name": "echo", "inputSchema": { "type": "object", "required": ["b"] } }));
            }
        }
        bed.kill().await;
        let answer = stub.call(2, "echo", json!({})).await;
        let Some(why) = refused else {
            assert_eq!(text(&answer), "{}");
            continue;
        };
        assert!(error(&answer).contains(why), "{answer}");
        assert!(
            error(&stub.call(3, "echo", json!({})).await).contains(why),
            "it stays so"
        );
        assert_eq!(bed.server.heard("tools/call").len(), 0);
        assert_eq!(bed.broker.stats().mismatched, 1);
        // A client that begins anew has seen what there is.
        assert!(stub.initialize().await.get("result").is_some());
        stub.ask(json!(4), "tools/list", json!({})).await;
        assert!(
            stub.call(5, "echo", json!({}))
                .await
                .get("result")
                .is_some()
        );
    }
}

/// What a stub brings along after the gateway itself was lost.
#[tokio::test]
async fn an_anchor_outlives_the_gateway() {
    let bed = Bed::new(vec![declared("s")], GatewayLimits::default());
    let mut stub = bed.greeted("s", 1).await;
    stub.ask(json!(1), "tools/list", json!({})).await;
    let anchor = stub.anchor.clone().unwrap();
    bed.broker.close();
    assert_eq!(stub.line().await, None, "the stub goes to the next gateway");
    for lost in [false, true] {
        let next = Bed::new(vec![declared("s")], GatewayLimits::default());
        if lost {
            next.server.remove("echo");
        }
        let mut stub = next.registered("s", 1, Some(&anchor)).await;
        let answer = stub.initialize().await;
        assert_eq!(answer.get("error").is_some(), lost, "{answer}");
    }
}

#[tokio::test]
async fn a_stub_that_dies_cancels_what_it_had_under_way_and_its_process_ends() {
    let bed = Bed::new(vec![declared("s")], GatewayLimits::default());
    let mut stub = bed.greeted("s", 1).await;
    stub.send(
        json!(1),
        "tools/call",
        json!({ "name": "wait", "arguments": {} }),
    )
    .await;
    bed.server.waits(1).await;
    drop(stub);
    bed.server.cancelled(1).await;
    bed.server.stopped(1).await;
    let mut settings = declared("s");
    settings.shared = true;
    let bed = Bed::new(vec![settings], GatewayLimits::default());
    let mut other = bed.greeted("s", 2).await;
    let mut stub = bed.greeted("s", 1).await;
    stub.send(
        json!(1),
        "tools/call",
        json!({ "name": "wait", "arguments": {} }),
    )
    .await;
    bed.server.waits(1).await;
    drop(stub);
    bed.server.cancelled(1).await;
    assert_eq!(text(&other.call(1, "echo", json!({})).await), "{}");
    assert_eq!(bed.server.started(), 1);
}

#[tokio::test]
async fn a_cancellation_reaches_the_right_request_and_is_waited_for_no_longer() {
    let mut settings = declared("s");
    settings.shared = true;
    let limits = GatewayLimits {
        outstanding: 1,
        ..GatewayLimits::default()
    };
    let bed = Bed::new(vec![settings], limits);
    let (mut one, mut two) = (bed.greeted("s", 1).await, bed.greeted("s", 2).await);
    for stub in [&mut one, &mut two] {
        stub.send(
            json!("w"),
            "tools/call",
            json!({ "name": "wait", "arguments": {} }),
        )
        .await;
    }
    bed.server.waits(2).await;
    let answer = one.call(9, "echo", json!({})).await;
    assert!(error(&answer).contains("too many"), "{answer}");
    one.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"w"}}"#)
        .await;
    bed.server.cancelled(1).await;
    assert_eq!(text(&one.call(10, "echo", json!({})).await), "{}");
    // The other's went on.
    bed.server.release();
    assert_eq!(text(&two.message().await), "released");
}

#[tokio::test]
async fn who_does_not_belong_here_is_told_so() {
    let http = McpServerSettings {
        transport: McpTransport::Http {
            url: "http://x".into(),
            headers: Default::default(),
        },
        ..declared("http")
    };
    let per_run = McpServerSettings {
        per_run: true,
        ..declared("run")
    };
    let bed = Bed::new(vec![declared("s"), http, per_run], GatewayLimits::default());
    let token = "0a".repeat(32);
    for (version, server, token, code) in [
        (2, "s", token.as_str(), "gateway_version"),
        (1, "t", &token, "server_unknown"),
        (1, "http", &token, "server_not_stdio"),
        (1, "run", &token, "server_per_run"),
        (1, "s", "short", "session_refused"),
    ] {
        let mut stub = bed.connect(HOLDER);
        stub.register(version, server, token, None).await;
        let line = stub.line().await.unwrap();
        assert!(
            line.starts_with("#refused ") && line.contains(code),
            "{line}"
        );
        assert_eq!(stub.line().await, None);
    }
    assert_eq!(bed.server.started(), 0);
    assert_eq!(bed.broker.stats().sessions, 0);
}

/// The token alone is not enough while its holder is there, and neither is the number of a process.
#[tokio::test]
async fn a_session_belongs_to_one_process() {
    let bed = Bed::new(vec![declared("s")], GatewayLimits::default());
    let mut first = bed.greeted("s", 10).await;
    let token = "0a".repeat(32);
    for other in [
        Holder { pid: 8, ..HOLDER },
        Holder {
            started: 71,
            ..HOLDER
        },
    ] {
        let mut thief = bed.connect(other);
        thief.register(1, "s", &token, None).await;
        let line = thief.line().await.unwrap();
        assert!(line.contains("session_refused"), "{line}");
    }
    assert_eq!(text(&first.call(1, "echo", json!({})).await), "{}");
    // The holder itself comes again: its earlier connection ends.
    let mut again = bed.greeted("s", 10).await;
    assert_eq!(first.line().await, None);
    assert_eq!(text(&again.call(1, "echo", json!({})).await), "{}");
    assert_eq!(bed.broker.stats().resumed, 1);
}

#[tokio::test]
async fn a_caller_has_1024_subscriptions_at_most() {
    let bed = Bed::new(vec![declared("s")], GatewayLimits::default());
    let mut one = bed.greeted("s", 1).await;
    for n in 0..1024 {
        let uri = json!({ "uri": format!("x://{n}") });
        let answer = one.ask(json!(n), "resources/subscribe", uri).await;
        assert!(answer.get("result").is_some(), "{answer}");
    }
    let more = || json!({ "uri": "x://more" });
    let answer = one.ask(json!(2000), "resources/subscribe", more()).await;
    assert!(error(&answer).contains("1024"), "{answer}");
    let gone = json!({ "uri": "x://7" });
    one.ask(json!(2001), "resources/unsubscribe", gone).await;
    let answer = one.ask(json!(2002), "resources/subscribe", more()).await;
    assert!(answer.get("result").is_some(), "{answer}");
    // Another caller has its own.
    let mut two = bed.greeted("s", 2).await;
    let answer = two.ask(json!(1), "resources/subscribe", more()).await;
    assert!(answer.get("result").is_some(), "{answer}");
}

#[tokio::test]
async fn a_server_asks_its_caller_64_questions_at_once_at_most() {
    let bed = Bed::new(vec![declared("s")], GatewayLimits::default());
    let mut one = bed.greeted("s", 1).await;
    let ask = |n: u32| json!({ "name": "ask", "arguments": { "question": format!("q{n}") } });
    for n in 0..64 {
        one.send(json!(n), "tools/call", ask(n)).await;
        assert_eq!(one.message().await["id"], format!("q{n}"));
    }
    let answer = one.ask(json!(64), "tools/call", ask(64)).await;
    assert_eq!(text(&answer), "refused -32601");
    // Who answers makes room.
    let said = json!({ "jsonrpc": "2.0", "id": "q7", "result": {} });
    one.say(&said.to_string()).await;
    one.send(json!(65), "tools/call", ask(65)).await;
    assert_eq!(one.message().await["id"], "q65");
}

#[tokio::test]
async fn sessions_and_processes_have_bounds() {
    let limits = GatewayLimits {
        sessions: 2,
        backends: 1,
        ..GatewayLimits::default()
    };
    let bed = Bed::new(vec![declared("s")], limits);
    let one = bed.greeted("s", 1).await;
    let mut two = bed.registered("s", 2, None).await;
    let answer = two.initialize().await;
    assert!(error(&answer).contains("maxBackends"), "{answer}");
    let mut three = bed.connect(HOLDER);
    three.register(1, "s", &"03".repeat(32), None).await;
    let line = three.line().await.unwrap();
    assert!(
        line.contains("too_many_sessions") && line.contains("\"retry\":true"),
        "{line}"
    );
    drop(one);
    bed.server.stopped(1).await;
    assert!(two.initialize().await.get("result").is_some());
}

/// For a clock that stands still: it goes on by a millisecond whenever everybody waits, and not to the
/// next deadline, since what is on its way through a socket is waited for as well. So deadlines may be
/// short however slow the machine is.
fn in_small_steps() {
    tokio::spawn(async {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

#[tokio::test(start_paused = true)]
async fn hostile_stubs_are_cut_off_and_the_others_go_on() {
    in_small_steps();
    let limits = GatewayLimits {
        register: Duration::from_millis(200),
        message: 64 << 10,
        bytes: 256 << 10,
        ..GatewayLimits::default()
    };
    let bed = Bed::new(vec![declared("s")], limits);
    let mut good = bed.greeted("s", 1).await;
    // Says nothing; says something else; says it without end.
    let mut silent = bed.connect(HOLDER);
    assert_eq!(silent.line().await, None);
    for first in ["GET / HTTP/1.1", "#register {}", "{}", "#ping"] {
        let mut odd = bed.connect(HOLDER);
        odd.say(first).await;
        assert_eq!(odd.line().await, None, "{first}");
    }
    let mut endless = bed.connect(HOLDER);
    let flood = vec![b'x'; 1 << 20];
    while endless.stream.write_all(&flood).await.is_ok() {}
    // Once it is in: a message that is too large, a word of ours that is none.
    for line in [
        "x".repeat(65 << 10),
        "#what".to_owned(),
        "#registered x".to_owned(),
    ] {
        let mut odd = bed.greeted("s", 2).await;
        // It may be gone before it has taken all.
        let _ = odd.stream.write_all(line.as_bytes()).await;
        let _ = odd.stream.write_all(b"\n").await;
        assert_eq!(odd.line().await, None);
    }
    // What is no message is answered, and harms nobody.
    good.say("{").await;
    assert_eq!(good.message().await["error"]["code"], -32600);
    // Asks and never reads.
    let mut deaf = bed.greeted("s", 3).await;
    let large = "y".repeat(32 << 10);
    for id in 0..2000 {
        let params = json!({ "name": "echo", "arguments": { "a": large } });
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        if deaf
            .stream
            .write_all(format!("{line}\n").as_bytes())
            .await
            .is_err()
        {
            break;
        }
    }
    let gone = async {
        while bed.broker.stats().sessions > 1 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone)
        .await
        .unwrap();
    assert_eq!(text(&good.call(1, "echo", json!({})).await), "{}");
}

#[tokio::test(start_paused = true)]
async fn a_hung_server_is_noticed_by_its_silence_and_a_slow_one_is_not() {
    in_small_steps();
    let limits = GatewayLimits {
        ping: Duration::from_millis(50),
        old: Duration::from_millis(300),
        silent: Duration::from_millis(200),
        ..GatewayLimits::default()
    };
    let bed = Bed::new(vec![declared("s")], limits.clone());
    let mut stub = bed.greeted("s", 1).await;
    // Slow, and answers pings: far longer than both bounds.
    stub.send(
        json!(1),
        "tools/call",
        json!({ "name": "wait", "arguments": {} }),
    )
    .await;
    bed.server.pinged(12).await;
    bed.server.release();
    assert_eq!(text(&stub.message().await), "released");
    // Nothing is asked while nothing is outstanding.
    let pings = bed.server.heard("ping").len();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(bed.server.heard("ping").len(), pings);
    stub.send(
        json!(2),
        "tools/call",
        json!({ "name": "hang", "arguments": {} }),
    )
    .await;
    let answer = stub.message().await;
    assert!(error(&answer).contains("answers nothing"), "{answer}");
    assert_eq!(text(&stub.call(3, "echo", json!({})).await), "{}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_and_reads_nothing_is_noticed_and_holds_nobody() {
    in_small_steps();
    let flood = json!({ "name": "flood", "arguments": {} });
    let limits = GatewayLimits {
        ping: Duration::from_millis(50),
        old: Duration::from_millis(300),
        silent: Duration::from_millis(200),
        ..GatewayLimits::default()
    };
    let bed = Bed::new(vec![declared("s")], limits);
    let mut stub = bed.greeted("s", 1).await;
    let answer = stub.ask(json!(1), "tools/call", flood.clone()).await;
    assert!(error(&answer).contains("answers nothing"), "{answer}");
    assert_eq!(text(&stub.call(2, "echo", json!({})).await), "{}");
    // Who leaves it meanwhile is gone, and it is, too.
    let bed = Bed::new(vec![declared("s")], GatewayLimits::default());
    let mut stub = bed.greeted("s", 1).await;
    stub.send(json!(1), "tools/call", flood).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    drop(stub);
    bed.server.stopped(1).await;
    assert_eq!(bed.broker.stats().sessions, 0);
}

#[tokio::test]
async fn a_server_that_says_too_much_ends_and_one_that_can_t_start_is_left_alone() {
    let limits = GatewayLimits {
        message: 64 << 10,
        ..GatewayLimits::default()
    };
    let bed = Bed::new(vec![declared("s")], limits);
    let mut stub = bed.greeted("s", 1).await;
    let answer = stub.call(1, "big", json!({ "bytes": 70_000 })).await;
    assert!(error(&answer).contains("wrote too much"), "{answer}");
    assert_eq!(text(&stub.call(2, "echo", json!({})).await), "{}");
    bed.server.refuse("no such program: check the command");
    bed.kill().await;
    for n in 0..3 {
        let answer = stub.call(10 + n, "echo", json!({})).await;
        assert!(error(&answer).contains("no such program"), "{answer}");
    }
    let answer = stub.call(20, "echo", json!({})).await;
    assert!(error(&answer).contains("left alone"), "{answer}");
}

#[tokio::test]
async fn only_servers_that_want_it_learn_who_calls_and_nobody_can_say_it_for_another() {
    let bed = Bed::new(vec![declared("s")], GatewayLimits::default());
    let forged = json!({ "name": "echo", "arguments": {}, "_meta": { "mono-agent/caller": { "session": "x" } } });
    let mut stub = bed.greeted("s", 1).await;
    stub.ask(json!(1), "tools/call", forged.clone()).await;
    assert_eq!(
        bed.server.heard("tools/call")[0]["params"].get("_meta"),
        None
    );
    let bed = Bed::new(vec![declared("s")], GatewayLimits::default());
    bed.server.want_callers();
    for token in [1, 2] {
        let mut stub = bed.greeted("s", token).await;
        stub.ask(json!(1), "tools/call", forged.clone()).await;
    }
    let calls = bed.server.heard("tools/call");
    let caller = |call: &Value| call["params"]["_meta"]["mono-agent/caller"]["session"].clone();
    let (one, two) = (caller(&calls[0]), caller(&calls[1]));
    assert!(one != two && one.as_str().unwrap().len() == 16);
}

#[tokio::test(start_paused = true)]
async fn an_app_that_no_console_shows_takes_no_room() {
    in_small_steps();
    let temp = tempfile::tempdir().unwrap();
    let folder = Folder::from_fd(std::fs::File::open(temp.path()).unwrap().into()).unwrap();
    let vault = Vault::open(folder, jiff::Timestamp::now().as_millisecond()).unwrap();
    let settings = AppsSettings {
        max_age_days: 1,
        ..AppsSettings::default()
    };
    let desk = Arc::new(Desk::new(vault, settings));
    let server = Scripted::default();
    server.remove("echo");
    let page = json!({ "ui": { "resourceUri": "ui://s/page" } });
    server.add(json!({ "name": "echo", "inputSchema": { "type": "object" }, "_meta": page }));
    let shown = McpServerSettings {
        apps: Some(ServerApps {
            exact_results: false,
            webrtc: false,
        }),
        ..declared("s")
    };
    let servers = Servers::new(vec![shown], Limits::default(), server.clone(), None);
    servers.show_apps(desk.clone());
    let broker = Broker::new(Arc::new(servers), GatewayLimits::default());
    let bed = Bed { broker, server };
    let mut stub = bed.greeted("s", 1).await;
    for n in 1..=2 {
        let told = stub.call(n, "echo", json!({ "n": n })).await;
        assert_eq!(text(&told), json!({ "n": n }).to_string());
        assert_eq!(desk.stats().captured, u64::from(n));
        assert_eq!(desk.vault().usage().records, 0);
    }
    assert_eq!(bed.broker.stats().apps, 0);
}

#[tokio::test]
async fn a_stateless_client_needs_no_handshake() {
    let bed = Bed::new(vec![declared("s")], GatewayLimits::default());
    let mut stub = bed.registered("s", 1, None).await;
    assert_eq!(text(&stub.call(1, "echo", json!({})).await), "{}");
    assert!(bed.server.heard("initialize").is_empty());
}
