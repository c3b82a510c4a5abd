//! Callers that mean harm, and the service as a whole on its socket.

use super::memory::Memory;
use super::stage::{START, Stage, Stub, claim_body, request, secret, settings};
use crate::ambient::Machine;
use crate::desk::Parts;
use crate::service::{Service, StartError};
use crate::{Bound, Settings};
use continuation_record::Mode;
use continuation_record::token::Token;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[tokio::test]
async fn capabilities_open_only_what_they_are_for() {
    let stage = Stage::new();
    let binding = stage.issue("run-1", "work-control", Mode::Reply);
    let claimed = stage.claim(&binding, "task").await;
    let path = format!(
        "/v1/continuations/{}/status",
        claimed.text("continuationId")
    );
    // A claim token reads no status, a result token claims nothing.
    let told = stage.call("GET", &path, binding.token.as_str(), "").await;
    assert_eq!(told.code(), (401, "invalid_result_capability"));
    let told = stage
        .call(
            "POST",
            "/v1/continuations/claim",
            &claimed.text("token"),
            "{}",
        )
        .await;
    assert_eq!(told.code(), (401, "invalid_claim_capability"));
    let told = stage
        .call(
            "POST",
            "/v1/continuations/claim",
            super::stage::BEARER,
            "{}",
        )
        .await;
    assert_eq!(told.code(), (401, "invalid_claim_capability"));
}

#[tokio::test]
async fn bearers_that_can_not_be_one_have_their_codes() {
    let stage = Stage::new();
    let send = async |values: &[&str]| {
        let mut request = request("POST", "/v1/continuations/claim");
        for value in values {
            request = request.header("authorization", *value);
        }
        let told = stage.send(request.body("{}".into()).unwrap()).await;
        (
            told.status.as_u16(),
            told.json["error"]["code"].as_str().unwrap().to_owned(),
        )
    };
    let long = format!("Bearer {}", "x".repeat(513));
    let longest = format!("Bearer {}", "x".repeat(512));
    for (values, code) in [
        (&[][..], "missing_capability"),
        (&["Basic eDp5"], "missing_capability"),
        (&["Token x"], "missing_capability"),
        (&["Bearer a", "Bearer b"], "missing_capability"),
        (&["Bearer"], "invalid_capability"),
        (&["Bearer "], "invalid_capability"),
        (&[&long], "invalid_capability"),
        (&[&longest], "invalid_claim_capability"),
        (&["bearer x"], "invalid_claim_capability"),
    ] {
        assert_eq!(send(values).await, (401, code.to_owned()), "{values:?}");
    }
}

#[tokio::test]
async fn a_wrong_method_is_not_found_but_for_what_operators_read() {
    let stage = Stage::new();
    let id = "0190b0a2-0000-4000-8000-000000000000";
    for (method, path) in [
        ("GET", "/v1/continuations/claim".to_owned()),
        ("PUT", "/v1/continuations/claim".to_owned()),
        ("DELETE", format!("/v1/continuations/{id}/result")),
        ("GET", format!("/v1/continuations/{id}/result")),
        ("POST", format!("/v1/continuations/{id}/status")),
        ("HEAD", format!("/v1/continuations/{id}/status")),
        ("OPTIONS", "/v1/continuations/claim".to_owned()),
        ("GET", format!("/v1/operator/continuations/{id}/retry")),
        ("GET", "/".to_owned()),
        ("GET", "/v1/continuations".to_owned()),
        ("POST", "/v1/continuations/claim/".to_owned()),
        ("POST", "//v1/continuations/claim".to_owned()),
        ("POST", format!("/v1/operator/continuations/{id}/delete")),
        ("GET", "/v1/continuations/%2e%2e/status".to_owned()),
        (
            "GET",
            format!("/v1/continuations/{}/status", "a".repeat(257)),
        ),
    ] {
        let response = request(method, &path)
            .body(axum::body::Body::empty())
            .unwrap();
        let told = stage.send(response).await;
        let code = if method == "HEAD" { "" } else { "not_found" };
        assert_eq!(told.code(), (404, code), "{method} {path}");
    }
    for path in ["/v1/operator/health", "/v1/operator/continuations"] {
        for method in ["POST", "PUT", "DELETE", "HEAD"] {
            let told = stage
                .send(request(method, path).body("".into()).unwrap())
                .await;
            let code = match method {
                "HEAD" => "",
                _ => "method_not_allowed",
            };
            assert_eq!(told.code(), (405, code), "{method} {path}");
            assert_eq!(told.headers["allow"], "GET");
        }
    }
}

