#![allow(clippy::unwrap_used)]
use super::callback::tests::{FakePost, key, policy};
use super::callback::{Attempt, Callbacks};
use super::endpoints::{Endpoint, Endpoints};
use super::router::{Webhook, router};
use crate::bearer;
use crate::runs::tests::Fake;
use crate::runs::{Runs, Wish};
use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use ipc_proto::callbacks::CallbackHosts;
use ipc_proto::chat::{Block, Usage};
use ipc_proto::edges::events::RunEvent;
use ipc_proto::settings::{WebhookEndpoint, WebhookSettings};
use ipc_proto::{Body as Packed, EventSender, RunId};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::mpsc::{Receiver, UnboundedReceiver};
use tower::Service;
use worker_web::origin::Admission;

type Wishes = UnboundedReceiver<(Wish, EventSender)>;

struct Served {
    router: Router,
    fake: Arc<Fake>,
    wishes: Wishes,
    post: Arc<FakePost>,
    all_over: Receiver<()>,
}

fn endpoint(path: &str, own_key: Option<&str>) -> Endpoint {
    Endpoint {
        settings: WebhookEndpoint {
            name: path.into(),
            path: path.into(),
            bearer: own_key.is_some(),
            secret: true,
            wait: true,
            conversation: None,
            model: None,
            effort: None,
            prompt: None,
            callback_url: None,
        },
        bearer: own_key.map(|key| Arc::new(bearer::tests::read(key.as_bytes()).unwrap())),
        signing: Some(Arc::new(key("0123456789abcdef").unwrap())),
    }
}

fn settings() -> WebhookSettings {
    WebhookSettings {
        endpoints: vec![],
        retention_ms: 300_000,
        max_stored: 3,
        max_run_ms: 60_000,
        max_attachment_bytes: 1024,
        callback_hosts: CallbackHosts {
            public: vec!["hooks.example".into()],
            private: vec![],
        },
        callback_attempts: 2,
        callback_backoff_ms: 1,
        callback_max_backoff_ms: 1,
        callback_timeout_ms: 1,
    }
}

fn webhook(
    endpoints: Vec<Endpoint>,
    bound: &str,
) -> Result<(Webhook, Arc<FakePost>, Receiver<()>), String> {
    let post = Arc::new(FakePost::default());
    let (webhook, all_over) = Webhook::new(
        &settings(),
        Arc::new(Endpoints::new(endpoints)?),
        Admission::new(bound.parse().unwrap()),
        Arc::new(Callbacks::new(post.clone(), policy())),
    )?;
    Ok((webhook, post, all_over))
}

fn served_with(endpoints: Vec<Endpoint>) -> Served {
    let (fake, wishes) = Fake::new();
    let (webhook, post, all_over) = webhook(endpoints, "127.0.0.1").unwrap();
    Served {
        router: router(webhook, fake.clone()),
        fake,
        wishes,
        post,
        all_over,
    }
}

fn served() -> Served {
    served_with(vec![
        endpoint("/webhook/invoke", None),
        endpoint("/webhook/other", None),
    ])
}

fn request(method: &str, path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost:1")
        .body(body.into())
        .unwrap()
}

fn post(body: Value) -> Request<Body> {
    request("POST", "/webhook/invoke", body.to_string())
}

