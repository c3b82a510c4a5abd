//! What a shell does with the command: completion, pipes that end early, odd words.

use super::daemon::{Fake, Reply};
use super::{err, monoctl, out};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

/// What Bash offers for the last word.
fn offered(script: &std::path::Path, words: &[&str]) -> Vec<String> {
    const ASK: &str = r#"
        source "$1"; shift
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        _monoctl monoctl "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let output = Command::new("bash")
        .args(["--norc", "-c", ASK, "bash"])
        .arg(script)
        .arg("monoctl")
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", err(&output));
    out(&output).lines().map(str::to_owned).collect()
}

#[test]
fn bash_offers_the_roles_that_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("monoctl");
    let written = monoctl(&["completions", "bash"]).output().unwrap();
    std::fs::write(&script, &written.stdout).unwrap();
    let json = monoctl(&["completions", "bash", "--json"])
        .output()
        .unwrap();
    let told: Value = serde_json::from_str(&out(&json)).unwrap();
    assert_eq!(told, json!({ "shell": "bash", "script": out(&written) }));
    for (words, has, has_not) in [
        (
            &["worker", "show", ""][..],
            "mcp-server run store",
            "monod channel-slack",
        ),
        (
            &["worker", "restart", ""],
            "store channel-console",
            "run mcp-server",
        ),
        (
            &["worker", "drain", ""],
            "egress",
            "run mcp-server channel-a2a",
        ),
        (&["worker", "unpark", ""], "run egress", "mcp-server"),
        (&["unpark", ""], "run egress", "mcp-server channel-cron"),
        (&["policy", "show", ""], "mcp-server metrics", "monod"),
        (
            &["policy", "explain", ""],
            "continuation",
            "channel-telegram",
        ),
        (
            &["logs", ""],
            "app-bridge run mcp-server --follow",
            "monod channel-slack",
        ),
        (
            &["--json", "logs", "--run", "x", ""],
            "artifact",
            "channel-slack",
        ),
        (&["runs", "list", "--status", ""], "failed running", "store"),
        (&["completions", ""], "bash zsh fish", "tcsh"),
    ] {
        let offered = offered(&script, words);
        let is = |word: &str| offered.iter().any(|one| one == word);
        assert!(has.split(' ').all(is), "{words:?}: {offered:?}");
        assert!(!has_not.split(' ').any(is), "{words:?}: {offered:?}");
    }
    assert_eq!(offered(&script, &["policy", "show", "eg"]), ["egress"]);
    assert_eq!(offered(&script, &["logs", "ru"]), ["run"]);
    // Offered to nobody, and taken: its profile is there.
    let later = monoctl(&["policy", "explain", "channel-slack"]).output();
    assert!(later.unwrap().status.success());
}

#[test]
fn a_reader_that_is_gone_is_no_reason_to_complain() {
    let daemon = Fake::new(|_| Reply::value(json!({ "ok": true, "workers": [] })));
    for arguments in [
        &["policy", "list"][..],
        &["policy", "explain", "run", "--json"],
        &["config", "schema"],
        &["completions", "bash"],
        &["version"],
        &["doctor"],
        &["status"],
        &["worker", "list"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = monoctl(arguments)
            .arg("--socket")
            .arg(daemon.path())
            .stdout(writer)
            .output()
            .unwrap();
        let told = (output.status.code(), err(&output));
        assert_eq!(told, (Some(141), String::new()), "{arguments:?}");
    }
    // What can't be written otherwise is told, where there is still a place for it.
    for arguments in [&["version"][..], &["version", "--json"]] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let child = monoctl(arguments)
            .stdout(full)
            .stderr(Stdio::piped())
            .spawn();
        let output = child.unwrap().wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(
            err(&output).contains("can't write the output"),
            "{arguments:?}"
        );
    }
}

#[test]
fn a_file_goes_to_a_path_that_is_no_text() {
    let record = json!({
        "id": "a1", "runId": "r1", "conversationId": "c", "deliveryConversationId": "c",
        "name": "x", "mediaType": "application/octet-stream", "sizeBytes": 3,
        "integrityId": format!("sha256:{}", hex::encode(Sha256::digest(b"abc"))),
        "createdAt": "t", "expiresAt": "t",
    });
    let daemon = Fake::new(move |_| Reply::value(record.clone()).with(b"abc"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(OsStr::from_bytes(b"a\xffb"));
    let output = monoctl(&["artifacts", "get", "a1", "--json", "--socket"])
        .arg(daemon.path())
        .arg("-o")
        .arg(&path)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(std::fs::read(&path).unwrap(), b"abc");
    let told: Value = serde_json::from_str(&out(&output)).unwrap();
    assert!(told["path"].as_str().unwrap().ends_with("a\u{fffd}b"));
}

/// Words that nobody means: the end is a status of the list and a sentence, and never a panic.
#[test]
fn odd_words_end_with_a_status_and_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let long = "x".repeat(100_000);
    let odd: Vec<OsString> = [&b""[..], b"\xff\xfe", b"\x1b[31m\n", b"-", b"--", b"-1"]
        .into_iter()
        .chain([long.as_bytes()])
        .map(|bytes| OsStr::from_bytes(bytes).to_owned())
        .collect();
    for arguments in [
        &[][..],
        &["runs", "show"],
        &["runs", "list", "--conversation"],
        &["runs", "list", "--cursor"],
        &["runs", "list", "--limit"],
        &["artifacts", "get", "-o", "x"],
        &["artifacts", "get", "x", "-o"],
        &["apps", "show"],
        &["mcp", "probe"],
        &["continuations", "retry"],
        &["continuations", "list", "--limit"],
        &["console", "revoke"],
        &["letters", "--after"],
        &["letters", "--conversation"],
        &["worker", "show"],
        &["logs"],
        &["logs", "--run"],
        &["policy", "explain"],
        &["completions"],
        &["send"],
        &["send", "x", "--conversation"],
        &["send", "x", "--file"],
        &["config", "check", "--config"],
        &["config", "show", "--env-file"],
        &["status", "--socket"],
        &["top", "--once", "--socket"],
    ] {
        for (n, word) in odd.iter().enumerate() {
            let mut command = monoctl(arguments);
            command.arg(word).current_dir(folder.path());
            if n % 2 == 1 {
                command.arg("--json");
            }
            let output = command.output().unwrap();
            let status = output.status.code();
            assert!(
                matches!(status, Some(1..=3)),
                "{arguments:?} {n}: {status:?} {}",
                err(&output)
            );
            assert!(!err(&output).contains("panicked"), "{}", err(&output));
            assert!(!output.stdout.is_empty() || !output.stderr.is_empty());
        }
    }
}
