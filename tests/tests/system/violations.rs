//! Forbidden system calls of a run's commands and of MCP servers: ended, named, counted. Those of
//! workers themselves are attacks (`tests/attack.rs`).

use mono_tests::daemon::{Daemon, Setup, wait_for};
use mono_tests::model::{Model, bash};
use serde_json::json;

/// A program of every system that wants a new namespace.
const FORBIDDEN: &str = "unshare -U true; echo \"it ended with $?\"";

/// The lines of the log that name a call.
fn named(daemon: &Daemon, call: &str) -> Vec<String> {
    let words = format!("ended by a forbidden system call: {call}");
    let log = daemon.log();
    let lines = log.lines().filter(|line| line.contains(&words));
    lines.map(str::to_owned).collect()
}

#[test]
fn a_command_s_forbidden_call_is_logged_counted_and_shown() {
    let model = Model::start().unwrap();
    let mut daemon = Setup::new()
        .unwrap()
        .model(model.address(), "openai-chat")
        .start()
        .unwrap();
    assert_eq!(daemon.status().unwrap()["violations"], json!({}));

    // The command ends, its shell and the turn go on.
    let twice = format!("{FORBIDDEN}; {FORBIDDEN}");
    let sent = daemon
        .send("a", &format!("{} [[mock:echo]]", bash(&twice)))
        .unwrap();
    assert_eq!(sent.code, 0, "{sent:?}\n{}", daemon.log());
    let text = sent.text();
    assert_eq!(text.matches("it ended with 137").count(), 2, "{text}");

    daemon
        .wait_until("counted", |status| {
            status["violations"] == json!({ "run": { "unshare": 2 } })
        })
        .unwrap();
    let lines = named(&daemon, "unshare");
    assert_eq!(lines.len(), 2, "{}", daemon.log());
    let run = sent.run().to_owned();
    for line in &lines {
        for part in ["WARN", "role=run ", " pid=", &format!(" run=\"{run}\"")] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    }

    let shown = |arguments: &[&str]| {
        let out = daemon.run(arguments).unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let status = shown(&["status"]);
    assert!(
        status.contains("run: ended by forbidden system calls: unshare 2\n"),
        "{status}"
    );
    let worker = shown(&["worker", "show", "run"]);
    assert!(
        worker.contains("since the daemon started: unshare 2"),
        "{worker}"
    );
    let worker = daemon.json(&["worker", "show", "run"]).unwrap();
    assert_eq!(worker["violations"], json!({ "unshare": 2 }));
    let top = shown(&["top", "--once"]);
    assert!(top.contains("forbidden calls: 2"), "{top}");
    let logs = shown(&["logs", "run", "--run", &run]);
    assert_eq!(
        logs.matches("ended by a forbidden system call: unshare")
            .count(),
        2,
        "{logs}"
    );
    let config = daemon.folder().join("mono-agent.config.json");
    let doctor = shown(&["doctor", "--config", &config.to_string_lossy()]);
    assert!(doctor.contains("ended each time: unshare 2"), "{doctor}");
}

#[test]
fn a_flood_of_forbidden_calls_is_counted_and_not_all_logged() {
    let model = Model::start().unwrap();
    let mut daemon = Setup::new()
        .unwrap()
        .model(model.address(), "openai-chat")
        .start()
        .unwrap();
    let flood = "for i in $(seq 50); do unshare -U true 2>/dev/null; done; echo done";
    let sent = daemon
        .send("a", &format!("{} [[mock:echo]]", bash(flood)))
        .unwrap();
    assert!(sent.text().contains("done"), "{sent:?}");
    daemon
        .wait_until("counted", |status| {
            status["violations"] == json!({ "run": { "unshare": 50 } })
        })
        .unwrap();
    assert_eq!(named(&daemon, "unshare").len(), 32);
    assert_eq!(daemon.log().matches("are only counted").count(), 1);
}

#[test]
fn a_server_that_makes_a_forbidden_call_is_named() {
    let model = Model::start().unwrap();
    let daemon = Setup::new()
        .unwrap()
        .model(model.address(), "openai-chat")
        .server("odd", "unshare".as_ref(), &["-U", "true"], &[])
        .start()
        .unwrap();
    daemon.send("a", "hello [[mock:echo]]").unwrap();
    wait_for("the server's end is named", || {
        // By who ended it, and as the way in which the server ended.
        let lines = named(&daemon, "unshare");
        let server = |line: &&String| line.contains("role=mcp-server");
        lines.len() >= 2 && lines.iter().any(|line| server(&line))
    })
    .unwrap();
    let count = &daemon.status().unwrap()["violations"]["mcp-server"]["unshare"];
    assert!(count.as_u64().unwrap() >= 1, "{count}");
}

#[test]
fn a_listener_goes_with_its_process() {
    let model = Model::start().unwrap();
    let daemon = Setup::new()
        .unwrap()
        .model(model.address(), "openai-chat")
        .start()
        .unwrap();
    for turn in 0..5 {
        let sent = daemon.send(&turn.to_string(), "hello [[mock:echo]]");
        assert_eq!(sent.unwrap().code, 0);
    }
    let listeners = || {
        let folder = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
        let links = folder.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        links
            .filter(|link| link.to_string_lossy().contains("seccomp"))
            .count()
    };
    // The workers of ended turns take theirs along; those that wait for the next have one each.
    wait_for("as many listeners as processes", || {
        let status = daemon.status().unwrap();
        let workers = status["workers"].as_array().unwrap().iter();
        let running = workers.filter(|worker| worker["pid"].is_i64()).count();
        running > 4 && listeners() == running
    })
    .unwrap();
}
