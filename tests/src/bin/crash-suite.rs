//! `crash-suite NAME [--sample N] [--seed N] [--json]`: an owner of durable bytes, killed at every
//! system call of its work. See `mono_tests::crash`.
#![forbid(unsafe_code)]

use anyhow::{Context as _, Result};
use clap::Parser;
use mono_tests::crash::{self, Options, Report};
use std::path::PathBuf;
use std::process::ExitCode;

/// Kill an owner of durable bytes at every system call of its work: nothing may be lost.
#[derive(Debug, Parser)]
struct Arguments {
    /// Whom.
    name: String,
    /// So many points at most, chosen by the seed [default: all of them].
    #[arg(long, value_name = "N")]
    sample: Option<usize>,
    /// Repeat an earlier sample.
    #[arg(long)]
    seed: Option<u64>,
    /// Print one JSON object as the last line.
    #[arg(long)]
    json: bool,
    /// Be the process that is killed, in this scene.
    #[arg(long, hide = true, requires = "folder")]
    drive: Option<String>,
    /// The folder of the scene.
    #[arg(long, hide = true)]
    folder: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(e) => {
            eprintln!("crash-suite: {e:#}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool> {
    let all = crash::subjects();
    let subject = all
        .into_iter()
        .find(|subject| subject.name() == arguments.name)
        .with_context(|| {
            let names: Vec<_> = all.iter().map(|subject| subject.name()).collect();
            format!(
                "nobody is called {:?}; there is {}",
                arguments.name,
                names.join(", ")
            )
        })?;
    if let (Some(scene), Some(folder)) = (&arguments.drive, &arguments.folder) {
        crash::drive(subject, scene, folder)?;
        return Ok(true);
    }
    let seed = arguments
        .seed
        .unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
    let report = crash::run(
        subject,
        Options {
            seed,
            sample: arguments.sample,
        },
    )?;
    tell(&report);
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
    }
    Ok(report.ok)
}

fn tell(report: &Report) {
    for violation in &report.violations {
        println!("{violation}");
    }
    for (scene, points) in &report.scenes {
        println!("{scene:<12} {points:>5} points");
    }
    for (kind, points) in &report.kinds {
        println!("{kind:<16} {points:>5} tried");
    }
    let result = if report.ok {
        "nothing was lost"
    } else {
        "NOT as it has to be"
    };
    println!("{} points, {result} (seed {})", report.points, report.seed);
}
