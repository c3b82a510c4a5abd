//! One agent run: builds the context, streams the model, executes tools, commits the outcome.
#![forbid(unsafe_code)]

pub mod naming;
pub mod owners;
pub mod policy;
pub mod process;
pub mod tools;
