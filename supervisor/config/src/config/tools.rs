//! What the agent may use.

use crate::secret::Secret;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tools {
    /// A list with `*` allows all; an empty one nothing. Does not gate tools of MCP servers.
    pub allowed_tools: Vec<String>,
    /// Always wins.
    pub disallowed_tools: Vec<String>,
    /// Commands of a run reach the application's own tools over MCP.
    pub app_endpoint: bool,
    pub gateway: Gateway,
    /// Absolute, from the workspace.
    pub mcp_config_path: Option<PathBuf>,
    /// The file's servers and the inline ones, by name.
    pub mcp_servers: BTreeMap<String, McpServer>,
    pub mcp_request_context_servers: Vec<String>,
    pub continuation_servers: Vec<String>,
    /// Silence that ends a call.
    pub mcp_call_timeout_ms: u64,
    /// Longest call.
    pub mcp_call_max_total_timeout_ms: u64,
    pub filesystem: Filesystem,
    pub web: Web,
}

/// The servers for agents that are not ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Gateway {
    pub enabled: bool,
    /// Stubs at once.
    pub max_sessions: usize,
    /// Processes of servers at once.
    pub max_backends: usize,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Filesystem {
    pub readable_roots: Vec<PathBuf>,
    pub writable_roots: Vec<PathBuf>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Web {
    pub search: WebSearch,
    pub fetch: WebFetch,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebSearch {
    pub backends: Vec<String>,
    pub max_requests_per_run: u32,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebFetch {
    pub render: Render,
    pub browser_command: String,
    /// Hosts, each with an optional port, that a fetch may reach although they are private.
    pub allow_private_hosts: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Render {
    Never,
    Auto,
}

/// One MCP server.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "RawServer")]
pub struct McpServer {
    pub transport: McpTransport,
    /// Rights of a stdio server's process.
    pub sandbox: ServerSandbox,
    /// One process for all conversations.
    pub shared: bool,
    pub apps: ServerApps,
}

/// How its apps are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServerApps {
    pub enabled: bool,
    /// Inputs and results go to them as they are.
    pub exact_results: bool,
    pub webrtc: bool,
}

#[derive(Debug, Clone)]
pub enum McpTransport {
    Stdio {
        command: String,
        args: Vec<String>,
        env: BTreeMap<String, Secret>,
        /// Absent is the workspace.
        cwd: Option<PathBuf>,
    },
    Http {
        url: String,
        headers: BTreeMap<String, Secret>,
    },
    Sse {
        url: String,
        headers: BTreeMap<String, Secret>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServerSandbox {
    pub network: ServerNetwork,
    pub readable_roots: Vec<PathBuf>,
    pub writable_roots: Vec<PathBuf>,
    /// Bytes that its whole process tree may use.
    pub memory_max_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerNetwork {
    None,
    All,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawServer {
    r#type: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, Secret>,
    cwd: Option<PathBuf>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, Secret>,
    shared: bool,
    sandbox: ServerSandbox,
    apps: ServerApps,
}

/// The transport of an entry: what it says, else by its address. An address that ends in `/sse` is
/// of the old transport, by the convention of the servers that speak it.
pub(crate) fn transport_of(kind: Option<&str>, url: Option<&str>) -> &'static str {
    let sse_path = || {
        url.and_then(crate::form::web_url)
            .is_some_and(|url| url.path().trim_end_matches('/').ends_with("/sse"))
    };
    match (kind, url) {
        (Some("stdio"), _) | (None, None) => "stdio",
        (Some("sse"), _) => "sse",
        (Some(_), _) => "http",
        (None, Some(_)) if sse_path() => "sse",
        (None, Some(_)) => "http",
    }
}

impl TryFrom<RawServer> for McpServer {
    type Error = &'static str;

    fn try_from(raw: RawServer) -> Result<McpServer, &'static str> {
        let kind = transport_of(raw.r#type.as_deref(), raw.url.as_deref());
        let transport = match (raw.command, raw.url) {
            (Some(command), None) => McpTransport::Stdio {
                command,
                args: raw.args,
                env: raw.env,
                cwd: raw.cwd,
            },
            (None, Some(url)) if kind == "sse" => McpTransport::Sse {
                url,
                headers: raw.headers,
            },
            (None, Some(url)) => McpTransport::Http {
                url,
                headers: raw.headers,
            },
            _ => return Err("exactly one of command and url"),
        };
        Ok(McpServer {
            transport,
            sandbox: raw.sandbox,
            shared: raw.shared,
            apps: raw.apps,
        })
    }
}
