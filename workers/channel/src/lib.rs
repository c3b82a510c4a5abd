//! The channel workers: each carries messages between one kind of client and runs.
//!
//! One binary serves whichever channel role it is started as; a channel is a module of its own.
//! What they share is how a run is started and followed ([`runs`]), how a TCP listener is served
//! within bounds ([`listener`]), and how a web client is admitted ([`bearer`], [`origin`]).
#![forbid(unsafe_code)]

pub mod bearer;
pub mod listener;
pub mod openai;
pub mod origin;
pub mod runs;
