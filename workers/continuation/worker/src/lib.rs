//! The continuation worker: the service for durable continuations (spec s1) with what it may ask of
//! others.
//!
//! The service's own crates know no process and no channel. Here its wishes become requests over
//! granted channels: to the store (what became of a run, histories, letters), to the supervisor (a
//! run that puts an answer into words), to the channels (a delivery).
#![forbid(unsafe_code)]

pub mod edge;
pub mod host;
pub mod owners;
pub mod prepare;
pub mod words;
pub mod work;
