//! All owners in one struct: a script for the model and the MCP servers, a log of what was asked
//! in which order, and switches for what can go wrong.

use crate::app_endpoint::URL_VARIABLE;
use crate::cancel::Cancel;
use crate::owners::*;
use crate::policy::ToolPolicy;
use crate::process::Runner;
use crate::tools::path::Places;
use crate::turn::{Job, Opening, Outcome, run};
use ipc_proto::RunId;
use ipc_proto::chat::{Block, ChatMessage, ChatRole, Failover, ModelRequest};
use ipc_proto::edges::app_bridge::{McpResult, McpTool, ToolListing};
use ipc_proto::edges::continuation::Origin;
use ipc_proto::edges::control::TurnInput;
use ipc_proto::edges::egress::FinishReason;
use ipc_proto::edges::events::RunEvent;
use ipc_proto::edges::store::{History, RunCommit, RunFailure};
use ipc_proto::reply::{ArtifactReference, MAX_PARTS, ReplyPart};
use ipc_proto::request_context::AttachedFile;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// One step of the model's script.
#[derive(Debug)]
pub(super) enum Step {
    Say(ModelEvent),
    /// Nothing for a time.
    Pause(std::time::Duration),
    Hang,
}

pub(super) fn text(text: &str) -> Step {
    Step::Say(ModelEvent::Text(text.to_owned()))
}

pub(super) fn call(id: &str, name: &str, arguments: Value) -> Step {
    let arguments = arguments.to_string();
    Step::Say(ModelEvent::ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments,
    })
}

fn end(finish: FinishReason) -> Step {
    Step::Say(ModelEvent::Done {
        finish,
        model: "demo:one".into(),
        failovers: vec![],
    })
}

pub(super) fn done() -> Step {
    end(FinishReason::Stop)
}

pub(super) fn wants() -> Step {
    end(FinishReason::ToolUse)
}

pub(super) fn failover() -> Failover {
    Failover {
        model: "demo:one".into(),
        failure_kind: "overloaded".into(),
        attempts: 2,
    }
}

pub(super) fn failed(kind: &str) -> Step {
    let failovers = vec![failover()];
    Step::Say(ModelEvent::Failed {
        kind: kind.to_owned(),
        message: "no".into(),
        failovers,
    })
}

pub(super) fn echo_tool(server: &str) -> McpTool {
    McpTool {
        server: server.to_owned(),
        tool: "echo".into(),
        description: "echoes".into(),
        input_schema: json!({"type": "object"}),
        read_only: true,
        app: false,
    }
}

pub(super) fn app(id: &str) -> ReplyPart {
    ReplyPart::McpApp {
        id: id.to_owned(),
        invocation_id: id.to_owned(),
        connection_id: "c".into(),
        server_name: "s".into(),
        tool_name: "echo".into(),
        resource_uri: "ui://s/echo".into(),
        media_type: "text/html;profile=mcp-app".into(),
        protocol_version: "2026-01-26".into(),
        title: None,
        description: None,
        expires_at: None,
    }
}

pub(super) fn attachment(content: &str) -> ReplyPart {
    ReplyPart::Attachment {
        id: format!("part-{content}"),
        reference: ArtifactReference {
            scheme: "mono-agent-artifact".into(),
            id: content.into(),
        },
        name: "n".into(),
        media_type: "text/plain".into(),
        size_bytes: 1,
        integrity_id: format!("sha256:{content}"),
        expires_at: None,
    }
}

/// A workspace, a runner and a message.
pub(super) struct Bench {
    pub(super) dir: tempfile::TempDir,
    pub(super) cancel: Cancel,
    pub(super) max_turns: Option<u32>,
    pub(super) preceding: usize,
    /// The channel.
    pub(super) source: &'static str,
    pub(super) opening: RefCell<Option<Opening>>,
    /// Servers that may claim.
    pub(super) claim_servers: Vec<String>,
    /// Files of which servers are told.
    pub(super) attached: Option<Vec<AttachedFile>>,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            cancel: Cancel::default(),
            max_turns: None,
            preceding: 0,
            source: "test",
            opening: RefCell::default(),
            claim_servers: vec![],
            attached: None,
        }
    }

    pub(super) async fn run(&self, fake: &Fake) -> Outcome {
        let scratch = tempfile::tempdir().unwrap();
        let mut runner = Runner::new(scratch.path(), std::env::vars_os()).unwrap();
        if let Some(Ok(Some(endpoint))) = &*self.opening.borrow() {
            runner.set_variable(URL_VARIABLE, endpoint.url().reveal());
        }
        let places = Places::new(self.dir.path(), scratch.path());
        let input = TurnInput {
            content: vec![Block::Text {
                text: "do it".into(),
            }],
            preceding: (0..self.preceding)
                .map(|n| ChatMessage::text(ChatRole::User, format!("before {n}")))
                .collect(),
            ..TurnInput::default()
        };
        let job = Job {
            run: RunId::new(),
            source: self.source,
            input: &input,
            model: "demo:one",
            policy: &ToolPolicy::new(None, &[]).unwrap(),
            max_turns: self.max_turns,
            soul: None,
            identity: "IDENTITY",
            skills: &[],
            skills_by_name: false,
            today: "2030-01-01",
            claim_servers: &self.claim_servers,
            attached: self.attached.as_deref(),
        };
        let opening = self.opening.take().unwrap_or(Ok(None));
        run(fake, &job, &places, &runner, &self.cancel, opening).await
    }
}

