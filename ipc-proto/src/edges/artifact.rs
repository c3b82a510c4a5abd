//! Requests to the artifact worker (spec s0, "Publishing a reply file"; facts 5.3).

use crate::Body;
use crate::ids::{ConversationId, RunId};
use crate::message::Edge;
use crate::messages;
use serde::{Deserialize, Serialize};

/// The edge whose owner is `artifact`.
#[derive(Debug)]
pub struct Artifact;

impl Edge for Artifact {
    type Request = Request;
    type Reply = Reply;
    const NAME: &'static str = "artifact";
    fn is_final(_: &Reply) -> bool {
        true
    }
}

/// Which authorised root a published path is relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Root {
    /// The workspace.
    Workspace,
    /// The run's own outbound directory.
    Outbound,
}

/// A retained artifact as its owner or an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactRecord {
    /// Opaque id.
    pub id: String,
    /// The run that published it.
    pub run_id: String,
    /// Logical conversation.
    pub conversation_id: String,
    /// Physical conversation it is bound to once the run is finalised.
    pub delivery_conversation_id: Option<String>,
    /// Display name.
    pub name: String,
    /// `type/subtype`.
    pub media_type: String,
    /// Bytes.
    pub size_bytes: u64,
    /// `sha256:<hex>`.
    pub integrity_id: String,
    /// RFC 3339.
    pub created_at: String,
    /// RFC 3339.
    pub expires_at: String,
    /// The app that it is a file of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
}

/// What is kept, and what may be, as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactUsage {
    /// Bytes charged: contents, a manifest's bound for each, what is being written or removed, and
    /// what lies in the folder and is nobody's.
    pub used_bytes: u64,
    /// The durable ceiling for them.
    pub ceiling_bytes: u64,
    /// Artifacts, finalised or not.
    pub count: u64,
    /// `artifacts.retention.maxCount`.
    pub max_count: u64,
    /// Artifacts that have expired or are over the count, and are still there: those of the last
    /// minute, or all of them where retention only reports.
    pub due: u64,
    /// Retention only reports (`artifacts.retention.dryRun`).
    pub dry_run: bool,
}

/// A page of artifacts, as JSON in a body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactPage {
    /// Newest first.
    pub artifacts: Vec<ArtifactRecord>,
    /// Opaque; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// What is kept in all, not only on this page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<ArtifactUsage>,
}

messages! {
    /// Requests. Run and conversation are the grant's.
    pub enum Request, descriptors 1 {
        /// From a run: publish the file behind the one descriptor, opened read-only, which must be
        /// the file at `path` below `root`. Without a descriptor the run could not open it: a
        /// failure that takes its place in the reply.
        Publish {
            /// Authorised root.
            root: Root,
            /// Relative path, ≤ 4 KiB.
            path: String,
            /// Display name wished for.
            name: Option<String>,
            /// Media type wished for.
            media_type: Option<String>,
        } = 0x0301,
        /// From a run, once, before its commit: binds what was published to the delivery conversation.
        Finalise = 0x0302,
        /// From a run, once: takes back what was published.
        Discard = 0x0303,
        /// From a channel or the supervisor: read a finalised artifact.
        Open {
            /// The opaque id, ≤ 128 bytes.
            id: String,
            /// Expected integrity id; the supervisor may leave it out.
            integrity_id: Option<String>,
            /// The conversation that it must be bound to; the supervisor may leave it out.
            delivery: Option<ConversationId>,
            /// The run whose reply, the message, it must be part of; the supervisor may leave it
            /// out.
            run: Option<RunId>,
        } = 0x0304,
        /// From the supervisor: newest first, keyset pages.
        List {
            /// 1 to 100.
            limit: u32,
            /// From an earlier page.
            cursor: Option<String>,
        } = 0x0305,
        /// From a run: a part that is no file takes a place in the reply, in the order of all of
        /// them and within the same bound.
        Enter {
            /// JSON of a `ReplyPart::McpApp`, at most 16 KiB.
            part: Body,
        } = 0x0306,
        /// From the app-bridge: keep a file of an app, which a person has asked for, until it
        /// expires. `Published`, with the file in no reply, or `Refused`.
        Keep {
            /// The app's record: 32 lower-case hexadecimal digits.
            app: String,
            /// The run that the app is part of.
            run: RunId,
            /// Its conversation.
            conversation: ConversationId,
            /// The conversation that the reply went to.
            delivery: ConversationId,
            /// Display name wished for, ≤ 4 KiB.
            name: String,
            /// Media type wished for.
            media_type: Option<String>,
            /// The bytes.
            content: Body,
        } = 0x0307,
        /// From the console: the files of an app that are kept, newest first, as `Artifacts`.
        Kept {
            /// The app's record.
            app: String,
            /// The conversation that it must have been delivered to.
            delivery: ConversationId,
            /// The run that it must be part of.
            run: RunId,
        } = 0x0308,
    }
}

messages! {
    /// Replies.
    pub enum Reply, descriptors 2 {
        /// The part to put in the reply, as JSON of `ReplyPart`.
        Published {
            /// JSON of a `ReplyPart::Attachment`.
            part: Body,
        } = 0x0381,
        /// Nothing was published.
        Refused {
            /// A fixed code of facts 5.2.
            code: String,
            /// JSON of the visible `ReplyPart::Failure`, when it took a slot of the budget.
            part: Option<Body>,
        } = 0x0382,
        /// Done; the parts of the run in order, as JSON.
        Finalised {
            /// `Vec<ReplyPart>`.
            parts: Body,
        } = 0x0383,
        /// Done.
        Discarded = 0x0384,
        /// A sealed memfd with exactly the verified bytes, after the record's own descriptor if any.
        Opened {
            /// JSON of an [`ArtifactRecord`].
            record: Body,
        } = 0x0385,
        /// JSON of an [`ArtifactPage`].
        Artifacts {
            /// The page.
            page: Body,
        } = 0x0386,
    }
}
