//! Durable continuations as a service: what MCP services claim and submit over loopback HTTP, what turns bind
//! and settle, what the processing loop does with it, and what operators see (`docs/continuations.md`).
//!
//! The pure parts are in `continuation-record`, what is kept in `continuation-store`. This crate opens nothing
//! itself: the listener, the store and the way to the other processes are handed to [`Service::start`].
#![forbid(unsafe_code)]

pub mod ambient;
pub mod bindings;
pub mod desk;
mod direct;
pub mod engine;
pub mod error;
pub mod host;
pub mod http;
pub mod intake;
pub mod keeper;
pub mod openapi;
pub mod operator;
pub mod origin;
pub mod service;
pub mod settings;
pub mod store;
pub mod timeline;

pub use bindings::Bound;
pub use desk::{Desk, Parts};
pub use engine::Engine;
pub use error::Rejection;
pub use host::Host;
pub use operator::{Operator, Verdict};
pub use origin::{ClaimBinding, OriginError, Origins};
pub use service::{Service, StartError};
pub use settings::{Limits, Route, Settings};
pub use store::Kept;

#[cfg(test)]
mod tests;
