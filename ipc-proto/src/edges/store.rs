//! Requests to the store worker (facts 3.2).

use crate::chat::{ChatMessage, ChatRole, Failover, Usage};
use crate::ids::{ConversationId, RunId};
use crate::message::Edge;
use crate::messages;
use crate::reply::ReplyPart;
use crate::{Body, Until};
use serde::{Deserialize, Serialize};

/// The edge whose owner is `store`.
#[derive(Debug)]
pub struct Store;

impl Edge for Store {
    type Request = Request;
    type Reply = Reply;
    const NAME: &'static str = "store";
    fn is_final(_: &Reply) -> bool {
        true
    }
}

/// What a committed run adds, as JSON in a body.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunCommit {
    /// Messages to append in order: the person's, then the turn's, the last is the answer.
    pub messages: Vec<ChatMessage>,
    /// The answer's text.
    pub text: String,
    /// The reply parts in order.
    pub parts: Vec<ReplyPart>,
    /// Tokens and cost.
    pub usage: Usage,
    /// `<provider>:<model>` that answered.
    pub model: String,
    /// Steps away from the first choice.
    pub failovers: Vec<Failover>,
}

/// The end of a run that is not a success, as JSON in a body.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunFailure {
    /// True for a cancellation.
    pub cancelled: bool,
    /// e.g. `provider_unavailable_exhausted`.
    pub failure_kind: String,
    /// One sentence for the operator.
    pub message: String,
    /// The person's message, kept for the next turn's redacted account.
    pub user_text: String,
    /// What the model had said until then; at most 8 KiB are kept.
    pub partial_text: String,
    /// Tokens and cost until then.
    pub usage: Usage,
    /// Steps away from the first choice.
    pub failovers: Vec<Failover>,
}

/// Answer to `BeginRun`, as JSON in a body.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// Latest messages, oldest first: at most 64 of at most 64 KiB.
    pub messages: Vec<ChatMessage>,
    /// A redacted account of the turns since the last success that failed or were cancelled,
    /// ≤ 48 KiB.
    #[serde(default)]
    pub account: Option<String>,
    /// A provider session of another epoch must not be resumed.
    #[serde(default)]
    pub epoch: String,
    /// The history's revision.
    #[serde(default)]
    pub revision: u64,
    /// Of which turn each of the messages is, one by one.
    #[serde(default)]
    pub turns: Vec<TurnMark>,
}

/// Where a message of a history comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnMark {
    /// The run, or `append:` and the key of a delivery.
    pub turn: String,
    /// When it was entered, in milliseconds since 1970.
    pub at: i64,
}

/// A later answer for a conversation of the terminal, which nobody may be looking at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Letter {
    /// Grows with every letter.
    pub number: u64,
    /// The terminal's name of the conversation.
    pub conversation_id: String,
    /// The delivery: the same one is left once.
    pub delivery_id: String,
    /// RFC 3339.
    pub at: String,
    /// The answer.
    pub text: String,
}

/// Letters, the oldest first, as JSON in a body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LetterPage {
    /// At most as many as were asked for.
    pub letters: Vec<Letter>,
    /// The number of the newest that there is; 0 for none.
    pub newest: u64,
}

/// A run as an operator sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRecord {
    /// The run.
    pub run_id: String,
    /// Logical conversation.
    pub conversation_id: String,
    /// `running`, `succeeded`, `failed`, `cancelled`, `interrupted`.
    pub status: String,
    /// Channel that started it.
    pub source: String,
    /// More about the source.
    pub source_detail: Option<String>,
    /// Model that answered, or the first choice.
    pub model: Option<String>,
    /// RFC 3339.
    pub started_at: String,
    /// RFC 3339.
    pub ended_at: Option<String>,
    /// Milliseconds.
    pub duration_ms: Option<u64>,
    /// e.g. `provider_auth`.
    pub failure_kind: Option<String>,
    /// One sentence.
    pub error: Option<String>,
    /// The answer, in the detail view only.
    pub text: Option<String>,
    /// The reply's parts, in the detail view only.
    #[serde(default)]
    pub parts: Vec<ReplyPart>,
    /// Tokens and cost.
    pub usage: Usage,
    /// Steps away from the first choice.
    #[serde(default)]
    pub failover_history: Vec<Failover>,
    /// Tool calls, in the detail view only.
    #[serde(default)]
    pub tools: Vec<ToolRecord>,
    /// Messages that it added and that are still kept, in the detail view only.
    #[serde(default)]
    pub messages: Vec<MessageRecord>,
}

/// A message of a history without its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageRecord {
    /// Who said it.
    pub role: ChatRole,
    /// Size in bytes.
    pub bytes: u64,
}

/// A tool call of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolRecord {
    /// The model's id of the call.
    pub id: String,
    /// Exposed name.
    pub name: String,
    /// `running`, `success`, `error`, `timeout`, `cancelled`, `interrupted`, `rejected`, `exit_nonzero`, `signal`.
    pub state: String,
    /// Milliseconds.
    pub duration_ms: Option<u64>,
    /// RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// What it was called with: redacted, ≤ 4,096 bytes.
    #[serde(default)]
    pub arguments: String,
    /// The beginning of what it gave, ≤ 4,096 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
}

