//! One service with a clock that is set, a host that says what it is told, and calls as a client makes them.

use super::memory::Memory;
use crate::ambient::Ambient;
use crate::desk::{Desk, Parts};
use crate::engine::{Answer, Engine, Question, Step};
use crate::host::{
    Commitment, Delivery, DeliveryRequest, Host, Readiness, Synthesis, SynthesisRequest,
};
use crate::http::body::Patience;
use crate::http::router::{Surface, router};
use crate::intake::Intake;
use crate::operator::Operator;
use crate::origin::Origins;
use crate::{Bound, ClaimBinding, Route, Settings};
use async_trait::async_trait;
use axum::body::Body;
use continuation_record::snapshot::SnapshotMessage;
use continuation_record::token::{Secret, Token};
use continuation_record::{Mode, Record, Time};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tower::ServiceExt;
use worker_web::origin::Admission;

pub(crate) const START: Time = Time::from_ms(1_900_000_000_000);
pub(crate) const BEARER: &str = "a-detached-bearer-of-work-control";

/// Clocks that are set by hand; bytes that never repeat.
pub(crate) struct Hands {
    wall: AtomicI64,
    elapsed: AtomicU64,
    drawn: AtomicU64,
}

impl Ambient for Hands {
    fn wall(&self) -> Time {
        Time::from_ms(self.wall.load(Ordering::SeqCst))
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.elapsed.load(Ordering::SeqCst))
    }

    fn fill(&self, bytes: &mut [u8]) {
        use sha2::{Digest, Sha256};
        for chunk in bytes.chunks_mut(32) {
            let drawn = self.drawn.fetch_add(1, Ordering::SeqCst);
            let hash = Sha256::digest(drawn.to_le_bytes());
            chunk.copy_from_slice(&hash[..chunk.len()]);
        }
    }
}

/// What the host says, and what it was asked.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) committed: Option<Commitment>,
    /// The owner of the history never answers.
    pub(crate) is_history_silent: bool,
    pub(crate) ready: Option<Readiness>,
    pub(crate) synthesis: Option<Synthesis>,
    pub(crate) delivery: Option<Delivery>,
    pub(crate) entered: Option<Result<(), String>>,
    pub(crate) history: Vec<SnapshotMessage>,
    pub(crate) synthesized: Vec<SynthesisRequest>,
    pub(crate) sent: Vec<DeliveryRequest>,
    pub(crate) entries: Vec<(String, String, String)>,
    pub(crate) asked_ready: Vec<String>,
    /// A model never answers where this is in the message, nor does a channel where it is in the text.
    pub(crate) hangs_on: Option<String>,
    /// Models that never answered.
    pub(crate) hung: usize,
}

#[derive(Default)]
pub(crate) struct Stub(pub(crate) Mutex<Told>);

impl Stub {
    fn hangs(&self, text: &str) -> bool {
        let told = self.0.lock().unwrap();
        told.hangs_on
            .as_ref()
            .is_some_and(|word| text.contains(word))
    }
}

#[async_trait]
impl Host for Stub {
    async fn run_committed(&self, _: &str, _: &str, _: &str) -> Commitment {
        let is_silent = self.0.lock().unwrap().is_history_silent;
        if is_silent {
            std::future::pending::<()>().await;
        }
        self.0
            .lock()
            .unwrap()
            .committed
            .unwrap_or(Commitment::Unknown)
    }

    async fn latest_history(&self, _: &str) -> Result<Vec<SnapshotMessage>, String> {
        Ok(self.0.lock().unwrap().history.clone())
    }

    async fn commit_history(
        &self,
        conversation: &str,
        key: &str,
        text: &str,
    ) -> Result<(), String> {
        let mut told = self.0.lock().unwrap();
        told.entries
            .push((conversation.into(), key.into(), text.into()));
        told.entered.clone().unwrap_or(Ok(()))
    }

    async fn preflight(&self, target: &str) -> Readiness {
        let mut told = self.0.lock().unwrap();
        told.asked_ready.push(target.to_owned());
        told.ready.clone().unwrap_or(Readiness::Ready)
    }

    async fn synthesize(&self, request: SynthesisRequest) -> Synthesis {
        if self.hangs(&request.message) {
            self.0.lock().unwrap().hung += 1;
            std::future::pending::<()>().await;
        }
        let mut told = self.0.lock().unwrap();
        told.synthesized.push(request);
        told.synthesis
            .clone()
            .unwrap_or(Synthesis::Text("the answer".into()))
    }

