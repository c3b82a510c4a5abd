//! An orderly stop is bounded and leaves nothing behind.

use mono_tests::daemon::{Setup, wait_for};
use mono_tests::model::{Model, bash, call};
use mono_tests::processes::{below, outliving};
use serde_json::json;
use std::time::{Duration, Instant};

/// What the daemon's own deadlines add up to, with room for a slow machine.
const BOUND: Duration = Duration::from_secs(40);

#[test]
fn sigterm_lets_a_turn_finish_that_can() {
    let model = Model::start().unwrap();
    let mut daemon = Setup::new()
        .unwrap()
        .model(model.address(), "openai-chat")
        .everything("everything")
        .start()
        .unwrap();
    let mut sending = daemon
        .start_send(
            "a",
            &format!(
                "{} {} [[mock:text done]]",
                call("echo", &json!({ "message": "x" })),
                bash("touch working; until [ -e go ]; do sleep 0.02; done")
            ),
        )
        .unwrap();
    sending.until("tool_call_completed").unwrap();
    wait_for("the command runs", || {
        daemon.workspace().join("working").exists()
    })
    .unwrap();
    let tree = below(daemon.pid());
    daemon.terminate().unwrap();
    // Nothing new is taken meanwhile.
    wait_for("the stop begins", || daemon.log().contains("stopping")).unwrap();
    let refused = daemon.send("b", "hello").unwrap();
    assert_ne!(refused.code, 0, "{refused:?}");
    assert_eq!(daemon.status().unwrap()["stopping"], true);
    std::fs::write(daemon.workspace().join("go"), "").unwrap();
    let sent = sending.finish().unwrap();
    assert_eq!((sent.code, sent.text()), (0, "done"), "{sent:?}");
    assert_eq!(daemon.wait_end().unwrap(), 0);
    assert_eq!(outliving(&tree, Duration::ZERO), []);
    assert!(!daemon.folder().join("monod.sock").exists());
    daemon.restart().unwrap();
    assert_eq!(daemon.show(sent.run()).unwrap()["status"], "succeeded");
    // The conversation goes on where it was.
    daemon.answered("a", "and now? [[mock:text more]]").unwrap();
    let body = model.last().unwrap().body.to_string();
    assert!(
        body.contains("[[mock:text done]]") && body.contains("and now?"),
        "{body}"
    );
}

#[test]
fn sigterm_ends_a_turn_that_does_not_finish_within_a_bound() {
    let model = Model::start().unwrap();
    let mut daemon = Setup::new()
        .unwrap()
        .model(model.address(), "openai-chat")
        .everything("everything")
        .start()
        .unwrap();
    let slow = call(
        "trigger-long-running-operation",
        &json!({ "duration": 600, "steps": 6000 }),
    );
    let mut calling = daemon.start_send("a", &slow).unwrap();
    calling.until("tool_call_progress").unwrap();
    // A command that ignores what it is asked.
    let stubborn = "trap '' TERM INT HUP; setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & touch working; while :; do sleep 1; done";
    let mut running = daemon.start_send("b", &bash(stubborn)).unwrap();
    let run = running.until("started").unwrap()["run"]
        .as_str()
        .unwrap()
        .to_owned();
    wait_for("the command runs", || {
        daemon.workspace().join("working").exists()
    })
    .unwrap();
    let tree = below(daemon.pid());
    let begun = Instant::now();
    assert_eq!(daemon.stop().unwrap(), 0);
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    assert_eq!(outliving(&tree, Duration::ZERO), []);
    // Both were cancelled, with time to say so.
    for sending in [calling, running] {
        let sent = sending.finish().unwrap();
        assert_eq!(sent.code, 1, "{sent:?}");
        assert_eq!(sent.finish["error"]["kind"], "cancelled", "{sent:?}");
    }
    daemon.restart().unwrap();
    assert_eq!(daemon.show(&run).unwrap()["status"], "cancelled");
}

#[test]
fn a_daemon_that_was_started_with_signals_held_back_stops_on_sigterm() {
    let model = Model::start().unwrap();
    let setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    let mut daemon = setup.lacking(&["signals"]).start().unwrap();
    // What a run starts has them, too.
    let held = bash("grep SigBlk /proc/self/status | grep -c 0000000000000000");
    let sent = daemon.send("a", &format!("{held} [[mock:echo]]")).unwrap();
    assert_eq!(sent.text().trim(), "tool said: 1", "{sent:?}");
    daemon.terminate().unwrap();
    assert_eq!(daemon.wait_end().unwrap(), 0);
}

#[test]
fn monoctl_stop_waits_for_the_end_and_an_idle_daemon_ends_at_once() {
    let model = Model::start().unwrap();
    let mut daemon = Setup::new()
        .unwrap()
        .model(model.address(), "openai-chat")
        .everything("everything")
        .start()
        .unwrap();
    // Idle, but with a server and connections that were used.
    let sent = daemon
        .send("a", &call("echo", &json!({ "message": "x" })))
        .unwrap();
    assert_eq!(sent.code, 0, "{sent:?}");
    let tree = below(daemon.pid());
    let begun = Instant::now();
    let stopped = daemon.run(&["stop"]).unwrap();
    assert!(stopped.status.success(), "{stopped:?}");
    assert_eq!(daemon.wait_end().unwrap(), 0);
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    // Nobody had to be waited for until he was ended.
    let log = daemon.log();
    assert!(!log.contains("did not end in time"), "{log}");
    assert_eq!(outliving(&tree, Duration::ZERO), []);
    // Without a daemon monoctl says so.
    assert_eq!(daemon.run(&["status"]).unwrap().status.code(), Some(3));
}
