//! One agent run: builds the context, streams the model, executes tools, commits the outcome.
#![forbid(unsafe_code)]

pub mod app_endpoint;
pub mod attached;
pub mod cancel;
pub mod catalog;
pub mod context;
pub mod naming;
pub mod owners;
pub mod policy;
pub mod process;
pub mod redact;
pub mod results;
pub mod tools;
pub mod turn;
pub mod wire;
pub mod words_only;
