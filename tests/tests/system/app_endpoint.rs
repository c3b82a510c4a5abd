//! Programs that a run's commands start publish over MCP, where the configuration lets them.

use mono_tests::daemon::{Daemon, Setup};
use mono_tests::model::{Model, bash, call};
use mono_tests::node;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::path::Path;

/// Packages that the official client loads.
const CLIENT: [&str; 11] = [
    "@modelcontextprotocol/sdk",
    "ajv",
    "ajv-formats",
    "content-type",
    "eventsource-parser",
    "fast-deep-equal",
    "fast-uri",
    "json-schema-traverse",
    "pkce-challenge",
    "zod",
    "zod-to-json-schema",
];
const VARIABLE: &str = "MONO_AGENT_ADAPTER_TOOLS_URL";

fn hash(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().fold("sha256:".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn read(daemon: &Daemon, name: &str) -> String {
    std::fs::read_to_string(daemon.workspace().join(name)).unwrap()
}

/// What was read; none of what is gone meanwhile, as the folder of a run that has ended.
fn still<T>(read: std::io::Result<T>) -> Option<T> {
    match read {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        other => Some(other.unwrap()),
    }
}

/// Files below `folder` that hold `text`.
fn holding(folder: &Path, text: &str, found: &mut Vec<String>) {
    for entry in still(std::fs::read_dir(folder)).into_iter().flatten() {
        let path = entry.unwrap().path();
        let Some(metadata) = still(path.symlink_metadata()) else {
            continue;
        };
        if metadata.is_dir() {
            holding(&path, text, found);
        } else if metadata.is_file() {
            let bytes = still(std::fs::read(&path)).unwrap_or_default();
            if memchr::memmem::find(&bytes, text.as_bytes()).is_some() {
                found.push(path.display().to_string());
            }
        }
    }
}

#[test]
fn a_program_of_another_make_publishes_over_mcp_and_leaves_no_trace_of_the_way() {
    let model = Model::start().unwrap();
    let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    setup.config["tools"]["appEndpoint"] = json!(true);
    let daemon = setup.environment("MONO_LOG", "trace").start().unwrap();
    let workspace = daemon.workspace();
    node::lay_out(&workspace, &CLIENT).unwrap();
    std::fs::write(workspace.join("report.csv"), "a,b\n1,2\n").unwrap();
    std::fs::write(workspace.join("second.txt"), "second").unwrap();

    // The model publishes one file by itself, the program the same one and two others.
    let program = "./node publish-client.mjs report.csv second.txt missing.txt > got.json 2> words.txt; \
                   echo $MONO_AGENT_ADAPTER_TOOLS_URL > url.txt; env";
    let directives = format!(
        "{} {}",
        call("PublishReplyFile", &json!({ "path": "report.csv" })),
        bash(program)
    );
    let sent = daemon.send("a", &directives).unwrap();
    assert_eq!(sent.code, 0, "{sent:?}");
    let got: Value = serde_json::from_str(&read(&daemon, "got.json"))
        .unwrap_or_else(|e| panic!("{e}: {} {sent:?}", read(&daemon, "words.txt")));
    assert_eq!(got["server"], "mono-agent-reply-artifacts", "{got}");
    assert_eq!(got["tools"], json!(["PublishReplyFile"]), "{got}");
    assert_eq!(got["second"], 1, "{got}");
    let said = |n: usize| &got["calls"][n]["said"];
    assert_eq!(said(0)["integrityId"], hash(b"a,b\n1,2\n"), "{got}");
    assert_eq!(said(1)["integrityId"], hash(b"second"), "{got}");
    let missing = json!({ "published": false, "code": "artifact_missing" });
    assert_eq!(
        (&got["calls"][2]["isError"], said(2)),
        (&json!(true), &missing)
    );

    // One reply with one budget: the file that both published is one part.
    let parts = sent.finish["parts"].as_array().unwrap();
    let kinds: Vec<&Value> = parts.iter().map(|part| &part["type"]).collect();
    assert_eq!(kinds, ["attachment", "attachment", "failure"], "{parts:?}");
    let own: Value = serde_json::from_str(
        sent.completed("PublishReplyFile")[0]["preview"]
            .as_str()
            .unwrap(),
    )
    .unwrap();
    assert_eq!(own["attachmentId"], said(0)["attachmentId"]);
    for (part, content) in parts.iter().zip(["a,b\n1,2\n", "second"]) {
        assert_eq!(part["integrityId"], hash(content.as_bytes()));
        let id = part["reference"]["id"].as_str().unwrap();
        assert_eq!(daemon.fetch(id).unwrap(), content.as_bytes());
    }
    // The program's calls are on record as the model's are.
    assert_eq!(sent.completed("PublishReplyFile").len(), 4, "{sent:?}");

    let url = read(&daemon, "url.txt");
    let secret = url.trim().rsplit('/').next().unwrap().to_owned();
    assert_eq!(secret.len(), 36, "{url}");
    let shown = sent.preview("Bash").unwrap();
    assert!(shown.contains("/mcp/[withheld]"), "{shown}");
    let settled = daemon.settled(sent.run()).unwrap();
    assert!(!settled.to_string().contains(&secret), "{settled}");
    assert!(!format!("{sent:?}").contains(&secret));
    let mut found = Vec::new();
    holding(daemon.folder(), &secret, &mut found);
    let only = workspace.join("url.txt").display().to_string();
    assert_eq!(found, [only], "what holds the address");

    // The next turn has an address of its own; the old one is nobody's.
    let address = url.trim().strip_prefix("http://").unwrap();
    let port = address.split(['/', ':']).nth(1).unwrap();
    let old = format!(
        "(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo open || echo closed; \
         echo ${VARIABLE} > url.txt"
    );
    let sent = daemon.send("a", &bash(&old)).unwrap();
    assert_eq!(sent.preview("Bash").unwrap().trim(), "closed");
    assert_ne!(read(&daemon, "url.txt"), url);
}

#[test]
fn without_the_key_or_against_the_policy_there_is_no_endpoint() {
    let look = format!("echo ${{{VARIABLE}-none}}; grep -c ' 0A ' /proc/net/tcp");
    for (key, denied) in [(false, false), (true, true)] {
        let model = Model::start().unwrap();
        let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
        if key {
            setup.config["tools"]["appEndpoint"] = json!(true);
        }
        if denied {
            setup.config["tools"]["disallowedTools"] = json!(["PublishReplyFile"]);
        }
        // What the daemon's own environment says is nobody's word for a command.
        let daemon = setup
            .environment(VARIABLE, "http://spoofed")
            .start()
            .unwrap();
        let sent = daemon.send("a", &bash(&look)).unwrap();
        let shown = sent.preview("Bash").unwrap();
        assert!(shown.starts_with("none\n0\n"), "{key} {denied}: {shown}");
    }
}

#[test]
fn where_a_run_has_no_loopback_of_its_own_the_tool_is_absent_with_a_warning() {
    let model = Model::start().unwrap();
    let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    setup.config["tools"]["appEndpoint"] = json!(true);
    let setup = setup.argument("--allow-degraded");
    let mut daemon = setup.lacking(&["user-namespaces"]).launch().unwrap();
    daemon
        .wait_until("every worker serves", |status| {
            let workers = status["workers"].as_array().unwrap();
            let always = workers.iter().filter(|w| w["role"] != "run");
            let mut serving = always.map(|w| w["state"] == "serving");
            status["degraded"] != json!([]) && serving.all(|serves| serves)
        })
        .unwrap();
    let look = format!(
        "{} [[mock:echo]]",
        bash(&format!("echo ${{{VARIABLE}-none}}"))
    );
    let sent = daemon.send("a", &look).unwrap();
    assert_eq!(sent.code, 0, "{sent:?}");
    assert!(
        sent.preview("Bash").unwrap().starts_with("none"),
        "{sent:?}"
    );
    let codes: Vec<&Value> = sent
        .of("runtime_warning")
        .map(|event| &event["code"])
        .collect();
    assert_eq!(codes, ["app_endpoint_failed"], "{sent:?}");
}
