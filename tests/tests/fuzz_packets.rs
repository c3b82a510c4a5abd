//! A short run of the packet fuzzer: the long one is `cargo xtask fuzz`.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::process::Command;

#[test]
fn hostile_packets_end_no_process_and_grow_no_memory() {
    let output = Command::new(env!("CARGO_BIN_EXE_fuzz-packets"))
        .args(["--packets", "200000", "--json"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_str(text.lines().last().unwrap_or_default())
        .unwrap_or_else(|e| panic!("{e}\n{text}\n{errors}"));
    assert!(output.status.success(), "{report}\n{errors}");
    assert_eq!(report["ok"], true);
    assert!(report["packets"].as_u64().unwrap() >= 200_000, "{report}");
    // Every seat was attacked, with descriptors.
    assert!(report["channels"].as_u64().unwrap() > 400, "{report}");
    assert!(report["descriptors"].as_u64().unwrap() > 1_000, "{report}");
}
