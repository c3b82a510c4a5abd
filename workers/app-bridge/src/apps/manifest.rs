//! What is written down of an app: the manifest, and the state that its page is shown with.

use super::meta::Wishes;
use ipc_proto::apps::{AppTool, MEDIA_TYPE, REVISION};
use ipc_proto::reply::ReplyPart;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The form of records that this build writes, and the only one that it reads.
pub const SCHEMA: u32 = 1;
/// Largest manifest in bytes (facts 5.4).
pub const MAX_MANIFEST: usize = 64 << 10;
/// Largest state in bytes: half each for input and result (facts 5.4).
pub const MAX_STATE: usize = 1 << 20;
/// App-visible tools that are written down (facts 5.4).
pub const MAX_TOOLS: usize = 256;
/// Longest title in bytes (facts 5.4).
pub const MAX_TITLE: usize = 240;
/// Longest description in bytes (facts 5.4).
pub const MAX_DESCRIPTION: usize = 1000;

/// The manifest. What is not in here is not written down, whatever a later caller passes along.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The record's id: 32 lower-case hexadecimal digits.
    pub id: String,
    /// The connection that the app came from.
    pub connection: String,
    /// Digest of what the connection's authority depends on.
    pub pool: String,
    /// The callback capability.
    pub capability: String,
    /// The configured server.
    pub server: String,
    /// The tool as it was listed.
    pub tool: AppTool,
    /// Tools that the app could see.
    pub tools: Vec<AppTool>,
    /// The declared page.
    pub uri: String,
    /// The run that called.
    pub run: String,
    /// Its conversation.
    pub conversation: String,
    /// Where the reply went.
    pub delivery: String,
    /// Milliseconds since 1970.
    pub created_at: i64,
    /// Milliseconds since 1970.
    pub expires_at: i64,
    /// Bytes of the page.
    pub html_bytes: usize,
    /// SHA-256 of the page, in hexadecimal.
    pub html_hash: String,
    /// What the page asks for.
    pub wishes: Wishes,
}

/// What the page is shown with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// The call's arguments.
    pub input: Value,
    /// The call's result, whole.
    pub result: Value,
}

/// A manifest that is none of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// No manifest at all.
    #[error("not a manifest: {0}")]
    Form(String),
    /// Of another build.
    #[error("the record has the form {0}, this build reads {SCHEMA}")]
    Schema(u64),
    /// Of another record.
    #[error("the record says that it is another one")]
    Other,
}

impl Manifest {
    /// Reads a manifest; the form is looked at first, so that a later one is told as such.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn read(bytes: &[u8], id: &str) -> Result<Self, Unreadable> {
        let form = |e: serde_json::Error| Unreadable::Form(e.to_string());
        let value: Value = serde_json::from_slice(bytes).map_err(form)?;
        match value.get("schema").and_then(Value::as_u64) {
            Some(schema) if schema == u64::from(SCHEMA) => {}
            Some(other) => return Err(Unreadable::Schema(other)),
            None => return Err(Unreadable::Form("it has no schema".to_owned())),
        }
        let manifest: Self = serde_json::from_value(value).map_err(form)?;
        if manifest.id != id || !is_id(&manifest.id) {
            return Err(Unreadable::Other);
        }
        Ok(manifest)
    }

    /// The part of the reply that names this app.
    #[must_use]
    pub fn part(&self) -> ReplyPart {
        let title = self.tool.title.clone();
        ReplyPart::McpApp {
            id: self.id.clone(),
            invocation_id: self.id.clone(),
            connection_id: self.connection.clone(),
            server_name: self.server.clone(),
            tool_name: self.tool.name.clone(),
            resource_uri: self.uri.clone(),
            media_type: MEDIA_TYPE.to_owned(),
            protocol_version: REVISION.to_owned(),
            title,
            description: self.tool.description.clone(),
            expires_at: Timestamp::from_millisecond(self.expires_at)
                .ok()
                .map(|at| at.to_string()),
        }
    }
}

/// 32 lower-case hexadecimal digits: such a name leads nowhere else.
#[must_use]
pub fn is_id(text: &str) -> bool {
    text.len() == 32
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    pub(crate) fn sample(id: &str) -> Manifest {
        Manifest {
            schema: SCHEMA,
            id: id.to_owned(),
            connection: "c".repeat(32),
            pool: "p".into(),
            capability: "k".into(),
            server: "clock".into(),
            tool: AppTool {
                name: "show".into(),
                title: None,
                description: None,
                input_schema: Some(json!({ "type": "object" })),
            },
            tools: vec![],
            uri: "ui://clock/face".into(),
            run: "run".into(),
            conversation: "web:t".into(),
            delivery: "web:t".into(),
            created_at: 1_000,
            expires_at: 2_000,
            html_bytes: 4,
            html_hash: String::new(),
            wishes: Wishes::default(),
        }
    }

    #[test]
    fn a_manifest_is_read_only_in_its_own_form_and_place() {
        let id = "a".repeat(32);
        let manifest = sample(&id);
        let value = serde_json::to_value(&manifest).unwrap();
        let read = |value: &Value| Manifest::read(value.to_string().as_bytes(), &id);
        assert_eq!(read(&value), Ok(manifest));
        let with = |key: &str, new: Value| {
            let mut value = value.clone();
            value[key] = new;
            value
        };
        assert_eq!(read(&with("schema", json!(2))), Err(Unreadable::Schema(2)));
        assert!(matches!(
            read(&with("schema", json!("1"))),
            Err(Unreadable::Form(_))
        ));
        assert!(matches!(
            read(&with("authority", json!("all"))),
            Err(Unreadable::Form(_))
        ));
        assert!(matches!(
            read(&with("run", json!(1))),
            Err(Unreadable::Form(_))
        ));
        assert_eq!(
            read(&with("id", json!("b".repeat(32)))),
            Err(Unreadable::Other)
        );
        for bytes in [&b""[..], b"[]", b"{}", b"\xff", b"{\"schema\":1}"] {
            assert!(matches!(
                Manifest::read(bytes, &id),
                Err(Unreadable::Form(_))
            ));
        }
    }

    #[test]
    fn an_id_leads_nowhere_else() {
        for (text, ok) in [
            ("0123456789abcdef0123456789abcdef", true),
            ("0123456789ABCDEF0123456789abcdef", false),
            ("0123456789abcdef0123456789abcde", false),
            ("../../../../../../../../../../etc", false),
            ("0123456789abcdef0123456789abcde/", false),
            ("", false),
        ] {
            assert_eq!(is_id(text), ok, "{text}");
        }
    }

    #[test]
    fn a_part_gives_no_right() {
        let part = serde_json::to_value(sample(&"a".repeat(32)).part()).unwrap();
        let mut keys: Vec<_> = part.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        assert_eq!(
            keys,
            [
                "connectionId",
                "expiresAt",
                "id",
                "invocationId",
                "mediaType",
                "protocolVersion",
                "resourceUri",
                "serverName",
                "toolName",
                "type"
            ]
        );
        assert_eq!(part["type"], "mcp_app");
    }
}