async fn send(router: &Router, request: Request<Body>) -> (StatusCode, HeaderMap, Value) {
    let response = router.clone().call(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let json = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    (parts.status, parts.headers, json)
}

fn finish(text: &str, parts: &Value) -> RunEvent {
    RunEvent::Finish {
        text: Packed::Inline(text.as_bytes().to_vec()),
        parts: parts.to_string().into_bytes(),
        usage: Usage::default(),
        model: "demo:scripted".into(),
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

async fn read(router: &Router, path: &str) -> Value {
    send(router, request("GET", path, "")).await.2
}

/// Reads a status until it is this one.
async fn until(router: &Router, path: &str, status: &str) -> Value {
    loop {
        let record = read(router, path).await;
        if record["status"] == status {
            return record;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_caller_who_waits_gets_text_and_outcomes_and_can_read_them_again() {
    let mut served = served();
    let parts = json!([{"type": "attachment", "name": "secret.csv"}]);
    let events = vec![
        RunEvent::Started {
            run: RunId::parse("run-1").unwrap(),
        },
        RunEvent::Append {
            text: "void".into(),
        },
        finish("Hi \u{1F642}\r\n", &parts),
    ];
    let body = json!({"text": "hello", "conversationId": "c", "metadata": {"ticket": 7}});
    let ((status, headers, answer), wish) = tokio::join!(
        send(&served.router, post(body)),
        play(&mut served.wishes, events)
    );
    assert_eq!(status, 200);
    assert_eq!(headers["content-type"], "application/json");
    assert_eq!(headers["cache-control"], "no-store");
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(
        (wish.conversation.as_str(), wish.trigger.source.as_str()),
        ("c", "webhook")
    );
    assert_eq!(
        wish.input.content,
        [Block::Text {
            text: "hello".into()
        }]
    );
    assert_eq!(answer["status"], "succeeded");
    assert_eq!(answer["text"], "Hi \u{1F642}\r\n");
    assert_eq!(answer["conversationId"], "c");
    assert_eq!(answer["metadata"]["ticket"], 7);
    assert_eq!(answer["metadata"]["summary"]["runId"], "run-1");
    assert_eq!(
        answer["replyPartOutcomes"],
        json!([{"partIndex": 0, "partType": "attachment", "status": "failed", "code": "unsupported_destination",
            "message": "Attachment reply parts are unsupported on this destination."}])
    );
    assert!(!answer.to_string().contains("secret.csv"));
    let id = answer["requestId"].as_str().unwrap();
    let path = format!("/webhook/requests/{id}");
    assert_eq!(read(&served.router, &path).await, answer);
    assert_eq!(read(&served.router, &path).await, answer);
}

#[tokio::test]
async fn a_caller_who_does_not_wait_reads_the_status_and_is_called_back() {
    let mut served = served();
    let (status, _, taken) = send(
        &served.router,
        post(
            json!({"text": "hi", "mode": "async", "callbackUrl": "https://hooks.example/done?x=1"}),
        ),
    )
    .await;
    assert_eq!(status, 202);
    assert_eq!(taken["status"], "accepted");
    let id = taken["requestId"].as_str().unwrap();
    assert_eq!(taken["conversationId"], format!("webhook:{id}"));
    let path = taken["statusUrl"].as_str().unwrap().to_owned();
    assert_eq!(path, format!("/webhook/requests/{id}"));
    let record = read(&served.router, &path).await;
    assert_eq!(
        (&record["status"], &record["receivedAt"]),
        (&json!("accepted"), &taken["receivedAt"])
    );
    let (_, sender) = served.wishes.recv().await.unwrap();
    let run = RunId::parse("run-1").unwrap();
    sender.send(&RunEvent::Started { run }, &[]).await;
    let record = until(&served.router, &path, "running").await;
    assert!(record["startedAt"].is_string() && record["completedAt"].is_null());
    sender
        .send(&finish("done", &json!([{"type": "attachment"}])), &[])
        .await;
    let record = until(&served.router, &path, "succeeded").await;
    assert_eq!(record["replyPartOutcomes"].as_array().unwrap().len(), 1);
    // The last request is over only when its callback is.
    drop(served.router);
    assert_eq!(served.all_over.recv().await, None);
    let sent = served.post.sent.lock().unwrap();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].url.as_str(), "https://hooks.example/done?x=1");
    assert_eq!(sent[0].id, id);
    assert_eq!(
        serde_json::from_slice::<Value>(&sent[0].body).unwrap(),
        record
    );
    let key = key("0123456789abcdef").unwrap();
    assert_eq!(
        sent[0].signature,
        key.sign(id, sent[0].timestamp, &sent[0].body)
    );
}

#[tokio::test]
async fn a_callback_that_fails_changes_nothing() {
    let mut served = served();
    let refused = Attempt::Failed {
        code: "undeclared_host".into(),
        message: String::new(),
    };
    served.post.answers.lock().unwrap().push_back(refused);
    let body = json!({"text": "hi", "callbackUrl": "https://hooks.example/"});
    let ((status, _, answer), _) = tokio::join!(
        send(&served.router, post(body)),
        play(&mut served.wishes, vec![finish("done", &json!([]))])
    );
    assert_eq!((status.as_u16(), &answer["text"]), (200, &json!("done")));
    assert!(answer.get("replyPartOutcomes").is_none());
    drop(served.router);
    assert_eq!(served.all_over.recv().await, None);
    assert_eq!(served.post.sent.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_callback_needs_a_declared_host_and_a_key() {
    let served = served();
    let body = json!({"text": "hi", "callbackUrl": "https://evil.example/"});
    let (status, _, answer) = send(&served.router, post(body)).await;
    assert_eq!(
        (status.as_u16(), &answer["error"]["code"]),
        (400, &json!("callback_forbidden"))
    );
    let without = Endpoint {
        signing: None,
        ..endpoint("/webhook/invoke", None)
    };
    let served = served_with(vec![without]);
    let body = json!({"text": "hi", "callbackUrl": "https://hooks.example/"});
    let (status, _, answer) = send(&served.router, post(body)).await;
    assert_eq!(
        (status.as_u16(), &answer["error"]["code"]),
        (400, &json!("callback_forbidden"))
    );
}

#[tokio::test]
async fn a_busy_conversation_is_told_so_and_another_endpoint_is_not_busy() {
    let mut served = served();
    let body = json!({"text": "hi", "mode": "async", "conversationId": "c"});
    let (_, _, taken) = send(&served.router, post(body.clone())).await;
    let (status, _, busy) = send(&served.router, post(body.clone())).await;
    assert_eq!(status, 409);
    assert_eq!(
        (&busy["status"], &busy["conversationId"]),
        (&json!("busy"), &json!("c"))
    );
    assert!(busy.get("requestId").is_none());
    let other = request("POST", "/webhook/other", body.to_string());
    assert_eq!(send(&served.router, other).await.0, 202);
    let (_, sender) = served.wishes.recv().await.unwrap();
    sender.send(&finish("done", &json!([])), &[]).await;
    let path = taken["statusUrl"].as_str().unwrap();
    until(&served.router, path, "succeeded").await;
    assert_eq!(send(&served.router, post(body)).await.0, 202);
}

#[tokio::test]
async fn as_many_as_are_stored_may_be_under_way() {
    let served = served();
    for n in 0..4 {
        let body = json!({"text": "hi", "mode": "async", "conversationId": format!("c{n}")});
        let (status, headers, answer) = send(&served.router, post(body)).await;
        if n < 3 {
            assert_eq!(status, 202);
        } else {
            assert_eq!(
                (status.as_u16(), &answer["error"]["code"]),
                (429, &json!("queue_full"))
            );
            assert!(headers.contains_key("retry-after"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_over_its_time_has_failed_and_what_it_says_late_is_dropped() {
    let mut served = served();
    let body = json!({"text": "hi", "conversationId": "c"});
    let asking = send(&served.router, post(body.clone()));
    let ((status, _, answer), (_, late)) =
        tokio::join!(asking, async { served.wishes.recv().await.unwrap() });
    assert_eq!(status, 500);
    assert_eq!(
        (&answer["status"], &answer["error"]["code"]),
        (&json!("failed"), &json!("timeout"))
    );
    assert_eq!(served.fake.cancelled().await.as_str(), "run-1");
    let path = format!(
        "/webhook/requests/{}",
        answer["requestId"].as_str().unwrap()
    );
    late.closed().await;
    late.send(&finish("late", &json!([])), &[]).await;
    assert_eq!(read(&served.router, &path).await, answer);
}

#[tokio::test]
async fn a_caller_who_leaves_ends_the_run_and_a_cancelled_run_is_499() {
    let mut served = served();
    let body = json!({"text": "hi", "conversationId": "c"});
    let asking = {
        let (router, body) = (served.router.clone(), body.clone());
        tokio::spawn(async move { send(&router, post(body)).await })
    };
    let (_, _sender) = served.wishes.recv().await.unwrap();
    asking.abort();
    assert_eq!(served.fake.cancelled().await.as_str(), "run-1");
    // The conversation is free again.
    let events = vec![RunEvent::Failed {
        cancelled: true,
        kind: "cancelled".into(),
        message: "m".into(),
    }];
    let ((status, _, answer), _) = tokio::join!(
        async {
            loop {
                let got = send(&served.router, post(body.clone())).await;
                if got.0 != 409 {
                    return got;
                }
                tokio::task::yield_now().await;
            }
        },
        play(&mut served.wishes, events)
    );
    assert_eq!(
        (status.as_u16(), &answer["status"]),
        (499, &json!("cancelled"))
    );
}

#[tokio::test]
async fn a_refused_start_is_told_and_not_stored() {
    let (webhook, _, _all_over) = webhook(vec![endpoint("/w/i", None)], "127.0.0.1").unwrap();
    let fake: Arc<dyn Runs> = Fake::refusing("queue_full");
    let router = router(webhook, fake);
    for _ in 0..2 {
        let body = json!({"text": "hi", "mode": "async", "conversationId": "c"}).to_string();
        let (status, headers, answer) = send(&router, request("POST", "/w/i", body)).await;
        assert_eq!(
            (status.as_u16(), &answer["status"]),
            (429, &json!("rejected"))
        );
        assert!(headers.contains_key("retry-after"));
    }
}

#[tokio::test]
async fn hosts_methods_routes_and_sizes_are_checked() {
    let served = served();
    let foreign = |name: &'static str, value: &'static str| {
        let mut asked = post(json!({"text": "hi"}));
        asked.headers_mut().insert(name, value.parse().unwrap());
        asked
    };
    let id = uuid::Uuid::new_v4();
    let status = format!("/webhook/requests/{id}");
    for (asked, expected) in [
        (foreign("host", "evil.example"), 403),
        (foreign("host", ""), 400),
        (foreign("origin", "https://evil.example"), 403),
        (request("GET", "/webhook/invoke", ""), 405),
        (request("PUT", "/webhook/invoke", "{}"), 405),
        (request("POST", &status, "{}"), 405),
        (request("GET", &status, ""), 404),
        (request("GET", "/webhook/requests/7", ""), 404),
        (request("POST", "/webhook", "{}"), 404),
        (request("GET", "/healthz", ""), 200),
        (request("POST", "/healthz", ""), 404),
        (post(json!({})), 400),
        (post(json!([])), 400),
        (post(json!({"text": "x".repeat(2 * 1024 * 1024)})), 413),
        (
            post(json!({"text": "hi", "attachments": [{"name": "a", "data": "A".repeat(1368)}]})),
            413,
        ),
    ] {
        let what = format!("{} {}", asked.method(), asked.uri());
        let (status, headers, body) = send(&served.router, asked).await;
        assert_eq!(status.as_u16(), expected, "{what}");
        assert_eq!(headers.contains_key("allow"), expected == 405, "{what}");
        if expected == 404 {
            assert_eq!(body["status"], "not_found");
        }
    }
}

#[tokio::test]
async fn each_endpoints_key_opens_it_and_its_requests_only() {
    let mut served = served_with(vec![
        endpoint("/w/a", Some("key-a")),
        endpoint("/w/b", Some("key-b")),
    ]);
    let with = |method: &str, path: &str, key: &str| {
        let body = json!({"text": "hi"}).to_string();
        let mut asked = request(
            method,
            path,
            if method == "POST" {
                body
            } else {
                String::new()
            },
        );
        if !key.is_empty() {
            let value = format!("Bearer {key}").parse().unwrap();
            asked.headers_mut().insert("authorization", value);
        }
        asked
    };
    for key in ["", "key-b", "nonsense"] {
        let (status, headers, answer) = send(&served.router, with("POST", "/w/a", key)).await;
        assert_eq!(
            (status.as_u16(), &answer["error"]["code"]),
            (401, &json!("invalid_api_key"))
        );
        assert_eq!(headers["www-authenticate"], "Bearer");
    }
    let ((status, _, answer), _) = tokio::join!(
        send(&served.router, with("POST", "/w/a", "key-a")),
        play(&mut served.wishes, vec![finish("done", &json!([]))])
    );
    assert_eq!(status, 200);
    let path = format!("/w/requests/{}", answer["requestId"].as_str().unwrap());
    for (key, expected) in [("key-a", 200), ("key-b", 404), ("", 401), ("nonsense", 401)] {
        let (status, _, _) = send(&served.router, with("GET", &path, key)).await;
        assert_eq!(status.as_u16(), expected, "{key}");
    }
}

#[test]
fn off_loopback_every_endpoint_needs_a_key() {
    let open = |bound: &str, keys: [Option<&str>; 2]| {
        let endpoints = vec![endpoint("/w/a", keys[0]), endpoint("/w/b", keys[1])];
        webhook(endpoints, bound).is_ok()
    };
    assert!(open("127.0.0.1", [None, None]));
    assert!(!open("0.0.0.0", [None, None]));
    assert!(!open("10.0.0.1", [Some("a"), None]));
    assert!(open("10.0.0.1", [Some("a"), Some("b")]));
}
