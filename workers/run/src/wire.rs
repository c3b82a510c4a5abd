//! The real owners behind [`crate::owners`]: one channel each, as the supervisor granted them.

pub(crate) mod channels;
mod claims;
mod drafts;
mod posts;

pub use channels::WireError;

use crate::owners::{
    Artifacts, Denied, Events, Fetch, Fetched, Handover, Lost, Mcp, McpCall, McpEvent, Model,
    ModelEvent, ModelStream, NobodyListens, Publication, Store, Watch,
};
use channels::{Channels, say};
use ipc_proto::channel::{CallError, Replies};
use ipc_proto::chat::{MAX_MODEL_REQUEST, ModelRequest};
use ipc_proto::edges::app_bridge::{
    self, AppBridge, MAX_LISTING, MAX_RESULT, McpWarning, ToolListing,
};
use ipc_proto::edges::artifact::{self, Artifact};
use ipc_proto::edges::continuation::Continuation;
use ipc_proto::edges::control::{EdgeName, Trigger};
use ipc_proto::edges::egress::{self, Egress};
use ipc_proto::edges::events::RunEvent;
use ipc_proto::edges::store::{self, History, RunCommit, RunFailure};
use ipc_proto::reply::ReplyPart;
use ipc_proto::request_context::AttachedFile;
use ipc_proto::{Body, Client, Edge, EventSender, Role};
use posts::Posts;
use serde_json::Value;
use std::collections::VecDeque;
use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Time for the store to make something durable.
const STORE_TIME: Duration = Duration::from_secs(30);
/// Time to copy and hash 20 MiB on a slow disk, or to have all that was published on it.
const PUBLISH_TIME: Duration = Duration::from_secs(120);
/// Time to take back what was published.
const SETTLE_TIME: Duration = Duration::from_secs(60);
/// Time for a page; egress itself gives up earlier.
const FETCH_TIME: Duration = Duration::from_secs(60);
/// Time for all servers' lists; the turn itself goes on without them a little earlier.
const LIST_TIME: Duration = Duration::from_secs(65);
/// Bytes of the history: 64 messages of 64 KiB, and the account.
const MAX_HISTORY: usize = 16 * 1024 * 1024;
/// Bytes of one call's arguments.
const MAX_ARGUMENTS: usize = 8 * 1024 * 1024;
/// Bytes of a fetched body.
const MAX_PAGE: usize = 5 * 1024 * 1024;
/// Bytes of the parts of a reply.
const MAX_PARTS_BODY: usize = 256 * 1024;

/// The channels of one run.
#[derive(Debug)]
pub struct Wire {
    store: Client<store::Store>,
    artifact: Client<Artifact>,
    egress: Client<Egress>,
    bridge: Client<AppBridge>,
    /// What servers post, once it was asked for.
    posts: Posts,
    /// Only where servers may claim.
    claims: Option<Client<Continuation>>,
    events: EventSender,
    trigger: Trigger,
}

impl Wire {
    /// Takes the channels of an assignment. Others than these are closed.
    ///
    /// # Errors
    /// When one is missing or can't be used.
    pub fn new(
        channels: Vec<(EdgeName, OwnedFd)>,
        reader: Role,
        trigger: Trigger,
    ) -> Result<Self, WireError> {
        let mut channels = Channels(channels);
        Ok(Self {
            store: channels.client(EdgeName::Store, Role::Store)?,
            artifact: channels.client(EdgeName::Artifact, Role::Artifact)?,
            egress: channels.client(EdgeName::Egress, Role::Egress)?,
            bridge: channels.client(EdgeName::AppBridge, Role::AppBridge)?,
            posts: Posts::default(),
            claims: channels.client_if_there(EdgeName::Continuation, Role::Continuation)?,
            events: channels.events(reader)?,
            trigger,
        })
    }

    /// Waits until nobody reads the events any more.
    pub async fn nobody_listens(&self) {
        self.events.closed().await;
    }

    async fn ask_store(
        &self,
        request: store::Request,
        body: Option<OwnedFd>,
    ) -> Result<Answer<store::Store>, Lost> {
        let fds: Vec<OwnedFd> = body.into_iter().collect();
        self.store
            .call(&request, &fds, STORE_TIME)
            .await
            .map_err(lost(STORE))
    }

