//! From a request to its answer: by which name, from which page, in which session, then the route.

use super::error::ApiError;
use super::hints::{Hint, Hints};
use super::input::{MAX_TURN_FILES, NewTurn};
use super::keeper::Keeper;
use super::login::set_cookie;
use super::operator::{Lookout, Operator};
use super::query::{cursor, limit, number, parameter};
use super::shown::shown;
use super::turn::now;
use super::turns::Turns;
use super::uploads::{MAX_FILE, Uploads};
use super::{Names, Sessions, apps, continuations, files, pages, proxy, streams};
use crate::intake::{Intake, refuse};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, ORIGIN, REFERRER_POLICY,
    SET_COOKIE, USER_AGENT, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use ipc_proto::console::{Ask, Found, MAX_ATTACHMENTS, Message, SearchPage, ThreadView};
use ipc_proto::console::{Thread, ThreadPage};
use ipc_proto::settings::ConsoleSettings;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use uuid::Uuid;

/// Largest JSON body in bytes (facts 2.9).
pub const MAX_JSON: usize = 256 * 1024;
/// Longest message in characters; what doesn't fit into a body in bytes is refused too.
pub const MAX_MESSAGE_CHARS: usize = 200_000;
/// KiB of all bodies held at once, over all connections.
const BODY_BUDGET_KIB: usize = 96 * 1024;
/// Longest time for an answer that is no stream (facts 2.9).
const REQUEST_TIME: Duration = Duration::from_secs(300);
/// Streams at once (facts 2.9).
pub const MAX_STREAMS: usize = 64;
/// Bytes of a body over its bound that are read and dropped.
const MAX_DRAIN: usize = 32 * 1024 * 1024;
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
/// Addresses that the page has a view for.
const VIEWS: [&str; 7] = [
    "search",
    "runs",
    "continuations",
    "workers",
    "files",
    "settings",
    "t",
];

/// What the routes need to know.
pub struct Console {
    settings: ConsoleSettings,
    names: Names,
    keeper: Arc<Keeper>,
    sessions: Arc<Sessions>,
    turns: Arc<Turns>,
    hints: Arc<Hints>,
    uploads: Arc<Mutex<Uploads>>,
    apps: apps::Apps,
    intake: Intake,
    streams: Arc<Semaphore>,
    downloads: Arc<Semaphore>,
    operator: Operator,
    stopping: watch::Receiver<bool>,
}

/// What a console is made of.
pub struct Pieces {
    /// The part of the configuration that it needs.
    pub settings: ConsoleSettings,
    /// What browsers may call it by.
    pub names: Names,
    /// The ways to the owners.
    pub keeper: Arc<Keeper>,
    /// Who is logged in.
    pub sessions: Arc<Sessions>,
    /// The turns.
    pub turns: Arc<Turns>,
    /// The open pages.
    pub hints: Arc<Hints>,
    /// Who shows the daemon.
    pub lookout: Arc<dyn Lookout>,
    /// Turns true when no more requests are taken.
    pub stopping: watch::Receiver<bool>,
}

/// The routes of docs/protocols.md, "The web console".
pub fn router(pieces: Pieces) -> Router {
    let Pieces {
        settings,
        names,
        keeper,
        sessions,
        turns,
        hints,
        lookout,
        stopping,
    } = pieces;
    let apps = apps::Apps::new(keeper.clone(), hints.clone(), turns.clone());
    let console = Console {
        apps,
        settings,
        names,
        keeper,
        sessions,
        turns,
        hints,
        uploads: Arc::default(),
        intake: Intake::new(BODY_BUDGET_KIB),
        streams: Arc::new(Semaphore::new(MAX_STREAMS)),
        downloads: Arc::new(Semaphore::new(files::MAX_DOWNLOADS)),
        operator: Operator::new(lookout),
        stopping,
    };
    Router::new().fallback(serve).with_state(Arc::new(console))
}

