//! The channel workers: each carries messages between one kind of client and runs.
//!
//! One binary serves whichever channel role it is started as; a channel is a module of its own.
//! What they share is how a run is started and followed ([`runs`]) and the key of a web client
//! ([`bearer`]); how a listener is served and who may ask there they share with others
//! ([`worker_web`]).
#![forbid(unsafe_code)]

pub mod bearer;
pub mod console;
pub mod intake;
pub mod label;
pub mod later;
pub mod openai;
pub mod runs;
pub mod webhook;
