//! Where the workspace is, and building its programs.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap_or_else(|_| ".".into())
}

/// The cargo that runs us.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// The folder with built programs.
pub(crate) fn folder(release: bool) -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join(if release { "release" } else { "debug" })
}

/// Which programs to build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Programs<'a> {
    /// What is installed, and the MCP server of the demo.
    Product,
    /// Also what the tests start.
    WithTests,
    /// These.
    Named(&'a [&'a str]),
}

/// Programs that are linked statically when they are optimised: they are started for every turn,
/// and what the dynamic linker does is a fifth of the run worker's start. Neither looks up names
/// of hosts or users, for which a static C library would load parts of another. They stay
/// position-independent.
const STATIC: [&str; 2] = ["mono-launch", "mono-run"];

/// Builds programs of the workspace; progress goes to standard error.
pub(crate) fn build(programs: Programs<'_>, release: bool) -> Result<PathBuf> {
    let is_static = |name: &str| release && STATIC.contains(&name);
    let wanted = |name: &str| match programs {
        Programs::Named(names) => names.contains(&name),
        Programs::Product | Programs::WithTests => true,
    };
    let mut command = cargo();
    command.args(["build", "--workspace", "--locked"]);
    match programs {
        Programs::Named(names) => {
            let dynamic = names.iter().filter(|name| !is_static(name));
            command.args(dynamic.flat_map(|name| ["--bin", name]));
        }
        Programs::Product | Programs::WithTests => {
            command.args(["--bins", "--exclude", "xtask"]);
            let excluded = STATIC.iter().filter(|name| is_static(name));
            command.args(excluded.flat_map(|name| ["--exclude", name]));
        }
    }
    if programs == Programs::Product {
        command.args(["--exclude", "mono-tests"]);
    }
    if release {
        command.arg("--release");
    }
    run(command)?;
    for name in STATIC.iter().filter(|name| is_static(name) && wanted(name)) {
        let mut command = cargo();
        command.args(["rustc", "--release", "--locked", "--package", name]);
        command.args(["--bin", name, "--", "-C", "target-feature=+crt-static"]);
        run(command)?;
    }
    Ok(folder(release))
}

fn run(mut command: Command) -> Result<()> {
    let status = command.status().context("cargo can't be started")?;
    if !status.success() {
        bail!("the build failed");
    }
    Ok(())
}
