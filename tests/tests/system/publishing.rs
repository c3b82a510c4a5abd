//! Files that must not be published, and those that may.

use mono_tests::daemon::{Daemon, Setup, wait_for};
use mono_tests::model::{Model, bash, call};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

fn publish(path: &str) -> String {
    call("PublishReplyFile", &json!({ "path": path }))
}

/// What the model is told, by call.
fn told(daemon: &Daemon, conversation: &str, directives: &str) -> (Vec<Value>, Value) {
    let sent = daemon.send(conversation, directives).unwrap();
    assert_eq!(sent.code, 0, "{sent:?}");
    let told = sent
        .completed("PublishReplyFile")
        .iter()
        // Arguments that the tool's schema refuses are answered in words.
        .map(|e| serde_json::from_str(e["preview"].as_str().unwrap()).unwrap_or_default())
        .collect();
    (told, sent.finish["parts"].clone())
}

#[test]
fn what_is_no_plain_file_of_the_workspace_is_refused() {
    let model = Model::start().unwrap();
    let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    // State and configuration inside the workspace.
    setup.config["runtime"]["stateDir"] = json!("workspace/state");
    let daemon = setup.start().unwrap();
    let workspace = daemon.workspace();
    let inside = |name: &str| workspace.join(name);
    std::fs::write(inside("plain.txt"), "plain").unwrap();
    std::fs::create_dir(inside("folder")).unwrap();
    std::fs::write(inside("folder/deep.txt"), "deep").unwrap();
    symlink("plain.txt", inside("link.txt")).unwrap();
    symlink("folder", inside("linked")).unwrap();
    symlink("/etc/passwd", inside("passwd.txt")).unwrap();
    std::fs::hard_link(inside("plain.txt"), inside("hard.txt")).unwrap();
    std::fs::write(inside("single.txt"), "single").unwrap();
    nix::unistd::mkfifo(
        &inside("fifo.txt"),
        nix::sys::stat::Mode::from_bits_truncate(0o666),
    )
    .unwrap();
    let _socket = UnixListener::bind(inside("socket.txt")).unwrap();
    std::fs::write(inside("large.bin"), vec![0; 20 * 1024 * 1024 + 1]).unwrap();
    let private = [
        ".env",
        ".hidden",
        "id_rsa",
        "id_ed25519",
        "server.key",
        "cert.pem",
        "store.db",
        "prod.env",
        "my-secret.txt",
        "token.txt",
        "credentials.json",
    ];
    for name in private {
        std::fs::write(inside(name), "private").unwrap();
    }
    std::fs::create_dir(inside("secrets")).unwrap();
    std::fs::write(inside("secrets/plain.txt"), "private").unwrap();

    let absolute = inside("single.txt").to_string_lossy().into_owned();
    let refused = [
        "link.txt",
        "linked/deep.txt",
        "passwd.txt",
        "plain.txt",
        "hard.txt",
        "fifo.txt",
        "socket.txt",
        "folder",
        "../IDENTITY.md",
        "folder/../single.txt",
        "/etc/passwd",
        "/proc/self/environ",
        "/dev/null",
        "nowhere.txt",
        "state/store/store.db",
        "../mono-agent.config.json",
        "secrets/plain.txt",
        "large.bin",
        "",
    ];
    for path in refused.into_iter().chain(private) {
        let (told, parts) = told(&daemon, "a", &publish(path));
        let parts = parts.as_array().unwrap();
        assert!(
            parts.iter().all(|part| part["type"] == "failure"),
            "{path}: {parts:?}"
        );
        if path.is_empty() {
            continue;
        }
        assert_eq!(told[0]["published"], false, "{path}: {told:?}");
        let code = told[0]["code"].as_str().unwrap();
        let expected = if path == "large.bin" {
            "artifact_too_large"
        } else {
            "artifact_"
        };
        assert!(code.starts_with(expected), "{path}: {code}");
        // Neither the model nor the person is told more than the code.
        assert_eq!(told[0].as_object().unwrap().len(), 2, "{path}: {told:?}");
        for part in parts {
            assert!(
                !part["message"].as_str().unwrap().contains(path),
                "{path}: {part}"
            );
        }
    }
    assert_eq!(
        daemon.json(&["artifacts", "list"]).unwrap()["artifacts"],
        json!([])
    );

    // Plain files are published by either kind of path; twice the same is one part.
    let (told, parts) = told(
        &daemon,
        "b",
        &format!(
            "{} {} {}",
            publish("single.txt"),
            publish(&absolute),
            publish("./folder/deep.txt")
        ),
    );
    assert!(told.iter().all(|t| t["published"] == true), "{told:?}");
    assert_eq!(parts.as_array().unwrap().len(), 2, "{parts}");
}

