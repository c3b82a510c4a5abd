//! `bench-continuations NAME`: measures one figure of durable continuations and prints it as one JSON
//! object. See `continuation_proof::bench`.
#![forbid(unsafe_code)]

use anyhow::{Context as _, Result};
use clap::Parser;
use continuation_proof::bench;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure one figure of durable continuations.
#[derive(Debug, Parser)]
struct Arguments {
    /// Which: claims, results, `full_store`, restart or lifecycle.
    name: Option<String>,
    /// Be the service that is measured.
    #[arg(long, hide = true, requires = "port")]
    serve: Option<PathBuf>,
    /// Where it listens.
    #[arg(long, hide = true)]
    port: Option<u16>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("bench-continuations: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    if let (Some(folder), Some(port)) = (&arguments.serve, arguments.port) {
        return bench::serve(folder, TcpListener::bind(("127.0.0.1", port))?);
    }
    let name = arguments.name.as_deref().context("which figure?")?;
    println!("{}", bench::measure(name)?);
    Ok(())
}
