//! What a server is told of the request that it works for: its files, a folder for what it makes, and
//! where it says how far it is (spec s3, "Trusted request context for a stdio server").

use super::continuation_neighbours::given;
use mono_tests::console::Browser;
use mono_tests::daemon::{Daemon, Setup, wait_for};
use mono_tests::http;
use mono_tests::model::{Model, bash, call};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const TOOL: &str = "count_words";

/// The handbook's example.
fn example() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    root.join("docs/examples/request_server.py")
}

/// The example as a server that is told of its requests; it leaves its environment in the workspace.
fn setup(model: &Model) -> Setup {
    let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    let noted = setup.workspace().join("words.env");
    let script = format!(
        "env > {}; exec python3 {}",
        noted.display(),
        example().display()
    );
    let server = json!({
        "command": "/bin/sh",
        "args": ["-c", script],
        "sandbox": { "network": "all", "readableRoots": [example().parent().unwrap()] },
    });
    setup.config["tools"]["mcpServers"]["words"] = server;
    setup.config["tools"]["mcpRequestContextServers"] = json!(["words"]);
    setup.config["console"] = json!({ "enabled": true, "port": 0 });
    setup
}

fn variables(daemon: &Daemon) -> BTreeMap<String, String> {
    let given = given(&daemon.workspace(), "words").into_iter();
    given
        .map(|(name, value)| (name.replace("MONO_AGENT_", ""), value))
        .collect()
}

/// Where a run's own folder is outside of its view.
fn outbound(daemon: &Daemon, run: &str) -> PathBuf {
    daemon
        .folder()
        .join(".mono-agent/run")
        .join(run)
        .join("outbound")
}

fn upload(browser: &Browser, name: &str, content: &[u8]) -> Value {
    let wish = json!({ "name": name, "mediaType": "text/plain", "bytes": content.len() });
    let answer = browser.change("POST", "/uploads", &wish).unwrap();
    assert_eq!(answer.status, 201, "{answer:?}");
    let id = answer.json().unwrap()["id"].clone();
    let line = format!("PUT /api/v1/uploads/{}/content", id.as_str().unwrap());
    let answer = browser.ask(&line, content).unwrap();
    assert!((200..300).contains(&answer.status), "{answer:?}");
    id
}

fn steps<'a>(message: &'a Value, name: &str) -> Vec<&'a Value> {
    let all = message["activity"].as_array().unwrap().iter();
    all.filter(|step| step["name"] == name).collect()
}

