//! The command as a process, against a daemon that the test plays.
#![allow(clippy::unwrap_used)]

mod daemon;
mod operating;
mod shell;

use daemon::{Fake, Reply, finish};
use ipc_proto::Body;
use ipc_proto::admin::Ask;
use ipc_proto::edges::control::TurnInput;
use ipc_proto::edges::events::RunEvent;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn monoctl(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_monoctl"));
    command
        .args(arguments)
        .env_remove("MONO_SOCKET")
        .stdin(Stdio::null());
    command
}

fn at(daemon: &Fake, arguments: &[&str]) -> Output {
    monoctl(arguments)
        .arg("--socket")
        .arg(daemon.path())
        .output()
        .unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn status(ok: bool) -> Value {
    json!({
        "ok": ok, "version": "0.1.0",
        "workers": [{
            "role": "store", "pid": 7, "state": "serving", "restarts": 0, "protocol": 1, "rss_bytes": 1024,
            "sandbox": {"seccomp": 2, "no_new_privs": true, "landlock_abi": 7, "uid": 961,
                "namespaces": ["net"], "probes": {"socket": "refused"}}
        }]
    })
}

#[test]
fn the_status_is_passed_through_and_decides_the_exit_status() {
    for (ok, code) in [(true, 0), (false, 1)] {
        let daemon = Fake::new(move |ask| {
            assert_eq!(ask, Ask::Status);
            Reply::value(status(ok))
        });
        let output = at(&daemon, &["status", "--json"]);
        assert_eq!(output.status.code(), Some(code));
        assert_eq!(
            serde_json::from_str::<Value>(&out(&output)).unwrap(),
            status(ok)
        );
        assert_eq!(
            (out(&output).lines().count(), err(&output)),
            (1, String::new())
        );
        let table = at(&daemon, &["status"]);
        assert_eq!(table.status.code(), Some(code));
        assert!(out(&table).contains("ABI 7") && !out(&table).contains('\u{1b}'));
    }
}

#[test]
fn without_a_daemon_the_exit_status_is_three_and_the_remedy_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let output = monoctl(&["status"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(err(&output).contains("monod --config") && err(&output).contains("cargo xtask demo"));
    let output = monoctl(&["status", "--json", "--socket", "/nowhere"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    let error: Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(
        (&error["ok"], &error["error"]["kind"]),
        (&json!(false), &json!("no_daemon"))
    );
}

#[test]
fn the_socket_is_found_in_the_variable_and_below_the_folder() {
    let daemon = Fake::new(|_| Reply::value(status(true)));
    let output = monoctl(&["status"])
        .env("MONO_SOCKET", daemon.path())
        .output()
        .unwrap();
    assert!(output.status.success());
    let socket = daemon.path();
    let folder = socket.parent().unwrap();
    std::fs::create_dir(folder.join(".mono-agent")).unwrap();
    std::os::unix::fs::symlink(daemon.path(), folder.join(".mono-agent/monod.sock")).unwrap();
    assert!(
        monoctl(&["status"])
            .current_dir(folder)
            .output()
            .unwrap()
            .status
            .success()
    );
}

#[test]
fn a_wrong_command_line_is_status_two() {
    for arguments in [
        &["frobnicate"][..],
        &[],
        &["send"],
        &["send", "x", "--conversation", "a\nb"],
        &["send", " "],
        &["send", "x", "--new", "--conversation", "c"],
        &["runs", "list", "--limit", "0"],
        &["runs", "list", "--limit", "101"],
        &["runs", "list", "--status", "odd"],
        &["unpark", "nobody"],
        &["worker", "restart"],
        &["worker", "restart", "monod"],
        &["worker", "restart", "run"],
        &["policy", "explain", "monod"],
        &["logs", "nobody"],
        &["artifacts", "get", "id"],
    ] {
        assert_eq!(
            monoctl(arguments).output().unwrap().status.code(),
            Some(2),
            "{arguments:?}"
        );
    }
}

#[test]
fn a_wrong_command_line_is_an_object_for_a_script() {
    for (arguments, told) in [
        (
            &["frobnicate", "--json"][..],
            "unrecognized subcommand 'frobnicate'",
        ),
        (&["--json"], "a command is missing; --help names them"),
        (
            &["--json", "runs"],
            "a command is missing; --help names them",
        ),
        (
            &["runs", "list", "--json", "--limit", "0"],
            "0 is not in 1..=100",
        ),
        (&["artifacts", "get", "id", "--json"], "--output"),
    ] {
        let output = monoctl(arguments).output().unwrap();
        assert_eq!(
            (output.status.code(), err(&output)),
            (Some(2), String::new()),
            "{arguments:?}"
        );
        let error: Value = serde_json::from_str(&out(&output)).unwrap();
        assert_eq!(
            (&error["ok"], &error["error"]["kind"]),
            (&json!(false), &json!("usage"))
        );
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(told), "{message}");
    }
    // It is the message's own word here, and help is no error.
    let output = monoctl(&["send", "a", "b", "--", "--json"])
        .output()
        .unwrap();
    assert_eq!(
        (output.status.code(), out(&output)),
        (Some(2), String::new())
    );
    let output = monoctl(&["--json", "--help"]).output().unwrap();
    assert!(output.status.success() && out(&output).contains("Usage"));
}

#[test]
fn a_turn_streams_to_standard_output_and_its_activity_beside_it() {
    let daemon = Fake::new(|ask| {
        let Ask::Send { conversation, .. } = ask else {
            panic!("{ask:?}")
        };
        assert_eq!(conversation, "plan");
        Reply::run(vec![
            RunEvent::Append {
                text: "Hello ".into(),
            },
            RunEvent::ToolStarted {
                id: "1".into(),
                name: "echo".into(),
                arguments: "{}".into(),
            },
            RunEvent::Append {
                text: "world".into(),
            },
            finish("Hello world"),
        ])
    });
    let output = at(&daemon, &["send", "--conversation", "plan", "hi"]);
    assert_eq!(
        (output.status.code(), out(&output).as_str()),
        (Some(0), "Hello world\n")
    );
    assert_eq!(err(&output), "> echo {}\n");
    let lines = out(&at(
        &daemon,
        &["send", "--json", "--conversation", "plan", "hi"],
    ));
    let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(last["type"], "finish");
    let last = &last["message"];
    let mut keys: Vec<_> = last.as_object().unwrap().keys().cloned().collect();
    keys.sort();
    assert_eq!(keys, ["model", "ok", "parts", "run", "text", "usage"]);
    assert_eq!(
        (&last["text"], &last["run"]),
        (&json!("Hello world"), &json!("run-1"))
    );
}

#[test]
fn a_large_message_from_standard_input_arrives_whole() {
    let daemon = Fake::with_fds(|ask, fds| {
        let Ask::Send {
            conversation,
            input,
        } = ask
        else {
            panic!("{ask:?}")
        };
        assert!(conversation.starts_with("terminal:"));
        let input: TurnInput = input.unpack(fds, 1 << 24).unwrap();
        let ipc_proto::chat::Block::Text { text } = &input.content[0] else {
            panic!("text")
        };
        Reply::run(vec![finish(&format!("{} bytes", text.len()))])
    });
    let mut child = monoctl(&["send", "--new", "-", "--socket"])
        .arg(daemon.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(&vec![b'x'; 1_000_000])
        .unwrap();
    assert_eq!(out(&child.wait_with_output().unwrap()), "1000000 bytes\n");
}

#[test]
fn a_run_that_fails_or_dies_is_status_one() {
    let failed = || RunEvent::Failed {
        cancelled: false,
        kind: "provider_auth".into(),
        message: "No.".into(),
    };
    let daemon = Fake::new(move |_| Reply::run(vec![failed()]));
    let output = at(&daemon, &["send", "hi"]);
    assert_eq!(
        (output.status.code(), err(&output).as_str()),
        (Some(1), "failed: No. (provider_auth)\n")
    );
    let daemon = Fake::new(|_| {
        Reply::run(vec![RunEvent::Append {
            text: "half".into(),
        }])
    });
    let output = at(&daemon, &["send", "hi"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(out(&output) == "half\n" && err(&output).contains("worker_lost"));
    let daemon = Fake::new(|_| Reply::error("queue_full", "100 runs wait; try later"));
    let output = at(&daemon, &["send", "hi"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        err(&output),
        "monoctl: 100 runs wait; try later (queue_full)\n"
    );
}

#[test]
fn an_interrupt_cancels_the_run() {
    let daemon = Fake::new(|ask| match ask {
        Ask::Send { .. } => Reply::open_run(vec![RunEvent::Append {
            text: "working\n".into(),
        }]),
        Ask::CancelRun { run } => {
            assert_eq!(run, "run-1");
            Reply::value(json!({"cancelled": true}))
        }
        other => panic!("{other:?}"),
    });
    let mut child = monoctl(&["send", "hi", "--socket"])
        .arg(daemon.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    assert_eq!(first, "working\n");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(err(&output).contains("cancelled"));
    // It waits two seconds for the answer; a daemon on a busy machine may hear it later than that.
    let asked = || {
        let all = daemon.asked();
        all.iter().any(|ask| matches!(ask, Ask::CancelRun { .. }))
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    while !asked() {
        assert!(Instant::now() < deadline, "it was never asked");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn record(bytes: &[u8]) -> Value {
    json!({
        "id": "a1", "runId": "r1", "conversationId": "c", "deliveryConversationId": "c", "name": "x.bin",
        "mediaType": "application/octet-stream", "sizeBytes": bytes.len(),
        "integrityId": format!("sha256:{}", hex::encode(Sha256::digest(bytes))),
        "createdAt": "2026-01-02T03:04:05Z", "expiresAt": "2027-01-02T03:04:05Z"
    })
}

#[test]
fn a_file_is_fetched_and_verified() {
    let bytes: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let sent = bytes.clone();
    let daemon = Fake::new(move |ask| {
        assert_eq!(ask, Ask::GetArtifact { id: "a1".into() });
        Reply::value(record(&sent)).with(&sent)
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.bin");
    let target = path.to_str().unwrap();
    let output = at(&daemon, &["artifacts", "get", "a1", "-o", target]);
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    let again = at(&daemon, &["artifacts", "get", "a1", "-o", target]);
    assert_eq!(again.status.code(), Some(1));
    assert!(err(&again).contains("--force"));
    assert!(
        at(
            &daemon,
            &["artifacts", "get", "a1", "-o", target, "--force"]
        )
        .status
        .success()
    );
    assert_eq!(
        at(&daemon, &["artifacts", "get", "a1", "-o", "-"]).stdout,
        bytes
    );
    let json = at(
        &daemon,
        &["--json", "artifacts", "get", "a1", "-o", target, "--force"],
    );
    assert_eq!(
        serde_json::from_str::<Value>(&out(&json)).unwrap()["artifact"],
        record(&bytes)
    );
}

#[test]
fn a_file_that_was_changed_on_the_way_is_not_written() {
    let daemon = Fake::new(|_| Reply::value(record(b"good")).with(b"evil"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    for target in [path.to_str().unwrap(), "-"] {
        let output = at(&daemon, &["artifacts", "get", "a1", "-o", target]);
        assert_eq!((output.status.code(), out(&output).as_str()), (Some(1), ""));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let unsealed = Fake::new(|_| Reply::value(record(b"good")).with_file(b"good"));
    assert_eq!(
        at(&unsealed, &["artifacts", "get", "a1", "-o", "-"])
            .status
            .code(),
        Some(1)
    );
}

#[test]
fn a_long_list_comes_through_a_memfd() {
    let runs: Vec<_> = (0..100)
        .map(|n| {
            json!({"runId": format!("r{n}"), "conversationId": "c".repeat(400), "status": "succeeded",
                "source": "terminal", "sourceDetail": null, "model": null, "startedAt": "t", "endedAt": null,
                "durationMs": null, "failureKind": null, "error": null, "text": null,
                "usage": {"input": 0, "output": 0, "cacheRead": 0, "cacheCreation": 0, "costUsd": null}})
        })
        .collect();
    let daemon = Fake::new(move |ask| {
        assert_eq!(
            ask,
            Ask::ListRuns {
                conversation: None,
                status: Some("failed".into()),
                limit: 100,
                cursor: None
            }
        );
        Reply::value(json!({"runs": runs}))
    });
    let output = at(
        &daemon,
        &["runs", "list", "--limit", "100", "--status", "failed"],
    );
    assert_eq!(out(&output).lines().count(), 101, "{}", err(&output));
}

#[test]
fn orders_reach_the_daemon() {
    let daemon = Fake::new(|ask| match ask {
        Ask::Unpark { role } => Reply::value(json!({"unparked": role})),
        Ask::CancelRun { .. } => Reply::error("not_found", "no such run is at work or waiting"),
        Ask::Stop => Reply::value(json!({"stopping": true})).last(),
        other => panic!("{other:?}"),
    });
    assert!(at(&daemon, &["unpark", "egress"]).status.success());
    assert_eq!(
        at(&daemon, &["runs", "cancel", "r1"]).status.code(),
        Some(1)
    );
    assert_eq!(out(&at(&daemon, &["stop"])), "stopped\n");
}

#[test]
fn a_daemon_of_another_version_or_that_hangs_up_is_an_error() {
    let daemon = Fake::refusing();
    let output = at(&daemon, &["status"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("no_common_version"));
    let daemon = Fake::new(|_| Reply::hang_up());
    assert_eq!(at(&daemon, &["status"]).status.code(), Some(1));
}

fn example() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../config/examples/mono-agent.config.json")
        .display()
        .to_string()
}

#[test]
fn a_configuration_is_checked_and_shown_without_a_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let here = |arguments: &[&str]| {
        monoctl(arguments)
            .env_clear()
            .current_dir(folder.path())
            .output()
            .unwrap()
    };
    let checked = here(&["config", "check", "--config", &example(), "--json"]);
    assert_eq!(
        (checked.status.code(), err(&checked)),
        (Some(0), String::new())
    );
    assert_eq!(
        serde_json::from_str::<Value>(&out(&checked)).unwrap()["ok"],
        true
    );
    let shown = here(&["config", "show", "--config", &example()]);
    assert!(shown.status.success(), "{}", err(&shown));
    assert!(out(&shown).contains("runtime.model") && out(&shown).contains("[json]"));
    let schema = here(&["config", "schema"]);
    assert!(
        serde_json::from_str::<Value>(&out(&schema)).unwrap()["properties"]["runtime"].is_object()
    );

    // What the agent could have left here is read only when somebody says so.
    std::fs::write(folder.path().join(".env"), "MONO_AGENT_MAX_TURNS=77\n").unwrap();
    let show = |more: &[&str]| {
        let example = example();
        out(&here(
            &[&["config", "show", "--config", &example], more].concat(),
        ))
    };
    assert!(!show(&[]).contains("77"), "{}", show(&[]));
    let named = show(&["--env-file", ".env"]);
    assert!(named.contains("77") && named.contains("[env]"), "{named}");
    let missing = here(&[
        "config",
        "show",
        "--env-file",
        "no.env",
        "--config",
        &example(),
        "--json",
    ]);
    assert_eq!(missing.status.code(), Some(1));
    let told: Value = serde_json::from_str(&out(&missing)).unwrap();
    assert_eq!(told["error"]["kind"], "config_invalid");
    let message = told["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("no.env") && message.contains("no such file"),
        "{message}"
    );

    std::fs::write(
        folder.path().join("mono-agent.config.json"),
        "{\"runtime\": {\"modle\": 1}}",
    )
    .unwrap();
    for command in ["check", "show"] {
        let bad = here(&["config", command]);
        assert_eq!(bad.status.code(), Some(1));
        assert!(format!("{}{}", out(&bad), err(&bad)).contains("runtime.modle"));
        let bad = here(&["config", command, "--json"]);
        let told: Value = serde_json::from_str(&out(&bad)).unwrap();
        assert_eq!(told["ok"], false);
        if command == "show" {
            assert_eq!(told["error"]["kind"], "config_invalid");
        }
        assert_eq!((bad.status.code(), err(&bad)), (Some(1), String::new()));
    }
}

#[test]
fn version_and_completions_need_nothing() {
    let version: Value =
        serde_json::from_str(&out(&monoctl(&["version", "--json"]).output().unwrap())).unwrap();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    for shell in ["bash", "zsh", "fish"] {
        let output = monoctl(&["completions", shell]).output().unwrap();
        assert!(output.status.success() && out(&output).contains("monoctl"));
    }
}

#[test]
fn an_empty_body_is_no_answer() {
    // What a broken daemon could send in place of JSON.
    let daemon = Fake::new(|_| {
        Reply::run(vec![RunEvent::Finish {
            text: Body::Sealed(10),
            parts: vec![],
            usage: Default::default(),
            model: String::new(),
        }])
    });
    assert_eq!(at(&daemon, &["send", "hi"]).status.code(), Some(1));
}
