//! How many turns run at once, and who waits.

use mono_tests::daemon::{Setup, wait_for};
use mono_tests::http;
use mono_tests::model::{Model, bash};
use serde_json::json;

#[test]
fn one_runs_one_waits_and_the_third_is_refused_on_each_channel() {
    let model = Model::start().unwrap();
    let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    setup.config["concurrency"] = json!({ "maxConcurrentRuns": 1, "maxPendingRuns": 1 });
    let mut daemon = setup.start().unwrap();
    let api = daemon.api().unwrap();
    let until = |file: &str| {
        bash(&format!(
            "touch at-{file}; until [ -e {file} ]; do sleep 0.02; done; echo {file} >> order"
        ))
    };

    // The terminal.
    let first = daemon.start_send("a", &until("go1")).unwrap();
    let workspace = daemon.workspace();
    wait_for("the first works", || workspace.join("at-go1").exists()).unwrap();
    let second = daemon.start_send("b", &until("go2")).unwrap();
    daemon
        .wait_until("one waits", |s| s["runs"]["waiting"] == 1)
        .unwrap();
    let third = daemon
        .run(&["send", "--json", "--conversation", "c", "hello"])
        .unwrap();
    assert_eq!(third.status.code(), Some(1), "{third:?}");
    let said = String::from_utf8_lossy(&third.stdout).into_owned()
        + &String::from_utf8_lossy(&third.stderr);
    assert!(said.contains("queue_full"), "{said}");

    // The API has a limit of its own: the terminal does not take its place.
    let client = |conversation: &'static str, message: String| {
        let api = api.clone();
        std::thread::spawn(move || http::complete(&api, conversation, &message).unwrap())
    };
    let fourth = client("d", until("go4"));
    wait_for("the fourth works", || workspace.join("at-go4").exists()).unwrap();
    let fifth = client("e", until("go5"));
    daemon
        .wait_until("two wait", |s| s["runs"]["waiting"] == 2)
        .unwrap();
    let sixth = http::complete(&api, "f", "hello").unwrap();
    assert_eq!(sixth.status, 429, "{sixth:?}");
    assert_eq!(sixth.json().unwrap()["error"]["code"], "queue_full");
    assert!(sixth.head.contains("retry-after:"), "{}", sixth.head);

    // Those that waited get their turn.
    for file in ["go1", "go2", "go4", "go5"] {
        std::fs::write(workspace.join(file), "").unwrap();
    }
    assert_eq!(first.finish().unwrap().code, 0);
    assert_eq!(second.finish().unwrap().code, 0);
    assert_eq!(fourth.join().unwrap().status, 200);
    assert_eq!(fifth.join().unwrap().status, 200);
    daemon
        .wait_until("idle", |s| {
            s["runs"] == json!({ "working": 0, "assigned": 0, "waiting": 0 })
        })
        .unwrap();
}

#[test]
fn turns_of_one_conversation_go_in_order_and_hold_no_slot_while_they_wait() {
    let model = Model::start().unwrap();
    let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    setup.config["concurrency"] = json!({ "maxConcurrentRuns": 2 });
    let mut daemon = setup.start().unwrap();
    let workspace = daemon.workspace();
    let first = daemon
        .start_send(
            "a",
            &bash("touch working; until [ -e go ]; do sleep 0.02; done"),
        )
        .unwrap();
    wait_for("the first works", || workspace.join("working").exists()).unwrap();
    let mut waiting = Vec::new();
    for n in 1..=4_u64 {
        waiting.push(
            daemon
                .start_send(
                    "a",
                    &format!(
                        "message {n} {} [[mock:text answer {n}]]",
                        bash(&format!("echo {n} >> order"))
                    ),
                )
                .unwrap(),
        );
        daemon
            .wait_until("it waits", |s| s["runs"]["waiting"] == n)
            .unwrap();
    }
    // Another conversation has the second slot, although four turns wait.
    let other = daemon.send("b", "hello").unwrap();
    assert_eq!(other.code, 0, "{other:?}");
    // One that waits can be cancelled, and the order of the others stays.
    let third = waiting.remove(2);
    third.interrupt().unwrap();
    let third = third.finish().unwrap();
    assert_eq!(third.code, 130, "{third:?}");
    daemon
        .wait_until("three wait", |s| s["runs"]["waiting"] == 3)
        .unwrap();

    std::fs::write(workspace.join("go"), "").unwrap();
    assert_eq!(first.finish().unwrap().code, 0);
    for sending in waiting {
        assert_eq!(sending.finish().unwrap().code, 0);
    }
    assert_eq!(
        std::fs::read_to_string(workspace.join("order")).unwrap(),
        "1\n2\n4\n"
    );
    // Each knew all that were before it.
    let body = model.last().unwrap().body.to_string();
    for known in ["answer 1", "answer 2", "message 4"] {
        assert!(body.contains(known), "{known}");
    }
    assert!(!body.contains("message 3"), "{body}");
}

#[test]
fn many_conversations_at_once_are_all_answered() {
    const MANY: usize = 16;
    let model = Model::start().unwrap();
    let mut daemon = Setup::new()
        .unwrap()
        .model(model.address(), "openai-chat")
        .start()
        .unwrap();
    let api = daemon.api().unwrap();
    let clients: Vec<_> = (0..MANY)
        .map(|n| {
            let api = api.clone();
            let text = format!("{} [[mock:echo]]", bash(&format!("echo answer-{n}")));
            std::thread::spawn(move || http::complete(&api, &format!("c{n}"), &text).unwrap())
        })
        .collect();
    for (n, client) in clients.into_iter().enumerate() {
        let answer = client.join().unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        let body = answer.json().unwrap();
        let content = body["choices"][0]["message"]["content"].as_str().unwrap();
        assert_eq!(content.trim(), format!("tool said: answer-{n}"));
    }
    let listed = daemon
        .json(&["runs", "list", "--limit", "100", "--status", "succeeded"])
        .unwrap();
    assert_eq!(listed["runs"].as_array().unwrap().len(), MANY);
    // What served them is gone, and the pool is as small as before.
    daemon
        .wait_until("small again", |s| {
            let workers = s["workers"].as_array().unwrap();
            s["runs"]["assigned"] == 0 && workers.iter().filter(|w| w["role"] == "run").count() <= 3
        })
        .unwrap();
    let scratch = daemon.folder().join(".mono-agent/run");
    wait_for("no scratch of theirs is left", || {
        std::fs::read_dir(&scratch).unwrap().count() <= 3
    })
    .unwrap();
}
