//! MCP client connections: the host's side of every configured server.
//!
//! The pure decisions ([`patience`], [`brake`], [`shelf`], [`listing`], [`content`]) have no I/O
//! and take the time as an argument; [`connection`] and [`call`] speak the protocol through rmcp
//! over whatever carries it; [`servers`] puts both together for the runs.
#![forbid(unsafe_code)]

pub mod apps;
pub mod bounded_http;
pub mod brake;
pub mod call;
pub mod claims;
pub mod client;
pub mod connection;
pub mod content;
pub mod ends;
pub mod error;
pub mod gateway;
pub mod limits;
pub mod listing;
pub mod patience;
pub mod pipes;
pub mod progress;
pub mod servers;
pub mod shelf;
pub mod sse;
mod supervised;
pub mod watch;
pub mod web;
pub mod worker;
