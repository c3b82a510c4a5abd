//! `crash-suite NAME [--sample N] [--seed N] [--json]`: an owner of durable bytes, killed at every
//! system call of its work. See `mono_tests::crash`.
#![forbid(unsafe_code)]

use anyhow::{Context as _, Result};
use clap::Parser;
use continuation_proof::trial::Common;
use mono_tests::crash::{self, Subject};
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
    #[command(flatten)]
    common: Common,
    /// Be the process that is killed, in this scene.
    #[arg(long, hide = true, requires = "folder")]
    drive: Option<String>,
    /// The folder of the scene.
    #[arg(long, hide = true)]
    folder: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let sample = arguments.sample;
    if let (Some(scene), Some(folder)) = (&arguments.drive, &arguments.folder) {
        let driven =
            subject(&arguments.name).and_then(|subject| crash::drive(subject, scene, folder));
        return match driven {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("crash-suite: {e:#}");
                ExitCode::from(2)
            }
        };
    }
    arguments.common.run("points", "nothing was lost", |seed| {
        crash::run(subject(&arguments.name)?, seed, sample)
    })
}

fn subject(name: &str) -> Result<&'static dyn Subject> {
    let all = crash::subjects();
    let found = all.into_iter().find(|subject| subject.name() == name);
    found.with_context(|| {
        let names: Vec<_> = all.iter().map(|subject| subject.name()).collect();
        format!("nobody is called {name:?}; there is {}", names.join(", "))
    })
}
