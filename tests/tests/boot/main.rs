//! The Debian package, and both deployments on a machine with a real systemd as PID 1.
//!
//! The machine is made of namespaces over this system's files (`tests/boot/machine.sh`), which
//! needs root. Where that can't be had, leave these tests out by name:
//! `cargo nextest run --workspace -E 'not binary(boot)'`.
#![allow(clippy::unwrap_used)]
#![forbid(unsafe_code)]

mod machine;

use ipc_proto::Role;
use machine::{Machine, package, succeed};
use policy::Identity;
use serde_json::Value;
use std::process::{Command, Stdio};

/// What clients of the API say.
const KEY: &str = "canary-of-the-api-key";
/// Roles that always have a worker when the API is on.
const ALWAYS_ON: [Role; 5] = [
    Role::Store,
    Role::Artifact,
    Role::Egress,
    Role::AppBridge,
    Role::ChannelOpenai,
];

#[test]
fn lintian_finds_no_error_and_the_package_is_whole() {
    let package = package();
    let out = Command::new("lintian")
        .arg("--fail-on")
        .arg("error")
        .arg(&package)
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stdout)
    );
    let files = succeed(Command::new("dpkg-deb").arg("--contents").arg(&package));
    for wanted in [
        "./usr/bin/monod",
        "./usr/bin/monoctl",
        "./usr/lib/mono/mono-launch",
        "./usr/lib/systemd/system/monod.service",
        "./usr/lib/systemd/system/monod.socket",
        "./usr/lib/systemd/system/monod-rootless.service",
        "./usr/share/man/man8/monod.8.gz",
        "./usr/share/man/man1/monoctl-send.1.gz",
        "./usr/share/man/man1/mono-mcp-stub.1.gz",
        "./usr/share/bash-completion/completions/monoctl",
        "./usr/share/zsh/vendor-completions/_monoctl",
        "./usr/share/fish/vendor_completions.d/monoctl.fish",
        "./usr/share/mono/apparmor/monod",
        "./usr/share/doc/mono/copyright",
        "./usr/share/doc/mono/licences.txt.gz",
        "./usr/share/doc/mono/changelog.Debian.gz",
        "./usr/share/doc/mono/operations.md.gz",
        "./etc/mono/mono-agent.config.json",
    ] {
        assert!(
            files.lines().any(|line| line.ends_with(wanted)),
            "{wanted}:\n{files}"
        );
    }
    // Root owns all of it, and nothing is set-user-id or for everyone to write.
    for line in files.lines() {
        let mode = line.split_whitespace().next().unwrap();
        assert!(line.contains(" root/root "), "{line}");
        assert!(
            !mode.contains(['s', 'S', 't']) && mode.as_bytes()[8] == b'-',
            "{line}"
        );
    }
}

/// A configuration with the API on, and its key as a credential; the watchdog is impatient.
const CONFIGURE: &str = r#"
sed -i '/"artifacts"/s/$/,\n  "openaiApi": { "enabled": true, "port": 8642, "apiKeyCredential": "key_api" }/' \
    /etc/mono/mono-agent.config.json
monoctl config check --config /etc/mono/mono-agent.config.json
mkdir -p /etc/systemd/system/monod.service.d
printf '[Service]\nWatchdogSec=12s\n' > /etc/systemd/system/monod.service.d/test.conf
systemctl daemon-reload
"#;

#[test]
fn the_system_deployment_lives_under_systemd() {
    let mut machine = Machine::boot();
    machine.sh("dpkg -i /mnt/mono.deb");
    units_pass_systemds_own_checks(&machine);
    every_role_has_a_user_of_its_own(&machine);
    // Installing starts and enables nothing.
    assert_eq!(
        machine
            .sh("systemctl is-enabled monod.service monod.socket || :")
            .trim(),
        "disabled\ndisabled"
    );
    assert_eq!(machine.show("monod.service", "ActiveState"), "inactive");

    machine.sh(CONFIGURE);
    machine.sh(&format!(
        "umask 077; printf %s '{KEY}' > /etc/mono/credentials/api"
    ));
    machine.sh("systemctl enable --now monod.socket monod-openai.socket");
    machine.start("monod.service");
    every_worker_is_its_roles_user(&machine);
    memory_is_limited_as_the_machine_allows(&mut machine, "monod.service", "root");
    machine.reload("monod.service");
    let run = machine.turn();
    the_journal_has_role_and_run(&mut machine, &run);
    the_watchdog_restarts_a_hung_supervisor(&mut machine);
    a_restart_loses_no_connection(&machine);
    a_stop_ends_a_stubborn_turn_too(&mut machine);
    upgrade_remove_purge(&machine);
}

