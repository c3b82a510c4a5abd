//! The routes: admission first, then the key, then the body within bounds.

use super::error::ApiError;
use super::reply::Head;
use super::request;
use super::stream::{self, QUEUE, Translator};
use crate::bearer::Bearer;
use crate::runs::{ActiveRun, Runs, Wish};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::HeaderValue;
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, X_CONTENT_TYPE_OPTIONS,
};
use http_body_util::BodyExt;
use ipc_proto::ConversationId;
use ipc_proto::edges::control::Trigger;
use ipc_proto::settings::OpenaiSettings;
use serde::Serialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use uuid::Uuid;
use worker_web::listener::Remote;
use worker_web::origin::{Admission, Refused};

/// Largest request body in bytes (facts of the channel: 1 MB).
pub const MAX_BODY: usize = 1024 * 1024;
/// Bytes of a body over the bound that are read and dropped, so that a client that writes first
/// and reads afterwards sees the refusal and not a reset connection.
const MAX_DRAIN: usize = 128 * 1024 * 1024;
/// Time for a whole body.
const BODY_TIME: Duration = Duration::from_secs(30);
/// KiB of all bodies held at once, over all connections.
const BODY_BUDGET_KIB: usize = 64 * 1024;
/// The one route that needs no key.
const HEALTH: &str = "/healthz";

/// What the routes need to know.
pub struct Api {
    base: String,
    model_id: String,
    admission: Admission,
    bearer: Option<Bearer>,
    budget: Semaphore,
}

impl Api {
    /// Checks the settings against the address that is really bound.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn new(
        settings: &OpenaiSettings,
        admission: Admission,
        bearer: Option<Bearer>,
    ) -> Result<Self, String> {
        if bearer.is_none() && !admission.is_loopback() {
            return Err(
                "openaiApi.apiKey is required on an address that other machines reach; set it or \
                 bind openaiApi.host to 127.0.0.1"
                    .to_owned(),
            );
        }
        let base = settings.base_path.trim_matches('/');
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._~/".contains(c);
        if !base.chars().all(plain) || base.contains("//") {
            return Err(format!(
                "openaiApi.basePath {base:?} may hold letters, digits, - . _ ~ and / only"
            ));
        }
        Ok(Self {
            base: if base.is_empty() {
                String::new()
            } else {
                format!("/{base}")
            },
            model_id: settings.model_id.clone(),
            admission,
            bearer,
            budget: Semaphore::new(BODY_BUDGET_KIB),
        })
    }
}

#[derive(Clone)]
struct Shared {
    api: Arc<Api>,
    runs: Arc<dyn Runs>,
}

/// The routes of facts 2.3, and one for health checks.
pub fn router(api: Api, runs: Arc<dyn Runs>) -> Router {
    let base = api.base.clone();
    let whole = if base.is_empty() { "/" } else { &base };
    let shared = Shared {
        api: Arc::new(api),
        runs,
    };
    Router::new()
        .route(HEALTH, get(|| async { json_response("{\"ok\":true}") }))
        .route(&format!("{base}/models"), get(models))
        .route(&format!("{base}/chat/completions"), post(chat))
        .route(whole, post(chat))
        .fallback(|| async { ApiError::unknown_route() })
        .method_not_allowed_fallback(|| async { ApiError::wrong_method() })
        .layer(middleware::from_fn_with_state(shared.clone(), admit))
        .with_state(shared)
}

