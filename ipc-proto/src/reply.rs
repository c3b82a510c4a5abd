//! The reply model: text plus ordered parts (facts 5.1; spec s0, "Reply files and MCP Apps").

use serde::{Deserialize, Serialize};

/// Files and apps together per run (spec s0, "Publishing a reply file").
pub const MAX_PARTS: usize = 20;

/// Largest reply file in bytes (spec s0, "Publishing a reply file").
pub const MAX_FILE: usize = 20 << 20;

/// Durable bytes of all rich replies together: reply files, apps and their audit logs (spec s0,
/// "Lifetime and limits").
pub const DURABLE_CEILING: u64 = 256 << 20;
/// Bytes of them that belong to audit logs alone.
pub const AUDIT_RESERVE: u64 = 1 << 20;

/// Codes that a reply part's failure may carry (spec s0, "Machine delivery outcome wire contract").
pub const FAILURE_CODES: [&str; 10] = [
    "app_capability_mismatch",
    "app_connection_closed",
    "app_resource_invalid",
    "artifact_expired",
    "artifact_integrity_failed",
    "artifact_missing",
    "artifact_publish_failed",
    "artifact_too_large",
    "reply_part_too_large",
    "unsupported_destination",
];

/// The opaque reference of a reply file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactReference {
    /// Always `mono-agent-artifact`.
    pub scheme: String,
    /// The artifact's id, ≤ 128 bytes.
    pub id: String,
}

/// One part of a reply beside its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ReplyPart {
    /// A published file.
    #[serde(rename_all = "camelCase")]
    Attachment {
        /// The part's id.
        id: String,
        /// Where its owner finds it.
        reference: ArtifactReference,
        /// Display name, ≤ 240 bytes.
        name: String,
        /// `type/subtype`.
        media_type: String,
        /// Size in bytes.
        size_bytes: u64,
        /// `sha256:<hex>`.
        integrity_id: String,
        /// RFC 3339 time after which it is gone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires_at: Option<String>,
    },
    /// An MCP App: where its owner finds it. Neither its page nor what it shows is in here, and
    /// nothing that gives a right.
    #[serde(rename_all = "camelCase")]
    McpApp {
        /// The part's id.
        id: String,
        /// The app-bridge's record.
        invocation_id: String,
        /// The connection that the app came from.
        connection_id: String,
        /// The configured server.
        server_name: String,
        /// The tool whose result it shows.
        tool_name: String,
        /// The declared page, `ui://…`.
        resource_uri: String,
        /// Always `text/html;profile=mcp-app`.
        media_type: String,
        /// The revision that views are offered first.
        protocol_version: String,
        /// For people, ≤ 240 bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// For people, ≤ 1000 bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// RFC 3339 time after which it is gone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires_at: Option<String>,
    },
    /// A part that could not be made or delivered.
    #[serde(rename_all = "camelCase")]
    Failure {
        /// The part's id.
        id: String,
        /// One of [`FAILURE_CODES`].
        code: String,
        /// A constant chosen by code.
        message: String,
        /// The part that failed, when there was one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        related_part_id: Option<String>,
    },
}

impl ReplyPart {
    /// The part's id.
    #[must_use]
    pub fn id(&self) -> &str {
        let (Self::Attachment { id, .. } | Self::McpApp { id, .. } | Self::Failure { id, .. }) =
            self;
        id
    }
}

/// The constant that goes with a failure code; producer text is never copied (spec s0).
#[must_use]
pub fn failure_message(code: &str) -> &'static str {
    match code {
        "app_capability_mismatch" => {
            "The app needs a capability that this destination does not have."
        }
        "app_connection_closed" => "The app's connection is closed.",
        "app_resource_invalid" => "The app's resource is not valid.",
        "artifact_expired" => "The file is no longer kept.",
        "artifact_integrity_failed" => "The file did not pass its integrity check.",
        "artifact_missing" => "The file is missing.",
        "artifact_publish_failed" => "The file could not be published.",
        "artifact_too_large" => "The file is larger than the limit.",
        "reply_part_too_large" => "The reply holds more parts than the limit.",
        _ => "This reply part is unsupported on this destination.",
    }
}
