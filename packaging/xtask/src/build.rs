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
pub(crate) enum Programs {
    /// What is installed, and the MCP server of the demo.
    Product,
    /// Also what the tests start.
    WithTests,
}

/// Builds programs of the workspace; progress goes to standard error.
pub(crate) fn build(programs: Programs, release: bool) -> Result<PathBuf> {
    let mut command = cargo();
    command.args([
        "build",
        "--workspace",
        "--bins",
        "--exclude",
        "xtask",
        "--locked",
    ]);
    if programs == Programs::Product {
        command.args(["--exclude", "mono-tests"]);
    }
    if release {
        command.arg("--release");
    }
    let status = command.status().context("cargo can't be started")?;
    if !status.success() {
        bail!("the build failed");
    }
    Ok(folder(release))
}
