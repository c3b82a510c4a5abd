//! From the request's messages to a turn: what is new, what precedes it, what guides it.

use super::error::ApiError;
use super::image;
use ipc_proto::chat::{Block, ChatMessage, ChatRole};
use serde_json::{Map, Value};

/// The messages of a request, taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Transcript {
    /// The user messages after the last assistant message: the new turn.
    pub content: Vec<Block>,
    /// Everything before it, for a conversation without a history of ours.
    pub preceding: Vec<ChatMessage>,
    /// `system` and `developer` messages joined: untrusted session guidance.
    pub guidance: Option<String>,
    /// What was left out, in sentences.
    pub warnings: Vec<String>,
}

/// Takes `messages` apart.
///
/// # Errors
/// Naming the message: not a list, nothing new in it, another role, tool calls, other content than
/// text and images.
pub fn read(messages: Option<&Value>) -> Result<Transcript, ApiError> {
    let Some(Value::Array(messages)) = messages else {
        return Err(ApiError::invalid(
            "messages",
            "\"messages\" must be a list of messages.",
        ));
    };
    let mut out = Transcript::default();
    let mut dialogue: Vec<ChatMessage> = Vec::new();
    let mut guidance: Vec<String> = Vec::new();
    let mut remote_images = 0;
    for (i, message) in messages.iter().enumerate() {
        let at = format!("messages[{i}]");
        let Value::Object(message) = message else {
            return Err(ApiError::invalid(at, "A message must be an object."));
        };
        refuse_tools(message, &at)?;
        let role = match message.get("role").and_then(Value::as_str) {
            Some("user") => ChatRole::User,
            Some("assistant") => ChatRole::Assistant,
            Some("system" | "developer") => {
                let blocks = content(message.get("content"), &at, &mut remote_images)?;
                guidance.push(
                    ChatMessage {
                        role: ChatRole::User,
                        content: blocks,
                    }
                    .plain_text(),
                );
                continue;
            }
            _ => {
                return Err(ApiError::invalid(
                    format!("{at}.role"),
                    "A message's role must be system, developer, user or assistant.",
                ));
            }
        };
        // An assistant's content may be null beside a refusal; it says nothing then.
        if role == ChatRole::Assistant && matches!(message.get("content"), None | Some(Value::Null))
        {
            continue;
        }
        let content = content(message.get("content"), &at, &mut remote_images)?;
        dialogue.push(ChatMessage { role, content });
    }
    let new = dialogue
        .iter()
        .rposition(|m| m.role == ChatRole::Assistant)
        .map_or(0, |i| i + 1);
    for message in dialogue.split_off(new) {
        join(&mut out.content, message.content);
    }
    if !out.content.iter().any(says_something) {
        return Err(ApiError::invalid(
            "messages",
            "The last message must be a user message that says something.",
        ));
    }
    out.preceding = dialogue
        .into_iter()
        .filter(|m| m.content.iter().any(says_something))
        .collect();
    guidance.retain(|text| !text.trim().is_empty());
    out.guidance = (!guidance.is_empty()).then(|| guidance.join("\n\n"));
    if remote_images > 0 {
        out.warnings.push(format!(
            "{remote_images} remote image(s) were not fetched; send images as data: URLs."
        ));
    }
    Ok(out)
}

fn says_something(block: &Block) -> bool {
    match block {
        Block::Text { text } => !text.trim().is_empty(),
        _ => true,
    }
}

fn refuse_tools(message: &Map<String, Value>, at: &str) -> Result<(), ApiError> {
    for field in ["tool_calls", "function_call", "audio"] {
        if message.get(field).is_some_and(|v| !v.is_null()) {
            return Err(ApiError::invalid(
                format!("{at}.{field}"),
                format!("\"{field}\" in messages is not supported: the agent uses its own tools."),
            ));
        }
    }
    Ok(())
}

/// Appends the blocks of the next message; its text begins a new paragraph.
fn join(blocks: &mut Vec<Block>, more: Vec<Block>) {
    let mut more = more.into_iter();
    match (blocks.last_mut(), more.next()) {
        (Some(Block::Text { text }), Some(Block::Text { text: next })) => {
            text.push_str("\n\n");
            text.push_str(&next);
        }
        (_, first) => blocks.extend(first),
    }
    blocks.extend(more);
}