/// A page of runs, as JSON in a body.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunPage {
    /// Newest first.
    pub runs: Vec<RunRecord>,
    /// Opaque; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

messages! {
    /// Requests. The run that they are about is the grant's, never named here by a run.
    pub enum Request, descriptors 1 {
        /// From a run, once: records it as running, sets the dirty fence, gives the history.
        BeginRun {
            /// Channel that started it.
            source: String,
            /// More about it.
            source_detail: Option<String>,
            /// The configured first choice.
            model: String,
            /// Beginning of the person's message, ≤ 8 KiB: what the next turn's account says when
            /// this run's process dies.
            user_text: String,
        } = 0x0201,
        /// From a run: a tool call begins.
        ToolStarted {
            /// The model's id of the call, ≤ 256 bytes.
            id: String,
            /// Exposed name.
            name: String,
            /// Redacted, ≤ 4,096 bytes.
            arguments: String,
        } = 0x0202,
        /// From a run: a tool call ended.
        ToolEnded {
            /// The model's id of the call.
            id: String,
            /// A state of [`ToolRecord`].
            state: String,
            /// ≤ 4,096 bytes.
            preview: String,
        } = 0x0203,
        /// From a run: a [`RunCommit`]. The truth about the run.
        CommitRun {
            /// The commit.
            commit: Body,
        } = 0x0204,
        /// From a run: a [`RunFailure`].
        FailRun {
            /// The failure.
            failure: Body,
        } = 0x0205,
        /// From the supervisor: newest first, keyset pages.
        ListRuns {
            /// Only this conversation.
            conversation: Option<ConversationId>,
            /// Only this status.
            status: Option<String>,
            /// 1 to 100.
            limit: u32,
            /// From an earlier page.
            cursor: Option<String>,
        } = 0x0206,
        /// From the supervisor: one run with its tools.
        ShowRun {
            /// Which.
            run: RunId,
        } = 0x0207,
        /// From the continuation worker and the supervisor: was this run committed?
        RunCommitted {
            /// Which.
            run: RunId,
        } = 0x0208,
        /// From the supervisor: a run's process died without saying how it ended.
        Interrupt {
            /// Which.
            run: RunId,
            /// e.g. `worker_lost`.
            failure_kind: String,
        } = 0x0209,
        /// From the continuation worker: the latest history of a conversation that no run is for.
        LatestHistory {
            /// Which.
            conversation: ConversationId,
        } = 0x020a,
        /// From the continuation worker: enters a delivered answer into a history, without a run.
        AppendHistory {
            /// Where.
            conversation: ConversationId,
            /// The delivery, ≤ 256 bytes: the same one is entered once.
            key: String,
            /// A list of [`ChatMessage`].
            messages: Body,
        } = 0x020b,
        /// From the console: its threads, messages and logins.
        Console {
            /// [`crate::console::Ask`] as JSON.
            ask: Body,
        } = 0x020c,
        /// From the continuation worker: an answer for a conversation of the terminal.
        LeaveLetter {
            /// The terminal's name of the conversation.
            conversation: ConversationId,
            /// The delivery, ≤ 256 bytes: the same one is left once.
            key: String,
            /// UTF-8 text.
            text: Body,
            /// Refused as `too_late` after this.
            until: Until,
        } = 0x020d,
        /// From the supervisor: letters after a number, the oldest first.
        Letters {
            /// Only of this conversation.
            conversation: Option<ConversationId>,
            /// After this number; 0 for all that are kept.
            after: u64,
            /// 1 to 100.
            limit: u32,
        } = 0x020e,
    }
}

messages! {
    /// Replies.
    pub enum Reply, descriptors 1 {
        /// A [`History`]; also answers `LatestHistory`.
        Began {
            /// The history.
            history: Body,
        } = 0x0281,
        /// Recorded: outlives the death of every process; the end of a run, and a letter, also a
        /// power cut.
        Recorded = 0x0282,
        /// The commit is durable; also answers `AppendHistory`.
        Committed {
            /// The conversation's new revision.
            revision: u64,
        } = 0x0283,
        /// A [`RunPage`].
        Runs {
            /// The page.
            page: Body,
        } = 0x0284,
        /// A [`RunRecord`], absent when there is none.
        Run {
            /// The record.
            record: Option<Body>,
        } = 0x0285,
        /// Answer to `RunCommitted`.
        Committedness {
            /// `committed`, `failed`, `running` or `unknown`.
            state: String,
        } = 0x0286,
        /// Answer to `Console`.
        Console {
            /// JSON, as [`crate::console::Ask`] says.
            answer: Body,
        } = 0x0287,
        /// A [`LetterPage`].
        Letters {
            /// The page.
            page: Body,
        } = 0x0288,
    }
}
