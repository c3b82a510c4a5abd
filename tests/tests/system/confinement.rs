//! What a run's commands see, and what the kernel enforces on every process.

use mono_tests::daemon::{Setup, programs, rests};
use mono_tests::model::{Model, bash, call};
use mono_tests::processes::below;
use nix::unistd::geteuid;
use serde_json::{Value, json};
use std::os::unix::net::UnixListener;

#[test]
fn a_runs_commands_see_their_workspace_and_nothing_else() {
    let model = Model::start().unwrap();
    let mut setup = Setup::new()
        .unwrap()
        .model(model.address(), "openai-chat")
        .everything("everything");
    // The worst place for them.
    setup.config["runtime"]["stateDir"] = json!("workspace/state");
    let key = setup.workspace().join("model.key");
    std::fs::write(&key, "sk-of-the-provider").unwrap();
    setup.config["providers"]["test"]["apiKeyFile"] = json!("workspace/model.key");
    let daemon = setup.start().unwrap();
    let folder = daemon.folder().to_string_lossy().into_owned();
    let api = daemon.api().unwrap();
    let api = api.rsplit(':').next().unwrap();
    let mock = model.address().port();
    let elsewhere = daemon.folder().join("served.sock");
    let _served = UnixListener::bind(&elsewhere).unwrap();
    std::fs::write(daemon.folder().join("outside.txt"), "outside").unwrap();
    std::fs::write(daemon.workspace().join("inside.txt"), "inside").unwrap();

    // Each line prints what a breach would give; a check that works gives its own name.
    let checks: Vec<(&str, String)> = vec![
        ("workspace", "cat inside.txt && echo x > made.txt && cat made.txt".into()),
        ("scratch", "echo y > $TMPDIR/y && cat $TMPDIR/y".into()),
        ("shadow", "cat /etc/shadow || echo no".into()),
        ("state", "ls -A state; cat state/store/* state/run/* || echo no".into()),
        ("state-write", "echo x > state/x && echo written || echo no".into()),
        ("key", "cat model.key && wc -c < model.key || echo no".into()),
        ("config", format!("cat {folder}/mono-agent.config.json || echo no")),
        ("outside", format!("cat {folder}/outside.txt; cat ../outside.txt || echo no")),
        ("socket", format!("ls {folder}/monod.sock || echo no")),
        ("tcp-api", format!("(exec 3<>/dev/tcp/127.0.0.1/{api}) && echo open || echo no")),
        ("tcp-mock", format!("(exec 3<>/dev/tcp/127.0.0.1/{mock}) && echo open || echo no")),
        ("udp", "(exec 3<>/dev/udp/192.0.2.1/53) && echo open || echo no".into()),
        ("interfaces", "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '".into()),
        ("processes", "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done".into()),
        ("environ", "cat /proc/*/environ | tr '\\0' '\\n'".into()),
        ("write-system", "for d in / /etc /usr /usr/bin /dev /proc; do echo x > $d/mono-x && echo written $d; done; echo no".into()),
        ("mounts", "mount -t tmpfs none /tmp && echo mounted || echo no".into()),
        ("unshare", "unshare -Ur id -u && echo unshared || echo no".into()),
        ("setuid", "find / -xdev -perm -4000 -newer /proc/1/cmdline 2>/dev/null; su -c id 2>/dev/null && echo root || echo no".into()),
        ("kernel", "head -c 1 /proc/kcore /dev/mem /dev/kmsg; dmesg && echo read || echo no".into()),
        ("ptrace", "grep -E 'Seccomp:|NoNewPrivs|CapEff|CapBnd|^Uid' /proc/self/status".into()),
    ];
    let script: String = checks
        .iter()
        .map(|(name, command)| format!("echo '=== {name}'; {{ {command}; }} 2>/dev/null\n"))
        .collect();
    std::fs::write(daemon.workspace().join("checks.sh"), script).unwrap();
    let sent = daemon
        .send("a", &format!("{} [[mock:echo]]", bash("bash checks.sh")))
        .unwrap();
    assert_eq!(sent.code, 0, "{sent:?}");
    let text = sent.text();
    let gave = |name: &str| -> String {
        let start = text
            .find(&format!("=== {name}\n"))
            .unwrap_or_else(|| panic!("{name} is not in {text}"));
        let rest = &text[start + name.len() + 5..];
        rest.split("=== ").next().unwrap().trim().to_owned()
    };
    assert_eq!(gave("workspace"), "insidex", "{text}");
    assert_eq!(gave("scratch"), "y");
    for name in [
        "shadow",
        "state",
        "state-write",
        "config",
        "outside",
        "socket",
        "tcp-api",
        "tcp-mock",
        "udp",
        "write-system",
        "mounts",
        "unshare",
        "setuid",
        "kernel",
    ] {
        assert_eq!(gave(name), "no", "{name}");
    }
    assert_eq!(gave("interfaces"), "lo");
    // A file that is hidden may stand there empty.
    assert!(
        ["no", "0"].contains(&gave("key").as_str()),
        "{}",
        gave("key")
    );
    // No other process: the run worker, its shells and what they started.
    for line in gave("processes")
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
    {
        assert!(
            ["run", "bash", "tr"]
                .iter()
                .any(|own| line.starts_with(own)),
            "{line}"
        );
    }
    let environ = gave("environ");
    for foreign in ["sk-of-the-provider", "MONO_PROBE", "CARGO", "SSH_", "TOKEN"] {
        assert!(!environ.contains(foreign), "{foreign}: {environ}");
    }
    let status = gave("ptrace");
    for line in ["Seccomp:\t2", "NoNewPrivs:\t1", "CapEff:\t0000000000000000"] {
        assert!(status.contains(line), "{line}: {status}");
    }
    assert!(!status.contains("Uid:\t0"), "{status}");

    // The built-in tools are no way around it.
    for path in [
        format!("{folder}/outside.txt"),
        "../outside.txt".into(),
        "/etc/shadow".into(),
        "state/store/store.db".into(),
        "model.key".into(),
    ] {
        let sent = daemon
            .send("b", &call("Read", &json!({ "file_path": path })))
            .unwrap();
        let read = sent.completed("Read")[0];
        let preview = read["preview"].as_str().unwrap();
        assert!(
            !preview.contains("outside\n")
                && !preview.contains("sk-of")
                && !preview.contains("root:"),
            "{path}: {read}"
        );
    }
    let url = format!("http://127.0.0.1:{mock}/stats");
    let sent = daemon
        .send("b", &call("WebFetch", &json!({ "url": url })))
        .unwrap();
    assert_eq!(sent.completed("WebFetch")[0]["ok"], false, "{sent:?}");
}

