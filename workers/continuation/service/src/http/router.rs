//! Which call is which, and who may make it.
//!
//! Every call is admitted in the same order: the request comes for this machine and from no page of another
//! site; the service is not stopping; the path is known; the capability fits; the body is complete. Only then
//! the capability is looked at once more and something is done.

use crate::error::Rejection;
use crate::http::body::{self, Fields, MAX_CLAIM, MAX_RESULT, Patience};
use crate::intake::Intake;
use crate::operator::{Operator, Verdict};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use continuation_record::canonical::Json;
use continuation_record::token::MAX_BEARER;
use http::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde::Serialize;
use std::sync::Arc;
use worker_web::origin::{Admission, Refused};

/// The header in which a detached service names itself.
pub const SERVICE_HEADER: &str = "x-mono-agent-service-name";
/// Longest name in it, in bytes.
const MAX_SERVICE: usize = 256;
/// Longest id of a continuation in a path.
const MAX_ID: usize = 256;

/// What answers.
#[derive(Clone)]
pub(crate) struct Surface {
    pub(crate) intake: Intake,
    pub(crate) operator: Operator,
    pub(crate) admission: Admission,
    pub(crate) patience: Patience,
    pub(crate) is_stopping: Arc<dyn Fn() -> bool + Send + Sync>,
}

/// The calls, by method and path. The document of the surface lists the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    Claim,
    Detached,
    Result(String),
    Status(String),
    List,
    Health,
    Show(String),
    Captured(String),
    Retry(String),
    Cancel(String),
    Resolve(String),
}

impl Call {
    /// Which call a request makes. A wrong method on a known path is as unknown as any path, but for what
    /// operators read.
    pub(crate) fn of(method: &Method, path: &str) -> Result<Self, Rejection> {
        let (get, post, put) = (Method::GET, Method::POST, Method::PUT);
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let call = match parts.as_slice() {
            ["v1", "continuations", "claim"] if *method == post => Some(Self::Claim),
            ["v1", "continuations", "detached", "claim"] if *method == post => Some(Self::Detached),
            ["v1", "continuations", id, "result"] if *method == post || *method == put => {
                named(id).map(Self::Result)
            }
            ["v1", "continuations", id, "status"] if *method == get => named(id).map(Self::Status),
            ["v1", "operator", "continuations"] if *method == get => Some(Self::List),
            ["v1", "operator", "health"] if *method == get => Some(Self::Health),
            ["v1", "operator", "continuations"] | ["v1", "operator", "health"] => {
                return Err(Rejection::new(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "method_not_allowed",
                    "this is read with GET",
                ));
            }
            ["v1", "operator", "continuations", id] if *method == get => named(id).map(Self::Show),
            ["v1", "operator", "continuations", id, "captured"] if *method == get => {
                named(id).map(Self::Captured)
            }
            ["v1", "operator", "continuations", id, step] if *method == post => {
                named(id).and_then(|id| match *step {
                    "retry" => Some(Self::Retry(id)),
                    "cancel" => Some(Self::Cancel(id)),
                    "resolve" => Some(Self::Resolve(id)),
                    _ => None,
                })
            }
            _ => None,
        };
        call.ok_or_else(Rejection::not_found)
    }
}

/// Ids are of letters, digits and hyphens; anything else is no id of ours.
fn named(id: &str) -> Option<String> {
    let fits = !id.is_empty()
        && id.len() <= MAX_ID
        && id
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    fits.then(|| id.to_owned())
}

/// The router: one function, so that what is unknown is refused in one place.
pub(crate) fn router(surface: Surface) -> Router {
    Router::new().fallback(serve).with_state(surface)
}

