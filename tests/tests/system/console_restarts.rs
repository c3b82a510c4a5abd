//! The web console over restarts: of its worker, of the store, of the daemon, and by a reload.

use mono_tests::console::Browser;
use mono_tests::daemon::{Setup, wait_for};
use mono_tests::model::Model;
use serde_json::{Value, json};

fn console(model: &Model) -> Setup {
    let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    setup.config["console"] = json!({ "enabled": true, "port": 0 });
    setup
}

#[test]
fn a_restart_says_what_it_interrupted() {
    let model = Model::start().unwrap();
    let mut daemon = console(&model).start().unwrap();
    let browser = Browser::log_in(&daemon).unwrap();
    let base = browser.base().to_owned();
    let thread = browser.thread().unwrap();
    let hang = json!({ "text": "[[mock:hang]]" });
    let interrupted = |browser: &Browser, reply: &str, or_lost: bool| {
        wait_for("the answer is interrupted", || {
            let view = browser
                .get(&format!("/threads/{thread}"))
                .unwrap_or_default();
            let messages = view["messages"].as_array().cloned().unwrap_or_default();
            let Some(m) = messages.iter().find(|m| m["id"] == reply) else {
                return false;
            };
            let said = m["failure"]["message"].as_str().unwrap_or_default();
            // Where the daemon dies, the run may go before the console, which then has the time to
            // say so.
            let lost = m["status"] == "failed" && m["failure"]["kind"] == "worker_lost";
            (or_lost && lost) || (m["status"] == "interrupted" && said.contains("interrupted"))
        })
        .unwrap();
    };
    // The worker dies; the daemon and the login live on.
    let reply = browser.turn(&thread, &hang).unwrap();
    browser
        .frames(&thread, &reply, 0)
        .unwrap()
        .until(|e| e.data["state"] == "running")
        .unwrap();
    let old = daemon.worker("channel-console").unwrap();
    daemon.kill(old).unwrap();
    daemon.wait_replaced("channel-console", old).unwrap();
    assert_eq!(browser.base(), base);
    interrupted(&browser, &reply, false);
    assert_eq!(
        browser.finished(&thread, &reply).unwrap()["status"],
        "interrupted"
    );
    // The store dies: the console goes on with the next one.
    let old = daemon.worker("store").unwrap();
    daemon.kill(old).unwrap();
    daemon.wait_replaced("store", old).unwrap();
    let wish = json!({ "text": "[[mock:text fine]]" });
    let reply = browser.turn(&thread, &wish).unwrap();
    assert_eq!(browser.finished(&thread, &reply).unwrap()["text"], "fine");
    // The daemon dies and comes back on another port: the cookie is still good.
    let reply = browser.turn(&thread, &hang).unwrap();
    browser
        .frames(&thread, &reply, 0)
        .unwrap()
        .until(|e| e.data["state"] == "running")
        .unwrap();
    daemon.kill_daemon().unwrap();
    daemon.restart().unwrap();
    let moved = browser.moved(&daemon.listener("channel-console").unwrap());
    interrupted(&moved, &reply, true);
}

#[test]
fn a_reload_keeps_turns_and_logins() {
    let model = Model::start().unwrap();
    let setup = console(&model);
    let config = setup.folder().join("mono-agent.config.json");
    let mut changed = setup.config.clone();
    let mut daemon = setup.start().unwrap();
    let browser = Browser::log_in(&daemon).unwrap();
    let thread = browser.thread().unwrap();
    let wish = json!({ "text": "[[mock:long 200]] [[mock:gap 20]]" });
    let reply = browser.turn(&thread, &wish).unwrap();
    let mut frames = browser.frames(&thread, &reply, 0).unwrap();
    frames.until(|event| event.name == "append").unwrap();
    let host = browser.base()[7..].to_owned();
    let old = daemon.worker("channel-console").unwrap();
    changed["console"]["allowedHosts"] = json!([host]);
    std::fs::write(&config, changed.to_string()).unwrap();
    let report = daemon.json(&["reload"]).unwrap();
    assert!(
        report["replaced"]
            .as_array()
            .unwrap()
            .contains(&json!("channel-console")),
        "{report}"
    );
    daemon.wait_replaced("channel-console", old).unwrap();
    // The old worker finishes what it writes; the new one tells of it and knows the login.
    let other = browser.finished(&thread, &reply).unwrap();
    assert_eq!(
        (&other["status"], other["text"].as_str().unwrap().len()),
        (&json!("succeeded"), 999)
    );
    assert_eq!(
        frames.until(|event| event.name == "finish").unwrap().data["message"],
        other
    );
}

#[test]
fn what_was_begun_before_a_reload_is_stopped_after_it() {
    let model = Model::start().unwrap();
    let setup = console(&model);
    let config = setup.folder().join("mono-agent.config.json");
    let mut changed = setup.config.clone();
    let mut daemon = setup.start().unwrap();
    let browser = Browser::log_in(&daemon).unwrap();
    let thread = browser.thread().unwrap();
    let turn = |text: &str| browser.turn(&thread, &json!({ "text": text })).unwrap();
    let hanging = turn("[[mock:hang]]");
    let waiting = turn("[[mock:text never said]]");
    let mut frames = browser.frames(&thread, &hanging, 0).unwrap();
    frames.until(|e| e.data["state"] == "running").unwrap();
    wait_for("the model is asked", || model.stats().requests > 0).unwrap();
    let old = daemon.worker("channel-console").unwrap();
    changed["console"]["allowedHosts"] = json!([&browser.base()[7..]]);
    std::fs::write(&config, changed.to_string()).unwrap();
    assert_eq!(daemon.json(&["reload"]).unwrap()["ok"], true);
    daemon.wait_replaced("channel-console", old).unwrap();
    // By the name of the message or without: first the one that waits, then the one that is written.
    let stop = |wish: Value| {
        wait_for("it is stopped", || {
            let asked = browser.change("POST", &format!("/threads/{thread}/cancel"), &wish);
            asked.is_ok_and(|answer| answer.status == 202)
        })
        .unwrap();
    };
    stop(json!({ "messageId": waiting }));
    stop(json!({}));
    for reply in [&hanging, &waiting] {
        let end = browser.finished(&thread, reply).unwrap();
        assert_eq!(end["status"], "cancelled", "{end}");
    }
    let asked = browser.change("POST", &format!("/threads/{thread}/cancel"), &json!({}));
    assert_eq!(asked.unwrap().status, 404);
    daemon.wait_healthy().unwrap();
    // What was taken back was never asked for, also by the worker that it waited at.
    wait_for("the old worker is gone", || {
        std::fs::metadata(format!("/proc/{old}")).is_err()
    })
    .unwrap();
    assert_eq!(model.stats().requests, 1);
}
