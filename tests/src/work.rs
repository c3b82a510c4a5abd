//! A service whose work outlives the call that asked for it, and what a daemon is told of it.

use crate::daemon::{Daemon, Setup, programs, wait_for};
use anyhow::{Context, Result, bail};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::IntoRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The service's program.
#[must_use]
pub fn program() -> PathBuf {
    programs().join("work-service")
}

/// The service over HTTP on loopback, outside of every sandbox; ends when dropped.
#[derive(Debug)]
pub struct Listening {
    child: Child,
    /// Where its tools are.
    pub url: String,
}

impl Listening {
    /// Starts on a free port; claims are kept in the folder. Work ends by itself after so many
    /// milliseconds, or not.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn start(folder: &Path, finish_after_ms: Option<u64>) -> Result<Self> {
        let mut command = Command::new(program());
        command.arg("--folder").arg(folder).arg("http");
        if let Some(after) = finish_after_ms {
            command.args(["--finish-after-ms", &after.to_string()]);
        }
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().context("no stdout")?;
        let mut url = String::new();
        BufReader::new(stdout).read_line(&mut url)?;
        let url = url.trim_end().to_owned();
        Ok(Self { child, url })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A loopback port that nobody has and no other test gets, for as long as this process lives: it stays
/// free across restarts of whoever listens there.
///
/// # Errors
/// When there is none.
pub fn free_port() -> Result<u16> {
    let mut ports = free_ports(1)?;
    ports.pop().context("no port is free")
}

/// So many of them.
///
/// # Errors
/// When there are not.
pub fn free_ports(count: usize) -> Result<Vec<u16>> {
    // Below those that the kernel gives out. Each process begins elsewhere.
    let first = std::process::id().wrapping_mul(97) % 10_000;
    let ports: Vec<_> = (first..first + 100)
        .filter_map(|n| u16::try_from(20_000 + n % 10_000).ok())
        .filter(|port| reserve(*port).is_ok())
        .take(count)
        .collect();
    if ports.len() < count {
        bail!("no port is free");
    }
    Ok(ports)
}

/// Keeps a port until this process ends: a socket is bound there that does not listen.
fn reserve(port: u16) -> rustix::io::Result<()> {
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // Not shared yet, so that it fails where anybody has the port, be it by such a socket.
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    // Whoever is told the port may listen there beside it, as every listener's bind allows it.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    let _until_the_end = socket.into_raw_fd();
    Ok(())
}

/// Where [`stdio`] keeps its claims.
#[must_use]
pub fn folder(workspace: &Path) -> PathBuf {
    workspace.join("work")
}

/// Adds the service over stdio under this name, with its folder in the workspace.
///
/// # Errors
/// When the folder can't be made.
pub fn stdio(setup: &mut Setup, name: &str) -> Result<()> {
    let folder = folder(&setup.workspace());
    std::fs::create_dir_all(&folder)?;
    // The server is another user of the workspace's group, which new folders inherit.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o2770);
    std::fs::set_permissions(&folder, open)?;
    setup.config["tools"]["mcpServers"][name] = json!({
        "command": program(),
        "args": ["--folder", folder, "stdio"],
        "sandbox": {
            "network": "all",
            "readableRoots": [programs()],
            "writableRoots": [setup.workspace()],
        },
    });
    Ok(())
}

/// Lets these servers claim, on a free port.
///
/// # Errors
/// When no port is free.
pub fn let_claim(setup: &mut Setup, servers: &[&str]) -> Result<()> {
    setup.config["tools"]["continuationServers"] = json!(servers);
    setup.config["continuations"]["port"] = json!(free_port()?);
    Ok(())
}

fn tell(folder: &Path, arguments: &[&str]) -> Result<Value> {
    let output = Command::new(program())
        .arg("--folder")
        .arg(folder)
        .args(arguments)
        .output()?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Submits a task's result as the service would.
///
/// # Errors
/// With the host's words.
pub fn finish(folder: &Path, task: &str, summary: &str) -> Result<Value> {
    tell(folder, &["finish", task, summary])
}

/// How a task stands at the host.
///
/// # Errors
/// As [`finish`].
pub fn status(folder: &Path, task: &str) -> Result<Value> {
    tell(folder, &["status", task])
}

/// What was kept of a claim: its id, addresses and token.
///
/// # Errors
/// When there is no claim of that task.
pub fn kept(folder: &Path, task: &str) -> Result<Value> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        // Others are still being written.
        if path.extension().is_none_or(|e| e != "json") {
            continue;
        }
        let claim: Value = serde_json::from_slice(&std::fs::read(path)?)?;
        if claim["task"] == task {
            return Ok(claim);
        }
    }
    bail!("nothing was claimed for {task}")
}

impl Daemon {
    /// One continuation, as operators see it.
    ///
    /// # Errors
    /// When there is none.
    pub fn continuation(&self, id: &str) -> Result<Value> {
        self.json(&["continuations", "show", id])
    }

    /// One continuation, once it is in this state.
    ///
    /// # Errors
    /// When it isn't in time.
    pub fn continuation_in(&self, id: &str, state: &str) -> Result<Value> {
        let so = |record: Result<Value>| record.is_ok_and(|record| record["state"] == state);
        wait_for(&format!("{id} is {state}"), || so(self.continuation(id)))
            .with_context(|| format!("{:?}", self.continuation(id)))?;
        self.continuation(id)
    }

    /// One continuation, once it is delivered and in its conversation's history.
    ///
    /// # Errors
    /// When it isn't in time.
    pub fn continuation_recorded(&self, id: &str) -> Result<Value> {
        let so = |record: &Value| {
            record["state"] == "delivered" && record["receipt"]["historyRecorded"] == true
        };
        wait_for(&format!("{id} is in the history"), || {
            self.continuation(id).is_ok_and(|record| so(&record))
        })
        .with_context(|| format!("{:?}", self.continuation(id)))?;
        self.continuation(id)
    }

    /// What arrived for a conversation of the terminal.
    ///
    /// # Errors
    /// When monoctl fails or prints no JSON lines.
    pub fn letters(&self, conversation: &str) -> Result<Vec<Value>> {
        let output = self.done(&["letters", "--json", "--conversation", conversation])?;
        let text = String::from_utf8(output.stdout)?;
        let letters = text.lines().map(serde_json::from_str);
        Ok(letters.collect::<Result<_, _>>()?)
    }
}
