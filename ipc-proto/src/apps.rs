//! What is said about MCP Apps: by the console on behalf of a person who looks at one, by an
//! operator, and what the app-bridge answers. All of it travels as JSON in bodies of the app-bridge
//! edge (spec s0, "MCP Apps"; spec s2; facts 5.4, 6.8).

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The one media type of an app's page.
pub const MEDIA_TYPE: &str = "text/html;profile=mcp-app";
/// The extension under which hosts and servers speak of apps.
pub const EXTENSION: &str = "io.modelcontextprotocol/ui";
/// The revision that a view is offered first.
pub const REVISION: &str = "2026-01-26";
/// Every revision that a view may ask for (spec s0, "MCP Apps").
pub const REVISIONS: [&str; 2] = [REVISION, "2025-11-21"];
/// Largest page of an app in bytes.
pub const MAX_HTML: usize = 8 << 20;
/// Largest request of an app in bytes of JSON.
pub const MAX_REQUEST: usize = 64 << 10;
/// Largest request that is looked at, in bytes of JSON: a message in any script.
pub const MAX_PARAMS: usize = 1 << 20;
/// Largest file that an app hands over, in bytes: that of a reply file.
pub const MAX_FILE: usize = crate::reply::MAX_FILE;
/// Files of one app that are kept: as many as a reply has parts.
pub const MAX_KEPT: usize = crate::reply::MAX_PARTS;
/// Largest result of a request in bytes of JSON.
pub const MAX_RESULT: usize = 1 << 20;
/// Longest message that an app may propose, in characters (facts 6.8).
pub const MAX_MESSAGE_CHARS: usize = 16_384;
/// Largest body of a question of the console in bytes.
pub const MAX_ASK: usize = MAX_PARAMS + (64 << 10);
/// Largest body of an answer in bytes: a record with input and result, or a page.
pub const MAX_ANSWER: usize = MAX_HTML + (1 << 20);
/// How long a question to the person stands, in milliseconds.
pub const CONFIRM_MS: u64 = 120_000;

/// Which app, and in whose name: what the message says that shows it. All of it must be so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// The record.
    pub invocation: String,
    /// The connection that it came from.
    pub connection: String,
    /// The conversation that it was delivered to.
    pub delivery: String,
    /// The run whose reply it is part of.
    pub run: String,
}

/// What a person said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// This one.
    Once,
    /// This one and its like, until the view closes.
    View,
    /// No.
    Deny,
}

/// What the console asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Act {
    /// The record: [`Record`].
    Show,
    /// The page, as it is: its bytes are the answer's.
    Html,
    /// A new view: [`Opened`].
    Open,
    /// The view closes; what it has under way ends.
    Close {
        /// Which.
        view: String,
    },
    /// The view's page wants something: the method's own result.
    Request {
        /// Which view.
        view: String,
        /// The callback capability.
        capability: String,
        /// `tools/call` and so on.
        method: String,
        /// An object.
        params: Value,
    },
    /// The person has decided: the result of what was asked for.
    Decide {
        /// Which view.
        view: String,
        /// The callback capability.
        capability: String,
        /// The question.
        confirmation: String,
        /// The answer.
        decision: Decision,
    },
    /// A file that the person wants, whose bytes come beside: [`crate::reply::ReplyPart`] of it.
    Hand {
        /// Which view.
        view: String,
        /// The callback capability.
        capability: String,
        /// The file, as it was named with the decision.
        file: String,
    },
}

/// One question of the console.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AppAsk {
    /// Which app.
    pub claim: Claim,
    /// What.
    #[serde(flatten)]
    pub act: Act,
}

/// What the app-bridge answers the console, but for a page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum AppAnswer {
    /// Done.
    Done {
        /// The result.
        result: Value,
    },
    /// A person has to decide.
    Confirm {
        /// What about.
        confirmation: Box<Confirmation>,
    },
    /// Not done.
    Refused {
        /// One of facts 5.2.
        code: String,
        /// One sentence.
        message: String,
        /// The server's own error.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rpc: Option<RpcError>,
    },
}

/// A server's JSON-RPC error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RpcError {
    /// The number.
    pub code: i32,
    /// At most 1 KiB.
    pub message: String,
}

/// What a question is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A tool call.
    Tool,
    /// An external link.
    Link,
    /// Context for the model.
    Context,
    /// Files for the person.
    Download,
}

/// A file that an app hands over, as the question names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedFile {
    /// A plain file name.
    pub name: String,
    /// Size in bytes.
    pub bytes: usize,
}

