//! `cargo xtask demo` in the hands of whoever started it: nothing of it outlives it.

use mono_tests::daemon::PATIENCE;
use mono_tests::processes::{below, outliving};
use mono_tests::program::binary;
use mono_tests::work;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};

/// A demo that is up, in a process group of its own: a signal for it reaches nobody else.
fn demo(folder: &std::path::Path) -> Child {
    // Any is chosen before it is used, and another test could have it by then.
    let continuations = work::free_port().unwrap();
    let mut child = Command::new(binary("xtask", "xtask"))
        .arg("demo")
        .arg("--dir")
        .arg(folder.join("demo"))
        .args(["--port", "0", "--console-port", "0"])
        .args(["--continuations-port", &continuations.to_string()])
        // Everything is built already.
        .env("CARGO", "true")
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines();
    let up = said
        .map_while(Result::ok)
        .any(|line| line.contains("Ctrl-C stops it"));
    assert!(up, "the demo ended: {:?}", child.wait());
    child
}

/// Sends the signal to the demo alone; gives how it ended, when all that it had started is gone.
fn end_by(signal: Signal) -> ExitStatus {
    let folder = tempfile::tempdir().unwrap();
    let mut child = demo(folder.path());
    let pid = i32::try_from(child.id()).unwrap();
    let tree = below(pid);
    for started in ["monod", "work-service"] {
        assert!(tree.iter().any(|p| p.name == started), "{tree:?}");
    }
    kill(Pid::from_raw(pid), signal).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(outliving(&tree, PATIENCE), []);
    // In order, not killed.
    let log = std::fs::read_to_string(folder.path().join("demo/monod.log")).unwrap();
    assert!(log.trim_end().ends_with("stopped"), "{log}");
    status
}

#[test]
fn an_interrupt_for_the_demo_alone_ends_its_daemon() {
    for signal in [Signal::SIGINT, Signal::SIGHUP] {
        assert!(end_by(signal).success());
    }
}

#[test]
fn the_daemon_of_a_demo_that_was_killed_ends_in_order() {
    let status = end_by(Signal::SIGKILL);
    assert_eq!(status.signal(), Some(Signal::SIGKILL as i32));
}
