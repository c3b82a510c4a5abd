//! The store of durable continuations (spec s1, "Health and recovery"): format `per-record-v3`.
//!
//! A change is durable once it stands in the log: one preallocated file, into which all changes
//! that wait are written at once and synced once. Behind it, checkpoints put every record that is
//! not settled into a file of its own, replaced as a whole, and every settled one into packs. What
//! is in neither is replayed from the log at the next start.
//!
//! All of it runs on a small trait of file operations, [`fs::Fs`]; a simulated one loses what was
//! not synced, and so shows what a power cut would.
#![forbid(unsafe_code)]

mod activate;
mod bytes;
mod checkpoint;
mod contexts;
mod error;
mod frame;
pub mod fs;
mod guard;
mod index;
mod legacy;
mod limits;
mod log;
mod manifest;
mod meta;
mod names;
mod op;
mod open;
mod pack;
mod secret;
mod shared;
mod state;
mod store;
mod txn;
mod verify;

pub use error::{OpenError, StoreError, UpdateError};
pub use index::Counts;
pub use limits::{Limits, Retention};
pub use open::Opened;
pub use secret::Secret;
pub use store::{Cursor, Overdue, Page, Stats, Store, Update};
pub use txn::{Origin, Txn};

#[cfg(test)]
mod codec_tests;
