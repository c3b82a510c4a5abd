//! OpenAI responses.

use super::{Assembly, Delta, End, Events, Target, cost, count, data_url, json, result_text, text};
use crate::failure::Failure;
use crate::sse::SseEvent;
use ipc_proto::chat::{Block, ChatMessage, ChatRole, ModelRequest, Usage};
use ipc_proto::edges::egress::FinishReason;
use serde_json::{Value, json as json_value};
use std::collections::HashSet;

/// The route below the base address.
pub const ROUTE: &str = "responses";

/// The body of a streamed request. The conversation is ours, so the provider is told not to keep it.
#[must_use]
pub fn body(request: &ModelRequest, target: &Target<'_>) -> Value {
    let mut input = Vec::new();
    for message in &request.messages {
        items(message, &mut input);
    }
    let mut body = json_value!({
        "model": target.model,
        "input": input,
        "stream": true,
        "store": false,
    });
    if !request.system.is_empty() {
        body["instructions"] = request.system.as_str().into();
    }
    if !request.tools.is_empty() {
        body["tools"] = request
            .tools
            .iter()
            .map(|t| {
                json_value!({
                    "type": "function", "name": t.name, "description": t.description,
                    // The strict mode refuses schemas that ordinary MCP servers have.
                    "parameters": t.input_schema, "strict": false,
                })
            })
            .collect();
    }
    if let Some(effort) = target.effort {
        body["reasoning"] = json_value!({"effort": super::openai_effort(effort)});
    }
    if let Some(most) = request.max_output_tokens {
        body["max_output_tokens"] = most.into();
    }
    body
}

/// A message as input items: calls and results are items beside the messages.
fn items(message: &ChatMessage, out: &mut Vec<Value>) {
    let (role, text_type) = match message.role {
        ChatRole::User => ("user", "input_text"),
        ChatRole::Assistant => ("assistant", "output_text"),
    };
    let mut parts = Vec::new();
    let flush = |parts: &mut Vec<Value>, out: &mut Vec<Value>| {
        if !parts.is_empty() {
            out.push(json_value!({"role": role, "content": std::mem::take(parts)}));
        }
    };
    for block in &message.content {
        match block {
            Block::Text { text } if !text.is_empty() => {
                parts.push(json_value!({"type": text_type, "text": text}));
            }
            Block::Image { media_type, data } if message.role == ChatRole::User => {
                parts.push(image(media_type, data));
            }
            Block::Text { .. } | Block::Image { .. } => {}
            Block::ToolUse {
                id,
                name,
                arguments,
            } => {
                flush(&mut parts, out);
                out.push(json_value!({
                    "type": "function_call", "call_id": id, "name": name, "arguments": arguments,
                }));
            }
            Block::ToolResult {
                id,
                content,
                is_error,
                ..
            } => {
                flush(&mut parts, out);
                let text = result_text(content, *is_error);
                let images: Vec<Value> = content
                    .iter()
                    .filter_map(|inner| match inner {
                        Block::Image { media_type, data } => Some(image(media_type, data)),
                        _ => None,
                    })
                    .collect();
                let output = if images.is_empty() {
                    Value::String(text)
                } else {
                    let mut all = vec![json_value!({"type": "input_text", "text": text})];
                    all.extend(images);
                    Value::Array(all)
                };
                out.push(json_value!({
                    "type": "function_call_output", "call_id": id, "output": output,
                }));
            }
        }
    }
    flush(&mut parts, out);
}

fn image(media_type: &str, data: &str) -> Value {
    json_value!({"type": "input_image", "image_url": data_url(media_type, data)})
}

/// The state of one answer.
#[derive(Debug, Default)]
pub(super) struct ResponsesEvents {
    assembly: Assembly,
    finish: Option<FinishReason>,
    usage: Option<Usage>,
}

impl Events for ResponsesEvents {
    fn event(&mut self, event: &SseEvent, out: &mut Vec<Delta>) -> Result<bool, Failure> {
        if event.data.trim() == "[DONE]" {
            return Ok(true);
        }
        let data = json(event)?;
        let kind = text(&data, "type").unwrap_or(&event.name);
        let number = count(&data, "output_index");
        match kind {
            "response.output_text.delta" | "response.refusal.delta" => {
                if let Some(piece) = text(&data, "delta") {
                    self.assembly.text(piece, out)?;
                }
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                if let Some(piece) = text(&data, "delta") {
                    self.assembly.thought(piece, out)?;
                }
            }
            // Each part of a summary is a paragraph.
            "response.reasoning_summary_part.added" if count(&data, "summary_index") > 0 => {
                self.assembly.thought("\n\n", out)?;
            }
            "response.function_call_arguments.delta" => {
                self.assembly
                    .append(number, text(&data, "delta").unwrap_or_default(), out)?;
            }
            "response.function_call_arguments.done" => {
                if let Some(whole) = text(&data, "arguments") {
                    self.assembly.replace(number, whole)?;
                }
            }
            "response.output_item.added" | "response.output_item.done" => {
                self.item(number, data.get("item").unwrap_or(&Value::Null))?;
            }
            "response.completed" | "response.incomplete" => {
                let response = data.get("response").unwrap_or(&Value::Null);
                self.usage = response
                    .get("usage")
                    .filter(|u| u.is_object())
                    .map(usage_of);
                self.finish = Some(finish_of(response));
                return Ok(true);
            }
            "response.failed" => {
                let response = data.get("response").unwrap_or(&Value::Null);
                return Err(Failure::from_event(response));
            }
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
        let finish = match finish {
            FinishReason::Stop if !calls.is_empty() => FinishReason::ToolUse,
            other => other,
        };
        Ok(Some(End {
            finish,
            calls,
            usage: self.usage,
        }))
    }
}

impl ResponsesEvents {
    /// The beginning or the whole of an output item; only function calls are kept.
    fn item(&mut self, number: u64, item: &Value) -> Result<(), Failure> {
        if text(item, "type") != Some("function_call") {
            return Ok(());
        }
        if self.assembly.call(number).is_none() {
            let id = text(item, "call_id")
                .or_else(|| text(item, "id"))
                .unwrap_or_default();
            self.assembly
                .begin(number, id, text(item, "name").unwrap_or_default())?;
        }
        match text(item, "arguments") {
            Some(whole) => self.assembly.replace(number, whole),
            None => Ok(()),
        }
    }
}

fn finish_of(response: &Value) -> FinishReason {
    let reason = response
        .get("incomplete_details")
        .and_then(|d| text(d, "reason"));
    match (text(response, "status"), reason) {
        (_, Some("content_filter")) => FinishReason::ContentFilter,
        (_, Some(_)) | (Some("incomplete"), None) => FinishReason::Length,
        _ => FinishReason::Stop,
    }
}

fn usage_of(usage: &Value) -> Usage {
    let cached = usage
        .get("input_tokens_details")
        .map_or(0, |d| count(d, "cached_tokens"));
    Usage {
        input: count(usage, "input_tokens"),
        output: count(usage, "output_tokens"),
        cache_read: cached,
        cache_creation: 0,
        cost_usd: cost(usage),
    }
}
