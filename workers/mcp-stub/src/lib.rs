//! What stands in the place of an MCP server in a client's configuration: it speaks MCP on stdio
//! and hands every message to the gateway of a running daemon, which has the server.
//!
//! [`wire`] and [`frame`] are shared with the gateway; [`relay`] decides and has no I/O; [`pump`]
//! moves the bytes.
#![forbid(unsafe_code)]

pub mod cli;
pub mod frame;
pub mod lines;
pub mod pump;
pub mod relay;
pub mod wire;