fn units_pass_systemds_own_checks(machine: &Machine) {
    let out = machine.run(&["sh", "-c", "systemd-analyze verify /usr/lib/systemd/system/mono*.service /usr/lib/systemd/system/mono*.socket"]);
    let said = [out.stdout, out.stderr].concat();
    assert!(
        out.status.success() && said.is_empty(),
        "{}",
        String::from_utf8_lossy(&said)
    );
    for (unit, bound) in [("monod.service", 40), ("monod-rootless.service", 26)] {
        machine.sh(&format!(
            "systemd-analyze security --no-pager --offline=true --threshold={bound} /usr/lib/systemd/system/{unit}"
        ));
    }
}

fn every_role_has_a_user_of_its_own(machine: &Machine) {
    for role in Role::ALL {
        // Runs and servers have pools without names; the supervisor is root.
        if matches!(role, Role::Monod | Role::Run | Role::McpServer) {
            continue;
        }
        let identity = Identity::of(role, 0, policy::DEFAULT_BASE, None);
        let known = machine.sh(&format!("id -u mono-{role}; id -g mono-{role}"));
        assert_eq!(
            known.trim(),
            format!("{}\n{}", identity.uid, identity.gid),
            "{role}"
        );
    }
}

fn every_worker_is_its_roles_user(machine: &Machine) {
    let workers = machine.workers();
    for role in ALWAYS_ON {
        let worker = workers.iter().find(|w| w["role"] == role.name()).unwrap();
        let expected = Identity::of(role, 0, policy::DEFAULT_BASE, None).uid;
        assert_eq!(worker["sandbox"]["uid"], expected, "{worker}");
    }
    let mut users: Vec<_> = workers
        .iter()
        .map(|w| w["sandbox"]["uid"].as_u64().unwrap())
        .collect();
    users.sort_unstable();
    users.dedup();
    assert_eq!(users.len(), workers.len(), "{workers:?}");
    // The API answers whoever has the key, which is a file that only root can read.
    let models = machine.sh(&format!(
        "curl -sS --fail -H 'Authorization: Bearer {KEY}' http://127.0.0.1:8642/v1/models"
    ));
    assert!(models.contains("agent"), "{models}");
    let refused = machine.run(&[
        "curl",
        "-sS",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        "http://127.0.0.1:8642/v1/models",
    ]);
    assert_eq!(refused.stdout, b"401");
}

/// By the kernel where it has the controller. The daemon can use its own group and no other.
fn memory_is_limited_as_the_machine_allows(machine: &mut Machine, unit: &str, user: &str) {
    let slice = "/sys/fs/cgroup/system.slice";
    let controllers = machine.sh(&format!("cat {slice}/{unit}/cgroup.controllers"));
    let memory = machine.json("monoctl status --json")["memory"].clone();
    if controllers.split_whitespace().any(|name| name == "memory") {
        assert_eq!(memory["enforcement"], "cgroup", "{memory}");
        // The run workers come after what the unit waits for.
        machine.wait("a run's group", |machine| {
            machine
                .run(&["sh", "-c", &format!("ls -d {slice}/{unit}/run-*")])
                .status
                .success()
        });
        machine.sh(&format!("test -d {slice}/{unit}/supervisor"));
    } else {
        assert_eq!(memory["enforcement"], "watched", "{memory}");
        let reason = memory["reason"].as_str().unwrap();
        let expected = format!("the control group {slice}/{unit} has no memory controller");
        assert_eq!(reason, expected);
    }
    let main = machine.show(unit, "MainPID");
    let make = |folder: &str| {
        machine.run(&[
            "nsenter",
            "--mount",
            &format!("--target={main}"),
            "runuser",
            &format!("--user={user}"),
            "--",
            "sh",
            "-c",
            &format!("mkdir {folder}/tried && rmdir {folder}/tried"),
        ])
    };
    let own = make(&format!("{slice}/{unit}"));
    assert!(
        own.status.success(),
        "{}",
        String::from_utf8_lossy(&own.stderr)
    );
    let other = make(slice);
    let said = String::from_utf8_lossy(&other.stderr);
    assert!(said.contains("Read-only file system"), "{said}");
}