    async fn deliver(&self, request: DeliveryRequest) -> Delivery {
        if self.hangs(&request.text) {
            std::future::pending::<()>().await;
        }
        let mut told = self.0.lock().unwrap();
        told.sent.push(request);
        told.delivery.clone().unwrap_or(Delivery::Delivered {
            delivery_id: Some("ts-1".into()),
            channel_id: Some("C".into()),
            history: None,
        })
    }
}

pub(crate) struct Stage {
    pub(crate) store: Arc<Memory>,
    pub(crate) host: Arc<Stub>,
    pub(crate) hands: Arc<Hands>,
    pub(crate) desk: Arc<Desk>,
    pub(crate) engine: Engine,
    pub(crate) origins: Origins,
    pub(crate) operator: Operator,
    pub(crate) app: axum::Router,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Told2 {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) json: Value,
}

impl Told2 {
    pub(crate) fn code(&self) -> (u16, &str) {
        (
            self.status.as_u16(),
            self.json["error"]["code"].as_str().unwrap_or(""),
        )
    }

    pub(crate) fn text(&self, key: &str) -> String {
        self.json[key]
            .as_str()
            .unwrap_or_else(|| panic!("{key} in {}", self.json))
            .to_owned()
    }
}

pub(crate) fn secret() -> Secret {
    Secret::new([7; 32])
}

