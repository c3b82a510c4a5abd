//! Whole answers against a local service that speaks the three wires and misbehaves on request.
#![allow(clippy::unwrap_used)]

use ipc_proto::callbacks::CallbackHosts;
use ipc_proto::chat::{Block, ChatMessage, ChatRole, Failover, ModelRequest, ToolSpec};
use ipc_proto::edges::egress::{FinishReason, ProviderStage};
use ipc_proto::settings::{EgressSettings, ModelChoice, ProviderSettings, Wire};
use mono_egress::complete::{Completer, EXHAUSTED};
use mono_egress::event::{Gone, ModelEvent};
use mono_egress::http_client::Tls;
use mono_egress::key::Key;
use mono_tests::mock_model::MockModel;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{Seek, Write};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

const WIRES: [&str; 3] = ["chat", "responses", "messages"];
const KEY: &str = "sk-very-secret-1";

fn key() -> Key {
    let mut file = tempfile::tempfile().unwrap();
    writeln!(file, "{KEY}").unwrap();
    file.rewind().unwrap();
    Key::read(&mut file).unwrap()
}

/// A completer whose providers `chat`, `responses` and `messages` are the mock, and `nowhere` is a
/// port that nobody listens on.
fn completer(base: &str, chain: &[(&str, &str)], idle: Duration) -> Completer {
    let provider = |wire, base_url: &str| ProviderSettings {
        wire,
        base_url: base_url.to_owned(),
        has_key: true,
    };
    let settings = EgressSettings {
        providers: BTreeMap::from([
            ("chat".into(), provider(Wire::OpenaiChat, base)),
            ("responses".into(), provider(Wire::OpenaiResponses, base)),
            ("messages".into(), provider(Wire::AnthropicMessages, base)),
            (
                "nowhere".into(),
                provider(Wire::OpenaiChat, "http://127.0.0.1:1/v1"),
            ),
            ("demo".into(), provider(Wire::Demo, "")),
        ]),
        chain: chain
            .iter()
            .map(|(provider, model)| ModelChoice {
                provider: (*provider).into(),
                model: (*model).into(),
                effort: None,
                attempts: 2,
            })
            .collect(),
        offered: vec![],
        backoff_ms: 1,
        max_backoff_ms: 2,
        max_retry_delay_ms: 60_000,
        idle_timeout_ms: 1,
        allow_private_hosts: vec![],
        callback_hosts: CallbackHosts::default(),
    };
    let settings = EgressSettings {
        idle_timeout_ms: u64::try_from(idle.as_millis()).unwrap(),
        ..settings
    };
    let tls = Tls::from_system();
    Completer::new(tls.model_client().unwrap(), &settings, |_| Some(key())).unwrap()
}

fn request(text: &str) -> ModelRequest {
    ModelRequest {
        model: None,
        effort: None,
        system: "Be a test.".into(),
        messages: vec![ChatMessage::text(ChatRole::User, text)],
        tools: vec![ToolSpec {
            name: "echo".into(),
            description: "says it again".into(),
            input_schema: json!({"type": "object", "properties": {"message": {"type": "string"}}}),
        }],
        streamed: vec![],
        max_output_tokens: None,
    }
}

/// What a reader of the events ends up with.
#[derive(Debug, Default)]
struct Heard {
    text: String,
    thoughts: String,
    calls: Vec<(String, String, String)>,
    usage: u64,
    pieces: Vec<(u32, String, String)>,
    stages: Vec<ProviderStage>,
    restarts: Vec<String>,
    done: Option<(FinishReason, String, Vec<Failover>)>,
    failed: Option<(String, String, Vec<Failover>)>,
}

async fn hear(completer: &Completer, request: &ModelRequest) -> Heard {
    let (mut sink, mut events) = mpsc::channel(4);
    let mut heard = Heard::default();
    let listen = async {
        while let Some(event) = events.recv().await {
            assert!(
                heard.done.is_none() && heard.failed.is_none(),
                "nothing comes after the end"
            );
            match event {
                ModelEvent::Text(text) => heard.text.push_str(&text),
                ModelEvent::Thought(text) => heard.thoughts.push_str(&text),
                ModelEvent::ToolCall {
                    id,
                    name,
                    arguments,
                } => heard.calls.push((id, name, arguments)),
                ModelEvent::Arguments { call, name, text } => heard.pieces.push((call, name, text)),
                ModelEvent::Usage(usage) => heard.usage += usage.input + usage.output,
                ModelEvent::Status { stage, .. } => heard.stages.push(stage),
                ModelEvent::Restart { reason } => {
                    heard.text.clear();
                    heard.thoughts.clear();
                    heard.calls.clear();
                    heard.restarts.push(reason);
                }
                ModelEvent::Done {
                    finish,
                    model,
                    failovers,
                } => {
                    heard.done = Some((finish, model, failovers));
                }
                ModelEvent::Failed {
                    kind,
                    message,
                    failovers,
                } => {
                    heard.failed = Some((kind, message, failovers));
                }
            }
        }
    };
    let work = async move {
        let outcome = completer.complete(request, &mut sink).await;
        drop(sink);
        outcome
    };
    let (outcome, ()) = tokio::join!(work, listen);
    outcome.unwrap();
    assert!(
        heard.done.is_some() != heard.failed.is_some(),
        "exactly one end"
    );
    heard
}

