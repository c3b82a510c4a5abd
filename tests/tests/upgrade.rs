//! A new program in a running daemon: no turn, no connection and no wish is lost.
#![allow(clippy::unwrap_used)]
#![forbid(unsafe_code)]

use mono_tests::console::Browser;
use mono_tests::daemon::{Daemon, Setup, wait_for};
use mono_tests::http;
use mono_tests::model::{Model, bash};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Inode of the program that a process runs.
fn program(pid: i64) -> u64 {
    std::fs::metadata(format!("/proc/{pid}/exe")).unwrap().ino()
}

fn of_role(status: &Value) -> BTreeMap<String, i64> {
    let workers = status["workers"].as_array().unwrap().iter();
    let always = workers.filter(|w| w["role"] != "run" && w["role"] != "mcp-server");
    always
        .filter_map(|w| Some((w["role"].as_str()?.to_owned(), w["pid"].as_i64()?)))
        .collect()
}

/// Another file of the same name with the same program.
fn renew(folder: &Path) {
    // All of them first: what is put beside them is none of them.
    let entries: Vec<_> = std::fs::read_dir(folder).unwrap().collect();
    for entry in entries {
        let path = entry.unwrap().path();
        let beside = path.with_extension("new");
        std::fs::copy(&path, &beside).unwrap();
        std::fs::rename(&beside, &path).unwrap();
    }
}

fn works(daemon: &Daemon, conversation: &str) -> String {
    let sign = daemon.workspace().join(format!("{conversation}.works"));
    assert!(!sign.exists());
    format!(
        "{} [[mock:text {conversation} is done]]",
        bash(&format!(
            "touch {conversation}.works; until [ -e {conversation}.open ]; do sleep 0.02; done"
        ))
    )
}

fn wait_works(daemon: &Daemon, conversation: &str) {
    let sign = daemon.workspace().join(format!("{conversation}.works"));
    wait_for("the turn works", || sign.exists()).unwrap();
}

fn open(daemon: &Daemon, conversation: &str) {
    std::fs::write(daemon.workspace().join(format!("{conversation}.open")), "").unwrap();
}

fn started(model: &Model) -> Daemon {
    let setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    setup.own_programs().unwrap().start().unwrap()
}

#[test]
fn turns_go_on_and_everything_that_comes_later_has_the_new_program() {
    let model = Model::start().unwrap();
    let mut daemon = started(&model);
    let api = daemon.api().unwrap();
    let before = of_role(&daemon.status().unwrap());
    let old = program(daemon.pid().into());

    // One turn of an operator, one of a client of the API, one that waits behind the first.
    let message = works(&daemon, "a");
    let working = daemon.start_send("a", &message).unwrap();
    wait_works(&daemon, "a");
    // The old run's forbidden calls are heard by the new program.
    let message =
        works(&daemon, "b").replace("sleep 0.02; done", "sleep 0.02; done; unshare -U true");
    let client = {
        let api = api.clone();
        std::thread::spawn(move || http::complete(&api, "b", &message))
    };
    wait_works(&daemon, "b");
    let waiting = daemon
        .start_send("a", "and then [[mock:text after a]]")
        .unwrap();
    daemon
        .wait_until("one waits", |s| s["runs"]["waiting"] == 1)
        .unwrap();

    renew(&daemon.folder().join("programs"));
    let report = daemon.json(&["reload", "--exec"]).unwrap();
    assert_eq!(report["ok"], true, "{report}\n{}", daemon.log());
    assert_eq!(report["later"], json!(["store", "artifact"]), "{report}");
    let new = program(daemon.pid().into());
    assert_ne!(old, new, "the same process runs another program");
    let status = daemon.status().unwrap();
    assert_eq!(status["ok"], true, "{status}");
    let during = of_role(&status);
    for role in ["store", "artifact"] {
        assert_eq!(before[role], during[role], "{role}: a turn needs it");
    }
    // A turn of another conversation doesn't wait for the old ones.
    assert_eq!(daemon.send("c", "hello").unwrap().code, 0);
    // The port is the same, and was never closed.
    assert_eq!(http::complete(&api, "d", "hello").unwrap().status, 200);

    open(&daemon, "a");
    open(&daemon, "b");
    assert_eq!(working.finish().unwrap().text(), "a is done");
    assert_eq!(waiting.finish().unwrap().text(), "after a");
    let answer = client.join().unwrap().unwrap();
    let content = &answer.json().unwrap()["choices"][0]["message"]["content"];
    assert_eq!(content, "b is done");
    daemon
        .wait_until("the forbidden call is counted", |s| {
            s["violations"] == json!({ "run": { "unshare": 1 } })
        })
        .unwrap();

    daemon
        .wait_until("all workers are new", |s| {
            let all = of_role(s);
            all.len() == before.len()
                && s["ok"] == true
                && all.iter().all(|(role, pid)| before[role] != *pid)
                && s["workers"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .all(|w| w["outdated"].is_null())
        })
        .unwrap();
    for worker in daemon.status().unwrap()["workers"].as_array().unwrap() {
        assert_eq!(worker["restarts"], 0, "an upgrade is no failure: {worker}");
    }
    // The history that the old store wrote is the new one's.
    assert_eq!(daemon.send("a", "again").unwrap().code, 0);
    let runs = daemon
        .json(&["runs", "list", "--conversation", "a"])
        .unwrap();
    let statuses: Vec<_> = runs["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["status"].clone())
        .collect();
    assert_eq!(statuses, ["succeeded"; 3], "{runs}");
    // And once more, from the program that took over.
    renew(&daemon.folder().join("programs"));
    assert_eq!(daemon.json(&["reload", "--exec"]).unwrap()["ok"], true);
    assert_ne!(program(daemon.pid().into()), new);
    daemon.wait_healthy().unwrap();
    daemon.terminate().unwrap();
    assert_eq!(daemon.wait_end().unwrap(), 0);
}

#[test]
fn a_program_that_would_not_start_is_refused_and_nothing_changes() {
    let model = Model::start().unwrap();
    let daemon = started(&model);
    let before = of_role(&daemon.status().unwrap());
    let folder = daemon.folder().join("programs");
    std::fs::remove_file(folder.join("monod")).unwrap();
    std::fs::write(
        folder.join("monod"),
        "#!/bin/sh\necho 'no such kernel' >&2\nexit 1\n",
    )
    .unwrap();
    std::fs::set_permissions(folder.join("monod"), PermissionsExt::from_mode(0o755)).unwrap();
    let refused = daemon.run(&["reload", "--exec"]).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("nothing was changed") && said.contains("no such kernel"),
        "{said}"
    );
    assert_eq!(before, of_role(&daemon.status().unwrap()));
    assert_eq!(daemon.send("a", "hello").unwrap().code, 0);
    // Not there at all.
    std::fs::remove_file(folder.join("monod")).unwrap();
    let refused = daemon.run(&["reload", "--exec"]).unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("can't be run"));
    assert_eq!(before, of_role(&daemon.status().unwrap()));
}

