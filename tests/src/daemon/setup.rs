//! What a daemon is started with.

use super::{Daemon, programs, refusal};
use crate::node;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Group that shares the workspace when the tests run as root.
const WORKSPACE_GROUP: u32 = 61_013;

/// What a daemon is started with.
#[derive(Debug)]
pub struct Setup {
    folder: TempDir,
    /// The configuration; change it before [`Setup::start`].
    pub config: Value,
    raw: Option<String>,
    start: Start,
}

/// How a daemon is started.
#[derive(Debug)]
pub(super) struct Start {
    /// The folder of its programs.
    pub(super) programs: PathBuf,
    /// A program of ours and its arguments, which starts it.
    through: Vec<String>,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Setup {
    /// The demo model, an empty workspace, the API on a free port.
    ///
    /// # Errors
    /// When the folder can't be made.
    pub fn new() -> Result<Self> {
        let folder = TempDir::with_prefix("mono-test-")?;
        let workspace = folder.path().join("workspace");
        std::fs::create_dir(&workspace)?;
        share(&workspace)?;
        std::fs::write(folder.path().join("IDENTITY.md"), "You are a test agent.\n")?;
        let config = json!({
            "runtime": { "model": "demo:scripted", "workspace": "workspace" },
            "context": { "identityPath": "IDENTITY.md" },
            "openaiApi": { "enabled": true, "port": 0, "modelId": "agent" },
        });
        Ok(Self {
            folder,
            config,
            raw: None,
            start: Start {
                programs: programs(),
                through: vec![],
                arguments: vec![],
                environment: vec![],
            },
        })
    }

    /// The folder that holds everything.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The agent's workspace.
    #[must_use]
    pub fn workspace(&self) -> PathBuf {
        self.folder.path().join("workspace")
    }

    /// Uses a model server of ours over this wire, as `test:model`.
    #[must_use]
    pub fn model(mut self, address: std::net::SocketAddr, wire: &str) -> Self {
        self.config["runtime"]["model"] = json!("test:mock-1");
        self.config["runtime"]["retry"] = json!({ "backoffMs": 10, "maxBackoffMs": 50 });
        self.config["providers"] =
            json!({ "test": { "baseUrl": format!("http://{address}/v1"), "wire": wire } });
        self
    }

    /// The reference MCP server over stdio.
    #[must_use]
    pub fn everything(self, name: &str) -> Self {
        let script = node::server_everything();
        let script = script.to_string_lossy();
        self.server(
            name,
            &node::node(),
            &[&script, "stdio"],
            &[node::node_modules()],
        )
    }

    /// An MCP server that listens; `mode` is one of [`crate::everything::Everything::start`].
    #[must_use]
    pub fn listening_server(mut self, name: &str, mode: &str, url: &str) -> Self {
        let kind = if mode == "sse" { "sse" } else { "http" };
        self.config["tools"]["mcpServers"][name] = json!({ "type": kind, "url": url });
        self
    }

    /// Lets other agents have the servers.
    #[must_use]
    pub fn gateway(mut self) -> Self {
        self.config["tools"]["gateway"] = json!({ "enabled": true });
        self
    }

    /// Text in place of the configuration.
    #[must_use]
    pub fn raw(mut self, text: &str) -> Self {
        self.raw = Some(text.to_owned());
        self
    }

    /// A stdio MCP server; `readable` is what its program reads beside the system.
    #[must_use]
    pub fn server(mut self, name: &str, command: &Path, args: &[&str], readable: &[&Path]) -> Self {
        self.config["tools"]["mcpServers"][name] =
            json!({ "command": command, "args": args, "sandbox": { "readableRoots": readable } });
        self
    }

    /// Makes the folder that holds everything the workspace: configuration, keys, state and all.
    ///
    /// # Errors
    /// When it can't be shared with the agents' group.
    pub fn workspace_holds_everything(mut self) -> Result<Self> {
        self.config["runtime"]["workspace"] = json!(".");
        share(self.folder.path())?;
        Ok(self)
    }

    /// A file with a key, readable by its owner alone; names are relative to the configuration.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn secret(&self, name: &str, key: &str) -> Result<()> {
        let path = self.folder.path().join(name);
        std::fs::write(&path, format!("{key}\n"))?;
        Ok(std::fs::set_permissions(
            path,
            PermissionsExt::from_mode(0o600),
        )?)
    }

