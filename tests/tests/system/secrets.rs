//! Keys reach the provider and nobody else.

use ipc_proto::edges::continuation::CLAIM_VARIABLES;
use mono_tests::daemon::{Daemon, Setup, wait_for};
use mono_tests::model::{Model, bash, call};
use mono_tests::processes::{Process, below, remembers};
use mono_tests::work;
use nix::unistd::geteuid;
use serde_json::{Value, json};
use std::path::Path;

const FROM_ENVIRONMENT: &str = "sk-canary-environment-5f0c1";
const FROM_FILE: &str = "sk-canary-file-7d2e9";
const BEARER: &str = "bearer-canary-91ab3";
const ALL: [&str; 3] = [FROM_ENVIRONMENT, FROM_FILE, BEARER];

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|w| w == text.as_bytes())
}

/// What was read; none of what is gone meanwhile, as the folder of a run that has ended.
fn still<T>(read: std::io::Result<T>) -> Option<T> {
    match read {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        other => Some(other.unwrap()),
    }
}

/// Files below a folder that hold a key.
fn holding(folder: &Path, key: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in still(std::fs::read_dir(&folder)).into_iter().flatten() {
            let entry = entry.unwrap();
            let Some(kind) = still(entry.file_type()) else {
                continue;
            };
            let holds = || still(std::fs::read(entry.path())).is_some_and(|b| contains(&b, key));
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() && holds() {
                found.push(entry.path().to_string_lossy().into_owned());
            }
        }
    }
    found
}

/// Looks at the command line and the environment of every process below the daemon.
fn look_at_processes(daemon: &Daemon) -> usize {
    let mut readable = 0;
    let tree = below(daemon.pid());
    assert!(tree.len() >= 7, "{tree:?}");
    for process in tree {
        for file in ["cmdline", "environ"] {
            let path = format!("/proc/{}/{file}", process.pid);
            // Workers are not dumpable: who is not root can't read them, which is as good.
            let Ok(bytes) = std::fs::read(&path) else {
                continue;
            };
            readable += usize::from(file == "environ");
            for key in ALL {
                assert!(
                    !contains(&bytes, key),
                    "{process:?} has {key} in its {file}"
                );
            }
        }
    }
    readable
}

#[test]
fn a_named_environment_file_counts_as_exported_and_what_is_exported_is_stronger() {
    let model = Model::start().unwrap();
    let mut setup = Setup::new()
        .unwrap()
        .model(model.address(), "openai-chat")
        .environment("MONO_AGENT_MODEL", "test:mock-2");
    setup.config["providers"]["test"]["apiKeyEnv"] = json!("KEY_OF_THE_FILE");
    let file = setup.folder().join("variables");
    let lines = format!("KEY_OF_THE_FILE={FROM_FILE}\nMONO_AGENT_MODEL=test:mock-3\n");
    setup.secret("variables", &lines).unwrap();
    // Nobody named this one.
    setup
        .secret(".env", "MONO_AGENT_MODEL=test:mock-4")
        .unwrap();
    let mut daemon = setup
        .argument("--env-file")
        .argument(&file.to_string_lossy())
        .start()
        .unwrap();
    let asked = |daemon: &Daemon| {
        assert_eq!(daemon.send("a", "hello").unwrap().code, 0);
        let seen = model.last().unwrap();
        assert_eq!(
            (&*seen.model, seen.key.as_deref()),
            ("mock-2", Some(FROM_FILE))
        );
    };
    asked(&daemon);
    // A reload doesn't read it again, and has what it said.
    std::fs::remove_file(&file).unwrap();
    assert_eq!(daemon.json(&["reload"]).unwrap()["ok"], true);
    daemon.wait_healthy().unwrap();
    asked(&daemon);
    let gone = Setup::new()
        .unwrap()
        .argument("--check")
        .argument("--env-file=/nowhere/variables");
    let (code, words) = gone.refused().unwrap();
    assert_eq!(code, 1, "{words}");
    assert!(
        words.contains("/nowhere/variables") && words.contains("no such file"),
        "{words}"
    );
}

