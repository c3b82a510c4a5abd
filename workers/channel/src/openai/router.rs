//! The routes: admission first, then the key, then the body within bounds.

use super::error::ApiError;
use super::reply::Head;
use super::request;
use super::stream::{self, QUEUE, Translator};
use crate::bearer::Bearer;
use crate::intake::{Intake, Unread, refuse};
use crate::runs::{ActiveRun, Runs, Wish};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use ipc_proto::ConversationId;
use ipc_proto::edges::control::Trigger;
use ipc_proto::rooms::{OPENAI, Reserved};
use ipc_proto::settings::OpenaiSettings;
use serde::Serialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
use uuid::Uuid;
use worker_web::listener::Remote;
use worker_web::origin::{Admission, Refused};

/// Largest request body in bytes (facts of the channel: 1 MB).
pub const MAX_BODY: usize = 1024 * 1024;
/// KiB of all bodies held at once, over all connections.
const BODY_BUDGET_KIB: usize = 64 * 1024;
/// The one route that needs no key.
const HEALTH: &str = "/healthz";

/// What the routes need to know.
pub struct Api {
    base: String,
    model_id: String,
    reserved: Reserved,
    admission: Admission,
    bearer: Option<Bearer>,
    intake: Intake,
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
            reserved: settings.reserved.clone(),
            admission,
            bearer,
            intake: Intake::new(BODY_BUDGET_KIB),
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
        Some(error) => refuse(request.into_body(), error.into_response(), MAX_BODY).await,
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
    let (parts, mut body) = request.into_parts();
    let (body, held) = match shared
        .api
        .intake
        .read(&parts.headers, &mut body, MAX_BODY)
        .await
    {
        Ok(read) => read,
        Err(unread) => {
            let error = ApiError::from(unread).into_response();
            return Err(refuse(body, error, unread.drain()).await);
        }
    };
    let request = request::parse(
        &body,
        &parts.headers,
        &shared.api.model_id,
        &shared.api.reserved,
    )
    .map_err(IntoResponse::into_response)?;
    drop(body);
    let conversation = match request.conversation {
        Some(conversation) => conversation,
        None => ConversationId::parse(&format!("{OPENAI}{id}"))
            .map_err(|e| ApiError::invalid("conversation_id", e.to_string()).into_response())?,
    };
    let wish = Wish {
        conversation,
        delivery: None,
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

impl From<Unread> for ApiError {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::TooLarge => Self::too_large(MAX_BODY),
            Unread::Overloaded => Self::overloaded(),
            Unread::TooSlow => Self::too_slow(),
            Unread::BrokenOff => Self::unreadable("The request body broke off."),
        }
    }
}