#[test]
fn configuration_keys_state_and_admin_socket_inside_the_workspace_are_out_of_reach() {
    let model = Model::start().unwrap();
    let mut setup = Setup::new()
        .unwrap()
        .model(model.address(), "openai-chat")
        .workspace_holds_everything()
        .unwrap();
    setup.secret("model.key", "sk-of-the-provider").unwrap();
    setup.config["providers"]["test"]["apiKeyFile"] = json!("model.key");
    setup.secret(".env", "KEY=sk-in-a-variable").unwrap();
    let variables = setup.folder().join(".env");
    setup = setup
        .argument("--env-file")
        .argument(&variables.to_string_lossy());
    setup.config["tools"]["mcpConfigPath"] = json!("mcp.json");
    let servers = json!({ "mcpServers": { "far": { "url": "http://127.0.0.1:9/mcp", "headers": { "x-key": "k" } } } });
    std::fs::write(setup.folder().join("mcp.json"), servers.to_string()).unwrap();
    setup.config["tools"]["gateway"] = json!({ "enabled": true });
    let mut daemon = setup.start().unwrap();
    let folder = daemon.folder().to_owned();
    let gateway = std::fs::metadata(folder.join("gateway.sock")).unwrap();
    assert!(std::os::unix::fs::FileTypeExt::is_socket(
        &gateway.file_type()
    ));
    let config = std::fs::read(folder.join("mono-agent.config.json")).unwrap();
    // The real admin command, in the hands of the agent.
    std::fs::copy(programs().join("monoctl"), folder.join("monoctl")).unwrap();
    let commands = [
        "cat mono-agent.config.json model.key mcp.json .env | wc -c",
        "find .mono-agent -mindepth 1 | wc -l",
        "mv mono-agent.config.json stolen && echo moved || echo kept",
        "echo '{}' > mono-agent.config.json && echo written || echo kept",
        "rm -f model.key 2>/dev/null; mv .mono-agent elsewhere && echo moved || echo kept",
        "./monoctl --socket monod.sock --json stop >/dev/null 2>&1; echo $?",
        "ln monod.sock other.sock; ./monoctl --socket other.sock stop >/dev/null 2>&1; echo $?",
        "[ -S gateway.sock ] && echo socket || echo covered",
        "mv gateway.sock other.sock && echo moved || echo kept",
        "cat IDENTITY.md",
    ];
    let sent = daemon
        .send(
            "a",
            &format!(
                "{} [[mock:echo]]",
                bash(&format!("({}) 2>/dev/null", commands.join("; ")))
            ),
        )
        .unwrap();
    assert_eq!(sent.code, 0, "{sent:?}");
    let lines: Vec<_> = sent
        .text()
        .trim_start_matches("tool said: ")
        .lines()
        .collect();
    assert_eq!(
        lines,
        [
            "0",
            "0",
            "kept",
            "kept",
            "kept",
            "3",
            "3",
            "covered",
            "kept",
            "You are a test agent."
        ],
        "{}",
        sent.text()
    );
    for path in [
        "mono-agent.config.json",
        "model.key",
        "mcp.json",
        ".mono-agent/store/store.db",
        "monod.log",
    ] {
        let publish = call("PublishReplyFile", &json!({ "path": path }));
        let sent = daemon.send("a", &publish).unwrap();
        assert_eq!(
            sent.completed("PublishReplyFile")[0]["ok"],
            path == "monod.log",
            "{path}: {sent:?}"
        );
    }
    // Outside all is as it was, and the daemon starts from it again.
    assert_eq!(
        std::fs::read(folder.join("mono-agent.config.json")).unwrap(),
        config
    );
    assert_eq!(
        std::fs::read(folder.join("model.key")).unwrap(),
        b"sk-of-the-provider\n"
    );
    assert_eq!(daemon.stop().unwrap(), 0);
    daemon.restart().unwrap();
    assert_eq!(daemon.show(sent.run()).unwrap()["status"], "succeeded");
}