#[test]
fn keys_reach_the_provider_and_stand_nowhere_else() {
    let model = Model::start().unwrap();
    let mut setup = Setup::new()
        .unwrap()
        .model(model.address(), "openai-chat")
        .everything("everything")
        .environment("TEST_MODEL_KEY", FROM_ENVIRONMENT)
        .environment("MONO_LOG", "debug");
    let base = setup.config["providers"]["test"]["baseUrl"].clone();
    setup.config["runtime"]["fallbacks"] = json!([{ "model": "other:mock-2" }]);
    setup.config["providers"]["test"]["apiKeyEnv"] = json!("TEST_MODEL_KEY");
    setup.config["providers"]["other"] =
        json!({ "baseUrl": base, "wire": "openai-responses", "apiKeyFile": "other.key" });
    setup.secret("other.key", FROM_FILE).unwrap();
    setup.config["openaiApi"]["apiKeyFile"] = json!("bearer.key");
    setup.secret("bearer.key", BEARER).unwrap();
    let daemon = setup.start().unwrap();

    // Everything that could carry a key somewhere: tools, servers, refusals that quote it.
    let look = bash("env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; set");
    let env = call("get-env", &json!({}));
    let sent = daemon
        .send(
            "a",
            &format!("{look} {env} [[mock@mock-1:status 401]] [[mock:echo]]"),
        )
        .unwrap();
    assert_eq!(sent.code, 0, "{sent:?}");
    assert_eq!(sent.completed("get-env")[0]["ok"], true);
    let leaked = daemon.send("b", "[[mock:leak]]").unwrap();
    assert_eq!(leaked.code, 1, "{leaked:?}");

    // Both were really used, each with its own provider.
    let seen = model.stats().seen;
    for (name, key) in [("mock-1", FROM_ENVIRONMENT), ("mock-2", FROM_FILE)] {
        let with = |request: &&mono_tests::mock_model::Seen| request.model == name;
        assert!(seen.iter().filter(with).count() > 0, "{seen:?}");
        assert!(
            seen.iter()
                .filter(with)
                .all(|request| request.key.as_deref() == Some(key)),
            "{seen:?}"
        );
    }
    for key in ALL {
        for events in [&sent.events, &leaked.events] {
            let said = serde_json::to_string(events).unwrap();
            assert!(!said.contains(key), "{key} in {said}");
        }
        let bodies: Vec<_> = seen
            .iter()
            .filter(|s| s.body.to_string().contains(key))
            .collect();
        assert!(bodies.is_empty(), "{key} in {bodies:?}");
        assert!(!daemon.log().contains(key), "{key} in the log");
        let runs = [sent.run(), leaked.run()]
            .map(|run| daemon.show(run).unwrap().to_string())
            .concat();
        assert!(!runs.contains(key), "{key} in {runs}");
        let files: Vec<_> = holding(daemon.folder(), key)
            .into_iter()
            .filter(|f| !f.ends_with(".key"))
            .collect();
        assert!(files.is_empty(), "{key} in {files:?}");
        let shown = daemon
            .run(&[
                "config",
                "show",
                "--config",
                &daemon
                    .folder()
                    .join("mono-agent.config.json")
                    .to_string_lossy(),
            ])
            .unwrap();
        assert!(!contains(&shown.stdout, key), "{key} is shown");
    }
    let readable = look_at_processes(&daemon);
    if geteuid().is_root() {
        assert!(readable >= 7, "only {readable} environments could be read");
    }
}

