//! How an app comes from a result, each line of its server written here.
#![allow(clippy::unwrap_used)]

mod support;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ipc_proto::apps::MAX_HTML;
use ipc_proto::edges::control::RunScope;
use ipc_proto::reply::ReplyPart;
use ipc_proto::settings::AppsSettings;
use ipc_proto::{ConversationId, RunId};
use mono_app_bridge::apps::capture::Shown;
use mono_app_bridge::apps::desk::Desk;
use mono_app_bridge::apps::folder::Folder;
use mono_app_bridge::apps::manifest::{Manifest, State};
use mono_app_bridge::apps::vault::Vault;
use mono_app_bridge::connection::{Connection, Era};
use mono_app_bridge::limits::Limits;
use rmcp::model::CallToolResult;
use serde_json::{Map, Value, json};
use std::time::Duration;
use support::stage::server;
use support::{Peer, connected, limits, open, stateless};

const MIME: &str = "text/html;profile=mcp-app";
const URI: &str = "ui://s/page";

fn desk(temp: &tempfile::TempDir) -> Desk {
    let folder = std::fs::File::open(temp.path()).unwrap();
    let folder = Folder::from_fd(folder.into()).unwrap();
    let now = jiff::Timestamp::now().as_millisecond();
    let settings = AppsSettings {
        max_age_days: 1,
        ..AppsSettings::default()
    };
    Desk::new(Vault::open(folder, now).unwrap(), settings)
}

fn scope() -> RunScope {
    let conversation = ConversationId::parse("web:t").unwrap();
    RunScope {
        run: RunId::new(),
        delivery: conversation.clone(),
        conversation,
    }
}

struct Captured {
    part: Option<ReplyPart>,
    manifest: Option<Manifest>,
    state: Option<State>,
    html: Vec<u8>,
}

/// Captures the app of `result` of the tool `t` while `script` plays the server.
async fn capture<F>(connection: &Connection, result: Value, script: F) -> Captured
where
    F: Future<Output = ()>,
{
    capture_of(connection, Map::new(), result, script).await
}

async fn capture_of<F>(
    connection: &Connection,
    arguments: Map<String, Value>,
    result: Value,
    script: F,
) -> Captured
where
    F: Future<Output = ()>,
{
    let temp = tempfile::tempdir().unwrap();
    let desk = desk(&temp);
    let result: CallToolResult = serde_json::from_value(result).unwrap();
    let (scope, settings) = (scope(), server());
    let shown = Shown {
        scope: &scope,
        settings: &settings,
        tool: "t",
        arguments: &arguments,
        connection,
        result: &result,
    };
    let (part, ()) = tokio::join!(desk.capture(shown), script);
    let part = part.map(|part| *part);
    let now = jiff::Timestamp::now().as_millisecond();
    let manifest = part
        .as_ref()
        .map(|part| (*desk.vault().manifest(part.id(), now).unwrap()).clone());
    let html = manifest
        .as_ref()
        .map(|manifest| desk.vault().html(manifest, now).unwrap());
    let state = manifest
        .as_ref()
        .map(|manifest| desk.vault().state(&manifest.id, now).unwrap());
    Captured {
        part,
        manifest,
        state,
        html: html.unwrap_or_default(),
    }
}

async fn lists(peer: &mut Peer, meta: Value) {
    let list = peer.expect("tools/list").await;
    let tool = json!({ "name": "t", "title": "T", "description": "d",
        "inputSchema": { "type": "object" }, "_meta": meta });
    peer.answer(&list, json!({ "tools": [tool] })).await;
}

async fn reads(peer: &mut Peer, item: Value) {
    let read = peer.expect("resources/read").await;
    assert_eq!(read["params"]["uri"], URI);
    peer.answer(&read, json!({ "contents": [item] })).await;
}

fn page() -> Value {
    json!({ "uri": URI, "mimeType": MIME, "text": "<p>hi", "_meta": { "ui": {} } })
}

fn ok() -> Value {
    json!({ "content": [{ "type": "text", "text": "ok" }] })
}