#[test]
fn settings_that_take_a_restart_refuse_it_and_are_named() {
    let model = Model::start().unwrap();
    let daemon = started(&model);
    let file = daemon.folder().join("mono-agent.config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    config["openaiApi"]["port"] = json!(1);
    std::fs::write(&file, config.to_string()).unwrap();
    let refused = daemon.run(&["reload", "--exec"]).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("openaiApi.port stays 0 until a restart, not 1"),
        "{said}"
    );
    std::fs::write(&file, "{").unwrap();
    assert_eq!(
        daemon.run(&["reload", "--exec"]).unwrap().status.code(),
        Some(1)
    );
    assert_eq!(daemon.send("a", "hello").unwrap().code, 0);
}

#[test]
fn a_worker_that_died_meanwhile_is_noticed_and_replaced() {
    let model = Model::start().unwrap();
    let mut daemon = started(&model);
    let message = works(&daemon, "a");
    let working = daemon.start_send("a", &message).unwrap();
    wait_works(&daemon, "a");
    let egress = daemon.worker("egress").unwrap();
    assert_eq!(daemon.json(&["reload", "--exec"]).unwrap()["ok"], true);
    let run = daemon.status().unwrap()["workers"]
        .as_array()
        .unwrap()
        .iter()
        .find(|w| w["role"] == "run" && w["state"] == "serving")
        .unwrap()["pid"]
        .as_i64()
        .unwrap();
    daemon.kill(i32::try_from(run).unwrap()).unwrap();
    let sent = working.finish().unwrap();
    assert_ne!(sent.code, 0);
    daemon.wait_replaced("egress", egress).unwrap();
    daemon.wait_healthy().unwrap();
    // Not before: the store is being replaced, too.
    let record = daemon.settled(sent.run()).unwrap();
    assert_eq!(record["status"], "interrupted", "{record}");
    assert_eq!(daemon.send("a", "hello").unwrap().code, 0);
}

#[test]
fn the_console_keeps_its_logins_its_address_and_its_answers() {
    let model = Model::start().unwrap();
    let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    setup.config["console"] = json!({ "enabled": true, "port": 0 });
    let mut daemon = setup.own_programs().unwrap().start().unwrap();
    let browser = Browser::log_in(&daemon).unwrap();
    let begin = |text: &str| {
        let thread = browser.thread().unwrap();
        let reply = browser.turn(&thread, &json!({ "text": text })).unwrap();
        (thread, reply)
    };
    let (working, answer) = begin(&works(&daemon, "a"));
    let (stopped, hanging) = begin("[[mock:hang]]");
    wait_works(&daemon, "a");
    let mut watched = browser.frames(&working, &answer, 0).unwrap();
    watched.until(|frame| frame.name == "event").unwrap();
    let old = daemon.worker("channel-console").unwrap();

    renew(&daemon.folder().join("programs"));
    assert_eq!(daemon.json(&["reload", "--exec"]).unwrap()["ok"], true);
    daemon.wait_replaced("channel-console", old).unwrap();
    // The same address and the same cookie, at another worker, which stops what it did not begin.
    assert!(browser.get("/bootstrap").is_ok());
    let stop = json!({ "messageId": hanging });
    wait_for("the answer is stopped", || {
        let asked = browser.change("POST", &format!("/threads/{stopped}/cancel"), &stop);
        asked.is_ok_and(|answer| answer.status == 202)
    })
    .unwrap();
    let end = browser.finished(&stopped, &hanging).unwrap();
    assert_eq!(end["status"], "cancelled", "{end}");
    // Who watches sees it through, and who comes now reads the same.
    open(&daemon, "a");
    let end = watched.until(|frame| frame.name == "finish").unwrap();
    assert_eq!(end.data["message"]["text"], "a is done");
    let read = browser.finished(&working, &answer).unwrap();
    assert_eq!(read, end.data["message"]);
    daemon.wait_healthy().unwrap();
}
