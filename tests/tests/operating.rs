//! What an operator does to a daemon that works: restart, drain, reload, read its logs, look at it.
//!
//! Each test has a real daemon with real confined workers, as those of `system` have.
#![allow(clippy::unwrap_used)]
#![forbid(unsafe_code)]

use mono_tests::daemon::{Daemon, Sending, Setup, wait_for};
use mono_tests::http;
use mono_tests::model::{Model, bash};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Output;
use std::time::{Duration, Instant};

/// The processes of the always-on roles.
fn processes(daemon: &Daemon) -> BTreeMap<String, i64> {
    let status = daemon.status().unwrap();
    let workers = status["workers"].as_array().unwrap().iter();
    workers
        .filter(|w| w["role"] != "run" && w["role"] != "mcp-server" && w["state"] == "serving")
        .map(|w| {
            (
                w["role"].as_str().unwrap().into(),
                w["pid"].as_i64().unwrap(),
            )
        })
        .collect()
}

/// A turn that works until [`open`] is called, and then asks the model once more.
fn held(daemon: &Daemon, conversation: &str) -> Sending {
    let wait = bash(&format!(
        "touch {conversation}.works; until [ -e {conversation}.open ]; do sleep 0.02; done"
    ));
    let message = format!("{wait} [[mock:text {conversation} is done]]");
    let sending = daemon.start_send(conversation, &message).unwrap();
    let sign = daemon.workspace().join(format!("{conversation}.works"));
    wait_for("the turn works", || sign.exists()).unwrap();
    sending
}

fn open(daemon: &Daemon, conversation: &str) {
    std::fs::write(daemon.workspace().join(format!("{conversation}.open")), "").unwrap();
}

