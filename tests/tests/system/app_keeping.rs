//! What is kept of apps over a reload, and beside reply files: two processes, one folder, one
//! ceiling.

use crate::apps::{App, parts, rolled, start};
use mono_tests::daemon::{Daemon, Setup, programs, wait_for};
use mono_tests::model::{Model, bash, call};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, chown};
use std::path::Path;

const MIB: u64 = 1 << 20;
/// What every artifact is charged beside its content.
const MANIFEST: u64 = 16 << 10;

fn place(part: &Value) -> String {
    let place = part["app"].as_str().unwrap();
    place.strip_prefix("/api/v1").unwrap().to_owned()
}

fn draining(daemon: &Daemon) -> bool {
    !daemon.workers("app-bridge", "draining").unwrap().is_empty()
}

#[test]
fn a_reload_hands_the_apps_over_while_a_turn_goes_on() {
    let model = Model::start().unwrap();
    let mut daemon = start(&model, json!({}));
    let app = App::open(&daemon);
    let thread = app.browser.thread().unwrap();
    let (here, go) = (
        daemon.workspace().join("here"),
        daemon.workspace().join("go"),
    );
    let text = format!(
        "{} {}",
        call("roll_dice", &json!({ "count": 2 })),
        bash("touch here; until [ -e go ]; do sleep 0.05; done")
    );
    let reply = app.browser.turn(&thread, &json!({ "text": text })).unwrap();
    wait_for("the turn has its app and goes on", || here.exists()).unwrap();
    let mut frames = app.browser.frames(&thread, &reply, 0).unwrap();
    let early = place(&frames.until(|event| event.name == "view").unwrap().data["part"]);
    let old = daemon.worker("app-bridge").unwrap();
    assert_eq!(daemon.json(&["reload"]).unwrap()["ok"], true);
    daemon.wait_replaced("app-bridge", old).unwrap();
    assert!(draining(&daemon));
    // What the turn has brought so far is shown meanwhile, and can do nothing.
    let record = app.browser.get(&early).unwrap();
    assert_eq!(
        (&record["connected"], &record["input"]["count"]),
        (&json!(false), &json!(2))
    );
    let post = |path: &str, body: &Value| {
        let path = format!("{early}/views{path}");
        app.browser.change("POST", &path, body).unwrap()
    };
    let opened = post("", &json!({}));
    assert_eq!(opened.status, 201);
    let view = opened.json().unwrap()["view"].as_str().unwrap().to_owned();
    let asks = json!({ "method": "tools/list" });
    assert_eq!(post(&format!("/{view}/requests"), &asks).status, 410);
    // What was there is there, with the old connection gone.
    let record = app.browser.get(&app.place).unwrap();
    assert_eq!(
        (&record["connected"], &record["input"]["count"]),
        (&json!(false), &json!(3))
    );
    // A new turn brings an app, and the app calls its server.
    let other = App::open(&daemon);
    let params = json!({ "name": "reroll", "arguments": { "count": 2 } });
    let question = other.question("tools/call", params);
    assert_eq!(other.decide(&question, "once").status, 200);
    let listed = daemon.json(&["apps", "list"]).unwrap();
    assert_eq!(listed["apps"].as_array().unwrap().len(), 2, "{listed}");
    assert!(draining(&daemon));
    // What the old turn brought is part of its reply, and is found by the new process.
    File::create(&go).unwrap();
    let message = app.browser.finished(&thread, &reply).unwrap();
    assert_eq!(message["status"], "succeeded", "{message}");
    let part = message["parts"][0].clone();
    assert_eq!(part["type"], "mcp_app", "{message}");
    let record = app.browser.get(&place(&part)).unwrap();
    assert_eq!(record["input"]["count"], 2);
    wait_for("the old worker has ended", || !draining(&daemon)).unwrap();
    for place in [&app.place, &other.place, &place(&part)] {
        assert!(app.browser.get(place).unwrap()["htmlBytes"].is_u64());
    }
    let listed = daemon.json(&["apps", "list"]).unwrap();
    assert_eq!(listed["apps"].as_array().unwrap().len(), 3, "{listed}");
    assert_eq!(listed["usage"]["quarantined"], 0);
}

