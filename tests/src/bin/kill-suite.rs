//! `kill-suite [--seconds N] [--seed N] [--json]`: whoever takes part in continuations, killed under
//! load. See `mono_tests::kills`.
#![forbid(unsafe_code)]

use clap::Parser;
use continuation_proof::trial::Common;
use mono_tests::kills;
use std::process::ExitCode;

/// Kill whoever takes part in continuations while clients ask: every claim has its one answer, or
/// says what is not known.
#[derive(Debug, Parser)]
struct Arguments {
    /// For so many seconds.
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
    #[command(flatten)]
    common: Common,
}

fn main() -> ExitCode {
    let Arguments { seconds, common } = Arguments::parse();
    let good = "each claim has its one answer, or says what is not known";
    common.run("killed", good, |seed| kills::run(seed, seconds))
}
