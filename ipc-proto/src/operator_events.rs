//! The events of a run as frames of the operator's protocol (facts 2.8).

use crate::edges::events::RunEvent;
use crate::operator_frames::{Frame, Step};
use serde_json::{Value, json};

/// What an event tells. `None` for the end and for parts: their bodies come beside them, and whoever
/// has read those makes the frame.
#[must_use]
pub fn frame(event: RunEvent) -> Option<Frame> {
    let told = match event {
        RunEvent::Append { text } => return Some(Frame::Append { text }),
        RunEvent::Replace { text } => return Some(Frame::Replace { text }),
        RunEvent::Started { run } => {
            json!({ "type": "runtime_telemetry", "kind": "run_started", "run": run })
        }
        RunEvent::Thought { text } => json!({ "type": "assistant_thought", "text": text }),
        RunEvent::ToolStarted {
            id,
            name,
            arguments,
        } => json!({
            "type": "tool_call_started", "id": id, "name": name, "arguments": arguments
        }),
        RunEvent::ToolProgress {
            id,
            progress,
            total,
            message,
        } => json!({
            "type": "tool_call_progress", "id": id, "progress": progress, "total": total,
            "message": message
        }),
        RunEvent::ToolCompleted {
            id,
            name,
            ok,
            preview,
            duration_ms,
        } => json!({
            "type": "tool_call_completed", "id": id, "name": name, "ok": ok, "preview": preview,
            "durationMs": duration_ms
        }),
        RunEvent::UsageUpdate { usage } => json!({
            "type": "usage_update", "cumulativeUsd": usage.cost_usd,
            "tokens": { "input": usage.input, "output": usage.output,
                "cacheRead": usage.cache_read, "cacheCreation": usage.cache_creation }
        }),
        RunEvent::ProviderStatus {
            stage,
            model,
            detail,
        } => json!({
            "type": "provider_status", "status": stage, "model": model, "detail": detail
        }),
        RunEvent::Warning { code, message } => {
            json!({ "type": "runtime_warning", "code": code, "message": message })
        }
        RunEvent::Background { continuations } => json!({
            "type": "runtime_telemetry", "kind": "background_work", "continuations": continuations
        }),
        RunEvent::Posted {
            server,
            key,
            message,
            state,
        } => json!({
            "type": "runtime_telemetry", "kind": "server_progress", "server": server, "key": key,
            "message": message, "state": state
        }),
        RunEvent::Part { .. }
        | RunEvent::AppDraft { .. }
        | RunEvent::AppInput { .. }
        | RunEvent::AppCalled { .. }
        | RunEvent::AppGone { .. }
        | RunEvent::Finish { .. }
        | RunEvent::Failed { .. } => return None,
    };
    event_frame(told)
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
