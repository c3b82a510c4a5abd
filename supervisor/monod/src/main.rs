//! `monod`: starts one confined process per duty, hands each exactly the channels it may use, and
//! parses nothing that comes from outside.
#![forbid(unsafe_code)]

mod admin;
mod admission;
mod boot;
mod compose;
mod input;
mod launch;
mod logbook;
mod operator;
mod process;
mod programs;
mod restart;
mod run;
mod servers;
mod slot;
mod status;
mod supervisor;
mod systemd;
mod turns;

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// The supervisor of mono: hosts AI agents with every duty in its own sandboxed process.
///
/// Start it with a configuration and talk to it with `monoctl`:
///
///   monod --config mono-agent.config.json
///   monoctl send "hello"
#[derive(Debug, Parser)]
#[command(name = "monod", version, max_term_width = 100)]
pub(crate) struct Arguments {
    /// The configuration, a JSON file.
    #[arg(long, value_name = "FILE", default_value = "mono-agent.config.json")]
    config: PathBuf,
    /// The admin socket [default: `monod.sock` in the state directory].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The folder that holds mono-launch and the workers [default: the folder of this program].
    #[arg(long, value_name = "DIR")]
    libexec: Option<PathBuf>,
    /// Run although the kernel can't give everything that the policy asks for. What is missing
    /// shows in every status.
    #[arg(long)]
    allow_degraded: bool,
    /// Check the configuration and what the kernel offers, then exit: 0 when the daemon would
    /// start, 1 when not.
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    start_log();
    match boot::run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("monod: {e}");
            ExitCode::FAILURE
        }
    }
}

/// To the journal with its fields (role, pid, run) where systemd connected us to it, else as lines
/// on standard error.
fn start_log() {
    use tracing_subscriber::prelude::*;
    let filter = tracing_subscriber::EnvFilter::try_from_env("MONO_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let journal = std::env::var_os("JOURNAL_STREAM").and_then(|_| tracing_journald::layer().ok());
    if let Some(journal) = journal {
        let journal = journal.with_field_prefix(Some("MONO".to_owned()));
        tracing_subscriber::registry()
            .with(filter)
            .with(journal)
            .init();
    } else {
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .with_ansi(false)
            .with_target(false)
            .init();
    }
}
