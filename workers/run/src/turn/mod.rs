//! One turn: the loop of model and tools, and its one order of ending (docs/architecture.md, "A
//! turn"): end the commands → close the claims → finalise artifacts → pin what the turn had seen, if
//! claims are active → commit in the store, which is the truth → activate the claims → tell.
//! Whatever fails or is cancelled before the commit takes back what was published, abandons the
//! claims and leaves a redacted account.

mod calls;
mod drafts;
mod failure;
mod hands;
mod origin;
mod stream;
#[cfg(test)]
mod tests;

pub use failure::Failure;
pub use stream::{MAX_CALLS, MAX_TEXT};

use crate::app_endpoint::AppEndpoint;
use crate::cancel::Cancel;
use crate::catalog::Catalog;
use crate::context::{Context, Skill, skill_index};
use crate::owners::{Lost, Workers};
use crate::policy::ToolPolicy;
use crate::process::Runner;
use crate::tools::path::Places;
use app_tools::OpenError;
use hands::Hands;
use ipc_proto::chat::{Block, ChatMessage, ChatRole, Failover, ModelRequest, Usage};
use ipc_proto::edges::app_bridge::{McpWarning, ToolListing};
use ipc_proto::edges::continuation::{Origin, OriginMessage};
use ipc_proto::edges::control::{RunStatus, TurnInput};
use ipc_proto::edges::egress::FinishReason;
use ipc_proto::edges::events::{MAX_BACKGROUND, MAX_PIECE, RunEvent};
use ipc_proto::edges::store::{RunCommit, RunFailure};
use ipc_proto::reply::{MAX_PARTS, ReplyPart, failure_message};
use ipc_proto::request_context::AttachedFile;
use ipc_proto::text::{cut, pieces};
use ipc_proto::{Body, RunId};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashSet;
use std::time::Duration;
use uuid::Uuid;

/// How long the MCP servers may take to list their tools; slower ones are left out of the turn.
const LISTING_TIME: Duration = Duration::from_secs(60);
/// A listener that takes no event for so long counts as gone.
const LISTENER_TIME: Duration = Duration::from_secs(300);
/// Time for the last event.
const LAST_WORD_TIME: Duration = Duration::from_secs(10);
/// Bytes of the person's text and of the model's kept of a turn that isn't committed (facts 3.2).
const MAX_PARTIAL: usize = 8 * 1024;
/// Messages of history (facts 3.2).
const MAX_HISTORY: usize = 64;
/// Steps between models that are kept; the chain is short, but it is walked once per request.
const MAX_FAILOVERS: usize = 64;
/// Bytes per message of history (facts 3.2).
const MAX_MESSAGE: usize = 64 * 1024;
/// The channel that shows apps.
const CONSOLE: &str = "console";
/// Stored where the model gave no text: model interfaces refuse an empty answer in a history.
const NO_TEXT: &str = "[no text]";

/// What a run is given to do.
#[derive(Debug)]
pub struct Job<'a> {
    /// The run.
    pub run: RunId,
    /// The channel's name.
    pub source: &'a str,
    /// The person's message.
    pub input: &'a TurnInput,
    /// The configured first choice of model.
    pub model: &'a str,
    /// Which tools are allowed.
    pub policy: &'a ToolPolicy,
    /// `runtime.maxTurns`; none or 0 for no bound.
    pub max_turns: Option<u32>,
    /// The soul file.
    pub soul: Option<&'a str>,
    /// The identity file.
    pub identity: &'a str,
    /// The selected skills.
    pub skills: &'a [Skill],
    /// Their names and first lines only (`context.skillDisclosure`).
    pub skills_by_name: bool,
    /// Today, `YYYY-MM-DD`.
    pub today: &'a str,
    /// MCP servers that may claim continuations.
    pub claim_servers: &'a [String],
    /// The request's files as they were stored, where servers are told of them.
    pub attached: Option<&'a [AttachedFile]>,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The status.
    pub status: RunStatus,
    /// The recorded kind of failure.
    pub failure_kind: Option<String>,
}

/// The endpoint for the run's commands: none where it is not asked for, or why there is none.
pub type Opening = Result<Option<AppEndpoint>, OpenError>;

/// A turn under way.
#[derive(Debug)]
struct Turn<'a, W> {
    hands: &'a Hands<'a, W>,
    job: &'a Job<'a>,
    request: ModelRequest,
    requests: u32,
    call_ids: HashSet<String>,
    /// The caller's transcript, when the conversation is new to us: else the history has it.
    preceding: &'a [ChatMessage],
    /// Exactly the text that the person sees.
    shown: String,
    usage: Usage,
    model: String,
    failovers: Vec<Failover>,
    /// What the history held, for the claims of this turn.
    before: Vec<OriginMessage>,
}

