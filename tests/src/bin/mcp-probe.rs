//! The app-bridge's own way to a server as a program, for the MCP conformance suite: it takes the
//! address as its last argument, lists the tools, calls them, and ends.
//!
//! What is called is what the suite asks for in `MCP_CONFORMANCE_CONTEXT`, or else each tool once
//! with made-up arguments.
#![forbid(unsafe_code)]

use anyhow::{Context, ensure};
use ipc_proto::edges::app_bridge::McpTool;
use ipc_proto::edges::continuation::Claim;
use ipc_proto::edges::control::RunScope;
use ipc_proto::settings::{McpServerSettings, McpTransport};
use ipc_proto::{ConversationId, RunId};
use mono_app_bridge::call::CallRequest;
use mono_app_bridge::limits::Limits;
use mono_app_bridge::servers::{Servers, Started, Starter};
use mono_app_bridge::web::client;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The suite's servers are reached over HTTP; there is nothing to start.
struct NoProcesses;

impl Starter for NoProcesses {
    async fn start(
        &self,
        name: &str,
        _run: Option<&RunId>,
        _claim: Option<Claim>,
    ) -> Result<Started, String> {
        Err(format!("{name} is no process"))
    }

    async fn stop(&self, _process: u64) {}
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let url = std::env::args().next_back().context("no address")?;
    let settings = McpServerSettings {
        name: "suite".to_owned(),
        transport: McpTransport::Http {
            url,
            headers: Default::default(),
        },
        shared: false,
        per_run: false,
        context: false,
        claims: false,
        apps: None,
    };
    let limits = Limits {
        call_inactivity: Duration::from_secs(10),
        ..Limits::default()
    };
    let servers = Arc::new(Servers::new(
        vec![settings],
        limits,
        NoProcesses,
        Some(client()?),
    ));
    let conversation = ConversationId::parse("conformance")?;
    let scope = RunScope {
        run: RunId::new(),
        delivery: conversation.clone(),
        conversation,
    };
    servers.begin(&scope.run);
    let (tools, warnings) = servers.list_tools(&scope).await;
    for warning in &warnings {
        eprintln!("{}: {}", warning.code, warning.message);
    }
    for (tool, arguments) in wanted(&tools)? {
        let (progress, _reports) = mpsc::channel(8);
        let request = CallRequest {
            tool: tool.clone(),
            arguments,
            progress,
            cancel: CancellationToken::new(),
        };
        match servers.call(&scope, "suite", request).await {
            Ok(result) => println!("{tool}: {result:?}"),
            Err(error) => println!("{tool}: {}: {error}", error.code()),
        }
    }
    servers.close().await;
    ensure!(
        !warnings
            .iter()
            .any(|warning| warning.code == "mcp_init_failed"),
        "there was no connection"
    );
    Ok(())
}

fn wanted(tools: &[McpTool]) -> anyhow::Result<Vec<(String, Map<String, Value>)>> {
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    let context: Value = serde_json::from_str(&context).unwrap_or_default();
    let Some(calls) = context["toolCalls"].as_array() else {
        let made_up = tools
            .iter()
            .map(|tool| (tool.tool.clone(), arguments(tool, tools)));
        return Ok(made_up.collect());
    };
    calls
        .iter()
        .map(|call| {
            let name = call["name"].as_str().context("a call without a name")?;
            let arguments = call["arguments"].as_object().cloned();
            Ok((name.to_owned(), arguments.unwrap_or_default()))
        })
        .collect()
}

/// A value for each property that the schema names, of its type. A property named `schema` gets
/// the first tool's schema: the suite sees by it whether a schema arrives unchanged.
fn arguments(tool: &McpTool, tools: &[McpTool]) -> Map<String, Value> {
    let properties = tool.input_schema["properties"].as_object();
    properties
        .into_iter()
        .flatten()
        .map(|(name, property)| {
            let value = match property["type"].as_str() {
                Some("object") if name == "schema" => tools[0].input_schema.clone(),
                Some("number" | "integer") => json!(5),
                Some("boolean") => json!(true),
                Some("array") => json!([]),
                Some("object") => json!({}),
                _ => json!("text"),
            };
            (name.clone(), value)
        })
        .collect()
}
