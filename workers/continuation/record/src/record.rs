//! The record of one continuation, as it stands in its file.

use crate::canonical::Payload;
use crate::time::Time;
use serde::{Deserialize, Deserializer, Serialize};

/// Where a continuation stands (spec s1, "Synthesis and delivery").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Accepted; the result is awaited.
    Claimed,
    /// The result is here; synthesis is due.
    ResultReceived,
    /// A model is, or was, asked.
    Synthesizing,
    /// The text is kept; its delivery is due.
    ReadyToDeliver,
    /// A delivery was refused for now.
    DeliveryRetry,
    /// There is a receipt.
    Delivered,
    /// A delivery was begun and nobody can say what became of it. An operator resolves it.
    DeliveryUnknown,
    /// The deadline passed.
    Expired,
    /// An operator ended it.
    Cancelled,
    /// It can't be delivered.
    DeadLettered,
}

impl State {
    /// Every state, in the order in which they are counted.
    pub const ALL: [Self; 10] = [
        Self::Claimed,
        Self::ResultReceived,
        Self::Synthesizing,
        Self::ReadyToDeliver,
        Self::DeliveryRetry,
        Self::Delivered,
        Self::DeliveryUnknown,
        Self::Expired,
        Self::Cancelled,
        Self::DeadLettered,
    ];

    /// The name on the wire and in the file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::ResultReceived => "result_received",
            Self::Synthesizing => "synthesizing",
            Self::ReadyToDeliver => "ready_to_deliver",
            Self::DeliveryRetry => "delivery_retry",
            Self::Delivered => "delivered",
            Self::DeliveryUnknown => "delivery_unknown",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::DeadLettered => "dead_lettered",
        }
    }

    /// Nothing more happens by itself, and what it was is kept as a tombstone: delivered, expired,
    /// cancelled, dead-lettered.
    #[must_use]
    pub const fn is_settled(self) -> bool {
        matches!(
            self,
            Self::Delivered | Self::Expired | Self::Cancelled | Self::DeadLettered
        )
    }

    /// Something is still to happen by itself: neither settled nor `delivery_unknown`.
    #[must_use]
    pub const fn is_pending(self) -> bool {
        !self.is_settled() && !matches!(self, Self::DeliveryUnknown)
    }
}

/// What becomes of a result (spec s1, the table of modes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// An answer in the conversation of the request.
    Reply,
    /// An answer, if there is something to say.
    NotifyIfActionable,
    /// A text that is kept and not posted.
    Capture,
    /// Neither text nor post.
    Silent,
}

impl Mode {
    /// The name on the wire and in the file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reply => "reply",
            Self::NotifyIfActionable => "notify_if_actionable",
            Self::Capture => "capture",
            Self::Silent => "silent",
        }
    }
}

/// What is known of the conversation as it was when the work was claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OriginContextState {
    /// The turn is not committed yet.
    Pending,
    /// The snapshot is bound and its turn committed.
    Pinned,
    /// The turn was not committed.
    Abandoned,
    /// There was no turn: the latest history of the route's conversation.
    DetachedLatest,
    /// From a format that had no snapshots.
    LegacyMissing,
    /// It was there; the record is past it.
    Scrubbed,
}

impl OriginContextState {
    /// The name on the wire and in the file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Pinned => "pinned",
            Self::Abandoned => "abandoned",
            Self::DetachedLatest => "detached_latest",
            Self::LegacyMissing => "legacy_missing",
            Self::Scrubbed => "scrubbed",
        }
    }
}

/// Where an answer's text came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompletionKind {
    /// From a model.
    Synthesized,
    /// It is the fixed answer, because the conversation could not be restored.
    OriginContextUnavailable,
}

/// How a continuation was settled as delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiptKind {
    /// A channel confirmed the post.
    Delivered,
    /// There was nothing to say.
    Suppressed,
    /// The text is kept.
    Captured,
    /// Nothing was to be said.
    Silent,
}

/// Proof of the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Receipt {
    /// How.
    pub kind: ReceiptKind,
    /// When.
    pub delivered_at: Time,
    /// The channel's name of the post.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_id: Option<String>,
    /// The channel's name of the place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel_id: Option<String>,
    /// Whether the post also stands in the conversation's history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_recorded: Option<bool>,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_error_code: Option<String>,
}

/// What last went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LastError {
    /// A fixed code.
    pub code: String,
    /// In words, bounded and without secrets.
    pub reason: String,
    /// When.
    pub at: Time,
}

/// The snapshot that a record is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContextRef {
    /// Always 1.
    pub schema_version: u32,
    /// Its digest, which is its name in the folder of snapshots.
    pub digest: String,
    /// Bytes of its canonical text.
    pub bytes: u64,
    /// Messages in it.
    pub message_count: u32,
}

/// One continuation. Every bound is in [`crate::validate`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Record {
    /// Its name.
    pub continuation_id: String,
    /// Who claimed it: an MCP server's name, or `detached:` and a service's.
    pub server_name: String,
    /// The run that it belongs to.
    pub origin_run_id: String,
    /// The history that it belongs to, with the bucket of a rollover.
    pub origin_conversation_id: String,
    /// Where the answer goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to_conversation_id: Option<String>,
    /// Where the history ends for it; none if there was no turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_boundary: Option<String>,
    /// What is known of the conversation.
    pub origin_context_state: OriginContextState,
    /// The snapshot, as long as it is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin_context_ref: Option<ContextRef>,
    /// The snapshot's digest, kept when the snapshot is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin_context_digest: Option<String>,
    /// Its number of messages, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin_context_message_count: Option<u32>,
    /// Claim and snapshot in one digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin_context_fingerprint: Option<String>,
    /// The MAC that binds the snapshot to what was claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin_context_binding_mac: Option<String>,
    /// Where the text came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_kind: Option<CompletionKind>,
    /// What becomes of the result.
    pub mode: Mode,
    /// The route of a detached claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_name: Option<String>,
    /// The service's name of the task.
    pub task_key: String,
    /// The service's hash of the task; any text.
    pub task_hash: String,
    /// Digest of all that the claim is bound to.
    pub claim_fingerprint: String,
    /// SHA-256 of the token that may submit the result.
    pub result_token_hash: String,
    /// When it was claimed.
    pub created_at: Time,
    /// When it last changed.
    pub updated_at: Time,
    /// When it expires.
    pub deadline: Time,
    /// Where it stands.
    pub state: State,
    /// The service's name of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_idempotency_key: Option<String>,
    /// The result's hash, kept when the payload is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_payload_hash: Option<String>,
    /// The result; may be the value `null`.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub result_payload: Option<Payload>,
    /// How often a model was asked.
    pub synthesis_attempts: u32,
    /// How often asking was put off because the origin was not settled.
    pub synthesis_deferrals: u32,
    /// When the model was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synthesis_started_at: Option<Time>,
    /// The answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synthesized_text: Option<String>,
    /// Whether there is something to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actionable: Option<bool>,
    /// How often it was given to a channel.
    pub delivery_attempts: u32,
    /// When it was last given to a channel, until that one has answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_started_at: Option<Time>,
    /// Not before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Time>,
    /// The process that works on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_owner: Option<String>,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<Time>,
    /// What last went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// Proof of the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// When payload and text were dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compacted_at: Option<Time>,
}

/// A key that is there has a value, even if the value is `null`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Payload>, D::Error> {
    Payload::deserialize(deserializer).map(Some)
}
