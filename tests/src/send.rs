//! A turn through `monoctl send --json`.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// What `monoctl send --json` printed.
#[derive(Debug)]
pub struct Sent {
    /// Every line.
    pub events: Vec<Value>,
    /// The last one.
    pub finish: Value,
    /// Exit code.
    pub code: i32,
}

impl Sent {
    /// The answer's text.
    #[must_use]
    pub fn text(&self) -> &str {
        self.finish["text"].as_str().unwrap_or_default()
    }

    /// The run.
    #[must_use]
    pub fn run(&self) -> &str {
        self.finish["run"].as_str().unwrap_or_default()
    }

    /// How its calls of this tool ended.
    #[must_use]
    pub fn completed(&self, tool: &str) -> Vec<&Value> {
        self.of("tool_call_completed")
            .filter(|event| event["name"] == tool)
            .collect()
    }

    /// The beginning of what this tool's only call gave.
    ///
    /// # Errors
    /// When it was not called exactly once.
    pub fn preview(&self, tool: &str) -> Result<&str> {
        match self.completed(tool).as_slice() {
            [one] => Ok(one["preview"].as_str().unwrap_or_default()),
            other => bail!("{} calls of {tool}: {}", other.len(), self.finish),
        }
    }

    /// Events of this type.
    pub fn of(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.events
            .iter()
            .filter(move |event| event["type"] == kind)
    }
}

/// A `monoctl send` under way.
#[derive(Debug)]
pub struct Sending {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
    events: Vec<Value>,
}

/// What a frame tells: an event is what it holds, an end its message or its failure.
fn told(mut frame: Value) -> Value {
    match frame["type"].as_str() {
        Some("event") => match &frame["event"]["kind"] {
            kind if kind == "run_started" => {
                json!({ "type": "started", "run": frame["event"]["run"] })
            }
            _ => frame["event"].take(),
        },
        Some("finish") => frame["message"].take(),
        Some("error") => {
            let error = frame["failure"].take();
            json!({ "ok": false, "run": error["run"], "error": error })
        }
        _ => frame,
    }
}

impl Sending {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().context("no stdout")?;
        Ok(Self {
            child,
            lines: BufReader::new(stdout),
            events: vec![],
        })
    }

    /// Reads until an event of this type has come.
    ///
    /// # Errors
    /// When the run ends before.
    pub fn until(&mut self, kind: &str) -> Result<Value> {
        loop {
            let event = self
                .next_event()?
                .with_context(|| format!("the run ended without {kind}: {:?}", self.events))?;
            if event["type"] == kind {
                return Ok(event);
            }
        }
    }

    fn next_event(&mut self) -> Result<Option<Value>> {
        let mut line = String::new();
        if self.lines.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let frame: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
        let event = told(frame);
        self.events.push(event.clone());
        Ok(Some(event))
    }

    /// Reads to the end.
    ///
    /// # Errors
    /// When monoctl printed something else than JSON lines.
    pub fn finish(mut self) -> Result<Sent> {
        while self.next_event()?.is_some() {}
        let code = self.child.wait()?.code().unwrap_or(-1);
        let finish = self.events.last().cloned().unwrap_or(Value::Null);
        Ok(Sent {
            events: self.events,
            finish,
            code,
        })
    }

    /// Ends monoctl as Ctrl-C does.
    ///
    /// # Errors
    /// When it is gone already.
    pub fn interrupt(&self) -> Result<()> {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        Ok(nix::sys::signal::kill(
            pid,
            nix::sys::signal::Signal::SIGINT,
        )?)
    }

    /// `kill -9` of monoctl.
    ///
    /// # Errors
    /// When it is gone already.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}