fn content(
    value: Option<&Value>,
    at: &str,
    remote_images: &mut u32,
) -> Result<Vec<Block>, ApiError> {
    let parts = match value {
        Some(Value::String(text)) => return Ok(vec![Block::Text { text: text.clone() }]),
        Some(Value::Array(parts)) => parts,
        _ => {
            return Err(ApiError::invalid(
                format!("{at}.content"),
                "\"content\" must be text or a list of parts.",
            ));
        }
    };
    let mut blocks = Vec::new();
    for (i, part) in parts.iter().enumerate() {
        let at = format!("{at}.content[{i}]");
        let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
        let block = match kind {
            "text" | "refusal" => match part.get(kind).and_then(Value::as_str) {
                Some(text) => Block::Text {
                    text: text.to_owned(),
                },
                None => {
                    return Err(ApiError::invalid(
                        format!("{at}.{kind}"),
                        "It must be text.",
                    ));
                }
            },
            "image_url" => match part.pointer("/image_url/url").and_then(Value::as_str) {
                Some(url) if image::is_data_url(url) => image::inline(url)
                    .map_err(|e| ApiError::invalid(format!("{at}.image_url.url"), e.to_string()))?,
                Some(url) => {
                    *remote_images += 1;
                    Block::Text {
                        text: image::not_fetched(url),
                    }
                }
                None => {
                    return Err(ApiError::invalid(
                        format!("{at}.image_url.url"),
                        "It must be a URL.",
                    ));
                }
            },
            _ => {
                return Err(ApiError::invalid(
                    format!("{at}.type"),
                    "A part's type must be text or image_url.",
                ));
            }
        };
        blocks.push(block);
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn text(text: &str) -> Block {
        Block::Text { text: text.into() }
    }

    fn refused(messages: Value) -> String {
        read(Some(&messages)).unwrap_err().param.unwrap()
    }

    #[test]
    fn the_new_turn_is_what_follows_the_last_answer() {
        let messages = json!([
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "one", "name": "ann"},
            {"role": "assistant", "content": "1"},
            {"role": "developer", "content": [{"type": "text", "text": "be kind"}]},
            {"role": "user", "content": "two"},
            {"role": "user", "content": [{"type": "text", "text": "and "}, {"type": "text", "text": "three"}]},
        ]);
        let got = read(Some(&messages)).unwrap();
        assert_eq!(got.content, [text("two\n\nand "), text("three")]);
        assert_eq!(
            got.preceding,
            [
                ChatMessage::text(ChatRole::User, "one"),
                ChatMessage::text(ChatRole::Assistant, "1")
            ]
        );
        assert_eq!(got.guidance.as_deref(), Some("be brief\n\nbe kind"));
        assert!(got.warnings.is_empty());
    }

    #[test]
    fn images_are_inlined_and_remote_ones_named_but_not_fetched() {
        let messages = json!([{"role": "user", "content": [
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}},
            {"type": "image_url", "image_url": {"url": "http://169.254.169.254/x.png"}},
        ]}]);
        let got = read(Some(&messages)).unwrap();
        assert_eq!(
            got.content,
            [
                text("look"),
                Block::Image {
                    media_type: "image/png".into(),
                    data: "iVBORw0KGgo=".into()
                },
                text("[image not fetched: http://169.254.169.254/x.png]"),
            ]
        );
        assert_eq!(
            got.warnings,
            ["1 remote image(s) were not fetched; send images as data: URLs."]
        );
    }

    #[test]
    fn what_is_not_served_is_refused_with_its_place() {
        let user = json!({"role": "user", "content": "x"});
        for (messages, param) in [
            (json!("x"), "messages"),
            (json!([]), "messages"),
            (json!([{"role": "system", "content": "x"}]), "messages"),
            (json!([{"role": "user", "content": " \n"}]), "messages"),
            (
                json!([user, {"role": "assistant", "content": "y"}]),
                "messages",
            ),
            (json!(["x"]), "messages[0]"),
            (json!([{"content": "x"}]), "messages[0].role"),
            (
                json!([user, {"role": "tool", "content": "x", "tool_call_id": "1"}]),
                "messages[1].role",
            ),
            (
                json!([user, {"role": "function", "content": "x"}]),
                "messages[1].role",
            ),
            (
                json!([{"role": "assistant", "tool_calls": []}, user]),
                "messages[0].tool_calls",
            ),
            (
                json!([{"role": "assistant", "function_call": {}}, user]),
                "messages[0].function_call",
            ),
            (
                json!([{"role": "assistant", "audio": {"id": "a"}}, user]),
                "messages[0].audio",
            ),
            (
                json!([{"role": "user", "content": null}]),
                "messages[0].content",
            ),
            (
                json!([{"role": "user", "content": 7}]),
                "messages[0].content",
            ),
            (
                json!([{"role": "user", "content": ["x"]}]),
                "messages[0].content[0].type",
            ),
            (
                json!([{"role": "user", "content": [{"type": "input_audio"}]}]),
                "messages[0].content[0].type",
            ),
            (
                json!([{"role": "user", "content": [{"type": "text"}]}]),
                "messages[0].content[0].text",
            ),
            (
                json!([{"role": "user", "content": [{"type": "image_url", "image_url": "u"}]}]),
                "messages[0].content[0].image_url.url",
            ),
            (
                json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,!"}}]}]),
                "messages[0].content[0].image_url.url",
            ),
        ] {
            assert_eq!(refused(messages.clone()), param, "{messages}");
        }
        assert_eq!(read(None).unwrap_err().param.unwrap(), "messages");
        let said_nothing = json!([user, {"role": "assistant", "content": null}, user]);
        assert_eq!(read(Some(&said_nothing)).unwrap().content, [text("x\n\nx")]);
    }

    proptest! {
        #[test]
        fn no_word_is_lost_or_moved(said in proptest::collection::vec((any::<bool>(), "[a-z]{1,8}"), 1..20)) {
            let messages: Vec<Value> = said.iter().map(|(user, word)| {
                json!({"role": if *user { "user" } else { "assistant" }, "content": word})
            }).collect();
            let got = read(Some(&Value::Array(messages)));
            let tail = said.iter().rev().take_while(|(user, _)| *user).count();
            if tail == 0 {
                prop_assert!(got.is_err());
            } else {
                let got = got.unwrap();
                let new: Vec<_> = said[said.len() - tail..].iter().map(|(_, w)| w.as_str()).collect();
                prop_assert_eq!(got.content, vec![text(&new.join("\n\n"))]);
                let before: Vec<_> = got.preceding.iter().map(|m| (m.role == ChatRole::User, m.plain_text())).collect();
                prop_assert_eq!(before, said[..said.len() - tail].to_vec());
            }
        }
    }
}
