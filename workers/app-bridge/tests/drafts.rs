//! Apps of calls that have no result yet.
#![allow(clippy::unwrap_used)]

mod support;

use ipc_proto::apps::{Act, Claim, Opened, Record};
use ipc_proto::edges::control::RunScope;
use ipc_proto::reply::ReplyPart;
use ipc_proto::settings::ServerApps;
use serde_json::{Map, Value, json};
use support::stage::{Bench, Setting, bench, claim_of, code, done, server};

async fn drafted(bench: &Bench, scope: &RunScope) -> (ReplyPart, Claim) {
    let draft = bench.desk.draft(&bench.servers, scope, "s", "show").await;
    let part = draft.unwrap();
    let claim = claim_of(scope, &part);
    (part, claim)
}

fn arguments(n: u32) -> Map<String, Value> {
    json!({ "n": n, "password": "x" })
        .as_object()
        .unwrap()
        .clone()
}

async fn request(bench: &Bench, claim: &Claim, opened: &Opened) -> String {
    let act = Act::Request {
        view: opened.view.clone(),
        capability: opened.capability.clone(),
        method: "tools/list".into(),
        params: json!({}),
    };
    code(&bench.act(claim, act).await).to_owned()
}

#[tokio::test]
async fn a_draft_is_drawn_by_its_own_message_and_asks_for_nothing() {
    let bench = bench();
    let scope = bench.run("web:t");
    let (part, claim) = drafted(&bench, &scope).await;
    let shown: Record = done(bench.act(&claim, Act::Show).await);
    assert!(shown.draft && shown.connected && shown.input.is_null() && shown.result.is_null());
    let page: String = done(bench.act(&claim, Act::Html).await);
    assert_eq!(page, "<p>page");
    let opened: Opened = done(bench.act(&claim, Act::Open).await);
    assert_eq!(request(&bench, &claim, &opened).await, "app_forbidden");
    let other = bench.run("web:other");
    for wrong in [
        claim_of(&other, &part),
        Claim {
            connection: "another".into(),
            ..claim.clone()
        },
    ] {
        assert_eq!(code(&bench.act(&wrong, Act::Show).await), "app_missing");
        assert_eq!(code(&bench.act(&wrong, Act::Open).await), "app_missing");
    }
    // Nothing of it is on the disk, and nobody else knows it.
    assert_eq!(bench.desk.vault().usage().records, 0);
    let text = r#"{"n":1,"#;
    let partial = |run: &RunScope| {
        bench
            .desk
            .partial(&bench.servers, run.run.as_str(), part.id(), text)
    };
    assert!(partial(&scope).is_some() && partial(&other).is_none());
    bench.desk.settle(scope.run.as_str()).await;
    assert!(partial(&scope).is_none());
    assert_eq!(code(&bench.act(&claim, Act::Show).await), "app_missing");
}

#[tokio::test]
async fn the_view_of_a_draft_goes_on_with_the_record_of_the_same_page() {
    let bench = bench();
    let scope = bench.run("web:t");
    let (part, claim) = drafted(&bench, &scope).await;
    let opened: Opened = done(bench.act(&claim, Act::Open).await);
    bench
        .desk
        .call_begins(scope.run.as_str(), part.id(), &arguments(1));
    let shown: Record = done(bench.act(&claim, Act::Show).await);
    assert_eq!(shown.input, json!({ "n": 1, "password": "[redacted]" }));
    assert!(shown.draft && shown.result.is_null());
    let app = bench
        .capture_drafted(&scope, "show", Some(part.id()))
        .await
        .unwrap();
    bench.desk.end_draft(scope.run.as_str(), part.id());
    assert_eq!(claim_of(&scope, &app), claim);
    let shown: Record = done(bench.act(&claim, Act::Show).await);
    assert!(!shown.draft && shown.result.is_object() && shown.input["n"] == 1);
    // The view, with the capability that it was opened with, asks now.
    assert_eq!(request(&bench, &claim, &opened).await, "done");
}

#[tokio::test]
async fn another_page_in_the_end_is_another_app() {
    let bench = bench();
    let scope = bench.run("web:t");
    let (part, claim) = drafted(&bench, &scope).await;
    let opened: Opened = done(bench.act(&claim, Act::Open).await);
    bench.stage.play().page = json!({ "prefersBorder": true });
    let app = bench
        .capture_drafted(&scope, "show", Some(part.id()))
        .await
        .unwrap();
    assert_ne!(app.id(), part.id());
    bench.desk.end_draft(scope.run.as_str(), part.id());
    assert_eq!(request(&bench, &claim, &opened).await, "app_missing");
    // Of another run it is no draft.
    let other = bench.run("web:other");
    let (part, _) = drafted(&bench, &scope).await;
    let app = bench.capture_drafted(&other, "show", Some(part.id())).await;
    assert_ne!(app.unwrap().id(), part.id());
}

#[tokio::test]
async fn a_tool_without_a_page_has_no_draft() {
    let bench = bench();
    let scope = bench.run("web:t");
    for (server, tool) in [("s", "plain"), ("s", "none"), ("another", "show")] {
        let draft = bench.desk.draft(&bench.servers, &scope, server, tool).await;
        assert_eq!(draft, None, "{server} {tool}");
    }
    let off = Bench::set(Setting {
        server: ipc_proto::settings::McpServerSettings {
            apps: None,
            ..server()
        },
        ..Setting::default()
    });
    let scope = off.run("web:t");
    assert_eq!(
        off.desk.draft(&off.servers, &scope, "s", "show").await,
        None
    );
}

#[tokio::test]
async fn what_is_written_so_far_is_shown_without_credentials_unless_it_is_to_be_exact() {
    let text = r#"{"apiKey":"k-1","note":"use ghp_0123456789abcdefghijklmn and ghp_01234","#;
    let unfinished = r#"{"apiKey":"k-1","note":"use ghp_0123456789abcdefghijklmn and ghp_01234"#;
    for exact_results in [false, true] {
        let bench = Bench::set(Setting {
            server: ipc_proto::settings::McpServerSettings {
                apps: Some(ServerApps {
                    exact_results,
                    webrtc: true,
                }),
                ..server()
            },
            ..Setting::default()
        });
        let scope = bench.run("web:t");
        let (part, _) = drafted(&bench, &scope).await;
        let shown = |text: &str| {
            let run = scope.run.as_str();
            let shown = bench.desk.partial(&bench.servers, run, part.id(), text);
            Value::Object(shown.unwrap())
        };
        if exact_results {
            let whole = "use ghp_0123456789abcdefghijklmn and ghp_01234";
            assert_eq!(shown(text), json!({ "apiKey": "k-1", "note": whole }));
            assert_eq!(shown(unfinished), json!({ "apiKey": "k-1", "note": whole }));
        } else {
            let note = "use [redacted] and ghp_01234";
            assert_eq!(shown(text), json!({ "apiKey": "[redacted]", "note": note }));
            // It may become a credential with the next letters.
            let note = "use [redacted] and ";
            assert_eq!(
                shown(unfinished),
                json!({ "apiKey": "[redacted]", "note": note })
            );
        }
        let run = scope.run.as_str();
        let none = bench.desk.partial(&bench.servers, run, part.id(), "[1");
        assert_eq!(none, None);
    }
}