    async fn ask_artifact(
        &self,
        request: artifact::Request,
        fds: &[OwnedFd],
        time: Duration,
    ) -> Result<Answer<Artifact>, CallError> {
        self.artifact.call(&request, fds, time).await
    }
}

type Answer<E> = (<E as Edge>::Reply, VecDeque<OwnedFd>);

const STORE: &str = "store";
const ARTIFACT: &str = "artifact";
pub(crate) const EGRESS: &str = "egress";
const BRIDGE: &str = "app-bridge";

fn lost(worker: &'static str) -> impl Fn(CallError) -> Lost {
    move |error| {
        let refusal = match &error {
            CallError::Fault(fault) => Some(fault.code.clone()),
            _ => None,
        };
        Lost {
            worker,
            refusal,
            detail: error.to_string(),
        }
    }
}

/// A worker that has closed its channel.
pub(crate) fn gone(worker: &'static str) -> Lost {
    Lost {
        worker,
        refusal: None,
        detail: "its channel ended".to_owned(),
    }
}

/// An answer that the edge has, but not for this request, or a body that is not what it says: the
/// worker can't be trusted with the rest of the turn.
fn broken(worker: &'static str, detail: impl Display) -> Lost {
    Lost {
        worker,
        refusal: None,
        detail: format!("its answer makes no sense: {detail}"),
    }
}

/// Our own side failed to pack a body: no memory or no descriptor left.
fn unpackable(error: impl Display) -> Lost {
    Lost {
        worker: "run",
        refusal: None,
        detail: error.to_string(),
    }
}

impl Store for Wire {
    async fn begin(&self, model: &str, user_text: &str) -> Result<History, Lost> {
        let request = store::Request::BeginRun {
            source: self.trigger.source.clone(),
            source_detail: self.trigger.detail.clone(),
            model: model.to_owned(),
            user_text: user_text.to_owned(),
        };
        match self.ask_store(request, None).await? {
            (store::Reply::Began { history }, mut fds) => history
                .unpack_json(&mut fds, MAX_HISTORY)
                .map_err(|e| broken(STORE, e)),
            (other, _) => Err(broken(STORE, format!("{other:?}"))),
        }
    }

    async fn tool_started(&self, id: &str, name: &str, arguments: &str) -> Result<(), Lost> {
        let (id, name, arguments) = (id.to_owned(), name.to_owned(), arguments.to_owned());
        recorded(
            self.ask_store(
                store::Request::ToolStarted {
                    id,
                    name,
                    arguments,
                },
                None,
            )
            .await?,
        )
    }

    async fn tool_ended(&self, id: &str, state: &str, preview: &str) -> Result<(), Lost> {
        let (id, state, preview) = (id.to_owned(), state.to_owned(), preview.to_owned());
        recorded(
            self.ask_store(store::Request::ToolEnded { id, state, preview }, None)
                .await?,
        )
    }

    async fn commit(&self, commit: &RunCommit) -> Result<(), Lost> {
        let (commit, fd) = Body::pack_json(commit).map_err(unpackable)?;
        match self
            .ask_store(store::Request::CommitRun { commit }, fd)
            .await?
        {
            (store::Reply::Committed { .. }, _) => Ok(()),
            (other, _) => Err(broken(STORE, format!("{other:?}"))),
        }
    }

    async fn fail(&self, failure: &RunFailure) -> Result<(), Lost> {
        let (failure, fd) = Body::pack_json(failure).map_err(unpackable)?;
        recorded(
            self.ask_store(store::Request::FailRun { failure }, fd)
                .await?,
        )
    }
}

fn recorded((reply, _): Answer<store::Store>) -> Result<(), Lost> {
    match reply {
        store::Reply::Recorded => Ok(()),
        other => Err(broken(STORE, format!("{other:?}"))),
    }
}

