//! The reference MCP server as a listening process.

use crate::{node, work};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A listening server; ended when dropped.
#[derive(Debug)]
pub struct Everything {
    child: Child,
    port: u16,
    mode: &'static str,
}

impl Everything {
    /// Starts it on a free loopback port; `mode` is `streamableHttp` or `sse`.
    ///
    /// # Errors
    /// With its own words when it does not come up.
    pub fn start(mode: &'static str) -> Result<Self> {
        // One that nobody else gets: it is used again by a restart.
        let port = work::free_port()?;
        let child = spawn(mode, port)?;
        Ok(Self { child, port, mode })
    }

    /// Its endpoint.
    #[must_use]
    pub fn url(&self) -> String {
        let path = if self.mode == "sse" { "sse" } else { "mcp" };
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    /// Ends it as a crash would.
    ///
    /// # Errors
    /// When it is gone already.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts it again on the same port.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn restart(&mut self) -> Result<()> {
        self.child = spawn(self.mode, self.port)?;
        Ok(())
    }
}

impl Drop for Everything {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

fn spawn(mode: &str, port: u16) -> Result<Child> {
    let mut child = Command::new(node::node())
        .arg(node::server_everything())
        .arg(mode)
        .env("PORT", port.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut said = BufReader::new(child.stderr.take().context("no stderr")?).lines();
    let mut words = String::new();
    while let Some(Ok(line)) = said.next() {
        if line.contains("on port") {
            std::thread::spawn(move || said.for_each(drop));
            return Ok(child);
        }
        words.push_str(&line);
        words.push('\n');
    }
    let _ = child.kill();
    child.wait()?;
    bail!("the reference server did not come up in mode {mode}: {words}")
}
