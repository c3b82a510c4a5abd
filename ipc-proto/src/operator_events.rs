//! The events of a run as JSON, which clients of the OpenAI-compatible API read as extension events
//! and operators as frames (facts 2.8).

use crate::edges::egress::ProviderStage;
use crate::edges::events::RunEvent;
use crate::operator_frames::{Frame, Step};
use crate::request_context::ProgressState;
use serde::Serialize;
use serde_json::{Value, json};

/// The order of the members is that of the API's bytes; a frame's are sorted by their names.
#[derive(Serialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
enum Told {
    ToolCallStarted {
        id: String,
        name: String,
        arguments: String,
    },
    ToolCallProgress {
        id: String,
        progress: f64,
        total: Option<f64>,
        message: Option<String>,
    },
    ToolCallCompleted {
        id: String,
        name: String,
        ok: bool,
        preview: String,
        duration_ms: u64,
    },
    UsageUpdate {
        cumulative_usd: Option<f64>,
        tokens: Tokens,
    },
    ProviderStatus {
        status: ProviderStage,
        model: String,
        detail: Option<String>,
    },
    RuntimeWarning {
        code: String,
        message: String,
    },
    RuntimeTelemetry {
        kind: &'static str,
        server: String,
        key: String,
        message: String,
        state: ProgressState,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tokens {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_creation: u64,
}

/// What clients of the API and operators are both told of an event, an object with a `type`. `None`
/// for what only operators are told, or what travels as text or with bodies.
#[must_use]
pub fn told(event: RunEvent) -> Option<impl Serialize> {
    Some(match event {
        RunEvent::ToolStarted {
            id,
            name,
            arguments,
        } => Told::ToolCallStarted {
            id,
            name,
            arguments,
        },
        RunEvent::ToolProgress {
            id,
            progress,
            total,
            message,
        } => Told::ToolCallProgress {
            id,
            progress,
            total,
            message,
        },
        RunEvent::ToolCompleted {
            id,
            name,
            ok,
            preview,
            duration_ms,
        } => Told::ToolCallCompleted {
            id,
            name,
            ok,
            preview,
            duration_ms,
        },
        RunEvent::UsageUpdate { usage } => Told::UsageUpdate {
            cumulative_usd: usage.cost_usd,
            tokens: Tokens {
                input: usage.input,
                output: usage.output,
                cache_read: usage.cache_read,
                cache_creation: usage.cache_creation,
            },
        },
        RunEvent::ProviderStatus {
            stage,
            model,
            detail,
        } => Told::ProviderStatus {
            status: stage,
            model,
            detail,
        },
        RunEvent::Warning { code, message } => Told::RuntimeWarning { code, message },
        RunEvent::Posted {
            server,
            key,
            message,
            state,
        } => Told::RuntimeTelemetry {
            kind: "server_progress",
            server,
            key,
            message,
            state,
        },
        RunEvent::Started { .. }
        | RunEvent::Append { .. }
        | RunEvent::Replace { .. }
        | RunEvent::Thought { .. }
        | RunEvent::Background { .. }
        | RunEvent::Part { .. }
        | RunEvent::AppDraft { .. }
        | RunEvent::AppInput { .. }
        | RunEvent::AppCalled { .. }
        | RunEvent::AppGone { .. }
        | RunEvent::Finish { .. }
        | RunEvent::Failed { .. } => return None,
    })
}

/// What an operator is told of an event. `None` for the end and for parts: their bodies come beside
/// them, and whoever has read those makes the frame.
#[must_use]
pub fn frame(event: RunEvent) -> Option<Frame> {
    event_frame(match event {
        RunEvent::Append { text } => return Some(Frame::Append { text }),
        RunEvent::Replace { text } => return Some(Frame::Replace { text }),
        // To clients of the API reasoning is a delta as text is, and they have no use for the ids of
        // runs and continuations: only operators can ask about those.
        RunEvent::Thought { text } => json!({ "type": "assistant_thought", "text": text }),
        RunEvent::Started { run } => {
            json!({ "type": "runtime_telemetry", "kind": "run_started", "run": run })
        }
        RunEvent::Background { continuations } => json!({
            "type": "runtime_telemetry", "kind": "background_work", "continuations": continuations
        }),
        other => serde_json::to_value(told(other)?).ok()?,
    })
}

/// A frame of kind `event`; `None` for what is no object.
#[must_use]
pub fn event_frame(told: Value) -> Option<Frame> {
    match told {
        Value::Object(told) => Some(Frame::Event(Step::Event(told))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::RunId;
    use crate::body::Body;
    use crate::chat::Usage;
    use crate::edges::egress::ProviderStage;

    #[test]
    fn every_event_is_a_frame_with_a_type_of_the_protocol() {
        let s = str::to_owned;
        let (run, usage) = (RunId::parse("run-1").unwrap(), Usage::default());
        for (event, kind) in [
            (RunEvent::Started { run }, "runtime_telemetry"),
            (
                RunEvent::Background {
                    continuations: vec![s("c")],
                },
                "runtime_telemetry",
            ),
            (
                RunEvent::Posted {
                    server: s("work"),
                    key: s("k"),
                    message: s("m"),
                    state: crate::request_context::ProgressState::Running,
                },
                "runtime_telemetry",
            ),
            (RunEvent::Thought { text: s("x") }, "assistant_thought"),
            (
                RunEvent::ToolStarted {
                    id: s("1"),
                    name: s("n"),
                    arguments: s("{}"),
                },
                "tool_call_started",
            ),
            (
                RunEvent::ToolProgress {
                    id: s("1"),
                    progress: 0.0,
                    total: None,
                    message: None,
                },
                "tool_call_progress",
            ),
            (
                RunEvent::ToolCompleted {
                    id: s("1"),
                    name: s("n"),
                    ok: true,
                    preview: s(""),
                    duration_ms: 0,
                },
                "tool_call_completed",
            ),
            (RunEvent::UsageUpdate { usage }, "usage_update"),
            (
                RunEvent::ProviderStatus {
                    stage: ProviderStage::RetryStarted,
                    model: s("m"),
                    detail: None,
                },
                "provider_status",
            ),
            (
                RunEvent::Warning {
                    code: s("c"),
                    message: s("m"),
                },
                "runtime_warning",
            ),
        ] {
            let line = frame(event).unwrap().line();
            let told: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(
                (&told["type"], &told["event"]["type"]),
                (&json!("event"), &json!(kind))
            );
        }
        let text = || s("x");
        assert_eq!(
            frame(RunEvent::Append { text: text() }),
            Some(Frame::Append { text: text() })
        );
        assert_eq!(
            frame(RunEvent::Replace { text: text() }),
            Some(Frame::Replace { text: text() })
        );
        let part = Body::Inline(b"{}".to_vec());
        assert_eq!(frame(RunEvent::Part { part }), None);
        assert_eq!(event_frame(json!([])), None);
    }
}