/// Runs the turn to its end. Always tells the listener how it ended, and the store when it can.
pub async fn run<W: Workers>(
    workers: &W,
    job: &Job<'_>,
    places: &Places,
    runner: &Runner,
    cancel: &Cancel,
    opening: Opening,
) -> Outcome {
    let (endpoint, unopened) = match opening {
        Ok(endpoint) => (endpoint, None),
        Err(error) => (None, Some(error)),
    };
    let hands = Hands {
        workers,
        places,
        runner,
        cancel,
        catalog: OnceCell::new(),
        announced: RefCell::default(),
        has_apps: Cell::new(false),
        claim_servers: job.claim_servers,
        may_have_claimed: Cell::new(false),
        url: endpoint.as_ref().map(|endpoint| endpoint.url().clone()),
    };
    let mut turn = Turn {
        hands: &hands,
        job,
        request: ModelRequest {
            model: job.input.model.clone(),
            effort: job.input.effort.clone(),
            system: String::new(),
            messages: Vec::new(),
            tools: Vec::new(),
            streamed: Vec::new(),
            max_output_tokens: None,
        },
        requests: 0,
        call_ids: HashSet::new(),
        preceding: &job.input.preceding,
        shown: String::new(),
        usage: Usage::default(),
        model: job
            .input
            .model
            .clone()
            .unwrap_or_else(|| job.model.to_owned()),
        failovers: Vec::new(),
        before: Vec::new(),
    };
    let (mut endpoint, calls) = match endpoint {
        Some(AppEndpoint { endpoint, calls }) => (Some(endpoint), Some(calls)),
        None => (None, None),
    };
    let served = async {
        match calls {
            Some(calls) => hands.serve_commands(calls).await,
            None => std::future::pending().await,
        }
    };
    // Before a server is started, which the turn's first question does.
    let accompanied = match job.attached {
        Some(attached) => workers.accompany(attached).await,
        None => Ok(()),
    };
    let posts = async {
        match accompanied {
            Ok(()) => hands.pass_posts_on().await,
            Err(lost) => Failure::Lost(lost),
        }
    };
    // A command may run for minutes: that the turn can't be committed any more is noticed at once.
    // What is under way is dropped with the future, and dropped commands are killed.
    let worked = tokio::select! {
        biased;
        worked = turn.work(unopened) => worked,
        lost = workers.lost() => Err(Failure::Lost(lost)),
        failure = served => Err(failure),
        failure = posts => Err(failure),
    };
    workers.part();
    // Before anything is settled: what a command publishes from here on would be nobody's.
    if let Some(endpoint) = &mut endpoint {
        endpoint.close().await;
    }
    let result = match worked {
        Ok(last) => turn.commit(last).await,
        Err(failure) => Err((failure, Published::Discard)),
    };
    match result {
        Ok(()) => Outcome {
            status: RunStatus::Succeeded,
            failure_kind: None,
        },
        Err((failure, published)) => turn.fail(failure, published).await,
    }
}

/// What is to become of files that a failed turn published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Published {
    Discard,
    /// The commit's answer never came: if it stands, the reply in the store names these files.
    Keep,
}

