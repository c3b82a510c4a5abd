//! A program that tries something over and over: what it takes, what came of it, how it ends.

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::ExitCode;
use uuid::Uuid;

/// What came of it.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Nothing was wrong.
    pub ok: bool,
    /// Points tried.
    pub points: usize,
    /// What was wrong, after which point.
    pub violations: Vec<String>,
    /// Repeats it.
    pub seed: u64,
    /// Points by scene, or what the scenes ended in.
    pub scenes: BTreeMap<String, usize>,
    /// How they were disturbed.
    pub kinds: BTreeMap<String, usize>,
}

impl Report {
    /// Nothing was tried yet.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            ..Self::default()
        }
    }

    /// One more point of this scene.
    pub fn count_scene(&mut self, scene: &str) {
        *self.scenes.entry(scene.to_owned()).or_default() += 1;
    }

    /// One more point that was disturbed so.
    pub fn count_kind(&mut self, kind: &str) {
        *self.kinds.entry(kind.to_owned()).or_default() += 1;
    }

    /// All was tried. Of what was wrong, the first `most` are told.
    #[must_use]
    pub fn over(mut self, most: usize) -> Self {
        self.ok = self.violations.is_empty();
        let more = self.violations.len().saturating_sub(most);
        self.violations.truncate(most);
        if more > 0 {
            self.violations.push(format!("and {more} more"));
        }
        self
    }
}

/// What every such program takes.
#[derive(Debug, Args)]
pub struct Common {
    /// Repeat an earlier run.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print one JSON object as the last line.
    #[arg(long)]
    json: bool,
}

impl Common {
    /// Tries it with the seed that was given, or one by chance, and tells what came of it: `points` says
    /// what was tried, `good` what it means if nothing was wrong. Ends with 1 if something was, and with 2
    /// if it can't be tried.
    #[allow(
        clippy::print_stdout,
        clippy::print_stderr,
        reason = "that is what it is for"
    )]
    pub fn run(
        &self,
        points: &str,
        good: &str,
        tried: impl FnOnce(u64) -> Result<Report>,
    ) -> ExitCode {
        let seed = self.seed.unwrap_or_else(|| Uuid::new_v4().as_u64_pair().0);
        let report = match tried(seed) {
            Ok(report) => report,
            Err(e) => {
                eprintln!("it can't be tried (seed {seed}): {e:#}");
                return ExitCode::from(2);
            }
        };
        for violation in &report.violations {
            println!("{violation}");
        }
        for (name, count) in report.scenes.iter().chain(&report.kinds) {
            println!("{name:<40} {count:>8}");
        }
        let result = if report.ok {
            good
        } else {
            "NOT as it has to be"
        };
        println!("{} {points}, {result} (seed {seed})", report.points);
        if self.json
            && let Ok(line) = serde_json::to_string(&report)
        {
            println!("{line}");
        }
        ExitCode::from(u8::from(!report.ok))
    }
}