pub(crate) fn settings() -> Settings {
    let mut settings = Settings::new("127.0.0.1", 4319);
    let route = |mode, conversation: Option<&str>| Route {
        mode,
        conversation: conversation.map(str::to_owned),
    };
    settings.routes.insert(
        "daily".into(),
        route(Mode::NotifyIfActionable, Some("slack:C:T")),
    );
    settings
        .routes
        .insert("verify".into(), route(Mode::Capture, Some("slack:C:T")));
    settings
        .routes
        .insert("index".into(), route(Mode::Silent, None));
    settings
        .service("work-control", &Token::from(BEARER.to_owned()))
        .unwrap();
    settings
        .service("other", &Token::from("another-detached-bearer".to_owned()))
        .unwrap();
    settings
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(settings())
    }

    pub(crate) fn with(settings: Settings) -> Self {
        Self::on(START, Arc::default(), settings)
    }

    /// A process over what another left.
    pub(crate) fn over(store: Arc<Memory>, settings: Settings) -> Self {
        Self::at(START, store, settings)
    }

    /// One that finds this time on the wall.
    pub(crate) fn at(wall: Time, store: Arc<Memory>, settings: Settings) -> Self {
        Self::on(wall, Arc::new(store.reopened()), settings)
    }

    fn on(wall: Time, store: Arc<Memory>, settings: Settings) -> Self {
        let host: Arc<Stub> = Arc::default();
        let hands = Arc::new(Hands {
            wall: AtomicI64::new(wall.ms()),
            elapsed: AtomicU64::new(0),
            drawn: AtomicU64::new(1000 * store.count() as u64),
        });
        settings.check().unwrap();
        let patience = Patience {
            stall: settings.body_stall,
            total: settings.body_total,
        };
        let desk = Desk::new(Parts {
            keeper: store.clone(),
            secret: secret(),
            settings,
            host: host.clone(),
            ambient: hands.clone(),
        });
        let stopping = desk.clone();
        let operator = Operator::new(desk.clone());
        let app = router(Surface {
            intake: Intake::new(desk.clone()),
            operator: operator.clone(),
            admission: Admission::new("127.0.0.1".parse().unwrap()),
            patience,
            is_stopping: Arc::new(move || stopping.is_stopping()),
        });
        Self {
            engine: Engine::new(desk.clone()),
            origins: Origins::new(desk.clone()),
            operator,
            store,
            host,
            hands,
            desk,
            app,
        }
    }

    pub(crate) fn told<T>(&self, of: impl FnOnce(&mut Told) -> T) -> T {
        of(&mut self.host.0.lock().unwrap())
    }

    /// Both clocks move on.
    pub(crate) fn pass(&self, time: Duration) {
        let ms = u64::try_from(time.as_millis()).unwrap();
        self.hands.elapsed.fetch_add(ms, Ordering::SeqCst);
        self.jump(i64::try_from(ms).unwrap());
    }

    /// The wall alone moves.
    pub(crate) fn jump(&self, ms: i64) {
        self.hands.wall.fetch_add(ms, Ordering::SeqCst);
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Told2 {
        let response = self.app.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Told2 {
            status: head.status,
            headers: head.headers,
            // An answer to HEAD has no body.
            json: if bytes.is_empty() {
                Value::Null
            } else {
                serde_json::from_slice(&bytes).unwrap()
            },
        }
    }

    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        bearer: &str,
        body: impl Into<Body>,
    ) -> Told2 {
        let request = request(method, path).header("authorization", format!("Bearer {bearer}"));
        self.send(request.body(body.into()).unwrap()).await
    }

    pub(crate) fn issue(&self, run: &str, server: &str, mode: Mode) -> ClaimBinding {
        self.origins
            .issue(Bound {
                run: run.into(),
                server: server.into(),
                conversation: "slack:C:T#2030-03-17".into(),
                reply_to: Some("slack:C:T".into()),
                boundary: None,
                mode,
            })
            .unwrap()
    }

    pub(crate) async fn claim(&self, binding: &ClaimBinding, task: &str) -> Told2 {
        let body = claim_body(task).to_string();
        self.call(
            "POST",
            "/v1/continuations/claim",
            binding.token.as_str(),
            body,
        )
        .await
    }

    pub(crate) async fn detached(&self, route: &str, task: &str) -> Told2 {
        let mut body = claim_body(task);
        body["route"] = route.into();
        let request = request("POST", "/v1/continuations/detached/claim")
            .header("authorization", format!("Bearer {BEARER}"))
            .header("x-mono-agent-service-name", "work-control");
        self.send(request.body(body.to_string().into()).unwrap())
            .await
    }

    pub(crate) async fn submit(&self, claimed: &Told2, payload: Value) -> Told2 {
        let body = json!({ "idempotencyKey": "result-1", "payload": payload });
        let path = format!(
            "/v1/continuations/{}/result",
            claimed.text("continuationId")
        );
        self.call("PUT", &path, &claimed.text("token"), body.to_string())
            .await
    }

    pub(crate) async fn operate(&self, method: &str, path: &str, body: impl Into<Body>) -> Told2 {
        let token = Token::operator(&secret());
        let path = format!("/v1/operator/{path}");
        self.call(method, &path, token.as_str(), body).await
    }

    /// A turn of one claim, committed.
    pub(crate) async fn committed(&self, run: &str, mode: Mode, task: &str) -> Told2 {
        let binding = self.issue(run, "work-control", mode);
        let claimed = self.claim(&binding, task).await;
        assert_eq!(claimed.status, StatusCode::OK, "{}", claimed.json);
        assert!(self.origins.close(run).await.unwrap());
        self.origins
            .finalize(run, "please", "started", &[])
            .await
            .unwrap();
        self.origins.activate(run).await.unwrap();
        claimed
    }

    pub(crate) fn record(&self, claimed: &Told2) -> Record {
        self.store.record(&claimed.text("continuationId"))
    }

    /// Works until there is nothing to do at this time.
    pub(crate) async fn work(&self) {
        for _ in 0..100 {
            for id in self.desk.keeper.overdue(self.desk.now(), 100) {
                self.desk
                    .apply(&id, continuation_record::event::Event::Expire)
                    .await
                    .unwrap();
            }
            let due = self.desk.due(100);
            if due.is_empty() {
                return;
            }
            for id in due {
                self.process(&id, |_| None).await;
            }
        }
        panic!("there is always something to do");
    }

    /// One continuation as far as it goes. Where `instead` says something, that is the host's answer.
    pub(crate) async fn process(&self, id: &str, instead: impl Fn(&Question) -> Option<Answer>) {
        let mut step = self.engine.start(id).await.unwrap();
        while let Step::Ask(job, question) = step {
            let answer = match instead(&question) {
                Some(answer) => answer,
                None => {
                    crate::service::put(&*self.host, question, &self.desk.settings.limits).await
                }
            };
            step = self.engine.advance(job, answer).await.unwrap();
        }
    }
}

pub(crate) fn request(method: &str, path: &str) -> http::request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header("host", "127.0.0.1:4319")
}

pub(crate) fn claim_body(task: &str) -> Value {
    json!({
        "taskKey": task,
        "taskHash": "hash-of-the-task",
        "deadline": START.plus_ms(24 * 3_600_000).to_string(),
    })
}
