//! The service as its callers meet it, over a store in memory and a host that says what it is told.
#![allow(clippy::unwrap_used)]

mod claims;
mod document;
mod faults;
mod hostile;
mod memory;
mod operators;
mod origins;
mod processing;
mod results;
mod stage;
mod stopping;
