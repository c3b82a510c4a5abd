//! `cargo xtask console`: the page of the web console, built with the versions of its lockfile.

use crate::build::root;
use crate::node::find;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Build it even when nothing changed since the last time.
    #[arg(long)]
    force: bool,
}

/// Oldest Node.js that the tools run on: major and minor version.
const NODE_AT_LEAST: (u32, u32) = (20, 19);
/// Lines about failed tests that are said again.
const MOST_LINES: usize = 200;
/// What the built page comes from, beside `src`.
const INPUTS: [&str; 6] = [
    "index.html",
    "package.json",
    "package-lock.json",
    "tsconfig.json",
    "vite.config.ts",
    "scripts/licences.ts",
];

fn folder() -> PathBuf {
    root().join("workers/channel/console-ui")
}

pub(crate) fn run(arguments: &Arguments) -> Result<bool> {
    if arguments.force {
        let _ = std::fs::remove_file(mark());
    }
    build()?;
    println!("{}", folder().join("dist").display());
    Ok(true)
}

/// Builds the page unless it is there, built from just these sources.
pub(crate) fn build() -> Result<()> {
    let folder = folder();
    let lock = File::create(folder.join(".install.lock"))?;
    // Released when `lock` is dropped, also when the process is killed.
    lock.lock()?;
    install(&folder)?;
    let wanted = sources(&folder)?;
    let there = folder.join("dist/index.html").is_file();
    if there && std::fs::read_to_string(mark()).is_ok_and(|built| built == wanted) {
        return Ok(());
    }
    eprintln!("building the console's page ...");
    npm(&folder, &["run", "--silent", "build"])?;
    std::fs::write(mark(), wanted)?;
    Ok(())
}

/// Type check and size: the page as it was built.
pub(crate) fn check() -> Command {
    let mut command = Command::new("npm");
    command
        .args(["run", "--silent", "check"])
        .current_dir(folder());
    command
}

/// What came of the page's own tests.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// What the runner says at its end of those that failed.
    pub(crate) failures: Vec<String>,
}

/// Runs the page's own tests.
pub(crate) fn tests() -> Result<Outcome> {
    chromium()?;
    let folder = folder();
    let mut command = Command::new("node");
    command
        .args(["--import", "tsx", "--test", "--test-concurrency=1"])
        .arg("--test-reporter=spec")
        .args(files(&folder.join("test/unit"))?)
        .args(files(&folder.join("test/browser"))?)
        .env("CONSOLE_SHOTS", root().join("target/console-shots"))
        .current_dir(&folder)
        .stdout(Stdio::piped());
    let mut child = command.spawn().context("node can't be started")?;
    let mut outcome = Outcome::default();
    let lines = child.stdout.take().map(BufReader::new);
    for line in lines
        .into_iter()
        .flat_map(BufRead::lines)
        .map_while(Result::ok)
    {
        println!("{line}");
        let (passed, failed) = closing(&line);
        outcome.passed += passed;
        outcome.failed += failed;
        let begun = !outcome.failures.is_empty() || line == "✖ failing tests:";
        if begun && outcome.failures.len() < MOST_LINES {
            outcome.failures.push(line);
        }
    }
    let status = child.wait()?;
    // A runner that failed without a failed test, or that found none.
    if outcome.failed == 0 && (!status.success() || outcome.passed == 0) {
        outcome.failed = 1;
    }
    Ok(outcome)
}

/// `ℹ pass 33` and the like of the runner's last lines.
fn closing(line: &str) -> (u64, u64) {
    let mut words = line.split_whitespace();
    let (Some("ℹ"), Some(what), Some(Ok(n)), None) = (
        words.next(),
        words.next(),
        words.next().map(str::parse),
        words.next(),
    ) else {
        return (0, 0);
    };
    match what {
        "pass" => (n, 0),
        // A test that is left out counts as failed: there is no reason for one.
        "fail" | "cancelled" | "skipped" | "todo" => (0, n),
        _ => (0, 0),
    }
}

/// The test files of a folder, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found: Vec<_> = std::fs::read_dir(folder)
        .with_context(|| format!("no tests in {}", folder.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.to_string_lossy().ends_with(".test.ts"))
        .collect();
    found.sort();
    Ok(found)
}