impl Artifacts for Wire {
    async fn publish(&self, handover: Handover) -> Result<Publication, Lost> {
        let Handover {
            file,
            root,
            path,
            name,
            media_type,
        } = handover;
        let request = artifact::Request::Publish {
            root,
            path,
            name,
            media_type,
        };
        let (reply, mut fds) = match self
            .ask_artifact(request, file.as_slice(), PUBLISH_TIME)
            .await
        {
            Ok(answer) => answer,
            // This file alone could not be published; the model may go on without it.
            Err(CallError::Fault(fault)) => {
                tracing::warn!("a file was not published: {fault}");
                return Ok(Publication::Refused {
                    code: "artifact_publish_failed".to_owned(),
                    part: None,
                });
            }
            Err(error) => return Err(lost(ARTIFACT)(error)),
        };
        let mut part = |body: Body| -> Result<ReplyPart, Lost> {
            body.unpack_json(&mut fds, MAX_PARTS_BODY)
                .map_err(|e| broken(ARTIFACT, e))
        };
        match reply {
            artifact::Reply::Published { part: body } => Ok(Publication::Published(part(body)?)),
            artifact::Reply::Refused { code, part: body } => Ok(Publication::Refused {
                code,
                part: body.map(part).transpose()?,
            }),
            other => Err(broken(ARTIFACT, format!("{other:?}"))),
        }
    }

    async fn finalise(&self) -> Result<Vec<ReplyPart>, Lost> {
        let answer = self
            .ask_artifact(artifact::Request::Finalise, &[], PUBLISH_TIME)
            .await;
        match answer.map_err(lost(ARTIFACT))? {
            (artifact::Reply::Finalised { parts }, mut fds) => parts
                .unpack_json(&mut fds, MAX_PARTS_BODY)
                .map_err(|e| broken(ARTIFACT, e)),
            (other, _) => Err(broken(ARTIFACT, format!("{other:?}"))),
        }
    }

    async fn discard(&self) -> Result<(), Lost> {
        let answer = self
            .ask_artifact(artifact::Request::Discard, &[], SETTLE_TIME)
            .await;
        match answer.map_err(lost(ARTIFACT))? {
            (artifact::Reply::Discarded, _) => Ok(()),
            (other, _) => Err(broken(ARTIFACT, format!("{other:?}"))),
        }
    }

    async fn enter(&self, part: &ReplyPart) -> Result<bool, Lost> {
        let (part, fd) = Body::pack_json(part).map_err(unpackable)?;
        let fds: Vec<OwnedFd> = fd.into_iter().collect();
        let answer = self
            .artifact
            .call(&artifact::Request::Enter { part }, &fds, SETTLE_TIME)
            .await;
        match answer {
            Ok((artifact::Reply::Published { .. }, _)) => Ok(true),
            Ok((artifact::Reply::Refused { .. }, _)) | Err(CallError::Fault(_)) => Ok(false),
            Ok((other, _)) => Err(broken(ARTIFACT, format!("{other:?}"))),
            Err(error) => Err(lost(ARTIFACT)(error)),
        }
    }
}

/// A model's answer on its way.
#[derive(Debug)]
pub enum WireStream {
    /// From egress.
    Replies(Box<Replies<Egress>>),
    /// It ended before it was asked for.
    Ended(ModelEvent),
}

impl Model for Wire {
    type Stream = WireStream;

    async fn complete(&self, request: &ModelRequest) -> Result<WireStream, Lost> {
        complete(&self.egress, request).await
    }
}

/// Asks egress for an answer.
///
/// # Errors
/// When egress is lost.
pub(crate) async fn complete(
    egress: &Client<Egress>,
    request: &ModelRequest,
) -> Result<WireStream, Lost> {
    let bytes = serde_json::to_vec(request).map_err(unpackable)?;
    if bytes.len() > MAX_MODEL_REQUEST {
        let message = format!(
            "the conversation has {} bytes, at most {MAX_MODEL_REQUEST} can be sent",
            bytes.len()
        );
        return Ok(WireStream::Ended(model_failed("context_limit", message)));
    }
    let (request, fd) = Body::pack(bytes).map_err(unpackable)?;
    let fds: Vec<OwnedFd> = fd.into_iter().collect();
    let replies = egress
        .stream(&egress::Request::Complete { request }, &fds, None)
        .await;
    Ok(WireStream::Replies(Box::new(
        replies.map_err(lost(EGRESS))?,
    )))
}