#[tokio::test]
async fn nested_and_flat_declarations_and_those_of_results_are_read() {
    for (declared, result) in [
        (json!({ "ui": { "resourceUri": URI } }), ok()),
        (json!({ "ui/resourceUri": URI }), ok()),
        (
            json!({ "ui": { "resourceUri": URI }, "ui/resourceUri": "ui://s/flat" }),
            ok(),
        ),
        // What the result says is nearer.
        (
            json!({ "ui": { "resourceUri": "ui://s/other" } }),
            json!({ "content": [], "_meta": { "ui": { "resourceUri": URI } } }),
        ),
        (
            json!({}),
            json!({ "content": [], "_meta": { "ui/resourceUri": URI } }),
        ),
    ] {
        let (connection, mut peer) = connected(limits()).await;
        let script = async {
            lists(&mut peer, declared.clone()).await;
            reads(&mut peer, page()).await;
        };
        let captured = capture(&connection, result.clone(), script).await;
        assert_eq!(captured.html, b"<p>hi", "{declared}");
        let manifest = captured.manifest.unwrap();
        assert_eq!(
            (manifest.uri.as_str(), manifest.server.as_str()),
            (URI, "s")
        );
        assert_eq!(manifest.connection, connection.id());
        assert_eq!(manifest.tool.title.as_deref(), Some("T"));
        assert_eq!(manifest.capability.len(), 43);
        let Some(ReplyPart::McpApp {
            title,
            connection_id,
            ..
        }) = captured.part
        else {
            panic!()
        };
        assert_eq!(
            (title.as_deref(), connection_id.as_str()),
            (Some("T"), connection.id())
        );
    }
}

#[tokio::test]
async fn the_page_s_own_metadata_wins_and_the_listing_s_is_found_on_its_second_page() {
    let listed = |uri: &str, domain: &str| {
        json!({ "uri": uri, "name": "n", "mimeType": MIME,
            "_meta": { "ui": { "csp": { "connectDomains": [domain] } } } })
    };
    for own in [
        None,
        Some(json!({ "ui": { "csp": { "connectDomains": ["https://own"] } } })),
    ] {
        let (connection, mut peer) = connected(limits()).await;
        let script = async {
            lists(&mut peer, json!({ "ui": { "resourceUri": URI } })).await;
            let mut item = page();
            item["_meta"] = own.clone().unwrap_or_else(|| json!({ "other": 1 }));
            reads(&mut peer, item).await;
            if own.is_none() {
                let first = peer.expect("resources/list").await;
                let other = listed("ui://s/other", "https://wrong");
                peer.answer(&first, json!({ "resources": [other], "nextCursor": "2" }))
                    .await;
                let second = peer.expect("resources/list").await;
                assert_eq!(second["params"]["cursor"], "2");
                let entry = listed(URI, "https://listed");
                peer.answer(&second, json!({ "resources": [entry] })).await;
            }
        };
        let captured = capture(&connection, ok(), script).await;
        let expected = if own.is_some() {
            "https://own"
        } else {
            "https://listed"
        };
        assert_eq!(captured.manifest.unwrap().wishes.connect, [expected]);
    }
}

#[tokio::test]
async fn a_listing_that_goes_in_circles_says_nothing() {
    let (connection, mut peer) = connected(limits()).await;
    let script = async {
        lists(&mut peer, json!({ "ui": { "resourceUri": URI } })).await;
        let mut item = page();
        item["_meta"] = Value::Null;
        reads(&mut peer, item).await;
        for _ in 0..2 {
            let list = peer.expect("resources/list").await;
            peer.answer(&list, json!({ "resources": [], "nextCursor": "again" }))
                .await;
        }
    };
    let captured = capture(&connection, ok(), script).await;
    assert!(captured.manifest.unwrap().wishes.connect.is_empty());
}

#[tokio::test]
async fn a_page_in_base64_is_the_same_page() {
    let (connection, mut peer) = connected(limits()).await;
    let script = async {
        lists(&mut peer, json!({ "ui": { "resourceUri": URI } })).await;
        let blob = STANDARD.encode("<p>ä");
        reads(
            &mut peer,
            json!({ "uri": URI, "mimeType": MIME, "blob": blob, "_meta": { "ui": {} } }),
        )
        .await;
    };
    assert_eq!(
        capture(&connection, ok(), script).await.html,
        "<p>ä".as_bytes()
    );
}

