//! One answer in the words of each wire: as stream events, and whole.

use super::conversation::{Api, NAMESPACE};
use super::directive::{Behaviour, Said};
use serde_json::{Value, json};

/// A stream event: its name, if the wire names events, and its data.
pub(super) type Event = (Option<&'static str>, String);

/// What every answer of one request has in common.
pub(super) struct Frame<'a> {
    pub(super) model: &'a str,
    /// Token counts: prompt, answer.
    pub(super) usage: (usize, usize),
    /// Makes ids of one request distinct from another's.
    pub(super) number: u64,
    /// The chat wire tells token counts of a stream only when asked.
    pub(super) include_usage: bool,
}

pub(super) fn events(api: Api, frame: &Frame<'_>, b: &Behaviour) -> Vec<Event> {
    match api {
        Api::Chat => chat_events(frame, b),
        Api::Responses => responses_events(frame, b),
        Api::Messages => messages_events(frame, b),
    }
}

pub(super) fn whole(api: Api, frame: &Frame<'_>, b: &Behaviour) -> Value {
    match api {
        Api::Chat => {
            let mut message = json!({"role": "assistant", "content": null});
            match &b.said {
                Said::Text(text) => message["content"] = text.as_str().into(),
                Said::Call { .. } => message["tool_calls"] = json!([chat_call(frame, &b.said)]),
            }
            json!({
                "id": frame.id("chatcmpl"), "object": "chat.completion", "created": 0,
                "model": frame.model, "usage": chat_usage(frame),
                "choices": [{"index": 0, "message": message, "finish_reason": chat_finish(&b.said)}],
            })
        }
        Api::Responses => response(frame, "completed", Some(response_item(frame, &b.said))),
        Api::Messages => {
            let mut message = message_shell(frame);
            message["content"] = json!([message_block(frame, &b.said)]);
            message["stop_reason"] = message_stop(&b.said).into();
            message["usage"]["output_tokens"] = frame.usage.1.into();
            message
        }
    }
}

/// A refusal in the wire's own shape.
pub(super) fn refusal(api: Api, status: u16, message: &str) -> Value {
    let kind = match status {
        400 | 413 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    match api {
        Api::Messages => json!({"type": "error", "error": {"type": kind, "message": message}}),
        _ => json!({"error": {"message": message, "type": kind, "param": null, "code": null}}),
    }
}

impl Frame<'_> {
    fn id(&self, prefix: &str) -> String {
        format!("{prefix}_mock{}", self.number)
    }
}

/// Pieces of the wished length, else of about 24 characters, more when that would be hundreds of
/// events.
fn pieces(b: &Behaviour, text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let usual = 24.max(chars.len() / 256);
    chars
        .chunks(b.piece.unwrap_or(usual))
        .map(|piece| piece.iter().collect())
        .collect()
}

fn plain(data: Value) -> Event {
    (None, data.to_string())
}

// ---- chat completions

fn chat_usage(frame: &Frame<'_>) -> Value {
    let (input, output) = frame.usage;
    json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output})
}

fn chat_finish(said: &Said) -> &'static str {
    match said {
        Said::Text(_) => "stop",
        Said::Call { .. } => "tool_calls",
    }
}

fn chat_call(frame: &Frame<'_>, said: &Said) -> Value {
    let Said::Call { name, arguments } = said else {
        return Value::Null;
    };
    json!({"id": frame.id("call"), "type": "function", "function": {"name": name, "arguments": arguments}})
}

fn chat_events(frame: &Frame<'_>, b: &Behaviour) -> Vec<Event> {
    let chunk = |choices: Value| {
        json!({
            "id": frame.id("chatcmpl"), "object": "chat.completion.chunk", "created": 0,
            "model": frame.model, "choices": choices,
        })
    };
    let delta = |delta: Value| {
        plain(chunk(
            json!([{"index": 0, "delta": delta, "finish_reason": null}]),
        ))
    };
    let mut out = vec![delta(json!({"role": "assistant", "content": ""}))];
    if let Some(thought) = &b.thought {
        out.extend(
            pieces(b, thought)
                .into_iter()
                .map(|p| delta(json!({"reasoning_content": p}))),
        );
    }
    match &b.said {
        Said::Text(text) => {
            out.extend(
                pieces(b, text)
                    .into_iter()
                    .map(|p| delta(json!({"content": p}))),
            );
        }
        Said::Call { name, arguments } => {
            out.push(delta(json!({"tool_calls": [{
                "index": 0, "id": frame.id("call"), "type": "function",
                "function": {"name": name, "arguments": ""},
            }]})));
            out.extend(pieces(b, arguments).into_iter().map(|p| {
                delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": p}}]}))
            }));
        }
    }
    out.push(plain(chunk(
        json!([{"index": 0, "delta": {}, "finish_reason": chat_finish(&b.said)}]),
    )));
    if frame.include_usage {
        let mut last = chunk(json!([]));
        last["usage"] = chat_usage(frame);
        out.push(plain(last));
    }
    out.push((None, "[DONE]".to_owned()));
    out
}

// ---- responses

fn response_item(frame: &Frame<'_>, said: &Said) -> Value {
    match said {
        Said::Text(text) => json!({
            "id": frame.id("msg"), "type": "message", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }),
        Said::Call { name, arguments } => {
            let (space, name) = match name.split_once(NAMESPACE) {
                Some((space, name)) => (Some(space), name),
                None => (None, name.as_str()),
            };
            let mut item = json!({
                "id": frame.id("fc"), "type": "function_call", "status": "completed",
                "call_id": frame.id("call"), "name": name, "arguments": arguments,
            });
            if let Some(space) = space {
                item["namespace"] = space.into();
            }
            item
        }
    }
}

