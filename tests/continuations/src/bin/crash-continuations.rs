//! `crash-continuations [--sample N] [--seed N] [--json]`: the store of continuations, cut off from
//! its power at every call that it makes. See `continuation_proof::crash`.
#![forbid(unsafe_code)]

use clap::Parser;
use continuation_proof::{Options, Report, crash};
use std::process::ExitCode;

/// Cut the store of continuations off from its power at every call: nothing may be lost.
#[derive(Debug, Parser)]
struct Arguments {
    /// So many points at most [default: all of them].
    #[arg(long, value_name = "N")]
    sample: Option<usize>,
    /// Repeat an earlier run.
    #[arg(long)]
    seed: Option<u64>,
    /// Print one JSON object as the last line.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let options = Options {
        seed: arguments
            .seed
            .unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0),
        sample: arguments.sample,
    };
    match crash::run(options) {
        Ok(report) => {
            tell(&report);
            if arguments.json
                && let Ok(line) = serde_json::to_string(&report)
            {
                println!("{line}");
            }
            ExitCode::from(u8::from(!report.ok))
        }
        Err(e) => {
            eprintln!("crash-continuations: {e:#}");
            ExitCode::from(2)
        }
    }
}

fn tell(report: &Report) {
    for violation in &report.violations {
        println!("{violation}");
    }
    for (name, points) in report.scenes.iter().chain(&report.kinds) {
        println!("{name:<16} {points:>6}");
    }
    let result = if report.ok {
        "nothing was lost"
    } else {
        "NOT as it has to be"
    };
    println!("{} points, {result} (seed {})", report.points, report.seed);
}
