//! `simulate-continuations [--steps N] [--seed N] [--json]`: everything that can happen to
//! continuations, in any order. See `continuation_proof::simulation`.
#![forbid(unsafe_code)]

use clap::Parser;
use continuation_proof::simulation::{self, Length};
use continuation_proof::{Options, Report};
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
        sample: None,
    };
    let length = Length {
        steps: arguments.steps,
        crash_every: arguments.crash_every.max(2),
        honest: true,
    };
    match simulation::run(options, length) {
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
            eprintln!("simulate-continuations: {e:#}");
            ExitCode::from(2)
        }
    }
}

fn tell(report: &Report) {
    for violation in &report.violations {
        println!("{violation}");
    }
    for (name, count) in report.kinds.iter().chain(&report.scenes) {
        println!("{name:<24} {count:>8}");
    }
    let result = if report.ok {
        "every promise was kept"
    } else {
        "NOT as it has to be"
    };
    println!("{} steps, {result} (seed {})", report.points, report.seed);
}
