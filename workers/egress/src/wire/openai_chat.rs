//! OpenAI chat completions, as `api.openai.com` and the many compatible servers speak it.

use super::{Assembly, Delta, End, Events, Target, cost, count, data_url, json, result_text, text};
use crate::failure::{ErrorClass, Failure};
use crate::sse::SseEvent;
use ipc_proto::chat::{Block, ChatMessage, ChatRole, ModelRequest, Usage};
use ipc_proto::edges::egress::FinishReason;
use serde_json::{Value, json as json_value};
use std::collections::HashSet;

/// The route below the base address.
pub const ROUTE: &str = "chat/completions";

/// The body of a streamed request.
#[must_use]
pub fn body(request: &ModelRequest, target: &Target<'_>) -> Value {
    let mut messages = Vec::new();
    if !request.system.is_empty() {
        messages.push(json_value!({"role": "system", "content": request.system}));
    }
    for message in &request.messages {
        match message.role {
            ChatRole::Assistant => messages.extend(assistant(message)),
            ChatRole::User => user(message, &mut messages),
        }
    }
    let mut body = json_value!({
        "model": target.model,
        "messages": messages,
        "stream": true,
        // Without it this wire tells no token counts of a stream.
        "stream_options": {"include_usage": true},
    });
    if !request.tools.is_empty() {
        body["tools"] = request
            .tools
            .iter()
            .map(|t| {
                json_value!({"type": "function", "function": {
                    "name": t.name, "description": t.description, "parameters": t.input_schema,
                }})
            })
            .collect();
    }
    if let Some(effort) = target.effort {
        body["reasoning_effort"] = super::openai_effort(effort).into();
    }
    if let Some(most) = request.max_output_tokens {
        // OpenAI's reasoning models refuse the old name, compatible servers don't know the new one.
        body[if target.official {
            "max_completion_tokens"
        } else {
            "max_tokens"
        }] = most.into();
    }
    body
}

fn assistant(message: &ChatMessage) -> Option<Value> {
    let text = message.plain_text();
    let calls: Vec<Value> = message
        .content
        .iter()
        .filter_map(|block| match block {
            Block::ToolUse {
                id,
                name,
                arguments,
            } => Some(json_value!({
                "id": id, "type": "function", "function": {"name": name, "arguments": arguments},
            })),
            _ => None,
        })
        .collect();
    if text.is_empty() && calls.is_empty() {
        return None;
    }
    let content = if text.is_empty() {
        Value::Null
    } else {
        text.into()
    };
    let mut said = json_value!({"role": "assistant", "content": content});
    if !calls.is_empty() {
        said["tool_calls"] = calls.into();
    }
    Some(said)
}

/// Tool results become messages of their own, first, because they must follow their calls. A tool
/// message carries text only, so images of tools go into the user message after them.
fn user(message: &ChatMessage, out: &mut Vec<Value>) {
    let mut parts = Vec::new();
    for block in &message.content {
        match block {
            Block::Text { text } if !text.is_empty() => {
                parts.push(json_value!({"type": "text", "text": text}));
            }
            Block::Image { media_type, data } => parts.push(image(media_type, data)),
            Block::ToolResult {
                id,
                name,
                content,
                is_error,
            } => {
                out.push(json_value!({
                    "role": "tool", "tool_call_id": id, "content": result_text(content, *is_error),
                }));
                let images = content.iter().filter_map(|inner| match inner {
                    Block::Image { media_type, data } => Some(image(media_type, data)),
                    _ => None,
                });
                let before = parts.len();
                parts.extend(images);
                if parts.len() > before {
                    let label = format!("Images from the tool {name}:");
                    parts.insert(before, json_value!({"type": "text", "text": label}));
                }
            }
            Block::Text { .. } | Block::ToolUse { .. } => {}
        }
    }
    match parts.as_slice() {
        [] => {}
        [only] if only["type"] == "text" => {
            out.push(json_value!({"role": "user", "content": only["text"]}));
        }
        _ => out.push(json_value!({"role": "user", "content": parts})),
    }
}

fn image(media_type: &str, data: &str) -> Value {
    json_value!({"type": "image_url", "image_url": {"url": data_url(media_type, data)}})
}

/// The state of one answer.
#[derive(Debug, Default)]
pub(super) struct ChatEvents {
    assembly: Assembly,
    finish: Option<FinishReason>,
    usage: Option<Usage>,
}