#[test]
fn every_process_is_confined_as_the_status_says() {
    let model = Model::start().unwrap();
    let mut daemon = Setup::new()
        .unwrap()
        .model(model.address(), "openai-chat")
        .everything("everything")
        .start()
        .unwrap();
    // A server and a working run, so that they are looked at, too.
    let mut sending = daemon
        .start_send(
            "a",
            &format!(
                "{} {}",
                call("echo", &json!({ "message": "x" })),
                bash("until [ -e go ]; do sleep 0.05; done")
            ),
        )
        .unwrap();
    sending.until("tool_call_completed").unwrap();
    let status = daemon
        .wait_until("at work with a pool", |s| {
            s["runs"]["assigned"] == 1 && rests(s)
        })
        .unwrap();
    assert_eq!(status["degraded"], json!([]));
    let workers = status["workers"].as_array().unwrap();
    for role in [
        "store",
        "artifact",
        "egress",
        "app-bridge",
        "channel-openai",
        "run",
        "mcp-server",
    ] {
        assert!(
            workers.iter().any(|w| w["role"] == role),
            "no {role}: {status}"
        );
    }
    let mut uids = Vec::new();
    for worker in workers {
        let (role, sandbox) = (worker["role"].as_str().unwrap(), &worker["sandbox"]);
        assert_eq!(sandbox["seccomp"], 2, "{worker}");
        assert_eq!(sandbox["no_new_privs"], true, "{worker}");
        assert!(sandbox["landlock_abi"].as_u64().unwrap() > 0, "{worker}");
        assert_ne!(sandbox["uid"], 0, "{worker}");
        assert_eq!(sandbox["capabilities"], 0, "{worker}");
        let probes = sandbox["probes"].as_object().unwrap();
        assert!(role == "mcp-server" || !probes.is_empty(), "{worker}");
        assert!(probes.values().all(|p| p == "refused"), "{worker}");
        // The same from the kernel, for the process and all below it.
        let pid = i32::try_from(worker["pid"].as_i64().unwrap()).unwrap();
        for process in std::iter::once(pid).chain(below(pid).into_iter().map(|p| p.pid)) {
            let Ok(kernel) = std::fs::read_to_string(format!("/proc/{process}/status")) else {
                continue;
            };
            let field = |name: &str| -> String {
                let line = kernel
                    .lines()
                    .find(|l| l.starts_with(name))
                    .unwrap_or_default();
                line.split(':').nth(1).unwrap_or_default().trim().to_owned()
            };
            assert_eq!(field("Seccomp:"), "2", "{role} {kernel}");
            assert_eq!(field("NoNewPrivs:"), "1", "{role} {kernel}");
            for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
                assert_eq!(field(set), "0000000000000000", "{role} {kernel}");
            }
            assert!(
                field("Uid:").split_whitespace().all(|uid| uid != "0"),
                "{role} {kernel}"
            );
        }
        uids.push((role.to_owned(), sandbox["uid"].clone()));
    }
    if geteuid().is_root() {
        // Started as root, no two roles share a user, and no two runs either.
        let mut seen: Vec<(String, Value)> = Vec::new();
        for (role, uid) in uids {
            assert!(
                !seen.iter().any(|(_, other)| *other == uid),
                "{role} shares the user {uid}: {seen:?}"
            );
            seen.push((role, uid));
        }
    }
    // The supervisor itself holds no listener open to anything but what it must.
    std::fs::write(daemon.workspace().join("go"), "").unwrap();
    assert_eq!(sending.finish().unwrap().code, 0);
}