fn the_journal_has_role_and_run(machine: &mut Machine, run: &str) {
    // Who asked is told first.
    machine.wait("the run's end in the journal", |machine| {
        let of_run = machine.sh(&format!(
            "journalctl --no-pager -u monod -o cat MONO_RUN={run}"
        ));
        of_run.contains("run ended")
    });
    let of_role = machine.sh("journalctl --no-pager -u monod -o json MONO_ROLE=artifact");
    let entry: Value = serde_json::from_str(of_role.lines().next().unwrap()).unwrap();
    assert_eq!(entry["_SYSTEMD_UNIT"], "monod.service", "{entry}");
    assert!(entry["MONO_PID"].is_string(), "{entry}");
    let secret = machine.run(&[
        "sh",
        "-c",
        &format!("journalctl --no-pager -o export -u monod | grep -c {KEY}"),
    ]);
    assert_eq!(secret.stdout, b"0\n");
}

fn the_watchdog_restarts_a_hung_supervisor(machine: &mut Machine) {
    let hung = machine.show("monod.service", "MainPID");
    let workers = machine.processes("monod.service");
    machine.sh(&format!("kill -STOP {hung}"));
    machine.wait("another supervisor", |machine| {
        machine.show("monod.service", "NRestarts") == "1"
            && machine.show("monod.service", "SubState") == "running"
    });
    assert_ne!(machine.show("monod.service", "MainPID"), hung);
    machine.wait("the journal says why", |machine| {
        let journal = machine.sh("journalctl --no-pager -o cat _PID=1");
        journal.contains("Watchdog timeout")
    });
    let now = machine.processes("monod.service");
    assert!(
        workers.iter().all(|pid| !now.contains(pid)),
        "{workers:?} {now:?}"
    );
    machine.workers();
    machine.turn();
}

fn a_restart_loses_no_connection(machine: &Machine) {
    let told = machine.sh(&format!("bash /mnt/connect.sh {KEY}"));
    let mut lines = told.lines();
    for client in ["admin", "api"] {
        let line = lines.next().unwrap();
        let served = line
            .strip_prefix(client)
            .and_then(|l| l.trim().strip_prefix("served "));
        assert!(
            served
                .and_then(|n| n.parse::<u32>().ok())
                .is_some_and(|n| n > 1),
            "{told}"
        );
    }
    assert_eq!(lines.collect::<Vec<_>>(), Vec::<&str>::new());
}

/// A command that ignores what it is asked and has left its session.
const STUBBORN: &str =
    r#"run setsid sh -c 'trap "" TERM HUP; touch working; while :; do sleep 1; done' & wait"#;

fn a_stop_ends_a_stubborn_turn_too(machine: &mut Machine) {
    let mut sending = machine
        .command(&["monoctl", "send", "--new", "--json", STUBBORN])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    machine.wait("the command runs", |machine| {
        machine
            .run(&["test", "-e", "/var/lib/mono-workspace/working"])
            .status
            .success()
    });
    machine.stop(
        "monod.service",
        "monod.socket monod-openai.socket monod.service",
    );
    assert_eq!(sending.wait().unwrap().code(), Some(1));
    assert!(
        !machine
            .run(&["test", "-e", "/run/mono/monod.sock"])
            .status
            .success()
    );
}

