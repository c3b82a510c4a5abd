//! What a run tells the channel that started it, with credit (facts 2.8).

use crate::Body;
use crate::chat::Usage;
use crate::edges::egress::ProviderStage;
use crate::ids::RunId;
use crate::messages;

/// Largest text piece of one event in bytes.
pub const MAX_PIECE: usize = 32 * 1024;

/// Most continuations that one turn names; it may have begun more.
pub const MAX_BACKGROUND: usize = 64;

messages! {
    /// Events of one run, in order; the last is `Finish` or `Failed`.
    pub enum RunEvent, descriptors 1 {
        /// The run holds a slot and works.
        Started {
            /// Which.
            run: RunId,
        } = 0x0601,
        /// Text to append, ≤ 32 KiB.
        Append {
            /// The piece.
            text: String,
        } = 0x0602,
        /// What was appended until now is void (a model attempt failed); start from here.
        Replace {
            /// The new text.
            text: String,
        } = 0x0603,
        /// Reasoning.
        Thought {
            /// The piece.
            text: String,
        } = 0x0604,
        /// A tool call begins.
        ToolStarted {
            /// The model's id.
            id: String,
            /// Exposed name.
            name: String,
            /// JSON of the arguments, cut to 4,096 bytes.
            arguments: String,
        } = 0x0605,
        /// It goes on.
        ToolProgress {
            /// The model's id.
            id: String,
            /// So far.
            progress: f64,
            /// Of how much.
            total: Option<f64>,
            /// For people.
            message: Option<String>,
        } = 0x0606,
        /// It ended.
        ToolCompleted {
            /// The model's id.
            id: String,
            /// Exposed name.
            name: String,
            /// False for any failure.
            ok: bool,
            /// Cut to 4,096 bytes.
            preview: String,
            /// Milliseconds.
            duration_ms: u64,
        } = 0x0607,
        /// Tokens so far.
        UsageUpdate {
            /// Cumulative.
            usage: Usage,
        } = 0x0608,
        /// Where the model request stands.
        ProviderStatus {
            /// The stage.
            stage: ProviderStage,
            /// `<provider>:<model>`.
            model: String,
            /// For people.
            detail: Option<String>,
        } = 0x0609,
        /// Something is missing, the run goes on (`runtime_warning`).
        Warning {
            /// A fixed code.
            code: String,
            /// One sentence.
            message: String,
        } = 0x060a,
        /// A reply part was added: JSON of a [`crate::reply::ReplyPart`].
        Part {
            /// The part.
            part: Body,
        } = 0x060b,
        /// Committed. Final.
        Finish {
            /// The whole answer as text bytes.
            text: Body,
            /// JSON of the parts, after the text's descriptor if any; inline always (≤ 20 parts).
            parts: Vec<u8>,
            /// Tokens of the run.
            usage: Usage,
            /// `<provider>:<model>` that answered.
            model: String,
        } = 0x060c,
        /// Not committed. Final.
        Failed {
            /// True for a cancellation.
            cancelled: bool,
            /// e.g. `provider_auth`, `worker_lost`.
            kind: String,
            /// One sentence for the person.
            message: String,
        } = 0x060d,
        /// The turn is committed, and work that it began goes on: each answer comes later, by itself.
        /// Once, right before `Finish`.
        Background {
            /// Ids of the continuations, at most [`MAX_BACKGROUND`].
            continuations: Vec<String>,
        } = 0x060e,
        /// An MCP server tells how far a piece of its work is; the same key takes the place of what was
        /// told of it before.
        Posted {
            /// Configured name of the server.
            server: String,
            /// What of its work this is about, ≤ 128 characters.
            key: String,
            /// For people, ≤ 1 KiB.
            message: String,
            /// Where that stands.
            state: crate::request_context::ProgressState,
        } = 0x060f,
        /// A page can be shown of a call whose arguments the model still writes: JSON of its
        /// [`crate::reply::ReplyPart`]. `Part` with the same id, or `AppGone`, comes later. Only to
        /// a listener that shows apps.
        AppDraft {
            /// The part.
            part: Body,
        } = 0x0610,
        /// What that call's arguments say so far; for display alone.
        AppInput {
            /// The part's id.
            id: String,
            /// JSON object.
            arguments: Body,
        } = 0x0611,
        /// That call is made: its arguments are whole.
        AppCalled {
            /// The part's id.
            id: String,
        } = 0x0612,
        /// Nothing came of that call that the page could show.
        AppGone {
            /// The part's id.
            id: String,
        } = 0x0613,
    }
}

impl RunEvent {
    /// True for the last event of a run.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Finish { .. } | Self::Failed { .. })
    }
}