#[tokio::test]
async fn other_hosts_and_web_pages_are_refused_before_anything_is_looked_at() {
    let stage = Stage::new();
    let operator = Token::operator(&secret());
    let send = async |host: &str, origin: Option<&str>| {
        let mut request = http::Request::builder()
            .uri("/v1/operator/health")
            .header("host", host)
            .header("authorization", format!("Bearer {}", operator.as_str()));
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        let told = stage.send(request.body("".into()).unwrap()).await;
        (
            told.status.as_u16(),
            told.json["error"]["code"].as_str().unwrap_or("").to_owned(),
        )
    };
    for host in ["127.0.0.1:4319", "localhost:4319", "[::1]:4319"] {
        assert_eq!(send(host, None).await.0, 200, "{host}");
    }
    for host in [
        "evil.example",
        "127.0.0.1.evil.example:4319",
        "0.0.0.0:4319",
        "10.0.0.1",
    ] {
        assert_eq!(
            send(host, None).await,
            (403, "forbidden_host".to_owned()),
            "{host}"
        );
    }
    for origin in [
        "http://127.0.0.1:4319",
        "http://localhost",
        "null",
        "https://evil.example",
    ] {
        let told = send("127.0.0.1:4319", Some(origin)).await;
        assert_eq!(told, (403, "forbidden_origin".to_owned()), "{origin}");
    }
}

#[tokio::test]
async fn bodies_of_every_wrong_kind_change_nothing() {
    let stage = Stage::new();
    let binding = stage.issue("run-1", "work-control", Mode::Reply);
    let claimed = stage.committed("run-2", Mode::Reply, "task").await;
    let result = format!(
        "/v1/continuations/{}/result",
        claimed.text("continuationId")
    );
    let deep = format!(
        r#"{{"idempotencyKey":"k","payload":{}1{}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    for (body, code) in [
        (b"".to_vec(), "invalid_json"),
        (b"{".to_vec(), "invalid_json"),
        (vec![0xff; 100], "invalid_json"),
        (
            br#"{"taskKey":"k","payload":1e400}"#.to_vec(),
            "invalid_json",
        ),
        (deep.into_bytes(), "invalid_json"),
        (b"[]".to_vec(), "invalid_body"),
        (b"\"x\"".to_vec(), "invalid_body"),
    ] {
        for (method, path, token) in [
            (
                "POST",
                "/v1/continuations/claim",
                binding.token.as_str().to_owned(),
            ),
            ("PUT", &result, claimed.text("token")),
        ] {
            let told = stage.call(method, path, &token, body.clone()).await;
            assert_eq!(told.code(), (400, code), "{path} {body:?}");
        }
    }
    assert_eq!(stage.store.count(), 1);
    // 128 deep is read, and what it holds is kept; so is a number as large as a double.
    let deep = format!(
        r#"{{"idempotencyKey":"k","payload":{}1.7976931348623157e308{}}}"#,
        "[".repeat(127),
        "]".repeat(127)
    );
    let told = stage
        .call("PUT", &result, &claimed.text("token"), deep)
        .await;
    assert_eq!(told.status, 202, "{}", told.json);
}

