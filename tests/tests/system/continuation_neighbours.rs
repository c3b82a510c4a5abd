//! What continuations leave alone, and what leaves them alone: records of runs, the request context
//! of servers, published files.

use super::continuations::{World, hold, id, say, start};
use mono_tests::daemon::{Daemon, wait_for};
use mono_tests::http;
use mono_tests::model::call;
use mono_tests::work;
use nix::unistd::geteuid;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

#[test]
fn a_run_stays_as_it_ended_whatever_becomes_of_what_it_claimed() {
    let world = World::new();
    let World { setup, claims, .. } = world;
    let mut daemon = setup.start().unwrap();
    let begin = |task: &str| format!("{} [[mock:text begun]]", start(task));
    let mut given_up = daemon
        .start_send("lost", &format!("{} {}", start("lost"), hold()))
        .unwrap();
    given_up.until("started").unwrap();
    wait_for("the turn goes on", || {
        daemon.workspace().join("working").exists()
    })
    .unwrap();
    given_up.interrupt().unwrap();
    given_up.finish().unwrap();
    for task in ["told", "cancelled"] {
        assert_eq!(daemon.send(task, &begin(task)).unwrap().text(), "begun");
    }
    let short = json!({ "task": "expired", "withinMs": 3_000 });
    let short = format!(
        "{} [[mock:text begun]]",
        call("start_background_work", &short)
    );
    assert_eq!(daemon.send("expired", &short).unwrap().text(), "begun");
    let answer = http::complete(&daemon.api().unwrap(), "dead", &begin("dead")).unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");

    let list = daemon.json(&["runs", "list", "--limit", "100"]).unwrap();
    let runs = list["runs"].as_array().unwrap().iter();
    let runs: BTreeMap<_, _> = runs
        .map(|run| run["runId"].as_str().unwrap().to_owned())
        .map(|run| (run.clone(), daemon.settled(&run).unwrap()))
        .collect();
    let mut ends: Vec<_> = runs.values().map(|run| run["status"].as_str()).collect();
    ends.sort();
    let succeeded = Some("succeeded");
    assert_eq!(
        ends,
        [
            Some("cancelled"),
            succeeded,
            succeeded,
            succeeded,
            succeeded
        ]
    );

    let of = |task: &str| id(&work::kept(claims.path(), task).unwrap()).to_owned();
    for task in ["told", "lost", "dead"] {
        work::finish(claims.path(), task, &say("later")).unwrap();
    }
    daemon.continuation_recorded(&of("told")).unwrap();
    daemon.continuation_recorded(&of("lost")).unwrap();
    daemon
        .continuation_in(&of("dead"), "dead_lettered")
        .unwrap();
    daemon.continuation_in(&of("expired"), "expired").unwrap();
    let cancelled = of("cancelled");
    let cancel = daemon.run(&["continuations", "cancel", &cancelled]);
    assert!(cancel.unwrap().status.success());
    daemon.continuation_in(&cancelled, "cancelled").unwrap();
    let unchanged = |daemon: &Daemon| {
        for (run, before) in &runs {
            assert_eq!(&daemon.show(run).unwrap(), before);
        }
    };
    unchanged(&daemon);
    daemon.stop().unwrap();
    daemon.restart().unwrap();
    unchanged(&daemon);
}