/// A Chromium for the tests: the one of `CHROMIUM`, or Debian's, installed where it is missing.
fn chromium() -> Result<()> {
    let path = std::env::var_os("CHROMIUM").map_or("/usr/bin/chromium".into(), PathBuf::from);
    if path.is_file() {
        return Ok(());
    }
    let advice = "install it (apt-get install chromium) or say with CHROMIUM where one is";
    if !nix::unistd::geteuid().is_root() || find("apt-get").is_none() {
        bail!("the browser tests need {}; {advice}", path.display());
    }
    eprintln!("installing chromium ...");
    let apt = |arguments: &[&str]| {
        Command::new("apt-get")
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let install = ["install", "-y", "-q", "--no-install-recommends", "chromium"];
    if !apt(&install) {
        apt(&["update", "-q"]);
        if !apt(&install) {
            bail!("chromium can't be installed; {advice}");
        }
    }
    Ok(())
}

/// Installs what the lockfile says, and marks it with the lockfile's bytes.
fn install(folder: &Path) -> Result<()> {
    let lockfile = std::fs::read(folder.join("package-lock.json"))?;
    let installed = folder.join("node_modules/.installed-from");
    if std::fs::read(&installed).is_ok_and(|bytes| bytes == lockfile) {
        return Ok(());
    }
    node()?;
    eprintln!("installing what builds the console's page ...");
    npm(
        folder,
        &["ci", "--no-audit", "--no-fund", "--loglevel=error"],
    )?;
    std::fs::write(&installed, &lockfile)?;
    Ok(())
}

/// Refuses a Node.js that is missing or too old, before npm says so in its own words.
fn node() -> Result<()> {
    let (major, minor) = NODE_AT_LEAST;
    let wanted =
        format!("the console's page is built with Node.js {major}.{minor} or newer and npm");
    let said = Command::new("node")
        .arg("--version")
        .output()
        .with_context(|| format!("{wanted}; there is no node on the PATH"))?;
    let said = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    let mut numbers = said.trim_start_matches('v').split('.').map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(a)), Some(Ok(b))) if (a, b) >= NODE_AT_LEAST => Ok(()),
        _ => bail!("{wanted}; the one on the PATH is {said}"),
    }
}

fn npm(folder: &Path, arguments: &[&str]) -> Result<()> {
    let out = Command::new("npm")
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .context("npm can't be started; install Node.js with npm")?;
    if !out.status.success() {
        let said = [out.stdout, out.stderr].concat();
        bail!(
            "npm {}: {}\n{}",
            arguments.join(" "),
            out.status,
            String::from_utf8_lossy(&said).trim()
        );
    }
    Ok(())
}

/// Where it says what the page in `dist` was built from; not in there, for all of that is shipped.
fn mark() -> PathBuf {
    folder().join("node_modules/.built-from")
}

/// A sum over the names and contents of all sources. It only tells whether something changed.
fn sources(folder: &Path) -> Result<String> {
    let mut paths: Vec<PathBuf> = INPUTS.iter().map(|name| folder.join(name)).collect();
    collect(&folder.join("src"), &mut paths)?;
    paths.sort();
    let mut sum = DefaultHasher::new();
    for path in paths {
        path.strip_prefix(folder).unwrap_or(&path).hash(&mut sum);
        std::fs::read(&path)
            .with_context(|| format!("can't read {}", path.display()))?
            .hash(&mut sum);
    }
    Ok(format!("{:016x}", sum.finish()))
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, into)?;
        } else {
            into.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::closing;

    #[test]
    fn the_runners_last_lines_are_counted() {
        assert_eq!(closing("ℹ pass 33"), (33, 0));
        assert_eq!(closing("ℹ fail 2"), (0, 2));
        assert_eq!(closing("ℹ cancelled 1"), (0, 1));
        assert_eq!(closing("ℹ skipped 4"), (0, 4));
        assert_eq!(closing("ℹ tests 33"), (0, 0));
        assert_eq!(closing("✔ pass 33 (1 ms)"), (0, 0));
    }
}