impl Events for ChatEvents {
    fn event(&mut self, event: &SseEvent, out: &mut Vec<Delta>) -> Result<bool, Failure> {
        if event.data.trim() == "[DONE]" {
            return Ok(true);
        }
        let chunk = json(event)?;
        if chunk.get("error").is_some_and(|e| !e.is_null()) {
            return Err(Failure::from_event(&chunk));
        }
        if let Some(usage) = chunk.get("usage").filter(|u| u.is_object()) {
            self.usage = Some(usage_of(usage));
        }
        // Only one answer was asked for; a server that sends more of them has the first at 0.
        let choice = chunk
            .get("choices")
            .and_then(Value::as_array)
            .and_then(|all| all.iter().find(|c| count(c, "index") == 0));
        let Some(choice) = choice else {
            return Ok(false);
        };
        if let Some(delta) = choice.get("delta") {
            self.delta(delta, out)?;
        }
        if let Some(reason) = text(choice, "finish_reason") {
            self.finish = Some(finish_of(reason)?);
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
        // Some servers say `stop` after tool calls.
        let finish = match finish {
            FinishReason::Stop | FinishReason::ToolUse if calls.is_empty() => FinishReason::Stop,
            FinishReason::Stop => FinishReason::ToolUse,
            other => other,
        };
        Ok(Some(End {
            finish,
            calls,
            usage: self.usage,
        }))
    }
}

impl ChatEvents {
    fn delta(&mut self, delta: &Value, out: &mut Vec<Delta>) -> Result<(), Failure> {
        // The names that DeepSeek, vLLM, llama.cpp (first) and OpenRouter, Ollama (second) use.
        if let Some(piece) = text(delta, "reasoning_content").or_else(|| text(delta, "reasoning")) {
            self.assembly.thought(piece, out)?;
        }
        for key in ["content", "refusal"] {
            if let Some(piece) = text(delta, key) {
                self.assembly.text(piece, out)?;
            }
        }
        let calls = delta.get("tool_calls").and_then(Value::as_array);
        for call in calls.into_iter().flatten() {
            self.call(call, out)?;
        }
        Ok(())
    }

    /// One piece of a tool call. Pieces belong together by `index`; servers that leave it out, or
    /// send 0 for every call, are understood by the id that begins a new call.
    fn call(&mut self, piece: &Value, out: &mut Vec<Delta>) -> Result<(), Failure> {
        let function = piece.get("function").unwrap_or(&Value::Null);
        let id = text(piece, "id").unwrap_or_default();
        let name = text(function, "name").unwrap_or_default();
        let index = piece.get("index").and_then(Value::as_u64);
        let number = index.or(self.assembly.last_number()).unwrap_or(0);
        match self.assembly.call(number) {
            None => self.assembly.begin(number, id, name)?,
            Some(known) if !id.is_empty() && !known.id.is_empty() && known.id != id => {
                self.assembly.begin(number, id, name)?;
            }
            Some(known) => {
                if known.id.is_empty() {
                    id.clone_into(&mut known.id);
                }
                if known.name.is_empty() {
                    name.clone_into(&mut known.name);
                }
            }
        }
        match function.get("arguments") {
            Some(Value::String(piece)) => self.assembly.append(number, piece, out),
            // A server that gives the arguments as an object gives them whole.
            Some(whole @ Value::Object(_)) => self.assembly.replace(number, &whole.to_string()),
            _ => Ok(()),
        }
    }
}

fn finish_of(reason: &str) -> Result<FinishReason, Failure> {
    match reason {
        "tool_calls" | "function_call" => Ok(FinishReason::ToolUse),
        "length" => Ok(FinishReason::Length),
        "content_filter" => Ok(FinishReason::ContentFilter),
        "error" | "network_error" => Err(Failure::new(
            ErrorClass::ServerError,
            format!("the provider ended its answer with `{reason}`"),
        )),
        _ => Ok(FinishReason::Stop),
    }
}

fn usage_of(usage: &Value) -> Usage {
    let cached = usage
        .get("prompt_tokens_details")
        .map_or(0, |d| count(d, "cached_tokens"));
    Usage {
        input: count(usage, "prompt_tokens"),
        output: count(usage, "completion_tokens"),
        cache_read: cached,
        cache_creation: 0,
        cost_usd: cost(usage),
    }
}