fn response(frame: &Frame<'_>, status: &str, item: Option<Value>) -> Value {
    let (input, output) = frame.usage;
    let usage = item.is_some().then(|| {
        json!({
            "input_tokens": input, "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": output, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": input + output,
        })
    });
    json!({
        "id": frame.id("resp"), "object": "response", "created_at": 0, "status": status,
        "error": null, "incomplete_details": null, "model": frame.model,
        "output": item.into_iter().collect::<Vec<_>>(), "usage": usage,
    })
}

fn responses_events(frame: &Frame<'_>, b: &Behaviour) -> Vec<Event> {
    let mut out: Vec<Event> = Vec::new();
    let mut event = |kind: &'static str, mut data: Value| {
        data["type"] = kind.into();
        data["sequence_number"] = out.len().into();
        out.push((Some(kind), data.to_string()));
    };
    event(
        "response.created",
        json!({"response": response(frame, "in_progress", None)}),
    );
    if let Some(thought) = &b.thought {
        for p in pieces(b, thought) {
            let data = json!({"item_id": frame.id("rs"), "output_index": 0, "summary_index": 0, "delta": p});
            event("response.reasoning_summary_text.delta", data);
        }
    }
    let item = response_item(frame, &b.said);
    let index = usize::from(b.thought.is_some());
    let mut begun = item.clone();
    begun["status"] = "in_progress".into();
    match &b.said {
        Said::Text(text) => {
            begun["content"] = json!([]);
            event(
                "response.output_item.added",
                json!({"output_index": index, "item": begun}),
            );
            let part = |mut data: Value| {
                data["item_id"] = item["id"].clone();
                data["output_index"] = index.into();
                data["content_index"] = 0.into();
                data
            };
            for p in pieces(b, text) {
                event("response.output_text.delta", part(json!({"delta": p})));
            }
            event("response.output_text.done", part(json!({"text": text})));
        }
        Said::Call { arguments, .. } => {
            begun["arguments"] = "".into();
            event(
                "response.output_item.added",
                json!({"output_index": index, "item": begun}),
            );
            let id = &item["id"];
            for p in pieces(b, arguments) {
                let data = json!({"item_id": id, "output_index": index, "delta": p});
                event("response.function_call_arguments.delta", data);
            }
            let data = json!({"item_id": id, "output_index": index, "arguments": arguments});
            event("response.function_call_arguments.done", data);
        }
    }
    event(
        "response.output_item.done",
        json!({"output_index": index, "item": item}),
    );
    event(
        "response.completed",
        json!({"response": response(frame, "completed", Some(item))}),
    );
    out
}

// ---- messages

fn message_stop(said: &Said) -> &'static str {
    match said {
        Said::Text(_) => "end_turn",
        Said::Call { .. } => "tool_use",
    }
}

fn message_shell(frame: &Frame<'_>) -> Value {
    json!({
        "id": frame.id("msg"), "type": "message", "role": "assistant", "model": frame.model,
        "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": {
            "input_tokens": frame.usage.0, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0, "output_tokens": 1,
        },
    })
}

fn message_block(frame: &Frame<'_>, said: &Said) -> Value {
    match said {
        Said::Text(text) => json!({"type": "text", "text": text}),
        Said::Call { name, arguments } => json!({
            "type": "tool_use", "id": frame.id("toolu"), "name": name,
            "input": serde_json::from_str::<Value>(arguments).unwrap_or_default(),
        }),
    }
}

fn messages_events(frame: &Frame<'_>, b: &Behaviour) -> Vec<Event> {
    let mut out: Vec<Event> = Vec::new();
    let mut event = |kind: &'static str, mut data: Value| {
        data["type"] = kind.into();
        out.push((Some(kind), data.to_string()));
    };
    let block = |index: usize,
                 begun: Value,
                 deltas: Vec<Value>,
                 event: &mut dyn FnMut(&'static str, Value)| {
        event(
            "content_block_start",
            json!({"index": index, "content_block": begun}),
        );
        for delta in deltas {
            event(
                "content_block_delta",
                json!({"index": index, "delta": delta}),
            );
        }
        event("content_block_stop", json!({"index": index}));
    };
    event("message_start", json!({"message": message_shell(frame)}));
    event("ping", json!({}));
    if let Some(thought) = &b.thought {
        let deltas = pieces(b, thought)
            .into_iter()
            .map(|p| json!({"type": "thinking_delta", "thinking": p}))
            .collect();
        block(
            0,
            json!({"type": "thinking", "thinking": "", "signature": ""}),
            deltas,
            &mut event,
        );
    }
    let index = usize::from(b.thought.is_some());
    match &b.said {
        Said::Text(text) => {
            let deltas = pieces(b, text)
                .into_iter()
                .map(|p| json!({"type": "text_delta", "text": p}))
                .collect();
            block(
                index,
                json!({"type": "text", "text": ""}),
                deltas,
                &mut event,
            );
        }
        Said::Call { arguments, .. } => {
            let mut begun = message_block(frame, &b.said);
            begun["input"] = json!({});
            let deltas = pieces(b, arguments)
                .into_iter()
                .map(|p| json!({"type": "input_json_delta", "partial_json": p}))
                .collect();
            block(index, begun, deltas, &mut event);
        }
    }
    event(
        "message_delta",
        json!({
            "delta": {"stop_reason": message_stop(&b.said), "stop_sequence": null},
            "usage": {"output_tokens": frame.usage.1},
        }),
    );
    event("message_stop", json!({}));
    out
}