const PATIENT: Duration = Duration::from_secs(20);

async fn ask(wire: &str, text: &str) -> (Heard, MockModel) {
    let mock = MockModel::start().await.unwrap();
    let heard = hear(
        &completer(&mock.base_url(), &[(wire, "m")], PATIENT),
        &request(text),
    )
    .await;
    (heard, mock)
}

/// Asks `first`, then the model `second` on the same wire; the text may aim at one of them.
async fn ask_two(wire: &str, text: &str) -> (Heard, MockModel) {
    let mock = MockModel::start().await.unwrap();
    let chain = [(wire, "first"), (wire, "second")];
    let heard = hear(
        &completer(&mock.base_url(), &chain, PATIENT),
        &request(text),
    )
    .await;
    (heard, mock)
}

fn failover(model: &str, kind: &str, attempts: u32) -> Failover {
    Failover {
        model: model.into(),
        failure_kind: kind.into(),
        attempts,
    }
}

#[tokio::test]
async fn an_ordinary_answer_on_every_wire() {
    for wire in WIRES {
        let text = "A longer answer, with ümläuts and 🦀, in several pieces.";
        let (heard, mock) = ask(wire, &format!("[[mock:think so so]] [[mock:text {text}]]")).await;
        assert_eq!(
            (heard.text.as_str(), heard.thoughts.as_str()),
            (text, "so so"),
            "{wire}"
        );
        assert!(heard.usage > 0 && heard.restarts.is_empty());
        assert_eq!(
            heard.done.unwrap(),
            (FinishReason::Stop, format!("{wire}:m"), vec![])
        );
        assert_eq!(
            heard.stages,
            [
                ProviderStage::RequestStarted,
                ProviderStage::RequestCompleted
            ]
        );
        let seen = &mock.stats().seen[0];
        assert_eq!((seen.api, seen.model.as_str()), (wire, "m"));
        assert_eq!(seen.key.as_deref(), Some(KEY));
        assert_eq!(seen.tools, ["echo"]);
    }
}

#[tokio::test]
async fn a_tool_call_and_its_result_on_every_wire() {
    for wire in WIRES {
        let mock = MockModel::start().await.unwrap();
        let completer = completer(&mock.base_url(), &[(wire, "m")], PATIENT);
        let mut request = request("[[mock:tool echo {\"message\":\"hé\"}]] [[mock:echo]]");
        let heard = hear(&completer, &request).await;
        assert_eq!(
            heard.done.as_ref().unwrap().0,
            FinishReason::ToolUse,
            "{wire}"
        );
        let (id, name, arguments) = heard.calls[0].clone();
        assert_eq!(
            (name.as_str(), arguments.as_str()),
            ("echo", "{\"message\":\"hé\"}")
        );
        request.messages.push(ChatMessage {
            role: ChatRole::Assistant,
            content: vec![Block::ToolUse {
                id: id.clone(),
                name: name.clone(),
                arguments,
            }],
        });
        request.messages.push(ChatMessage {
            role: ChatRole::User,
            content: vec![Block::ToolResult {
                id,
                name,
                content: vec![Block::Text {
                    text: "Echo: hé".into(),
                }],
                is_error: false,
            }],
        });
        let heard = hear(&completer, &request).await;
        assert_eq!(heard.text, "tool said: Echo: hé", "{wire}");
    }
}

#[tokio::test]
async fn arguments_come_before_the_call_where_they_are_wanted_on_every_wire() {
    let text = r#"[[mock:gap 40]] [[mock:piece 4]] [[mock:tool echo {"message":"one two three four five six"}]]"#;
    for wire in WIRES {
        let mock = MockModel::start().await.unwrap();
        let completer = completer(&mock.base_url(), &[(wire, "m")], PATIENT);
        for (streamed, wanted) in [
            (vec!["echo".to_owned()], true),
            (vec!["other".to_owned()], false),
        ] {
            let request = ModelRequest {
                streamed,
                ..request(text)
            };
            let heard = hear(&completer, &request).await;
            let (_, name, arguments) = &heard.calls[0];
            assert_eq!(name, "echo", "{wire}");
            assert_eq!(
                heard.pieces.len() >= 2,
                wanted,
                "{wire}: {:?}",
                heard.pieces
            );
            assert!(
                heard
                    .pieces
                    .iter()
                    .all(|(call, name, _)| *call == 0 && name == "echo")
            );
            let told: String = heard
                .pieces
                .iter()
                .map(|(.., text)| text.as_str())
                .collect();
            assert!(arguments.starts_with(&told), "{wire}: {told}");
        }
    }
}

