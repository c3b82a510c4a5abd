//! From a request to its answer: admission, the key, the body, the run.

use super::callback::{Callbacks, SigningKey};
use super::endpoints::{Endpoints, Route};
use super::error::Refusal;
use super::job::follow;
use super::later;
use super::record::{Record, Settlement, Status, rfc3339};
use super::request::{self, Invocation, Limits};
use super::requests::{Bounds, Full, Requests};
use crate::intake::{Intake, refuse};
use crate::runs::{ActiveRun, Runs, Wish};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, StatusCode};
use ipc_proto::ConversationId;
use ipc_proto::edges::control::{MAX_TURN_INPUT, Trigger};
use ipc_proto::rooms::{Reserved, WEBHOOK};
use ipc_proto::settings::WebhookSettings;
use jiff::Timestamp;
use serde_json::json;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use url::Url;
use uuid::Uuid;
use worker_web::listener::Remote;
use worker_web::origin::{Admission, Refused};

/// KiB of all bodies held at once, over all connections.
const BODY_BUDGET_KIB: usize = 96 * 1024;
/// Room of a body beside its text and its attachments' data.
const ENVELOPE: u64 = 64 * 1024;
/// The one route that needs no key.
const HEALTH: &str = "/healthz";
/// nginx's "client closed request", which facts of the channel name for a cancelled run.
const CLIENT_CLOSED: u16 = 499;

/// What the routes need to know. Dropped with its last request and its last callback.
pub struct Webhook {
    endpoints: Arc<Endpoints>,
    limits: Limits,
    max_body: usize,
    max_run: Option<Duration>,
    admission: Admission,
    intake: Intake,
    requests: Mutex<Requests>,
    callbacks: Arc<Callbacks>,
    /// Closed once nothing is under way any more.
    _alive: mpsc::Sender<()>,
}

