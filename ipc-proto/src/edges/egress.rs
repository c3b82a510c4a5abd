//! Requests to the egress worker: model completions and fetches for tools (facts 3.3, 3.7, 4.1),
//! and deliveries of a channel (facts 2.2).

use crate::chat::{Failover, Usage};
use crate::message::Edge;
use crate::messages;
use crate::{Body, Until};
use serde::{Deserialize, Serialize};

/// The edge whose owner is `egress`.
#[derive(Debug)]
pub struct Egress;

impl Edge for Egress {
    type Request = Request;
    type Reply = Reply;
    const NAME: &'static str = "egress";
    fn is_final(reply: &Reply) -> bool {
        matches!(
            reply,
            Reply::Done { .. }
                | Reply::ModelFailed { .. }
                | Reply::Fetched { .. }
                | Reply::FetchFailed { .. }
                | Reply::Delivered { .. }
                | Reply::DeliveryFailed { .. }
        )
    }
}

/// Why the model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinishReason {
    /// It was done.
    Stop,
    /// It wants tools called.
    ToolUse,
    /// It ran into the output bound.
    Length,
    /// The provider withheld the rest.
    ContentFilter,
}

/// A stage of the provider's work (`provider_status` events, facts 2.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderStage {
    /// A request goes out.
    RequestStarted,
    /// Its stream ended well.
    RequestCompleted,
    /// The same model is tried again.
    RetryStarted,
    /// The next model is tried.
    FailoverStarted,
    /// The next model answered.
    FailoverCompleted,
}

messages! {
    /// Requests.
    pub enum Request, descriptors 1 {
        /// Stream an answer; a [`crate::chat::ModelRequest`] as JSON.
        Complete {
            /// The request.
            request: Body,
        } = 0x0401,
        /// GET for a tool; private targets refused after resolution and at each redirect.
        Fetch {
            /// Absolute http or https address, ≤ 8 KiB.
            url: String,
            /// Request headers that a tool may set.
            headers: Vec<(String, String)>,
            /// Most bytes of the body, ≤ 5 MiB.
            max_bytes: u64,
        } = 0x0402,
        /// POST of a channel's result, once, to a host that the configuration declares for that.
        Deliver {
            /// Absolute address, ≤ 8 KiB.
            url: String,
            /// Names the result, the same in every attempt.
            id: String,
            /// Seconds since 1970, part of what is signed.
            timestamp: u64,
            /// The channel's signature; its key stays there.
            signature: String,
            /// JSON, ≤ [`crate::callbacks::MAX_DELIVERY`].
            body: Body,
            /// Nothing is sent after this.
            until: Until,
        } = 0x0403,
    }
}

messages! {
    /// Streamed and final replies.
    pub enum Reply, descriptors 1 {
        /// Text to append, ≤ 16 KiB.
        TextDelta {
            /// The piece.
            text: String,
        } = 0x0481,
        /// Reasoning to append, ≤ 16 KiB.
        ThoughtDelta {
            /// The piece.
            text: String,
        } = 0x0482,
        /// A whole tool call.
        ToolCall {
            /// The provider's id, or one made here.
            id: String,
            /// Name as offered.
            name: String,
            /// JSON text of the arguments.
            arguments: Body,
        } = 0x0483,
        /// Usage of one request.
        Usage {
            /// The numbers.
            usage: Usage,
        } = 0x0484,
        /// Where the request stands.
        Status {
            /// The stage.
            stage: ProviderStage,
            /// `<provider>:<model>`.
            model: String,
            /// For people.
            detail: Option<String>,
        } = 0x0485,
        /// What was streamed until now belongs to a failed attempt: discard it.
        Restart {
            /// The failure class of that attempt.
            reason: String,
        } = 0x0486,
        /// The answer is whole. Final.
        Done {
            /// Why it ended.
            finish: FinishReason,
            /// `<provider>:<model>` that answered.
            model: String,
            /// Steps away from the first choice.
            failovers: Vec<Failover>,
        } = 0x0487,
        /// No answer. Final.
        ModelFailed {
            /// A class such as `provider_auth`, `context_limit`, `provider_unavailable_exhausted`.
            kind: String,
            /// One sentence, scrubbed of keys, ≤ 1 KiB.
            message: String,
            /// Steps away from the first choice.
            failovers: Vec<Failover>,
        } = 0x0488,
        /// The fetched body. Final.
        Fetched {
            /// HTTP status.
            status: u16,
            /// Address after redirects.
            url: String,
            /// `content-type`, if any.
            content_type: Option<String>,
            /// True when the body was cut at `max_bytes`.
            truncated: bool,
            /// The bytes.
            body: Body,
        } = 0x0489,
        /// Nothing was fetched. Final.
        FetchFailed {
            /// `private_address`, `invalid_url`, `dns`, `timeout`, `too_many_redirects`, `network`, `forbidden_header`.
            code: String,
            /// One sentence.
            message: String,
        } = 0x048a,
        /// The receiver answered. Final.
        Delivered {
            /// HTTP status, whatever it is; redirects are not followed.
            status: u16,
            /// `retry-after` in seconds, if it was given so.
            retry_after: Option<u32>,
        } = 0x048b,
        /// Nobody answered, or nothing was sent. Final.
        DeliveryFailed {
            /// `undeclared_host`, `private_address`, `invalid_url`, `too_large`, `dns`, `timeout`, `network`.
            code: String,
            /// One sentence.
            message: String,
        } = 0x048c,
        /// Arguments of a call of one of [`crate::chat::ModelRequest::streamed`] to append, before the
        /// whole call comes: for display alone. Some may be missing at their end.
        ArgumentsDelta {
            /// Which of the answer's calls, from 0.
            call: u32,
            /// Name as offered.
            name: String,
            /// The piece, ≤ 16 KiB.
            text: String,
        } = 0x048d,
    }
}