#[tokio::test]
async fn of_equal_keys_the_last_one_is_claimed_and_submitted() {
    let stage = Stage::new();
    let claimed = stage.committed("run-1", Mode::Reply, "task").await;
    let result = format!(
        "/v1/continuations/{}/result",
        claimed.text("continuationId")
    );
    let body = r#"{"idempotencyKey":"a","payload":{"x":1,"x":2},"idempotencyKey":"b"}"#;
    let told = stage
        .call("PUT", &result, &claimed.text("token"), body)
        .await;
    assert_eq!(told.status, 202);
    let record = stage.record(&claimed);
    assert_eq!(record.result_idempotency_key.as_deref(), Some("b"));
    assert_eq!(record.result_payload.unwrap().text(), r#"{"x":2}"#);
}

#[tokio::test]
async fn ten_thousand_wrong_tokens_are_refused_and_nothing_else_happens() {
    let stage = Stage::new();
    let claimed = stage.committed("run-1", Mode::Reply, "task").await;
    let path = format!(
        "/v1/continuations/{}/status",
        claimed.text("continuationId")
    );
    let start = std::time::Instant::now();
    for n in 0..10_000_u32 {
        let told = stage.call("GET", &path, &format!("wrong-{n}"), "").await;
        assert_eq!(told.status, 401);
    }
    // A machine that compiles at the same time is slow; a hang is not what it is.
    assert!(
        start.elapsed() < Duration::from_secs(60),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(stage.store.count(), 1);
}

pub(super) struct Running {
    pub(super) service: Service,
    pub(super) address: SocketAddr,
    pub(super) host: Arc<Stub>,
    pub(super) store: Arc<Memory>,
}

pub(super) async fn start(change: impl FnOnce(&mut Settings)) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut settings = settings();
    settings.port = address.port();
    change(&mut settings);
    let (host, store): (Arc<Stub>, Arc<Memory>) = (Arc::default(), Arc::default());
    let service = Service::start(
        listener,
        Parts {
            keeper: store.clone(),
            secret: secret(),
            settings,
            host: host.clone(),
            ambient: Arc::new(Machine::default()),
        },
    )
    .await
    .unwrap();
    Running {
        service,
        address,
        host,
        store,
    }
}

impl Running {
    pub(super) fn claim_token(&self, run: &str) -> Token {
        let bound = Bound {
            run: run.into(),
            server: "work-control".into(),
            conversation: "web:1".into(),
            reply_to: Some("web:1".into()),
            boundary: None,
            mode: Mode::Reply,
        };
        self.service.origins().issue(bound).unwrap().token
    }

    pub(super) async fn open(&self, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    pub(super) async fn ask(&self, method: &str, path: &str, bearer: &str, body: &str) -> String {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\nauthorization: Bearer {bearer}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        rest(self.open(&head).await).await
    }

    /// The answer to the claim of a turn that goes on.
    pub(super) async fn claimed(&self, run: &str) -> serde_json::Value {
        let token = self.claim_token(run);
        let told = self
            .ask("POST", "/v1/continuations/claim", token.as_str(), &claim())
            .await;
        json_of(&told)
    }

    pub(super) async fn finalized(&self, run: &str) {
        let origins = self.service.origins();
        assert!(origins.close(run).await.unwrap());
        let finalized = origins.finalize(run, "please", "started", &[]);
        finalized.await.unwrap();
    }

    /// The id of what a committed turn claimed, with its result.
    pub(super) async fn accepted(&self, run: &str, payload: serde_json::Value) -> String {
        let claimed = self.claimed(run).await;
        self.finalized(run).await;
        self.service.origins().activate(run).await.unwrap();
        let id = claimed["continuationId"].as_str().unwrap();
        let bearer = claimed["token"].as_str().unwrap();
        let body = json!({ "idempotencyKey": "k", "payload": payload }).to_string();
        let path = format!("/v1/continuations/{id}/result");
        let told = self.ask("PUT", &path, bearer, &body).await;
        assert!(told.starts_with("HTTP/1.1 202"), "{told}");
        id.to_owned()
    }
}

async fn rest(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    let reading = stream.read_to_end(&mut text);
    // A connection that was cut may end in a reset.
    let _ = tokio::time::timeout(Duration::from_secs(30), reading)
        .await
        .unwrap();
    String::from_utf8(text).unwrap()
}

fn claim() -> String {
    let mut body = claim_body("task");
    let soon = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let soon = i64::try_from(soon.as_millis()).unwrap() + 3_600_000;
    body["deadline"] = continuation_record::Time::from_ms(soon).to_string().into();
    body.to_string()
}

fn json_of(answer: &str) -> serde_json::Value {
    serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap()
}

#[tokio::test]
async fn a_whole_life_on_the_socket() {
    let running = start(|_| ()).await;
    let token = running.claim_token("run-1");
    let claimed = json_of(
        &running
            .ask("POST", "/v1/continuations/claim", token.as_str(), &claim())
            .await,
    );
    let id = claimed["continuationId"].as_str().unwrap();
    let origins = running.service.origins();
    assert!(origins.close("run-1").await.unwrap());
    origins
        .finalize("run-1", "please", "started", &[])
        .await
        .unwrap();
    origins.activate("run-1").await.unwrap();
    let bearer = claimed["token"].as_str().unwrap();
    let body = json!({ "idempotencyKey": "k", "payload": { "summary": "x" } }).to_string();
    let told = running
        .ask(
            "PUT",
            &format!("/v1/continuations/{id}/result"),
            bearer,
            &body,
        )
        .await;
    assert!(told.starts_with("HTTP/1.1 202"), "{told}");
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        let told = running
            .ask("GET", &format!("/v1/continuations/{id}/status"), bearer, "")
            .await;
        if json_of(&told)["state"] == "delivered" {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{told}");
        tokio::task::yield_now().await;
    }
    assert_eq!(running.host.0.lock().unwrap().sent.len(), 1);
    running.service.stop().await;
}

#[tokio::test]
async fn a_body_that_stalls_is_given_up_and_holds_no_capability_open() {
    let running = start(|settings| settings.body_stall = Duration::from_millis(200)).await;
    let token = running.claim_token("run-1");
    let head = format!(
        "POST /v1/continuations/claim HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {}\r\ncontent-length: 100\r\n\r\n{{",
        token.as_str()
    );
    let stream = running.open(&head).await;
    let told = rest(stream).await;
    assert!(told.starts_with("HTTP/1.1 408"), "{told}");
    assert!(told.contains("request_timeout"));
    assert!(!running.service.origins().close("run-1").await.unwrap());
    running.service.stop().await;
}

#[tokio::test]
async fn an_unproved_caller_sends_no_body() {
    let running = start(|_| ()).await;
    let head = "PUT /v1/continuations/none/result HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer wrong\r\ncontent-length: 250000\r\nexpect: 100-continue\r\n\r\n";
    let mut stream = running.open(head).await;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    // Not "100 Continue".
    assert_eq!(&answer, b"HTTP/1.1 401");
    running.service.stop().await;
}

#[tokio::test]
async fn a_stop_refuses_what_is_under_way_and_cuts_what_does_not_end() {
    let running = start(|_| ()).await;
    let token = running.claim_token("run-1");
    let text = claim();
    let (first, second) = text.split_at(5);
    let head = |length: usize, part: &str| {
        format!(
            "POST /v1/continuations/claim HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\nauthorization: Bearer {}\r\ncontent-length: {length}\r\n\r\n{part}",
            token.as_str()
        )
    };
    let mut slow = running.open(&head(text.len(), first)).await;
    let stuck = running.open(&head(text.len(), first)).await;
    // Both are taken: one that comes after them is answered.
    running.ask("GET", "/", "x", "").await;
    let (store, address) = (running.store.clone(), running.address);
    let began = std::time::Instant::now();
    let stopping = tokio::spawn(running.service.stop());
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    slow.write_all(second.as_bytes()).await.unwrap();
    let told = rest(slow).await;
    assert!(
        told.starts_with("HTTP/1.1 503") && told.contains("service_stopping"),
        "{told}"
    );
    stopping.await.unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(60),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(rest(stuck).await, "");
    assert_eq!(store.count(), 0);
}

#[tokio::test]
async fn a_stop_abandons_the_origins_that_are_not_settled() {
    let running = start(|_| ()).await;
    let token = running.claim_token("run-1");
    let claimed = json_of(
        &running
            .ask("POST", "/v1/continuations/claim", token.as_str(), &claim())
            .await,
    );
    let store = running.store.clone();
    running.service.stop().await;
    let record = store.record(claimed["continuationId"].as_str().unwrap());
    assert_eq!(
        record.origin_context_state,
        continuation_record::OriginContextState::Abandoned
    );
}

#[tokio::test]
async fn a_provider_that_never_answers_holds_neither_the_others_nor_the_stop() {
    let running = start(|settings| {
        settings.drain = Duration::from_millis(200);
        settings.limits.max_concurrent = 2;
    })
    .await;
    running.host.0.lock().unwrap().hangs_on = Some("hang".to_owned());
    let mut last = None;
    for (run, summary) in [("run-1", "hang"), ("run-2", "go"), ("run-3", "go")] {
        last = Some(running.accepted(run, json!({ "summary": summary })).await);
    }
    let last = last.unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while running.store.record(&last).state != continuation_record::State::Delivered {
        assert!(tokio::time::Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
    let store = running.store.clone();
    running.service.stop().await;
    // The one that hung is what a crash would have left, and the next start takes it for that: it is not
    // asked again.
    let next = Stage::over(store, settings());
    let counts = next.operator.health().unwrap()["counts"].clone();
    assert_eq!(
        (&counts["delivered"], &counts["synthesizing"]),
        (&json!(2), &json!(1))
    );
    crate::service::recover(&next.desk).await.unwrap();
    next.work().await;
    assert_eq!(next.operator.health().unwrap()["pending"], 0);
    next.told(|told| assert!(told.synthesized.is_empty()));
}

/// Time stands still but when nobody has anything to do, so the loop has looked ten times by the end.
#[tokio::test(start_paused = true)]
async fn sixteen_are_worked_on_at_once_and_no_more() {
    let stage = Stage::new();
    for n in 0..20 {
        let run = format!("run-{n}");
        let claimed = stage.committed(&run, Mode::Reply, "task").await;
        stage.submit(&claimed, json!("hang")).await;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut settings = settings();
    settings.port = listener.local_addr().unwrap().port();
    let (host, store): (Arc<Stub>, _) = (Arc::default(), Arc::new(stage.store.reopened()));
    host.0.lock().unwrap().hangs_on = Some("hang".to_owned());
    let parts = Parts {
        keeper: store,
        secret: secret(),
        settings,
        host: host.clone(),
        ambient: stage.hands.clone(),
    };
    let service = Service::start(listener, parts).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(host.0.lock().unwrap().hung, 16);
    let counts = service.operator().health().unwrap()["counts"].clone();
    assert_eq!(
        (&counts["synthesizing"], &counts["result_received"]),
        (&json!(16), &json!(4))
    );
    service.stop().await;
}

#[tokio::test]
async fn nothing_of_a_token_or_a_payload_is_in_any_log() {
    use std::sync::Mutex;
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    // For this thread, on which the whole runtime of the test runs.
    let _guard = tracing::subscriber::set_default(subscriber);
    let running = start(|_| ()).await;
    let token = running.claim_token("run-1");
    let claimed = json_of(
        &running
            .ask("POST", "/v1/continuations/claim", token.as_str(), &claim())
            .await,
    );
    let (id, bearer) = (
        claimed["continuationId"].as_str().unwrap(),
        claimed["token"].as_str().unwrap(),
    );
    let path = format!("/v1/continuations/{id}/result");
    let body =
        json!({ "idempotencyKey": "k", "payload": { "summary": "sesame-payload" } }).to_string();
    running.ask("PUT", &path, bearer, &body).await;
    running.ask("PUT", &path, "sesame-wrong-token", &body).await;
    running.ask("PUT", &path, bearer, "sesame-no-json").await;
    running
        .ask(
            "GET",
            "/v1/operator/health",
            Token::operator(&secret()).as_str(),
            "",
        )
        .await;
    *running.store.refuse.lock().unwrap() = Some(crate::Rejection::internal());
    running
        .ask("PUT", &path, bearer, &body.replace("\"k\"", "\"l\""))
        .await;
    *running.store.refuse.lock().unwrap() = None;
    tracing::info!("the end");
    running.service.stop().await;
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    // The log is read, and it says something.
    assert!(log.contains("the end"), "{log}");
    let operator = Token::operator(&secret());
    for never in ["sesame", token.as_str(), bearer, operator.as_str(), "web:1"] {
        assert!(!log.contains(never), "{never} in {log}");
    }
}

#[tokio::test]
async fn only_the_configured_loopback_port_is_served() {
    let parts = |port: u16| {
        let mut settings = settings();
        settings.port = port;
        Parts {
            keeper: Arc::new(Memory::default()),
            secret: secret(),
            settings,
            host: Arc::new(Stub::default()),
            ambient: Arc::new(Machine::default()),
        }
    };
    let local = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
    let told = Service::start(local().await, parts(0)).await;
    assert!(matches!(told, Err(StartError::Settings(_))));
    let told = Service::start(local().await, parts(1)).await;
    assert!(matches!(told, Err(StartError::Bound(_))));
    let everywhere = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = everywhere.local_addr().unwrap().port();
    let told = Service::start(everywhere, parts(port)).await;
    assert!(matches!(told, Err(StartError::Bound(_))));
}

#[tokio::test]
async fn a_store_that_is_behind_is_told_as_such() {
    let stage = Stage::new();
    let binding = stage.issue("run-1", "work-control", Mode::Reply);
    *stage.store.refuse.lock().unwrap() = Some(crate::Rejection::busy());
    assert_eq!(
        stage.claim(&binding, "task").await.code(),
        (503, "service_busy")
    );
    *stage.store.refuse.lock().unwrap() = Some(crate::Rejection::internal());
    assert_eq!(
        stage.claim(&binding, "task").await.code(),
        (500, "internal_error")
    );
    let _ = START;
}
