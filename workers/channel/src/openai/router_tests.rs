#![allow(clippy::unwrap_used)]
use super::router::{Api, MAX_BODY, router};
use crate::bearer::Bearer;
use crate::runs::Wish;
use crate::runs::tests::Fake;
use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use ipc_proto::chat::{Block, Usage};
use ipc_proto::edges::events::RunEvent;
use ipc_proto::reply::{ArtifactReference, ReplyPart};
use ipc_proto::settings::OpenaiSettings;
use ipc_proto::{Body as Packed, EventSender, RunId};
use serde_json::{Value, json};
use std::io::{Seek, Write};
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedReceiver;
use tower::Service;
use worker_web::origin::Admission;

type Wishes = UnboundedReceiver<(Wish, EventSender)>;

fn settings(base: &str) -> OpenaiSettings {
    OpenaiSettings {
        base_path: base.into(),
        model_id: "agent".into(),
        bearer: false,
        reserved: Default::default(),
    }
}

fn bearer() -> Bearer {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"key").unwrap();
    file.rewind().unwrap();
    Bearer::read(file.into()).unwrap()
}

fn api(base: &str, bound: &str, bearer: Option<Bearer>) -> Result<Api, String> {
    Api::new(
        &settings(base),
        Admission::new(bound.parse().unwrap()),
        bearer,
    )
}

fn served() -> (Router, Arc<Fake>, Wishes) {
    let (fake, wishes) = Fake::new();
    (
        router(api("/v1", "127.0.0.1", None).unwrap(), fake.clone()),
        fake,
        wishes,
    )
}

fn request(method: &str, path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost:1")
        .body(body.into())
        .unwrap()
}

fn chat_body(more: Value) -> String {
    let mut body = json!({"model": "agent", "messages": [{"role": "user", "content": "hi"}]});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body.to_string()
}