#[tokio::test]
async fn a_tool_call_of_two_mebibytes_on_every_wire() {
    for wire in WIRES {
        let (heard, _) = ask(wire, "[[mock:bigtool echo 2097152]]").await;
        let (_, name, arguments) = &heard.calls[0];
        assert_eq!(name, "echo", "{wire}");
        assert_eq!(
            arguments.len(),
            2_097_152 + r#"{"message":""}"#.len(),
            "{wire}"
        );
    }
}

#[tokio::test]
async fn a_tool_call_over_the_bound_is_refused_and_not_asked_for_again() {
    for wire in WIRES {
        let (heard, mock) = ask(wire, "[[mock:bigtool echo 9000000]]").await;
        let (kind, message, _) = heard.failed.unwrap();
        assert_eq!(kind, "answer_too_large", "{wire}");
        assert!(
            message.contains("tool arguments are larger than 8388608 bytes"),
            "{message}"
        );
        assert_eq!(mock.stats().requests, 1);
    }
}

#[tokio::test]
async fn a_cut_stream_is_asked_for_again_and_its_text_withdrawn() {
    for wire in WIRES {
        let (heard, mock) = ask(wire, "[[mock:cut-first 1 5]] [[mock:long 60]]").await;
        assert_eq!(heard.text.split(' ').count(), 60, "{wire}");
        assert_eq!(heard.restarts, ["stream_cut"], "{wire}");
        assert!(heard.stages.contains(&ProviderStage::RetryStarted));
        assert_eq!(heard.done.unwrap().2, vec![], "the first choice answered");
        assert_eq!(mock.stats().requests, 2);
    }
}

#[tokio::test]
async fn a_stream_cut_every_time_leads_to_the_next_model() {
    for wire in WIRES {
        let (heard, _) = ask_two(wire, "[[mock@first:cut 1]] [[mock:text hello]]").await;
        assert_eq!(heard.text, "hello", "{wire}");
        let (_, model, failovers) = heard.done.unwrap();
        assert_eq!(model, format!("{wire}:second"));
        assert_eq!(
            failovers,
            [failover(&format!("{wire}:first"), "stream_cut", 2)]
        );
        assert!(heard.stages.contains(&ProviderStage::FailoverStarted));
        assert!(heard.stages.contains(&ProviderStage::FailoverCompleted));
    }
}

#[tokio::test]
async fn a_refused_key_goes_to_the_next_model_at_once() {
    for wire in WIRES {
        let (heard, mock) = ask_two(wire, "[[mock@first:status 401]]").await;
        assert_eq!(heard.text, "pong", "{wire}");
        let expected = [failover(&format!("{wire}:first"), "provider_auth", 1)];
        assert_eq!(heard.done.unwrap().2, expected);
        assert_eq!(mock.stats().requests, 2);
    }
}

#[tokio::test]
async fn the_wish_to_wait_is_obeyed() {
    for wire in WIRES {
        let begun = Instant::now();
        let (heard, _) = ask(wire, "[[mock:flaky 1 429 0.3]]").await;
        assert_eq!(heard.text, "pong", "{wire}");
        assert!(begun.elapsed() >= Duration::from_millis(300));
    }
}

#[tokio::test]
async fn a_wish_to_wait_too_long_leads_to_the_next_model() {
    let (heard, mock) = ask_two("chat", "[[mock@first:status 429 61]]").await;
    assert_eq!(
        heard.done.unwrap().2,
        [failover("chat:first", "rate_limited", 1)]
    );
    assert_eq!(mock.stats().requests, 2);
}

#[tokio::test]
async fn an_overloaded_provider_is_asked_again() {
    for wire in WIRES {
        let (heard, mock) = ask(wire, "[[mock:flaky 1 529]]").await;
        assert_eq!(heard.text, "pong", "{wire}");
        assert!(
            heard.restarts.is_empty(),
            "nothing was streamed that had to be withdrawn"
        );
        assert_eq!(mock.stats().requests, 2);
    }
}

#[tokio::test]
async fn garbage_exhausts_the_chain() {
    for (directive, kind) in [("malformed", "server_error"), ("garbage", "server_error")] {
        for wire in WIRES {
            let (heard, mock) = ask_two(wire, &format!("[[mock:{directive}]]")).await;
            let (failed, message, failovers) = heard.failed.unwrap();
            assert_eq!(failed, EXHAUSTED, "{wire} {directive}");
            let kinds: Vec<&str> = failovers.iter().map(|f| f.failure_kind.as_str()).collect();
            assert_eq!(kinds, [kind, kind], "{wire} {directive}");
            assert!(
                message.starts_with("none of 2 models answered"),
                "{message}"
            );
            assert_eq!(mock.stats().requests, 4);
        }
    }
}

