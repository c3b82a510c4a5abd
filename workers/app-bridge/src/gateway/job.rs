//! A result of a call that may have an app.

use super::backend::{Backend, Caller};
use super::marker;
use mono_mcp_stub::frame::{Outcome, answer};
use serde_json::Value;
use std::sync::Arc;

/// A result that may have an app.
#[derive(Debug)]
pub struct Job {
    /// Where it comes from.
    pub backend: Arc<Backend>,
    /// Who called.
    pub caller: Caller,
    /// The caller's id of the request.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// Its arguments as JSON.
    pub arguments: String,
    /// The result as JSON.
    pub result: String,
}

/// Makes an app of a result and delivers it, with or without.
pub type Show = Arc<dyn Fn(Job) + Send + Sync>;

impl Job {
    /// Hands the result to its caller, with the marker of its app.
    pub fn deliver(self, app: Option<&str>) {
        let marked = app.and_then(|app| {
            let mut result: Value = serde_json::from_str(&self.result).ok()?;
            marker::append(&mut result, app);
            Some(result.to_string())
        });
        let result = marked.as_deref().unwrap_or(&self.result);
        self.caller
            .out
            .send(answer(&self.id, Outcome::Result(result)));
    }
}
