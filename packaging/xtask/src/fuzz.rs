//! `cargo xtask fuzz`: hostile packets by the million against the wire, optimised as in service.

use crate::build::{self, Programs, cargo};
use anyhow::{Context, Result, bail};
use std::process::Command;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Stop after so many seconds [default: 10, or no bound with --packets].
    #[arg(long, value_name = "N")]
    seconds: Option<u32>,
    /// Stop after so many packets through the decoder.
    #[arg(long, value_name = "N")]
    packets: Option<u64>,
    /// Repeat an earlier run.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print one JSON object as the last line.
    #[arg(long)]
    json: bool,
    /// Only see that the cargo-fuzz targets of every parser compile; needs a C++ compiler.
    #[arg(long, exclusive = true)]
    check_targets: bool,
}

/// Folders with cargo-fuzz targets; each is a workspace of its own.
const TARGETS: [&str; 8] = [
    "ipc-proto/fuzz",
    "supervisor/config/fuzz",
    "workers/app-bridge/fuzz",
    "workers/artifact/fuzz",
    "workers/channel/fuzz",
    "workers/continuation/service/fuzz",
    "workers/continuation/store/fuzz",
    "workers/egress/fuzz",
];

fn check_targets() -> Result<bool> {
    let root = build::root();
    for folder in TARGETS {
        let folder = root.join(folder);
        // The versions that ship are the ones to test; cargo adds what only the fuzzer needs.
        std::fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock"))?;
        let status = cargo()
            .current_dir(&folder)
            .arg("check")
            .env("CARGO_TARGET_DIR", root.join("target/fuzz"))
            .status()
            .context("cargo can't be started")?;
        if !status.success() {
            return Ok(false);
        }
    }
    println!("the targets in {} compile", TARGETS.join(", "));
    Ok(true)
}

/// True when nothing died and nothing grew.
pub(crate) fn run(arguments: &Arguments) -> Result<bool> {
    if arguments.check_targets {
        return check_targets();
    }
    let programs = build::build(Programs::Named(&["fuzz-packets"]), true)?;
    let mut command = Command::new(programs.join("fuzz-packets"));
    let numbers = [
        ("--seconds", arguments.seconds.map(u64::from)),
        ("--packets", arguments.packets),
        ("--seed", arguments.seed),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            command.args([name, &value.to_string()]);
        }
    }
    command.args(arguments.json.then_some("--json"));
    let status = command.status().context("fuzz-packets can't be started")?;
    if status.code().is_none() {
        // A panic of a release build ends by signal; it said which packet before.
        bail!("fuzz-packets died: {status}");
    }
    Ok(status.success())
}