    /// An argument of the daemon.
    #[must_use]
    pub fn argument(mut self, argument: &str) -> Self {
        self.start.arguments.push(argument.to_owned());
        self
    }

    /// Gives the daemon a folder of its own with its programs, so that they can be replaced.
    ///
    /// # Errors
    /// When they can't be copied.
    pub fn own_programs(mut self) -> Result<Self> {
        let folder = self.folder.path().join("programs");
        std::fs::create_dir(&folder)?;
        for entry in std::fs::read_dir(programs())? {
            let (from, name) = entry.map(|e| (e.path(), e.file_name()))?;
            let name = name.to_string_lossy();
            if !name.starts_with("mono") || name.contains('.') || !from.is_file() {
                continue;
            }
            let to = folder.join(&*name);
            // Large, and the same file as long as nobody replaces it.
            if std::fs::hard_link(&from, &to).is_err() {
                std::fs::copy(&from, &to)?;
            }
        }
        self.start.programs = folder;
        Ok(self)
    }

    /// Starts the daemon through `lacking`, as on a machine that lacks this.
    #[must_use]
    pub fn lacking(mut self, what: &[&str]) -> Self {
        self.start.through = vec!["lacking".to_owned()];
        self.start
            .through
            .extend(what.iter().map(|&word| word.to_owned()));
        self.start.through.push("--".to_owned());
        self
    }

    /// A variable of the daemon's environment.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.start
            .environment
            .push((name.to_owned(), value.to_owned()));
        self
    }

    /// Writes the configuration and starts the daemon; returns when it is healthy.
    ///
    /// # Errors
    /// When it ends or isn't healthy in time, with its log.
    pub fn start(self) -> Result<Daemon> {
        let mut daemon = self.launch()?;
        daemon.wait_healthy()?;
        Ok(daemon)
    }

    /// Writes the configuration and starts the daemon; doesn't wait for anything.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn launch(self) -> Result<Daemon> {
        self.write_config()?;
        let socket = self.folder.path().join("monod.sock");
        let setup = self.start;
        let child = spawn(self.folder.path(), &socket, &setup)?;
        Ok(Daemon {
            folder: Some(self.folder),
            child,
            socket,
            setup,
        })
    }

    fn write_config(&self) -> Result<()> {
        let text = match &self.raw {
            Some(text) => text.clone(),
            None => serde_json::to_string_pretty(&self.config)?,
        };
        Ok(std::fs::write(
            self.folder.path().join("mono-agent.config.json"),
            text,
        )?)
    }

    /// Starts the daemon where it is expected to refuse; returns its exit code and its words.
    ///
    /// # Errors
    /// When it starts nevertheless.
    pub fn refused(self) -> Result<(i32, String)> {
        self.write_config()?;
        let socket = self.folder.path().join("monod.sock");
        let child = spawn(self.folder.path(), &socket, &self.start)?;
        refusal(child, self.folder.path())
    }
}

/// Gives a folder to the agents' group, which is needed when they are other users than the daemon.
fn share(folder: &Path) -> Result<()> {
    if nix::unistd::geteuid().is_root() {
        chown(folder, None, Some(WORKSPACE_GROUP))?;
        std::fs::set_permissions(folder, PermissionsExt::from_mode(0o2770))?;
    }
    Ok(())
}

pub(super) fn spawn(folder: &Path, socket: &Path, start: &Start) -> Result<Child> {
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(folder.join("monod.log"))?;
    let monod = start.programs.join("monod");
    let mut command = match start.through.split_first() {
        Some((through, arguments)) => {
            let mut command = Command::new(programs().join(through));
            command.args(arguments).arg(monod);
            command
        }
        None => Command::new(monod),
    };
    command
        .arg("--config")
        .arg(folder.join("mono-agent.config.json"))
        .arg("--socket")
        .arg(socket)
        .args(&start.arguments)
        .envs(start.environment.iter().cloned())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .context("monod can't be started; build it first: cargo build --workspace --bins")
}
