//! Every attack comes to exactly what the table says, inside every sandbox and without one.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::process::Command;

/// Fewest attempts for every role in every mode.
const LEAST: u64 = 120;

#[test]
fn every_attack_comes_to_what_the_table_says() {
    let output = Command::new(env!("CARGO_BIN_EXE_attack-suite"))
        .arg("--json")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_str(text.lines().last().unwrap_or_default())
        .unwrap_or_else(|e| panic!("{e}\n{text}\n{errors}"));
    let unexpected = report["unexpected"].as_array().unwrap();
    let first: Vec<_> = unexpected.iter().take(20).collect();
    assert!(
        unexpected.is_empty(),
        "{} such as {first:#?}",
        unexpected.len()
    );
    assert!(output.status.success() && report["ok"] == true, "{errors}");

    let root = nix::unistd::geteuid().is_root();
    let modes = if root {
        vec!["rootless", "system"]
    } else {
        // Only root can give each role a user of its own.
        vec!["rootless"]
    };
    let roles = report["roles"].as_object().unwrap();
    assert!(roles.len() >= 14, "{:?}", roles.keys());
    for mode in modes {
        for (role, modes) in roles {
            let tried = modes[mode]["sandbox"]["tried"].as_u64().unwrap_or(0);
            assert!(tried >= LEAST, "{role}, {mode}: {tried} attempts");
        }
        // Each role that a daemon starts.
        for role in [
            "store",
            "artifact",
            "egress",
            "app-bridge",
            "channel-openai",
            "channel-console",
            "channel-webhook",
            "continuation",
            "metrics",
            "run",
        ] {
            let ipc = &roles[role][mode]["supervisor"]["tried"];
            assert!(ipc.as_u64().unwrap() >= 40, "{role}, {mode}: {ipc}");
        }
        // Everybody whom a run talks to, the supervisor among them.
        for owner in [
            "store",
            "artifact",
            "egress",
            "app-bridge",
            "continuation",
            "channel-openai",
            "monod",
        ] {
            let tried = &report["owners"][owner][mode]["tried"];
            assert!(tried.as_u64().unwrap() >= 100, "{owner}, {mode}: {tried}");
        }
        // Without a sandbox most of them succeed, or they would prove nothing.
        let control = &report["control"][mode];
        let (tried, succeeded) = (&control["tried"], &control["succeeded"]);
        let share = succeeded.as_f64().unwrap() / tried.as_f64().unwrap();
        let least = if mode == "system" { 0.85 } else { 0.6 };
        assert!(share >= least, "{mode}: {succeeded} of {tried}");
    }
}
