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
pub(crate) fn programs(release: bool) -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join(if release { "release" } else { "debug" })
}

/// Builds every program of the workspace; progress goes to standard error.
pub(crate) fn build(release: bool) -> Result<PathBuf> {
    let mut command = cargo();
    command.args([
        "build",
        "--workspace",
        "--bins",
        "--exclude",
        "xtask",
        "--locked",
    ]);
    if release {
        command.arg("--release");
    }
    let status = command.status().context("cargo can't be started")?;
    if !status.success() {
        bail!("the build failed");
    }
    Ok(programs(release))
}
