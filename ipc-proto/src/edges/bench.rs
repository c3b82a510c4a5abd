//! A request that costs nothing but the way: measures a round trip between two workers.

use crate::message::Edge;
use crate::messages;

/// The edge of the round-trip benchmark.
#[derive(Debug)]
pub struct Bench;

impl Edge for Bench {
    type Request = Request;
    type Reply = Reply;
    const NAME: &'static str = "bench";
    fn is_final(_: &Reply) -> bool {
        true
    }
}

messages! {
    /// Requests.
    pub enum Request, descriptors 0 {
        /// Comes back as it is.
        Echo {
            /// Payload.
            #[serde(with = "serde_bytes")]
            bytes: Vec<u8>,
        } = 0x0701,
    }
}

messages! {
    /// Replies.
    pub enum Reply, descriptors 0 {
        /// The payload.
        Echoed {
            /// Payload.
            #[serde(with = "serde_bytes")]
            bytes: Vec<u8>,
        } = 0x0781,
    }
}
