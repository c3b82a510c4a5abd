//! Anthropic messages.

use super::{Assembly, Delta, End, Events, Target, cost, count, json, result_text, text};
use crate::failure::Failure;
use crate::sse::SseEvent;
use ipc_proto::chat::{Block, ChatMessage, ChatRole, ModelRequest, Usage};
use ipc_proto::edges::egress::FinishReason;
use serde_json::{Value, json as json_value};
use std::collections::HashSet;

/// The route below the base address.
pub const ROUTE: &str = "messages";
/// The version of this wire.
pub const VERSION: &str = "2023-06-01";

/// This wire demands a bound on the answer; every current model may write this many tokens.
const DEFAULT_MAX_TOKENS: u32 = 32_000;

/// The body of a streamed request.
#[must_use]
pub fn body(request: &ModelRequest, target: &Target<'_>) -> Value {
    let mut messages: Vec<Value> = request.messages.iter().filter_map(message).collect();
    // Two marks let the provider reuse what it read for the turn before: the fixed beginning, and
    // the conversation up to here.
    let last = messages
        .last_mut()
        .and_then(|m| m["content"].as_array_mut())
        .and_then(|c| c.last_mut());
    if let Some(block) = last {
        block["cache_control"] = json_value!({"type": "ephemeral"});
    }
    let mut body = json_value!({
        "model": target.model,
        "max_tokens": request.max_output_tokens.unwrap_or(DEFAULT_MAX_TOKENS),
        "messages": messages,
        "stream": true,
    });
    if !request.system.is_empty() {
        body["system"] = json_value!([{
            "type": "text", "text": request.system, "cache_control": {"type": "ephemeral"},
        }]);
    }
    if !request.tools.is_empty() {
        body["tools"] = request
            .tools
            .iter()
            .map(|t| {
                json_value!({
                    "name": t.name, "description": t.description, "input_schema": t.input_schema,
                })
            })
            .collect();
    }
    match target.effort {
        None => {}
        // Nothing sent means no thinking.
        Some("none") => {}
        Some(effort) => {
            body["thinking"] = json_value!({"type": "adaptive"});
            body["output_config"] = json_value!({"effort": effort_level(effort)});
        }
    }
    body
}

fn effort_level(effort: &str) -> &str {
    match effort {
        "minimal" => "low",
        "ultra" => "max",
        other => other,
    }
}

/// Tool results must stand before anything else in their message; empty text is refused.
fn message(message: &ChatMessage) -> Option<Value> {
    let role = match message.role {
        ChatRole::User => "user",
        ChatRole::Assistant => "assistant",
    };
    let mut results = Vec::new();
    let mut rest = Vec::new();
    for block in &message.content {
        match block {
            Block::ToolResult {
                id,
                content,
                is_error,
                ..
            } => {
                let mut inner: Vec<Value> = Vec::new();
                let text = result_text(content, false);
                if !text.is_empty() {
                    inner.push(json_value!({"type": "text", "text": text}));
                }
                inner.extend(content.iter().filter_map(|b| match b {
                    Block::Image { media_type, data } => Some(image(media_type, data)),
                    _ => None,
                }));
                results.push(json_value!({
                    "type": "tool_result", "tool_use_id": id, "content": inner,
                    "is_error": is_error,
                }));
            }
            Block::Text { text } if !text.trim().is_empty() => {
                rest.push(json_value!({"type": "text", "text": text}));
            }
            Block::Text { .. } => {}
            Block::Image { media_type, data } => rest.push(image(media_type, data)),
            Block::ToolUse {
                id,
                name,
                arguments,
            } => rest.push(json_value!({
                "type": "tool_use", "id": id, "name": name, "input": input(arguments),
            })),
        }
    }
    results.append(&mut rest);
    (!results.is_empty()).then(|| json_value!({"role": role, "content": results}))
}

/// This wire takes arguments as an object only; what a model wrote wrongly is shown to it as text.
fn input(arguments: &str) -> Value {
    match serde_json::from_str(arguments) {
        Ok(object @ Value::Object(_)) => object,
        _ => json_value!({"unreadable_arguments": arguments}),
    }
}

