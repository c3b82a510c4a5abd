//! `crash-continuations [--sample N] [--seed N] [--json]`: the store of continuations, cut off from
//! its power at every call that it makes. See `continuation_proof::crash`.
#![forbid(unsafe_code)]

use clap::Parser;
use continuation_proof::crash;
use continuation_proof::trial::Common;
use std::process::ExitCode;

/// Cut the store of continuations off from its power at every call: nothing may be lost.
#[derive(Debug, Parser)]
struct Arguments {
    /// So many points at most [default: all of them].
    #[arg(long, value_name = "N")]
    sample: Option<usize>,
    #[command(flatten)]
    common: Common,
}

fn main() -> ExitCode {
    let Arguments { sample, common } = Arguments::parse();
    common.run("points", "nothing was lost", |seed| {
        crash::run(seed, sample)
    })
}
