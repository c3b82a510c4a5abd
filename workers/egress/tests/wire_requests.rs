//! Request bodies of the three wires for one conversation that has everything in it.
#![allow(clippy::unwrap_used)]

use ipc_proto::chat::{Block, ChatMessage, ChatRole, ModelRequest, ToolSpec};
use mono_egress::wire::{Api, Target};
use serde_json::{Value, json};

fn conversation() -> ModelRequest {
    let image = || Block::Image {
        media_type: "image/png".into(),
        data: "iVBO".into(),
    };
    let text = |text: &str| Block::Text { text: text.into() };
    ModelRequest {
        model: None,
        effort: None,
        system: "Be brief.".into(),
        messages: vec![
            ChatMessage {
                role: ChatRole::User,
                content: vec![text("look"), image()],
            },
            ChatMessage {
                role: ChatRole::Assistant,
                content: vec![
                    text("I look."),
                    Block::ToolUse {
                        id: "c1".into(),
                        name: "shot".into(),
                        arguments: r#"{"n":1}"#.into(),
                    },
                    Block::ToolUse {
                        id: "c2".into(),
                        name: "bad".into(),
                        arguments: "{oops".into(),
                    },
                ],
            },
            ChatMessage {
                role: ChatRole::User,
                content: vec![
                    Block::ToolResult {
                        id: "c1".into(),
                        name: "shot".into(),
                        content: vec![text("one"), text("two"), image()],
                        is_error: false,
                    },
                    text("a reminder"),
                    Block::ToolResult {
                        id: "c2".into(),
                        name: "bad".into(),
                        content: vec![text("no such thing")],
                        is_error: true,
                    },
                ],
            },
            ChatMessage {
                role: ChatRole::Assistant,
                content: vec![text("")],
            },
            ChatMessage::text(ChatRole::User, "and now?"),
        ],
        tools: vec![ToolSpec {
            name: "shot".into(),
            description: "takes a picture".into(),
            input_schema: json!({"type": "object", "properties": {"n": {"type": "integer"}}}),
        }],
        streamed: vec![],
        max_output_tokens: Some(500),
    }
}

fn body(api: Api, effort: Option<&str>, official: bool) -> Value {
    api.body(
        &conversation(),
        &Target {
            model: "m-1",
            effort,
            official,
        },
    )
}

#[test]
fn chat() {
    let picture = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}});
    assert_eq!(
        body(Api::OpenaiChat, Some("ultra"), false),
        json!({
            "model": "m-1",
            "stream": true,
            "stream_options": {"include_usage": true},
            "reasoning_effort": "xhigh",
            "max_tokens": 500,
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "look"}, picture]},
                {"role": "assistant", "content": "I look.", "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "shot", "arguments": "{\"n\":1}"}},
                    {"id": "c2", "type": "function", "function": {"name": "bad", "arguments": "{oops"}},
                ]},
                {"role": "tool", "tool_call_id": "c1", "content": "one\ntwo"},
                {"role": "tool", "tool_call_id": "c2", "content": "The tool failed: no such thing"},
                {"role": "user", "content": [
                    {"type": "text", "text": "Images from the tool shot:"},
                    picture,
                    {"type": "text", "text": "a reminder"},
                ]},
                {"role": "user", "content": "and now?"},
            ],
            "tools": [{"type": "function", "function": {
                "name": "shot", "description": "takes a picture",
                "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
            }}],
        })
    );
}

#[test]
fn the_bound_on_tokens_has_its_new_name_at_its_inventor() {
    let official = body(Api::OpenaiChat, None, true);
    assert_eq!(official["max_completion_tokens"], 500);
    assert!(official.get("max_tokens").is_none() && official.get("reasoning_effort").is_none());
}

#[test]
fn responses() {
    let picture = json!({"type": "input_image", "image_url": "data:image/png;base64,iVBO"});
    assert_eq!(
        body(Api::OpenaiResponses, Some("low"), true),
        json!({
            "model": "m-1",
            "stream": true,
            "store": false,
            "instructions": "Be brief.",
            "reasoning": {"effort": "low"},
            "max_output_tokens": 500,
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "look"}, picture]},
                {"role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
                {"type": "function_call", "call_id": "c1", "name": "shot", "arguments": "{\"n\":1}"},
                {"type": "function_call", "call_id": "c2", "name": "bad", "arguments": "{oops"},
                {"type": "function_call_output", "call_id": "c1", "output": [
                    {"type": "input_text", "text": "one\ntwo"}, picture,
                ]},
                {"role": "user", "content": [{"type": "input_text", "text": "a reminder"}]},
                {"type": "function_call_output", "call_id": "c2", "output": "The tool failed: no such thing"},
                {"role": "user", "content": [{"type": "input_text", "text": "and now?"}]},
            ],
            "tools": [{
                "type": "function", "name": "shot", "description": "takes a picture", "strict": false,
                "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
            }],
        })
    );
}

#[test]
fn messages() {
    let picture = json!({
        "type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"},
    });
    let cached = json!({"type": "ephemeral"});
    assert_eq!(
        body(Api::AnthropicMessages, Some("minimal"), true),
        json!({
            "model": "m-1",
            "stream": true,
            "max_tokens": 500,
            "thinking": {"type": "adaptive"},
            "output_config": {"effort": "low"},
            "system": [{"type": "text", "text": "Be brief.", "cache_control": cached}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "look"}, picture]},
                {"role": "assistant", "content": [
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "c1", "name": "shot", "input": {"n": 1}},
                    {"type": "tool_use", "id": "c2", "name": "bad", "input": {"unreadable_arguments": "{oops"}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "is_error": false, "content": [
                        {"type": "text", "text": "one\ntwo"}, picture,
                    ]},
                    {"type": "tool_result", "tool_use_id": "c2", "is_error": true, "content": [
                        {"type": "text", "text": "no such thing"},
                    ]},
                    {"type": "text", "text": "a reminder"},
                ]},
                {"role": "user", "content": [
                    {"type": "text", "text": "and now?", "cache_control": cached},
                ]},
            ],
            "tools": [{
                "name": "shot", "description": "takes a picture",
                "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}}},
            }],
        })
    );
}

#[test]
fn no_effort_means_no_thinking_is_asked_for() {
    for effort in [None, Some("none")] {
        let body = body(Api::AnthropicMessages, effort, true);
        assert!(body.get("thinking").is_none() && body.get("output_config").is_none());
    }
}

#[test]
fn what_is_empty_is_left_out() {
    let bare = ModelRequest {
        system: String::new(),
        tools: vec![],
        ..conversation()
    };
    let target = Target {
        model: "m",
        effort: None,
        official: true,
    };
    for api in [
        Api::OpenaiChat,
        Api::OpenaiResponses,
        Api::AnthropicMessages,
    ] {
        let body = api.body(&bare, &target);
        assert!(body.get("tools").is_none() && body.get("system").is_none());
        assert!(body.get("instructions").is_none());
    }
}
