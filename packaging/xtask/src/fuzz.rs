//! `cargo xtask fuzz`: hostile packets by the million against the wire, optimised as in service.

use crate::build::{self, cargo};
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
}

/// True when nothing died and nothing grew.
pub(crate) fn run(arguments: &Arguments) -> Result<bool> {
    let built = cargo()
        .args(["build", "--release", "--locked"])
        .args(["--package", "mono-tests", "--bin", "fuzz-packets"])
        .status()
        .context("cargo can't be started")?;
    if !built.success() {
        bail!("the build failed");
    }
    let mut command = Command::new(build::folder(true).join("fuzz-packets"));
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
