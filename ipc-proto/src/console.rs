//! What the web console keeps with the store, and what an operator and the supervisor say about it.
//!
//! All of it travels as JSON: in bodies of the store edge and of the control channel. The shapes of
//! [`Thread`] and [`Message`] are also those of the console's own wire (docs/protocols.md).

use crate::Until;
use crate::chat::Usage;
use crate::reply::ReplyPart;
use serde::{Deserialize, Serialize};

/// Longest title in characters (facts 2.9).
pub const MAX_TITLE: usize = 80;
/// Longest text of a message in bytes; an answer's end is cut above it.
pub const MAX_TEXT: usize = 1 << 20;
/// Entries of one message's activity that are kept: the latest.
pub const MAX_ACTIVITY: usize = 200;
/// Largest text of one entry of the activity in bytes.
pub const MAX_ACTIVITY_TEXT: usize = 16 * 1024;
/// Largest request or answer of the store in bytes: a page of messages.
pub const MAX_BODY: usize = 32 << 20;
/// Files of one message.
pub const MAX_ATTACHMENTS: usize = 10;
/// Sessions at once.
pub const MAX_SESSIONS: usize = 64;
/// Messages that wait or are answered in one thread.
pub const MAX_QUEUED: usize = 20;

/// Who wrote a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Author {
    /// The person.
    User,
    /// The agent.
    Assistant,
}

/// Where a message stands. A person's message is always `Succeeded`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// Waits behind another answer of its thread.
    Queued,
    /// Is being written.
    Running,
    /// Whole.
    Succeeded,
    /// Ended by a failure.
    Failed,
    /// Ended on request.
    Cancelled,
    /// Its worker ended first.
    Interrupted,
}

impl Standing {
    /// The name as stored and shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }

    /// The standing of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [
            Self::Queued,
            Self::Running,
            Self::Succeeded,
            Self::Failed,
            Self::Cancelled,
            Self::Interrupted,
        ]
        .into_iter()
        .find(|standing| standing.name() == name)
    }

    /// True while something may still be added.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Queued | Self::Running)
    }
}

/// A conversation as the console shows it. Times are milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Thread {
    /// Opaque.
    pub id: String,
    /// At most [`MAX_TITLE`] characters; empty until the first message.
    pub title: String,
    /// A person gave it: nothing else changes it.
    pub title_locked: bool,
    /// Begun.
    pub created_at: i64,
    /// Last message.
    pub updated_at: i64,
    /// Put away.
    pub archived: bool,
    /// An answer came that nobody has looked at.
    pub unread: bool,
    /// An answer is being written or waits.
    pub running: bool,
}

/// A file that came with a message; its bytes went to the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    /// The upload.
    pub id: String,
    /// A plain file name.
    pub name: String,
    /// `type/subtype`.
    pub media_type: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// Kind of an entry of the activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActivityKind {
    /// A tool call.
    Tool,
    /// Reasoning.
    Thought,
    /// Where the model request stands.
    Status,
    /// Something is missing.
    Warning,
}

/// One step of a turn beside its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Activity {
    /// Unique within its message; the same id again is an update.
    pub id: String,
    /// What it is.
    pub kind: ActivityKind,
    /// The tool, or a fixed code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// JSON of a call's arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// A call's result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The call failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// Milliseconds since 1970.
    pub started_at: i64,
    /// Milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<i64>,
    /// Something of it was cut.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Reasoning, a status or a warning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// Why an answer is not whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// A fixed code.
    pub kind: String,
    /// One sentence for the person.
    pub message: String,
}

