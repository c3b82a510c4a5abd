//! The commands of an operator: workers, logs, reload, doctor, policy, top.

use crate::daemon::{Fake, Reply};
use crate::{at, err, monoctl, out};
use ipc_proto::admin::Ask;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::sync::Mutex;

fn worker(role: &str, pid: Option<i32>, state: &str) -> Value {
    let sandbox = json!({"seccomp": 2, "seccomp_filters": 2, "no_new_privs": true, "landlock_abi": 7,
        "uid": 961, "capabilities": 0, "namespaces": ["net"], "probes": {"socket": "refused"}});
    json!({
        "role": role, "pid": pid, "state": state, "restarts": 0, "protocol": 1, "rss_bytes": 1024,
        "last_line": "said this", "sandbox": pid.map(|_| sandbox)
    })
}

fn status(workers: &[Value]) -> Value {
    json!({"ok": true, "version": "0.1.0", "degraded": [], "uptime_ms": 5, "protocol_violations": 0,
        "runs": {"working": 1, "assigned": 1, "waiting": 2}, "workers": workers})
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn workers_are_listed_and_one_role_is_shown() {
    let daemon = Fake::new(|_| {
        Reply::value(status(&[
            worker("store", Some(7), "serving"),
            worker("run", Some(8), "idle"),
            worker("run", Some(9), "serving"),
        ]))
    });
    let list = out(&at(&daemon, &["worker", "list"]));
    assert!(
        list.contains("store  7    serving  0         1.0 KiB  yes       said this"),
        "{list}"
    );
    let list = parsed(&out(&at(&daemon, &["worker", "list", "--json"])));
    assert_eq!(list["workers"].as_array().unwrap().len(), 3);
    let shown = out(&at(&daemon, &["worker", "show", "run"]));
    assert!(
        shown.contains("pid          8\n")
            && shown.contains("\n\nrole         run\npid          9\n"),
        "{shown}"
    );
    assert!(
        shown.contains("seccomp      filter, 2 stacked\n"),
        "{shown}"
    );
    let shown = parsed(&out(&at(&daemon, &["worker", "show", "store", "--json"])));
    assert_eq!(
        shown["workers"],
        json!([worker("store", Some(7), "serving")])
    );
    let none = at(&daemon, &["worker", "show", "egress"]);
    assert_eq!(
        (none.status.code(), err(&none).contains("not_found")),
        (Some(1), true)
    );
}

/// A daemon whose egress has these statuses, one after the other; the last stays.
fn changing(statuses: Vec<Vec<Value>>) -> Fake {
    let left = Mutex::new(statuses);
    Fake::new(move |ask| match ask {
        Ask::Status => {
            let mut left = left.lock().unwrap();
            let now = left[0].clone();
            if left.len() > 1 {
                left.remove(0);
            }
            Reply::value(status(&now))
        }
        Ask::Restart { role } => Reply::value(json!({ "role": role })),
        Ask::Reload => Reply::value(json!({
            "replaced": ["egress", "run"], "warnings": [],
            "needsRestart": [{"key": "openaiApi.port", "running": "8000", "configured": "9000"}]
        })),
        other => panic!("{other:?}"),
    })
}

#[test]
fn a_restart_is_done_when_another_process_serves() {
    let change = || {
        vec![
            vec![worker("egress", Some(7), "serving")],
            vec![worker("egress", Some(7), "ending")],
            vec![worker("egress", None, "waiting")],
            vec![worker("egress", Some(8), "starting")],
            vec![worker("egress", Some(8), "serving")],
        ]
    };
    let output = at(&changing(change()), &["worker", "restart", "egress"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(
        out(&output),
        "egress serves again: process 8 in place of 7\n"
    );
    let output = at(
        &changing(change()),
        &["worker", "restart", "egress", "--json"],
    );
    assert_eq!(
        parsed(&out(&output)),
        json!({"ok": true, "role": "egress", "pid": 8, "replaced": 7})
    );
    let parked = vec![
        vec![worker("egress", Some(7), "serving")],
        vec![worker("egress", None, "parked")],
    ];
    let output = at(&changing(parked), &["worker", "restart", "egress"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err(&output).contains("egress is parked: said this"),
        "{}",
        err(&output)
    );
}

#[test]
fn a_reload_is_done_when_the_new_workers_serve() {
    let old = || worker("egress", Some(7), "serving");
    let change = || {
        vec![
            vec![old()],
            vec![old(), worker("egress", Some(8), "starting")],
            vec![
                worker("egress", Some(8), "serving"),
                worker("egress", Some(7), "draining"),
            ],
        ]
    };
    let output = at(&changing(change()), &["reload"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let text = out(&output);
    assert!(text.starts_with("replaced: egress, run\n"), "{text}");
    assert!(
        text.contains("openaiApi.port stays 8000") && text.contains("9000"),
        "{text}"
    );
    let output = at(&changing(change()), &["reload", "--json"]);
    let value = parsed(&out(&output));
    assert_eq!((&value["ok"], &value["failed"]), (&json!(true), &json!([])));
    assert_eq!(value["needsRestart"][0]["configured"], "9000");
    // A new one that ends before it served is no reason to wait.
    let ended = vec![
        vec![old()],
        vec![old(), worker("egress", Some(8), "starting")],
        vec![old()],
    ];
    let output = at(&changing(ended), &["reload"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("the old one stays"), "{output:?}");
}

#[test]
fn a_refused_reload_shows_every_error_of_the_configuration() {
    let daemon = Fake::new(|ask| match ask {
        Ask::Status => Reply::value(status(&[])),
        _ => Reply::error(
            "config_invalid",
            "c.json:3:5: runtime.modle\nc.json:4:1: tools",
        ),
    });
    let output = at(&daemon, &["reload"]);
    assert_eq!(output.status.code(), Some(1));
    let words = err(&output);
    assert!(
        words.contains("nothing was changed") && words.contains("modle") && words.contains(":4:1"),
        "{words}"
    );
    let output = at(&daemon, &["reload", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let value = parsed(&out(&output));
    assert_eq!(
        (&value["ok"], &value["error"]["kind"]),
        (&json!(false), &json!("config_invalid"))
    );
}

fn entry(seq: u64, text: &str) -> Value {
    json!({"seq": seq, "at_ms": 1_767_323_045_006_i64, "role": "run", "pid": 9, "run": "r1", "text": text})
}

#[test]
fn logs_are_asked_for_by_role_and_run_and_shown_once() {
    let daemon = Fake::new(|ask| {
        let wanted = Ask::Logs {
            role: Some("run".into()),
            run: Some("r1".into()),
            after: 0,
        };
        assert_eq!(ask, wanted);
        Reply::value(json!({"entries": [entry(4, "hello")], "last": 4, "missed": 0}))
    });
    let output = at(&daemon, &["logs", "run", "--run", "r1"]);
    assert_eq!(out(&output), "2026-01-02T03:04:05.006Z run[9] hello\n");
    assert_eq!(daemon.asked().len(), 1);
    let output = at(&daemon, &["logs", "run", "--run", "r1", "--json"]);
    assert_eq!(parsed(&out(&output)), entry(4, "hello"));
}

#[test]
fn followed_logs_go_on_where_they_were_and_name_what_was_missed() {
    let daemon = Fake::new(|ask| {
        let Ask::Logs { after, .. } = ask else {
            panic!("{ask:?}")
        };
        Reply::value(match after {
            0 => json!({"entries": [entry(4, "first")], "last": 4, "missed": 0}),
            4 => json!({"entries": [entry(90, "second")], "last": 90, "missed": 85}),
            90 => json!({"entries": [], "last": 90, "missed": 0}),
            other => panic!("after {other}"),
        })
    });
    let mut child = monoctl(&["logs", "--follow", "--json", "--socket"])
        .arg(daemon.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
    let lines = stdout.by_ref().take(3);
    let lines: Vec<Value> = lines.map(|line| parsed(&line.unwrap())).collect();
    // Ctrl-C is how it ends, and no failure.
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(
        lines,
        [
            entry(4, "first"),
            json!({"missed": 85}),
            entry(90, "second")
        ]
    );
}

#[test]
fn followed_logs_end_with_the_daemon() {
    let daemon = Fake::new(|_| Reply::value(json!({"entries": [], "last": 0})).last());
    let output = at(&daemon, &["logs", "--follow"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err(&output).contains("closed the connection"),
        "{}",
        err(&output)
    );
}

#[test]
fn policies_are_explained_without_a_daemon_and_shown_with_what_is_in_force() {
    let alone = |arguments: &[&str]| out(&monoctl(arguments).output().unwrap());
    let explained = alone(&["policy", "explain", "egress"]);
    assert!(
        explained.starts_with("egress: ") && explained.contains("stage 2 allows:"),
        "{explained}"
    );
    let object = parsed(&alone(&["policy", "explain", "egress", "--json"]));
    assert_eq!(
        object["text"].as_str().unwrap().trim_end(),
        explained.trim_end()
    );
    assert!(alone(&["policy", "list"]).contains("channel-openai"));

    let daemon = Fake::new(|_| {
        Reply::value(status(&[
            worker("egress", Some(7), "serving"),
            worker("store", Some(8), "serving"),
        ]))
    });
    let shown = out(&at(&daemon, &["policy", "show", "egress"]));
    assert!(shown.starts_with(explained.trim_end()), "{shown}");
    let in_force = shown.split("== in force now").nth(1).unwrap();
    assert!(
        in_force.contains("pid          7\n") && !in_force.contains("pid          8\n"),
        "{in_force}"
    );
    let shown = parsed(&out(&at(&daemon, &["policy", "show", "egress", "--json"])));
    assert_eq!(
        shown["workers"],
        json!([worker("egress", Some(7), "serving")])
    );
    let none = monoctl(&["policy", "show", "egress", "--socket", "/nowhere"])
        .output()
        .unwrap();
    assert_eq!(none.status.code(), Some(3));
}

#[test]
fn one_view_of_top_is_text_or_an_object_and_a_live_one_needs_a_terminal() {
    let me = i32::try_from(std::process::id()).unwrap();
    let daemon = Fake::new(move |_| {
        Reply::value(status(&[
            worker("store", Some(me), "serving"),
            worker("egress", None, "parked"),
        ]))
    });
    let text = out(&at(&daemon, &["top", "--once"]));
    assert!(text.contains("turns: 1 at work, 2 waiting"), "{text}");
    let store = text.lines().find(|line| line.starts_with("store")).unwrap();
    let cells: Vec<_> = store.split_whitespace().collect();
    // ROLE PID STATE RESTARTS MEMORY(2) CPU …
    assert_eq!(cells[1], me.to_string());
    assert!(cells[6].parse::<f64>().is_ok(), "{store}");
    assert!(!text.contains('\u{1b}'));
    let value = parsed(&out(&at(&daemon, &["top", "--once", "--json"])));
    assert!(value["workers"][0]["cpu_percent"].is_f64(), "{value}");
    assert!(
        value["workers"][0]["tree_rss_bytes"].as_u64().unwrap() > 100_000,
        "{value}"
    );
    assert_eq!(value["workers"][1]["cpu_percent"], Value::Null);
    let live = at(&daemon, &["top"]);
    assert_eq!(live.status.code(), Some(2));
    assert!(err(&live).contains("--once"), "{}", err(&live));
}

/// The findings of `monoctl doctor --json` about a check.
fn found(report: &Value, check: &str) -> Vec<Value> {
    let all = report["findings"].as_array().unwrap().iter();
    all.filter(|f| f["check"] == check).cloned().collect()
}

#[test]
fn the_doctor_needs_no_daemon_and_names_a_remedy_for_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let ask = |arguments: &[&str]| {
        monoctl(arguments)
            .env("PATH", "/nowhere")
            .current_dir(folder.path())
            .output()
            .unwrap()
    };
    let output = ask(&["doctor", "--json"]);
    let report = parsed(&out(&output));
    assert_eq!(output.status.code(), Some(i32::from(report["ok"] != true)));
    for check in [
        "kernel",
        "landlock",
        "namespaces",
        "seccomp",
        "proc",
        "cgroup",
        "config",
        "socket",
        "node",
        "npm",
    ] {
        assert!(!found(&report, check).is_empty(), "{check}: {report}");
    }
    assert_eq!(found(&report, "socket")[0]["state"], "info");
    assert_eq!(found(&report, "node")[0]["state"], "info");

    std::fs::write(
        folder.path().join("mono-agent.config.json"),
        "{\"runtime\": {\"modle\": 1}}",
    )
    .unwrap();
    std::fs::create_dir(folder.path().join(".mono-agent")).unwrap();
    let output = ask(&["doctor"]);
    assert_eq!(output.status.code(), Some(1));
    let text = out(&output);
    assert!(
        text.contains("MISSING  config") && text.contains("runtime.modle"),
        "{text}"
    );
    assert!(text.contains("> correct it"), "{text}");
}

#[test]
fn the_doctor_asks_the_daemon_and_judges_what_it_says() {
    for (daemon_worker, state) in [
        (worker("store", Some(7), "serving"), "ok"),
        (
            json!({"role": "store", "pid": 7, "state": "serving", "sandbox": {"seccomp": 0}}),
            "missing",
        ),
    ] {
        let daemon = Fake::new(move |ask| {
            assert_eq!(ask, Ask::Status);
            Reply::value(status(std::slice::from_ref(&daemon_worker)))
        });
        std::fs::set_permissions(daemon.path(), PermissionsExt::from_mode(0o600)).unwrap();
        let report = parsed(&out(&at(&daemon, &["doctor", "--json"])));
        assert_eq!(found(&report, "socket")[0]["state"], "ok", "{report}");
        assert_eq!(found(&report, "daemon")[0]["state"], "ok", "{report}");
        assert_eq!(found(&report, "workers")[0]["state"], state, "{report}");
        std::fs::set_permissions(daemon.path(), PermissionsExt::from_mode(0o660)).unwrap();
        let open = parsed(&out(&at(&daemon, &["doctor", "--json"])));
        assert_eq!(found(&open, "socket")[0]["state"], "missing", "{open}");
    }
}

/// `monoctl top` on a terminal of its own, until it has drawn; the terminal's end and the child.
fn on_terminal(daemon: &Fake) -> (std::fs::File, std::process::Child) {
    let size = nix::pty::Winsize {
        ws_row: 10,
        ws_col: 100,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = nix::pty::openpty(Some(&size), None).unwrap();
    let end = || Stdio::from(pty.slave.try_clone().unwrap());
    let child = monoctl(&["top", "--socket"])
        .arg(daemon.path())
        .env("TERM", "xterm")
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn()
        .unwrap();
    (pty.master.into(), child)
}

/// Reads until the terminal has been sent this.
fn until(terminal: &mut std::fs::File, wanted: &str) -> String {
    let mut seen = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let mut ready = [PollFd::new(terminal.as_fd(), PollFlags::POLLIN)];
        let text = String::from_utf8_lossy(&seen);
        let waiting = nix::poll::poll(&mut ready, PollTimeout::from(20_000_u16)).unwrap();
        assert_eq!(waiting, 1, "{wanted:?} did not come: {text}");
        // The end of a terminal is an error: then it never came.
        let count = terminal.read(&mut piece).unwrap();
        seen.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&seen);
        if text.contains(wanted) {
            return text.into_owned();
        }
    }
}

#[test]
fn a_live_view_ends_on_a_key_or_a_signal_and_gives_the_terminal_back() {
    const ENTER: &str = "\u{1b}[?1049h";
    const LEAVE: &str = "\u{1b}[?1049l";
    let daemon = Fake::new(|_| Reply::value(status(&[worker("store", Some(1), "serving")])));
    let ways: [fn(&mut std::fs::File, &std::process::Child); 3] = [
        |terminal, _| terminal.write_all(b"\x1b[B\x1b[Aq").unwrap(),
        |terminal, _| terminal.write_all(b"\x03").unwrap(),
        |_, child| {
            let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        },
    ];
    for end in ways {
        let (mut terminal, mut child) = on_terminal(&daemon);
        // Blank cells are skipped over, so that words come one by one.
        let drawn = until(&mut terminal, "quits,");
        assert!(drawn.contains(ENTER) && drawn.contains("store"), "{drawn}");
        end(&mut terminal, &child);
        until(&mut terminal, LEAVE);
        assert!(child.wait().unwrap().success());
    }
}
