//! Bad input from operators and clients.

use mono_tests::daemon::Setup;
use mono_tests::http;
use mono_tests::model::Model;
use serde_json::json;
use std::io::Write as _;

/// One error of every kind; the numbers below are lines and columns of this text.
const BROKEN: &str = r#"{
  "runtime": {
    "model": "nocolon",
    "workspce": "workspace",
    "maxTurns": "many",
    "retry": { "primaryAttempts": 0 },
    "fallbacks": [{ "model": "demo:scripted", "atempts": 2 }]
  },
  "providers": { "test": { "baseUrl": "not a url", "wire": "openai-chatt" } },
  "context": { "identityPath": "missing.md" },
  "tools": {
    "allowedTools": ["Bash", "Bash"],
    "disallowedTools": ["Bash"],
    "mcpServers": { "a": { "args": [] } }
  },
  "concurrency": { "maxConcurrentRuns": -1 },
  "openaiApi": { "enabled": true, "host": "0.0.0.0", "port": 99999 },
  "nonsense": true
}
"#;

#[test]
fn every_error_of_a_configuration_is_told_in_one_go_with_its_place() {
    let setup = Setup::new().unwrap().raw(BROKEN);
    let path = setup.folder().join("mono-agent.config.json");
    let (code, words) = setup.refused().unwrap();
    assert_eq!(code, 1);
    let place = |at: &str| format!("{}:{at}:", path.display());
    for (at, kind, key) in [
        ("3:14", "wrong_form", "runtime.model"),
        ("4:5", "unknown_key", "runtime.workspce"),
        ("5:17", "wrong_type", "runtime.maxTurns"),
        ("6:35", "out_of_range", "runtime.retry.primaryAttempts"),
        ("7:47", "unknown_key", "runtime.fallbacks[0].atempts"),
        ("9:39", "wrong_form", "providers.test.baseUrl"),
        ("9:60", "not_a_choice", "providers.test.wire"),
        ("10:32", "missing_file", "context.identityPath"),
        ("12:30", "invalid_tool_policy", "tools.allowedTools[1]"),
        ("13:25", "invalid_tool_policy", "tools.disallowedTools[0]"),
        ("14:26", "incomplete_server", "tools.mcpServers.a"),
        ("16:41", "out_of_range", "concurrency.maxConcurrentRuns"),
        ("17:43", "key_required", "openaiApi.host"),
        ("17:62", "out_of_range", "openaiApi.port"),
        ("18:3", "unknown_key", "nonsense"),
    ] {
        let line = format!("{} error[{kind}]: {key}:", place(at));
        assert!(words.contains(&line), "{line}\nis not in\n{words}");
    }
    for help in [
        "did you mean `workspace`?",
        "did you mean `attempts`?",
        "did you mean \"openai-chat\"?",
        "expected: a whole number from 1 to 10\n",
        "15 errors in the configuration",
    ] {
        assert!(words.contains(help), "{help}\nis not in\n{words}");
    }

    // What can't be read as JSON at all has a place, too.
    for (text, what) in [
        ("", "1:1"),
        ("{ \"runtime\": ", "1:14"),
        ("{} {}", "1:4"),
        ("{ \"runtime\": {}, \"runtime\": {} }", "1:18"),
        ("\u{feff}{", "1:"),
    ] {
        let setup = Setup::new().unwrap().raw(text);
        let (code, words) = setup.refused().unwrap();
        assert!(
            code == 1 && words.contains(&format!("mono-agent.config.json:{what}")),
            "{text}: {words}"
        );
    }
}

