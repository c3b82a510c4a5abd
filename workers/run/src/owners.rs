//! What a run needs of the other workers, as traits: the loop is tested with fakes, and
//! [`crate::wire`] speaks the real edges.
#![allow(
    async_fn_in_trait,
    reason = "the worker is single-threaded; no caller needs a Send future"
)]

use ipc_proto::chat::{Failover, ModelRequest, Usage};
use ipc_proto::edges::app_bridge::{McpResult, ToolListing};
use ipc_proto::edges::artifact::Root;
use ipc_proto::edges::continuation::Origin;
use ipc_proto::edges::egress::{FinishReason, ProviderStage};
use ipc_proto::edges::events::RunEvent;
use ipc_proto::edges::store::{History, RunCommit, RunFailure};
use ipc_proto::reply::ReplyPart;
use ipc_proto::request_context::AttachedFile;
use serde_json::Value;
use std::os::fd::OwnedFd;

/// A worker that the turn can't do without is gone, silent or broke the protocol (the turn ends as
/// `worker_lost`), or it refused what the turn can't do without.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {worker} worker was lost: {detail}")]
pub struct Lost {
    /// Which.
    pub worker: &'static str,
    /// The code of its refusal; then it is alive.
    pub refusal: Option<String>,
    /// For the log.
    pub detail: String,
}

/// An owner's own answer that it won't: a fixed code and a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Denied {
    /// A code of that owner's edge.
    pub code: String,
    /// What happened and what to do.
    pub message: String,
}

/// One piece of a model's answer.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// Text to append.
    Text(String),
    /// Reasoning to append.
    Thought(String),
    /// A whole call.
    ToolCall {
        /// The provider's id.
        id: String,
        /// Name as offered.
        name: String,
        /// JSON text.
        arguments: String,
    },
    /// Arguments of a call that is not whole yet, to append; for the eye alone.
    Arguments {
        /// Which of the answer's calls, from 0.
        call: u32,
        /// Name as offered.
        name: String,
        /// The piece.
        text: String,
    },
    /// Usage of one request.
    Usage(Usage),
    /// Where the request stands.
    Status {
        /// The stage.
        stage: ProviderStage,
        /// `<provider>:<model>`.
        model: String,
        /// For people.
        detail: Option<String>,
    },
    /// What came until now is void.
    Restart,
    /// The answer is whole.
    Done {
        /// Why it ended.
        finish: FinishReason,
        /// `<provider>:<model>`.
        model: String,
        /// Steps away from the first choice.
        failovers: Vec<Failover>,
    },
    /// No answer.
    Failed {
        /// The failure class.
        kind: String,
        /// One sentence.
        message: String,
        /// Steps away from the first choice.
        failovers: Vec<Failover>,
    },
}

/// A streaming answer; the last event is `Done` or `Failed`. Dropping it withdraws the request.
pub trait ModelStream {
    /// The next piece.
    ///
    /// # Errors
    /// When egress is lost.
    async fn next(&mut self) -> Result<ModelEvent, Lost>;
}

/// The model, behind egress.
pub trait Model {
    /// A streaming answer.
    type Stream: ModelStream;
    /// Asks for an answer.
    ///
    /// # Errors
    /// When egress is lost.
    async fn complete(&self, request: &ModelRequest) -> Result<Self::Stream, Lost>;
}

/// A fetched page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// HTTP status.
    pub status: u16,
    /// Address after redirects.
    pub url: String,
    /// `content-type`, if any.
    pub content_type: Option<String>,
    /// True when the body was cut.
    pub truncated: bool,
    /// The body.
    pub body: Vec<u8>,
}

/// The way out for `WebFetch`, behind egress.
pub trait Fetch {
    /// Gets a page.
    ///
    /// # Errors
    /// When egress is lost; its refusal is the inner error.
    async fn fetch(
        &self,
        url: &str,
        headers: Vec<(String, String)>,
        max_bytes: u64,
    ) -> Result<Result<Fetched, Denied>, Lost>;
}

/// What became of a file that was handed over.
#[derive(Debug, Clone, PartialEq)]
pub enum Publication {
    /// It is part of the reply (again, when the same bytes were published before).
    Published(ReplyPart),
    /// It is not.
    Refused {
        /// A code of facts 5.2.
        code: String,
        /// The visible failure, when it took a slot of the budget.
        part: Option<ReplyPart>,
    },
}

/// A file for the artifact worker, opened here.
#[derive(Debug)]
pub struct Handover {
    /// The descriptor, read-only; `None` when the file can't be opened, which is a failure that
    /// the reply shows.
    pub file: Option<OwnedFd>,
    /// The root that it was opened beneath.
    pub root: Root,
    /// Its path below that root.
    pub path: String,
    /// Display name wished for.
    pub name: Option<String>,
    /// Media type wished for.
    pub media_type: Option<String>,
}

/// The owner of reply files.
pub trait Artifacts {
    /// Publishes a file.
    ///
    /// # Errors
    /// When the worker is lost.
    async fn publish(&self, handover: Handover) -> Result<Publication, Lost>;
    /// Binds what was published to the reply; gives the parts in order.
    ///
    /// # Errors
    /// When the worker is lost.
    async fn finalise(&self) -> Result<Vec<ReplyPart>, Lost>;
    /// Takes back what was published.
    ///
    /// # Errors
    /// When the worker is lost.
    async fn discard(&self) -> Result<(), Lost>;
    /// Gives a part that is no file its place in the reply; false when there is none left, or none
    /// for such parts.
    ///
    /// # Errors
    /// When the worker is lost.
    async fn enter(&self, part: &ReplyPart) -> Result<bool, Lost> {
        let _ = part;
        Ok(false)
    }
}

