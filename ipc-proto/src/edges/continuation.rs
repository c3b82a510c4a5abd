//! Requests to the continuation worker: the claims of a run, its end, and what an operator wants
//! (spec s1, "Trusted request binding" and "Origin settlement lifecycle").

use crate::Body;
use crate::chat::ChatRole;
use crate::message::Edge;
use crate::messages;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The edge whose owner is `continuation`.
#[derive(Debug)]
pub struct Continuation;

impl Edge for Continuation {
    type Request = Request;
    type Reply = Reply;
    const NAME: &'static str = "continuation";
    fn is_final(_: &Reply) -> bool {
        true
    }
}

/// Largest [`Origin`] as JSON in bytes: a history's 66 messages of 64 KiB, and what stands around.
pub const MAX_ORIGIN: usize = 16 * 1024 * 1024;
/// Largest answer to an operator in bytes.
pub const MAX_OPERATED: usize = 4 * 1024 * 1024;

/// Names of the four values that a selected server gets in its environment. Nobody else may set them.
pub const CLAIM_VARIABLES: [&str; 4] = [
    "MONO_AGENT_CONTINUATION_CLAIM_URL",
    "MONO_AGENT_CONTINUATION_CLAIM_TOKEN",
    "MONO_AGENT_CONTINUATION_CLAIM_FINGERPRINT",
    "MONO_AGENT_CONTINUATION_CLAIM_MODE",
];

/// The same four as headers, in the same order.
pub const CLAIM_HEADERS: [&str; 4] = [
    "x-mono-agent-continuation-claim-url",
    "x-mono-agent-continuation-claim-token",
    "x-mono-agent-continuation-claim-fingerprint",
    "x-mono-agent-continuation-claim-mode",
];

/// A secret on its way to the server that it is for. Never shown by `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClaimToken(pub String);

impl fmt::Debug for ClaimToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[claim token]")
    }
}

/// What lets one server claim for one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Where to claim.
    pub url: String,
    /// The bearer.
    pub token: ClaimToken,
    /// What it is bound to, as a digest.
    pub fingerprint: String,
    /// What becomes of a result, e.g. `reply`.
    pub mode: String,
}

impl Claim {
    /// The values in the order of [`CLAIM_VARIABLES`] and [`CLAIM_HEADERS`].
    #[must_use]
    pub fn values(&self) -> [&str; 4] {
        [&self.url, &self.token.0, &self.fingerprint, &self.mode]
    }
}

/// What a completed turn had seen and said, as JSON in a body. Whose it is, the grant says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// What its history held before it, the oldest first.
    pub history: Vec<OriginMessage>,
    /// What the person asked.
    pub user: String,
    /// What the agent answered.
    pub assistant: String,
}

/// A message before the origin's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginMessage {
    /// Who said it.
    pub role: ChatRole,
    /// Its text.
    pub text: String,
    /// Of which turn it is; none where the caller's transcript tells it.
    pub turn: Option<String>,
    /// When it was entered, in milliseconds since 1970.
    pub at: Option<i64>,
}

/// What an operator wants. Its answers are the JSON of the HTTP surface (docs/protocols.md).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub enum Order {
    /// Counts, and whether something needs attention.
    Health,
    /// A page, the newest first.
    List {
        /// At most the configured page size; absent for just that.
        limit: Option<u32>,
        /// From an earlier page.
        cursor: Option<String>,
    },
    /// One of them.
    Show {
        /// Which.
        id: String,
    },
    /// The text of a delivered capture, and of nothing else.
    Captured {
        /// Of which.
        id: String,
    },
    /// Once more.
    Retry {
        /// Which.
        id: String,
        /// Even where nobody knows whether it was delivered.
        allow_unknown: bool,
    },
    /// Give it up.
    Cancel {
        /// Which.
        id: String,
    },
    /// Say what became of a delivery that nobody knows of.
    Resolve {
        /// Which.
        id: String,
        /// `delivered`, `not_delivered` or `dead_lettered`.
        kind: String,
        /// The receipt, where it was delivered.
        delivery_id: Option<String>,
    },
}

messages! {
    /// Requests. The run that they are about is the grant's.
    pub enum Request, descriptors 1 {
        /// From the app-bridge, for the run of its grant: lets a server claim.
        Issue {
            /// Its configured name.
            server: String,
        } = 0x0901,
        /// From a run: takes no claim any more, waits for those that were let in, and says how many
        /// are active.
        Close = 0x0902,
        /// From a run, before its commit: an [`Origin`], from which the snapshot is made. It is
        /// durable when it is answered.
        Pin {
            /// The origin.
            origin: Body,
        } = 0x0903,
        /// From a run, after its commit: its claims may be worked on.
        Activate = 0x0904,
        /// From a run that was not committed: its claims have no origin.
        Abandon = 0x0905,
        /// From the supervisor, for an operator: an [`Order`] as JSON.
        Operate {
            /// What.
            order: Body,
        } = 0x0906,
    }
}

messages! {
    /// Replies.
    pub enum Reply, descriptors 1 {
        /// Answers `Issue`.
        Issued {
            /// The capability.
            claim: Claim,
        } = 0x0981,
        /// Answers `Close`.
        Closed {
            /// Claims of this run that are not at their end.
            active: u32,
        } = 0x0982,
        /// Answers `Pin` and `Abandon`.
        Settled = 0x0983,
        /// Answers `Operate`.
        Operated {
            /// JSON.
            result: Body,
        } = 0x0984,
        /// Answers `Activate`.
        Activated {
            /// Ids of the run's claims that were not over, at most
            /// [`MAX_BACKGROUND`](crate::edges::events::MAX_BACKGROUND).
            continuations: Vec<String>,
        } = 0x0985,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_never_shown() {
        let claim = Claim {
            url: "http://127.0.0.1:4319/v1/continuations/claim".into(),
            token: ClaimToken("secret".into()),
            fingerprint: "f".into(),
            mode: "reply".into(),
        };
        assert!(!format!("{:?}", Reply::Issued { claim }).contains("secret"));
    }
}