/// Lets a request through to its route.
async fn admit(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let api = &shared.api;
    let refusal = match api.admission.check(request.uri(), request.headers()) {
        Err(refused @ Refused::NoHost) => Some(ApiError::forbidden(400, refused.to_string())),
        Err(refused) => Some(ApiError::forbidden(403, refused.to_string())),
        Ok(()) => match &api.bearer {
            Some(bearer)
                if request.uri().path() != HEALTH && !bearer.accepts(request.headers()) =>
            {
                Some(ApiError::unauthorised())
            }
            _ => None,
        },
    };
    let mut response = match refusal {
        Some(error) => refuse(request.into_body(), error, MAX_BODY).await,
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

#[derive(Serialize)]
struct Models<'a> {
    object: &'static str,
    data: [Model<'a>; 1],
}

#[derive(Serialize)]
struct Model<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
}

async fn models(State(shared): State<Shared>) -> Response {
    let model = Model {
        id: &shared.api.model_id,
        object: "model",
        created: 0,
        owned_by: "mono-agent",
    };
    let list = Models {
        object: "list",
        data: [model],
    };
    json_response(serde_json::to_string(&list).unwrap_or_default())
}

async fn chat(State(shared): State<Shared>, request: Request) -> Response {
    let request_id = Uuid::new_v4();
    let mut response = match answer(&shared, request, request_id).await {
        Ok(response) | Err(response) => response,
    };
    if let Ok(value) = HeaderValue::from_str(&request_id.to_string()) {
        response.headers_mut().insert("x-request-id", value);
    }
    response
}

async fn answer(shared: &Shared, request: Request, id: Uuid) -> Result<Response, Response> {
    let remote = request
        .extensions()
        .get::<Remote>()
        .map(|Remote(address)| address.to_string());
    let (parts, body) = request.into_parts();
    let (body, held) = read_body(&shared.api, &parts.headers, body).await?;
    let request = request::parse(&body, &parts.headers, &shared.api.model_id)
        .map_err(IntoResponse::into_response)?;
    drop(body);
    let conversation = match request.conversation {
        Some(conversation) => conversation,
        None => ConversationId::parse(&format!("openai-api:{id}"))
            .map_err(|e| ApiError::invalid("conversation_id", e.to_string()).into_response())?,
    };
    let wish = Wish {
        conversation,
        trigger: Trigger {
            source: "openai".to_owned(),
            detail: remote,
        },
        input: request.input,
    };
    let run = ActiveRun::start(shared.runs.clone(), wish)
        .await
        .map_err(|e| ApiError::from(e).into_response())?;
    drop(held);
    let created = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    let head = Head {
        id: format!("chatcmpl-{id}"),
        created,
        model: shared.api.model_id.clone(),
    };
    if !request.stream {
        return match stream::collect(run, &head).await {
            Ok(completion) => Ok(json_response(completion)),
            Err(error) => Err(error.into_response()),
        };
    }
    let (client, chunks) = mpsc::channel(QUEUE);
    tokio::spawn(stream::feed(
        run,
        Translator::new(head, request.include_usage),
        client,
    ));
    let chunks = futures_util::stream::unfold(chunks, |mut chunks| async {
        chunks
            .recv()
            .await
            .map(|chunk| (Ok::<_, Infallible>(chunk), chunks))
    });
    let mut response = Body::from_stream(chunks).into_response();
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream; charset=utf-8"),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // nginx would collect the stream before it passes it on.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

fn json_response(body: impl Into<Body>) -> Response {
    let mut response = body.into().into_response();
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Reads a body within the bounds of size, time and memory. The permit is the memory.
async fn read_body<'a>(
    api: &'a Api,
    headers: &HeaderMap,
    mut body: Body,
) -> Result<(Vec<u8>, Option<SemaphorePermit<'a>>), Response> {
    let announced = headers
        .get(CONTENT_LENGTH)
        .and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > MAX_BODY as u64) {
        return Err(refuse(body, ApiError::too_large(MAX_BODY), MAX_DRAIN).await);
    }
    let mut bytes = Vec::new();
    let mut held: Option<SemaphorePermit<'a>> = None;
    let reading = async {
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| ())?.into_data() else {
                continue;
            };
            if bytes.len() + data.len() > MAX_BODY {
                return Ok(Some(ApiError::too_large(MAX_BODY)));
            }
            let wanted = (bytes.len() + data.len()).div_ceil(1024);
            let more = wanted - held.as_ref().map_or(0, SemaphorePermit::num_permits);
            match api
                .budget
                .try_acquire_many(u32::try_from(more).unwrap_or(u32::MAX))
            {
                Ok(permit) => match &mut held {
                    Some(held) => held.merge(permit),
                    None => held = Some(permit),
                },
                Err(_) => return Ok(Some(ApiError::overloaded())),
            }
            bytes.extend_from_slice(&data);
        }
        Ok::<_, ()>(None)
    };
    match tokio::time::timeout(BODY_TIME, reading).await {
        Ok(Ok(None)) => Ok((bytes, held)),
        Ok(Ok(Some(error))) => {
            drop((bytes, held));
            Err(refuse(body, error, MAX_DRAIN).await)
        }
        Ok(Err(())) => Err(ApiError::unreadable("The request body broke off.").into_response()),
        Err(_) => Err(refuse(body, ApiError::too_slow(), 0).await),
    }
}

/// Answers with an error after dropping what the client still sends, at most `most` bytes.
async fn refuse(mut body: Body, error: ApiError, most: usize) -> Response {
    let mut dropped = 0;
    let draining = async {
        while dropped < most
            && let Some(Ok(frame)) = body.frame().await
        {
            dropped += frame.data_ref().map_or(0, bytes::Bytes::len);
        }
    };
    // In vain when it takes longer: the refusal goes out and the connection ends.
    let _ = tokio::time::timeout(BODY_TIME, draining).await;
    let mut response = error.into_response();
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