impl<W: Workers> Turn<'_, W> {
    /// Everything up to the last answer; gives that answer's text.
    async fn work(&mut self, unopened: Option<OpenError>) -> Result<String, Failure> {
        self.hands
            .say(RunEvent::Started {
                run: self.job.run.clone(),
            })
            .await?;
        for message in &self.job.input.warnings {
            self.hands.warn("ignored_parameter", message).await?;
        }
        if let Some(error) = unopened {
            let message = format!("commands can't reach PublishReplyFile in this turn: {error}");
            self.hands.warn("app_endpoint_failed", &message).await?;
        }
        self.prepare().await?;
        loop {
            if let Some(most) = self
                .job
                .max_turns
                .filter(|most| *most > 0 && self.requests >= *most)
            {
                return Err(Failure::MaxTurns(most));
            }
            self.requests += 1;
            let answer = self.ask().await?;
            if answer.calls.is_empty() {
                self.remark_on(answer.finish, &answer.text).await?;
                return Ok(answer.text);
            }
            let mut content = Vec::with_capacity(answer.calls.len() + 1);
            if !answer.text.is_empty() {
                content.push(Block::Text { text: answer.text });
            }
            content.extend(answer.calls.iter().map(|call| Block::ToolUse {
                id: call.id.clone(),
                name: call.name.clone(),
                arguments: echo(&call.arguments),
            }));
            self.request.messages.push(ChatMessage {
                role: ChatRole::Assistant,
                content,
            });
            let results = self.hands.execute(&answer.calls).await?;
            if self.hands.cancel.is_cancelled() {
                return Err(self.hands.cancelled());
            }
            self.request.messages.push(ChatMessage {
                role: ChatRole::User,
                content: results,
            });
        }
    }

    /// History and tools, at the same time; then the prompt.
    async fn prepare(&mut self) -> Result<(), Failure> {
        let workers = self.hands.workers;
        let model = self.model.clone();
        let listing = tokio::time::timeout(LISTING_TIME, workers.list());
        let person = stored(&self.person()).plain_text();
        let begin = workers.begin(&model, cut(&person, MAX_PARTIAL));
        let both = async { tokio::join!(begin, listing) };
        let (history, listing) = self.hands.unless_cancelled(both).await?;
        let history = history?;
        if !self.job.claim_servers.is_empty() {
            self.before = origin::before(&history);
        }
        if !history.messages.is_empty() {
            self.preceding = &[];
        }
        let listing = match listing {
            Ok(listing) => listing?,
            Err(_) => ToolListing {
                tools: Vec::new(),
                warnings: vec![late_listing()],
            },
        };
        for warning in &listing.warnings {
            self.hands
                .warn(
                    &warning.code,
                    &format!("{}: {}", warning.server, warning.message),
                )
                .await?;
        }
        let catalog = Catalog::new(self.job.policy, &listing.tools);
        self.request.tools = catalog.specs().to_vec();
        if self.job.source == CONSOLE {
            self.request.streamed = catalog.all_shown();
        }
        let _ = self.hands.catalog.set(catalog);
        let workspace = self.hands.places.workspace().display().to_string();
        let scratch = self.hands.places.scratch().display().to_string();
        let index = self
            .job
            .skills_by_name
            .then(|| skill_index(self.job.skills));
        let in_full = if self.job.skills_by_name {
            &[]
        } else {
            self.job.skills
        };
        let context = Context {
            skill_index: index.as_deref().filter(|index| !index.is_empty()),
            skills: in_full,
            soul: self.job.soul,
            identity: self.job.identity,
            source: self.job.source,
            workspace: &workspace,
            scratch: &scratch,
            today: self.job.today,
            history: &history.messages,
            account: history.account.as_deref(),
            guidance: self.job.input.guidance.as_deref(),
            preceding: self.preceding,
            content: &self.job.input.content,
        };
        self.request.system = context.system();
        self.request.messages = context.messages();
        Ok(())
    }

    /// Says honestly when the last answer is not what it should be.
    async fn remark_on(&mut self, finish: Option<FinishReason>, last: &str) -> Result<(), Failure> {
        match finish {
            Some(FinishReason::Length) => {
                self.hands
                    .warn(
                        "answer_cut",
                        "The answer ran into the model's output limit and is not complete.",
                    )
                    .await?;
            }
            Some(FinishReason::ContentFilter) => {
                self.hands
                    .warn(
                        "answer_withheld",
                        "The provider withheld the rest of the answer.",
                    )
                    .await?;
            }
            _ if last.is_empty() => {
                self.hands
                    .warn("empty_answer", "The model ended without a text.")
                    .await?;
            }
            _ => {}
        }
        let Some(first) = self.failovers.first() else {
            return Ok(());
        };
        // One line, so that the person knows whom they are talking to (facts 3.3).
        let note = format!(
            "[Answered by {}; {} was not available ({}).]",
            self.model, first.model, first.failure_kind
        );
        let gap = if self.shown.is_empty() { "" } else { "\n\n" };
        self.append(&format!("{gap}{note}")).await
    }

    /// The end of a turn that worked.
    async fn commit(&mut self, last: String) -> Result<(), (Failure, Published)> {
        let lost = |lost: Lost| (Failure::Lost(lost), Published::Discard);
        let discard = |failure| (failure, Published::Discard);
        // A command that still runs could change a file while it is being finalised.
        self.hands.runner.shut_down().await;
        let claims = self.close_claims().await.map_err(discard)?;
        let mut parts = self
            .hands
            .unless_cancelled(self.hands.workers.finalise())
            .await
            .map_err(discard)?
            .map_err(lost)?;
        parts.truncate(MAX_PARTS);
        self.keep_apps(&mut parts).await.map_err(lost)?;
        // With the two of this turn, more would fall out of the history's window at once.
        let older = self.preceding.len().saturating_sub(MAX_HISTORY - 2);
        let mut messages: Vec<ChatMessage> =
            self.preceding.iter().skip(older).map(stored).collect();
        let (person, answer) = (
            stored(&self.person()),
            stored(&ChatMessage::text(ChatRole::Assistant, last)),
        );
        if claims > 0 {
            let mut history = std::mem::take(&mut self.before);
            history.extend(messages.iter().map(origin::untold));
            let origin = Origin {
                history,
                user: person.plain_text(),
                assistant: answer.plain_text(),
            };
            // Their answer could not be put into words without it: better no turn than a promise
            // that can't be kept.
            self.hands
                .unless_cancelled(self.hands.workers.pin(&origin))
                .await
                .map_err(discard)?
                .map_err(lost)?;
        }
        messages.extend([person, answer]);
        let commit = RunCommit {
            messages,
            text: self.shown.clone(),
            parts,
            usage: self.usage.clone(),
            model: self.model.clone(),
            failovers: self.failovers.clone(),
        };
        if self.hands.cancel.is_cancelled() {
            return Err((self.hands.cancelled(), Published::Discard));
        }
        // From here on a cancellation comes too late.
        self.hands
            .workers
            .commit(&commit)
            .await
            .map_err(|lost| (Failure::Lost(lost), Published::Keep))?;
        if claims > 0 {
            self.activate().await;
        }
        self.tell_finish(commit.parts).await;
        Ok(())
    }

    /// No server of this turn can claim any more; tells how many claims are active.
    async fn close_claims(&self) -> Result<u32, Failure> {
        if self.job.claim_servers.is_empty() {
            return Ok(0);
        }
        match self.hands.workers.close_claims().await {
            Ok(active) => Ok(active),
            // Whoever was not called has nothing to claim for.
            Err(lost) if !self.hands.may_have_claimed.get() => {
                tracing::warn!("the turn's claims are not closed: {lost}");
                Ok(0)
            }
            Err(lost) => Err(Failure::Lost(lost)),
        }
    }

    /// The turn's claims may be worked on, and the channel is told of them.
    async fn activate(&self) {
        let mut continuations = match self.hands.workers.activate().await {
            Ok(continuations) => continuations,
            // The continuation worker asks the store for what is true.
            Err(lost) => {
                return tracing::warn!("the turn's claims are not activated yet: {lost}");
            }
        };
        continuations.truncate(MAX_BACKGROUND);
        if continuations.is_empty() {
            return;
        }
        let event = RunEvent::Background { continuations };
        let told = tokio::time::timeout(LAST_WORD_TIME, self.hands.workers.send(event, None)).await;
        if !matches!(told, Ok(Ok(()))) {
            tracing::warn!("nobody took the word that work goes on");
        }
    }

    /// Before the commit, so that a reply never names an app that its keeper lets go. Apps that
    /// can't be kept are failures in their places; the text is worth delivering without them.
    async fn keep_apps(&self, parts: &mut [ReplyPart]) -> Result<(), Lost> {
        if !self.hands.has_apps.get() {
            return Ok(());
        }
        let kept = parts.iter().filter_map(|part| match part {
            ReplyPart::McpApp { invocation_id, .. } => Some(invocation_id.clone()),
            _ => None,
        });
        if self.hands.workers.keep_apps(kept.collect()).await? {
            return Ok(());
        }
        let code = "app_resource_invalid";
        for part in parts {
            if let ReplyPart::McpApp { id, .. } = part {
                *part = ReplyPart::Failure {
                    id: Uuid::new_v4().to_string(),
                    code: code.to_owned(),
                    message: failure_message(code).to_owned(),
                    related_part_id: Some(id.clone()),
                };
            }
        }
        Ok(())
    }

    async fn tell_finish(&self, parts: Vec<ReplyPart>) {
        let text = Body::pack(self.shown.clone().into_bytes());
        let parts = serde_json::to_vec(&parts);
        let (Ok((text, fd)), Ok(parts)) = (text, parts) else {
            tracing::error!("the committed answer can't be packed for its channel");
            return;
        };
        let event = RunEvent::Finish {
            text,
            parts,
            usage: self.usage.clone(),
            model: self.model.clone(),
        };
        let told = tokio::time::timeout(LAST_WORD_TIME, self.hands.workers.send(event, fd)).await;
        if !matches!(told, Ok(Ok(()))) {
            tracing::warn!("the answer is committed, but nobody took it");
        }
    }

    /// The end of a turn that didn't.
    async fn fail(&mut self, failure: Failure, published: Published) -> Outcome {
        tracing::warn!(kind = failure.kind(), "the turn failed: {failure}");
        self.hands.runner.shut_down().await;
        let gone = |worker: &str| matches!(&failure, Failure::Lost(lost) if lost.worker == worker && lost.refusal.is_none());
        // A commit whose answer never came may stand: then the store is asked what became of it.
        if published == Published::Discard
            && !self.job.claim_servers.is_empty()
            && !gone("continuation")
            && let Err(lost) = self.hands.workers.abandon().await
        {
            tracing::warn!("the turn's claims were not abandoned: {lost}");
        }
        if published == Published::Discard
            && !gone("artifact")
            && let Err(lost) = self.hands.workers.discard().await
        {
            tracing::warn!("published files were not taken back: {lost}");
        }
        // What was not kept goes by itself when the run's channel ends.
        if published == Published::Discard
            && self.hands.has_apps.get()
            && !gone("app-bridge")
            && let Err(lost) = self.hands.workers.keep_apps(Vec::new()).await
        {
            tracing::warn!("the run's apps were not taken back: {lost}");
        }
        let record = RunFailure {
            cancelled: failure.is_cancelled(),
            failure_kind: failure.kind().to_owned(),
            message: cut(&failure.to_string(), 1024).to_owned(),
            user_text: stored(&self.person()).plain_text(),
            partial_text: cut(&self.shown, MAX_PARTIAL).to_owned(),
            usage: self.usage.clone(),
            failovers: self.failovers.clone(),
        };
        if !gone("store")
            && let Err(lost) = self.hands.workers.fail(&record).await
        {
            tracing::warn!("the failure was not recorded: {lost}");
        }
        let event = RunEvent::Failed {
            cancelled: failure.is_cancelled(),
            kind: failure.kind().to_owned(),
            message: cut(&failure.for_person(), 2048).to_owned(),
        };
        let _ = tokio::time::timeout(LAST_WORD_TIME, self.hands.workers.send(event, None)).await;
        let status = if failure.is_cancelled() {
            RunStatus::Cancelled
        } else {
            RunStatus::Failed
        };
        Outcome {
            status,
            failure_kind: Some(failure.kind().to_owned()),
        }
    }

    fn person(&self) -> ChatMessage {
        ChatMessage {
            role: ChatRole::User,
            content: self.job.input.content.clone(),
        }
    }

    async fn append(&mut self, text: &str) -> Result<(), Failure> {
        self.shown.push_str(text);
        for piece in pieces(text, MAX_PIECE) {
            self.hands
                .say(RunEvent::Append {
                    text: piece.to_owned(),
                })
                .await?;
        }
        Ok(())
    }

    /// Takes back what was shown after `base`.
    async fn take_back(&mut self, base: usize) -> Result<(), Failure> {
        if self.shown.len() == base {
            return Ok(());
        }
        self.shown.truncate(base);
        let mut whole = pieces(&self.shown, MAX_PIECE);
        let text = whole.next().unwrap_or_default().to_owned();
        self.hands.say(RunEvent::Replace { text }).await?;
        for piece in whole {
            self.hands
                .say(RunEvent::Append {
                    text: piece.to_owned(),
                })
                .await?;
        }
        Ok(())
    }

    fn note_failovers(&mut self, failovers: Vec<Failover>) {
        for step in failovers {
            if !self.failovers.contains(&step) && self.failovers.len() < MAX_FAILOVERS {
                self.failovers.push(step);
            }
        }
    }
}

