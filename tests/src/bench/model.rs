//! The model service of a measurement: a process of its own, as a provider is.

use crate::daemon::programs;
use anyhow::{Context as _, Result};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

/// A model service; ended when dropped.
#[derive(Debug)]
pub struct Model {
    child: Child,
    address: SocketAddr,
}

impl Model {
    /// Starts it on a free loopback port.
    ///
    /// # Errors
    /// When it isn't built or doesn't say where it listens.
    pub fn start() -> Result<Self> {
        let mut child = Command::new(programs().join("mock-model"))
            .args(["--port", "0"])
            .stdout(Stdio::piped())
            .spawn()
            .context("mock-model can't be started; build it first")?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("no output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line
            .split("http://")
            .nth(1)
            .and_then(|rest| rest.split('/').next())
            .with_context(|| format!("mock-model said {line:?}"))?
            .parse()?;
        Ok(Self { child, address })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
