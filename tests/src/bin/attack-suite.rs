//! `attack-suite [--role R] [--mode M] [--json]`: a hostile program inside every sandbox. See
//! `mono_tests::attack`; people call it by `cargo xtask attack`.
#![forbid(unsafe_code)]

use anyhow::Result;
use clap::{Parser, ValueEnum};
use mono_tests::attack::{self, Options, found};
use std::process::ExitCode;

/// A hostile program inside every sandbox tries what must not work.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only this role.
    #[arg(long)]
    role: Option<String>,
    /// Only this mode.
    #[arg(long)]
    mode: Option<Mode>,
    /// Print one JSON object as the last line.
    #[arg(long)]
    json: bool,
    /// Write the expected table anew; look at every difference before you commit it.
    #[arg(long)]
    bless: bool,
    /// Print only what came of it, for the process that started this one.
    #[arg(long, hide = true)]
    found: bool,
    /// Register at this gateway with this token and print what it says.
    #[arg(long, hide = true, num_args = 2, value_names = ["SOCKET", "TOKEN"])]
    register: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mode {
    Rootless,
    System,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("attack-suite: {e:#}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool> {
    if let [socket, token] = arguments.register.as_slice() {
        println!("{}", attack::live::gateway::told(socket.as_ref(), token)?);
        return Ok(true);
    }
    let options = Options {
        role: arguments.role.clone(),
        mode: arguments.mode.map(|mode| match mode {
            Mode::Rootless => found::Mode::Rootless,
            Mode::System => found::Mode::System,
        }),
    };
    if arguments.found {
        println!("{}", attack::found(&options)?.written());
        return Ok(true);
    }
    let report = attack::run(&options)?;
    print!("{}", report.text());
    if arguments.bless {
        report.bless()?;
    }
    if arguments.json {
        println!("{}", report.json());
    }
    Ok(report.ok())
}