/// The variables that are the host's, as a server had them when it started.
pub(super) fn given(folder: &Path, server: &str) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(folder.join(format!("{server}.env"))).unwrap();
    let variables = text.lines().filter_map(|line| line.split_once('='));
    variables
        .filter(|(name, _)| name.to_ascii_uppercase().starts_with("MONO_AGENT_"))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn request_context_and_the_right_to_claim_are_given_apart() {
    const RUN: &str = "MONO_AGENT_MCP_PRODUCING_RUN_ID";
    const CONVERSATION: &str = "MONO_AGENT_MCP_PRODUCING_CONVERSATION_ID";
    const CLAIM: &str = "MONO_AGENT_CONTINUATION_CLAIM_TOKEN";
    const PROGRESS: &str = "MONO_AGENT_INTERACTION_PROGRESS_TOKEN";
    const BRIDGE: &str = "MONO_AGENT_INTERACTION_BRIDGE_TOKEN";
    let world = World::new();
    let World { mut setup, .. } = world;
    let folder = work::folder(&setup.workspace());
    // Server, whether it is told of its run, whether it may claim.
    let servers = [
        ("told", true, false),
        ("claims", false, true),
        ("both", true, true),
        ("neither", false, false),
    ];
    for (name, ..) in servers {
        work::stdio(&mut setup, name).unwrap();
        let server = &mut setup.config["tools"]["mcpServers"][name];
        let noted = folder.join(format!("{name}.env"));
        let script = format!(
            "env > {}; exec {} --folder {} stdio",
            noted.display(),
            work::program().display(),
            folder.join(name).display(),
        );
        server["command"] = json!("/bin/sh");
        server["args"] = json!(["-c", script]);
        let forged = [RUN, CONVERSATION, CLAIM, PROGRESS, BRIDGE];
        server["env"] = forged
            .map(|name| (name.to_owned(), json!("forged")))
            .into_iter()
            .collect();
        server["env"]["mono_agent_mcp_run_output_dir"] = json!("forged");
        std::fs::create_dir(folder.join(name)).unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o2770);
        std::fs::set_permissions(folder.join(name), open).unwrap();
    }
    setup.config["tools"]["mcpRequestContextServers"] = json!(["told", "both"]);
    setup.config["tools"]["continuationServers"] = json!(["claims", "both"]);
    let daemon = setup.start().unwrap();
    let tool = |name: &str| format!("mcp__{name}__start_background_work");
    let mut before = vec![];
    for turn in ["one", "two"] {
        let asks = servers.map(|(name, ..)| call(&tool(name), &json!({ "task": turn })));
        let sent = daemon
            .send("c", &format!("{} [[mock:text begun]]", asks.join(" ")))
            .unwrap();
        assert_eq!(sent.text(), "begun", "{sent:?}");
        for (name, told, may_claim) in servers {
            let given = given(&folder, name);
            let of_run = [RUN, CONVERSATION].map(|variable| given.get(variable));
            let expected = [&sent.run().to_owned(), &"c".to_owned()];
            assert_eq!(
                of_run,
                expected.map(|value| told.then_some(value)),
                "{name}"
            );
            assert_eq!(given.contains_key(CLAIM), may_claim, "{name}");
            assert!(given.values().all(|value| value != "forged"), "{name}");
            assert_eq!(
                given.len(),
                10 * usize::from(told) + 4 * usize::from(may_claim),
                "{given:?}"
            );
            if told {
                assert!(given[PROGRESS].len() >= 32, "{name}");
                assert_eq!(given[BRIDGE], "");
            }
            let said = sent.preview(&tool(name)).unwrap();
            assert_eq!(
                said.starts_with("Accepted as "),
                may_claim,
                "{name}: {said}"
            );
        }
        before.push(given(&folder, "told"));
    }
    for variable in [RUN, PROGRESS] {
        assert_ne!(before[0][variable], before[1][variable]);
    }
}

/// What the entries of a folder are, wherever they lead; what is gone again is left out.
fn identities(folder: &Path) -> BTreeSet<(u64, u64)> {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path());
    entries
        .filter_map(|path| std::fs::metadata(path).ok())
        .map(|meta| (meta.dev(), meta.ino()))
        .collect()
}

/// A folder and what lies in it, as [`identities`].
fn below(folder: &Path) -> BTreeSet<(u64, u64)> {
    let own = std::fs::metadata(folder).unwrap();
    let mut all = identities(folder);
    all.insert((own.dev(), own.ino()));
    all
}

#[test]
fn retention_of_published_files_leaves_continuations_as_they_are() {
    let world = World::new();
    let World { setup, claims, .. } = world;
    let mut daemon = setup.start().unwrap();
    let mut asks = vec![start("t")];
    for name in ["one.txt", "two.txt"] {
        std::fs::write(daemon.workspace().join(name), name).unwrap();
        asks.push(call("PublishReplyFile", &json!({ "path": name })));
    }
    let sent = daemon
        .send("c", &format!("{} [[mock:text begun]]", asks.join(" ")))
        .unwrap();
    assert_eq!(sent.text(), "begun", "{sent:?}");
    let published = |daemon: &Daemon| {
        let list = daemon.json(&["artifacts", "list"]).unwrap();
        list["artifacts"].as_array().unwrap().len()
    };
    assert_eq!(published(&daemon), 2);
    let claim = work::kept(claims.path(), "t").unwrap();
    let record = daemon.continuation(id(&claim)).unwrap();
    assert_eq!(record["originContext"]["state"], "pinned", "{record}");
    daemon.stop().unwrap();
    let state = daemon.folder().join(".mono-agent");
    daemon
        .configure(|config| config["artifacts"]["retention"]["maxCount"] = json!(1))
        .unwrap();
    daemon.restart().unwrap();
    wait_for("retention took the older file", || published(&daemon) == 1).unwrap();
    if geteuid().is_root() {
        // Each owner holds its own folder, and neither holds or finds anything of the other's.
        let folders = ["artifacts", "continuations"].map(|name| state.join(name));
        for (role, own, other) in [("artifact", 0, 1), ("continuation", 1, 0)] {
            let process = PathBuf::from(format!("/proc/{}", daemon.worker(role).unwrap()));
            let held = identities(&process.join("fd"));
            assert!(!held.is_disjoint(&below(&folders[own])), "{role}");
            assert!(held.is_disjoint(&below(&folders[other])), "{role}");
            let path = folders[other].strip_prefix("/").unwrap();
            assert!(!process.join("root").join(path).exists(), "{role}");
        }
    }
    assert_eq!(daemon.continuation(id(&claim)).unwrap(), record);
    work::finish(claims.path(), "t", &say("after all")).unwrap();
    let record = daemon.continuation_recorded(id(&claim)).unwrap();
    assert_eq!(record["completionKind"], "synthesized", "{record}");
}
