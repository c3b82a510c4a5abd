//! What the whole is for: messages, tools of a real MCP server, files, memory.

use mono_tests::daemon::{Daemon, Setup};
use mono_tests::everything::Everything;
use mono_tests::model::{Model, bash, call};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

fn sha256(bytes: &[u8]) -> String {
    let mut text = "sha256:".to_owned();
    for byte in Sha256::digest(bytes) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Text, an MCP server over pipes and one over the network, a file that is written, published and fetched, and memory.
fn everything_over(wire: &str, name: &str, mode: &'static str) {
    let model = Model::start().unwrap();
    let server = Everything::start(mode).unwrap();
    let daemon = Setup::new()
        .unwrap()
        .model(model.address(), wire)
        .everything("pipes")
        .listening_server("web", mode, &server.url())
        .start()
        .unwrap();

    let content = "week,sold\n1,äöü 23\n";
    let message = [
        "The word of the day is heliotrope.".to_owned(),
        call("mcp__pipes__echo", &json!({ "message": "over pipes" })),
        call("mcp__web__get-sum", &json!({ "a": 20, "b": 22 })),
        call(
            "Write",
            &json!({ "file_path": "reports/weekly.csv", "content": content }),
        ),
        call(
            "PublishReplyFile",
            &json!({ "path": "reports/weekly.csv", "mediaType": "text/csv" }),
        ),
        "[[mock:text The report is attached: 23 were sold.]]".to_owned(),
    ]
    .join(" ");
    let sent = daemon.send("a", &message).unwrap();
    assert_eq!(
        (sent.code, sent.text()),
        (0, "The report is attached: 23 were sold."),
        "{sent:?}"
    );
    assert_eq!(
        sent.preview("mcp__pipes__echo").unwrap(),
        "Echo: over pipes"
    );
    assert!(sent.preview("mcp__web__get-sum").unwrap().contains("42"));
    for tool in [
        "mcp__pipes__echo",
        "mcp__web__get-sum",
        "Write",
        "PublishReplyFile",
    ] {
        assert_eq!(sent.completed(tool)[0]["ok"], true, "{tool}");
    }
    // The text came in pieces while it was made, and they add up.
    let pieces: Vec<_> = sent
        .of("append")
        .filter_map(|e| e["text"].as_str())
        .collect();
    assert!(
        pieces.len() > 1 && pieces.concat() == sent.text(),
        "{pieces:?}"
    );
    // What went to the model went over the wire under test, and the results came back in order.
    let seen = model.stats().seen;
    assert!(seen.iter().all(|request| request.api == name), "{seen:?}");
    assert_eq!(
        seen.iter()
            .map(|request| request.results)
            .collect::<Vec<_>>(),
        [0, 1, 2, 3, 4]
    );

    let part = &sent.finish["parts"][0];
    assert_eq!(sent.finish["parts"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&part["name"], &part["mediaType"]),
        (&json!("weekly.csv"), &json!("text/csv"))
    );
    assert_eq!(part["integrityId"], sha256(content.as_bytes()));
    let fetched = daemon
        .fetch(part["reference"]["id"].as_str().unwrap())
        .unwrap();
    assert_eq!(fetched, content.as_bytes());
    // The person gets an opaque reference, never a place on the disk.
    assert!(!part.to_string().contains("reports"), "{part}");

    let run = daemon.show(sent.run()).unwrap();
    assert_eq!(run["status"], "succeeded");
    assert_eq!(run["text"], sent.text());
    assert_eq!(run["tools"].as_array().unwrap().len(), 4);
    assert!(run["usage"]["input"].as_u64().unwrap() > 0, "{run}");

    remembers(&daemon, &model);
}

/// The next turn knows this one, another conversation doesn't.
fn remembers(daemon: &Daemon, model: &Model) {
    daemon
        .answered("a", "And now? [[mock:text later]]")
        .unwrap();
    let body = model.last().unwrap().body.to_string();
    for known in ["heliotrope", "The report is attached", "And now?"] {
        assert!(body.contains(known), "{known} is not in {body}");
    }
    daemon
        .answered("b", "Who are you? [[mock:text nobody]]")
        .unwrap();
    let body = model.last().unwrap().body.to_string();
    assert!(!body.contains("heliotrope"), "{body}");
    assert!(body.contains("You are a test agent."), "{body}");
}

#[test]
fn a_turn_over_chat_completions() {
    everything_over("openai-chat", "chat", "streamableHttp");
}

#[test]
fn a_turn_over_responses() {
    everything_over("openai-responses", "responses", "sse");
}

#[test]
fn a_turn_over_anthropic_messages() {
    everything_over("anthropic-messages", "messages", "streamableHttp");
}

#[test]
fn the_reference_server_lists_reports_progress_returns_much_and_can_be_cancelled() {
    let model = Model::start().unwrap();
    let daemon = Setup::new()
        .unwrap()
        .model(model.address(), "openai-chat")
        .everything("everything")
        .start()
        .unwrap();

    // List.
    let slow = "trigger-long-running-operation";
    let progress = call(slow, &json!({ "duration": 0.3, "steps": 3 }));
    let sent = daemon.send("a", &progress).unwrap();
    let offered = model.last().unwrap().tools;
    for tool in ["echo", "get-sum", "get-tiny-image", slow] {
        assert!(offered.iter().any(|name| name == tool), "{offered:?}");
    }
    // Progress, in order and to its end.
    assert_eq!(sent.completed(slow)[0]["ok"], true, "{sent:?}");
    let steps: Vec<_> = sent
        .of("tool_call_progress")
        .map(|e| e["progress"].as_f64().unwrap())
        .collect();
    assert_eq!(steps, [1.0, 2.0, 3.0], "{sent:?}");
    assert!(sent.of("tool_call_progress").all(|e| e["total"] == 3.0));

    // An image, for the model to see.
    let sent = daemon
        .send("a", &call("get-tiny-image", &json!({})))
        .unwrap();
    assert_eq!(sent.completed("get-tiny-image")[0]["ok"], true, "{sent:?}");
    assert!(
        model
            .last()
            .unwrap()
            .body
            .to_string()
            .contains("data:image/png;base64,")
    );

    // A large result: the model gets both ends and the name of a file that it can read.
    let sent = daemon
        .send(
            "a",
            &format!(
                "[[mock:bigtool echo 200000]] {} [[mock:echo]]",
                call(
                    "Bash",
                    &json!({
                        "command": "cat /scratch/*/* /scratch/* 2>/dev/null | tr -cd x | wc -c"
                    })
                )
            ),
        )
        .unwrap();
    assert_eq!(sent.completed("echo")[0]["ok"], true, "{sent:?}");
    assert!(model.last().unwrap().bytes < 300_000);
    let counted: u64 = sent.preview("Bash").unwrap().trim().parse().unwrap();
    assert!(counted >= 200_000, "{sent:?}");

    // A call with nearly two megabytes of arguments arrives whole; one over the bound is refused,
    // and the turn goes on.
    let sent = daemon
        .send(
            "a",
            "[[mock:bigtool echo 2000000]] [[mock:bigtool echo 2097152]] [[mock:text done]]",
        )
        .unwrap();
    assert_eq!((sent.code, sent.text()), (0, "done"), "{sent:?}");
    let calls = sent.completed("echo");
    assert_eq!(
        (&calls[0]["ok"], &calls[1]["ok"]),
        (&json!(true), &json!(false)),
        "{calls:?}"
    );
    assert!(
        calls[1]["preview"]
            .as_str()
            .unwrap()
            .contains("invalid_arguments"),
        "{calls:?}"
    );

    // A cancelled call ends the turn at once, and the server serves the next one.
    let before = daemon.workers("mcp-server", "serving").unwrap();
    let mut sending = daemon
        .start_send("a", &call(slow, &json!({ "duration": 600, "steps": 6000 })))
        .unwrap();
    let run = sending.until("started").unwrap()["run"]
        .as_str()
        .unwrap()
        .to_owned();
    sending.until("tool_call_progress").unwrap();
    assert!(
        daemon
            .run(&["runs", "cancel", &run])
            .unwrap()
            .status
            .success()
    );
    let sent = sending.finish().unwrap();
    assert_eq!(sent.finish["error"]["cancelled"], true, "{sent:?}");
    assert_eq!(daemon.settled(&run).unwrap()["status"], "cancelled");
    let sent = daemon
        .send("a", &call("echo", &json!({ "message": "still here" })))
        .unwrap();
    assert_eq!(sent.preview("echo").unwrap(), "Echo: still here");
    let after = daemon.workers("mcp-server", "serving").unwrap();
    assert_eq!((before.len(), after.len()), (1, 1));
    assert_eq!(
        before[0]["pid"], after[0]["pid"],
        "the conversation's server was replaced"
    );
}

#[test]
fn a_later_turn_changes_what_an_earlier_one_made() {
    let model = Model::start().unwrap();
    let daemon = Setup::new()
        .unwrap()
        .model(model.address(), "openai-chat")
        .start()
        .unwrap();
    let made = [
        call(
            "Write",
            &json!({ "file_path": "a/b.txt", "content": "one\n" }),
        ),
        bash("mkdir -p d/e; echo x > d/e/f"),
    ];
    assert_eq!(daemon.send("a", &made.join(" ")).unwrap().code, 0);
    // Started as root, the daemon gives this turn to another user than the first.
    let changed = [
        call(
            "Edit",
            &json!({ "file_path": "a/b.txt", "old_string": "one", "new_string": "two" }),
        ),
        bash(
            "set -e; echo y >> d/e/f; echo z > d/e/g; mv d/e d/h; echo three >> a/b.txt; rm -r d; ls",
        ),
    ];
    let sent = daemon.send("a", &changed.join(" ")).unwrap();
    assert_eq!(sent.completed("Edit")[0]["ok"], true, "{sent:?}");
    assert_eq!(sent.preview("Bash").unwrap().trim(), "a", "{sent:?}");
    let text = std::fs::read_to_string(daemon.workspace().join("a/b.txt")).unwrap();
    assert_eq!(text, "two\nthree\n");
}

#[test]
fn selected_skills_reach_the_model_after_the_identity() {
    let model = Model::start().unwrap();
    let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    let skill = setup.folder().join("skills/reports");
    std::fs::create_dir_all(&skill).unwrap();
    std::fs::write(skill.join("SKILL.md"), "# Weekly reports\nUse tables.\n").unwrap();
    setup.config["context"]["skillsRoot"] = json!("skills");
    setup.config["context"]["selectedSkills"] = json!(["reports"]);
    let daemon = setup.start().unwrap();
    daemon.answered("a", "[[mock:text yes]]").unwrap();
    let body = model.last().unwrap().body.to_string();
    let at = |text: &str| {
        body.find(text)
            .unwrap_or_else(|| panic!("{text} is not in {body}"))
    };
    assert!(at("You are a test agent.") < at("# Skill: reports"));
    assert!(at("# Skill: reports") < at("Use tables."));
}