/// Changes the configuration's file.
fn configure(daemon: &Daemon, change: impl FnOnce(&mut Value)) {
    daemon.configure(change).unwrap();
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn started(model: &Model) -> Daemon {
    let setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    setup.start().unwrap()
}

#[test]
fn a_restarted_worker_is_another_process_and_the_others_go_on() {
    let model = Model::start().unwrap();
    let mut daemon = started(&model);
    let before = processes(&daemon);
    let working = held(&daemon, "a");

    let restarted = daemon
        .json(&["worker", "restart", "channel-openai"])
        .unwrap();
    assert_eq!(restarted["ok"], true, "{restarted}");
    let mut expected = before.clone();
    expected.insert("channel-openai".into(), restarted["pid"].as_i64().unwrap());
    assert_ne!(before["channel-openai"], expected["channel-openai"]);
    assert_eq!(processes(&daemon), expected);

    // The listener never closed, and the turn of another channel was not touched.
    let answer = http::complete(&daemon.api().unwrap(), "b", "[[mock:text over http]]").unwrap();
    assert_eq!(answer.status, 200);
    open(&daemon, "a");
    assert_eq!(working.finish().unwrap().text(), "a is done");

    // One that a turn needs: the next turn has the new one.
    let output = daemon.run(&["worker", "restart", "egress"]).unwrap();
    assert!(
        text(&output).starts_with("egress serves again"),
        "{output:?}"
    );
    assert_eq!(daemon.send("c", "hello").unwrap().code, 0);
    daemon.wait_healthy().unwrap();

    let nobody = daemon.run(&["worker", "restart", "channel-slack"]).unwrap();
    assert_eq!(nobody.status.code(), Some(1));
    assert!(words(&nobody).contains("not_found"), "{nobody:?}");
}

#[test]
fn a_drained_worker_finishes_its_turn_and_stays_away_until_it_is_unparked() {
    let model = Model::start().unwrap();
    let mut daemon = started(&model);
    let working = held(&daemon, "a");
    assert!(
        daemon
            .run(&["worker", "drain", "egress"])
            .unwrap()
            .status
            .success()
    );
    assert_eq!(daemon.workers("egress", "draining").unwrap().len(), 1);
    // A turn that comes meanwhile waits for the role.
    let late = daemon.start_send("b", "[[mock:text b is done]]").unwrap();
    daemon
        .wait_until("the second turn waits", |s| s["runs"]["working"] == 2)
        .unwrap();
    // The first one still asks the model, through the worker that drains.
    open(&daemon, "a");
    assert_eq!(working.finish().unwrap().text(), "a is done");
    daemon
        .wait_until("parked", |s| {
            let workers = s["workers"].as_array().unwrap();
            workers
                .iter()
                .any(|w| w["role"] == "egress" && w["state"] == "parked")
        })
        .unwrap();
    let parked = &daemon.workers("egress", "parked").unwrap()[0];
    assert!(
        parked["last_line"].as_str().unwrap().contains("drained"),
        "{parked}"
    );
    // It was asked to; that is no failure of it.
    assert_eq!(parked["restarts"], 0, "{parked}");
    assert!(
        daemon
            .run(&["worker", "unpark", "egress"])
            .unwrap()
            .status
            .success()
    );
    assert_eq!(late.finish().unwrap().text(), "b is done");
    daemon.wait_healthy().unwrap();
}

#[test]
fn a_worker_that_exits_at_once_is_braked_and_the_others_serve() {
    let model = Model::start().unwrap();
    let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    setup.config["metrics"] = json!({ "enabled": true, "port": 0 });
    let setup = setup.own_programs().unwrap();
    let metrics = setup.folder().join("programs/mono-metrics");
    std::fs::remove_file(&metrics).unwrap();
    std::fs::copy("/bin/false", &metrics).unwrap();
    let begun = Instant::now();
    let mut daemon = setup.launch().unwrap();
    let of_metrics = |status: &Value| -> Value {
        let mut workers = status["workers"].as_array().unwrap().iter();
        workers.find(|w| w["role"] == "metrics").unwrap().clone()
    };
    let serve = |status: &Value| {
        let workers = status["workers"].as_array().unwrap().iter();
        let mut others = workers.filter(|w| w["role"] != "metrics" && w["role"] != "run");
        others.all(|w| w["state"] == "serving")
    };
    daemon.wait_until("the others serve", serve).unwrap();
    let before = processes(&daemon);
    let again = |status: &Value| of_metrics(status)["restarts"].as_u64() >= Some(4);
    daemon.wait_until("its fourth end", again).unwrap();
    // 400 ms, then twice as long each time: no more than ten in a minute, which then park it.
    assert!(begun.elapsed() >= Duration::from_millis(400 + 800 + 1_600));
    let status = daemon.status().unwrap();
    let worker = of_metrics(&status);
    assert_eq!(status["ok"], false, "{status}");
    assert!(
        worker["last_line"]
            .as_str()
            .unwrap()
            .contains("exited with 1"),
        "{worker}"
    );
    assert_eq!(daemon.send("a", "hello").unwrap().code, 0);
    assert_eq!(processes(&daemon), before);
}

#[test]
fn every_always_on_worker_can_be_drained_and_comes_back() {
    let model = Model::start().unwrap();
    let mut daemon = started(&model);
    for role in processes(&daemon).into_keys() {
        let drained = daemon.run(&["worker", "drain", &role]).unwrap();
        assert!(drained.status.success(), "{role}: {drained:?}");
        let parked = |w: &Value| w["role"] == *role && w["state"] == "parked";
        daemon
            .wait_until(&format!("{role} parked"), |s| {
                s["workers"].as_array().unwrap().iter().any(parked)
            })
            .unwrap();
        // The old name of the command.
        assert!(daemon.run(&["unpark", &role]).unwrap().status.success());
        daemon.wait_healthy().unwrap();
        assert_eq!(daemon.send("a", "hello").unwrap().code, 0, "{role}");
    }
}

#[test]
fn a_reload_changes_the_next_turn_and_not_the_one_under_way() {
    let model = Model::start().unwrap();
    let mut daemon = started(&model);
    let before = processes(&daemon);
    let working = held(&daemon, "a");
    configure(&daemon, |config| {
        config["runtime"]["model"] = json!("test:mock-2")
    });
    let report = daemon.json(&["reload"]).unwrap();
    assert_eq!(
        (&report["ok"], &report["replaced"], &report["needsRestart"]),
        (&json!(true), &json!(["egress", "run"]), &json!([])),
        "{report}"
    );
    let after = processes(&daemon);
    assert_ne!(before["egress"], after["egress"]);
    for role in ["store", "artifact", "app-bridge", "channel-openai"] {
        assert_eq!(before[role], after[role], "{role}");
    }
    // Both are there, and it is no illness that the old one still is.
    assert_eq!(daemon.workers("egress", "draining").unwrap().len(), 1);
    assert_eq!(daemon.status().unwrap()["ok"], true);

    assert_eq!(daemon.send("b", "hello").unwrap().code, 0);
    assert_eq!(model.last().unwrap().model, "mock-2");
    open(&daemon, "a");
    assert_eq!(working.finish().unwrap().text(), "a is done");
    assert_eq!(model.last().unwrap().model, "mock-1");
    // Nothing holds the old worker any more.
    daemon
        .wait_until("one egress", |s| {
            let workers = s["workers"].as_array().unwrap();
            workers.iter().filter(|w| w["role"] == "egress").count() == 1
        })
        .unwrap();
    assert_eq!(
        daemon.workers("egress", "serving").unwrap()[0]["restarts"],
        0
    );
}

#[test]
fn what_takes_a_restart_is_named_with_both_values_and_the_rest_applies() {
    let model = Model::start().unwrap();
    let mut daemon = started(&model);
    let api = daemon.api().unwrap();
    configure(&daemon, |config| {
        config["openaiApi"]["port"] = json!(1);
        config["runtime"]["model"] = json!("test:mock-2");
    });
    // The second time it is still named: what runs has not changed.
    for _ in 0..2 {
        let report = daemon.json(&["reload"]).unwrap();
        let fixed = json!([{ "key": "openaiApi.port", "running": "0", "configured": "1" }]);
        assert_eq!(report["needsRestart"], fixed, "{report}");
    }
    let told = text(&daemon.run(&["reload"]).unwrap());
    let line = "openaiApi.port stays 0 until the daemon is restarted; the configuration says 1";
    assert!(told.contains(line), "{told}");
    assert_eq!(http::complete(&api, "a", "hello").unwrap().status, 200);
    assert_eq!(model.last().unwrap().model, "mock-2");
    daemon.wait_healthy().unwrap();
}

#[test]
fn a_reload_with_a_broken_configuration_changes_nothing() {
    let model = Model::start().unwrap();
    let setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    let mut daemon = setup.start().unwrap();
    let before = processes(&daemon);
    let good = daemon.folder().join("mono-agent.config.json");
    let text_before = std::fs::read(&good).unwrap();

    // Misspelt, not JSON at all, not there, and with a key that can't be had.
    let misspelt = r#"{"runtime": {"modle": "test:mock-2"}}"#;
    for (broken, named) in [(misspelt, "runtime.modle"), ("{", "mono-agent.config.json")] {
        std::fs::write(&good, broken).unwrap();
        let refused = daemon.run(&["reload"]).unwrap();
        assert_eq!(refused.status.code(), Some(1));
        let words = words(&refused);
        assert!(
            words.contains("nothing was changed") && words.contains(named),
            "{words}"
        );
    }
    std::fs::remove_file(&good).unwrap();
    assert_eq!(daemon.run(&["reload"]).unwrap().status.code(), Some(1));
    std::fs::write(&good, &text_before).unwrap();
    configure(&daemon, |config| {
        config["runtime"]["model"] = json!("test:mock-2");
        config["providers"]["test"]["apiKeyFile"] = json!("nowhere");
    });
    let refused = daemon.json(&["reload"]).unwrap();
    assert_eq!(
        (&refused["ok"], &refused["error"]["kind"]),
        (&json!(false), &json!("config_invalid"))
    );
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("nowhere"),
        "{refused}"
    );

    assert_eq!(processes(&daemon), before);
    assert_eq!(daemon.send("a", "hello").unwrap().code, 0);
    assert_eq!(model.last().unwrap().model, "mock-1");
    // The same by a signal: refused in the log, and the daemon goes on.
    let hangup = nix::sys::signal::Signal::SIGHUP;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(daemon.pid()), hangup).unwrap();
    wait_for("the refusal", || {
        daemon.log().matches("is not reloaded").count() > 4
    })
    .unwrap();
    daemon.wait_healthy().unwrap();
    assert_eq!(processes(&daemon), before);
}