#[tokio::test]
async fn whatever_is_wrong_with_a_page_there_is_no_app() {
    let text = |kind: &str, body: &str| json!({ "uri": URI, "mimeType": kind, "text": body });
    for item in [
        text("text/html", "<p>"),
        text("text/html;profile=mcp-app; charset=utf-8", "<p>"),
        text("application/json", "{}"),
        json!({ "uri": URI, "text": "<p>" }),
        json!({ "uri": "ui://s/other", "mimeType": MIME, "text": "<p>" }),
        json!({ "uri": URI, "mimeType": MIME, "blob": "no base64" }),
    ] {
        let (connection, mut peer) = connected(limits()).await;
        let script = async {
            lists(&mut peer, json!({ "ui": { "resourceUri": URI } })).await;
            reads(&mut peer, item.clone()).await;
        };
        assert!(
            capture(&connection, ok(), script).await.part.is_none(),
            "{item}"
        );
        // The connection is good for what comes next.
        assert!(connection.is_usable());
    }
}

#[tokio::test]
async fn results_that_failed_and_other_addresses_are_not_looked_into() {
    let failed = json!({ "content": [], "isError": true,
        "_meta": { "ui": { "resourceUri": URI } } });
    let (connection, _peer) = connected(limits()).await;
    assert!(capture(&connection, failed, async {}).await.part.is_none());
    for uri in [
        "https://evil.example/",
        "file:///etc/passwd",
        "data:text/html,x",
        "UI://s/page",
    ] {
        for declared in [
            json!({ "ui": { "resourceUri": uri } }),
            json!({ "ui/resourceUri": uri }),
        ] {
            let (connection, mut peer) = connected(limits()).await;
            let script = async { lists(&mut peer, declared.clone()).await };
            let captured = capture(&connection, ok(), script).await;
            assert!(captured.part.is_none(), "{declared}");
        }
    }
    // A page that no tool declares is not looked for.
    let (connection, mut peer) = connected(limits()).await;
    let script = async { lists(&mut peer, json!({})).await };
    assert!(capture(&connection, ok(), script).await.part.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_page_that_does_not_come_in_time_is_done_without() {
    let (connection, mut peer) = connected(limits()).await;
    let began = tokio::time::Instant::now();
    let script = async {
        lists(&mut peer, json!({ "ui": { "resourceUri": URI } })).await;
        peer.expect("resources/read").await;
    };
    let captured = capture(&connection, ok(), script).await;
    assert!(captured.part.is_none());
    assert!(
        began.elapsed() >= Duration::from_secs(10) && began.elapsed() < Duration::from_secs(12)
    );
}

#[tokio::test]
async fn pages_and_states_are_bounded_at_both_edges() {
    for (bytes, kept) in [(MAX_HTML, true), (MAX_HTML + 1, false)] {
        let (connection, mut peer) = connected(limits()).await;
        let script = async {
            lists(&mut peer, json!({ "ui": { "resourceUri": URI } })).await;
            let mut item = page();
            item["text"] = "x".repeat(bytes).into();
            reads(&mut peer, item).await;
        };
        let captured = capture(&connection, ok(), script).await;
        assert_eq!(captured.part.is_some(), kept, "{bytes}");
    }
    // Half of the state is the input's, and half the result's.
    let half = 512 << 10;
    let result = |text: String| json!({ "content": [{ "type": "text", "text": text }] });
    let written: CallToolResult = serde_json::from_value(result(String::new())).unwrap();
    let frame = serde_json::to_string(&written).unwrap().len();
    let input = |bytes: usize| {
        let text = "y".repeat(bytes - r#"{"a":""}"#.len());
        Map::from_iter([("a".to_owned(), text.into())])
    };
    for (input_bytes, result_bytes, kept) in [
        (half, half, true),
        (half + 1, half, false),
        (half, half + 1, false),
    ] {
        let (connection, mut peer) = connected(limits()).await;
        let script = async {
            lists(&mut peer, json!({ "ui": { "resourceUri": URI } })).await;
            reads(&mut peer, page()).await;
        };
        let result = result("x".repeat(result_bytes - frame));
        let captured = capture_of(&connection, input(input_bytes), result, script).await;
        assert_eq!(
            captured.part.is_some(),
            kept,
            "{input_bytes} {result_bytes}"
        );
    }
}

#[tokio::test]
async fn what_is_kept_is_the_exact_call_the_tools_for_apps_and_the_configured_age() {
    let (connection, mut peer) = connected(limits()).await;
    let script = async {
        let list = peer.expect("tools/list").await;
        let tool = |name: &str, ui: Value| json!({ "name": name, "inputSchema": { "type": "object" }, "_meta": { "ui": ui } });
        let tools = [
            tool("t", json!({ "resourceUri": URI })),
            tool("app", json!({ "visibility": ["app"] })),
            tool("model", json!({ "visibility": ["model"] })),
            tool("nobody", json!({ "visibility": [] })),
        ];
        peer.answer(&list, json!({ "tools": tools })).await;
        reads(&mut peer, page()).await;
    };
    let arguments = json!({ "n": 1.5, "deep": [{ "a": null }] });
    let result = json!({ "content": [{ "type": "text", "text": "ok" }],
        "structuredContent": { "rows": [1, 2] }, "_meta": { "own": true } });
    let input = arguments.as_object().unwrap().clone();
    let captured = capture_of(&connection, input, result.clone(), script).await;
    let (manifest, state) = (captured.manifest.unwrap(), captured.state.unwrap());
    let tools: Vec<_> = manifest.tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(tools, ["t", "app"]);
    assert_eq!(state.input, arguments);
    for (key, value) in result.as_object().unwrap() {
        assert_eq!(&state.result[key], value, "{key}");
    }
    assert_eq!(manifest.expires_at - manifest.created_at, 86_400_000);
    assert_eq!(captured.html, b"<p>hi");
}

#[tokio::test]
async fn servers_are_told_of_apps_once_or_with_each_request() {
    let expected = json!({ "mimeTypes": [MIME] });
    let told = |limits: Limits| async move {
        let (connection, (initialize, _peer)) = open(limits, Era::Handshake, |mut peer| async {
            let initialize = peer.expect("initialize").await;
            let result = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
                "serverInfo": { "name": "s", "version": "1" } });
            peer.answer(&initialize, result).await;
            peer.expect("notifications/initialized").await;
            (initialize, peer)
        })
        .await;
        connection.unwrap();
        initialize["params"]["capabilities"]["extensions"]["io.modelcontextprotocol/ui"].clone()
    };
    assert_eq!(told(limits()).await, expected);
    let off = Limits {
        apps: false,
        ..limits()
    };
    assert_eq!(told(off.clone()).await, Value::Null);

    for (limits, expected) in [(limits(), expected), (off, Value::Null)] {
        let (connection, mut peer) = stateless(limits).await;
        let listing = connection.list_tools();
        let script = async {
            let list = peer.expect("tools/list").await;
            let answer = json!({ "tools": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private" });
            peer.answer(&list, answer).await;
            list
        };
        let (listed, list) = tokio::join!(listing, script);
        listed.unwrap();
        let meta = &list["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
        assert_eq!(
            meta["extensions"]["io.modelcontextprotocol/ui"], expected,
            "{list}"
        );
    }
}

#[tokio::test]
async fn what_is_for_apps_alone_stays_hidden_from_the_model_with_apps_off() {
    for apps in [true, false] {
        let (connection, mut peer) = connected(Limits { apps, ..limits() }).await;
        let listing = connection.list_tools();
        let script = async {
            let list = peer.expect("tools/list").await;
            let tool = |name: &str, visibility: Value| {
                json!({ "name": name, "inputSchema": { "type": "object" },
                    "_meta": { "ui": { "visibility": visibility } } })
            };
            let tools = [
                tool("a", json!(["app"])),
                tool("b", json!([])),
                tool("c", json!(["model"])),
            ];
            peer.answer(&list, json!({ "tools": tools })).await;
        };
        let (listed, ()) = tokio::join!(listing, script);
        let names: Vec<_> = listed
            .unwrap()
            .0
            .into_iter()
            .map(|tool| tool.tool)
            .collect();
        assert_eq!(names, ["c"], "{apps}");
        // An app's own listing is not narrowed.
        let fresh = connection.fresh_tools(Duration::from_secs(20));
        let script = async {
            let list = peer.expect("tools/list").await;
            let tool = json!({ "name": "a", "inputSchema": { "type": "object" },
                "_meta": { "ui": { "visibility": ["app"] } } });
            peer.answer(&list, json!({ "tools": [tool] })).await;
        };
        let (fresh, ()) = tokio::join!(fresh, script);
        assert!(fresh.unwrap()[0].visibility.app);
    }
}
