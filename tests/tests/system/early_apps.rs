//! Apps of an answer that is still being written, by the console's wire.

use crate::apps::{App, start};
use mono_tests::console::Browser;
use mono_tests::daemon::wait_for;
use mono_tests::model::{Model, bash, call};
use serde_json::{Value, json};

fn place(part: &Value) -> String {
    let place = part["app"].as_str().unwrap();
    place.strip_prefix("/api/v1").unwrap().to_owned()
}

#[test]
fn an_app_may_ask_while_its_turn_goes_on_and_is_put_away_when_that_is_stopped() {
    let model = Model::start().unwrap();
    let daemon = start(&model, json!({}));
    let browser = Browser::log_in(&daemon).unwrap();
    let thread = browser.thread().unwrap();
    let roll = call("roll_dice", &json!({ "count": 3 }));
    let text = format!("{roll} {roll} {}", bash("sleep 600"));
    let reply = browser.turn(&thread, &json!({ "text": text })).unwrap();
    let mut frames = browser.frames(&thread, &reply, 0).unwrap();
    let whole = |event: &mono_tests::console::Event| {
        event.name == "view" && event.data["part"]["stage"].is_null()
    };
    let asks = frames.until(whole).unwrap().data["part"].clone();
    let quiet = frames.until(whole).unwrap().data["part"].clone();
    assert_ne!(asks["id"], quiet["id"]);
    let app = App::of(browser, thread.clone(), asks);
    let record = app.browser.get(&app.place).unwrap();
    assert_eq!(
        (&record["connected"], &record["input"]["count"]),
        (&json!(true), &json!(3))
    );
    assert!(record["draft"].is_null());
    let params = json!({ "name": "reroll", "arguments": { "count": 2 } });
    let question = app.question("tools/call", params);
    assert_eq!(app.decide(&question, "once").status, 200);
    // Nothing is listed before it is kept.
    let listed = || daemon.json(&["apps", "list"]).unwrap()["apps"].clone();
    assert_eq!(listed(), json!([]));
    let stop = format!("/threads/{thread}/cancel");
    let body = json!({ "messageId": reply });
    app.browser.change("POST", &stop, &body).unwrap();
    let message = app.browser.finished(&thread, &reply).unwrap();
    assert_eq!(
        (&message["status"], &message["parts"]),
        (&json!("cancelled"), &json!([]))
    );
    for place in [app.place.clone(), place(&quiet)] {
        assert!(app.browser.get(&place).is_err(), "{place}");
    }
    // What was done in the name of one stays on record, and no right with it.
    wait_for("the run's end", || listed() != json!([])).unwrap();
    let listed = listed();
    let [kept] = &listed.as_array().unwrap()[..] else {
        panic!("{listed}")
    };
    assert_eq!(
        (&kept["id"], &kept["closed"]),
        (&app.part["id"], &json!(true))
    );
    let audit = daemon
        .json(&["apps", "audit", kept["id"].as_str().unwrap()])
        .unwrap();
    assert_eq!(audit["entries"].as_array().unwrap().len(), 3, "{audit}");
}

#[test]
fn a_page_is_told_what_a_model_writes_and_the_draft_becomes_the_app_of_the_result() {
    let model = Model::start().unwrap();
    let daemon = start(&model, json!({}));
    let browser = Browser::log_in(&daemon).unwrap();
    let thread = browser.thread().unwrap();
    let why = "to see how it is written, one word after the other ".repeat(3);
    let roll = call("roll_dice", &json!({ "count": 3, "why": why }));
    // The arguments are half written until the draft was looked at.
    let go = daemon.folder().join("go");
    let hold = format!("[[mock:hold 20 {}]]", go.display());
    let text = format!("[[mock:gap 100]] [[mock:piece 4]] {hold} {roll} [[mock:text done]]");
    let reply = browser.turn(&thread, &json!({ "text": text })).unwrap();
    let mut frames = browser.frames(&thread, &reply, 0).unwrap();
    let mut stages = Vec::new();
    let mut inputs = Vec::new();
    let mut part = Value::Null;
    let message = loop {
        let event = frames.following().unwrap().unwrap();
        match event.name.as_str() {
            "view" => {
                part = event.data["part"].clone();
                stages.push(part["stage"].clone());
                let record = browser.get(&place(&part)).unwrap();
                let line = format!("GET {}", record["html"].as_str().unwrap());
                let page = browser.ask(&line, b"").unwrap();
                let bytes = record["htmlBytes"].as_u64().unwrap();
                assert_eq!((page.status, page.body.len() as u64), (200, bytes));
                if part["stage"] == "draft" {
                    assert_eq!(
                        (&record["draft"], &record["input"], &record["result"]),
                        (&json!(true), &Value::Null, &Value::Null)
                    );
                    std::fs::write(&go, "").unwrap();
                }
            }
            "input" => {
                assert_eq!(event.data["id"], part["id"]);
                inputs.push(event.data["arguments"].clone());
            }
            "finish" => break event.data["message"].clone(),
            _ => {}
        }
    };
    assert_eq!(stages, [json!("draft"), json!("called"), Value::Null]);
    assert!(inputs.len() >= 2, "{inputs:?}");
    for input in &inputs {
        let so_far = input["why"].as_str().unwrap_or_default();
        assert!(why.starts_with(so_far), "{input}");
        assert!(
            so_far.is_empty() || so_far.ends_with(' '),
            "whole words: {input}"
        );
    }
    assert_eq!(message["status"], "succeeded", "{message}");
    assert_eq!(message["parts"], json!([part]));
    let record = browser.get(&place(&part)).unwrap();
    assert_eq!(record["input"], json!({ "count": 3, "why": why }));
    assert!(record["result"].is_object() && record["draft"].is_null());
}
