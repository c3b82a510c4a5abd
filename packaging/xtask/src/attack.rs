//! `cargo xtask attack`: a hostile program of ours inside every role's real sandbox, against the
//! table of what must come of it.

use crate::build;
use anyhow::{Context, Result, bail};
use std::process::Command;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only this role.
    #[arg(long, value_name = "R")]
    role: Option<String>,
    /// Only `rootless` or only `system` (which needs root) [default: both, as far as possible].
    #[arg(long, value_name = "M")]
    mode: Option<String>,
    /// Print one JSON object as the last line.
    #[arg(long)]
    json: bool,
    /// Write the expected table anew; look at every difference before you commit it.
    #[arg(long, conflicts_with = "role")]
    bless: bool,
}

/// True when everything came as expected.
pub(crate) fn run(arguments: &Arguments) -> Result<bool> {
    let programs = build::build(build::Programs::WithTests, false)?;
    let mut command = Command::new(programs.join("attack-suite"));
    for (name, value) in [("--role", &arguments.role), ("--mode", &arguments.mode)] {
        if let Some(value) = value {
            command.args([name, value]);
        }
    }
    command.args(arguments.json.then_some("--json"));
    command.args(arguments.bless.then_some("--bless"));
    let status = command
        .env("MONO_PROGRAMS", &programs)
        .status()
        .context("attack-suite can't be started")?;
    match status.code() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        _ => bail!("the attacks could not be made: {status}; the reason is above"),
    }
}
