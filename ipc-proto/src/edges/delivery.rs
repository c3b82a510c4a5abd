//! Requests to a channel worker: an answer that comes later, word for word, to a conversation of
//! that channel (spec s1, "Synthesis and delivery").

use crate::ids::{ConversationId, RunId};
use crate::message::Edge;
use crate::messages;
use crate::{Body, Until};
use serde::{Deserialize, Serialize};

/// The edge whose owner is a channel.
#[derive(Debug)]
pub struct Delivery;

impl Edge for Delivery {
    type Request = Request;
    type Reply = Reply;
    const NAME: &'static str = "channel";
    fn is_final(_: &Reply) -> bool {
        true
    }
}

/// Largest text in bytes: 200,000 characters.
pub const MAX_TEXT: usize = 800_000;

/// Largest part of [`Request::Present`] in bytes.
pub const MAX_PART: usize = 64 << 10;

/// The code of what was asked too late to be begun.
pub const TOO_LATE: &str = "too_late";

/// What the destination itself said of one piece of the text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Its id there, ≤ 256 bytes.
    pub id: Option<String>,
}

/// Why a text was not delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Obstacle {
    /// Nothing was posted; it may be possible later.
    Now,
    /// Nothing was posted, and nothing will be.
    Ever,
    /// Whether something was posted is not known.
    Unknown,
}

messages! {
    /// Requests.
    pub enum Request, descriptors 1 {
        /// Could something be delivered there now?
        Reach {
            /// The physical conversation.
            destination: ConversationId,
        } = 0x0a01,
        /// Posts a text as it is.
        Deliver {
            /// The physical conversation.
            destination: ConversationId,
            /// The same one is posted once, ≤ 256 bytes.
            key: String,
            /// UTF-8 text, at most [`MAX_TEXT`].
            text: Body,
            /// Nothing is posted that was not begun by then, and what was is broken off.
            until: Until,
        } = 0x0a02,
        /// Shows an app of an agent that is not ours, in a thread that is begun for it.
        Present {
            /// The physical conversation.
            destination: ConversationId,
            /// What the app belongs to.
            run: RunId,
            /// The thread's title while it has none, ≤ 80 characters.
            title: String,
            /// JSON of a [`crate::reply::ReplyPart::McpApp`].
            part: Body,
        } = 0x0a03,
    }
}

messages! {
    /// Replies.
    pub enum Reply, descriptors 0 {
        /// Yes.
        Reachable = 0x0a81,
        /// It was not posted, or nobody knows.
        NotDelivered {
            /// What it means for another attempt.
            obstacle: Obstacle,
            /// A fixed code, ≤ 128 bytes.
            code: String,
            /// One sentence.
            message: String,
            /// Milliseconds to wait at least.
            retry_after_ms: Option<u64>,
        } = 0x0a82,
        /// It was posted, in as many pieces.
        Delivered {
            /// Pieces that the text was cut into.
            pieces: u32,
            /// One of each piece that the destination confirmed, in order.
            receipts: Vec<Receipt>,
        } = 0x0a83,
    }
}
