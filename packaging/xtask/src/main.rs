//! The project's own tasks: `cargo xtask demo`, `test`, `bench`, `package`, `fuzz`.
#![forbid(unsafe_code)]

mod attack;
mod bench;
mod build;
mod console;
mod crash;
mod demo;
mod fuzz;
mod interrupt;
mod licences;
mod node;
mod package;
mod supply;
mod test;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Tasks of the mono workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Start everything rootless with the embedded demo model, and say how to go on.
    ///
    /// With --once: run one scripted turn, print one JSON object as the last line, exit 0 when
    /// the reply, its file and the confinement of every worker are as they should be.
    Demo(demo::Arguments),
    /// Build the page of the web console, which the channel worker carries.
    Console(console::Arguments),
    /// Run every check and test; the last line is `N passed, N failed`.
    Test(test::Arguments),
    /// Measure what is promised, each figure beside its baseline of the same run.
    ///
    /// Builds everything optimised first. Exits 0 when every figure could be measured, met or not.
    Bench(bench::Arguments),
    /// Build the Debian package; the last line is its path.
    Package(package::Arguments),
    /// Throw hostile packets at the wire: nothing may die, hang, keep a descriptor or grow.
    Fuzz(fuzz::Arguments),
    /// Put a hostile program into every role's sandbox and see each of its attempts refused.
    ///
    /// Prints what came of each attempt; exits 0 when it is exactly the expected table, also of
    /// what the same attempts come to without a sandbox.
    Attack(attack::Arguments),
    /// Kill an owner of durable bytes at every system call of its work, and let the disk fail at
    /// each: nothing may be lost, half there, or charged to nobody.
    ///
    /// With --json the last line is `{ "ok", "points", "violations", "seed", … }`.
    Crash(crash::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Demo(arguments) => demo::run(&arguments),
        Task::Console(arguments) => console::run(&arguments),
        Task::Test(arguments) => test::run(&arguments),
        Task::Bench(arguments) => bench::run(&arguments),
        Task::Package(arguments) => package::run(&arguments),
        Task::Fuzz(arguments) => fuzz::run(&arguments),
        Task::Attack(arguments) => attack::run(&arguments),
        Task::Crash(arguments) => crash::run(&arguments),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("xtask: {e:#}");
            ExitCode::FAILURE
        }
    }
}