/// What a call of an MCP tool says on its way.
#[derive(Debug, Clone, PartialEq)]
pub enum McpEvent {
    /// It is at work.
    Progress {
        /// So far.
        progress: f64,
        /// Of how much.
        total: Option<f64>,
        /// For people.
        message: Option<String>,
    },
    /// The end of it.
    Ended(Result<McpResult, Denied>),
}

/// A call of an MCP tool. Dropping it cancels the call.
pub trait McpCall {
    /// The next event; `Ended` is the last.
    ///
    /// # Errors
    /// When the app-bridge is lost.
    async fn next(&mut self) -> Result<McpEvent, Lost>;
}

/// The MCP servers, behind the app-bridge.
pub trait Mcp {
    /// A call under way.
    type Call: McpCall;
    /// All servers' tools.
    ///
    /// # Errors
    /// When the app-bridge is lost.
    async fn list(&self) -> Result<ToolListing, Lost>;
    /// Calls a tool; `arguments` is a JSON object. A draft of the call ends with it.
    ///
    /// # Errors
    /// When the app-bridge is lost.
    async fn call(
        &self,
        server: &str,
        tool: &str,
        arguments: &Value,
        draft: Option<&str>,
    ) -> Result<Self::Call, Lost>;
    /// The page that a tool declares, to be shown before it is called, where it can be had.
    ///
    /// # Errors
    /// When the app-bridge is lost.
    async fn draft(&self, server: &str, tool: &str) -> Result<Option<ReplyPart>, Lost> {
        let _ = (server, tool);
        Ok(None)
    }
    /// What the arguments of a draft's call say so far, as its page may have it: JSON.
    ///
    /// # Errors
    /// When the app-bridge is lost.
    async fn draft_input(&self, draft: &str, text: &str) -> Result<Option<String>, Lost> {
        let _ = (draft, text);
        Ok(None)
    }
    /// Servers are told of these files, and what they post comes with [`Mcp::posted`]. Before all
    /// else; without it there is nothing to be told.
    ///
    /// # Errors
    /// When the app-bridge is lost.
    async fn accompany(&self, attached: &[AttachedFile]) -> Result<(), Lost> {
        let _ = attached;
        Ok(())
    }
    /// What a server posts next.
    ///
    /// # Errors
    /// When the app-bridge is lost.
    async fn posted(&self) -> Result<RunEvent, Lost> {
        std::future::pending().await
    }
    /// Nothing can be posted from here on.
    fn part(&self) {}
    /// Of the run's apps these stay, and the others go; false when none could be kept.
    ///
    /// # Errors
    /// When the app-bridge is lost.
    async fn keep_apps(&self, invocations: Vec<String>) -> Result<bool, Lost> {
        Ok(invocations.is_empty())
    }
}

/// The store, for this run alone.
pub trait Store {
    /// Records the run as running and gives the history. `user_text` is the beginning of the
    /// person's message, at most 8 KiB.
    ///
    /// # Errors
    /// When the store is lost.
    async fn begin(&self, model: &str, user_text: &str) -> Result<History, Lost>;
    /// A tool call begins.
    ///
    /// # Errors
    /// When the store is lost.
    async fn tool_started(&self, id: &str, name: &str, arguments: &str) -> Result<(), Lost>;
    /// A tool call ended.
    ///
    /// # Errors
    /// When the store is lost.
    async fn tool_ended(&self, id: &str, state: &str, preview: &str) -> Result<(), Lost>;
    /// Makes the turn true.
    ///
    /// # Errors
    /// When the store is lost: whether the commit stands is then not known here.
    async fn commit(&self, commit: &RunCommit) -> Result<(), Lost>;
    /// Records how the run failed.
    ///
    /// # Errors
    /// When the store is lost.
    async fn fail(&self, failure: &RunFailure) -> Result<(), Lost>;
}

/// The claims of this run's servers, with the continuation worker; without one there are none
/// (spec s1, "Origin settlement lifecycle").
pub trait Claims {
    /// Takes no claim any more, waits for those that were let in, and tells how many are active.
    ///
    /// # Errors
    /// When the worker is lost.
    async fn close_claims(&self) -> Result<u32, Lost>;
    /// Makes what the turn had seen durable for its claims.
    ///
    /// # Errors
    /// When the worker is lost, or refuses.
    async fn pin(&self, origin: &Origin) -> Result<(), Lost>;
    /// The turn is committed; gives the ids of what goes on.
    ///
    /// # Errors
    /// When the worker is lost: it then asks the store.
    async fn activate(&self) -> Result<Vec<String>, Lost>;
    /// The turn won't be committed.
    ///
    /// # Errors
    /// When the worker is lost: it then asks the store.
    async fn abandon(&self) -> Result<(), Lost>;
}

/// The channel that listens to this run is gone: nobody wants the answer any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the channel that started the run is gone")]
pub struct NobodyListens;

/// Where events go.
pub trait Events {
    /// Sends one event; waits for credit.
    ///
    /// # Errors
    /// When nobody listens.
    async fn send(&self, event: RunEvent, body: Option<OwnedFd>) -> Result<(), NobodyListens>;
}

/// Notices the loss of a worker while nothing is being asked of it.
pub trait Watch {
    /// Waits until one of the workers is gone.
    async fn lost(&self) -> Lost;
}

/// All that a turn talks to.
pub trait Workers: Model + Fetch + Artifacts + Mcp + Store + Claims + Events + Watch {}

impl<T: Model + Fetch + Artifacts + Mcp + Store + Claims + Events + Watch> Workers for T {}