async fn send(router: &Router, request: Request<Body>) -> (StatusCode, http::HeaderMap, String) {
    let response = router.clone().call(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (
        parts.status,
        parts.headers,
        String::from_utf8(bytes.to_vec()).unwrap(),
    )
}

fn finish(text: &str, parts: &[ReplyPart]) -> RunEvent {
    RunEvent::Finish {
        text: Packed::Inline(text.as_bytes().to_vec()),
        parts: serde_json::to_vec(parts).unwrap(),
        usage: Usage {
            input: 3,
            output: 2,
            ..Usage::default()
        },
        model: "demo:scripted".into(),
    }
}

fn attachment() -> ReplyPart {
    ReplyPart::Attachment {
        id: "part".into(),
        reference: ArtifactReference {
            scheme: "mono-agent-artifact".into(),
            id: "opaque".into(),
        },
        name: "weekly.csv".into(),
        media_type: "text/csv".into(),
        size_bytes: 3,
        integrity_id: "sha256:00".into(),
        expires_at: None,
    }
}

/// Plays a run for the next wish.
async fn play(wishes: &mut Wishes, events: Vec<RunEvent>) -> Wish {
    let (wish, sender) = wishes.recv().await.unwrap();
    for event in events {
        assert!(sender.send(&event, &[]).await);
    }
    wish
}

fn error(body: &str) -> (String, String, Value) {
    let value: Value = serde_json::from_str(body).unwrap();
    let error = &value["error"];
    assert!(error["message"].is_string());
    (
        error["type"].as_str().unwrap().to_owned(),
        error["code"].as_str().unwrap().to_owned(),
        error["param"].clone(),
    )
}

/// A stream with what differs from run to run replaced.
fn normal(text: &str) -> String {
    let first: Value = serde_json::from_str(
        text.strip_prefix("data: ")
            .expect("no leading comment")
            .split("\n\n")
            .next()
            .unwrap(),
    )
    .unwrap();
    let id = first["id"].as_str().unwrap();
    assert!(uuid::Uuid::parse_str(id.strip_prefix("chatcmpl-").unwrap()).is_ok());
    let created = first["created"].as_u64().unwrap();
    assert!(created > 1_700_000_000);
    let common = format!(
        "{{\"id\":\"{id}\",\"object\":\"chat.completion.chunk\",\"created\":{created},\"model\":\"agent\","
    );
    text.replace(&common, "{*,")
}

#[tokio::test]
async fn models_lists_the_one_model() {
    let (router, _, _) = served();
    let (status, headers, body) = send(&router, request("GET", "/v1/models", "")).await;
    assert_eq!(status, 200);
    assert_eq!(headers["content-type"], "application/json");
    assert_eq!(
        body,
        r#"{"object":"list","data":[{"id":"agent","object":"model","created":0,"owned_by":"mono-agent"}]}"#
    );
}

#[tokio::test]
async fn a_whole_answer_on_both_routes() {
    for path in ["/v1/chat/completions", "/v1"] {
        let (router, _, mut wishes) = served();
        let events = vec![
            RunEvent::Started {
                run: RunId::parse("run-1").unwrap(),
            },
            RunEvent::Thought { text: "hm".into() },
            RunEvent::Append {
                text: "void".into(),
            },
            RunEvent::Replace { text: "Hel".into() },
            RunEvent::Warning {
                code: "w".into(),
                message: "careful".into(),
            },
            finish("Hello\r\n", &[attachment()]),
        ];
        let asked = request(
            "POST",
            path,
            chat_body(json!({"temperature": 1, "user": "ann"})),
        );
        let ((status, headers, body), wish) =
            tokio::join!(send(&router, asked), play(&mut wishes, events));
        assert_eq!(status, 200);
        assert_eq!(wish.conversation.as_str(), "ann");
        assert_eq!(wish.trigger.source, "openai");
        assert_eq!(wish.input.content, [Block::Text { text: "hi".into() }]);
        assert_eq!(
            wish.input.warnings,
            ["These parameters have no effect here: temperature."]
        );
        let value: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(value["choices"][0]["message"]["content"], "Hello\r\n");
        assert_eq!(value["choices"][0]["message"]["reasoning_content"], "hm");
        assert_eq!(value["usage"]["total_tokens"], 5);
        assert_eq!(value["mono_agent"]["events"][0]["type"], "runtime_warning");
        assert_eq!(
            value["mono_agent"]["reply_part_outcomes"][0]["code"],
            "unsupported_destination"
        );
        assert_eq!(
            value["id"].as_str().unwrap(),
            format!("chatcmpl-{}", headers["x-request-id"].to_str().unwrap())
        );
    }
}

#[tokio::test]
async fn without_an_id_the_request_is_its_own_conversation() {
    let (router, _, mut wishes) = served();
    let asked = request("POST", "/v1/chat/completions", chat_body(json!({})));
    let ((_, headers, body), wish) = tokio::join!(
        send(&router, asked),
        play(&mut wishes, vec![finish("x", &[])])
    );
    assert_eq!(
        wish.conversation.as_str(),
        format!("openai-api:{}", headers["x-request-id"].to_str().unwrap())
    );
    assert!(!body.contains("mono_agent"));
}

#[tokio::test]
async fn a_stream_is_exact_to_the_byte() {
    let (router, _, mut wishes) = served();
    let events = vec![
        RunEvent::Started {
            run: RunId::parse("run-1").unwrap(),
        },
        RunEvent::Thought { text: "hm".into() },
        RunEvent::Append { text: "Hel".into() },
        RunEvent::ToolStarted {
            id: "t".into(),
            name: "echo".into(),
            arguments: "{}".into(),
        },
        RunEvent::Append { text: "lo".into() },
        RunEvent::Part {
            part: Packed::Inline(serde_json::to_vec(&attachment()).unwrap()),
        },
        finish("Hello", &[attachment()]),
    ];
    let body = chat_body(json!({"stream": true, "stream_options": {"include_usage": true}}));
    let asked = request("POST", "/v1/chat/completions", body);
    let ((status, headers, body), _) =
        tokio::join!(send(&router, asked), play(&mut wishes, events));
    assert_eq!(status, 200);
    assert_eq!(headers["content-type"], "text/event-stream; charset=utf-8");
    assert_eq!(headers["cache-control"], "no-cache");
    assert_eq!(
        normal(&body),
        r#"data: {*,"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}

data: {*,"choices":[{"index":0,"delta":{"reasoning_content":"hm"},"finish_reason":null}]}

data: {*,"choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}]}

data: {*,"choices":[{"index":0,"delta":{},"finish_reason":null}],"mono_agent":{"events":[{"type":"tool_call_started","id":"t","name":"echo","arguments":"{}"}]}}

data: {*,"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":null}]}

data: {*,"choices":[{"index":0,"delta":{},"finish_reason":null}],"mono_agent":{"reply_part_outcomes":[{"partIndex":0,"partType":"attachment","status":"failed","code":"unsupported_destination","message":"Attachment reply parts are unsupported on this destination."}]}}

data: {*,"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: {*,"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":0}}}

data: [DONE]

"#
    );
}

#[tokio::test]
async fn a_failure_in_a_stream_is_an_error_and_the_mark() {
    let (router, _, mut wishes) = served();
    let failed = RunEvent::Failed {
        cancelled: false,
        kind: "provider_auth".into(),
        message: "No.".into(),
    };
    let asked = request("POST", "/v1", chat_body(json!({"stream": true})));
    let ((status, _, body), _) =
        tokio::join!(send(&router, asked), play(&mut wishes, vec![failed]));
    assert_eq!(status, 200);
    assert_eq!(
        normal(&body),
        "data: {*,\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n\
         data: {\"error\":{\"message\":\"No.\",\"type\":\"provider_error\",\"param\":null,\"code\":\"provider_auth\"}}\n\n\
         data: [DONE]\n\n"
    );
}

#[tokio::test]
async fn failures_of_whole_answers_have_a_status_and_are_not_repeated() {
    for (cancelled, kind, status) in [
        (true, "cancelled", 499),
        (false, "provider_auth", 502),
        (false, "worker_lost", 500),
    ] {
        let (router, _, mut wishes) = served();
        let failed = RunEvent::Failed {
            cancelled,
            kind: kind.into(),
            message: "No.".into(),
        };
        let asked = request("POST", "/v1", chat_body(json!({})));
        let ((got, headers, body), _) =
            tokio::join!(send(&router, asked), play(&mut wishes, vec![failed]));
        assert_eq!(got.as_u16(), status);
        assert_eq!(headers["x-should-retry"], "false");
        assert_eq!(error(&body).1, kind);
    }
}

#[tokio::test]
async fn a_run_whose_process_dies_is_a_clear_failure() {
    let (router, _, mut wishes) = served();
    let asked = request("POST", "/v1", chat_body(json!({})));
    let ((status, _, body), _) = tokio::join!(send(&router, asked), play(&mut wishes, vec![]));
    assert_eq!(
        (status.as_u16(), error(&body).1.as_str()),
        (500, "worker_lost")
    );
}

#[tokio::test]
async fn refusals_of_the_supervisor_have_their_status() {
    for (code, status) in [
        ("queue_full", 429),
        ("shutting_down", 503),
        ("starting", 503),
    ] {
        let router = router(api("/v1", "127.0.0.1", None).unwrap(), Fake::refusing(code));
        for stream in [false, true] {
            let asked = request("POST", "/v1", chat_body(json!({"stream": stream})));
            let (got, headers, body) = send(&router, asked).await;
            assert_eq!((got.as_u16(), error(&body).1.as_str()), (status, code));
            assert!(headers.contains_key("retry-after"));
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_run() {
    let (router, fake, mut wishes) = served();
    let asked = request("POST", "/v1", chat_body(json!({"stream": true})));
    let mut service = router.clone();
    let (response, wish) = tokio::join!(service.call(asked), wishes.recv());
    let (_, events) = wish.unwrap();
    drop(response);
    events.closed().await;
    assert_eq!(fake.cancelled().await.as_str(), "run-1");

    let (router, fake, mut wishes) = served();
    let mut service = router.clone();
    let asked = request("POST", "/v1", chat_body(json!({})));
    let waiting = tokio::spawn(async move { service.call(asked).await.unwrap().status() });
    let (_, events) = wishes.recv().await.unwrap();
    waiting.abort();
    events.closed().await;
    assert_eq!(fake.cancelled().await.as_str(), "run-1");
}

#[tokio::test]
async fn bodies_over_the_bound_are_refused_and_at_it_are_read() {
    let (router, _, mut wishes) = served();
    let empty = chat_body(json!({"pad": ""})).len();
    let exact = chat_body(json!({"pad": "x".repeat(MAX_BODY - empty)}));
    assert_eq!(exact.len(), MAX_BODY);
    let ((status, _, _), _) = tokio::join!(
        send(&router, request("POST", "/v1", exact)),
        play(&mut wishes, vec![finish("x", &[])])
    );
    assert_eq!(status, 200);

    let over = chat_body(json!({"pad": "x".repeat(MAX_BODY - empty + 1)}));
    let chunked = futures_util::stream::iter(
        over.as_bytes()
            .chunks(10_000)
            .map(|c| Ok::<_, std::io::Error>(bytes::Bytes::copy_from_slice(c)))
            .collect::<Vec<_>>(),
    );
    for body in [Body::from(over.clone()), Body::from_stream(chunked)] {
        let (status, headers, body) = send(&router, request("POST", "/v1", body)).await;
        assert_eq!(
            (status.as_u16(), error(&body).1.as_str()),
            (413, "request_too_large")
        );
        assert_eq!(headers["connection"], "close");
    }
    let mut lying = request("POST", "/v1", "{}");
    lying
        .headers_mut()
        .insert("content-length", http::HeaderValue::from(100_000_000));
    assert_eq!(send(&router, lying).await.0, 413);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_given_up() {
    let (router, _, _) = served();
    let never = Body::from_stream(futures_util::stream::pending::<
        Result<bytes::Bytes, std::io::Error>,
    >());
    let (status, _, body) = send(&router, request("POST", "/v1", never)).await;
    assert_eq!(
        (status.as_u16(), error(&body).1.as_str()),
        (408, "request_timeout")
    );
}

#[tokio::test]
async fn the_memory_of_all_bodies_is_bounded() {
    let (router, fake, _wishes) = served();
    let mut waiting = Vec::new();
    let stuck =
        || {
            let most = futures_util::stream::iter([Ok::<_, std::io::Error>(bytes::Bytes::from(
                vec![b' '; MAX_BODY],
            ))]);
            Body::from_stream(futures_util::StreamExt::chain(
                most,
                futures_util::stream::pending(),
            ))
        };
    for _ in 0..64 {
        let mut service = router.clone();
        let asked = request("POST", "/v1", stuck());
        waiting.push(tokio::spawn(async move {
            service.call(asked).await.unwrap().status()
        }));
    }
    let one_more = async {
        loop {
            tokio::task::yield_now().await;
            let (status, headers, _) = send(
                &router,
                request("POST", "/v1", chat_body(json!({"stream": 1}))),
            )
            .await;
            if status == 503 {
                return headers["retry-after"].clone();
            }
        }
    };
    assert_eq!(
        tokio::time::timeout(std::time::Duration::from_secs(20), one_more)
            .await
            .unwrap(),
        "1"
    );
    for task in waiting {
        task.abort();
    }
    drop(fake);
}

#[tokio::test]
async fn the_key_is_needed_everywhere_but_for_health() {
    let (fake, _) = Fake::new();
    let router = router(api("/v1", "10.0.0.1", Some(bearer())).unwrap(), fake);
    for path in ["/v1/models", "/v1/chat/completions", "/nowhere"] {
        let (status, headers, body) = send(&router, request("GET", path, "")).await;
        assert_eq!(status, 401, "{path}");
        assert_eq!(headers["www-authenticate"], "Bearer");
        assert_eq!(
            error(&body),
            (
                "authentication_error".into(),
                "invalid_api_key".into(),
                Value::Null
            )
        );
    }
    let mut good = request("GET", "/v1/models", "");
    good.headers_mut()
        .insert("authorization", "Bearer key".parse().unwrap());
    assert_eq!(send(&router, good).await.0, 200);
    assert_eq!(
        send(&router, request("GET", "/healthz", "")).await.2,
        r#"{"ok":true}"#
    );
}

#[test]
fn an_open_door_to_the_network_is_refused() {
    for bound in ["0.0.0.0", "::", "10.0.0.1"] {
        assert!(
            api("/v1", bound, None)
                .err()
                .unwrap()
                .contains("openaiApi.apiKey"),
            "{bound}"
        );
        assert!(api("/v1", bound, Some(bearer())).is_ok());
    }
    assert!(api("/v1", "::1", None).is_ok());
    for base in ["/{x}", "/a b", "/é", "/a//b", "/*x"] {
        assert!(api(base, "127.0.0.1", None).is_err(), "{base}");
    }
}

#[tokio::test]
async fn the_base_path_may_be_anywhere() {
    for (base, models) in [
        ("", "/models"),
        ("/", "/models"),
        ("api/openai/", "/api/openai/models"),
    ] {
        let (fake, _) = Fake::new();
        let router = router(api(base, "127.0.0.1", None).unwrap(), fake);
        assert_eq!(
            send(&router, request("GET", models, "")).await.0,
            200,
            "{base}"
        );
    }
}

#[tokio::test]
async fn unknown_routes_and_methods_have_the_shape() {
    let (router, _, _) = served();
    let (status, _, body) = send(&router, request("GET", "/v2/models", "")).await;
    assert_eq!(
        (status.as_u16(), error(&body).1.as_str()),
        (404, "unknown_url")
    );
    let (status, headers, body) = send(&router, request("DELETE", "/v1/models", "")).await;
    assert_eq!(
        (status.as_u16(), error(&body).1.as_str()),
        (405, "method_not_allowed")
    );
    assert_eq!(headers["allow"], "GET,HEAD");
}

#[tokio::test]
async fn foreign_names_and_pages_are_refused_before_anything_starts() {
    let (router, _, mut wishes) = served();
    for (name, value, status) in [
        ("host", "evil.example", 403),
        ("origin", "https://evil.example", 403),
        ("host", "a b", 400),
    ] {
        let mut asked = request("POST", "/v1", chat_body(json!({})));
        asked.headers_mut().insert(name, value.parse().unwrap());
        let (got, _, body) = send(&router, asked).await;
        assert_eq!(
            (got.as_u16(), error(&body).1.as_str()),
            (status, "forbidden")
        );
    }
    assert!(wishes.try_recv().is_err());
}

#[tokio::test]
async fn bad_requests_start_nothing() {
    let (router, _, mut wishes) = served();
    for body in [
        "{".to_owned(),
        chat_body(json!({"model": "gpt-4"})),
        chat_body(json!({"tools": []})),
        chat_body(json!({"messages": []})),
        chat_body(json!({"user": "a\nb"})),
    ] {
        let (status, _, body) = send(&router, request("POST", "/v1", body)).await;
        let (kind, code, _) = error(&body);
        assert_eq!(
            (status.as_u16(), kind.as_str(), code.as_str()),
            (400, "invalid_request_error", "invalid_request")
        );
    }
    assert!(wishes.try_recv().is_err());
}
