//! The tools: start some work, which returns at once.

use crate::claim::{Capability, claim, submit};
use http::request::Parts;
use jiff::SignedDuration;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
    Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The server.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    /// Where claims are kept.
    pub(crate) folder: PathBuf,
    /// Work ends by itself after this time.
    pub(crate) finish_after: Option<Duration>,
}

impl ServerHandler for Work {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build()).with_server_info(
            Implementation::new("mono-work-service", env!("CARGO_PKG_VERSION")),
        )
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![tool()]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if request.name != "start_background_work" {
            return Err(ErrorData::invalid_params("no such tool", None));
        }
        let arguments = request.arguments.unwrap_or_default();
        let task = arguments.get("task").and_then(Value::as_str);
        let task = task.ok_or_else(|| ErrorData::invalid_params("task must be a string", None))?;
        let early = arguments.get("early").and_then(Value::as_bool);
        let within = arguments.get("withinMs").and_then(Value::as_i64);
        let within = within.map_or(SignedDuration::from_hours(24), SignedDuration::from_millis);
        let started = self.start(task, early == Some(true), within, &context);
        let result = match started.await {
            Ok(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
            Err(e) => CallToolResult::error(vec![ContentBlock::text(format!("{e:#}"))]),
        };
        Ok(result.into())
    }
}

impl Work {
    async fn start(
        &self,
        task: &str,
        early: bool,
        within: SignedDuration,
        context: &RequestContext<RoleServer>,
    ) -> anyhow::Result<String> {
        let capability = capability(context);
        let capability = capability
            .ok_or_else(|| anyhow::anyhow!("this call came without a claim capability"))?;
        let claim = claim(&self.folder, &capability, task, within).await?;
        if early {
            // Before the turn that asked is over: the host has to hold it back until then.
            submit(&claim, &format!("{task} was done at once")).await?;
        } else if let Some(after) = self.finish_after {
            let task = task.to_owned();
            let claim = claim.clone();
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                let done = submit(&claim, &format!("{task} is done: 42 items")).await;
                if let Err(e) = done {
                    eprintln!("the result of {task} was not taken: {e:#}");
                }
            });
        }
        Ok(format!(
            "Accepted as {}. The result comes later, on its own.",
            claim.continuation_id
        ))
    }
}

/// Over HTTP it comes with each request, over stdio with the process.
fn capability(context: &RequestContext<RoleServer>) -> Option<Capability> {
    if let Some(parts) = context.extensions.get::<Parts>() {
        return Capability::from(|name| {
            let header = format!(
                "x-mono-agent-continuation-claim-{}",
                name.to_ascii_lowercase()
            );
            let mut values = parts.headers.get_all(header).iter();
            let value = values.next()?.to_str().ok()?.to_owned();
            values.next().is_none().then_some(value)
        });
    }
    Capability::from(|name| std::env::var(format!("MONO_AGENT_CONTINUATION_CLAIM_{name}")).ok())
}

fn tool() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "task": { "type": "string", "description": "What is to be done." },
            "early": { "type": "boolean", "description": "Be done with it at once." },
            "withinMs": { "type": "integer", "description": "Give it up after so long." },
        },
        "required": ["task"],
    });
    let schema: Map<String, Value> = match schema {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    Tool::new(
        "start_background_work",
        "Starts work that goes on after the answer. The result comes later in the same conversation.",
        Arc::new(schema),
    )
    .annotate(ToolAnnotations::new().read_only(false))
}
