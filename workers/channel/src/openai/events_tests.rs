//! Both wires on which a run's events go out as JSON, byte for byte: the operator's lines and the
//! chunks of a stream. Clients of either read these bytes; none of them changes by accident.
#![allow(clippy::unwrap_used)]

use super::reply::Head;
use super::stream::Translator;
use crate::runs::Step;
use ipc_proto::chat::Usage;
use ipc_proto::edges::egress::ProviderStage;
use ipc_proto::edges::events::RunEvent;
use ipc_proto::message::Message;
use ipc_proto::operator_events::frame;
use ipc_proto::request_context::ProgressState;
use ipc_proto::{Body, RunId};
use std::collections::BTreeSet;

/// What an operator's client reads.
enum Operator {
    /// A line of this frame.
    Line(&'static str),
    /// A line with this event.
    Event(&'static str),
    /// It comes otherwise: with its body, at the end, or as a frame of an app.
    Nothing,
}
use Operator::{Event, Line};

/// What a client of the OpenAI-compatible API reads.
enum Api {
    /// A chunk with this delta.
    Delta(&'static str),
    /// A chunk with this extension event.
    Extension(&'static str),
    /// It is none of the client's, or comes with the end.
    Nothing,
}
use Api::{Delta, Extension};

impl Operator {
    fn wire(&self) -> String {
        match self {
            Self::Line(line) => (*line).to_owned(),
            Self::Event(event) => format!(r#"{{"type":"event","event":{event}}}"#),
            Self::Nothing => String::new(),
        }
    }
}

impl Api {
    fn wire(&self) -> String {
        let chunk = |delta: &str, beside: &str| {
            format!(
                r#"data: {{"id":"chatcmpl-1","object":"chat.completion.chunk","created":7,"model":"agent","choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]{beside}}}"#
            ) + "\n\n"
        };
        match self {
            Self::Delta(delta) => chunk(delta, ""),
            Self::Extension(event) => {
                chunk("{}", &format!(r#","mono_agent":{{"events":[{event}]}}"#))
            }
            Self::Nothing => String::new(),
        }
    }
}

fn s(text: &str) -> String {
    text.to_owned()
}

fn body() -> Body {
    Body::Inline(b"{}".to_vec())
}

fn status(stage: ProviderStage) -> RunEvent {
    RunEvent::ProviderStatus {
        stage,
        model: s("p:m"),
        detail: None,
    }
}

fn posted(state: ProgressState) -> RunEvent {
    RunEvent::Posted {
        server: s("w"),
        key: s("k"),
        message: s("m"),
        state,
    }
}

/// What travels as text, and what only an operator is told.
fn texts() -> Vec<(RunEvent, Operator, Api)> {
    vec![
        (
            RunEvent::Append {
                text: s("a\n\"🙂")
            },
            Line(r#"{"type":"append","text":"a\n\"🙂"}"#),
            Delta(r#"{"content":"a\n\"🙂"}"#),
        ),
        (
            RunEvent::Replace { text: s("b") },
            Line(r#"{"type":"replace","text":"b"}"#),
            Delta(r#"{"content":"b"}"#),
        ),
        (
            RunEvent::Thought { text: s("c") },
            Event(r#"{"text":"c","type":"assistant_thought"}"#),
            Delta(r#"{"reasoning_content":"c"}"#),
        ),
        (
            RunEvent::Started {
                run: RunId::parse("run-1").unwrap(),
            },
            Event(r#"{"kind":"run_started","run":"run-1","type":"runtime_telemetry"}"#),
            Api::Nothing,
        ),
        (
            RunEvent::Background {
                continuations: vec![s("c1"), s("c2")],
            },
            Event(
                r#"{"continuations":["c1","c2"],"kind":"background_work","type":"runtime_telemetry"}"#,
            ),
            Api::Nothing,
        ),
    ]
}

fn tools() -> Vec<(RunEvent, Operator, Api)> {
    vec![
        (
            RunEvent::ToolStarted {
                id: s("i"),
                name: s("n"),
                arguments: s(r#"{"a":"\n"}"#),
            },
            Event(
                r#"{"arguments":"{\"a\":\"\\n\"}","id":"i","name":"n","type":"tool_call_started"}"#,
            ),
            Extension(
                r#"{"type":"tool_call_started","id":"i","name":"n","arguments":"{\"a\":\"\\n\"}"}"#,
            ),
        ),
        (
            RunEvent::ToolProgress {
                id: s("i"),
                progress: 3.0,
                total: Some(10.5),
                message: Some(s("m")),
            },
            Event(
                r#"{"id":"i","message":"m","progress":3.0,"total":10.5,"type":"tool_call_progress"}"#,
            ),
            Extension(
                r#"{"type":"tool_call_progress","id":"i","progress":3.0,"total":10.5,"message":"m"}"#,
            ),
        ),
        // JSON has no word for it.
        (
            RunEvent::ToolProgress {
                id: s("i"),
                progress: f64::NAN,
                total: None,
                message: None,
            },
            Event(
                r#"{"id":"i","message":null,"progress":null,"total":null,"type":"tool_call_progress"}"#,
            ),
            Extension(
                r#"{"type":"tool_call_progress","id":"i","progress":null,"total":null,"message":null}"#,
            ),
        ),
        (
            RunEvent::ToolCompleted {
                id: s("i"),
                name: s("n"),
                ok: true,
                preview: s("p"),
                duration_ms: u64::MAX,
            },
            Event(
                r#"{"durationMs":18446744073709551615,"id":"i","name":"n","ok":true,"preview":"p","type":"tool_call_completed"}"#,
            ),
            Extension(
                r#"{"type":"tool_call_completed","id":"i","name":"n","ok":true,"preview":"p","durationMs":18446744073709551615}"#,
            ),
        ),
        (
            posted(ProgressState::Running),
            Event(
                r#"{"key":"k","kind":"server_progress","message":"m","server":"w","state":"running","type":"runtime_telemetry"}"#,
            ),
            Extension(
                r#"{"type":"runtime_telemetry","kind":"server_progress","server":"w","key":"k","message":"m","state":"running"}"#,
            ),
        ),
        (
            posted(ProgressState::Completed),
            Event(
                r#"{"key":"k","kind":"server_progress","message":"m","server":"w","state":"completed","type":"runtime_telemetry"}"#,
            ),
            Extension(
                r#"{"type":"runtime_telemetry","kind":"server_progress","server":"w","key":"k","message":"m","state":"completed"}"#,
            ),
        ),
        (
            posted(ProgressState::Failed),
            Event(
                r#"{"key":"k","kind":"server_progress","message":"m","server":"w","state":"failed","type":"runtime_telemetry"}"#,
            ),
            Extension(
                r#"{"type":"runtime_telemetry","kind":"server_progress","server":"w","key":"k","message":"m","state":"failed"}"#,
            ),
        ),
    ]
}

fn provider() -> Vec<(RunEvent, Operator, Api)> {
    let usage = Usage {
        input: 1,
        output: 2,
        cache_read: 3,
        cache_creation: 4,
        cost_usd: Some(0.5),
    };
    vec![
        (
            RunEvent::UsageUpdate { usage },
            Event(
                r#"{"cumulativeUsd":0.5,"tokens":{"cacheCreation":4,"cacheRead":3,"input":1,"output":2},"type":"usage_update"}"#,
            ),
            Extension(
                r#"{"type":"usage_update","cumulativeUsd":0.5,"tokens":{"input":1,"output":2,"cacheRead":3,"cacheCreation":4}}"#,
            ),
        ),
        (
            RunEvent::UsageUpdate {
                usage: Usage::default(),
            },
            Event(
                r#"{"cumulativeUsd":null,"tokens":{"cacheCreation":0,"cacheRead":0,"input":0,"output":0},"type":"usage_update"}"#,
            ),
            Extension(
                r#"{"type":"usage_update","cumulativeUsd":null,"tokens":{"input":0,"output":0,"cacheRead":0,"cacheCreation":0}}"#,
            ),
        ),
        (
            status(ProviderStage::RequestStarted),
            Event(
                r#"{"detail":null,"model":"p:m","status":"request_started","type":"provider_status"}"#,
            ),
            Extension(
                r#"{"type":"provider_status","status":"request_started","model":"p:m","detail":null}"#,
            ),
        ),
        (
            status(ProviderStage::RequestCompleted),
            Event(
                r#"{"detail":null,"model":"p:m","status":"request_completed","type":"provider_status"}"#,
            ),
            Extension(
                r#"{"type":"provider_status","status":"request_completed","model":"p:m","detail":null}"#,
            ),
        ),
        (
            status(ProviderStage::FailoverStarted),
            Event(
                r#"{"detail":null,"model":"p:m","status":"failover_started","type":"provider_status"}"#,
            ),
            Extension(
                r#"{"type":"provider_status","status":"failover_started","model":"p:m","detail":null}"#,
            ),
        ),
        (
            status(ProviderStage::FailoverCompleted),
            Event(
                r#"{"detail":null,"model":"p:m","status":"failover_completed","type":"provider_status"}"#,
            ),
            Extension(
                r#"{"type":"provider_status","status":"failover_completed","model":"p:m","detail":null}"#,
            ),
        ),
        (
            RunEvent::ProviderStatus {
                stage: ProviderStage::RetryStarted,
                model: s("p:m"),
                detail: Some(s("d")),
            },
            Event(
                r#"{"detail":"d","model":"p:m","status":"retry_started","type":"provider_status"}"#,
            ),
            Extension(
                r#"{"type":"provider_status","status":"retry_started","model":"p:m","detail":"d"}"#,
            ),
        ),
        (
            RunEvent::Warning {
                code: s("c"),
                message: s("m"),
            },
            Event(r#"{"code":"c","message":"m","type":"runtime_warning"}"#),
            Extension(r#"{"type":"runtime_warning","code":"c","message":"m"}"#),
        ),
    ]
}

/// What whoever has read their bodies tells.
fn with_bodies() -> Vec<(RunEvent, Operator, Api)> {
    let id = || s("i");
    [
        RunEvent::Part { part: body() },
        RunEvent::AppDraft { part: body() },
        RunEvent::AppInput {
            id: id(),
            arguments: body(),
        },
        RunEvent::AppCalled { id: id() },
        RunEvent::AppGone { id: id() },
        RunEvent::Finish {
            text: body(),
            parts: b"[]".to_vec(),
            usage: Usage::default(),
            model: s("p:m"),
        },
        RunEvent::Failed {
            cancelled: false,
            kind: s("k"),
            message: s("m"),
        },
    ]
    .map(|event| (event, Operator::Nothing, Api::Nothing))
    .into()
}

fn told_to_an_operator(event: RunEvent) -> String {
    frame(event).map(|frame| frame.line()).unwrap_or_default()
}

fn told_to_a_client(event: RunEvent) -> String {
    let head = Head {
        id: s("chatcmpl-1"),
        created: 7,
        model: s("agent"),
    };
    let chunks = Translator::new(head, false).step(Step::Event(event));
    String::from_utf8(chunks.concat()).unwrap()
}

#[test]
fn every_event_is_exact_for_operators_and_for_clients_of_the_api() {
    let rows = [texts(), tools(), provider(), with_bodies()];
    let all: Vec<_> = rows.into_iter().flatten().collect();
    let pinned: BTreeSet<u16> = all.iter().map(|(event, ..)| event.kind()).collect();
    let kinds: BTreeSet<u16> = RunEvent::KINDS.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(pinned, kinds);
    for (event, operator, api) in all {
        assert_eq!(told_to_an_operator(event.clone()), operator.wire());
        assert_eq!(told_to_a_client(event), api.wire());
    }
}
