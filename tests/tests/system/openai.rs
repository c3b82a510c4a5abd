//! The OpenAI-compatible channel, driven by the official client.

use mono_tests::daemon::Setup;
use mono_tests::model::{Model, bash, call};
use mono_tests::node;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// Runs the client's script and returns what it reports.
fn client(base: &str, messages: &Value) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("node/openai-client.mjs");
    assert!(node::node_modules().is_dir());
    let output = Command::new(node::node())
        .arg(script)
        .args([
            &format!("{base}/v1"),
            "the-right-key",
            &messages.to_string(),
        ])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_official_client_is_served_and_refused_as_it_expects() {
    let model = Model::start().unwrap();
    let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    setup.config["openaiApi"]["apiKeyFile"] = json!("bearer.key");
    setup.secret("bearer.key", "the-right-key").unwrap();
    let daemon = setup.start().unwrap();
    let text = "Two files: \u{1f4c4} **bold** \\u0041 <b> & \"quotes\"";
    let publish = |path: &str| call("PublishReplyFile", &json!({ "path": path }));
    let messages = json!({
        "plain": "hello [[mock:text Hello to you.]]",
        "parts": format!("{} {} {} {} [[mock:text {text}]]", bash("echo a > a.txt; echo b > b.txt"), publish("a.txt"), publish("b.txt"), publish("nowhere.txt")),
        "thought": "[[mock:think First I think.]] [[mock:text Then I say.]]",
        "failing": "[[mock:status 400]]",
    });
    let got = client(&daemon.api().unwrap(), &messages);

    // Models.
    assert_eq!(
        got["models"],
        json!([{ "id": "agent", "object": "model", "created": 0, "owned_by": "mono-agent" }])
    );

    // A completion.
    let plain = &got["plain"];
    assert_eq!(plain["object"], "chat.completion");
    assert!(
        plain["id"].as_str().unwrap().starts_with("chatcmpl-"),
        "{plain}"
    );
    assert_eq!(plain["model"], "agent");
    assert_eq!(plain["choices"][0]["message"]["content"], "Hello to you.");
    assert_eq!(plain["choices"][0]["message"]["role"], "assistant");
    assert_eq!(plain["choices"][0]["finish_reason"], "stop");
    let usage = |value: &Value| {
        let [prompt, answer, total] = ["prompt_tokens", "completion_tokens", "total_tokens"]
            .map(|key| value["usage"][key].as_u64().unwrap());
        assert!(
            prompt > 0 && answer > 0 && total == prompt + answer,
            "{value}"
        );
    };
    usage(plain);
    assert!(
        plain["mono_agent"]["reply_part_outcomes"].is_null(),
        "{plain}"
    );

    // The same as a stream: the role first, pieces, stop, usage.
    let stream = got["stream"].as_array().unwrap();
    assert_eq!(stream[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(contents(stream), "Hello to you.");
    let finish: Vec<_> = stream
        .iter()
        .filter(|c| c["choices"][0]["finish_reason"] == "stop")
        .collect();
    assert_eq!(finish.len(), 1);
    usage(stream.last().unwrap());
    assert_eq!(stream.last().unwrap()["choices"], json!([]));
    assert!(
        stream
            .iter()
            .all(|c| c["id"] == stream[0]["id"] && c["object"] == "chat.completion.chunk")
    );
    // Without the wish there is no usage chunk.
    let bare = got["streamWithoutUsage"].as_array().unwrap();
    assert!(bare.iter().all(|c| c["usage"].is_null()), "{bare:?}");
    assert_eq!(bare.last().unwrap()["choices"][0]["finish_reason"], "stop");

    // Reply parts: the content byte for byte, the outcomes beside it, once, right before the stop.
    let outcomes = json!([outcome(0), outcome(1), {
        "partIndex": 2, "partType": "failure", "status": "failed", "code": "artifact_missing",
        "message": got["parts"]["mono_agent"]["reply_part_outcomes"][2]["message"],
    }]);
    assert_eq!(got["parts"]["choices"][0]["message"]["content"], text);
    assert_eq!(
        got["parts"]["mono_agent"]["reply_part_outcomes"], outcomes,
        "{}",
        got["parts"]
    );
    let stream = got["streamParts"].as_array().unwrap();
    assert_eq!(contents(stream), text);
    let carrying: Vec<usize> = (0..stream.len())
        .filter(|i| !stream[*i]["mono_agent"]["reply_part_outcomes"].is_null())
        .collect();
    let stop = stream
        .iter()
        .position(|c| c["choices"][0]["finish_reason"] == "stop")
        .unwrap();
    assert_eq!(carrying, [stop - 1], "{stream:?}");
    assert_eq!(
        stream[stop - 1]["mono_agent"]["reply_part_outcomes"],
        outcomes
    );
    assert!(
        stream[stop - 1]["choices"]
            .as_array()
            .unwrap()
            .iter()
            .all(|c| c["delta"]["content"]
                .as_str()
                .unwrap_or_default()
                .is_empty())
    );
    let whole = got["parts"].to_string() + &got["streamParts"].to_string();
    for private in [
        "a.txt\",\"size",
        "sha256:",
        "mono-agent-artifact",
        &*daemon.folder().to_string_lossy(),
    ] {
        assert!(
            !got["parts"]["mono_agent"]["reply_part_outcomes"]
                .to_string()
                .contains(private)
        );
        assert!(
            !whole.contains(&*daemon.folder().join(".mono-agent").to_string_lossy()),
            "{private}"
        );
    }

    // Reasoning.
    let stream = got["streamThought"].as_array().unwrap();
    let thought: String = stream
        .iter()
        .filter_map(|c| c["choices"][0]["delta"]["reasoning_content"].as_str())
        .collect();
    assert_eq!(
        (thought.as_str(), contents(stream).as_str()),
        ("First I think.", "Then I say.")
    );

    // Refusals, by the client's own classes. None is sent twice by the client.
    for (case, class, status) in [
        ("wrongModel", "BadRequestError", 400),
        ("wrongKey", "AuthenticationError", 401),
        ("noKey", "AuthenticationError", 401),
        ("wrongRoute", "NotFoundError", 404),
        ("tools", "BadRequestError", 400),
        ("tool_choice", "BadRequestError", 400),
        ("functions", "BadRequestError", 400),
        ("response_format", "BadRequestError", 400),
        ("audio", "BadRequestError", 400),
        ("modalities", "BadRequestError", 400),
        ("toolCallsInMessages", "BadRequestError", 400),
    ] {
        let error = &got["errors"][case];
        assert_eq!(
            (&error["class"], &error["status"]),
            (&json!(class), &json!(status)),
            "{case}: {error}"
        );
    }
    assert_eq!(got["errors"]["wrongModel"]["code"], "invalid_request");
    assert_eq!(got["errors"]["tools"]["param"], "tools");
    // A run that fails: whole, a status; streamed, an error event.
    for case in ["failing", "failingStream"] {
        let error = &got["errors"][case];
        assert!(
            !error["class"].is_null() && !error["message"].is_null(),
            "{case}: {error}"
        );
    }

    // Parameters without effect are taken and said to have none.
    assert_eq!(got["ignored"]["choices"][0]["message"]["content"], "pong");
    let events = got["ignored"]["mono_agent"]["events"].to_string();
    assert!(
        events.contains("runtime_warning") && events.contains("temperature"),
        "{}",
        got["ignored"]
    );

    // An image in the request goes to the model; one elsewhere is not fetched.
    assert_eq!(got["image"]["choices"][0]["message"]["content"], "pong");
    let seen = model.stats().seen;
    let asked = seen
        .iter()
        .rfind(|s| s.body.to_string().contains("what is this picture?"))
        .unwrap();
    assert!(
        asked
            .body
            .to_string()
            .contains("data:image/png;base64,iVBORw0KGgo"),
        "{}",
        asked.body
    );
    assert!(
        !asked.body.to_string().contains("\"https://example.invalid"),
        "{}",
        asked.body
    );

    // The conversation that a client names: the second turn sends the new message only, and the
    // agent knows the first.
    let seen = model.stats().seen;
    let second = seen
        .iter()
        .rfind(|s| s.body.to_string().contains("and my second"))
        .unwrap()
        .body
        .to_string();
    assert_eq!(second.matches("my first message").count(), 1, "{second}");
    // Without an id each request is a conversation of its own, and its transcript is told.
    let alone = seen
        .iter()
        .rfind(|s| s.body.to_string().contains("the transcript's last"))
        .unwrap()
        .body
        .to_string();
    assert!(
        alone.contains("the transcript's first") && !alone.contains("my first message"),
        "{alone}"
    );
}

fn outcome(index: usize) -> Value {
    json!({
        "partIndex": index, "partType": "attachment", "status": "failed", "code": "unsupported_destination",
        "message": "Attachment reply parts are unsupported on this destination.",
    })
}

fn contents(stream: &[Value]) -> String {
    stream
        .iter()
        .filter_map(|c| c["choices"][0]["delta"]["content"].as_str())
        .collect()
}