#[derive(Default)]
pub(super) struct Fake {
    /// What the store knows of the conversation.
    pub(super) history: RefCell<Vec<ChatMessage>>,
    log: RefCell<Vec<String>>,
    answers: RefCell<VecDeque<Vec<Step>>>,
    cancel_at: RefCell<Option<(&'static str, Cancel)>>,
    pub(super) lose: RefCell<Option<(&'static str, &'static str)>>,
    pub(super) requests: RefCell<Vec<ModelRequest>>,
    pub(super) events: RefCell<Vec<RunEvent>>,
    pub(super) commits: RefCell<Vec<RunCommit>>,
    pub(super) failures: RefCell<Vec<RunFailure>>,
    pub(super) parts: RefCell<Vec<ReplyPart>>,
    /// Claims that are active when they are closed.
    pub(super) active_claims: Cell<u32>,
    pub(super) pinned: RefCell<Vec<Origin>>,
    /// Called once, when everything is to be settled.
    pub(super) at_finalise: RefCell<Option<Box<dyn FnOnce()>>>,
    pub(super) tools: RefCell<Vec<McpTool>>,
    /// Scripts of MCP calls in order; without one a call answers "ok", an empty one hangs.
    pub(super) mcp: RefCell<VecDeque<Vec<McpEvent>>>,
    pub(super) recorded: RefCell<Vec<String>>,
    pub(super) called_with: RefCell<Vec<Value>>,
    pub(super) fetches_meet: Cell<bool>,
    meeting: RefCell<Option<Rc<tokio::sync::Barrier>>>,
    pub(super) nobody_listens: Cell<bool>,
    pub(super) listener_sleeps: Cell<bool>,
    pub(super) listing_hangs: Cell<bool>,
    /// At which line of the log the store dies, without an answer to anyone.
    pub(super) dies_at: Cell<Option<&'static str>>,
    dying: tokio::sync::Notify,
    pub(super) streams_dropped: Rc<Cell<u32>>,
    pub(super) calls_dropped: Rc<Cell<u32>>,
    /// Parts of the drafts that can be had, in order.
    pub(super) drafts: RefCell<VecDeque<ReplyPart>>,
    pub(super) draft_hangs: Cell<bool>,
    /// Apps can't be kept.
    pub(super) apps_lost: Cell<bool>,
    /// What servers post; after that nothing comes.
    pub(super) posts: RefCell<VecDeque<RunEvent>>,
}

impl Fake {
    pub(super) fn answering(answers: impl IntoIterator<Item = Vec<Step>>) -> Self {
        Self {
            answers: RefCell::new(answers.into_iter().collect()),
            ..Self::default()
        }
    }

    pub(super) fn cancel_at(&self, what: &'static str, cancel: Cancel) {
        *self.cancel_at.borrow_mut() = Some((what, cancel));
    }

    pub(super) fn log(&self) -> Vec<String> {
        self.log.borrow().clone()
    }

    pub(super) fn logged(&self, what: &str) -> usize {
        let log = self.log();
        log.iter()
            .position(|line| line == what)
            .unwrap_or_else(|| panic!("no {what:?} in {log:?}"))
    }

    pub(super) fn commit(&self) -> RunCommit {
        self.commits.borrow()[0].clone()
    }

    pub(super) fn failure(&self) -> RunFailure {
        self.failures.borrow()[0].clone()
    }

    /// The text as a listener would have it.
    pub(super) fn shown(&self) -> String {
        let mut shown = String::new();
        for event in self.events.borrow().iter() {
            match event {
                RunEvent::Append { text } => shown.push_str(text),
                RunEvent::Replace { text } => shown.clone_from(text),
                _ => {}
            }
        }
        shown
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let code = |event: &RunEvent| match event {
            RunEvent::Warning { code, .. } => Some(code.clone()),
            _ => None,
        };
        self.events.borrow().iter().filter_map(code).collect()
    }

