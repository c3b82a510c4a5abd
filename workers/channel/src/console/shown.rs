//! Messages and files as pages see them (docs/protocols.md): with what a download needs.

use ipc_proto::console::Message;
use ipc_proto::reply::ReplyPart;
use serde_json::{Value, json};

/// A file of a message.
pub(super) struct File<'a> {
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) media_type: &'a str,
    pub(super) bytes: u64,
    /// `sha256:<hex>`.
    pub(super) integrity: &'a str,
    /// RFC 3339.
    pub(super) expires_at: Option<&'a str>,
}

impl File<'_> {
    /// As one of this message, to be had at this path.
    pub(super) fn shown(&self, message: &str, path: &str) -> Value {
        let integrity = self.integrity;
        json!({
            "type": "attachment", "messageId": message, "id": self.id, "name": self.name,
            "mediaType": self.media_type, "bytes": self.bytes,
            "sha256": integrity.strip_prefix("sha256:").unwrap_or(integrity),
            "integrityId": integrity, "expiresAt": millis(self.expires_at),
            "download": format!("{path}?integrity={}", escape(integrity)),
        })
    }
}

/// The message with its parts.
pub(super) fn shown(message: &Message) -> Value {
    let mut value = serde_json::to_value(message).unwrap_or_default();
    let parts = message.parts.iter();
    value["parts"] = parts.map(|part| shown_part(&message.id, part)).collect();
    value
}

/// A part of this message.
pub(super) fn shown_part(message: &str, part: &ReplyPart) -> Value {
    let base = format!("/api/v1/messages/{}", escape(message));
    match part {
        ReplyPart::Attachment {
            id,
            name,
            media_type,
            size_bytes,
            integrity_id,
            expires_at,
            ..
        } => File {
            id,
            name,
            media_type,
            bytes: *size_bytes,
            integrity: integrity_id,
            expires_at: expires_at.as_deref(),
        }
        .shown(message, &format!("{base}/attachments/{}", escape(id))),
        ReplyPart::McpApp { id, expires_at, .. } => {
            let mut app = serde_json::to_value(part).unwrap_or_default();
            app["messageId"] = message.into();
            app["expiresAt"] = millis(expires_at.as_deref()).into();
            app["app"] = format!("{base}/apps/{}", escape(id)).into();
            app
        }
        ReplyPart::Failure {
            id, code, message, ..
        } => json!({ "type": "failure", "id": id, "code": code, "message": message }),
    }
}

/// A time of a part, in milliseconds.
fn millis(at: Option<&str>) -> Option<i64> {
    let at: Option<jiff::Timestamp> = at.and_then(|at| at.parse().ok());
    at.map(jiff::Timestamp::as_millisecond)
}

/// Percent-encoded for a path, a query or a header's extended value.
pub(super) fn escape(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
