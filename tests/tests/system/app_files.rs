//! Files that an app hands over, through a whole daemon: asked about, kept by the artifact worker, and
//! downloaded as reply files are.

use crate::apps::{App, code, rolled, start};
use mono_tests::console::{Browser, header, send};
use mono_tests::http::Answer;
use mono_tests::model::Model;
use serde_json::{Value, json};

const MOST: usize = 20 << 20;

fn offer(uri: &str, bytes: usize) -> Value {
    json!({ "files": [{ "uri": uri, "mimeType": "text/csv", "bytes": bytes }], "head": "a,b" })
}

/// The name under which the bytes of an allowed file are expected.
fn wanted(app: &App, uri: &str, bytes: usize) -> String {
    let question = app.question("ui/download-file", offer(uri, bytes));
    assert_eq!(question["kind"], "download");
    let wanted = app.decide(&question, "once").json().unwrap();
    wanted["result"]["files"][0]["file"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn kept(app: &App, uri: &str, bytes: &[u8]) -> Value {
    let answer = app.hand(&wanted(app, uri, bytes.len()), bytes);
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json().unwrap()["file"].clone()
}

fn fetched(browser: &Browser, file: &Value) -> Answer {
    let line = format!("GET {}", file["download"].as_str().unwrap());
    browser.ask(&line, b"").unwrap()
}

fn listed(app: &App) -> Vec<Value> {
    let files = app.browser.get(&format!("{}/files", app.place)).unwrap();
    files["files"].as_array().unwrap().clone()
}

#[test]
fn a_file_of_an_app_is_kept_and_downloaded_as_reply_files_are() {
    let model = Model::start().unwrap();
    let mut daemon = start(&model, json!({}));
    let app = App::open(&daemon);
    let bytes: Vec<u8> = (0..MOST).map(|n| (n * 31 % 251) as u8).collect();
    let question = app.question("ui/download-file", offer("ui://x/no.csv", 3));
    assert_eq!(question["files"], json!([{ "name": "no.csv", "bytes": 3 }]));
    assert_eq!(
        code(&app.decide(&question, "deny")),
        (403, "app_declined".into())
    );
    assert!(listed(&app).is_empty());
    let file = kept(&app, "file:///..%2f.re\u{202e}port.csv", &bytes);
    assert_eq!(
        (&file["name"], &file["mediaType"], &file["bytes"]),
        (&json!("_.re_port.csv"), &json!("text/csv"), &json!(MOST))
    );
    assert!(file["expiresAt"].is_i64());
    let answer = fetched(&app.browser, &file);
    assert!(answer.status == 200 && answer.body == bytes);
    for (name, value) in [
        ("content-type", "application/octet-stream"),
        // Names and values of headers come in small letters here.
        (
            "content-disposition",
            "attachment; filename*=utf-8''_.re_port.csv",
        ),
        ("x-content-type-options", "nosniff"),
        ("cache-control", "private, no-store"),
        ("accept-ranges", "none"),
        ("content-security-policy", "sandbox; default-src 'none'"),
    ] {
        assert_eq!(header(&answer, name), Some(value));
    }
    // The same again is the same file.
    assert_eq!(kept(&app, "_.re_port.csv", &bytes)["id"], file["id"]);
    assert_eq!(listed(&app), std::slice::from_ref(&file));
    // What operators see: the phases, the bytes, whose they are; and no name in the audit.
    let id = app.part["invocationId"].as_str().unwrap();
    let audit = daemon.json(&["apps", "audit", id]).unwrap();
    let phases: Vec<_> = (audit["entries"].as_array().unwrap().iter())
        .map(|entry| entry["details"]["phase"].as_str().unwrap())
        .collect();
    let done = ["requested", "confirmed", "completed"];
    assert_eq!(
        phases,
        [&["requested", "rejected"][..], &done, &done].concat()
    );
    assert!(!audit.to_string().contains("port.csv"));
    let artifacts = daemon.json(&["artifacts", "list"]).unwrap();
    assert_eq!(artifacts["artifacts"][0]["id"], file["id"]);
    assert_eq!(artifacts["artifacts"][0]["app"], id);
    assert!(artifacts["usage"]["usedBytes"].as_u64().unwrap() > MOST as u64);
    // An artifact worker that starts anew has it, and keeps more.
    let old = daemon.worker("artifact").unwrap();
    daemon.kill(old).unwrap();
    daemon.wait_replaced("artifact", old).unwrap();
    assert_eq!(fetched(&app.browser, &file).body.len(), MOST);
    let small = kept(&app, "small.csv", b"a,b");
    assert_eq!(fetched(&app.browser, &small).body, b"a,b");
    assert_eq!(listed(&app), [small, file]);
}

#[test]
fn a_file_of_an_app_is_handed_over_and_read_by_its_own_alone() {
    let model = Model::start().unwrap();
    let daemon = start(&model, json!({}));
    let app = App::open(&daemon);
    let over = app.ask("ui/download-file", offer("x", MOST + 1));
    assert_eq!(code(&over), (413, "app_request_too_large".into()));
    // More than was offered, less, nothing that was allowed, and twice.
    for (offered, bytes) in [(3, &b"a,b,"[..]), (3, b"a"), (0, b"a")] {
        let file = wanted(&app, "x", offered);
        let answer = app.hand(&file, bytes);
        assert_eq!(code(&answer), (400, "app_request_invalid".into()));
    }
    let none = app.hand("none", b"a,b");
    assert_eq!(code(&none), (400, "app_request_invalid".into()));
    let large = app.hand("none", &vec![0; MOST + 1]);
    assert_eq!(large.status, 413);
    assert!(listed(&app).is_empty());
    let once = wanted(&app, "a.csv", 3);
    assert_eq!(app.hand(&once, b"a,b").status, 201);
    assert_eq!(
        code(&app.hand(&once, b"a,b")),
        (400, "app_request_invalid".into())
    );
    let file = listed(&app)[0].clone();
    let download = file["download"].as_str().unwrap();
    // Not as an attachment, not as another message's, not as another app's, not as other bytes.
    let other = rolled(&app.browser, &app.browser.thread().unwrap());
    let (own, theirs) = (app.part["messageId"].as_str(), other["messageId"].as_str());
    let (own, theirs) = (own.unwrap(), theirs.unwrap());
    let part = app.part["id"].as_str().unwrap();
    let place = other["app"].as_str().unwrap();
    let elsewhere = format!(
        "{place}/{}",
        &download[download.find("/files/").unwrap() + 1..]
    );
    let attached = download.replace(&format!("apps/{part}/files"), "attachments");
    for (address, expected) in [
        (attached, (404, "forbidden")),
        (download.replace(own, theirs), (404, "app_missing")),
        (elsewhere, (404, "artifact_missing")),
        (
            download.replace("sha256%3A", "sha256%3a00"),
            (409, "artifact_integrity_failed"),
        ),
    ] {
        let answer = app.browser.ask(&format!("GET {address}"), b"").unwrap();
        assert_eq!(
            code(&answer),
            (expected.0, expected.1.to_owned()),
            "{address}"
        );
    }
    // Without the capability; when the view is closed; logged out.
    let file_of = wanted(&app, "b.csv", 3);
    let line = format!(
        "PUT /api/v1{}/views/{}/files/{file_of}",
        app.place, app.view
    );
    let bare = app.browser.ask(&line, b"a,b").unwrap();
    assert_eq!(code(&bare), (404, "app_forbidden".into()));
    let close = format!("{}/views/{}", app.place, app.view);
    app.browser.change("DELETE", &close, &json!({})).unwrap();
    let closed = app.hand(&file_of, b"a,b");
    assert_eq!(code(&closed), (404, "app_forbidden".into()));
    assert_eq!(listed(&app).len(), 1);
    let host = app.browser.headers().lines().next().unwrap().to_owned();
    let anyone = send(
        app.browser.base(),
        &format!("GET {download}"),
        &format!("{host}\r\n"),
        b"",
    );
    assert_eq!(code(&anyone.unwrap()), (401, "login_required".into()));
    app.browser.change("POST", "/logout", &json!({})).unwrap();
    assert_eq!(fetched(&app.browser, &file).status, 401);
    assert_eq!(app.hand(&file_of, b"a,b").status, 401);
}
