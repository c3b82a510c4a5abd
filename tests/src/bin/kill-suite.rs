//! `kill-suite [--seconds N] [--seed N] [--json]`: whoever takes part in continuations, killed under
//! load. See `mono_tests::kills`.
#![forbid(unsafe_code)]

use clap::Parser;
use mono_tests::kills::{self, Options, Report};
use std::process::ExitCode;

/// Kill whoever takes part in continuations while clients ask: every claim has its one answer, or
/// says what is not known.
#[derive(Debug, Parser)]
struct Arguments {
    /// For so many seconds.
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
    /// Repeat an earlier choice of victims and moments.
    #[arg(long, value_name = "N")]
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
        seconds: arguments.seconds,
    };
    match kills::run(options) {
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
            eprintln!("kill-suite (seed {}): {e:#}", options.seed);
            ExitCode::from(2)
        }
    }
}

fn tell(report: &Report) {
    for violation in &report.violations {
        println!("{violation}");
    }
    for (who, count) in &report.killed {
        println!("killed {who:<40} {count:>6}");
    }
    for (state, count) in &report.states {
        println!("claims {state:<40} {count:>6}");
    }
    for (place, count) in &report.answers {
        println!("answers {place:<39} {count:>6}");
    }
    let result = if report.ok {
        "each claim has its one answer, or says what is not known"
    } else {
        "NOT as it has to be"
    };
    println!(
        "{} killed, {} claims, {result} (seed {})",
        report.points, report.claims, report.seed
    );
}