impl Webhook {
    /// Checks the settings against the address that is really bound. The receiver ends when the
    /// last request and its callback have ended.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn new(
        settings: &WebhookSettings,
        endpoints: Arc<Endpoints>,
        admission: Admission,
        callbacks: Arc<Callbacks>,
    ) -> Result<(Self, mpsc::Receiver<()>), String> {
        if !admission.is_loopback() && !endpoints.all_protected() {
            return Err(
                "webhook.apiKey is required on an address that other machines reach; set it or \
                 bind webhook.host to 127.0.0.1"
                    .to_owned(),
            );
        }
        let (alive, all_over) = mpsc::channel(1);
        let bounds = Bounds {
            retention: Duration::from_millis(settings.retention_ms),
            most: settings.max_stored,
        };
        let fixed = settings.endpoints.iter();
        let fixed = fixed.filter_map(|endpoint| endpoint.conversation.as_ref());
        let webhook = Self {
            endpoints,
            limits: Limits {
                attachment_bytes: settings.max_attachment_bytes,
                callback_hosts: settings.callback_hosts.clone(),
                reserved: Reserved(fixed.cloned().collect()),
            },
            max_body: max_body(settings.max_attachment_bytes),
            max_run: (settings.max_run_ms > 0).then(|| Duration::from_millis(settings.max_run_ms)),
            admission,
            intake: Intake::new(BODY_BUDGET_KIB),
            requests: Mutex::new(Requests::new(bounds)),
            callbacks,
            _alive: alive,
        };
        Ok((webhook, all_over))
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Largest body: 1 MiB of text, and attachments in base64 as far as a turn's message carries them.
fn max_body(attachment_bytes: u64) -> usize {
    let text = request::MAX_TEXT as u64;
    let attachments = match attachment_bytes {
        0 => 0,
        bytes => bytes.div_ceil(3) * 4 + ENVELOPE,
    };
    // What a message becomes on its way has to fit as well.
    let most = MAX_TURN_INPUT as u64 - 2 * ENVELOPE;
    usize::try_from((text + attachments).min(most)).unwrap_or(usize::MAX)
}

#[derive(Clone)]
struct Shared {
    webhook: Arc<Webhook>,
    runs: Arc<dyn Runs>,
}

/// The routes of facts 2.2, and one for health checks. Paths come from the configuration and are
/// compared as they are.
pub fn router(webhook: Webhook, runs: Arc<dyn Runs>) -> Router {
    let shared = Shared {
        webhook: Arc::new(webhook),
        runs,
    };
    Router::new().fallback(serve).with_state(shared)
}

async fn serve(State(shared): State<Shared>, request: Request) -> Response {
    let mut response = dispatch(&shared, request).await;
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn dispatch(shared: &Shared, request: Request) -> Response {
    let webhook = &shared.webhook;
    let decision = decide(webhook, &request);
    match decision {
        Ok(Action::Health) => json_response(StatusCode::OK, b"{\"ok\":true}".to_vec()),
        Ok(Action::Show(record)) => json_response(StatusCode::OK, record.json()),
        Ok(Action::Invoke(endpoint)) => invoke(shared, endpoint, request).await,
        Err(refusal) => {
            refuse(
                request.into_body(),
                refusal.into_response(),
                webhook.max_body,
            )
            .await
        }
    }
}

/// What a request is about, before its body is looked at.
enum Action {
    Health,
    Invoke(usize),
    Show(Box<Record>),
}

fn decide(webhook: &Webhook, request: &Request) -> Result<Action, Refusal> {
    let (uri, headers) = (request.uri(), request.headers());
    webhook
        .admission
        .check(uri, headers)
        .map_err(|refused| match refused {
            Refused::NoHost => Refusal::forbidden(400, refused.to_string()),
            Refused::Host | Refused::Origin => Refusal::forbidden(403, refused.to_string()),
        })?;
    let method = request.method();
    match webhook.endpoints.route(uri.path()) {
        Route::Invoke(endpoint) => {
            if !webhook.endpoints.accepts(endpoint, headers) {
                return Err(Refusal::unauthorised());
            }
            match *method {
                Method::POST => Ok(Action::Invoke(endpoint)),
                _ => Err(Refusal::wrong_method("POST")),
            }
        }
        Route::Status { folder, id } => {
            let accepting = webhook.endpoints.accepting(folder, headers);
            if accepting.is_empty() {
                return Err(Refusal::unauthorised());
            }
            if *method != Method::GET {
                return Err(Refusal::wrong_method("GET"));
            }
            // Of a request that came with another key, nothing is known.
            let record = webhook.requests().read(id, Instant::now());
            record
                .filter(|record| accepting.contains(&record.endpoint))
                .map(|record| Action::Show(Box::new(record)))
                .ok_or_else(Refusal::not_found)
        }
        Route::Unknown if uri.path() == HEALTH && *method == Method::GET => Ok(Action::Health),
        Route::Unknown => Err(Refusal::not_found()),
    }
}

async fn invoke(shared: &Shared, endpoint: usize, request: Request) -> Response {
    let webhook = &shared.webhook;
    let remote = request.extensions().get::<Remote>();
    let remote = remote.map(|Remote(address)| address.to_string());
    let (parts, mut body) = request.into_parts();
    let read = webhook
        .intake
        .read(&parts.headers, &mut body, webhook.max_body)
        .await;
    let (bytes, held) = match read {
        Ok(read) => read,
        Err(unread) => {
            let refusal = Refusal::from(unread).into_response();
            return refuse(body, refusal, unread.drain()).await;
        }
    };
    let settings = &webhook.endpoints.get(endpoint).settings;
    let invocation = match request::parse(&bytes, settings, &webhook.limits) {
        Ok(invocation) => invocation,
        Err(refusal) => return refusal.into_response(),
    };
    drop(bytes);
    let taken = take(shared, endpoint, invocation, remote).await;
    drop(held);
    let taken = match taken {
        Ok(taken) => taken,
        Err(refusal) => return refusal.into_response(),
    };
    if !taken.wait {
        return accepted(webhook, &taken.record);
    }
    // As long as this is held, somebody waits.
    let _caller = taken.caller;
    match taken.settled.await {
        Ok(record) => {
            let status = match record.status {
                Status::Succeeded => StatusCode::OK,
                Status::Cancelled => {
                    StatusCode::from_u16(CLIENT_CLOSED).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
                }
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            json_response(status, record.json())
        }
        // Its task is gone without a settlement, which is a fault of ours.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// A request whose run was started.
struct Taken {
    wait: bool,
    record: Record,
    settled: oneshot::Receiver<Record>,
    /// Dropping it aborts the run of a caller who waits.
    caller: oneshot::Sender<()>,
}

async fn take(
    shared: &Shared,
    endpoint: usize,
    invocation: Invocation,
    remote: Option<String>,
) -> Result<Taken, Refusal> {
    let webhook = &shared.webhook;
    let id = Uuid::new_v4();
    let conversation = match invocation.conversation {
        Some(conversation) => conversation,
        None => ConversationId::parse(&format!("{WEBHOOK}{id}"))
            .map_err(|e| Refusal::invalid(e.to_string()))?,
    };
    let key = webhook.endpoints.get(endpoint).signing.clone();
    let callback = match (invocation.callback, key) {
        (None, _) => None,
        (Some(url), Some(key)) => Some((url, key)),
        (Some(_), None) => {
            return Err(Refusal::callback(
                "This endpoint has no key to sign results with.",
            ));
        }
    };
    let record = Record::new(
        endpoint,
        id,
        conversation.clone(),
        invocation.metadata,
        Timestamp::now(),
    );
    let admitted = webhook.requests().admit(record.clone(), Instant::now());
    admitted.map_err(|full| match full {
        Full::Busy => Refusal::busy(conversation.clone()),
        Full::TooMany => Refusal::full(),
    })?;
    // Also when the caller leaves while the supervisor is asked, the conversation is free again.
    let mut admitted = Admitted {
        webhook: webhook.clone(),
        id: Some(id),
    };
    let wish = Wish {
        conversation,
        delivery: later::place(
            &webhook.endpoints.get(endpoint).settings.path,
            &record.conversation_id,
        ),
        trigger: Trigger {
            source: webhook.endpoints.source(endpoint),
            detail: remote,
        },
        input: invocation.input,
    };
    let run = ActiveRun::start(shared.runs.clone(), wish).await?;
    admitted.id = None;
    let (caller, gone) = oneshot::channel();
    let (tell, settled) = oneshot::channel();
    let abort = invocation.wait.then_some(gone);
    tokio::spawn(work(webhook.clone(), id, run, abort, tell, callback));
    Ok(Taken {
        wait: invocation.wait,
        record,
        settled,
        caller,
    })
}

/// A request that has no run yet; taken back when it gets none.
struct Admitted {
    webhook: Arc<Webhook>,
    id: Option<Uuid>,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.webhook.requests().withdraw(id);
        }
    }
}

/// Follows a request to its end, tells whoever waits, and sends the result.
async fn work(
    webhook: Arc<Webhook>,
    id: Uuid,
    run: ActiveRun,
    caller: Option<oneshot::Receiver<()>>,
    tell: oneshot::Sender<Record>,
    callback: Option<(Url, Arc<SigningKey>)>,
) {
    let abort = async {
        match caller {
            // Nobody sends; it ends when the caller's end is dropped.
            Some(caller) => drop(caller.await),
            None => std::future::pending().await,
        }
    };
    let started = || webhook.requests().start(id, Timestamp::now());
    let settlement: Settlement = follow(run, webhook.max_run, abort, started).await;
    let settled = webhook
        .requests()
        .settle(id, settlement, Timestamp::now(), Instant::now());
    let Some(record) = settled else {
        return;
    };
    let body = callback.is_some().then(|| record.json());
    // In vain when the caller is gone or did not wait.
    let _ = tell.send(record);
    if let (Some((url, key)), Some(body)) = (callback, body) {
        webhook.callbacks.send(id, url, &key, body).await;
    }
}

fn accepted(webhook: &Webhook, record: &Record) -> Response {
    let body = json!({
        "status": "accepted",
        "requestId": record.request_id.to_string(),
        "conversationId": record.conversation_id,
        "statusUrl": webhook.endpoints.status_path(record.endpoint, record.request_id),
        "receivedAt": rfc3339(record.received_at),
    });
    json_response(StatusCode::ACCEPTED, body.to_string().into_bytes())
}

fn json_response(status: StatusCode, body: Vec<u8>) -> Response {
    let mut response = (status, Body::from(body)).into_response();
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