fn upgrade_remove_purge(machine: &Machine) {
    machine.sh("systemctl start monod-openai.socket monod.service");
    let old = machine.show("monod.service", "MainPID");
    machine.sh("dpkg-deb -R /mnt/mono.deb /tmp/next
         sed -i '/^Version:/s/-1$/-2/' /tmp/next/DEBIAN/control
         dpkg-deb -Znone -b /tmp/next /tmp/next.deb
         dpkg -i /tmp/next.deb");
    assert_ne!(machine.show("monod.service", "MainPID"), old);
    let program = machine.sh(&format!(
        "readlink /proc/{}/exe",
        machine.show("monod.service", "MainPID")
    ));
    assert_eq!(program.trim(), "/usr/bin/monod");
    // The operator's configuration and units are as they were, and so is what was done before.
    assert_eq!(
        machine
            .workers()
            .iter()
            .filter(|w| w["role"] == "channel-openai")
            .count(),
        1
    );
    assert_eq!(
        machine
            .sh("systemctl is-enabled monod-openai.socket")
            .trim(),
        "enabled"
    );
    let runs = machine.json("monoctl runs list --json");
    assert!(
        runs["items"]
            .as_array()
            .or(runs["runs"].as_array())
            .is_some_and(|all| all.len() > 1),
        "{runs}"
    );

    machine.sh("dpkg -r mono");
    assert_eq!(machine.show("monod.service", "ActiveState"), "inactive");
    assert_eq!(machine.show("monod.service", "LoadState"), "not-found");
    assert_eq!(machine.sh("pgrep -x monod || :"), "");
    machine
        .sh("test -e /var/lib/mono/store -a -e /etc/mono/credentials/api -a ! -e /usr/bin/monod");
    assert!(
        machine
            .sh("cat /etc/mono/mono-agent.config.json")
            .contains("key_api")
    );

    machine.sh("dpkg -P mono");
    machine.sh("for left in /etc/mono /var/lib/mono /run/mono /etc/systemd/system/*/mono*.socket; do test ! -e $left; done");
    // What was made in the workspace is not the package's.
    machine.sh("test -e /var/lib/mono-workspace/demo-report.csv");
    assert_eq!(
        machine.sh("systemctl is-system-running || :").trim(),
        "running"
    );
}

#[test]
fn the_rootless_deployment_lives_under_systemd() {
    let mut machine = Machine::boot();
    machine.sh("dpkg -i /mnt/mono.deb");
    // Whoever connects starts it.
    machine.sh("systemctl enable --now monod-rootless.socket");
    assert_eq!(
        machine.show("monod-rootless.service", "ActiveState"),
        "inactive"
    );
    machine.sh("monoctl status --json | grep workers");
    machine.start("monod-rootless.service");
    let mono: u64 = machine.sh("id -u mono").trim().parse().unwrap();
    for worker in machine.workers() {
        let sandbox = &worker["sandbox"];
        assert_eq!(sandbox["uid"], mono, "{worker}");
        assert!(
            sandbox["namespaces"]
                .as_array()
                .unwrap()
                .iter()
                .any(|n| n == "user"),
            "{worker}"
        );
    }
    let main = machine.show("monod-rootless.service", "MainPID");
    let kernel = machine.sh(&format!("cat /proc/{main}/status"));
    assert!(kernel.contains("CapBnd:\t0000000000000000"), "{kernel}");
    assert!(
        kernel.contains(&format!("Uid:\t{mono}\t{mono}\t{mono}\t{mono}")),
        "{kernel}"
    );
    memory_is_limited_as_the_machine_allows(&mut machine, "monod-rootless.service", "mono");
    machine.reload("monod-rootless.service");
    machine.turn();
    // Its own user may operate it, another one may not.
    machine.sh("setpriv --reuid mono --regid mono --clear-groups monoctl runs list");
    let other = machine.run(&[
        "setpriv",
        "--reuid",
        "nobody",
        "--regid",
        "nogroup",
        "--clear-groups",
        "monoctl",
        "status",
    ]);
    assert_eq!(other.status.code(), Some(3), "{other:?}");
    machine.stop(
        "monod-rootless.service",
        "monod-rootless.socket monod-rootless.service",
    );
    machine.sh("dpkg -P mono; test ! -e /var/lib/mono-rootless");
}