/// A message of a thread, as the person sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// Opaque.
    pub id: String,
    /// Who wrote it.
    pub role: Author,
    /// Milliseconds since 1970.
    pub created_at: i64,
    /// At most [`MAX_TEXT`] bytes.
    pub text: String,
    /// Where it stands.
    pub status: Standing,
    /// The run that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Files of the person.
    #[serde(default)]
    pub attachments: Vec<Attachment>,
    /// Parts of the answer, as the run delivered them.
    #[serde(default)]
    pub parts: Vec<ReplyPart>,
    /// Steps, at most [`MAX_ACTIVITY`].
    #[serde(default)]
    pub activity: Vec<Activity>,
    /// Why it is not whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Tokens and cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The text was longer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// A login that holds. What its cookie says is known as a hash alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// Names it for people; no secret.
    pub id: String,
    /// SHA-256 of the cookie's secret, in hex.
    pub hash: String,
    /// Milliseconds since 1970.
    pub created_at: i64,
    /// Milliseconds since 1970, to the hour.
    pub last_seen_at: i64,
    /// Milliseconds since 1970.
    pub expires_at: i64,
    /// What the browser called itself.
    pub user_agent: String,
}

/// What the console asks of the store. Each names its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Ask {
    /// Threads, newest activity first: [`ThreadPage`].
    Threads {
        /// The archived ones, or the others.
        archived: bool,
        /// 1 to 100.
        limit: u32,
        /// From an earlier page.
        cursor: Option<String>,
    },
    /// Begins an empty thread: [`Thread`].
    NewThread {
        /// Its id.
        id: String,
    },
    /// A thread with a page of messages, the latest first: [`ThreadView`].
    ShowThread {
        /// Which.
        id: String,
        /// From an earlier page.
        before: Option<String>,
        /// 1 to 100.
        limit: u32,
    },
    /// Changes a thread: [`Thread`].
    EditThread {
        /// Which.
        id: String,
        /// A title, which is locked from then on.
        title: Option<String>,
        /// Put away, or taken out again.
        archived: Option<bool>,
        /// Looked at, or not.
        read: Option<bool>,
    },
    /// Removes a thread and its messages: `null`. Fault `running` while an answer is written.
    RemoveThread {
        /// Which.
        id: String,
    },
    /// Enters a person's message and the answer to come: [`Begun`]. From now on the answer is
    /// interrupted when this channel ends.
    Begin {
        /// In which thread.
        thread: String,
        /// The person's.
        user: Box<Message>,
        /// The answer, open.
        reply: Box<Message>,
        /// A person's message that goes, with all after it.
        replaces: Option<String>,
    },
    /// Enters what an answer has become: `null`.
    Save {
        /// The answer.
        message: Box<Message>,
    },
    /// Enters an answer that comes later, whole: `null`. The same message again changes nothing.
    Deliver {
        /// In which thread.
        thread: String,
        /// The answer.
        message: Box<Message>,
        /// Refused as `too_late` after this.
        until: Until,
    },
    /// One message: [`Found`].
    ShowMessage {
        /// Which.
        id: String,
    },
    /// Titles and texts with all of the words: [`SearchPage`].
    Search {
        /// What a person typed.
        query: String,
        /// 1 to 50.
        limit: u32,
        /// From an earlier page.
        cursor: Option<String>,
    },
    /// Every session: a list of [`Session`].
    Sessions,
    /// Enters a session, or what changed of it: `null`.
    KeepSession {
        /// The session.
        session: Session,
    },
    /// Forgets a session: `null`.
    RemoveSession {
        /// Which.
        id: String,
    },
}

/// A page of threads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadPage {
    /// Newest activity first.
    pub threads: Vec<Thread>,
    /// Opaque; `null` on the last page.
    pub next: Option<String>,
}

/// A thread with a page of its messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadView {
    /// The thread.
    pub thread: Thread,
    /// Oldest first.
    pub messages: Vec<Message>,
    /// Opaque; `null` when there is nothing earlier.
    pub previous: Option<String>,
    /// How often something was resent: each time the agent's own history begins anew.
    pub branch: u32,
}

/// Answer to [`Ask::Begin`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// As in [`ThreadView`].
    pub branch: u32,
}

/// Answer to [`Ask::ShowMessage`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Its thread.
    pub thread: String,
    /// The message.
    pub message: Message,
}