/// A question to the person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Confirmation {
    /// Names it in the decision.
    pub id: String,
    /// What about.
    pub kind: Kind,
    /// The app's server.
    pub server: String,
    /// The tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The host of a link, whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<OfferedFile>,
    /// At most 2 KiB, without credentials.
    pub preview: String,
    /// The preview is not all.
    pub truncated: bool,
    /// [`Decision::View`] may be answered.
    pub may_remember: bool,
    /// How long the question stands, in milliseconds.
    pub expires_in_ms: u64,
}

/// A new view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Names it.
    pub view: String,
    /// The callback capability of the app.
    pub capability: String,
    /// The connection that the app came from is there.
    pub connected: bool,
}

/// What an app asked for and does not get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withheld {
    /// `connect`, `resource`, `frame`, `base`, `permission` or `meta`.
    pub kind: String,
    /// What it asked for, at most 256 bytes.
    pub value: String,
    /// `not_allowed`, `invalid`, `too_many` or `unsupported`.
    pub reason: String,
}

/// Origins that an app's page may reach, sanitised and allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Origins {
    /// For requests.
    pub connect_domains: Vec<String>,
    /// For pictures, styles, fonts and media.
    pub resource_domains: Vec<String>,
    /// For nested frames.
    pub frame_domains: Vec<String>,
    /// For the base address.
    pub base_uri_domains: Vec<String>,
}

/// A tool as its server listed it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppTool {
    /// The server's name of it.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of the arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
}

/// An app as the console shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The record.
    pub invocation_id: String,
    /// The connection that it came from.
    pub connection_id: String,
    /// The configured server.
    pub server_name: String,
    /// The tool whose result it shows.
    pub tool_name: String,
    /// The declared page.
    pub resource_uri: String,
    /// Always [`MEDIA_TYPE`].
    pub media_type: String,
    /// [`REVISION`].
    pub protocol_version: String,
    /// For people, at most 240 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// For people, at most 1000 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Milliseconds since 1970.
    pub created_at: i64,
    /// Milliseconds since 1970.
    pub expires_at: i64,
    /// The connection is there.
    pub connected: bool,
    /// Bytes of the page.
    pub html_bytes: usize,
    /// The call's arguments.
    pub input: Value,
    /// The call's result, whole.
    pub result: Value,
    /// What the page may reach.
    pub csp: Origins,
    /// What the page may do: `clipboardWrite` or nothing.
    pub permissions: Value,
    /// The page's own wish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefers_border: Option<bool>,
    /// The tool as it was listed.
    pub tool: AppTool,
    /// Tools that the app could see then.
    pub tools: Vec<AppTool>,
    /// What it asked for and does not get.
    pub refused: Vec<Withheld>,
    /// Something was taken out of input or result.
    pub redacted: bool,
    /// False: the host asks the page to do without.
    pub webrtc: bool,
    /// The call has no result yet: `result` is null, and so is `input` until the call is made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draft: bool,
}

/// What an operator asks about apps and servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "inspect", rename_all = "kebab-case")]
pub enum Inspect {
    /// Apps, newest first.
    Apps {
        /// 1 to 100.
        limit: u32,
        /// From an earlier page.
        cursor: Option<String>,
    },
    /// One app, without its page, input and result.
    App {
        /// Which.
        id: String,
    },
    /// Ends an app's views and what they have under way, and takes its callback capability away.
    CloseApp {
        /// Which.
        id: String,
    },
    /// What was done in an app's name, oldest first.
    Audit {
        /// Which.
        id: String,
    },
    /// The configured servers and their connections.
    Servers,
    /// Connects to a server as a run would and lists its tools.
    Probe {
        /// Its configured name.
        server: String,
    },
    /// Counts since the worker started.
    Stats,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_question_is_one_flat_object() {
        let claim = Claim {
            invocation: "i".into(),
            connection: "c".into(),
            delivery: "web:t".into(),
            run: "r".into(),
        };
        let act = Act::Request {
            view: "v".into(),
            capability: "k".into(),
            method: "tools/call".into(),
            params: json!({ "name": "x" }),
        };
        let ask = AppAsk { claim, act };
        let value = serde_json::to_value(&ask).unwrap();
        assert_eq!(value["do"], "request");
        assert_eq!(value["claim"]["delivery"], "web:t");
        assert_eq!(serde_json::from_value::<AppAsk>(value).unwrap(), ask);
    }

    #[test]
    fn an_answer_that_refuses_leaves_out_what_the_server_did_not_say() {
        let refused = AppAnswer::Refused {
            code: "app_missing".into(),
            message: "m".into(),
            rpc: None,
        };
        assert_eq!(
            serde_json::to_value(&refused).unwrap(),
            json!({ "answer": "refused", "code": "app_missing", "message": "m" })
        );
    }
}
