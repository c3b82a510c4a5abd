//! A model service that misbehaves, seen from the person's end.

use mono_tests::daemon::{Daemon, Setup};
use mono_tests::model::{Model, call};
use serde_json::json;
use std::time::{Duration, Instant};

fn with_fallback(model: &Model) -> Daemon {
    let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    setup.config["runtime"]["fallbacks"] = json!([{ "model": "test:mock-2" }]);
    setup.start().unwrap()
}

#[test]
fn a_stream_cut_before_its_finish_reason_is_asked_for_again_and_nothing_stands_twice() {
    let model = Model::start().unwrap();
    let daemon = with_fallback(&model);
    let answer =
        "The first sentence of a longer answer. The second one. And a third, to have some pieces.";
    let sent = daemon
        .send(
            "a",
            &format!("[[mock:cut-first 1 4]] [[mock:text {answer}]]"),
        )
        .unwrap();
    assert_eq!((sent.code, sent.text()), (0, answer), "{sent:?}");
    // The person saw a beginning, was told that it is void, and the pieces add up to the answer.
    assert_eq!(sent.of("replace").count(), 1, "{sent:?}");
    let mut shown = String::new();
    for event in &sent.events {
        match event["type"].as_str() {
            Some("append") => shown.push_str(event["text"].as_str().unwrap()),
            Some("replace") => shown = event["text"].as_str().unwrap().to_owned(),
            _ => {}
        }
    }
    assert_eq!(shown, answer);
    assert!(
        sent.of("provider_status")
            .any(|e| e["status"] == "retry_started"),
        "{sent:?}"
    );
    // The same model answered: no step to another one, no note.
    let run = daemon.show(sent.run()).unwrap();
    assert_eq!(run["failoverHistory"], json!([]));
    assert_eq!(sent.finish["model"], "test:mock-1");

    // A tool call that was cut is not executed; the one of the retry is, once.
    let write = call("Bash", &json!({ "command": "echo once >> calls" }));
    let sent = daemon
        .send(
            "b",
            &format!("[[mock:cut-first 1 2]] {write} [[mock:text done]]"),
        )
        .unwrap();
    assert_eq!((sent.code, sent.text()), (0, "done"), "{sent:?}");
    assert_eq!(
        std::fs::read_to_string(daemon.workspace().join("calls")).unwrap(),
        "once\n"
    );
}

#[test]
fn a_refused_key_goes_to_the_next_model_which_says_so_and_is_on_record() {
    let model = Model::start().unwrap();
    let daemon = with_fallback(&model);
    let sent = daemon
        .send(
            "a",
            "[[mock@mock-1:status 401]] [[mock:text From the second.]]",
        )
        .unwrap();
    assert_eq!(sent.code, 0, "{sent:?}");
    assert!(sent.text().starts_with("From the second."), "{sent:?}");
    let note = sent.text().lines().last().unwrap();
    assert!(
        note.contains("test:mock-2") && note.contains("provider_auth"),
        "{note}"
    );
    assert_eq!(sent.finish["model"], "test:mock-2");
    let stages: Vec<_> = sent
        .of("provider_status")
        .map(|e| e["status"].as_str().unwrap())
        .collect();
    assert!(
        stages.contains(&"failover_started") && !stages.contains(&"retry_started"),
        "{stages:?}"
    );
    let run = daemon.show(sent.run()).unwrap();
    assert_eq!(run["model"], "test:mock-2");
    assert_eq!(run["failoverHistory"].as_array().unwrap().len(), 1, "{run}");
    assert_eq!(
        run["failoverHistory"][0]["failureKind"], "provider_auth",
        "{run}"
    );
    // The note is for the person; what the model said is what the next turn hears.
    daemon.answered("a", "go on").unwrap();
    let body = model.last().unwrap().body.to_string();
    assert!(
        body.contains("From the second.") && !body.contains("Answered by"),
        "{body}"
    );
}

#[test]
fn refusals_garbage_and_exhaustion() {
    let model = Model::start().unwrap();
    let daemon = with_fallback(&model);

    // 429: its `retry-after` is obeyed.
    let before = Instant::now();
    let sent = daemon
        .send("a", "[[mock:flaky 1 429 1]] [[mock:text later]]")
        .unwrap();
    assert_eq!((sent.code, sent.text()), (0, "later"), "{sent:?}");
    assert!(before.elapsed() >= Duration::from_secs(1));

    // 529 once, then fine.
    let sent = daemon
        .send("a", "[[mock:flaky 1 529]] [[mock:text calm again]]")
        .unwrap();
    assert_eq!((sent.code, sent.text()), (0, "calm again"), "{sent:?}");

    // Bytes that are no stream, and an event that is no JSON, are never an answer.
    for broken in ["garbage", "malformed"] {
        let sent = daemon
            .send(
                broken,
                &format!("[[mock@mock-1:{broken}]] [[mock:text From the other one.]]"),
            )
            .unwrap();
        assert_eq!(sent.code, 0, "{sent:?}");
        assert!(sent.text().starts_with("From the other one."), "{sent:?}");
        assert_eq!(sent.finish["model"], "test:mock-2");
    }

    // Nobody answers: a clear failure with the whole way on record, and the conversation goes on.
    let sent = daemon
        .send("b", "Remember plum. [[mock:status 503]]")
        .unwrap();
    assert_eq!(sent.code, 1, "{sent:?}");
    assert_eq!(
        sent.finish["error"]["kind"], "provider_unavailable_exhausted",
        "{sent:?}"
    );
    let run = daemon.show(sent.run()).unwrap();
    assert_eq!(
        (&run["status"], &run["failureKind"]),
        (&json!("failed"), &json!("provider_unavailable_exhausted"))
    );
    assert!(
        !run["failoverHistory"].as_array().unwrap().is_empty(),
        "{run}"
    );
    let sent = daemon.send("b", "And now? [[mock:text fine]]").unwrap();
    assert_eq!((sent.code, sent.text()), (0, "fine"));
    // The next turn is told of the one that failed.
    assert!(
        model
            .last()
            .unwrap()
            .body
            .to_string()
            .contains("Remember plum.")
    );

    // A provider that quotes the key it was given doesn't get it into anything we say.
    assert!(
        !daemon.log().contains("error sending request"),
        "{}",
        daemon.log()
    );
}
