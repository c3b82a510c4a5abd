//! The client against the service that it is for.
#![allow(clippy::unwrap_used)]

use async_trait::async_trait;
use continuation_client::{
    Claim, ClaimCapability, Detached, Endpoint, Error, Operator, Payload, Resolution, Token,
};
use continuation_record::snapshot::SnapshotMessage;
use continuation_record::token::Secret;
use continuation_record::{Mode, State, Time};
use continuation_service::ambient::{Ambient, Machine};
use continuation_service::host::{
    Commitment, Delivery, DeliveryRequest, Host, Readiness, Synthesis, SynthesisRequest,
};
use continuation_service::{Bound, Kept, Parts, Route, Service, Settings};
use continuation_store::fs::{SimFs, World};
use continuation_store::{Limits, Retention, Store};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// Answers every payload; what is to be lost is lost.
struct Stub;

#[async_trait]
impl Host for Stub {
    async fn run_committed(&self, _: &str, _: &str, _: &str) -> Commitment {
        Commitment::Unknown
    }
    async fn latest_history(&self, _: &str) -> Result<Vec<SnapshotMessage>, String> {
        Ok(Vec::new())
    }
    async fn commit_history(&self, _: &str, _: &str, _: &str) -> Result<(), String> {
        Ok(())
    }
    async fn preflight(&self, _: &str) -> Readiness {
        Readiness::Ready
    }
    async fn synthesize(&self, request: SynthesisRequest) -> Synthesis {
        Synthesis::Text(request.message)
    }
    async fn deliver(&self, request: DeliveryRequest) -> Delivery {
        if request.text.contains("lose this") {
            return Delivery::Unknown {
                code: "lost".into(),
                reason: "lost".into(),
            };
        }
        Delivery::Delivered {
            delivery_id: Some("ts".into()),
            channel_id: None,
            history: None,
        }
    }
}

struct Running {
    service: Service,
    endpoint: Endpoint,
    secret: Secret,
}

const BEARER: &str = "a-bearer-of-a-detached-service";

async fn start() -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut settings = Settings::new("127.0.0.1", port);
    settings.limits.page_size = 2;
    let route = |mode, conversation: Option<&str>| Route {
        mode,
        conversation: conversation.map(str::to_owned),
    };
    settings.routes.insert(
        "daily".into(),
        route(Mode::NotifyIfActionable, Some("web:1")),
    );
    let verify = route(Mode::Capture, Some("web:1"));
    settings.routes.insert("verify".into(), verify);
    settings
        .routes
        .insert("index".into(), route(Mode::Silent, None));
    settings
        .service("indexer", &Token::from(BEARER.to_owned()))
        .unwrap();
    let limits = Limits {
        log_bytes: 8 * 1024 * 1024,
        ..Limits::default()
    };
    let (store, _) = Store::open(SimFs::new(World::new()), limits).unwrap();
    let kept = Kept::new(store, Retention::default());
    let secret = kept.secret();
    let parts = Parts {
        keeper: Arc::new(kept),
        secret: secret.clone(),
        settings,
        host: Arc::new(Stub),
        ambient: Arc::new(Machine::default()),
    };
    Running {
        service: Service::start(listener, parts).await.unwrap(),
        endpoint: Endpoint::new("127.0.0.1", port).unwrap(),
        secret,
    }
}

fn claim(key: &str) -> Claim {
    let deadline: Time = Machine::default().wall().plus_ms(3_600_000);
    Claim {
        task_key: key.into(),
        task_hash: "hash".into(),
        deadline: deadline.to_string(),
    }
}