async fn serve(State(console): State<Arc<Console>>, request: Request) -> Response {
    let (parts, mut body) = request.into_parts();
    let result = in_time(console.dispatch(&parts, &mut body)).await;
    let mut response = match result {
        Ok(response) => response,
        Err(error) => refuse(body, error.into_response(), MAX_DRAIN).await,
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (OPENER_POLICY, "same-origin"),
        (RESOURCE_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // Where nothing else was said: data that is neither kept nor ever a page.
    let rest = [
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
        (
            CONTENT_SECURITY_POLICY,
            "default-src 'none'; frame-ancestors 'none'",
        ),
    ];
    for (name, value) in rest {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    response
}

/// What takes longer than a request may is given up.
async fn in_time<T>(answer: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
    let late = || ApiError::new(503, "too_slow", "The answer took too long.");
    tokio::time::timeout(REQUEST_TIME, answer)
        .await
        .unwrap_or_else(|_| Err(late()))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(status: StatusCode, value: &Value) -> Response {
    let headers = [(CONTENT_TYPE, "application/json")];
    (status, headers, Body::from(value.to_string())).into_response()
}

fn ok(value: &Value) -> Response {
    answer(StatusCode::OK, value)
}

fn value<T: serde::Serialize>(of: &T) -> Value {
    serde_json::to_value(of).unwrap_or_default()
}

fn done() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ThreadEdit {
    title: Option<String>,
    archived: Option<bool>,
    read: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TurnWish {
    #[serde(default)]
    text: String,
    #[serde(default)]
    attachments: Vec<String>,
    replaces: Option<String>,
    model: Option<String>,
    effort: Option<String>,
    /// Views whose context goes with it.
    #[serde(default)]
    apps: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StopWish {
    message_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct UploadWish {
    name: String,
    #[serde(default)]
    media_type: String,
    bytes: u64,
}

impl Console {
    async fn dispatch(&self, parts: &Parts, body: &mut Body) -> Result<Response, ApiError> {
        self.names.check_host(&parts.uri, &parts.headers)?;
        let path = parts.uri.path();
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let get = parts.method == Method::GET;
        match segments.as_slice() {
            ["healthz"] if get => Ok("ok\n".into_response()),
            ["assets", name] if get => {
                Ok(pages::asset(name, &parts.headers).unwrap_or_else(pages::nothing))
            }
            ["login", token] => self.login(parts, token).await,
            ["api", "v1", rest @ ..] => self.api(parts, rest, body).await,
            [""] if get => self.view(parts).await,
            [first, rest @ ..] if get && VIEWS.contains(first) && rest.len() < 2 => {
                self.view(parts).await
            }
            _ => Ok(pages::nothing()),
        }
    }

    async fn view(&self, parts: &Parts) -> Result<Response, ApiError> {
        Ok(match self.sessions.admit(&parts.headers).await? {
            Some(_) => pages::shell(&parts.headers),
            None => pages::who_are_you(),
        })
    }

    async fn login(&self, parts: &Parts, token: &str) -> Result<Response, ApiError> {
        match parts.method {
            Method::GET if self.sessions.holds_link(token) => return Ok(pages::welcome()),
            Method::GET => return Ok(pages::stale_link()),
            Method::POST => {}
            _ => return Ok(pages::nothing()),
        }
        // A form can't send a header of ours; what it says of its page it can't choose.
        self.names.check_page(&parts.headers)?;
        let user_agent = parts.headers.get(USER_AGENT);
        let user_agent = user_agent.and_then(|v| v.to_str().ok()).unwrap_or_default();
        let Some(secret) = self.sessions.log_in(token, user_agent).await? else {
            return Ok(pages::stale_link());
        };
        let origin = parts.headers.get(ORIGIN);
        let secure = origin.is_some_and(|origin| origin.as_bytes().starts_with(b"https://"));
        let cookie = set_cookie(&secret, secure);
        let headers = [(LOCATION, "/".to_owned()), (SET_COOKIE, cookie)];
        Ok((StatusCode::SEE_OTHER, headers).into_response())
    }

    async fn api(
        &self,
        parts: &Parts,
        path: &[&str],
        body: &mut Body,
    ) -> Result<Response, ApiError> {
        let reading = matches!(parts.method, Method::GET | Method::HEAD);
        if reading {
            self.names.check_page(&parts.headers)?;
        } else {
            self.names.check_change(&parts.headers)?;
        }
        let session = self.sessions.admit(&parts.headers).await?.ok_or_else(|| {
            let message = "Log in first: run \"monoctl console open\".";
            ApiError::new(401, "login_required", message)
        })?;
        let method = parts.method.as_str();
        match (method, path) {
            ("GET", ["bootstrap"]) => Ok(ok(&self.bootstrap(&session))),
            ("POST", ["logout"]) => {
                self.sessions.end(&session).await?;
                let cookie = [(SET_COOKIE, set_cookie("", false))];
                Ok((StatusCode::NO_CONTENT, cookie).into_response())
            }
            ("GET", ["sessions"]) => Ok(ok(&self.sessions.list(Some(&session)))),
            ("DELETE", ["sessions", id]) => {
                self.sessions.end(id).await?;
                Ok(done())
            }
            ("GET", ["events"]) => {
                let client = self.stream_client(session)?;
                Ok(streams::hints(client, self.hints.subscribe()))
            }
            ("GET", ["mcp-app-proxy"]) => Ok(proxy::document()),
            ("GET", ["search"]) => self.search(parts).await,
            ("GET", ["messages", message, "attachments", part]) => {
                let integrity = parameter(parts, "integrity")
                    .ok_or_else(|| ApiError::invalid("\"integrity\" is missing."))?;
                files::download(&self.keeper, &self.downloads, (message, part), &integrity).await
            }
            (
                "PUT",
                [
                    "messages",
                    message,
                    "apps",
                    part,
                    "views",
                    view,
                    "files",
                    file,
                ],
            ) => {
                let capability = apps::capability(&parts.headers);
                let (bytes, _held) = self
                    .intake
                    .read(&parts.headers, body, ipc_proto::apps::MAX_FILE)
                    .await?;
                let app = (*message, *part);
                self.apps.hand(app, (view, file), capability, bytes).await
            }
            ("GET", ["messages", message, "apps", part, "files"]) => {
                self.apps.files((message, part)).await
            }
            ("GET", ["messages", message, "apps", part, "files", id]) => {
                let integrity = parameter(parts, "integrity")
                    .ok_or_else(|| ApiError::invalid("\"integrity\" is missing."))?;
                let app = (*message, *part);
                self.apps.file(&self.downloads, app, id, &integrity).await
            }
            (method, ["messages", message, "apps", part, rest @ ..]) => {
                let taken = match method {
                    "POST" => Some(
                        self.intake
                            .read(&parts.headers, body, apps::MAX_BODY)
                            .await?,
                    ),
                    _ => None,
                };
                let bytes = taken.as_ref().map(|(bytes, _held)| &bytes[..]);
                let bytes = bytes.unwrap_or_default();
                let app = (*message, *part);
                self.apps
                    .serve(method, app, rest, &parts.headers, bytes)
                    .await
            }
            (_, ["threads", rest @ ..]) => self.threads(parts, rest, body, session).await,
            (_, ["uploads", rest @ ..]) => self.upload(parts, rest, body).await,
            ("GET", ["operator", rest @ ..]) => Ok(ok(&self.operator.show(parts, rest).await?)),
            ("POST", ["operator", rest @ ..]) => {
                let most = continuations::MAX_BODY;
                let (bytes, _held) = self.intake.read(&parts.headers, body, most).await?;
                let stands = self.operator.change(rest, &bytes).await?;
                self.hints.tell(&Hint::Status);
                Ok(ok(&stands))
            }
            _ => Err(ApiError::not_found("address")),
        }
    }

    fn bootstrap(&self, session: &str) -> Value {
        let settings = &self.settings;
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "agent": {
                "label": settings.label, "model": settings.model, "models": settings.models,
            },
            "limits": {
                "attachmentBytes": MAX_FILE, "attachments": MAX_ATTACHMENTS,
                "attachmentsBytes": MAX_TURN_FILES, "messageChars": MAX_MESSAGE_CHARS,
            },
            "session": { "id": session },
            "capabilities": {
                "attachments": true, "mcpApps": apps::capabilities(settings.shows_apps),
                "replyAttachments": { "version": 1, "maxBytes": settings.max_reply_bytes },
            },
        })
    }

    fn stream_client(&self, session: String) -> Result<streams::Client, ApiError> {
        let permit = self.streams.clone().try_acquire_owned().map_err(|_| {
            let message = "Too many pages are open. Close one and load this one again.";
            ApiError::new(503, "sse_capacity", message)
        })?;
        Ok(streams::Client {
            permit,
            session,
            sessions: self.sessions.clone(),
            stopping: self.stopping.clone(),
        })
    }

    async fn json<T: DeserializeOwned>(
        &self,
        parts: &Parts,
        body: &mut Body,
    ) -> Result<T, ApiError> {
        let (bytes, _held) = self.intake.read(&parts.headers, body, MAX_JSON).await?;
        serde_json::from_slice(&bytes)
            .map_err(|e| ApiError::invalid(format!("The body can't be read: {e}.")))
    }

    async fn search(&self, parts: &Parts) -> Result<Response, ApiError> {
        let ask = Ask::Search {
            query: parameter(parts, "q").unwrap_or_default(),
            limit: limit(parts, 20)?,
            cursor: cursor(parts, "cursor"),
        };
        let page: SearchPage = self.keeper.ask(&ask).await?;
        Ok(ok(&value(&page)))
    }

    async fn threads(
        &self,
        parts: &Parts,
        path: &[&str],
        body: &mut Body,
        session: String,
    ) -> Result<Response, ApiError> {
        match (parts.method.as_str(), path) {
            ("GET", []) => {
                let archived = match parameter(parts, "state").as_deref() {
                    None | Some("" | "active") => false,
                    Some("archived") => true,
                    Some(_) => {
                        return Err(ApiError::invalid("\"state\" is active or archived."));
                    }
                };
                let ask = Ask::Threads {
                    archived,
                    limit: limit(parts, 50)?,
                    cursor: cursor(parts, "cursor"),
                };
                let page: ThreadPage = self.keeper.ask(&ask).await?;
                Ok(ok(&value(&page)))
            }
            ("POST", []) => {
                let id = Uuid::now_v7().simple().to_string();
                let thread: Thread = self.keeper.ask(&Ask::NewThread { id }).await?;
                self.hints.tell(&Hint::Threads);
                Ok(answer(StatusCode::CREATED, &value(&thread)))
            }
            ("GET", [id]) => self.thread(parts, id).await,
            ("PATCH", [id]) => {
                let edit: ThreadEdit = self.json(parts, body).await?;
                let ask = Ask::EditThread {
                    id: (*id).to_owned(),
                    title: edit.title,
                    archived: edit.archived,
                    read: edit.read,
                };
                let thread: Thread = self.keeper.ask(&ask).await?;
                self.hints.tell(&Hint::Threads);
                Ok(ok(&value(&thread)))
            }
            ("DELETE", [id]) => {
                let id = (*id).to_owned();
                self.keeper.ask::<()>(&Ask::RemoveThread { id }).await?;
                self.hints.tell(&Hint::Threads);
                Ok(done())
            }
            ("POST", [id, "turns"]) => {
                let wish: TurnWish = self.json(parts, body).await?;
                self.turn(id, wish).await
            }
            ("POST", [id, "cancel"]) => {
                let wish: StopWish = self.json(parts, body).await?;
                // Not with the request: a browser that leaves must not leave it half done.
                let (turns, thread) = (self.turns.clone(), (*id).to_owned());
                let stop = async move {
                    let reply = wish.message_id.as_deref();
                    let here = turns.stop(&thread, reply).await;
                    Ok::<_, ApiError>(here || turns.stop_elsewhere(&thread, reply).await?)
                };
                if !tokio::spawn(stop).await.unwrap_or(Ok(false))? {
                    return Err(ApiError::not_found("answer that is being written"));
                }
                Ok(answer(StatusCode::ACCEPTED, &json!({})))
            }
            ("GET", [id, "stream"]) => self.stream(parts, id, session).await,
            ("GET", [id, "files", file]) => {
                let needed = |name: &str| {
                    let missing = || ApiError::invalid(format!("\"{name}\" is missing."));
                    parameter(parts, name).ok_or_else(missing)
                };
                let app = parameter(parts, "app");
                let wanted = files::Wanted::of_thread(
                    (*id, *file),
                    &needed("run")?,
                    needed("integrity")?,
                    app,
                )?;
                files::fetch(&self.keeper, &self.downloads, wanted).await
            }
            _ => Err(ApiError::not_found("address")),
        }
    }

    async fn thread(&self, parts: &Parts, id: &str) -> Result<Response, ApiError> {
        let ask = Ask::ShowThread {
            id: id.to_owned(),
            before: cursor(parts, "before"),
            limit: limit(parts, 50)?,
        };
        let view: ThreadView = self.keeper.ask(&ask).await?;
        let messages = view.messages.into_iter().map(|message| self.shown(message));
        Ok(ok(&json!({
            "thread": view.thread,
            "messages": messages.collect::<Vec<_>>(),
            "previous": view.previous,
        })))
    }

    /// Where an answer stands that is written here is known here first.
    fn shown(&self, mut message: Message) -> Value {
        if let Some(turn) = self.turns.of_reply(&message.id) {
            match turn.ended() {
                Some(ended) => message = ended,
                None => {
                    message.status = turn.standing();
                    message.failure = None;
                }
            }
        }
        shown(&message)
    }

    async fn turn(&self, thread: &str, wish: TurnWish) -> Result<Response, ApiError> {
        if wish.text.chars().count() > MAX_MESSAGE_CHARS {
            let message = "The message is too long. Attach it as a file.";
            return Err(ApiError::too_large(message));
        }
        if wish.text.trim().is_empty() && wish.attachments.is_empty() {
            return Err(ApiError::invalid("The message is empty."));
        }
        if wish.attachments.len() > MAX_ATTACHMENTS {
            return Err(ApiError::invalid("A message has at most 10 files."));
        }
        if wish.apps.len() > apps::MAX_TAKEN {
            return Err(ApiError::invalid(
                "A message takes the context of at most 8 apps.",
            ));
        }
        if let Some(model) = &wish.model
            && !self.settings.models.contains(model)
        {
            return Err(ApiError::invalid("This model is not configured."));
        }
        let files = locked(&self.uploads).take(&wish.attachments)?;
        let bytes: u64 = files.iter().map(|(about, _)| about.bytes).sum();
        if bytes > MAX_TURN_FILES {
            let message = "The files of a message may have at most 22 MiB together.";
            return Err(ApiError::new(413, "attachments_too_large", message));
        }
        let taken = self.apps.take(thread, &wish.apps)?;
        let new = NewTurn {
            text: wish.text,
            files,
            replaces: wish.replaces,
            model: wish.model,
            effort: wish.effort,
            context: taken.told(),
        };
        let uploads = self.uploads.clone();
        let started = self.turns.start(thread.to_owned(), new, uploads).await;
        if started.is_err() {
            self.apps.give_back(taken);
        }
        let (user, reply) = started?;
        let body = json!({ "message": shown(&user), "reply": shown(&reply) });
        Ok(answer(StatusCode::ACCEPTED, &body))
    }

    async fn stream(
        &self,
        parts: &Parts,
        thread: &str,
        session: String,
    ) -> Result<Response, ApiError> {
        let message = parameter(parts, "message")
            .ok_or_else(|| ApiError::invalid("\"message\" is missing."))?;
        // A browser that connects again by itself says so in a header.
        let again = parts.headers.get("last-event-id");
        let again = again.and_then(|v| v.to_str().ok()?.parse().ok());
        let after = again.or(number(parts, "after")?).unwrap_or(0);
        let ask = Ask::ShowMessage {
            id: message.clone(),
        };
        let found: Found = self.keeper.ask(&ask).await?;
        if found.thread != thread {
            return Err(ApiError::not_found("message in this thread"));
        }
        let client = self.stream_client(session)?;
        Ok(match self.turns.of_reply(&message) {
            Some(turn) => streams::frames(client, turn, after),
            None => streams::stored(client, self.keeper.clone(), found),
        })
    }

    async fn upload(
        &self,
        parts: &Parts,
        path: &[&str],
        body: &mut Body,
    ) -> Result<Response, ApiError> {
        match (parts.method.as_str(), path) {
            ("POST", []) => {
                let wish: UploadWish = self.json(parts, body).await?;
                let mut uploads = locked(&self.uploads);
                let id = uploads.announce(&wish.name, &wish.media_type, wish.bytes, now())?;
                Ok(answer(StatusCode::CREATED, &json!({ "id": id })))
            }
            ("PUT", [id, "content"]) => {
                let announced = locked(&self.uploads).announced(id)?;
                let most = usize::try_from(announced).unwrap_or(0);
                let (bytes, _held) = self.intake.read(&parts.headers, body, most).await?;
                let (about, hash) = locked(&self.uploads).fill(id, bytes)?;
                let mut about = value(&about);
                about["sha256"] = hash.into();
                Ok(ok(&about))
            }
            ("DELETE", [id]) => {
                locked(&self.uploads).remove(id);
                Ok(done())
            }
            _ => Err(ApiError::not_found("address")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn a_request_is_given_up_after_five_minutes() {
        let start = Instant::now();
        let after = |secs| async move {
            tokio::time::sleep(Duration::from_secs(secs)).await;
            Ok(secs)
        };
        assert_eq!(in_time(after(299)).await, Ok(299));
        let late = in_time(after(301)).await.unwrap_err();
        assert_eq!((late.status, &*late.code), (503, "too_slow"));
        assert_eq!(start.elapsed().as_secs(), 299 + 300);
    }
}