#[tokio::test]
async fn silence_is_a_timeout() {
    for directive in ["hang", "stall 1", "stall 3"] {
        let mock = MockModel::start().await.unwrap();
        let completer = completer(
            &mock.base_url(),
            &[("messages", "m")],
            Duration::from_millis(150),
        );
        let heard = hear(&completer, &request(&format!("[[mock:{directive}]]"))).await;
        let (kind, message, failovers) = heard.failed.unwrap();
        assert_eq!(kind, EXHAUSTED);
        assert!(message.contains("no byte came for 150 ms"), "{message}");
        assert_eq!(failovers, [failover("messages:m", "timeout", 2)]);
    }
}

/// The bound is on silence, not on the answer: one that trickles for longer than the bound is whole.
#[tokio::test]
async fn a_slow_answer_is_no_silence() {
    let mock = MockModel::start().await.unwrap();
    // Far more than a gap, far less than all of them.
    let idle = Duration::from_secs(2);
    let completer = completer(&mock.base_url(), &[("chat", "m")], idle);
    let begun = Instant::now();
    let heard = hear(&completer, &request("[[mock:gap 250]] [[mock:long 40]]")).await;
    assert_eq!(heard.text.split(' ').count(), 40);
    assert!(begun.elapsed() > idle);
}

#[tokio::test]
async fn a_key_that_the_provider_quotes_goes_no_further() {
    for wire in WIRES {
        let (heard, mock) = ask_two(wire, "[[mock:leak]]").await;
        let (kind, message, _) = heard.failed.unwrap();
        assert_eq!(kind, "invalid_request", "{wire}");
        assert!(
            message.contains("what a strange key: [key]") && !message.contains(KEY),
            "{message}"
        );
        assert_eq!(
            mock.stats().requests,
            1,
            "a refused request is not shown to another model"
        );
    }
}

#[tokio::test]
async fn redirects_are_not_followed_with_a_key() {
    let (heard, mock) = ask("chat", "[[mock:status 307]]").await;
    assert_eq!(heard.failed.unwrap().0, "model_unavailable");
    assert_eq!(mock.stats().requests, 1);
}

#[tokio::test]
async fn nobody_listening_is_a_network_failure() {
    let mock = MockModel::start().await.unwrap();
    let chain = [("nowhere", "m"), ("chat", "m")];
    let heard = hear(
        &completer(&mock.base_url(), &chain, PATIENT),
        &request("hi"),
    )
    .await;
    assert_eq!(heard.text, "pong");
    assert_eq!(heard.done.unwrap().2, [failover("nowhere:m", "network", 2)]);
}

#[tokio::test]
async fn every_model_without_a_key_is_named_so() {
    let (heard, _) = ask_two("chat", "[[mock:status 401]]").await;
    assert_eq!(heard.failed.unwrap().0, "provider_auth");
}

#[tokio::test]
async fn a_model_that_is_not_configured_is_not_asked() {
    let mock = MockModel::start().await.unwrap();
    let asked = ModelRequest {
        model: Some("chat:other".into()),
        ..request("hi")
    };
    let heard = hear(
        &completer(&mock.base_url(), &[("chat", "m")], PATIENT),
        &asked,
    )
    .await;
    assert_eq!(heard.failed.unwrap().0, "model_unavailable");
    assert_eq!(mock.stats().requests, 0);
}

#[tokio::test]
async fn when_the_reader_goes_nothing_is_asked_again() {
    let mock = MockModel::start().await.unwrap();
    let completer = completer(
        &mock.base_url(),
        &[("chat", "m"), ("messages", "m")],
        PATIENT,
    );
    let (mut sink, mut events) = mpsc::channel(1);
    let listen = async move {
        while let Some(event) = events.recv().await {
            if matches!(event, ModelEvent::Text(_)) {
                return;
            }
        }
        panic!("no text came");
    };
    let request = request("[[mock:long 5000]]");
    let (outcome, ()) = tokio::join!(completer.complete(&request, &mut sink), listen);
    assert_eq!(outcome, Err(Gone));
    assert_eq!(mock.stats().requests, 1);
}

#[tokio::test]
async fn the_demo_model_needs_no_network() {
    let completer = completer("http://127.0.0.1:1/v1", &[("demo", "scripted")], PATIENT);
    let heard = hear(&completer, &request("echo hello")).await;
    assert_eq!(heard.calls[0].1, "echo");
    let heard = hear(&completer, &request("hello")).await;
    assert!(heard.text.starts_with("(demo model)"));
    assert_eq!(heard.done.unwrap().1, "demo:scripted");
}