#[test]
fn a_new_worker_that_cannot_serve_leaves_the_old_one_in_its_place() {
    let model = Model::start().unwrap();
    let setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    setup.secret("key", "not\u{1}a key").unwrap();
    let mut daemon = setup.start().unwrap();
    let before = processes(&daemon);
    configure(&daemon, |config| {
        config["runtime"]["model"] = json!("test:mock-2");
        config["providers"]["test"]["apiKeyFile"] = json!("key");
    });
    let report = daemon.json(&["reload"]).unwrap();
    assert_eq!(
        (&report["ok"], &report["failed"][0]["role"]),
        (&json!(false), &json!("egress")),
        "{report}"
    );
    assert_eq!(processes(&daemon), before);
    assert_eq!(daemon.send("a", "hello").unwrap().code, 0);
    assert_eq!(model.last().unwrap().model, "mock-1");
    // A reload with the same configuration tries again.
    let report = daemon.json(&["reload"]).unwrap();
    assert_eq!(report["failed"][0]["role"], "egress", "{report}");
    // Set right, the next reload brings it.
    configure(&daemon, |config| {
        config["providers"]["test"]
            .as_object_mut()
            .unwrap()
            .remove("apiKeyFile");
    });
    assert_eq!(daemon.json(&["reload"]).unwrap()["ok"], true);
    assert_eq!(daemon.send("a", "hello").unwrap().code, 0);
    assert_eq!(model.last().unwrap().model, "mock-2");
    daemon.wait_healthy().unwrap();
}