    fn note(&self, what: String) -> Result<(), Lost> {
        if let Some((at, cancel)) = &*self.cancel_at.borrow()
            && *at == what
        {
            cancel.cancel("asked to");
        }
        if self.dies_at.get() == Some(what.as_str()) {
            self.dying.notify_one();
        }
        let lost = self.lose.borrow().filter(|(at, _)| *at == what);
        self.log.borrow_mut().push(what);
        match lost {
            Some((_, worker)) => Err(Lost {
                worker,
                refusal: None,
                detail: "killed".into(),
            }),
            None => Ok(()),
        }
    }
}

pub(super) struct FakeStream {
    steps: VecDeque<Step>,
    dropped: Rc<Cell<u32>>,
}

impl ModelStream for FakeStream {
    async fn next(&mut self) -> Result<ModelEvent, Lost> {
        match self.steps.pop_front() {
            Some(Step::Say(event)) => Ok(event),
            Some(Step::Pause(time)) => {
                tokio::time::sleep(time).await;
                Box::pin(self.next()).await
            }
            Some(Step::Hang) | None => std::future::pending().await,
        }
    }
}

impl Drop for FakeStream {
    fn drop(&mut self) {
        self.dropped.set(self.dropped.get() + 1);
    }
}

impl Model for Fake {
    type Stream = FakeStream;
    async fn complete(&self, request: &ModelRequest) -> Result<FakeStream, Lost> {
        self.note("complete".into())?;
        self.requests.borrow_mut().push(request.clone());
        let steps = self
            .answers
            .borrow_mut()
            .pop_front()
            .expect("the script has no further answer");
        Ok(FakeStream {
            steps: steps.into(),
            dropped: self.streams_dropped.clone(),
        })
    }
}

impl Fetch for Fake {
    async fn fetch(
        &self,
        url: &str,
        _: Vec<(String, String)>,
        _: u64,
    ) -> Result<Result<Fetched, Denied>, Lost> {
        self.note("fetch".into())?;
        if self.fetches_meet.get() {
            let meeting = self
                .meeting
                .borrow_mut()
                .get_or_insert_with(|| Rc::new(tokio::sync::Barrier::new(2)))
                .clone();
            meeting.wait().await;
        }
        let (url, body) = (url.to_owned(), b"page".to_vec());
        Ok(Ok(Fetched {
            status: 200,
            url,
            content_type: Some("text/plain".into()),
            truncated: false,
            body,
        }))
    }
}

impl Artifacts for Fake {
    async fn publish(&self, handover: Handover) -> Result<Publication, Lost> {
        self.note("publish".into())?;
        let mut content = String::new();
        File::from(handover.file.unwrap())
            .read_to_string(&mut content)
            .unwrap();
        let part = attachment(&content);
        let mut parts = self.parts.borrow_mut();
        if !parts.contains(&part) {
            if parts.len() == MAX_PARTS {
                return Ok(Publication::Refused {
                    code: "reply_part_too_large".into(),
                    part: None,
                });
            }
            parts.push(part.clone());
        }
        Ok(Publication::Published(part))
    }
    async fn finalise(&self) -> Result<Vec<ReplyPart>, Lost> {
        if let Some(look) = self.at_finalise.take() {
            look();
        }
        self.note("finalise".into())?;
        Ok(self.parts.borrow().clone())
    }
    async fn discard(&self) -> Result<(), Lost> {
        self.note("discard".into())
    }
    async fn enter(&self, part: &ReplyPart) -> Result<bool, Lost> {
        self.note(format!("enter {}", part.id()))?;
        let mut parts = self.parts.borrow_mut();
        let room = parts.len() < MAX_PARTS;
        parts.extend(room.then(|| part.clone()));
        Ok(room)
    }
}

pub(super) struct FakeCall {
    events: VecDeque<McpEvent>,
    ended: bool,
    dropped: Rc<Cell<u32>>,
}

impl McpCall for FakeCall {
    async fn next(&mut self) -> Result<McpEvent, Lost> {
        // Gives others a turn: calls that were side by side would interleave in the log.
        tokio::task::yield_now().await;
        match self.events.pop_front() {
            Some(event) => {
                self.ended = matches!(event, McpEvent::Ended(_));
                Ok(event)
            }
            None => std::future::pending().await,
        }
    }
}

impl Drop for FakeCall {
    fn drop(&mut self) {
        if !self.ended {
            self.dropped.set(self.dropped.get() + 1);
        }
    }
}

impl Mcp for Fake {
    type Call = FakeCall;
    async fn list(&self) -> Result<ToolListing, Lost> {
        self.note("list".into())?;
        if self.listing_hangs.get() {
            std::future::pending::<()>().await;
        }
        Ok(ToolListing {
            tools: self.tools.borrow().clone(),
            warnings: vec![],
        })
    }
    async fn accompany(&self, attached: &[AttachedFile]) -> Result<(), Lost> {
        self.note(format!("accompany with {} files", attached.len()))
    }
    async fn posted(&self) -> Result<RunEvent, Lost> {
        let post = self.posts.borrow_mut().pop_front();
        match post {
            Some(post) => self.note("posted".into()).map(|()| post),
            None => std::future::pending().await,
        }
    }
    fn part(&self) {
        let mut log = self.log.borrow_mut();
        if log.iter().any(|line| line.starts_with("accompany")) {
            log.push("part".into());
        }
    }
    async fn draft(&self, server: &str, tool: &str) -> Result<Option<ReplyPart>, Lost> {
        self.note(format!("draft {server} {tool}"))?;
        if self.draft_hangs.get() {
            std::future::pending::<()>().await;
        }
        Ok(self.drafts.borrow_mut().pop_front())
    }
    async fn draft_input(&self, draft: &str, text: &str) -> Result<Option<String>, Lost> {
        self.note(format!("draft_input {draft} {text}"))?;
        Ok(Some(json!({ "so far": text }).to_string()))
    }
    async fn call(
        &self,
        server: &str,
        tool: &str,
        arguments: &Value,
        draft: Option<&str>,
    ) -> Result<FakeCall, Lost> {
        let draft = draft.map_or(String::new(), |draft| format!(" as {draft}"));
        self.note(format!("call {server} {tool}{draft}"))?;
        self.called_with.borrow_mut().push(arguments.clone());
        let ok = || {
            let content = vec![Block::Text { text: "ok".into() }];
            vec![McpEvent::Ended(Ok(McpResult {
                content,
                structured: None,
                is_error: false,
                app: None,
            }))]
        };
        let events = self.mcp.borrow_mut().pop_front().unwrap_or_else(ok);
        Ok(FakeCall {
            events: events.into(),
            ended: false,
            dropped: self.calls_dropped.clone(),
        })
    }
    async fn keep_apps(&self, invocations: Vec<String>) -> Result<bool, Lost> {
        self.note(format!("keep {}", invocations.join(" ")))?;
        Ok(!self.apps_lost.get())
    }
}

impl Store for Fake {
    async fn begin(&self, _: &str, _: &str) -> Result<History, Lost> {
        self.note("begin".into())?;
        Ok(History {
            messages: self.history.borrow().clone(),
            account: None,
            epoch: String::new(),
            revision: 0,
            turns: vec![],
        })
    }
    async fn tool_started(&self, id: &str, name: &str, arguments: &str) -> Result<(), Lost> {
        self.recorded.borrow_mut().push(arguments.to_owned());
        self.note(format!("tool_started {id} {name}"))
    }
    async fn tool_ended(&self, id: &str, state: &str, _: &str) -> Result<(), Lost> {
        self.note(format!("tool_ended {id} {state}"))
    }
    async fn commit(&self, commit: &RunCommit) -> Result<(), Lost> {
        self.note("commit".into())?;
        self.commits.borrow_mut().push(commit.clone());
        Ok(())
    }
    async fn fail(&self, failure: &RunFailure) -> Result<(), Lost> {
        self.note("fail".into())?;
        self.failures.borrow_mut().push(failure.clone());
        Ok(())
    }
}

impl Claims for Fake {
    async fn close_claims(&self) -> Result<u32, Lost> {
        self.note("close_claims".into())?;
        Ok(self.active_claims.get())
    }
    async fn pin(&self, origin: &Origin) -> Result<(), Lost> {
        self.note("pin".into())?;
        self.pinned.borrow_mut().push(origin.clone());
        Ok(())
    }
    async fn activate(&self) -> Result<Vec<String>, Lost> {
        self.note("activate".into())?;
        let ids = 0..self.active_claims.get();
        Ok(ids.map(|n| format!("c{n}")).collect())
    }
    async fn abandon(&self) -> Result<(), Lost> {
        self.note("abandon".into())
    }
}

impl Watch for Fake {
    async fn lost(&self) -> Lost {
        self.dying.notified().await;
        Lost {
            worker: "store",
            refusal: None,
            detail: "killed".into(),
        }
    }
}

impl Events for Fake {
    async fn send(&self, event: RunEvent, _: Option<OwnedFd>) -> Result<(), NobodyListens> {
        if self.nobody_listens.get() {
            return Err(NobodyListens);
        }
        if self.listener_sleeps.get() {
            std::future::pending::<()>().await;
        }
        let debug = format!("{event:?}");
        let kind: String = debug.chars().take_while(|c| c.is_alphanumeric()).collect();
        self.events.borrow_mut().push(event);
        let _ = self.note(format!("event {kind}"));
        Ok(())
    }
}