/// A piece of a text that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snippet {
    /// The text.
    pub text: String,
    /// It is one of the words.
    pub hit: bool,
}

/// One place that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hit {
    /// The thread.
    pub thread_id: String,
    /// Its title.
    pub title: String,
    /// The message; absent when it is the title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// The words in their surroundings.
    pub snippet: Vec<Snippet>,
    /// Milliseconds since 1970.
    pub at: i64,
}

/// A page of what was found, best first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchPage {
    /// The places.
    pub hits: Vec<Hit>,
    /// Opaque; `null` on the last page.
    pub next: Option<String>,
}

/// What an operator wants of the console's logins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// A one-time login: `{"token": …, "expiresInMs": …}`.
    Link,
    /// The sessions: `{"sessions": […]}`, without their hashes.
    Sessions,
    /// End a session: `{"revoked": id}`.
    Revoke {
        /// Which.
        id: String,
    },
}

/// What the console may see of the daemon for its operator pages: what `monoctl` shows, read-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Look {
    /// As `monoctl status`.
    Status,
    /// Where the configuration's values come from.
    Config,
    /// As `monoctl runs list`.
    Runs {
        /// Only this status.
        status: Option<String>,
        /// 1 to 100.
        limit: u32,
        /// From an earlier page.
        cursor: Option<String>,
    },
    /// As `monoctl runs show`.
    Run {
        /// Which.
        run: String,
    },
    /// As `monoctl artifacts list`.
    Artifacts {
        /// 1 to 100.
        limit: u32,
        /// From an earlier page.
        cursor: Option<String>,
    },
    /// As `monoctl continuations health`.
    ContinuationHealth,
    /// As `monoctl continuations list`.
    Continuations {
        /// At most the configured page size.
        limit: Option<u32>,
        /// From an earlier page.
        cursor: Option<String>,
    },
    /// As `monoctl continuations show`.
    Continuation {
        /// Which.
        id: String,
    },
    /// The text of a delivered capture, which `monoctl` never prints.
    CapturedText {
        /// Of which.
        id: String,
    },
}

/// What an operator does in the console: nothing but what becomes of a continuation (spec s1, "Health
/// and recovery"). No destination is ever named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    /// As `monoctl continuations retry`.
    RetryContinuation {
        /// Which.
        id: String,
        /// Even where nobody knows whether it was delivered.
        allow_unknown: bool,
    },
    /// As `monoctl continuations cancel`.
    CancelContinuation {
        /// Which.
        id: String,
    },
    /// As `monoctl continuations resolve`.
    ResolveContinuation {
        /// Which.
        id: String,
        /// `delivered`, `not_delivered` or `dead_lettered`.
        kind: String,
        /// The receipt, where it was delivered.
        delivery_id: Option<String>,
    },
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_standing_has_its_name() {
        for standing in [
            Standing::Queued,
            Standing::Running,
            Standing::Succeeded,
            Standing::Failed,
            Standing::Cancelled,
            Standing::Interrupted,
        ] {
            assert_eq!(Standing::parse(standing.name()), Some(standing));
            let json = serde_json::to_value(standing).unwrap();
            assert_eq!(json, standing.name());
            let open = matches!(standing.name(), "queued" | "running");
            assert_eq!(standing.is_open(), open);
        }
        assert_eq!(Standing::parse("Running"), None);
    }

    #[test]
    fn a_bare_message_has_the_fields_of_the_wire() {
        let message = Message {
            id: "m".into(),
            role: Author::Assistant,
            created_at: 1,
            text: String::new(),
            status: Standing::Queued,
            run_id: None,
            attachments: vec![],
            parts: vec![],
            activity: vec![],
            failure: None,
            usage: None,
            truncated: false,
        };
        let expected = serde_json::json!({
            "id": "m", "role": "assistant", "createdAt": 1, "text": "", "status": "queued",
            "attachments": [], "parts": [], "activity": [],
        });
        assert_eq!(serde_json::to_value(message).unwrap(), expected);
    }
}
