//! The wire between the processes of `mono`: packets, the handshake, versions, messages.
//!
//! One message is one `SOCK_SEQPACKET` packet of at most [`frame::MAX_PACKET`] bytes: a fixed
//! header ([`frame::Header`]) and a body. Anything larger travels as a descriptor of a sealed
//! memfd ([`body::Body`]). What may be said by whom, when, how often and with how many
//! descriptors stands in one static table ([`table`]); the default is refusal.
#![forbid(unsafe_code)]

pub mod admin;
pub mod apps;
pub mod body;
pub mod callbacks;
pub mod channel;
pub mod chat;
pub mod client;
pub mod codec;
pub mod console;
pub mod door;
pub mod edges;
pub mod figures;
pub mod frame;
pub mod ids;
pub mod link;
pub mod marker;
pub mod message;
pub mod operator_events;
pub mod operator_frames;
pub mod outcomes;
pub mod reply;
pub mod request_context;
pub mod role;
pub mod rooms;
pub mod settings;
mod socket;
pub mod table;
pub mod text;
pub mod until;

pub use body::Body;
pub use channel::{Call, CallError, Client, EventReceiver, EventSender, Replies, Server};
pub use door::{Again, Door};
pub use ids::{ConversationId, RunId};
pub use link::{Incoming, Link, LinkError};
pub use message::{Edge, Message};
pub use role::Role;
pub use until::Until;

/// The oldest protocol version this build speaks.
pub const VERSION_MIN: u16 = 1;
/// The newest protocol version this build speaks.
pub const VERSION_MAX: u16 = 1;
/// First bytes of a `Hello`: tells our handshake from a stray packet.
pub const MAGIC: u32 = 0x6d6f_6e6f;

/// Picks the highest version both sides speak.
///
/// Returns `None` when the ranges don't meet; the caller refuses with both ranges in the reason.
#[must_use]
pub fn common_version(ours: (u16, u16), theirs: (u16, u16)) -> Option<u16> {
    let top = ours.1.min(theirs.1);
    (theirs.0 <= theirs.1 && top >= ours.0.max(theirs.0)).then_some(top)
}

#[cfg(test)]
mod golden_tests;