/// A call's arguments as they go back to the model: always a JSON object, or a provider would
/// refuse the whole conversation because of one broken call.
fn echo(arguments: &str) -> String {
    match crate::tools::args::parse_object(arguments) {
        Ok(value) => value.to_string(),
        Err(_) => serde_json::json!({ "invalid_arguments": cut(arguments, 1024) }).to_string(),
    }
}

/// A message as the history keeps it: text alone, bounded. Bytes of images are not history.
fn stored(message: &ChatMessage) -> ChatMessage {
    let mut text = String::new();
    for block in &message.content {
        match block {
            Block::Text { text: piece } => text.push_str(piece),
            Block::Image { media_type, data } => {
                text.push_str(&format!("[{media_type}, {} bytes]", data.len() / 4 * 3));
            }
            Block::ToolUse { .. } | Block::ToolResult { .. } => {}
        }
    }
    if text.is_empty() {
        text.push_str(NO_TEXT);
    }
    ChatMessage::text(message.role, cut(&text, MAX_MESSAGE))
}

fn late_listing() -> McpWarning {
    McpWarning {
        code: "mcp_list_tools_failed".to_owned(),
        server: "all MCP servers".to_owned(),
        message: format!(
            "no list of tools within {} s; this turn goes on without them",
            LISTING_TIME.as_secs()
        ),
    }
}