#[test]
fn a_server_reads_the_requests_file_tells_of_it_and_leaves_one_for_the_reply() {
    let model = Model::start().unwrap();
    let daemon = setup(&model).start().unwrap();
    let browser = Browser::log_in(&daemon).unwrap();
    let thread = browser.thread().unwrap();
    let path = "/scratch/attachments/1-notes.txt";
    let count = call(TOOL, &json!({ "path": path }));
    let report = "/scratch/outbound/1-notes.txt.report.txt";
    let publish = call("PublishReplyFile", &json!({ "path": report }));
    let file = upload(&browser, "notes.txt", b"one two three");
    let wish =
        json!({ "text": format!("{count} {publish} [[mock:text done]]"), "attachments": [file] });
    let reply = browser.turn(&thread, &wish).unwrap();
    let message = browser.finished(&thread, &reply).unwrap();
    assert_eq!(message["status"], "succeeded", "{message}");
    let posted = steps(&message, "server_progress");
    assert_eq!(posted.len(), 1, "{message}");
    assert_eq!(
        (&posted[0]["title"], &posted[0]["text"]),
        (&json!("words"), &json!("3 words")),
        "{message}"
    );
    let called = steps(&message, TOOL);
    assert_eq!(called[0]["isError"], Value::Null, "{message}");
    assert_eq!(message["parts"].as_array().unwrap().len(), 1, "{message}");
    assert_eq!(message["parts"][0]["name"], "1-notes.txt.report.txt");
    let id = message["parts"][0]["reference"]["id"].as_str();
    if let Some(id) = id {
        let text = String::from_utf8(daemon.fetch(id).unwrap()).unwrap();
        assert_eq!(text, format!("3 words, counted for web:{thread}\n"));
    }
    let own = variables(&daemon);
    assert_eq!(
        own["MCP_PRODUCING_CONVERSATION_ID"],
        format!("web:{thread}")
    );
    assert_eq!(own["MCP_ATTACHMENTS_ROOT"], "/scratch/attachments");
    assert_eq!(own["MCP_RUN_OUTPUT_DIR"], "/scratch/outbound");
    let allowed: Value = serde_json::from_str(&own["MCP_ALLOWED_ATTACHMENT_PATHS"]).unwrap();
    assert_eq!(allowed, json!([path]));
    let identities: Value =
        serde_json::from_str(&own["MCP_ALLOWED_ATTACHMENT_IDENTITIES"]).unwrap();
    assert_eq!(identities[0]["path"], path);
    assert!(identities[0]["ino"].is_u64() && identities[0]["dev"].is_u64());

    // Nothing of it is there for the next turn, of the same conversation even.
    let wish = json!({ "text": format!("{count} [[mock:text done]]") });
    let reply = browser.turn(&thread, &wish).unwrap();
    let message = browser.finished(&thread, &reply).unwrap();
    let [called] = steps(&message, TOOL)[..] else {
        panic!("{message}")
    };
    assert_eq!(called["isError"], true, "{message}");
    assert_eq!(called["result"], "this file did not come with the request");
    let told = steps(&message, "server_progress");
    assert_eq!((told.len(), &told[0]["isError"]), (1, &json!(true)));
    let own = variables(&daemon);
    assert_eq!(own["MCP_ALLOWED_ATTACHMENT_PATHS"], "[]");
    assert_eq!(own["MCP_ALLOWED_ATTACHMENT_IDENTITIES"], "[]");
    assert_eq!(own["MCP_ATTACHMENTS_ROOT"], "/scratch/attachments");
}

#[test]
fn a_file_that_took_the_place_of_the_requests_is_not_the_requests() {
    let model = Model::start().unwrap();
    let daemon = setup(&model).start().unwrap();
    let browser = Browser::log_in(&daemon).unwrap();
    let thread = browser.thread().unwrap();
    let file = upload(&browser, "notes.txt", b"one two three");
    let other = "cd /scratch/attachments && cp 1-notes.txt aside && mv aside 1-notes.txt";
    let count = |name: &str| {
        let path = format!("/scratch/attachments/{name}");
        call(TOOL, &json!({ "path": path }))
    };
    let text = [
        bash(other),
        bash("echo more > /scratch/attachments/2-more.txt"),
        count("1-notes.txt"),
        count("2-more.txt"),
        "[[mock:text done]]".to_owned(),
    ];
    let wish = json!({ "text": text.join(" "), "attachments": [file] });
    let reply = browser.turn(&thread, &wish).unwrap();
    let message = browser.finished(&thread, &reply).unwrap();
    let results: Vec<_> = steps(&message, TOOL)
        .iter()
        .map(|step| step["result"].clone())
        .collect();
    assert_eq!(
        results,
        [
            "this file is not the one that came with the request",
            "this file did not come with the request"
        ],
        "{message}"
    );
}

/// Posts with a bearer, and gives the status and the code.
fn post(url: &str, route: &str, token: &str, body: &Value) -> (u16, Value) {
    let base = url.strip_suffix("/v1/progress").unwrap();
    let body = body.to_string();
    let mut stream = http::connect(base).unwrap();
    let headers = format!("authorization: Bearer {token}\r\n");
    http::begin_post(&mut stream, route, &headers, body.len() as u64).unwrap();
    std::io::Write::write_all(&mut stream, body.as_bytes()).unwrap();
    let answer = http::answer(&mut stream).unwrap();
    let told = answer.json().unwrap();
    (answer.status, told["error"]["code"].clone())
}

