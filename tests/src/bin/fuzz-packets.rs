//! `fuzz-packets [--seconds N] [--packets N] [--seed N] [--json]`: hostile packets against the
//! wire. See `mono_tests::fuzz`.
#![forbid(unsafe_code)]

use clap::Parser;
use mono_tests::fuzz::{self, Options};
use std::process::ExitCode;
use std::time::Duration;

/// Hostile packets against the wire: nothing may die, hang, keep a descriptor or grow.
#[derive(Debug, Parser)]
struct Arguments {
    /// Stop after so many seconds [default: 10, or no bound with --packets].
    #[arg(long, value_name = "N")]
    seconds: Option<u32>,
    /// Stop after so many packets through the decoder.
    #[arg(long, value_name = "N")]
    packets: Option<u64>,
    /// Repeat an earlier run.
    #[arg(long)]
    seed: Option<u64>,
    /// Print one JSON object as the last line.
    #[arg(long)]
    json: bool,
    /// Be the process that is attacked, on standard input.
    #[arg(long, hide = true)]
    peer: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.peer {
        return match fuzz::peer::serve() {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("the peer ended: {e}");
                ExitCode::FAILURE
            }
        };
    }
    let seed = arguments
        .seed
        .unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
    eprintln!("seed {seed}");
    let seconds = match (arguments.seconds, arguments.packets) {
        (Some(seconds), _) => seconds,
        (None, None) => 10,
        (None, Some(_)) => 24 * 3600,
    };
    let report = match fuzz::run(Options {
        seed,
        time: Duration::from_secs(seconds.into()),
        packets: arguments.packets.unwrap_or(u64::MAX),
    }) {
        Ok(report) => report,
        Err(e) => {
            eprintln!("fuzz-packets: {e:#}; repeat with --seed {seed}");
            return ExitCode::FAILURE;
        }
    };
    println!(
        "{} packets in {:.1} s ({:.0}/s): {} through the decoder ({} of them valid), {} over {} channels \
         with {} descriptors ({} channels ended by the peer)\npeak growth {} KiB, descriptors {:+}",
        report.packets,
        report.seconds,
        report.packets as f64 / report.seconds,
        report.decoded,
        report.accepted,
        report.sent,
        report.channels,
        report.descriptors,
        report.violations,
        report.rss_growth_bytes / 1024,
        report.fd_growth,
    );
    if arguments.json {
        match serde_json::to_string(&report) {
            Ok(line) => println!("{line}"),
            Err(e) => eprintln!("fuzz-packets: {e}"),
        }
    }
    if report.ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