#[test]
fn what_a_turn_of_before_a_reload_does_not_keep_goes_with_it() {
    let model = Model::start().unwrap();
    let mut daemon = start(&model, json!({}));
    let app = App::open(&daemon);
    let thread = app.browser.thread().unwrap();
    let here = daemon.workspace().join("here");
    let text = format!(
        "{} {}",
        call("roll_dice", &json!({ "count": 2 })),
        bash("touch here; sleep 600")
    );
    let reply = app.browser.turn(&thread, &json!({ "text": text })).unwrap();
    wait_for("the turn has its app and goes on", || here.exists()).unwrap();
    let old = daemon.worker("app-bridge").unwrap();
    assert_eq!(daemon.json(&["reload"]).unwrap()["ok"], true);
    daemon.wait_replaced("app-bridge", old).unwrap();
    let records = || {
        let listed = daemon.json(&["apps", "list"]).unwrap();
        listed["usage"]["records"].as_u64().unwrap()
    };
    wait_for("both are counted", || records() == 2).unwrap();
    app.browser
        .change(
            "POST",
            &format!("/threads/{thread}/cancel"),
            &json!({ "messageId": reply }),
        )
        .unwrap();
    wait_for("the old worker has ended", || !draining(&daemon)).unwrap();
    wait_for("what it did not keep is gone", || records() == 1).unwrap();
}

/// A folder among the reply files that is none: it is charged and left alone.
fn stranger(artifacts: &Path, bytes: u64) {
    let live = artifacts.join("reply-files");
    let owner = fs::metadata(&live).unwrap();
    let folder = live.join("stranger");
    fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
    let content = folder.join("content");
    File::create(&content).unwrap().set_len(bytes).unwrap();
    // Whoever the workers run as.
    for path in [&content, &folder] {
        chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
}

/// The worker of a role ends, and another one takes its place.
fn kill(daemon: &mut Daemon, role: &str) {
    let old = daemon.worker(role).unwrap();
    daemon.kill(old).unwrap();
    daemon.wait_replaced(role, old).unwrap();
}

fn outcome(daemon: &Daemon, conversation: &str) -> Value {
    let publish = call("PublishReplyFile", &json!({ "path": "x.txt" }));
    let text = format!("{} {publish} [[mock:echo]]", bash("echo x > x.txt"));
    let sent = daemon.send(conversation, &text).unwrap();
    assert_eq!(sent.code, 0, "{sent:?}");
    let said = sent.text();
    let told = said.find('{').map_or("", |at| &said[at..]);
    serde_json::from_str(told).unwrap_or_else(|_| panic!("{said}"))
}

#[test]
fn files_and_apps_have_one_ceiling_together_whoever_is_killed() {
    let model = Model::start().unwrap();
    let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    setup.config["console"] = json!({ "enabled": true, "port": 0 });
    setup.config["artifacts"] = json!({ "dir": "files" });
    let files = setup.folder().join("files");
    let fixture = programs().join("mcp-fixture");
    setup = setup.server("dice", &fixture, &["dice"], &[&programs()]);
    let mut daemon = setup.start().unwrap();
    // All but the audit's part, less what one more file takes.
    stranger(&files, 255 * MIB - 2 * MANIFEST - 2);
    kill(&mut daemon, "artifact");
    let browser = mono_tests::console::Browser::log_in(&daemon).unwrap();
    let thread = browser.thread().unwrap();
    let roll = call("roll_dice", &json!({ "count": 3 }));
    let usage = |daemon: &Daemon| {
        let list = daemon.json(&["artifacts", "list"]).unwrap();
        list["usage"]["usedBytes"].as_u64().unwrap()
    };
    // A small file has the last place; neither an app nor another file has one.
    let first = outcome(&daemon, "a");
    assert_eq!(first["published"], true, "{first}");
    assert_eq!(usage(&daemon), 255 * MIB);
    assert!(parts(&browser, &thread, &roll).is_empty());
    let full = json!({ "published": false, "code": "artifact_publish_failed" });
    let refused = |daemon: &Daemon, conversation: &str| {
        let told = outcome(daemon, conversation);
        assert_eq!(
            (&told["published"], &told["code"]),
            (&full["published"], &full["code"]),
            "{told}"
        );
    };
    refused(&daemon, "b");
    // Whoever is killed says the same again; the other one keeps what it has.
    for role in ["app-bridge", "artifact"] {
        kill(&mut daemon, role);
        assert!(parts(&browser, &thread, &roll).is_empty(), "{role}");
        refused(&daemon, &format!("c-{role}"));
    }
    daemon.await_logged(&["a result goes without its app"]);
    // What a person removes is room for apps, at the next look.
    fs::remove_dir_all(files.join("reply-files/stranger")).unwrap();
    kill(&mut daemon, "artifact");
    let part = rolled(&browser, &thread);
    assert_eq!(part["type"], "mcp_app");
    let second = outcome(&daemon, "d");
    assert_eq!(second["published"], true, "{second}");
}
