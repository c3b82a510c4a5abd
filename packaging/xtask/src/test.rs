//! `cargo xtask test`: every check and test, counted.

use crate::build::{self, cargo};
use crate::console;
use crate::supply;
use anyhow::Result;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only tests whose name contains this; the checks are left out.
    filter: Option<String>,
}

/// What passed and what failed.
#[derive(Debug, Default)]
struct Tally {
    passed: u64,
    failed: u64,
    /// Names of failed checks, said again at the end: the runner's thousand lines come in between.
    unmet: Vec<String>,
    /// What the page's runner said of its failed tests; said again for the same reason.
    page: Vec<String>,
}

impl Tally {
    fn check(&mut self, name: &str, problems: &[String]) {
        if problems.is_empty() {
            self.passed += 1;
            println!("check {name} ... ok");
        } else {
            self.failed += 1;
            self.unmet.push(name.to_owned());
            println!("check {name} ... FAILED");
            for problem in problems {
                println!("  {problem}");
            }
        }
    }

    fn close(&self) {
        if !self.page.is_empty() {
            println!("the console's tests ... FAILED");
        }
        for line in &self.page {
            println!("  {line}");
        }
        for name in &self.unmet {
            println!("check {name} ... FAILED (what it said is above the tests)");
        }
        println!("{} passed, {} failed", self.passed, self.failed);
    }

    fn command(&mut self, name: &str, command: &mut Command) {
        let problems = match command.status() {
            Ok(status) if status.success() => vec![],
            Ok(status) => vec![format!("{status}")],
            Err(e) => vec![e.to_string()],
        };
        self.check(name, &problems);
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<bool> {
    let mut tally = Tally::default();
    if arguments.filter.is_none() {
        tally.command("format", cargo().args(["fmt", "--all", "--", "--check"]));
        tally.check(
            "licences, sources and banned crates",
            &supply::third_party()?,
        );
        tally.check("what the supervisor links", &supply::supervisor_tree()?);
        tally.command(
            "clippy",
            cargo().args([
                "clippy",
                "--workspace",
                "--all-targets",
                "--locked",
                "--",
                "-D",
                "warnings",
            ]),
        );
    }
    // Tests that need several processes start the built programs.
    let programs = match build::build(build::Programs::WithTests, false) {
        Ok(programs) => programs,
        Err(e) => {
            tally.check("build", &[e.to_string()]);
            tally.close();
            return Ok(false);
        }
    };
    if arguments.filter.is_none() {
        // It takes as long as a registry takes, and a test has a bound.
        let mut peers = Command::new(programs.join("peers"));
        tally.command("what tests need of npm and PyPI", &mut peers);
    }
    // The page's own tests have one name together.
    if arguments.filter.as_deref().is_none_or(|f| f == "console") {
        tally.command("the console's types and size", &mut console::check());
        match console::tests() {
            Ok(outcome) => {
                tally.passed += outcome.passed;
                tally.failed += outcome.failed;
                tally.page = outcome.failures;
            }
            Err(e) => tally.check("the console's tests", &[format!("{e:#}")]),
        }
    }
    let (passed, failed) = tests(arguments.filter.as_deref(), &programs)?;
    tally.passed += passed;
    tally.failed += failed;
    tally.close();
    Ok(tally.failed == 0)
}

/// Runs the tests with nextest where it is, else with cargo's own runner; counts from its output.
fn tests(filter: Option<&str>, programs: &std::path::Path) -> Result<(u64, u64)> {
    let nextest = cargo()
        .args(["nextest", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success());
    let mut command = cargo();
    if nextest {
        command.args([
            "nextest",
            "run",
            "--workspace",
            "--locked",
            "--no-fail-fast",
            "--color",
            "never",
        ]);
    } else {
        command.args(["test", "--workspace", "--locked", "--no-fail-fast"]);
    }
    command.args(filter);
    command
        .env("MONO_PROGRAMS", programs)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let other = std::thread::spawn(move || count(err, true, nextest));
    let mut total = count(out, false, nextest);
    if let Ok((passed, failed)) = other.join() {
        total = (total.0 + passed, total.1 + failed);
    }
    let status = child.wait()?;
    // A runner that failed without naming a test (a test binary that did not build or crashed).
    if !status.success() && total.1 == 0 {
        total.1 = 1;
    }
    if total.0 == 0 {
        println!("the test runner ran no test");
        total.1 = total.1.max(1);
    }
    Ok(total)
}

/// Passes the runner's output on and counts its closing lines.
fn count(stream: Option<impl Read>, to_stderr: bool, nextest: bool) -> (u64, u64) {
    let mut total = (0, 0);
    for line in stream
        .map(BufReader::new)
        .into_iter()
        .flat_map(BufRead::lines)
        .map_while(Result::ok)
    {
        if to_stderr {
            eprintln!("{line}");
        } else {
            println!("{line}");
        }
        if let Some((passed, failed)) = closing(&line, nextest) {
            total = (total.0 + passed, total.1 + failed);
        }
    }
    total
}

/// `Summary [ 1.2s] 7 tests run: 5 passed, 1 failed, 1 timed out, 0 skipped` of nextest, and
/// `test result: ok. 5 passed; 0 failed; …` of cargo.
///
/// nextest shows the lines of a failed test, among them the other runner's closing one.
fn closing(line: &str, nextest: bool) -> Option<(u64, u64)> {
    let line = line.trim();
    let counts = if nextest {
        line.strip_prefix("Summary [")?.split_once("run:")?.1
    } else {
        line.strip_prefix("test result:")?.split_once(". ")?.1
    };
    let mut total = (0, 0);
    for part in counts.split([',', ';']) {
        let mut words = part.trim().splitn(2, ' ');
        let (Some(Ok(n)), Some(what)) = (words.next().map(str::parse::<u64>), words.next()) else {
            continue;
        };
        // nextest says `5 passed (1 slow)`.
        match what.split(" (").next().unwrap_or(what) {
            "passed" => total.0 += n,
            "failed" | "timed out" | "exec failed" => total.1 += n,
            _ => {}
        }
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::closing;

    #[test]
    fn both_runners_are_counted() {
        let nextest = "     Summary [   1.234s] 9 tests run: 6 passed (2 slow), 2 failed, 1 timed out, 3 skipped";
        assert_eq!(closing(nextest, true), Some((6, 3)));
        let cargo =
            "test result: FAILED. 5 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out";
        assert_eq!(closing(cargo, false), Some((5, 2)));
        assert_eq!(closing(cargo, true), None);
        assert_eq!(closing("test a ... ok", false), None);
    }
}
