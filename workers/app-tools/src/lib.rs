//! Tools of the application's own, offered over MCP for as long as one request lives.
//!
//! A [`ToolSet`] says what its tools are and does the work. An [`Endpoint`] puts it on a loopback
//! port under a path that nobody can guess, and takes it away again. Both are all that a further
//! tool of the application needs; nothing here knows what the tools do.
#![forbid(unsafe_code)]

mod capability;
mod door;
mod endpoint;
mod server;
mod tool_set;

pub use capability::CapabilityUrl;
pub use door::MAX_BODY;
pub use endpoint::{Endpoint, MAX_CONNECTIONS, OpenError};
pub use tool_set::{Answer, AppTool, Call, Content, MAX_BLOCK_CHARS, Progress, ToolSet};