async fn until(operator: &Operator, id: &str, state: State) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let status = operator.show(id).await.unwrap();
        if status.state == state {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{status:?}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_service_claims_during_its_request_and_submits_after_it() {
    let running = start().await;
    let origins = running.service.origins();
    let bound = Bound {
        run: "run-1".into(),
        server: "work-control".into(),
        conversation: "web:1".into(),
        reply_to: Some("web:1".into()),
        boundary: None,
        mode: Mode::Reply,
    };
    let binding = origins.issue(bound).unwrap();
    let capability = ClaimCapability::new(&binding.url, binding.token.clone()).unwrap();
    let task = claim("task");
    let claimed = capability.claim(&task).await.unwrap();
    assert_eq!(claimed.fingerprint, binding.fingerprint);
    assert!(capability.claim(&task).await.unwrap().replayed);
    let mut other = task;
    other.task_hash = "another".into();
    assert_eq!(
        capability.claim(&other).await.unwrap_err().code(),
        Some("claim_conflict")
    );
    assert!(origins.close("run-1").await.unwrap());
    origins
        .finalize("run-1", "please", "started", &[])
        .await
        .unwrap();
    origins.activate("run-1").await.unwrap();
    // What a service keeps of a claim is JSON, and survives it.
    let kept: continuation_client::Claimed =
        serde_json::from_str(&serde_json::to_string(&claimed).unwrap()).unwrap();
    let results = kept.result().unwrap();
    let payload = Payload::parse(r#"{"b":1,"10":2,"summary":"done \ud83d\ude00"}"#).unwrap();
    for _ in 0..2 {
        let accepted = results.submit("key", &payload).await.unwrap();
        assert_eq!(accepted.continuation_id, claimed.continuation_id);
    }
    let error = results.submit("other", &payload).await.unwrap_err();
    assert_eq!(error.code(), Some("result_conflict"));
    let operator = Operator::new(running.endpoint.clone(), &running.secret);
    until(&operator, &claimed.continuation_id, State::Delivered).await;
    let status = results.status().await.unwrap();
    assert_eq!(status.receipt.unwrap().delivery_id.as_deref(), Some("ts"));
    running.service.stop().await;
}

#[tokio::test]
async fn operators_look_and_act() {
    let running = start().await;
    let detached = Detached::new(
        running.endpoint.clone(),
        "indexer",
        Token::from(BEARER.to_owned()),
    );
    let operator = Operator::new(running.endpoint.clone(), &running.secret);
    assert_eq!(operator.health().await.unwrap()["status"], "healthy");
    let mut ids = Vec::new();
    for n in 0..5 {
        let claimed = detached
            .claim("index", &claim(&format!("task-{n}")))
            .await
            .unwrap();
        ids.push(claimed.continuation_id);
    }
    let mut seen = Vec::new();
    let mut cursor = None;
    loop {
        let page = operator.list(None, cursor.as_deref()).await.unwrap();
        assert!(page.continuations.len() <= page.page_size && page.page_size == 2);
        seen.extend(
            page.continuations
                .into_iter()
                .map(|status| status.continuation_id),
        );
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    ids.sort();
    seen.sort();
    assert_eq!(ids, seen);
    assert_eq!(
        operator.list(Some(3), None).await.unwrap_err().code(),
        Some("invalid_page_limit")
    );
    assert_eq!(
        operator.list(None, Some("x")).await.unwrap_err().code(),
        Some("invalid_page_cursor")
    );
    assert_eq!(
        operator.cancel(&ids[0]).await.unwrap().state,
        State::Cancelled
    );
    assert_eq!(
        operator.cancel(&ids[0]).await.unwrap().state,
        State::Cancelled
    );
    assert_eq!(
        operator.retry(&ids[1], false).await.unwrap_err().code(),
        Some("not_retryable")
    );
    for wrong in ["none", "../health", "", "a/b"] {
        assert_eq!(
            operator.show(wrong).await.unwrap_err().code(),
            Some("not_found"),
            "{wrong}"
        );
    }
    let lost = detached.claim("daily", &claim("lost")).await.unwrap();
    let payload = Payload::parse(r#"{"summary":"lose this"}"#).unwrap();
    lost.result()
        .unwrap()
        .submit("key", &payload)
        .await
        .unwrap();
    let id = &lost.continuation_id;
    until(&operator, id, State::DeliveryUnknown).await;
    assert_eq!(operator.health().await.unwrap()["status"], "unhealthy");
    assert_eq!(
        operator.retry(id, false).await.unwrap_err().code(),
        Some("delivery_unknown")
    );
    let proved = Resolution::Delivered {
        delivery_id: Some("seen".into()),
    };
    let status = operator.resolve(id, &proved).await.unwrap();
    assert_eq!(status.receipt.unwrap().delivery_id.as_deref(), Some("seen"));
    let again = operator
        .resolve(id, &Resolution::NotDelivered)
        .await
        .unwrap_err();
    assert_eq!(again.code(), Some("not_delivery_unknown"));
    let capture = detached.claim("verify", &claim("capture")).await.unwrap();
    let payload = Payload::parse(r#"{"summary":"keep this"}"#).unwrap();
    capture
        .result()
        .unwrap()
        .submit("key", &payload)
        .await
        .unwrap();
    let id = &capture.continuation_id;
    until(&operator, id, State::Delivered).await;
    let text = operator.captured_text(id).await.unwrap().unwrap();
    assert!(text.contains("keep this"));
    assert_eq!(operator.captured_text(&ids[1]).await.unwrap(), None);
    // Another secret's operator is nobody here.
    let stranger = Operator::new(running.endpoint.clone(), &Secret::new([1; 32]));
    let error = stranger.health().await.unwrap_err();
    assert_eq!(error.code(), Some("invalid_operator_capability"));
    running.service.stop().await;
    let gone = operator.health().await.unwrap_err();
    assert!(
        matches!(gone, Error::Unreachable(_)) && gone.is_temporary(),
        "{gone:?}"
    );
}
