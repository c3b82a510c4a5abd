//! What a request of any of the wires says, in one shape.

use serde_json::Value;

/// A wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Api {
    Chat,
    Responses,
    Messages,
}

impl Api {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Messages => "messages",
        }
    }
}

/// Who said a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    System,
    User,
    Assistant,
    Tool,
}

#[derive(Debug, Clone)]
pub(super) struct Turn {
    pub(super) speaker: Speaker,
    pub(super) text: String,
}

/// Any of the shapes of content (text, list of parts, nested results) as plain text.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(text_of).collect::<Vec<_>>().join("\n"),
        Value::Object(part) => ["text", "content", "output"]
            .iter()
            .find_map(|key| part.get(*key))
            .map(text_of)
            .unwrap_or_default(),
        _ => String::new(),
    }
}

fn speaker(role: Option<&str>) -> Speaker {
    match role {
        Some("system" | "developer") => Speaker::System,
        Some("assistant") => Speaker::Assistant,
        Some("tool") => Speaker::Tool,
        _ => Speaker::User,
    }
}

/// The conversation of a request, oldest first.
pub(super) fn turns(api: Api, body: &Value) -> Vec<Turn> {
    let list = |key: &str| {
        body.get(key)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let role = |v: &Value| speaker(v.get("role").and_then(Value::as_str));
    let mut out = Vec::new();
    match api {
        Api::Chat => {
            for message in list("messages") {
                let text = text_of(message.get("content").unwrap_or(&Value::Null));
                out.push(Turn {
                    speaker: role(&message),
                    text,
                });
            }
        }
        Api::Responses => {
            if let Some(text) = body.get("input").and_then(Value::as_str) {
                out.push(Turn {
                    speaker: Speaker::User,
                    text: text.to_owned(),
                });
            }
            for item in list("input") {
                match item.get("type").and_then(Value::as_str) {
                    Some("function_call_output") => {
                        let text = text_of(item.get("output").unwrap_or(&Value::Null));
                        out.push(Turn {
                            speaker: Speaker::Tool,
                            text,
                        });
                    }
                    Some("function_call" | "reasoning") => {}
                    _ => out.push(Turn {
                        speaker: role(&item),
                        text: text_of(item.get("content").unwrap_or(&Value::Null)),
                    }),
                }
            }
        }
        Api::Messages => {
            for message in list("messages") {
                // Results come inside a user message, each a turn of its own.
                let content = message.get("content").cloned().unwrap_or_default();
                let is_result =
                    |p: &&Value| p.get("type").and_then(Value::as_str) == Some("tool_result");
                let parts = content.as_array().cloned().unwrap_or_default();
                let results: Vec<&Value> = parts.iter().filter(is_result).collect();
                if results.is_empty() {
                    out.push(Turn {
                        speaker: role(&message),
                        text: text_of(&content),
                    });
                }
                for result in results {
                    let text = text_of(result.get("content").unwrap_or(&Value::Null));
                    out.push(Turn {
                        speaker: Speaker::Tool,
                        text,
                    });
                }
            }
        }
    }
    out
}

/// A message without what the agent's host put before it: the account of a turn that failed quotes
/// that turn's directives.
pub(super) fn own_words(text: &str) -> &str {
    text.rsplit_once("</host-note>")
        .map_or(text, |(_, own)| own)
}

/// Between a namespace and the name of a tool in it.
pub(super) const NAMESPACE: &str = "::";

/// Names of the tools on offer.
pub(super) fn tools(body: &Value) -> Vec<String> {
    let list = body.get("tools").and_then(Value::as_array);
    // Tools in a namespace are called by both names.
    let inside = |tool: &Value| -> Vec<Value> {
        let (space, tools) = (tool["name"].as_str(), tool["tools"].as_array());
        let (Some(space), Some(tools)) = (space, tools) else {
            return vec![tool.clone()];
        };
        let named = |tool: &Value| {
            let name = tool["name"].as_str().unwrap_or_default();
            serde_json::json!({ "name": format!("{space}{NAMESPACE}{name}") })
        };
        tools.iter().map(named).collect()
    };
    list.into_iter()
        .flatten()
        .flat_map(inside)
        .collect::<Vec<_>>()
        .iter()
        .filter_map(|tool| tool.pointer("/function/name").or_else(|| tool.get("name")))
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// The offered tool meant by `wanted`: exactly, or with something before it and a separator.
pub(super) fn pick<'a>(tools: &'a [String], wanted: &str) -> Option<&'a str> {
    let behind = |name: &&String| {
        name.strip_suffix(wanted)
            .is_some_and(|before| before.ends_with(['_', '.', '-', '/', ':']))
    };
    tools
        .iter()
        .find(|t| *t == wanted)
        .or_else(|| tools.iter().find(behind))
        .map(String::as_str)
}
