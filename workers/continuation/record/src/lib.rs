//! One durable continuation: what is kept of it, in which form, and what may become of it. All of it
//! is pure: no file, no socket, no clock, no randomness of its own.
#![forbid(unsafe_code)]

pub mod actionable;
pub mod backoff;
pub mod binding;
pub mod canonical;
pub mod cursor;
pub mod event;
pub mod health;
pub mod prompt;
pub mod record;
pub mod retention;
#[cfg(any(test, feature = "sample"))]
pub mod sample;
pub mod snapshot;
pub mod state;
pub mod time;
pub mod token;
pub mod validate;

pub use canonical::Payload;
pub use record::{
    CompletionKind, ContextRef, LastError, Mode, OriginContextState, Receipt, ReceiptKind, Record,
    State,
};
pub use time::Time;
pub use validate::Invalid;