#[test]
fn a_file_that_is_swapped_meanwhile_is_published_whole_or_not_at_all() {
    const ROUNDS: usize = 24;
    let model = Model::start().unwrap();
    let daemon = Setup::new()
        .unwrap()
        .model(model.address(), "openai-chat")
        .start()
        .unwrap();
    let hash = |bytes: &[u8]| format!("sha256:{}", hex(&Sha256::digest(bytes)));
    let may = [b'a', b'b'].map(|byte| hash(&vec![byte; 1 << 20]));
    // A file that becomes another one, a link, a pipe and nothing; and a folder that becomes a link
    // to one with something else in it.
    let swap = "fill() { head -c 1048576 /dev/zero | tr '\\0' $1 > $2; }; \
        fill a a.src; fill b b.src; mkdir sub other; fill a sub/f; fill c other/f; cp a.src target; touch ready; \
        while [ ! -e stop ]; do \
          cp a.src new; mv new target; sleep 0.02; \
          ln -s other/f new; mv new target; mv sub real; ln -s other sub; sleep 0.01; \
          cp b.src new; mv new target; rm sub; mv real sub; sleep 0.02; \
          mkfifo new; mv new target; rm target; \
        done";
    let background = call("Bash", &json!({ "command": swap, "background": true }));
    let wait = bash("until [ -e ready ]; do sleep 0.01; done");
    let attempts = vec![format!("{} {}", publish("target"), publish("sub/f")); ROUNDS].join(" ");
    let stop = bash("touch stop");
    let sent = daemon
        .send(
            "a",
            &format!("{background} {wait} {attempts} {stop} [[mock:text done]]"),
        )
        .unwrap();
    assert_eq!((sent.code, sent.text()), (0, "done"), "{sent:?}");
    let told = sent.completed("PublishReplyFile");
    assert_eq!(told.len(), 2 * ROUNDS);
    // Both ends of the race were seen, or this proves nothing.
    let published = told.iter().filter(|event| event["ok"] == true).count();
    assert!(
        (1..told.len()).contains(&published),
        "{published} of {}",
        told.len()
    );
    for part in sent.finish["parts"].as_array().unwrap() {
        if part["type"] == "failure" {
            let code = part["code"].as_str().unwrap();
            assert!(code.starts_with("artifact_"), "{part}");
            continue;
        }
        // Whatever stood at the path when it was opened, the copy is of that file and whole.
        let bytes = daemon
            .fetch(part["reference"]["id"].as_str().unwrap())
            .unwrap();
        let hash = hash(&bytes);
        assert_eq!(
            (&part["integrityId"], &part["sizeBytes"]),
            (&json!(hash), &json!(bytes.len()))
        );
        assert!(
            may.contains(&hash),
            "{} bytes that no published file held",
            bytes.len()
        );
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_reply_has_twenty_parts_and_the_model_is_told() {
    let model = Model::start().unwrap();
    let daemon = Setup::new()
        .unwrap()
        .model(model.address(), "openai-chat")
        .start()
        .unwrap();
    let make = bash("for i in $(seq 22); do echo $i > f$i.txt; done");
    let calls: Vec<_> = (1..=22).map(|n| publish(&format!("f{n}.txt"))).collect();
    let (told, parts) = told(
        &daemon,
        "a",
        &format!("{make} {} {}", calls.join(" "), publish("f3.txt")),
    );
    assert!(
        told[..20].iter().all(|t| t["published"] == true),
        "{told:?}"
    );
    for refused in &told[20..22] {
        assert_eq!(
            *refused,
            json!({ "published": false, "code": "reply_part_too_large" })
        );
    }
    // What is part of the reply already is not one more.
    assert_eq!(told[22]["attachmentId"], told[2]["attachmentId"]);
    let parts = parts.as_array().unwrap();
    assert_eq!(parts.len(), 20);
    assert!(parts.iter().all(|p| p["type"] == "attachment"), "{parts:?}");

    // A run that is not committed takes back what it published.
    let listed = |daemon: &Daemon| {
        let list = daemon
            .json(&["artifacts", "list", "--limit", "100"])
            .unwrap();
        list["artifacts"].as_array().unwrap().len()
    };
    assert_eq!(listed(&daemon), 20);
    // What is kept is counted with a manifest's bound for each.
    let usage = &daemon.json(&["artifacts", "list"]).unwrap()["usage"];
    let bytes: usize = (1..=20).map(|n| format!("{n}\n").len()).sum();
    assert_eq!(
        *usage,
        json!({ "usedBytes": bytes + 20 * 16 * 1024, "ceilingBytes": 256 * 1024 * 1024, "count": 20,
            "maxCount": 50_000, "due": 0, "dryRun": false })
    );
    let mut sending = daemon
        .start_send(
            "a",
            &format!(
                "{} {} [[mock:tool Bash {{\"command\":\"sleep 600\"}}]]",
                bash("echo x > x.txt"),
                publish("x.txt")
            ),
        )
        .unwrap();
    sending.until("part").unwrap();
    sending.interrupt().unwrap();
    assert_eq!(sending.finish().unwrap().code, 130);
    wait_for("it is taken back", || listed(&daemon) == 20).unwrap();
}