/// The names in an environment as `/proc` shows it.
fn names(environ: &[u8]) -> Vec<String> {
    let variables = environ.split(|byte| *byte == 0).filter(|v| !v.is_empty());
    let mut names: Vec<String> = variables
        .map(|variable| {
            let text = String::from_utf8_lossy(variable).into_owned();
            text.split('=').next().unwrap_or_default().to_owned()
        })
        .collect();
    names.sort();
    names
}

/// What the profile of a role gives it.
fn declared(role: &str) -> Vec<String> {
    let role = ipc_proto::Role::ALL.into_iter().find(|r| r.name() == role);
    let profile = policy::Profile::of(role.unwrap()).unwrap();
    let mut names: Vec<String> = profile.environment.iter().map(|v| v.name.clone()).collect();
    names.sort();
    names
}

#[test]
fn a_process_has_the_variables_of_its_profile_and_a_server_those_it_declares() {
    let model = Model::start().unwrap();
    let mut setup = Setup::new()
        .unwrap()
        .model(model.address(), "openai-chat")
        .everything("everything")
        .environment("OF_THE_DAEMON", "canary");
    setup.config["tools"]["mcpServers"]["everything"]["env"] = json!({ "DECLARED": "by me" });
    let mut daemon = setup.start().unwrap();
    let asked = call("get-env", &json!({}));
    let sent = daemon.send("a", &format!("{asked} [[mock:echo]]")).unwrap();
    assert_eq!(sent.code, 0, "{sent:?}");
    let text = sent.text();
    let object = &text[text.find('{').unwrap()..=text.rfind('}').unwrap()];
    let shown: Value = serde_json::from_str(object).unwrap();
    let mut expected = declared("mcp-server");
    expected.push("DECLARED".into());
    expected.sort();
    let mut got: Vec<String> = shown.as_object().unwrap().keys().cloned().collect();
    got.sort();
    assert_eq!(got, expected, "{text}");
    assert_eq!(shown["DECLARED"], "by me");

    // The launcher adds what it tells the second stage; nothing comes from the daemon.
    let told = ["MONO_PROBE_SOCKET", "MONO_PROBE_STATE", "MONO_SANDBOX"];
    // A run worker ends with its turn.
    let over = |s: &Value| s["runs"]["assigned"] == 0 && rests(s);
    let status = daemon.wait_until("over", over).unwrap();
    for worker in status["workers"].as_array().unwrap() {
        let role = worker["role"].as_str().unwrap();
        let path = format!("/proc/{}/environ", worker["pid"]);
        assert!(
            ["serving", "idle"].contains(&worker["state"].as_str().unwrap()),
            "{worker}"
        );
        let environ = match std::fs::read(&path) {
            Ok(environ) => environ,
            // Not dumpable, so its own user can't look either.
            Err(e) => {
                assert!(!geteuid().is_root(), "{role}: {e}");
                continue;
            }
        };
        let mut expected = declared(role);
        if role == "mcp-server" {
            expected.push("DECLARED".into());
        } else {
            expected.extend(told.map(str::to_owned));
        }
        expected.sort();
        assert_eq!(names(&environ), expected, "{role}");
    }
}

#[test]
fn what_workers_give_up_the_supervisor_keeps() {
    // What the daemon inherits from this process is all that it has over itself.
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let daemon = Setup::new().unwrap().start().unwrap();
    for n in 0..3 {
        assert_eq!(daemon.send(&format!("c{n}"), "hello").unwrap().code, 0);
    }
    let path = format!("/proc/{}/status", daemon.pid());
    let supervisor = std::fs::read_to_string(path).unwrap();
    for name in [
        "Uid:",
        "CapEff:",
        "CapBnd:",
        "NoNewPrivs:",
        "Seccomp:",
        "Seccomp_filters:",
    ] {
        let line = |text: &str| {
            text.lines()
                .find(|l| l.starts_with(name))
                .map(str::to_owned)
        };
        assert_eq!(line(&supervisor), line(&own), "{name}");
        assert!(line(&own).is_some(), "{name}");
    }
    // Landlock shows nowhere: it still opens what no profile grants.
    assert!(daemon.run(&["reload"]).unwrap().status.success());
}