#[test]
fn progress_goes_to_the_run_of_its_bearer_and_ends_with_it() {
    let model = Model::start().unwrap();
    let mut daemon = setup(&model).start().unwrap();
    let held = |name: &str| {
        let command = format!("touch {name}; until [ -e go-{name} ]; do sleep 0.02; done");
        format!("{} [[mock:text done]]", bash(&command))
    };
    let mut runs = vec![];
    for name in ["one", "two"] {
        let sending = daemon.start_send(name, &held(name)).unwrap();
        let started = daemon.workspace().join(name);
        wait_for("the turn goes on", || started.exists()).unwrap();
        runs.push((sending, variables(&daemon)));
    }
    let of = |n: usize| {
        let own: &BTreeMap<_, _> = &runs[n].1;
        let token = own["INTERACTION_PROGRESS_TOKEN"].clone();
        (own["INTERACTION_PROGRESS_URL"].clone(), token)
    };
    let ((url, one), (same, two)) = (of(0), of(1));
    assert_eq!(url, same);
    assert_ne!(one, two);
    let body = |message: &str| json!({ "key": "k", "message": message, "state": "running", "conversationId": "two" });
    // What it names is not where it goes.
    let taken = (202, Value::Null);
    assert_eq!(post(&url, "/v1/progress", &one, &body("of one")), taken);
    assert_eq!(post(&url, "/v1/progress", &two, &body("of two")), taken);
    for (route, token, expected) in [
        ("/v1/ask", one.as_str(), (404, json!("not_found"))),
        ("/v1/progress", "", (401, json!("invalid_capability"))),
        ("/v1/progress", "0123", (401, json!("invalid_capability"))),
    ] {
        assert_eq!(post(&url, route, token, &body("no")), expected, "{route}");
    }
    // A post whose body stands still while its run ends comes too late.
    let base = url.strip_suffix("/v1/progress").unwrap();
    let late = body("late").to_string();
    let mut stalled = http::connect(base).unwrap();
    let headers = format!("authorization: Bearer {one}\r\n");
    http::begin_post(&mut stalled, "/v1/progress", &headers, late.len() as u64).unwrap();
    let kept: Vec<_> = runs
        .iter()
        .map(|(_, own)| own["MCP_PRODUCING_RUN_ID"].clone())
        .collect();
    for run in &kept {
        assert!(outbound(&daemon, run).is_dir());
    }
    let mut ended = vec![];
    for (name, (sending, _)) in ["one", "two"].into_iter().zip(runs) {
        std::fs::write(daemon.workspace().join(format!("go-{name}")), "").unwrap();
        let sent = sending.finish().unwrap();
        assert_eq!(sent.text(), "done", "{sent:?}");
        let told: Vec<_> = sent
            .of("runtime_telemetry")
            .filter(|event| event["kind"] == "server_progress")
            .map(|event| event["message"].as_str().unwrap().to_owned())
            .collect();
        ended.push(told);
    }
    assert_eq!(ended, [["of one"], ["of two"]]);
    std::io::Write::write_all(&mut stalled, late.as_bytes()).unwrap();
    let answer = http::answer(&mut stalled).unwrap();
    assert_eq!(answer.status, 401, "{answer:?}");
    let over = (401, json!("invalid_capability"));
    assert_eq!(post(&url, "/v1/progress", &one, &body("no")), over);
    for run in &kept {
        let scratch = outbound(&daemon, run).parent().unwrap().to_owned();
        wait_for("what the run had is gone", || !scratch.exists()).unwrap();
    }
    daemon.stop().unwrap();
    let log = daemon.log();
    assert!(!log.contains(&one) && !log.contains(&two), "{log}");
}

#[test]
fn a_server_that_reaches_nobody_or_with_progress_off_gets_no_bearer() {
    for (network, enabled) in [("none", true), ("all", false)] {
        let model = Model::start().unwrap();
        let mut setup = setup(&model);
        setup.config["tools"]["mcpServers"]["words"]["sandbox"]["network"] = json!(network);
        setup.config["interaction"] = json!({ "progress": { "enabled": enabled } });
        let daemon = setup.start().unwrap();
        let sent = daemon.send("c", "[[mock:text done]]").unwrap();
        assert_eq!(sent.text(), "done", "{sent:?}");
        let own = variables(&daemon);
        assert_eq!(own["MCP_PRODUCING_RUN_ID"], sent.run());
        for name in [
            "PROGRESS_URL",
            "PROGRESS_TOKEN",
            "BRIDGE_URL",
            "BRIDGE_TOKEN",
        ] {
            assert_eq!(
                own[&format!("INTERACTION_{name}")],
                "",
                "{network} {enabled}"
            );
        }
    }
}
