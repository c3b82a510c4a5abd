//! How large an app's requests may be, each kind of them, and what its page gets to see of a call.
#![allow(clippy::unwrap_used)]

mod support;

use ipc_proto::apps::{Act, Claim, Decision};
use ipc_proto::reply::ReplyPart;
use ipc_proto::settings::{McpServerSettings, ServerApps};
use serde_json::{Value, json};
use support::stage::{Bench, PAGE, Setting, bench, code, server};

#[tokio::test]
async fn no_request_of_more_than_64_kibibytes_is_done_whatever_it_asks() {
    let bench = bench();
    let view = bench.watched().await;
    let padded = |params: &Value, bytes: usize| {
        let mut params = params.clone();
        params["pad"] = "".into();
        let frame = params.to_string().len();
        params["pad"] = "x".repeat(bytes - frame).into();
        params
    };
    for (method, params) in [
        ("tools/call", json!({ "name": "plain" })),
        ("tools/list", json!({})),
        ("ui/open-link", json!({ "url": "https://example.com/" })),
        ("ui/update-model-context", json!({ "content": [] })),
    ] {
        for (bytes, expected) in [
            (64 << 10, "done"),
            ((64 << 10) + 1, "app_request_too_large"),
        ] {
            let params = padded(&params, bytes);
            let told = view.allowed(method, params, Decision::Once).await;
            assert_eq!(code(&told), expected, "{method} {bytes}");
        }
    }
    assert_eq!(bench.calls(), ["plain"]);
}

/// The page's own call is shown as a result of its calls is.
#[tokio::test]
async fn the_call_that_an_app_shows_is_redacted_unless_the_configuration_wants_it_exact() {
    for (exact, shown) in [
        (false, "key [redacted]"),
        (true, "key sk-live-abcdefghijklmnop1234"),
    ] {
        let apps = ServerApps {
            exact_results: exact,
            webrtc: true,
        };
        let bench = Bench::set(Setting {
            server: McpServerSettings {
                apps: Some(apps),
                ..server()
            },
            ..Setting::default()
        });
        for (name, ui) in &mut bench.stage.play().tools {
            if name == "leak" {
                *ui = json!({ "resourceUri": PAGE });
            }
        }
        let scope = bench.run("web:t");
        let part = bench.capture(&scope, "leak").await.unwrap();
        let ReplyPart::McpApp {
            invocation_id,
            connection_id,
            ..
        } = part
        else {
            panic!("{part:?}")
        };
        let keep = [invocation_id.clone()];
        bench.desk.vault().keep(scope.run.as_str(), &keep).unwrap();
        let claim = Claim {
            invocation: invocation_id,
            connection: connection_id,
            delivery: "web:t".into(),
            run: scope.run.as_str().to_owned(),
        };
        let record = bench.record(&claim).await;
        assert_eq!(record.result["content"][0]["text"], shown);
        assert_eq!((record.redacted, record.input), (!exact, json!({ "n": 1 })));
        // The page itself is the exact one.
        assert_eq!(code(&bench.act(&claim, Act::Html).await), "done");
    }
}