#[test]
fn a_changed_identity_is_the_next_turns_after_a_reload() {
    let model = Model::start().unwrap();
    let daemon = started(&model);
    let identity = |text: &str| {
        std::fs::write(daemon.folder().join("IDENTITY.md"), text).unwrap();
        assert!(daemon.run(&["reload"]).unwrap().status.success());
        assert_eq!(daemon.send("a", "hello").unwrap().code, 0);
        model.last().unwrap().body.to_string()
    };
    assert!(identity("You are called Heliotrope.\n").contains("Heliotrope"));
    let second = identity("You are called Mauve.\n");
    assert!(
        second.contains("Mauve") && !second.contains("Heliotrope"),
        "{second}"
    );
}

#[test]
fn logs_are_told_apart_by_role_and_run_and_are_followed() {
    let model = Model::start().unwrap();
    let daemon = started(&model);
    let failed = |conversation: &str| {
        let sent = daemon.send(conversation, "[[mock:status 400]]").unwrap();
        assert_eq!(sent.code, 1, "{sent:?}");
        sent.run().to_owned()
    };
    let (first, second) = (failed("a"), failed("b"));
    assert_ne!(first, second);
    let entries = |arguments: &[&str]| -> Vec<Value> {
        let mut all = vec!["logs", "--json"];
        all.extend(arguments);
        let output = daemon.run(&all).unwrap();
        assert!(output.status.success(), "{output:?}");
        let lines = text(&output);
        lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let says_failed = |run: &String| {
        let entries = entries(&["--run", run]);
        let mut texts = entries.iter().filter_map(|entry| entry["text"].as_str());
        texts.any(|text| text.contains("failed"))
    };
    wait_for("both turns' lines", || {
        [&first, &second].into_iter().all(says_failed)
    })
    .unwrap();
    for run in [&first, &second] {
        for entry in entries(&["--run", run]) {
            assert_eq!(
                (&entry["run"], &entry["role"]),
                (&json!(run), &json!("run")),
                "{entry}"
            );
        }
    }
    let artifact = entries(&["artifact"]);
    assert!(!artifact.is_empty() && artifact.iter().all(|e| e["role"] == "artifact"));
    assert!(entries(&["artifact", "--run", &first]).is_empty());
    let all = entries(&[]);
    assert!(
        all.windows(2)
            .all(|two| two[0]["seq"].as_u64() < two[1]["seq"].as_u64())
    );
    let shown = text(&daemon.run(&["logs", "run"]).unwrap());
    assert!(shown.lines().all(|line| line.contains("Z run[")), "{shown}");

    // What comes later is followed, each line once.
    let mut following = daemon
        .monoctl()
        .args(["logs", "--json", "--follow", "run"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let third = failed("c");
    let (mut seen, mut told) = (Vec::new(), false);
    let lines = std::io::BufReader::new(following.stdout.take().unwrap());
    for line in std::io::BufRead::lines(lines) {
        let entry: Value = serde_json::from_str(&line.unwrap()).unwrap();
        told = entry["run"] == json!(third);
        seen.push(entry["seq"].as_u64().unwrap());
        if told {
            break;
        }
    }
    assert!(told, "{seen:?}");
    following.kill().unwrap();
    following.wait().unwrap();
    assert!(seen.windows(2).all(|two| two[0] < two[1]), "{seen:?}");
}

#[test]
fn the_doctor_finds_nothing_missing_and_names_what_is() {
    let model = Model::start().unwrap();
    let daemon = started(&model);
    let file = daemon.folder().join("mono-agent.config.json");
    let doctor = |file: &std::path::Path| {
        let file = file.to_str().unwrap();
        daemon.json(&["doctor", "--config", file]).unwrap()
    };
    let report = doctor(&file);
    assert_eq!(report["ok"], true, "{report}");
    let state = |report: &Value, check: &str| {
        let all = report["findings"].as_array().unwrap().iter();
        let found = all.filter(|f| f["check"] == check);
        found
            .map(|f| f["state"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    for check in [
        "landlock",
        "namespaces",
        "seccomp",
        "config",
        "state",
        "workspace",
        "socket",
        "daemon",
        "workers",
    ] {
        assert_eq!(state(&report, check), ["ok"], "{check}: {report}");
    }
    let code = daemon
        .run(&["doctor", "--config", file.to_str().unwrap()])
        .unwrap()
        .status;
    assert_eq!(code.code(), Some(0));

    // What would refuse the next start is found while the daemon still runs.
    let state_dir = daemon.folder().join(".mono-agent");
    let mode =
        |bits| -> std::fs::Permissions { std::os::unix::fs::PermissionsExt::from_mode(bits) };
    let usual = std::fs::metadata(&state_dir).unwrap().permissions();
    std::fs::set_permissions(&state_dir, mode(0o773)).unwrap();
    let report = doctor(&file);
    assert_eq!(
        (state(&report, "state"), &report["ok"]),
        (vec!["missing".to_owned()], &json!(false))
    );
    std::fs::set_permissions(&state_dir, usual).unwrap();

    assert!(
        daemon
            .run(&["worker", "drain", "app-bridge"])
            .unwrap()
            .status
            .success()
    );
    wait_for("the doctor sees it", || {
        let report = doctor(&file);
        report
            .to_string()
            .contains("monoctl worker unpark app-bridge")
    })
    .unwrap();
}

#[test]
fn a_policy_is_shown_with_what_is_in_force() {
    let model = Model::start().unwrap();
    let mut daemon = started(&model);
    // One that starts is not confined yet.
    daemon.at_rest().unwrap();
    for role in [
        "store",
        "artifact",
        "egress",
        "app-bridge",
        "channel-openai",
        "run",
    ] {
        let shown = daemon.json(&["policy", "show", role]).unwrap();
        assert!(
            shown["text"]
                .as_str()
                .unwrap()
                .starts_with(&format!("{role}: ")),
            "{role}"
        );
        let workers = shown["workers"].as_array().unwrap();
        assert!(!workers.is_empty(), "{role}");
        for worker in workers {
            assert_eq!(worker["role"], role);
            assert_eq!(worker["sandbox"]["seccomp"], 2, "{worker}");
        }
    }
    let text = text(&daemon.run(&["policy", "show", "egress"]).unwrap());
    assert!(
        text.contains("seccomp      filter, ") && text.contains("confined     yes"),
        "{text}"
    );
    let listed = daemon.json(&["worker", "show", "egress"]).unwrap();
    let shown = daemon.json(&["policy", "show", "egress"]).unwrap();
    assert_eq!(
        listed["workers"][0]["sandbox"],
        shown["workers"][0]["sandbox"]
    );
}

#[test]
fn top_shows_every_worker_with_its_use_and_the_turns() {
    let model = Model::start().unwrap();
    let mut daemon = started(&model);
    let working = held(&daemon, "a");
    // Use is measured between two looks, at who is there at both.
    daemon.at_rest().unwrap();
    let view = text(&daemon.run(&["top", "--once"]).unwrap());
    assert!(
        view.contains("healthy") && view.contains("turns: 1 at work, 0 waiting"),
        "{view}"
    );
    for (role, pid) in processes(&daemon) {
        let line = view.lines().find(|line| line.starts_with(&role)).unwrap();
        assert!(line.contains(&pid.to_string()), "{line}");
    }
    let seen = daemon.json(&["top", "--once"]).unwrap();
    let workers = seen["workers"].as_array().unwrap();
    for worker in workers.iter().filter(|w| w["pid"].is_i64()) {
        assert!(worker["cpu_percent"].is_f64(), "{worker}");
        assert!(
            worker["tree_rss_bytes"].as_u64() >= Some(1 << 20),
            "{worker}"
        );
    }
    // The shell that the turn has started counts for its run.
    let run = workers
        .iter()
        .find(|w| w["role"] == "run" && w["state"] == "serving")
        .unwrap();
    let own = mono_tests::processes::below(i32::try_from(run["pid"].as_i64().unwrap()).unwrap());
    assert!(!own.is_empty());
    open(&daemon, "a");
    assert_eq!(working.finish().unwrap().code, 0);
}

/// The scratch folders that belong to no run yet, by their numbers.
fn waiting_folders(daemon: &Daemon) -> BTreeSet<u64> {
    let folders = std::fs::read_dir(daemon.folder().join(".mono-agent/run")).unwrap();
    folders
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.strip_prefix("pool-")?.parse().ok()
        })
        .collect()
}

/// Waits until two idle run workers have theirs and the next one's is there too, none older than this
/// one, and tells which that is.
fn made_ahead(daemon: &Daemon, since: u64) -> u64 {
    wait_for("folders of two idle workers and of the next", || {
        let folders = waiting_folders(daemon);
        folders.len() == 3
            && folders.first() > Some(&since)
            && daemon.workers("run", "idle").unwrap().len() == 2
    })
    .unwrap();
    *waiting_folders(daemon).last().unwrap()
}

#[test]
fn what_the_next_run_worker_starts_with_is_made_ahead_and_never_out_of_date() {
    let model = Model::start().unwrap();
    let mut daemon = started(&model);
    let first = made_ahead(&daemon, 0);
    // A turn takes an idle worker, and the next worker takes what was made.
    daemon.answered("a", "hello").unwrap();
    let second = made_ahead(&daemon, 0);
    assert!(second > first);
    assert!(waiting_folders(&daemon).contains(&first));
    // Somebody cleared it away: the next worker gets new ones.
    let folder = |number| {
        daemon
            .folder()
            .join(format!(".mono-agent/run/pool-{number}"))
    };
    std::fs::remove_dir_all(folder(second)).unwrap();
    for message in ["one", "two", "three"] {
        assert_eq!(daemon.send("a", message).unwrap().code, 0);
    }
    let third = made_ahead(&daemon, second);
    assert!(third > second && !folder(second).exists());
    // It is for the configuration that was read before.
    assert_eq!(daemon.json(&["reload"]).unwrap()["ok"], true);
    made_ahead(&daemon, third);
    assert!(!folder(third).exists());
    assert_eq!(daemon.send("a", "once more").unwrap().code, 0);
    let last = folder(made_ahead(&daemon, third));
    assert_eq!(daemon.stop().unwrap(), 0);
    assert!(!last.exists());
}
