//! The real MCP servers and clients from npm, installed from the lockfile under `tests/node`.

use crate::build::root;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// An installed program of the lockfile, and the Node.js that runs it.
#[derive(Debug)]
pub(crate) struct NodeProgram {
    pub(crate) node: PathBuf,
    pub(crate) script: PathBuf,
    /// What it must be able to read.
    pub(crate) folder: PathBuf,
}

/// `server-everything`, installed when it isn't yet; `None` (with a note) where Node.js, npm or
/// the registry can't be had.
pub(crate) fn server_everything() -> Option<NodeProgram> {
    let folder = root().join("tests/node");
    let script = folder.join("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    let node = find("node")?;
    if !script.exists() {
        eprintln!("installing the MCP test servers from tests/node/package-lock.json ...");
        let npm = find("npm")?;
        let installed = Command::new(npm)
            .args(["ci", "--no-audit", "--no-fund"])
            .current_dir(&folder)
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|s| s.success());
        if !installed || !script.exists() {
            eprintln!("npm could not install them; the demo uses its own MCP server instead");
            return None;
        }
    }
    Some(NodeProgram {
        node: node.canonicalize().unwrap_or(node),
        script,
        folder,
    })
}

/// A program on the PATH.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|p| p.is_file());
    if found.is_none() {
        eprintln!("no {name} on the PATH");
    }
    found
}
