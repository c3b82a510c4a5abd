//! What the supervisor counts, as a collector sees it.

use crate::exposition::{Exposition, Form};
use mono_tests::daemon::{Daemon, Setup, programs, wait_for};
use mono_tests::http;
use mono_tests::model::Model;
use serde_json::json;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

const LOCAL: &str = "host: localhost\r\n";

fn with_metrics(model: &Model) -> Setup {
    let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    setup.config["metrics"] = json!({ "enabled": true, "port": 0 });
    setup
}

fn scrape(daemon: &Daemon, form: Form) -> Exposition {
    try_scrape(daemon, form).unwrap()
}

/// Fails while the worker is being replaced: what it had accepted breaks off with it.
fn try_scrape(daemon: &Daemon, form: Form) -> anyhow::Result<Exposition> {
    let base = daemon.listener("metrics")?;
    let (accept, kind) = match form {
        Form::OpenMetrics => (
            "accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n",
            "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
        Form::Prometheus => ("", "content-type: text/plain; version=0.0.4; charset=utf-8"),
    };
    let answer = http::request(&base, "GET /metrics", &format!("{LOCAL}{accept}"))?;
    assert_eq!(answer.status, 200, "{}", answer.head);
    assert!(answer.head.contains(kind), "{}", answer.head);
    let text = String::from_utf8(answer.body).unwrap();
    Ok(Exposition::read(&text, form).unwrap_or_else(|problem| panic!("{problem}\n{text}")))
}

/// Waits until a sample is so much; what has happened is counted a moment later.
fn wait_value(daemon: &Daemon, name: &str, labels: &[&str], wish: impl Fn(f64) -> bool) {
    let found = || {
        let page = try_scrape(daemon, Form::Prometheus).ok()?;
        page.value(name, labels)
    };
    wait_for(&format!("{name} {labels:?}"), || found().is_some_and(&wish))
        .unwrap_or_else(|e| panic!("{e}: it is {:?}", found()));
}

#[test]
fn turns_restarts_and_workers_are_counted_by_fixed_words() {
    let model = Model::start().unwrap();
    let mut daemon = with_metrics(&model).start().unwrap();
    let page = scrape(&daemon, Form::OpenMetrics);
    let zero = Some(0.0);
    // The first event is a rise from 0.
    let turns = |outcome| ["channel=terminal", outcome];
    for outcome in ["outcome=succeeded", "outcome=failed", "outcome=refused"] {
        assert_eq!(page.value("mono_turns_total", &turns(outcome)), zero);
    }
    let killed = ["role=store", "reason=killed"];
    let restarted = ["role=egress", "reason=operator"];
    assert_eq!(page.value("mono_worker_restarts_total", &killed), zero);
    assert_eq!(page.value("mono_worker_restarts_total", &restarted), zero);

    let sent = daemon
        .send("person:secret-name", "hello [[mock:text Hi.]]")
        .unwrap();
    assert_eq!(sent.code, 0, "{sent:?}");
    let answer = http::complete(&daemon.api().unwrap(), "b", "hello [[mock:text Hi.]]").unwrap();
    assert_eq!(answer.status, 200);
    let failed = daemon.send("b", "[[mock:status 400]]").unwrap();
    assert_eq!(failed.code, 1, "{failed:?}");
    let kind = failed.finish["error"]["kind"].as_str().unwrap().to_owned();
    let store = daemon.worker("store").unwrap();
    daemon.kill(store).unwrap();
    daemon.wait_replaced("store", store).unwrap();
    daemon.wait_healthy().unwrap();
    let egress = daemon.worker("egress").unwrap();
    daemon.done(&["worker", "restart", "egress"]).unwrap();
    daemon.wait_replaced("egress", egress).unwrap();

    let once = |n| n == 1.0;
    for (name, labels) in [
        ("mono_turns_total", turns("outcome=succeeded")),
        (
            "mono_turns_total",
            ["channel=channel-openai", "outcome=succeeded"],
        ),
        ("mono_turns_total", turns("outcome=failed")),
        ("mono_turn_failures_total", turns(&format!("kind={kind}"))),
        ("mono_worker_restarts_total", killed),
        ("mono_worker_restarts_total", restarted),
    ] {
        wait_value(&daemon, name, &labels, once);
    }
    // A heartbeat every two seconds.
    for role in ["role=store", "role=metrics", "role=run"] {
        let beats = "mono_heartbeat_round_trip_seconds_count";
        wait_value(&daemon, beats, &[role], |n| n >= 1.0);
    }
    let page = scrape(&daemon, Form::OpenMetrics);
    let at_least = |name: &str, labels: &[&str], least: f64| {
        let value = page.value(name, labels);
        assert!(
            value.is_some_and(|n| n >= least),
            "{name} {labels:?}: {value:?}"
        );
    };
    at_least(
        "mono_turn_duration_seconds_count",
        &["channel=terminal"],
        2.0,
    );
    at_least(
        "mono_worker_start_duration_seconds_count",
        &["role=store"],
        2.0,
    );
    at_least("mono_workers", &["role=store", "state=serving"], 1.0);
    for role in ["role=monod", "role=store", "role=metrics"] {
        at_least("mono_resident_memory_bytes", &[role], 1e6);
    }
    at_least("mono_uptime_seconds", &[], 0.001);
    at_least("mono_log_lines_total", &["role=store"], 0.0);
    at_least("mono_build_info", &["version=0.1.0"], 1.0);
    for (name, labels) in [
        ("mono_workers", ["role=store", "state=parked"]),
        ("mono_runs", ["channel=terminal", "state=waiting"]),
        ("mono_runs", ["channel=channel-openai", "state=running"]),
    ] {
        assert_eq!(page.value(name, &labels), zero, "{name}");
    }
    let said = |word: &str| word.contains("secret") || word.contains("mock") || word.len() > 32;
    let words = page.words();
    assert!(!words.iter().any(|word| said(word)), "{words:?}");

    // The handbook has them all.
    let handbook = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations.md");
    let handbook = std::fs::read_to_string(handbook).unwrap();
    for name in scrape(&daemon, Form::Prometheus).families.keys() {
        assert!(handbook.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn a_run_that_is_killed_is_an_interrupted_turn() {
    let model = Model::start().unwrap();
    let daemon = with_metrics(&model).start().unwrap();
    let mut sending = daemon
        .start_send("a", "[[mock:text One and another.]] [[mock:stall 2]]")
        .unwrap();
    sending.until("append").unwrap();
    wait_value(
        &daemon,
        "mono_runs",
        &["channel=terminal", "state=running"],
        |n| n == 1.0,
    );
    let run = daemon.workers("run", "serving").unwrap();
    let pid = run[0]["pid"].as_i64().unwrap();
    daemon.kill(i32::try_from(pid).unwrap()).unwrap();
    assert_eq!(sending.finish().unwrap().code, 1);
    for (name, labels) in [
        (
            "mono_turns_total",
            ["channel=terminal", "outcome=interrupted"],
        ),
        (
            "mono_turn_failures_total",
            ["channel=terminal", "kind=worker_lost"],
        ),
        ("mono_worker_restarts_total", ["role=run", "reason=killed"]),
    ] {
        wait_value(&daemon, name, &labels, |n| n == 1.0);
    }
}

#[test]
fn the_listener_outlives_its_worker_and_the_daemons_program() {
    let model = Model::start().unwrap();
    let mut daemon = with_metrics(&model).start().unwrap();
    let first = daemon.worker("metrics").unwrap();
    daemon.kill(first).unwrap();
    // Whoever connects meanwhile waits for the next worker.
    wait_value(
        &daemon,
        "mono_worker_restarts_total",
        &["role=metrics", "reason=killed"],
        |n| n == 1.0,
    );
    let second = daemon.worker("metrics").unwrap();
    assert_ne!(first, second);
    daemon.done(&["reload", "--exec"]).unwrap();
    daemon.wait_replaced("metrics", second).unwrap();
    let (killed, reloaded) = (
        ["role=metrics", "reason=killed"],
        ["role=metrics", "reason=reload"],
    );
    // What the earlier program counted goes on.
    for labels in [reloaded, killed] {
        wait_value(&daemon, "mono_worker_restarts_total", &labels, |n| n == 1.0);
    }
}

#[test]
fn only_the_route_answers_and_only_to_loopback_names() {
    let model = Model::start().unwrap();
    let daemon = with_metrics(&model).start().unwrap();
    let base = daemon.listener("metrics").unwrap();
    for (line, headers, status) in [
        ("GET /metrics", LOCAL, 200),
        ("GET /", LOCAL, 404),
        ("GET /metrics/x", LOCAL, 404),
        ("POST /metrics", LOCAL, 405),
        ("GET /metrics", "host: evil.example\r\n", 403),
        ("GET /metrics", "host: localhost.evil.example\r\n", 403),
        ("GET /metrics", "host: a\r\nhost: localhost\r\n", 400),
        (
            "GET /metrics",
            "host: localhost\r\norigin: http://evil.example\r\n",
            403,
        ),
    ] {
        let answer = http::request(&base, line, headers).unwrap();
        assert_eq!(answer.status, status, "{line} {headers}");
        if status != 200 {
            let body = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(!body.contains("mono_"), "{body}");
        }
    }
}

#[test]
fn nothing_listens_by_default() {
    let daemon = Setup::new().unwrap().start().unwrap();
    assert!(daemon.listener("metrics").is_err());
    assert_eq!(daemon.log().matches("listening on http").count(), 1);
    assert!(daemon.worker("metrics").is_err());
}

#[test]
fn an_address_that_other_machines_reach_refuses_the_start() {
    let mut setup = Setup::new().unwrap();
    setup.config["metrics"] = json!({ "enabled": true, "host": "0.0.0.0", "port": 0 });
    let (code, said) = setup.refused().unwrap();
    assert_eq!(code, 1);
    assert!(said.contains("metrics.host"), "{said}");
}

#[test]
fn a_socket_of_the_unit_that_other_machines_reach_refuses_the_start() {
    let mut setup = Setup::new().unwrap();
    setup.config["metrics"] = json!({ "enabled": true });
    let config = setup.folder().join("mono-agent.config.json");
    std::fs::write(&config, setup.config.to_string()).unwrap();
    let socket = TcpListener::bind("0.0.0.0:0").unwrap();
    // As systemd does: the descriptor, its name, and for whom they are.
    let pass =
        "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=metrics exec \"$@\"";
    let output = Command::new("/bin/sh")
        .args(["-c", pass, "sh"])
        .arg(programs().join("monod"))
        .arg("--config")
        .arg(&config)
        .arg("--socket")
        .arg(setup.folder().join("monod.sock"))
        .stdin(Stdio::from(OwnedFd::from(socket)))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("metrics listens on 0.0.0.0:"), "{said}");
    assert!(said.contains("not loopback"), "{said}");
}
