//! A server's result as the neutral blocks of the conversation. No I/O.

use crate::error::CallError;
use crate::limits::Limits;
use crate::listing::size;
use ipc_proto::chat::Block;
use ipc_proto::edges::app_bridge::McpResult;
use ipc_proto::marker::strip;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

/// Content blocks of one result; a server that sends more is misbehaving.
pub const BLOCKS_MAX: usize = 1024;

/// Converts a result: text and images stay what they are, every other kind becomes text that says
/// what it is, so that no model is handed bytes it can't read.
///
/// # Errors
/// [`CallError::TooLarge`] when the result has more than [`Limits::result`] bytes or more than
/// [`BLOCKS_MAX`] blocks; a part of a result would be taken for the whole.
pub fn convert(result: CallToolResult, limits: &Limits) -> Result<McpResult, CallError> {
    if result.content.len() > BLOCKS_MAX {
        return Err(CallError::TooLarge {
            what: "the list of content blocks of the result",
            limit: BLOCKS_MAX,
        });
    }
    let converted = McpResult {
        content: result.content.into_iter().map(block).collect(),
        structured: result.structured_content,
        is_error: result.is_error.unwrap_or(false),
        app: None,
    };
    if size(&converted) > limits.result {
        return Err(CallError::TooLarge {
            what: "the result",
            limit: limits.result,
        });
    }
    Ok(converted)
}

fn block(content: ContentBlock) -> Block {
    match content {
        // A marker means something in the transcripts of agents that are not ours; in ours it is
        // noise that a server could have written.
        ContentBlock::Text(text) => Block::Text {
            text: strip(&text.text).into_owned(),
        },
        ContentBlock::Image(image) => Block::Image {
            media_type: image.mime_type,
            data: image.data,
        },
        ContentBlock::Audio(audio) => text(format!(
            "[audio: {}, {} bytes of base64]",
            audio.mime_type,
            audio.data.len()
        )),
        ContentBlock::ResourceLink(link) => text(format!(
            "[resource: {} <{}>{}{}]",
            link.name,
            link.uri,
            link.mime_type
                .map(|kind| format!(", {kind}"))
                .unwrap_or_default(),
            link.description
                .map(|says| format!(": {says}"))
                .unwrap_or_default(),
        )),
        ContentBlock::Resource(embedded) => resource(embedded.resource),
        _ => text("[content of a kind that is not known here]".to_owned()),
    }
}

fn resource(contents: ResourceContents) -> Block {
    match contents {
        ResourceContents::TextResourceContents {
            uri, text: body, ..
        } => text(format!("[resource: {uri}]\n{body}")),
        ResourceContents::BlobResourceContents {
            uri,
            mime_type,
            blob,
            ..
        } => match mime_type {
            Some(kind) if kind.starts_with("image/") => Block::Image {
                media_type: kind,
                data: blob,
            },
            kind => text(format!(
                "[resource: {uri}, {}, {} bytes of base64]",
                kind.as_deref().unwrap_or("unknown type"),
                blob.len()
            )),
        },
        _ => text("[resource of a kind that is not known here]".to_owned()),
    }
}

fn text(text: String) -> Block {
    Block::Text { text }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn converted(result: Value) -> McpResult {
        convert(serde_json::from_value(result).unwrap(), &Limits::default()).unwrap()
    }

    #[test]
    fn every_kind_of_content_has_a_form_that_a_model_can_read() {
        let image = "iVBORw0KGgo=";
        let marked = format!("hi\n[kirocrew-mcp-app:{}]", "0".repeat(32));
        let table = [
            (json!({ "type": "text", "text": marked }), text("hi".into())),
            (json!({ "type": "text", "text": "hi" }), text("hi".into())),
            (
                json!({ "type": "image", "data": image, "mimeType": "image/png" }),
                Block::Image {
                    media_type: "image/png".into(),
                    data: image.into(),
                },
            ),
            (
                json!({ "type": "audio", "data": "AAAA", "mimeType": "audio/wav" }),
                text("[audio: audio/wav, 4 bytes of base64]".into()),
            ),
            (
                json!({ "type": "resource", "resource": { "uri": "a:b", "text": "body" } }),
                text("[resource: a:b]\nbody".into()),
            ),
            (
                json!({ "type": "resource", "resource":
                    { "uri": "a:b", "blob": image, "mimeType": "image/png" } }),
                Block::Image {
                    media_type: "image/png".into(),
                    data: image.into(),
                },
            ),
            (
                json!({ "type": "resource", "resource": { "uri": "a:b", "blob": "AAAA" } }),
                text("[resource: a:b, unknown type, 4 bytes of base64]".into()),
            ),
            (
                json!({ "type": "resource_link", "uri": "a:b", "name": "n",
                    "mimeType": "text/plain", "description": "d" }),
                text("[resource: n <a:b>, text/plain: d]".into()),
            ),
        ];
        for (content, expected) in table {
            let result = converted(json!({ "content": [content] }));
            assert_eq!(result.content, [expected]);
            assert!(!result.is_error);
        }
    }

    #[test]
    fn structured_content_and_the_error_flag_are_kept() {
        let result = converted(json!({
            "content": [], "structuredContent": { "a": 1 }, "isError": true
        }));
        assert_eq!(result.structured, Some(json!({ "a": 1 })));
        assert!(result.is_error);
    }

    #[test]
    fn a_result_over_the_limit_is_refused_and_never_cut() {
        let limits = Limits {
            result: 100,
            ..Limits::default()
        };
        for (length, fits) in [(20, true), (200, false)] {
            let result = CallToolResult::success(vec![ContentBlock::text("x".repeat(length))]);
            assert_eq!(convert(result, &limits).is_ok(), fits, "{length}");
        }
    }

    #[test]
    fn a_flood_of_blocks_is_refused() {
        for (count, fits) in [(BLOCKS_MAX, true), (BLOCKS_MAX + 1, false)] {
            let result = CallToolResult::success(vec![ContentBlock::text(""); count]);
            assert_eq!(convert(result, &Limits::default()).is_ok(), fits, "{count}");
        }
    }
}