fn model_failed(kind: &str, message: String) -> ModelEvent {
    ModelEvent::Failed {
        kind: kind.to_owned(),
        message,
        failovers: Vec::new(),
    }
}

impl ModelStream for WireStream {
    async fn next(&mut self) -> Result<ModelEvent, Lost> {
        let replies = match self {
            Self::Replies(replies) => replies,
            Self::Ended(event) => return Ok(event.clone()),
        };
        match replies.next().await {
            Some(Ok((reply, mut fds))) => model_event(reply, &mut fds),
            Some(Err(CallError::Fault(fault))) => Ok(model_failed(&fault.code, fault.message)),
            Some(Err(error)) => Err(lost(EGRESS)(error)),
            None => Err(broken(EGRESS, "the stream ended without an end")),
        }
    }
}

fn model_event(reply: egress::Reply, fds: &mut VecDeque<OwnedFd>) -> Result<ModelEvent, Lost> {
    use egress::Reply as From;
    Ok(match reply {
        From::TextDelta { text } => ModelEvent::Text(text),
        From::ThoughtDelta { text } => ModelEvent::Thought(text),
        From::ToolCall {
            id,
            name,
            arguments,
        } => {
            let arguments = arguments
                .unpack_text(fds, MAX_ARGUMENTS)
                .map_err(|e| broken(EGRESS, e))?;
            ModelEvent::ToolCall {
                id,
                name,
                arguments,
            }
        }
        From::ArgumentsDelta { call, name, text } => ModelEvent::Arguments { call, name, text },
        From::Usage { usage } => ModelEvent::Usage(usage),
        From::Status {
            stage,
            model,
            detail,
        } => ModelEvent::Status {
            stage,
            model,
            detail,
        },
        From::Restart { .. } => ModelEvent::Restart,
        From::Done {
            finish,
            model,
            failovers,
        } => ModelEvent::Done {
            finish,
            model,
            failovers,
        },
        From::ModelFailed {
            kind,
            message,
            failovers,
        } => ModelEvent::Failed {
            kind,
            message,
            failovers,
        },
        other @ (From::Fetched { .. }
        | From::FetchFailed { .. }
        | From::Delivered { .. }
        | From::DeliveryFailed { .. }) => {
            return Err(broken(EGRESS, format!("{other:?}")));
        }
    })
}

impl Fetch for Wire {
    async fn fetch(
        &self,
        url: &str,
        headers: Vec<(String, String)>,
        max_bytes: u64,
    ) -> Result<Result<Fetched, Denied>, Lost> {
        let request = egress::Request::Fetch {
            url: url.to_owned(),
            headers,
            max_bytes,
        };
        let (reply, mut fds) = match self.egress.call(&request, &[], FETCH_TIME).await {
            Ok(answer) => answer,
            Err(CallError::Fault(fault)) => {
                return Ok(Err(Denied {
                    code: fault.code,
                    message: fault.message,
                }));
            }
            Err(error) => return Err(lost(EGRESS)(error)),
        };
        match reply {
            egress::Reply::Fetched {
                status,
                url,
                content_type,
                truncated,
                body,
            } => {
                let body = body
                    .unpack(&mut fds, MAX_PAGE)
                    .map_err(|e| broken(EGRESS, e))?;
                Ok(Ok(Fetched {
                    status,
                    url,
                    content_type,
                    truncated,
                    body,
                }))
            }
            egress::Reply::FetchFailed { code, message } => Ok(Err(Denied { code, message })),
            other => Err(broken(EGRESS, format!("{other:?}"))),
        }
    }
}

/// A call of an MCP tool on its way.
#[derive(Debug)]
pub struct WireCall(Box<Replies<AppBridge>>);

impl Mcp for Wire {
    type Call = WireCall;

    async fn list(&self) -> Result<ToolListing, Lost> {
        match self
            .bridge
            .call(&app_bridge::Request::ListTools, &[], LIST_TIME)
            .await
        {
            Ok((app_bridge::Reply::Tools { listing }, mut fds)) => listing
                .unpack_json(&mut fds, MAX_LISTING)
                .map_err(|e| broken(BRIDGE, e)),
            Ok((app_bridge::Reply::Failed { code, message }, _)) => Ok(no_tools(&code, message)),
            Ok((other, _)) => Err(broken(BRIDGE, format!("{other:?}"))),
            Err(CallError::Fault(fault)) => {
                Ok(no_tools("mcp_list_tools_failed", fault.to_string()))
            }
            Err(error) => Err(lost(BRIDGE)(error)),
        }
    }

