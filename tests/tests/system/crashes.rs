//! `kill -9` of each process in the middle of a turn.

use mono_tests::daemon::{Daemon, Sent, Setup, wait_for};
use mono_tests::http;
use mono_tests::model::{Model, bash, call};
use mono_tests::processes::{Process, below, outliving};
use serde_json::{Value, json};
use std::time::Duration;

/// What is not ended goes on for ten minutes at least.
const WITHIN: Duration = Duration::from_secs(30);
/// A command that shows that it runs and then doesn't end by itself.
const WAITING: &str = "touch working; while :; do sleep 0.1; done";

fn with_everything(model: &Model) -> Daemon {
    Setup::new()
        .unwrap()
        .model(model.address(), "openai-chat")
        .everything("everything")
        .start()
        .unwrap()
}

/// A first turn that is committed.
fn begin(daemon: &Daemon, conversation: &str) {
    let sent = daemon
        .send(
            conversation,
            "The password is swordfish. [[mock:text I keep it.]]",
        )
        .unwrap();
    assert_eq!(sent.code, 0, "{sent:?}");
}

/// A turn that was hit must say so, on every path.
fn check_failure(daemon: &Daemon, sent: &Sent, worker: &str, statuses: &[&str]) {
    assert_eq!(sent.code, 1, "{worker}: {sent:?}");
    let error = &sent.finish["error"];
    assert_eq!(error["kind"], "worker_lost", "{worker}: {sent:?}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("again"), "{worker}: {message}");
    let run = daemon.settled(sent.run()).unwrap();
    let status = run["status"].as_str().unwrap();
    assert!(statuses.contains(&status), "{worker}: {run}");
    assert!(
        run["text"].is_null() && run["parts"] == json!([]),
        "{worker}: {run}"
    );
}

/// The next turn of the conversation works, with what was committed and the tools.
fn check_next_turn(daemon: &Daemon, model: &Model, conversation: &str) {
    let sent = daemon
        .send(
            conversation,
            &format!(
                "And? {} [[mock:text All is well.]]",
                call("echo", &json!({ "message": "hi" }))
            ),
        )
        .unwrap();
    assert_eq!(
        (sent.code, sent.text()),
        (0, "All is well."),
        "{conversation}: {sent:?}"
    );
    assert_eq!(sent.preview("echo").unwrap(), "Echo: hi", "{conversation}");
    let body = model.last().unwrap().body.to_string();
    assert!(
        body.contains("swordfish") && body.contains("I keep it."),
        "{conversation}: {body}"
    );
    assert!(
        body.contains("previous-turn-not-finished"),
        "{conversation}: {body}"
    );
}

fn killed(daemon: &mut Daemon, role: &str) {
    let pid = daemon.worker(role).unwrap();
    daemon.kill(pid).unwrap();
    daemon.wait_replaced(role, pid).unwrap();
    daemon.wait_healthy().unwrap();
}

#[test]
fn a_killed_store_fails_the_turn_and_keeps_what_was_committed() {
    let model = Model::start().unwrap();
    let mut daemon = with_everything(&model);
    begin(&daemon, "a");
    let mut sending = daemon
        .start_send(
            "a",
            "[[mock:text One piece of text and another piece of text.]] [[mock:stall 2]]",
        )
        .unwrap();
    sending.until("append").unwrap();
    killed(&mut daemon, "store");
    // The store marks what it finds running when it starts; the run may report before that.
    check_failure(
        &daemon,
        &sending.finish().unwrap(),
        "store",
        &["failed", "interrupted"],
    );
    check_next_turn(&daemon, &model, "a");
}

#[test]
fn a_killed_artifact_worker_fails_the_turn_and_publishes_nothing_of_it() {
    let model = Model::start().unwrap();
    let mut daemon = with_everything(&model);
    std::fs::write(daemon.workspace().join("kept.txt"), "kept").unwrap();
    std::fs::write(daemon.workspace().join("lost.txt"), "lost").unwrap();
    let publish = |file: &str| call("PublishReplyFile", &json!({ "path": file }));
    let sent = daemon
        .send(
            "a",
            &format!(
                "The password is swordfish. {} [[mock:text I keep it.]]",
                publish("kept.txt")
            ),
        )
        .unwrap();
    let kept = sent.finish["parts"][0]["reference"]["id"]
        .as_str()
        .unwrap()
        .to_owned();

    let mut sending = daemon
        .start_send("a", &format!("{} {}", publish("lost.txt"), bash(WAITING)))
        .unwrap();
    let lost = sending.until("part").unwrap()["part"]["reference"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    wait_for("the command runs", || {
        daemon.workspace().join("working").exists()
    })
    .unwrap();
    killed(&mut daemon, "artifact");
    check_failure(&daemon, &sending.finish().unwrap(), "artifact", &["failed"]);
    check_next_turn(&daemon, &model, "a");
    assert_eq!(daemon.fetch(&kept).unwrap(), b"kept");
    assert!(daemon.fetch(&lost).is_err());
    let listed = daemon.json(&["artifacts", "list"]).unwrap().to_string();
    assert!(
        listed.contains(&kept) && !listed.contains(&lost),
        "{listed}"
    );
}

#[test]
fn a_killed_egress_fails_the_turn_in_the_middle_of_its_answer() {
    let model = Model::start().unwrap();
    let mut daemon = with_everything(&model);
    begin(&daemon, "a");
    let mut sending = daemon
        .start_send(
            "a",
            "[[mock:text One piece of text and another piece of text.]] [[mock:stall 2]]",
        )
        .unwrap();
    sending.until("append").unwrap();
    killed(&mut daemon, "egress");
    check_failure(&daemon, &sending.finish().unwrap(), "egress", &["failed"]);
    check_next_turn(&daemon, &model, "a");
}

#[test]
fn a_killed_app_bridge_fails_the_turn_and_takes_its_servers_along() {
    let model = Model::start().unwrap();
    let mut daemon = with_everything(&model);
    begin(&daemon, "a");
    let slow = call(
        "trigger-long-running-operation",
        &json!({ "duration": 600, "steps": 6000 }),
    );
    let mut sending = daemon.start_send("a", &slow).unwrap();
    sending.until("tool_call_progress").unwrap();
    let servers: Vec<Process> = daemon
        .workers("mcp-server", "serving")
        .unwrap()
        .iter()
        .filter_map(|w| Process::of(i32::try_from(w["pid"].as_i64()?).ok()?))
        .collect();
    assert_eq!(servers.len(), 1);
    killed(&mut daemon, "app-bridge");
    check_failure(
        &daemon,
        &sending.finish().unwrap(),
        "app-bridge",
        &["failed"],
    );
    assert_eq!(outliving(&servers, WITHIN), []);
    check_next_turn(&daemon, &model, "a");
}

#[test]
fn a_killed_channel_drops_its_client_cancels_the_turn_and_listens_again() {
    let model = Model::start().unwrap();
    let mut daemon = with_everything(&model);
    let api = daemon.api().unwrap();
    let answer = http::complete(
        &api,
        "a",
        "The password is swordfish. [[mock:text I keep it.]]",
    )
    .unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    let client = std::thread::spawn({
        let (api, message) = (api.clone(), bash(WAITING));
        move || http::complete(&api, "a", &message)
    });
    wait_for("the command runs", || {
        daemon.workspace().join("working").exists()
    })
    .unwrap();
    let run = daemon.json(&["runs", "list"]).unwrap()["runs"][0]["runId"]
        .as_str()
        .unwrap()
        .to_owned();
    killed(&mut daemon, "channel-openai");
    // No half answer: the connection ends without one.
    assert!(client.join().unwrap().is_err());
    daemon
        .wait_until("cancelled", |status| status["runs"]["working"] == 0)
        .unwrap();
    assert_eq!(daemon.settled(&run).unwrap()["status"], "cancelled");
    // On the same port, as soon as it is there.
    assert_eq!(daemon.api().unwrap(), api);
    check_next_turn(&daemon, &model, "a");
    assert_eq!(http::complete(&api, "b", "hello").unwrap().status, 200);
}

#[test]
fn a_killed_run_worker_fails_its_turn_only_and_takes_its_commands_along() {
    let model = Model::start().unwrap();
    let daemon = with_everything(&model);
    begin(&daemon, "a");
    let mut other = daemon
        .start_send(
            "b",
            &bash("until [ -e go ]; do sleep 0.05; done; echo went"),
        )
        .unwrap();
    other.until("tool_call_started").unwrap();
    let others: Vec<Value> = daemon.workers("run", "serving").unwrap();
    let mut sending = daemon.start_send("a", &bash(WAITING)).unwrap();
    sending.until("tool_call_started").unwrap();
    wait_for("the command runs", || {
        daemon.workspace().join("working").exists()
    })
    .unwrap();
    let worker = daemon
        .workers("run", "serving")
        .unwrap()
        .into_iter()
        .map(|w| w["pid"].as_i64().unwrap())
        .find(|pid| others.iter().all(|o| o["pid"].as_i64() != Some(*pid)))
        .unwrap();
    let worker = i32::try_from(worker).unwrap();
    let commands = below(worker);
    assert!(commands.iter().any(|p| p.name == "bash"), "{commands:?}");
    daemon.kill(worker).unwrap();
    check_failure(
        &daemon,
        &sending.finish().unwrap(),
        "run",
        &["failed", "interrupted"],
    );
    assert_eq!(outliving(&commands, WITHIN), []);
    check_next_turn(&daemon, &model, "a");
    std::fs::write(daemon.workspace().join("go"), "").unwrap();
    let sent = other.finish().unwrap();
    assert_eq!(sent.code, 0, "{sent:?}");
}

#[test]
fn a_killed_daemon_leaves_no_process_and_finds_everything_committed() {
    let model = Model::start().unwrap();
    let mut daemon = with_everything(&model);
    std::fs::write(daemon.workspace().join("kept.txt"), "kept").unwrap();
    let publish = call("PublishReplyFile", &json!({ "path": "kept.txt" }));
    let committed = daemon
        .send(
            "a",
            &format!("The password is swordfish. {publish} [[mock:text I keep it.]]"),
        )
        .unwrap();
    assert_eq!(committed.code, 0, "{committed:?}");
    let escaping = "setsid sh -c 'setsid sleep 600 & sleep 600' >/dev/null 2>&1 & \
        until [ $(cat /proc/[0-9]*/comm 2>/dev/null | grep -cx sleep) -ge 2 ]; do :; done; ";
    let mut sending = daemon
        .start_send("a", &bash(&format!("{escaping}{WAITING}")))
        .unwrap();
    let run = sending.until("started").unwrap()["run"]
        .as_str()
        .unwrap()
        .to_owned();
    wait_for("the command runs", || {
        daemon.workspace().join("working").exists()
    })
    .unwrap();
    let tree = below(daemon.pid());
    let server = &daemon.workers("mcp-server", "serving").unwrap()[0]["pid"];
    assert!(tree.iter().any(|p| *server == p.pid), "{server}: {tree:?}");
    for name in ["store", "artifact", "egress", "app-bridge", "bash", "sleep"] {
        assert!(
            tree.iter().any(|p| p.name.contains(name)),
            "no {name} in {tree:?}"
        );
    }
    daemon.kill_daemon().unwrap();
    assert_eq!(outliving(&tree, WITHIN), []);
    // The person is told, too.
    let sent = sending.finish().unwrap();
    assert_eq!(
        (sent.code, &sent.finish["ok"]),
        (1, &json!(false)),
        "{sent:?}"
    );

    daemon.restart().unwrap();
    let interrupted = daemon.show(&run).unwrap();
    assert_eq!(interrupted["status"], "interrupted", "{interrupted}");
    // Not `worker_lost`, although the store may have outlived the run's process by a moment.
    assert_eq!(interrupted["failureKind"], "process_death", "{interrupted}");
    let run = daemon.show(committed.run()).unwrap();
    assert_eq!(
        (&run["status"], &run["text"]),
        (&json!("succeeded"), &json!("I keep it."))
    );
    let part = &committed.finish["parts"][0];
    assert_eq!(
        daemon
            .fetch(part["reference"]["id"].as_str().unwrap())
            .unwrap(),
        b"kept"
    );
    check_next_turn(&daemon, &model, "a");
}
