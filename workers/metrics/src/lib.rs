//! The metrics worker: what the supervisor counts, over HTTP, for who collects metrics.
//!
//! It asks the supervisor and nobody else, and holds nothing between two requests.
#![forbid(unsafe_code)]

pub mod format;
pub mod router;
pub mod serve;
