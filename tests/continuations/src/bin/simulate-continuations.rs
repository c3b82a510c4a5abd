//! `simulate-continuations [--steps N] [--seed N] [--json]`: everything that can happen to
//! continuations, in any order. See `continuation_proof::simulation`.
#![forbid(unsafe_code)]

use clap::Parser;
use continuation_proof::simulation::{self, Length};
use continuation_proof::trial::Common;
use std::process::ExitCode;

/// Let everything happen to continuations that can, in any order.
#[derive(Debug, Parser)]
struct Arguments {
    /// So many steps.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    steps: usize,
    /// A crash or a failing disk comes once in so many steps.
    #[arg(long, value_name = "N", default_value_t = 50)]
    crash_every: usize,
    #[command(flatten)]
    common: Common,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let length = Length {
        steps: arguments.steps,
        crash_every: arguments.crash_every.max(2),
        honest: true,
    };
    let common = arguments.common;
    common.run("steps", "every promise was kept", |seed| {
        simulation::run(seed, length)
    })
}
