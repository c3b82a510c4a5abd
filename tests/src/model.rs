//! The model service for tests that are not asynchronous themselves.

use crate::mock_model::{MockModel, Seen, Stats};
use anyhow::{Context, Result};
use serde_json::Value;
use std::net::SocketAddr;
use tokio::sync::oneshot;

/// A [`MockModel`] on a thread of its own; ends when dropped.
pub struct Model {
    mock: MockModel,
    _until_dropped: oneshot::Sender<()>,
}

impl Model {
    /// Starts on a free loopback port.
    ///
    /// # Errors
    /// When no thread or port can be had.
    pub fn start() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let mock = runtime.block_on(MockModel::start())?;
        let (until_dropped, dropped) = oneshot::channel();
        std::thread::Builder::new()
            .name("mock-model".to_owned())
            .spawn(move || runtime.block_on(dropped))?;
        Ok(Self {
            mock,
            _until_dropped: until_dropped,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.mock.address()
    }

    /// What happened so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.mock.stats()
    }

    /// The newest request.
    ///
    /// # Errors
    /// When there was none.
    pub fn last(&self) -> Result<Seen> {
        self.stats().seen.pop().context("the model was never asked")
    }
}

/// A directive that has the model call this tool.
#[must_use]
pub fn call(tool: &str, arguments: &Value) -> String {
    let arguments = arguments.to_string();
    // A directive ends at the first `]]`.
    assert!(!arguments.contains("]]"), "{arguments}");
    format!("[[mock:tool {tool} {arguments}]]")
}

/// A directive that has the model call `Bash`.
#[must_use]
pub fn bash(command: &str) -> String {
    call("Bash", &serde_json::json!({ "command": command }))
}
