//! Runs and servers that take memory without end, and what the others notice of it.

use mono_tests::daemon::{Daemon, Setup, wait_for};
use mono_tests::http;
use mono_tests::model::{Model, bash, call};
use mono_tests::processes::{Process, below, outliving};
use mono_tests::program;
use serde_json::{Value, json};
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// Of a run; an idle one uses about a twentieth of it.
const LIMIT: u64 = 256 * MIB;
/// Keeps what it reads, for ever.
const ENDLESS: &str = "tail /dev/zero";
/// What the person is told.
const REASON: &str = "The run used more memory than its limit of 256 MiB (sandbox.memoryMaxBytes)";

fn setup(model: &Model) -> Setup {
    let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    setup.config["sandbox"] = json!({ "memoryMaxBytes": LIMIT });
    setup
}

/// Roles that always have a worker, and their processes.
fn owners(daemon: &Daemon) -> Vec<i32> {
    [
        "store",
        "artifact",
        "egress",
        "app-bridge",
        "channel-openai",
    ]
    .map(|role| daemon.worker(role).unwrap())
    .to_vec()
}

fn check_record(daemon: &Daemon, run: &str) {
    let run = daemon.settled(run).unwrap();
    assert_eq!(run["status"], "failed", "{run}");
    assert_eq!(run["failureKind"], "memory_limit", "{run}");
}

#[test]
fn a_run_that_takes_memory_without_end_fails_with_the_reason_and_no_other_does() {
    let model = Model::start().unwrap();
    let daemon = setup(&model).start().unwrap();
    let api = daemon.api().unwrap();
    let before = owners(&daemon);
    let mut other = daemon
        .start_send(
            "other",
            &bash("until [ -e go ]; do sleep 0.05; done; echo went"),
        )
        .unwrap();
    other.until("tool_call_started").unwrap();

    let answer = http::complete(&api, "api", &bash(ENDLESS)).unwrap();
    let body = answer.json().unwrap();
    assert_eq!(answer.status, 500, "{body}");
    assert_eq!(body["error"]["code"], "memory_limit", "{body}");
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.starts_with(REASON), "{message}");

    let sent = daemon.send("terminal", &bash(ENDLESS)).unwrap();
    assert_eq!(sent.code, 1, "{sent:?}");
    assert_eq!(sent.finish["error"]["kind"], "memory_limit", "{sent:?}");
    check_record(&daemon, sent.run());
    // As a person reads it.
    let out = daemon
        .run(&["send", "--conversation", "person", "--", &bash(ENDLESS)])
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && said.contains(REASON), "{said}");

    std::fs::write(daemon.workspace().join("go"), "").unwrap();
    let sent = other.finish().unwrap();
    assert_eq!(sent.code, 0, "{sent:?}");
    assert_eq!(owners(&daemon), before);
    // The next turn of the conversation goes on, and is told.
    let sent = daemon.send("terminal", "And? [[mock:text All is well.]]");
    let sent = sent.unwrap();
    assert_eq!((sent.code, sent.text()), (0, "All is well."), "{sent:?}");
    let asked = model.last().unwrap().body.to_string();
    assert!(asked.contains("memory_limit"), "{asked}");
}

#[test]
fn what_the_processes_of_a_run_use_counts_together() {
    let model = Model::start().unwrap();
    let daemon = setup(&model).start().unwrap();
    // Each keeps a hundred MiB, is content with that, and rests: nobody takes what it would print.
    let keep = "head -c 100M /dev/zero | tail -c 100M | sleep 600 & ";
    let sending = daemon.start_send("one", &bash(&format!("{keep} wait")));
    let mut sending = sending.unwrap();
    sending.until("tool_call_started").unwrap();
    let uses = |worker: &Value| worker["memory"]["bytes"].as_u64().unwrap_or(0);
    let working = || daemon.workers("run", "serving").unwrap();
    wait_for("a hundred MiB in use", || {
        working().iter().any(|worker| uses(worker) > 100 * MIB)
    })
    .unwrap();
    let worker = working().remove(0);
    assert_eq!(worker["memory"]["limit_bytes"], LIMIT, "{worker}");
    let pid = i32::try_from(worker["pid"].as_i64().unwrap()).unwrap();
    let mut tree: Vec<Process> = below(pid);
    // It has given all that it has to `tail`, and ends.
    tree.retain(|process| process.name != "head");
    assert!(tree.iter().any(|p| p.name == "tail"), "{tree:?}");

    let sent = daemon
        .send("three", &bash(&format!("{keep}{keep}{keep} wait")))
        .unwrap();
    assert_eq!(sent.finish["error"]["kind"], "memory_limit", "{sent:?}");
    check_record(&daemon, sent.run());
    // The one that stayed below its limit is as it was.
    assert!(tree.iter().all(Process::is_alive), "{tree:?}");
    sending.interrupt().unwrap();
    assert_eq!(outliving(&tree, Duration::from_secs(20)), []);
}

#[test]
fn a_process_of_a_watched_run_cannot_ask_for_everything_at_once() {
    let model = Model::start().unwrap();
    let daemon = setup(&model).start().unwrap();
    let sent = daemon.send("a", &bash("ulimit -d")).unwrap();
    let said = sent.preview("Bash").unwrap();
    let enforcement = &daemon.status().unwrap()["memory"]["enforcement"];
    match enforcement.as_str().unwrap() {
        "watched" => {
            let kib = (LIMIT + (2 << 30)) / 1024;
            assert!(said.contains(&kib.to_string()), "{said}");
            // Said where an operator looks first.
            assert!(daemon.log().contains("memory limits are watched"));
        }
        "cgroup" => assert!(said.contains("unlimited"), "{said}"),
        other => panic!("{other}"),
    }
}

#[test]
fn a_server_that_takes_memory_without_end_fails_its_call_with_the_reason_and_starts_again() {
    let model = Model::start().unwrap();
    let program = program::binary("mono-mcp-fixture", "mcp-fixture");
    let folder = program.parent().unwrap().to_owned();
    let mut setup = setup(&model).server("hog", &program, &[], &[&folder]);
    setup.config["tools"]["mcpServers"]["hog"]["sandbox"]["memoryMaxBytes"] = json!(96 * MIB);
    let daemon = setup.start().unwrap();
    let before = owners(&daemon);
    let sent = daemon
        .send(
            "a",
            &format!(
                "{} {} [[mock:text Done.]]",
                call("allocate", &json!({ "bytes": 1_u64 << 40 })),
                call("echo", &json!({ "message": "still here" })),
            ),
        )
        .unwrap();
    assert_eq!((sent.code, sent.text()), (0, "Done."), "{sent:?}");
    let said = sent.preview("allocate").unwrap();
    let reason = "server hog ended during the call: it used more memory than its limit of 96 MiB \
                  (tools.mcpServers.hog.sandbox.memoryMaxBytes)";
    assert!(said.contains(reason), "{said}");
    assert_eq!(owners(&daemon), before);

    let sent = daemon
        .send("a", &call("echo", &json!({ "message": "back" })))
        .unwrap();
    assert_eq!(sent.preview("echo").unwrap(), "back", "{sent:?}");
}
