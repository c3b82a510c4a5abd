//! Requests to the app-bridge worker: tools of MCP servers (spec s3; facts 3.6, 4.1).

use crate::Body;
use crate::chat::Block;
use crate::message::Edge;
use crate::messages;
use serde::{Deserialize, Serialize};

/// The edge whose owner is `app-bridge`.
#[derive(Debug)]
pub struct AppBridge;

impl Edge for AppBridge {
    type Request = Request;
    type Reply = Reply;
    const NAME: &'static str = "app-bridge";
    fn is_final(reply: &Reply) -> bool {
        !matches!(reply, Reply::Progress { .. } | Reply::Posted { .. })
    }
}

/// A tool as a server lists it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct McpTool {
    /// Configured server name.
    pub server: String,
    /// The server's name of the tool.
    pub tool: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: serde_json::Value,
    /// `annotations.readOnlyHint`, untrusted.
    #[serde(default)]
    pub read_only: bool,
    /// It declares a page that is shown with its results, and apps are shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub app: bool,
}

/// A server that could not take part in a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpWarning {
    /// `mcp_init_failed` or `mcp_list_tools_failed` when a server is missing; `mcp_tool_refused` or
    /// `mcp_tools_truncated` when some of its tools are.
    pub code: String,
    /// Which server.
    pub server: String,
    /// What happened, and what to do.
    pub message: String,
}

/// Answer to `ListTools`, as JSON in a body.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolListing {
    /// All servers' tools in configured order.
    pub tools: Vec<McpTool>,
    /// Servers that are missing.
    pub warnings: Vec<McpWarning>,
}

/// A tool's result, as JSON in a body.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct McpResult {
    /// Text and images; other content is described as text.
    pub content: Vec<Block>,
    /// `structuredContent`, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<serde_json::Value>,
    /// The server's own `isError`.
    pub is_error: bool,
    /// The app that shows this result, a [`crate::reply::ReplyPart::McpApp`] for the run's reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<Box<crate::reply::ReplyPart>>,
}

/// Largest result body in bytes.
pub const MAX_RESULT: usize = 16 * 1024 * 1024;
/// Most bytes of arguments that are shown before they are whole.
pub const MAX_DRAFT_INPUT: usize = 64 * 1024;
/// Largest listing body in bytes.
pub const MAX_LISTING: usize = 16 * 1024 * 1024;

messages! {
    /// Requests.
    pub enum Request, descriptors 1 {
        /// The tools of every configured server, starting those that aren't running.
        ListTools = 0x0501,
        /// Call one.
        CallTool {
            /// Configured server name.
            server: String,
            /// The server's name of the tool.
            tool: String,
            /// JSON object.
            arguments: Body,
        } = 0x0502,
        /// From the console: something about an app that a person looks at.
        App {
            /// JSON of an [`crate::apps::AppAsk`].
            ask: Body,
        } = 0x0510,
        /// From the supervisor, for an operator: apps and servers.
        Inspect {
            /// JSON of an [`crate::apps::Inspect`].
            ask: Body,
        } = 0x0511,
        /// From a run, before its commit: these apps are part of its reply. The others that it
        /// made go when it ends.
        KeepApps {
            /// Records, at most 20.
            invocations: Vec<String>,
        } = 0x0512,
        /// From the console: a file that an app hands over, once a person has allowed it. Answered
        /// as `App`.
        Hand {
            /// JSON of an [`crate::apps::AppAsk`] with [`crate::apps::Act::Hand`], in the packet.
            ask: Body,
            /// The bytes.
            content: Body,
        } = 0x0513,
        /// From a run, before all else: servers of `tools.mcpRequestContextServers` are told of these
        /// files, and what they post is answered with `Posted` until the run withdraws this.
        Accompany {
            /// At most [`MAX_ATTACHED`](crate::request_context::MAX_ATTACHED).
            attachments: Vec<crate::request_context::AttachedFile>,
        } = 0x0514,
        /// From a run whose person reads along: the page that a tool declares, before the tool is
        /// called. It can do nothing but draw, and goes with the run.
        DraftApp {
            /// Configured server name.
            server: String,
            /// The server's name of the tool.
            tool: String,
        } = 0x0515,
        /// From a run: what a draft's arguments say so far, as its page may have it.
        DraftInput {
            /// The draft.
            draft: String,
            /// The beginning of the JSON that the model writes, ≤ [`MAX_DRAFT_INPUT`].
            text: Body,
        } = 0x0516,
        /// As `CallTool`, of a call that has a draft. The draft ends with the call; an app of the
        /// result has its name if it has the very page.
        CallDrafted {
            /// The draft.
            draft: String,
            /// Configured server name.
            server: String,
            /// The server's name of the tool.
            tool: String,
            /// JSON object.
            arguments: Body,
        } = 0x0517,
    }
}

messages! {
    /// Streamed and final replies.
    pub enum Reply, descriptors 1 {
        /// A [`ToolListing`]. Final.
        Tools {
            /// The listing.
            listing: Body,
        } = 0x0581,
        /// The server says it is at work.
        Progress {
            /// So far.
            progress: f64,
            /// Of how much.
            total: Option<f64>,
            /// ≤ 1 KiB.
            message: Option<String>,
        } = 0x0582,
        /// A [`McpResult`]. Final.
        Result {
            /// The result.
            result: Body,
        } = 0x0583,
        /// No result. Final.
        Failed {
            /// `mcp_server_unknown`, `mcp_init_failed`, `mcp_server_silent` (answers nothing, also no
            /// probe), `mcp_call_timeout` (answers, but the call makes no progress or takes too
            /// long), `mcp_server_gone`, `mcp_call_cancelled`, `mcp_result_too_large`,
            /// `mcp_call_refused`, `mcp_protocol_error`, `mcp_server_busy`, `invalid_arguments`.
            code: String,
            /// One sentence.
            message: String,
        } = 0x0584,
        /// JSON of an [`crate::apps::AppAnswer`]. Final.
        App {
            /// The answer.
            answer: Body,
        } = 0x0590,
        /// JSON of what the operator asked for. Final.
        Inspected {
            /// The answer.
            answer: Body,
        } = 0x0591,
        /// The apps stay. Final.
        AppsKept = 0x0592,
        /// A page of an app, as it is. Final.
        Page {
            /// Its bytes.
            page: Body,
        } = 0x0593,
        /// A server says how far it is. Never final.
        Posted {
            /// Its configured name.
            server: String,
            /// What of its work this is about.
            key: String,
            /// ≤ 1 KiB.
            message: String,
            /// Where that stands.
            state: crate::request_context::ProgressState,
        } = 0x0594,
        /// JSON of the [`crate::reply::ReplyPart`] of a draft, or of null: there is none. Final.
        Draft {
            /// The part.
            part: Body,
        } = 0x0595,
        /// JSON of the arguments so far, an object, or null: nothing to be shown. Final.
        DraftInput {
            /// The arguments.
            arguments: Body,
        } = 0x0596,
    }
}
