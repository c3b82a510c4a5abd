//! `monod`: starts one confined process per duty, hands each exactly the channels it may use, and
//! parses nothing that comes from outside.
#![forbid(unsafe_code)]

mod admin;
mod admission;
mod alone;
mod boot;
mod capacity;
mod cli;
mod compose;
mod console;
mod continuations;
mod counters;
mod ends;
mod environment;
mod figures;
mod handover;
mod handshake;
mod input;
mod launch;
mod lifecycle;
mod links;
mod logbook;
mod memory;
mod operator;
mod owner;
mod ownership;
mod process;
mod programs;
mod relay;
mod reload;
mod request;
mod restart;
mod rollover;
mod room;
mod run;
mod servers;
mod slot;
mod status;
mod stopping;
mod stubs;
mod supervisor;
mod systemd;
mod turns;
mod upgrade;
mod violations;
mod watchdog;

use clap::Parser;
pub(crate) use cli::Arguments;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(file) = &arguments.env_file {
        eprintln!("monod: {}", environment::adopt(file));
        return ExitCode::FAILURE;
    }
    start_log();
    // Whoever starts a daemon may hold signals back, and processes inherit that: it could not be
    // stopped, and a run's commands could not be either.
    if let Err(e) = nix::sys::signal::SigSet::empty().thread_set_mask() {
        tracing::warn!("signals stay as they were found: {e}");
    }
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
    use tracing_subscriber::filter::{LevelFilter, Targets};
    use tracing_subscriber::prelude::*;
    let said = std::env::var("MONO_LOG").unwrap_or_default();
    let said = Some(said.as_str()).filter(|said| !said.is_empty());
    let filter = said
        .and_then(|said| said.parse::<Targets>().ok())
        .unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let journal = std::env::var_os("JOURNAL_STREAM").and_then(|_| tracing_journald::layer().ok());
    let log = tracing_subscriber::registry().with(filter);
    if let Some(journal) = journal {
        log.with(journal.with_field_prefix(Some("MONO".to_owned())))
            .init();
    } else {
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(false)
            .with_target(false);
        log.with(lines).init();
    }
}
