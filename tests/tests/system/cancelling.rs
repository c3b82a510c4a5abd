//! A cancellation ends the run and everything that it started.

use mono_tests::daemon::{Daemon, Setup, wait_for};
use mono_tests::http;
use mono_tests::model::{Model, bash};
use mono_tests::processes::{Process, below, outliving};
use serde_json::json;
use std::io::Write as _;
use std::time::Duration;

/// What was started would go on for ten minutes.
const WITHIN: Duration = Duration::from_secs(30);
/// Leaves its session and its parent twice, ignores what it is asked, and has children.
const ESCAPING: &str = "(setsid sh -c '(trap \"\" TERM HUP INT; setsid sh -c \"trap \\\"\\\" TERM HUP INT; sleep 601 & sleep 602\" &) ; sleep 603' >/dev/null 2>&1 &); until [ $(cat /proc/[0-9]*/comm 2>/dev/null | grep -cx sleep) -ge 3 ]; do :; done; touch working; while :; do sleep 0.1; done";

/// Waits until the command is where it wants to be, and takes the run's whole tree.
fn tree(daemon: &Daemon) -> Vec<Process> {
    let working = daemon.workspace().join("working");
    wait_for("the command runs", || working.exists()).unwrap();
    std::fs::remove_file(working).unwrap();
    let workers = daemon.workers("run", "serving").unwrap();
    assert_eq!(workers.len(), 1, "{workers:?}");
    let worker = i32::try_from(workers[0]["pid"].as_i64().unwrap()).unwrap();
    let mut all = below(worker);
    let sleeping = all.iter().filter(|p| p.name == "sleep").count();
    assert!(sleeping >= 3, "{all:?}");
    all.extend(Process::of(worker));
    all
}

#[test]
fn ctrl_c_runs_cancel_and_a_client_that_leaves_end_the_whole_tree() {
    let model = Model::start().unwrap();
    let mut daemon = Setup::new()
        .unwrap()
        .model(model.address(), "openai-chat")
        .start()
        .unwrap();
    let check = |daemon: &mut Daemon, tree: &[Process], how: &str| {
        assert_eq!(outliving(tree, WITHIN), [], "{how}");
        daemon
            .wait_until("idle", |s| s["runs"]["working"] == 0)
            .unwrap();
        let listed = daemon.json(&["runs", "list", "--limit", "1"]).unwrap();
        let run = daemon.settled(listed["runs"][0]["runId"].as_str().unwrap());
        let run = run.unwrap();
        assert_eq!(
            (&run["status"], &run["failureKind"]),
            (&json!("cancelled"), &json!("cancelled")),
            "{how}"
        );
    };

    // Ctrl-C.
    let mut sending = daemon.start_send("a", &bash(ESCAPING)).unwrap();
    sending.until("tool_call_started").unwrap();
    let processes = tree(&daemon);
    sending.interrupt().unwrap();
    let sent = sending.finish().unwrap();
    assert_eq!(
        (sent.code, &sent.finish["error"]["cancelled"]),
        (130, &json!(true)),
        "{sent:?}"
    );
    check(&mut daemon, &processes, "Ctrl-C");

    // An operator.
    let mut sending = daemon.start_send("a", &bash(ESCAPING)).unwrap();
    let run = sending.until("started").unwrap()["run"]
        .as_str()
        .unwrap()
        .to_owned();
    sending.until("tool_call_started").unwrap();
    let processes = tree(&daemon);
    assert!(
        daemon
            .run(&["runs", "cancel", &run])
            .unwrap()
            .status
            .success()
    );
    let sent = sending.finish().unwrap();
    assert_eq!(
        (sent.code, &sent.finish["error"]["kind"]),
        (1, &json!("cancelled")),
        "{sent:?}"
    );
    check(&mut daemon, &processes, "runs cancel");
    // What has ended can't be cancelled, and neither can what never was.
    assert!(
        !daemon
            .run(&["runs", "cancel", &run])
            .unwrap()
            .status
            .success()
    );

    // A terminal that is killed.
    let mut sending = daemon.start_send("a", &bash(ESCAPING)).unwrap();
    sending.until("tool_call_started").unwrap();
    let processes = tree(&daemon);
    sending.kill().unwrap();
    check(&mut daemon, &processes, "a killed terminal");

    // Clients of the API that leave, streaming and not.
    for stream in [true, false] {
        let body = json!({
            "model": "agent", "stream": stream,
            "messages": [{ "role": "user", "content": bash(ESCAPING) }],
        })
        .to_string();
        let mut connection = http::connect(&daemon.api().unwrap()).unwrap();
        http::begin_post(
            &mut connection,
            "/v1/chat/completions",
            "",
            body.len() as u64,
        )
        .unwrap();
        connection.write_all(body.as_bytes()).unwrap();
        let processes = tree(&daemon);
        drop(connection);
        check(
            &mut daemon,
            &processes,
            &format!("a client that leaves, stream {stream}"),
        );
    }

    // The model's answer is not waited for either.
    let mut sending = daemon.start_send("a", "[[mock:hang]]").unwrap();
    sending.until("provider_status").unwrap();
    sending.interrupt().unwrap();
    assert_eq!(sending.finish().unwrap().code, 130);
    daemon
        .wait_until("idle", |s| s["runs"]["working"] == 0)
        .unwrap();

    // The conversation goes on.
    let sent = daemon.send("a", "still there? [[mock:text yes]]").unwrap();
    assert_eq!((sent.code, sent.text()), (0, "yes"), "{sent:?}");
}
