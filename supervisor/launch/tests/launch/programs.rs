//! Programs that are not ours, as MCP servers and as a run's tool commands.

use crate::fixture::Fixture;
use ipc_proto::Role;
use mono_sys::process::ExitStatus;
use std::path::Path;

fn installed(name: &str) -> bool {
    ["/usr/local/bin", "/usr/bin", "/bin"]
        .iter()
        .any(|place| Path::new(place).join(name).exists())
}

#[track_caller]
fn says(fixture: &Fixture, command: &str, arguments: &[&str], expected: &str) {
    let ended = fixture.server(command, arguments);
    assert_eq!(ended.status, ExitStatus::Exited(0), "{command}: {ended:?}");
    assert!(ended.output.contains(expected), "{command}: {ended:?}");
}

#[test]
fn shells_and_version_control_work_as_mcp_servers() {
    let fixture = Fixture::new();
    says(&fixture, "bash", &["-c", "ls /usr | head -1"], "bin");
    says(
        &fixture,
        "/bin/sh",
        &["-c", "echo $HOME $TMPDIR; pwd"],
        "/scratch /scratch\n",
    );
    says(
        &fixture,
        "sh",
        &["-c", "echo x >/dev/null && head -c 4 /dev/urandom | wc -c"],
        "4",
    );
    says(
        &fixture,
        "sh",
        &["-c", "(sleep 0.01 & wait) | cat; echo end"],
        "end",
    );
    says(&fixture, "git", &["--version"], "git version");
    let script = "git init -q repository && cd repository && echo x > file && git add file && \
        git -c user.email=a@b -c user.name=c commit -qm first && git log --oneline | wc -l";
    says(&fixture, "sh", &["-c", script], "1");
}

#[test]
fn interpreters_and_compilers_work_as_mcp_servers() {
    let fixture = Fixture::new();
    let wanted: [(&str, &[&str], &str); 3] = [
        (
            "node",
            &[
                "-e",
                "require('worker_threads'); setTimeout(() => console.log(1 + 1), 5)",
            ],
            "2",
        ),
        (
            "python3",
            &[
                "-c",
                "import threading,subprocess,tempfile; print(subprocess.run(['echo','ok'],capture_output=True).stdout)",
            ],
            "ok",
        ),
        (
            "sh",
            &[
                "-c",
                "printf 'int main(void){return 0;}' > a.c && cc -o a a.c && ./a && echo built",
            ],
            "built",
        ),
    ];
    let mut ran = 0;
    for (command, arguments, expected) in wanted {
        if installed(if command == "sh" { "cc" } else { command }) {
            says(&fixture, command, arguments, expected);
            ran += 1;
        } else {
            eprintln!("{command} is not installed in /usr and was left out");
        }
    }
    // A shell is everywhere, an interpreter or a compiler nearly so; nothing at all would mean
    // that this test says nothing.
    assert!(ran > 0, "none of node, python3 and cc is installed in /usr");
}

#[test]
fn a_server_with_a_test_listener_of_its_own_works_and_reaches_nobody() {
    let fixture = Fixture::new();
    let ended = fixture.probe(Role::Run, &["loopback"]);
    assert_eq!(ended.of("loopback"), "done");
    let script = "cat /etc/shadow; ls /root /home /var; cat /proc/1/environ | tr '\\0' '\\n'";
    let ended = fixture.server("sh", &["-c", script]);
    assert!(!ended.output.contains("root:"), "{ended:?}");
    assert!(
        ended.output.lines().all(|line| line.contains('=')),
        "{ended:?}"
    );
    assert!(!ended.output.contains("MONO_"), "{ended:?}");
}

#[test]
fn a_command_that_is_not_there_is_told_by_name() {
    let fixture = Fixture::new();
    let ended = fixture.server("no-such-server", &[]);
    assert_eq!(
        ended.status,
        ExitStatus::Exited(i32::from(policy::exit::Step::Execute.code()))
    );
    assert!(ended.error.contains("no-such-server"), "{ended:?}");
    assert!(
        ended.error.contains("must exist inside the sandbox"),
        "{ended:?}"
    );
    assert_eq!(ended.error.lines().count(), 1, "{ended:?}");
}

#[test]
fn the_end_of_a_server_is_the_end_of_all_that_it_started() {
    let fixture = Fixture::new();
    // The child leaves its session and keeps no pipe; only the pid namespace holds it.
    let script = "setsid sh -c 'sleep 600' </dev/null >/dev/null 2>&1 & \
        sleep 600 & echo started";
    let ended = fixture.server("sh", &["-c", script]);
    assert_eq!(ended.status, ExitStatus::Exited(0), "{ended:?}");
    // The pipe that the second child holds was closed by its end, or reading would not have
    // come back at once.
    assert_eq!(ended.output, "started\n");
}
