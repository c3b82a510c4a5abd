//! A client that has `mono-mcp-stub` in the place of a server: it writes lines and reads lines.

use crate::daemon::{PATIENCE, programs};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// A running stub.
#[derive(Debug)]
pub struct Stub {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    next: u64,
}

/// The command that a client would have in its configuration.
#[must_use]
pub fn command(gateway: &Path, server: &str) -> Command {
    let mut command = Command::new(programs().join("mono-mcp-stub"));
    command.arg("--socket").arg(gateway).arg(server);
    command
}

impl Stub {
    /// Starts a stub; the client has said nothing yet.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn start(gateway: &Path, server: &str) -> Result<Self> {
        Self::of(command(gateway, server))
    }

    fn of(mut command: Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().context("no stdout")?;
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            let read = BufReader::new(stdout).lines();
            read.map_while(Result::ok)
                .try_for_each(|line| tell.send(line))
        });
        Ok(Self {
            stdin: child.stdin.take(),
            child,
            lines,
            next: 0,
        })
    }

    /// Starts a stub and shakes hands.
    ///
    /// # Errors
    /// When the server is not there.
    pub fn greet(gateway: &Path, server: &str) -> Result<Self> {
        Self::greeting(command(gateway, server))
    }

    /// As [`Stub::greet`], with a command of its own.
    ///
    /// # Errors
    /// When the server is not there.
    pub fn greeting(command: Command) -> Result<Self> {
        let mut stub = Self::of(command)?;
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" } });
        let answer = stub.ask("initialize", &params)?;
        if answer.get("result").is_none() {
            bail!("no handshake: {answer}");
        }
        stub.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(stub)
    }

    /// Writes one message.
    ///
    /// # Errors
    /// When the stub has ended.
    pub fn say(&mut self, message: &Value) -> Result<()> {
        let stdin = self.stdin.as_mut().context("closed")?;
        Ok(writeln!(stdin, "{message}")?)
    }

    /// Sends a request and returns its id.
    ///
    /// # Errors
    /// When the stub has ended.
    pub fn send(&mut self, method: &str, params: &Value) -> Result<u64> {
        self.next += 1;
        let id = self.next;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        Ok(id)
    }

    /// The answer to a request; what comes before it is left out.
    ///
    /// # Errors
    /// When there is none in time.
    pub fn answer(&mut self, id: u64) -> Result<Value> {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).context("no answer")?;
            let message: Value = serde_json::from_str(&line)?;
            if message["id"] == id {
                return Ok(message);
            }
        }
    }

    /// A request and its answer.
    ///
    /// # Errors
    /// When there is none in time.
    pub fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        let id = self.send(method, params)?;
        self.answer(id)
    }

    /// The answer to a call of a tool.
    ///
    /// # Errors
    /// When there is none in time.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value> {
        self.ask(
            "tools/call",
            &json!({ "name": tool, "arguments": arguments }),
        )
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Closes the stub's input as a client does that ends, and returns its exit code.
    ///
    /// # Errors
    /// When it does not end.
    pub fn close(mut self) -> Result<i32> {
        self.stdin = None;
        Ok(self.child.wait()?.code().unwrap_or(-1))
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