fn image(media_type: &str, data: &str) -> Value {
    json_value!({
        "type": "image", "source": {"type": "base64", "media_type": media_type, "data": data},
    })
}

/// The state of one answer.
#[derive(Debug, Default)]
pub(super) struct MessagesEvents {
    assembly: Assembly,
    finish: Option<FinishReason>,
    usage: Option<Usage>,
}

impl Events for MessagesEvents {
    fn event(&mut self, event: &SseEvent, out: &mut Vec<Delta>) -> Result<bool, Failure> {
        let data = json(event)?;
        let index = count(&data, "index");
        match text(&data, "type").unwrap_or(&event.name) {
            "message_start" => {
                let message = data.get("message").unwrap_or(&Value::Null);
                self.count_usage(message.get("usage"));
            }
            "content_block_start" => {
                self.block(
                    index,
                    data.get("content_block").unwrap_or(&Value::Null),
                    out,
                )?;
            }
            "content_block_delta" => {
                let delta = data.get("delta").unwrap_or(&Value::Null);
                if let Some(piece) = text(delta, "text") {
                    self.assembly.text(piece, out)?;
                } else if let Some(piece) = text(delta, "thinking") {
                    self.assembly.thought(piece, out)?;
                } else if let Some(piece) = text(delta, "partial_json") {
                    self.assembly.append(index, piece, out)?;
                }
            }
            "message_delta" => {
                self.count_usage(data.get("usage"));
                let delta = data.get("delta").unwrap_or(&Value::Null);
                if let Some(reason) = text(delta, "stop_reason") {
                    self.finish = Some(finish_of(reason));
                }
            }
            "message_stop" => return Ok(true),
            "error" => return Err(Failure::from_event(&data)),
            _ => {}
        }
        Ok(false)
    }

    fn stream(&mut self, tools: HashSet<String>) {
        self.assembly.stream(tools);
    }

    fn end(self: Box<Self>) -> Result<Option<End>, Failure> {
        let Some(finish) = self.finish else {
            return Ok(None);
        };
        let calls = self.assembly.into_calls()?;
        Ok(Some(End {
            finish,
            calls,
            usage: self.usage,
        }))
    }
}

impl MessagesEvents {
    fn block(&mut self, index: u64, block: &Value, out: &mut Vec<Delta>) -> Result<(), Failure> {
        match text(block, "type") {
            Some("text") => match text(block, "text") {
                Some(piece) => self.assembly.text(piece, out),
                None => Ok(()),
            },
            Some("tool_use") => {
                let part = |key| text(block, key).unwrap_or_default();
                self.assembly.begin(index, part("id"), part("name"))?;
                // Empty before its pieces; compatible servers may give it whole at once.
                match block.get("input") {
                    Some(Value::Object(whole)) if !whole.is_empty() => self
                        .assembly
                        .replace(index, &Value::Object(whole.clone()).to_string()),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// The counts come twice, cumulative: the prompt's at the start, the answer's at the end. A
    /// count that is left out keeps its value.
    fn count_usage(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage.filter(|u| u.is_object()) else {
            return;
        };
        let known = self.usage.take().unwrap_or_default();
        let read = |key, before| usage.get(key).and_then(Value::as_u64).unwrap_or(before);
        let fresh = known
            .input
            .saturating_sub(known.cache_read + known.cache_creation);
        let cache_read = read("cache_read_input_tokens", known.cache_read);
        let cache_creation = read("cache_creation_input_tokens", known.cache_creation);
        // This wire counts cached tokens beside `input_tokens`, the other two inside it.
        let input = read("input_tokens", fresh)
            .saturating_add(cache_read)
            .saturating_add(cache_creation);
        let output = read("output_tokens", known.output);
        self.usage = Some(Usage {
            input,
            output,
            cache_read,
            cache_creation,
            cost_usd: cost(usage),
        });
    }
}

fn finish_of(reason: &str) -> FinishReason {
    match reason {
        "tool_use" => FinishReason::ToolUse,
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "refusal" => FinishReason::ContentFilter,
        _ => FinishReason::Stop,
    }
}