#[test]
fn a_worker_that_cannot_work_is_parked_with_its_reason_and_comes_back_when_it_is_mended() {
    let model = Model::start().unwrap();
    let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    setup.config["providers"]["test"]["apiKeyFile"] = json!("model.key");
    setup.secret("model.key", "").unwrap();
    let mut daemon = setup.launch().unwrap();
    let egress = |status: &Value| -> Value {
        let workers = status["workers"].as_array().cloned().unwrap_or_default();
        workers
            .into_iter()
            .find(|w| w["role"] == "egress")
            .unwrap_or_default()
    };
    daemon
        .wait_until("parked", |status| egress(status)["state"] == "parked")
        .unwrap();
    let status = daemon.status().unwrap();
    assert_eq!(status["ok"], false);
    let words = egress(&status)["last_line"].as_str().unwrap().to_owned();
    assert!(
        words.contains("the key file is empty") && words.contains("provider test"),
        "{words}"
    );
    assert_eq!(daemon.run(&["status"]).unwrap().status.code(), Some(1));

    // A message is not left waiting.
    let sent = daemon.send("a", "hello").unwrap();
    assert_eq!(sent.code, 1, "{sent:?}");
    assert_eq!(
        sent.finish["error"]["kind"], "worker_unavailable",
        "{sent:?}"
    );
    let message = sent.finish["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("egress") && message.contains("monoctl status"),
        "{message}"
    );

    // Mended and lifted, the daemon works without a restart.
    std::fs::write(daemon.folder().join("model.key"), FROM_FILE).unwrap();
    let lifted = daemon.run(&["worker", "unpark", "egress"]).unwrap();
    assert!(lifted.status.success(), "{lifted:?}");
    daemon.wait_healthy().unwrap();
    assert_eq!(daemon.send("a", "hello").unwrap().text(), "pong");
    assert_eq!(model.last().unwrap().key.as_deref(), Some(FROM_FILE));
}

/// What lets a server claim is the server's; the run for which it claims never has it, not even for a
/// moment that its memory would remember.
#[test]
fn a_run_never_sees_what_lets_its_server_claim() {
    let model = Model::start().unwrap();
    let mut setup = Setup::new().unwrap().model(model.address(), "openai-chat");
    work::stdio(&mut setup, "near").unwrap();
    work::let_claim(&mut setup, &["near"]).unwrap();
    let daemon = setup.start().unwrap();
    let ask = call("start_background_work", &json!({ "task": "t" }));
    let hold = bash("touch working; until [ -e go ]; do sleep 0.02; done");
    let sending = daemon
        .start_send("c", &format!("{ask} {hold} [[mock:text begun]]"))
        .unwrap();
    wait_for("the turn goes on", || {
        daemon.workspace().join("working").exists()
    })
    .unwrap();
    work::kept(&work::folder(&daemon.workspace()), "t").unwrap();
    let run = daemon.workers("run", "serving").unwrap();
    let run = run
        .iter()
        .find(|run| run["run"].is_string())
        .unwrap_or(&run[0]);
    let run = i32::try_from(run["pid"].as_i64().unwrap()).unwrap();
    if geteuid().is_root() {
        let name = format!("{}=", CLAIM_VARIABLES[1]);
        let capability = |process: &Process| {
            let bytes = std::fs::read(format!("/proc/{}/environ", process.pid)).ok()?;
            let text = String::from_utf8(bytes).ok()?;
            let value = text.split('\0').find_map(|v| v.strip_prefix(&name))?;
            Some((process.pid, value.to_owned()))
        };
        let all = below(daemon.pid());
        let (server, token) = all.iter().find_map(capability).unwrap();
        assert!(token.len() >= 32, "{token}");
        // What looks finds it where it is, and finds in the run what that knows.
        assert!(remembers(server, &token).unwrap());
        assert!(remembers(run, "start_background_work").unwrap());
        let mut others = vec![run];
        for role in ["store", "egress", "artifact", "channel-openai"] {
            others.push(daemon.worker(role).unwrap());
        }
        for pid in others {
            assert!(!remembers(pid, &token).unwrap(), "{:?}", Process::of(pid));
        }
        let bodies = model.stats().seen;
        assert!(!bodies.is_empty());
        for seen in bodies {
            assert!(!seen.body.to_string().contains(&token));
        }
    } else {
        // Nobody but root looks into a worker, and so nobody who could tell.
        assert!(remembers(run, "start_background_work").is_err());
    }
    std::fs::write(daemon.workspace().join("go"), "").unwrap();
    assert_eq!(sending.finish().unwrap().text(), "begun");
}