#[test]
fn bodies_that_are_too_large_or_no_text_are_refused_and_harm_nobody() {
    let model = Model::start().unwrap();
    let mut daemon = Setup::new()
        .unwrap()
        .model(model.address(), "openai-chat")
        .start()
        .unwrap();
    let api = daemon.api().unwrap();
    let before = daemon.worker("channel-openai").unwrap();

    // 100 MB, sent whole by a client that doesn't read before it has sent.
    let length: u64 = 100_000_000;
    let mut stream = http::connect(&api).unwrap();
    http::begin_post(&mut stream, "/v1/chat/completions", "", length).unwrap();
    let piece = vec![b'x'; 1 << 20];
    let mut left = usize::try_from(length).unwrap();
    while left > 0 {
        let now = left.min(piece.len());
        stream.write_all(&piece[..now]).unwrap();
        left -= now;
    }
    let answer = http::answer(&mut stream).unwrap();
    assert_eq!(answer.status, 413, "{answer:?}");
    assert_eq!(answer.json().unwrap()["error"]["code"], "request_too_large");

    // The same without saying how long it is.
    let mut stream = http::connect(&api).unwrap();
    stream
        .write_all(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n")
        .unwrap();
    for _ in 0..3 {
        stream
            .write_all(format!("{:x}\r\n", piece.len()).as_bytes())
            .unwrap();
        stream.write_all(&piece).unwrap();
        stream.write_all(b"\r\n").unwrap();
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
    assert_eq!(http::answer(&mut stream).unwrap().status, 413);

    let mut text = http::completion("a", "MARK");
    let at = text.windows(4).position(|w| w == b"MARK").unwrap();
    text[at..at + 4].copy_from_slice(b"\xff\xfe\xc3\x28");
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    for (what, body) in [
        ("invalid UTF-8", text),
        ("invalid JSON", b"{\"model\": \"agent\", ".to_vec()),
        ("no object", b"[]".to_vec()),
        ("nothing", vec![]),
        ("depth", deep.into_bytes()),
        (
            "no messages",
            json!({ "model": "agent" }).to_string().into_bytes(),
        ),
        (
            "empty messages",
            json!({ "model": "agent", "messages": [] })
                .to_string()
                .into_bytes(),
        ),
        (
            "a number for a text",
            json!({ "model": "agent", "messages": [{ "role": "user", "content": 1 }] })
                .to_string()
                .into_bytes(),
        ),
    ] {
        let answer = http::post(&api, "/v1/chat/completions", &body).unwrap();
        assert_eq!(answer.status, 400, "{what}: {answer:?}");
        let error = &answer.json().unwrap()["error"];
        assert_eq!(error["type"], "invalid_request_error", "{what}: {error}");
        assert_eq!(error["code"], "invalid_request", "{what}: {error}");
    }
    // A page of another site, and a name that was bent to loopback.
    for header in ["origin: https://evil.example\r\n", ""] {
        let host = if header.is_empty() {
            "evil.example"
        } else {
            "localhost"
        };
        let body = http::completion("a", "hello");
        let mut stream = http::connect(&api).unwrap();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.0\r\nhost: {host}\r\n{header}content-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&body).unwrap();
        assert_eq!(
            http::answer(&mut stream).unwrap().status,
            403,
            "{header}{host}"
        );
    }

    // Nothing of all this reached a model or ended a worker, and a good request is served.
    assert_eq!(model.stats().requests, 0);
    assert_eq!(daemon.json(&["runs", "list"]).unwrap()["runs"], json!([]));
    daemon.wait_healthy().unwrap();
    assert_eq!(daemon.worker("channel-openai").unwrap(), before);
    assert_eq!(daemon.status().unwrap()["protocol_violations"], 0);
    let answer = http::complete(&api, "a", "hello").unwrap();
    assert_eq!(
        answer.json().unwrap()["choices"][0]["message"]["content"],
        "pong"
    );

    // A message of a few hundred KiB is no matter, over both channels; one that is no text is one.
    let long = "ä".repeat(150_000);
    assert_eq!(http::complete(&api, "a", &long).unwrap().status, 200);
    assert!(model.last().unwrap().body.to_string().contains(&long));
    let mut command = daemon.monoctl();
    command.args(["send", "--json", "-"]);
    assert_eq!(
        daemon.pipe(command, long.as_bytes()).unwrap().status.code(),
        Some(0)
    );
    let mut command = daemon.monoctl();
    command.args(["send", "--json", "-"]);
    assert_ne!(
        daemon.pipe(command, b"\xff\xfe").unwrap().status.code(),
        Some(0)
    );
}
