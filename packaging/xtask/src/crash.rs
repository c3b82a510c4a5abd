//! `cargo xtask crash`: an owner of durable bytes, killed at every system call of its work.

use crate::build;
use anyhow::{Context, Result, bail};
use std::process::Command;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Whose work: `artifact`, `apps` or `continuation-worker`; or `continuations` on a simulated disk, `continuations-simulation`, where
    /// everything else that can happen does as well, in any order, or `kills` of whoever takes part in them.
    name: String,
    /// So many points at most, chosen by the seed [default: all of them].
    #[arg(long, value_name = "N")]
    sample: Option<usize>,
    /// So many steps of the simulation [default: a million].
    #[arg(long, value_name = "N", conflicts_with = "sample")]
    steps: Option<usize>,
    /// So many seconds of killing [default: a minute].
    #[arg(long, value_name = "N", conflicts_with_all = ["sample", "steps"])]
    seconds: Option<u64>,
    /// Repeat an earlier sample.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print one JSON object as the last line.
    #[arg(long)]
    json: bool,
}

/// True when nothing was lost.
pub(crate) fn run(arguments: &Arguments) -> Result<bool> {
    let program = match arguments.name.as_str() {
        "continuations" => "crash-continuations",
        "continuations-simulation" => "simulate-continuations",
        "kills" => "kill-suite",
        _ => "crash-suite",
    };
    let wanted = match program {
        // Whole daemons.
        "kill-suite" => build::Programs::WithTests,
        _ => build::Programs::Named(&[program]),
    };
    let programs = build::build(wanted, false)?;
    let mut command = Command::new(programs.join(program));
    if program == "crash-suite" {
        command.arg(&arguments.name);
    }
    let numbers = [
        ("--sample", arguments.sample.map(|n| n.to_string())),
        ("--steps", arguments.steps.map(|n| n.to_string())),
        ("--seconds", arguments.seconds.map(|n| n.to_string())),
        ("--seed", arguments.seed.map(|n| n.to_string())),
    ];
    for (name, value) in numbers {
        command.args(
            value
                .map(|value| [name.to_owned(), value])
                .into_iter()
                .flatten(),
        );
    }
    command.args(arguments.json.then_some("--json"));
    let status = command
        .status()
        .with_context(|| format!("{program} can't be started"))?;
    match status.code() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        _ => bail!("the crashes could not be tried: {status}; the reason is above"),
    }
}
