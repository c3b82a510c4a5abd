//! The continuation service against its own OpenAPI document, by schemathesis.
#![allow(clippy::unwrap_used)]

use async_trait::async_trait;
use continuation_client::{Claim, ClaimCapability, Detached, Endpoint, Payload, Token};
use continuation_record::Mode;
use continuation_record::snapshot::SnapshotMessage;
use continuation_service::ambient::{Ambient, Machine};
use continuation_service::host::{
    Commitment, Delivery, DeliveryRequest, Host, Readiness, Synthesis, SynthesisRequest,
};
use continuation_service::{Bound, Kept, Parts, Route, Service, Settings};
use continuation_store::fs::RealFs;
use continuation_store::{Limits, Retention, Store};
use mono_tests::python;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::process::Command;

/// Checks that the document can stand up to. Left out: that whatever the schema allows is accepted (no schema
/// says that a deadline is in the future), and that a wrong method is 405 (here it is 404).
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance,negative_data_rejection,missing_required_header,ignored_auth";

const BEARER: &str = "a-bearer-of-a-detached-service";

/// Posts everything, and loses what says so.
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
        Err("history_full".to_owned())
    }
    async fn preflight(&self, _: &str) -> Readiness {
        Readiness::Ready
    }
    async fn synthesize(&self, request: SynthesisRequest) -> Synthesis {
        Synthesis::Text(request.message)
    }
    async fn deliver(&self, request: DeliveryRequest) -> Delivery {
        if request.text.contains("lose") {
            return Delivery::Unknown {
                code: "lost".to_owned(),
                reason: "lost".to_owned(),
            };
        }
        Delivery::Delivered {
            delivery_id: Some("ts".to_owned()),
            channel_id: Some("C".to_owned()),
            history: None,
        }
    }
}

struct Running {
    service: Service,
    port: u16,
    operator: Token,
}

async fn start(state: &Path) -> Running {
    std::fs::set_permissions(state, std::fs::Permissions::from_mode(0o700)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut settings = Settings::new("127.0.0.1", port);
    let route = |mode, conversation: Option<&str>| Route {
        mode,
        conversation: conversation.map(str::to_owned),
    };
    let daily = route(Mode::NotifyIfActionable, Some("web:1"));
    settings.routes.insert("daily".to_owned(), daily);
    settings
        .routes
        .insert("index".to_owned(), route(Mode::Silent, None));
    let bearer = Token::from(BEARER.to_owned());
    settings.service("indexer", &bearer).unwrap();
    let (store, _) = Store::open(RealFs::open(state).unwrap(), Limits::default()).unwrap();
    let kept = Kept::new(store, Retention::default());
    let secret = kept.secret();
    let parts = Parts {
        keeper: Arc::new(kept),
        secret: secret.clone(),
        settings,
        host: Arc::new(Stub),
        ambient: Arc::new(Machine::default()),
    };
    let service = Service::start(listener, parts).await.unwrap();
    Running {
        service,
        port,
        operator: Token::operator(&secret),
    }
}

fn claim(key: &str) -> Claim {
    Claim {
        task_key: key.to_owned(),
        task_hash: "hash".to_owned(),
        deadline: Machine::default().wall().plus_ms(86_400_000).to_string(),
    }
}

/// Continuations in every state that can be come to, and their tokens.
async fn continuations(running: &Running) -> BTreeMap<String, String> {
    let endpoint = Endpoint::new("127.0.0.1", running.port).unwrap();
    let detached = Detached::new(endpoint, "indexer", Token::from(BEARER.to_owned()));
    let mut tokens = BTreeMap::new();
    for (route, key, payload) in [
        ("index", "claimed", None),
        ("index", "silent", Some(r#"{"summary":"x"}"#)),
        ("daily", "posted", Some(r#"{"summary":"x"}"#)),
        ("daily", "suppressed", Some(r#"{"actionable":false}"#)),
        ("daily", "lost", Some(r#"{"summary":"lose this"}"#)),
    ] {
        let claimed = detached.claim(route, &claim(key)).await.unwrap();
        if let Some(payload) = payload {
            let payload = Payload::parse(payload).unwrap();
            claimed
                .result()
                .unwrap()
                .submit("key", &payload)
                .await
                .unwrap();
        }
        tokens.insert(claimed.continuation_id, claimed.token);
    }
    tokens
}

#[tokio::test]
async fn the_service_does_what_its_document_says() {
    let state = tempfile::tempdir().unwrap();
    let running = start(state.path()).await;
    let bound = Bound {
        run: "run-1".to_owned(),
        server: "work-control".to_owned(),
        conversation: "web:1".to_owned(),
        reply_to: Some("web:1".to_owned()),
        boundary: None,
        mode: Mode::Reply,
    };
    let binding = running.service.origins().issue(bound).unwrap();
    let capability = ClaimCapability::new(&binding.url, binding.token.clone()).unwrap();
    let of_turn = capability.claim(&claim("turn")).await.unwrap();
    let mut results = continuations(&running).await;
    results.insert(of_turn.continuation_id, of_turn.token);
    let callers = serde_json::json!({
        "claim": binding.token.as_str(),
        "service": BEARER,
        "operator": running.operator.as_str(),
        "results": results,
    });
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/continuations.openapi.json");
    let output = Command::new(python::schemathesis())
        .arg("run")
        .arg(document)
        .args(["--url", &format!("http://127.0.0.1:{}", running.port)])
        .args(["--checks", CHECKS])
        .args(["--max-examples", "60", "--seed", "1", "--no-color"])
        .args(["--phases", "examples,coverage,fuzzing"])
        .args(["--suppress-health-check", "all"])
        // In seconds, on a busy machine.
        .args(["--request-timeout", "60"])
        .current_dir(state.path())
        .env("SCHEMATHESIS_HOOKS", "continuation_callers")
        .env("PYTHONPATH", python::folder())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("CONTINUATION_CALLERS", callers.to_string())
        .output()
        .await
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{errors}");
    // It has really called everything, and got in: there is more than there was.
    assert!(told.contains("Tested: 12"), "{told}");
    let list = running.service.operator().list(None, None).unwrap();
    let there = list["continuations"].as_array().unwrap().len();
    assert!(there > 6, "{there}: {told}");
    running.service.stop().await;
}