    async fn draft(&self, server: &str, tool: &str) -> Result<Option<ReplyPart>, Lost> {
        self.draft_app(server, tool).await
    }

    async fn draft_input(&self, draft: &str, text: &str) -> Result<Option<String>, Lost> {
        self.draft_arguments(draft, text).await
    }

    async fn call(
        &self,
        server: &str,
        tool: &str,
        arguments: &Value,
        draft: Option<&str>,
    ) -> Result<WireCall, Lost> {
        let (arguments, fd) = Body::pack_json(arguments).map_err(unpackable)?;
        let fds: Vec<OwnedFd> = fd.into_iter().collect();
        let request = drafts::call_request((server, tool), arguments, draft);
        let replies = self
            .bridge
            .stream(&request, &fds, None)
            .await
            .map_err(lost(BRIDGE))?;
        Ok(WireCall(Box::new(replies)))
    }

    async fn accompany(&self, attached: &[AttachedFile]) -> Result<(), Lost> {
        self.posts.open(&self.bridge, attached).await
    }

    async fn posted(&self) -> Result<RunEvent, Lost> {
        self.posts.next().await
    }

    fn part(&self) {
        self.posts.close();
    }

    async fn keep_apps(&self, invocations: Vec<String>) -> Result<bool, Lost> {
        let request = app_bridge::Request::KeepApps { invocations };
        match self.bridge.call(&request, &[], SETTLE_TIME).await {
            Ok((app_bridge::Reply::AppsKept, _)) => Ok(true),
            Ok((app_bridge::Reply::Failed { .. }, _)) | Err(CallError::Fault(_)) => Ok(false),
            Ok((other, _)) => Err(broken(BRIDGE, format!("{other:?}"))),
            Err(error) => Err(lost(BRIDGE)(error)),
        }
    }
}

fn no_tools(code: &str, message: String) -> ToolListing {
    let warning = McpWarning {
        code: code.to_owned(),
        server: "all MCP servers".to_owned(),
        message,
    };
    ToolListing {
        tools: Vec::new(),
        warnings: vec![warning],
    }
}

impl McpCall for WireCall {
    async fn next(&mut self) -> Result<McpEvent, Lost> {
        let denied = |code, message| Ok(McpEvent::Ended(Err(Denied { code, message })));
        match self.0.next().await {
            Some(Ok((
                app_bridge::Reply::Progress {
                    progress,
                    total,
                    message,
                },
                _,
            ))) => Ok(McpEvent::Progress {
                progress,
                total,
                message,
            }),
            Some(Ok((app_bridge::Reply::Result { result }, mut fds))) => {
                let result = result
                    .unpack_json(&mut fds, MAX_RESULT)
                    .map_err(|e| broken(BRIDGE, e))?;
                Ok(McpEvent::Ended(Ok(result)))
            }
            Some(Ok((app_bridge::Reply::Failed { code, message }, _))) => denied(code, message),
            Some(Ok((other, _))) => Err(broken(BRIDGE, format!("{other:?}"))),
            Some(Err(CallError::Fault(fault))) => denied(fault.code, fault.message),
            Some(Err(error)) => Err(lost(BRIDGE)(error)),
            None => Err(broken(BRIDGE, "the call ended without an end")),
        }
    }
}

impl Watch for Wire {
    async fn lost(&self) -> Lost {
        let worker = tokio::select! {
            () = self.store.closed() => STORE,
            () = self.artifact.closed() => ARTIFACT,
            () = self.egress.closed() => EGRESS,
            () = self.bridge.closed() => BRIDGE,
        };
        gone(worker)
    }
}

impl Events for Wire {
    async fn send(&self, event: RunEvent, body: Option<OwnedFd>) -> Result<(), NobodyListens> {
        say(&self.events, &event, body).await
    }
}