async fn serve(State(surface): State<Surface>, request: Request) -> Response {
    let mut response = match surface.answer(request).await {
        Ok(response) => response,
        Err(rejection) => refuse(&rejection),
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn refuse(rejection: &Rejection) -> Response {
    let told = serde_json::json!({
        "error": { "code": rejection.code, "message": rejection.message },
    });
    let mut response = json(rejection.status, &told);
    let headers = response.headers_mut();
    match rejection.status {
        StatusCode::METHOD_NOT_ALLOWED => {
            headers.insert(ALLOW, HeaderValue::from_static("GET"));
        }
        // What is left of such a body is not waited for.
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT => {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        _ => {}
    }
    response
}

fn json(status: StatusCode, told: &impl Serialize) -> Response {
    match serde_json::to_vec(told) {
        Ok(bytes) => {
            let kind = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
            (status, [kind], bytes).into_response()
        }
        Err(e) => {
            tracing::error!("an answer has no JSON form: {e}");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

impl Surface {
    async fn answer(&self, request: Request) -> Result<Response, Rejection> {
        let (head, body) = request.into_parts();
        self.admission
            .check(&head.uri, &head.headers)
            .map_err(|refused| foreign(&refused))?;
        // No page has any business here, not even one of this machine.
        if head.headers.contains_key(http::header::ORIGIN) {
            return Err(foreign(&Refused::Origin));
        }
        self.going()?;
        let call = Call::of(&head.method, head.uri.path())?;
        let query = head.uri.query().unwrap_or_default();
        let told = self.call(call, &head.headers, query, body).await?;
        Ok(told)
    }

    fn going(&self) -> Result<(), Rejection> {
        if (self.is_stopping)() {
            Err(Rejection::stopping())
        } else {
            Ok(())
        }
    }

    async fn read(
        &self,
        headers: &HeaderMap,
        body: Body,
        most: usize,
    ) -> Result<Vec<u8>, Rejection> {
        let bytes = body::read(headers, body, most, self.patience).await?;
        self.going()?;
        Ok(bytes)
    }

    async fn call(
        &self,
        call: Call,
        headers: &HeaderMap,
        query: &str,
        body: Body,
    ) -> Result<Response, Rejection> {
        let bearer = bearer(headers)?;
        let ok = StatusCode::OK;
        match call {
            Call::Claim => {
                let binding = self.intake.capability(bearer)?;
                let bytes = self.read(headers, body, MAX_CLAIM).await?;
                Ok(json(ok, &self.intake.claim(&binding, &bytes).await?))
            }
            Call::Detached => {
                let service = service(headers)?;
                self.intake.service(service, bearer)?;
                let bytes = self.read(headers, body, MAX_CLAIM).await?;
                Ok(json(ok, &self.intake.detached(service, &bytes).await?))
            }
            Call::Result(id) => {
                self.intake.authorize(&id, bearer)?;
                let bytes = self.read(headers, body, MAX_RESULT).await?;
                let accepted = self.intake.result(&id, bearer, &bytes).await?;
                Ok(json(StatusCode::ACCEPTED, &accepted))
            }
            Call::Status(id) => Ok(json(ok, &self.intake.status(&id, bearer)?)),
            operators => {
                self.operator.authorize(bearer)?;
                let told = self.operate(operators, headers, query, body).await?;
                Ok(json(ok, &told))
            }
        }
    }

    async fn operate(
        &self,
        call: Call,
        headers: &HeaderMap,
        query: &str,
        body: Body,
    ) -> Result<serde_json::Value, Rejection> {
        let operator = &self.operator;
        match call {
            Call::Health => operator.health(),
            Call::List => {
                let query = Query::parse(query)?;
                operator.list(query.limit.as_deref(), query.cursor.as_deref())
            }
            Call::Show(id) => operator.show(&id),
            Call::Captured(id) => operator.captured(&id),
            Call::Cancel(id) => {
                self.fields(headers, body).await?;
                operator.cancel(&id).await
            }
            Call::Retry(id) => {
                let fields = self.fields(headers, body).await?;
                let allow = match fields.as_ref().and_then(|f| f.get("allowUnknown")) {
                    None => false,
                    Some(Json::Bool(allow)) => *allow,
                    Some(_) => {
                        let message = "allowUnknown must be true or false";
                        return Err(Rejection::field("invalid_body", message));
                    }
                };
                operator.retry(&id, allow).await
            }
            Call::Resolve(id) => {
                let fields = self.fields(headers, body).await?;
                let text = |key: &str| match fields.as_ref().and_then(|fields| fields.get(key)) {
                    None => Ok(None),
                    // What is no text is no kind and no id of ours either.
                    Some(Json::Text(text)) => Ok(Some(text.as_str().unwrap_or_default())),
                    Some(_) => Verdict::parse(None, None).map(|_| None),
                };
                let verdict = Verdict::parse(text("kind")?, text("deliveryId")?)?;
                operator.resolve(&id, verdict).await
            }
            _ => Err(Rejection::not_found()),
        }
    }

    /// What an operator sends; nothing is as good as an empty object.
    async fn fields(&self, headers: &HeaderMap, body: Body) -> Result<Option<Fields>, Rejection> {
        let bytes = self.read(headers, body, MAX_CLAIM).await?;
        if bytes.is_empty() {
            return Ok(None);
        }
        Fields::parse(&bytes).map(Some)
    }
}

fn foreign(refused: &Refused) -> Rejection {
    let code = match refused {
        Refused::NoHost | Refused::Host => "forbidden_host",
        Refused::Origin => "forbidden_origin",
    };
    let message = match refused {
        Refused::Origin => "requests from web pages are refused".to_owned(),
        other => other.to_string(),
    };
    Rejection::new(StatusCode::FORBIDDEN, code, message)
}

/// The one bearer of a request.
fn bearer(headers: &HeaderMap) -> Result<&str, Rejection> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(Rejection::missing_capability());
    };
    let text = value
        .to_str()
        .map_err(|_| Rejection::invalid_capability())?;
    let (scheme, token) = text.split_once(' ').unwrap_or((text, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(Rejection::missing_capability());
    }
    let token = token.trim();
    if token.is_empty() || token.len() > MAX_BEARER {
        return Err(Rejection::invalid_capability());
    }
    Ok(token)
}

fn service(headers: &HeaderMap) -> Result<&str, Rejection> {
    let mut values = headers.get_all(SERVICE_HEADER).iter();
    let name = match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    };
    name.filter(|name| !name.trim().is_empty() && name.len() <= MAX_SERVICE)
        .ok_or_else(|| {
            Rejection::field(
                "missing_service_name",
                "a detached service names itself in X-Mono-Agent-Service-Name",
            )
        })
}

/// The query of a list; a key that comes twice is as wrong as a bad value.
#[derive(Debug, Default, PartialEq, Eq)]
struct Query {
    limit: Option<String>,
    cursor: Option<String>,
}

impl Query {
    fn parse(query: &str) -> Result<Self, Rejection> {
        let mut parsed = Self::default();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            let (slot, code) = match key.as_ref() {
                "limit" => (&mut parsed.limit, "invalid_page_limit"),
                "cursor" => (&mut parsed.cursor, "invalid_page_cursor"),
                _ => continue,
            };
            if slot.replace(value.into_owned()).is_some() {
                return Err(Rejection::field(code, "a key of the query comes twice"));
            }
        }
        Ok(parsed)
    }
}
