//! What the MCP servers of `tools.mcpRequestContextServers` are told of the request that they work for
//! (spec s3, "Trusted request context for a stdio server").

use serde::{Deserialize, Serialize};
use std::fmt;

/// Files of one request that servers are told of; channels take fewer.
pub const MAX_ATTACHED: usize = 16;
/// Longest name of one in bytes.
pub const MAX_ATTACHED_NAME: usize = 255;
/// Folder of a run's scratch folder in which they lie.
pub const ATTACHMENTS: &str = "attachments";
/// Folder of a run's scratch folder that its servers may write to, and that it may publish from.
pub const OUTBOUND: &str = "outbound";

/// A file that came with the request, as the run stored it: `dev` and `ino` are those of the descriptor that it
/// was written through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedFile {
    /// Its name in [`ATTACHMENTS`].
    pub name: String,
    /// The device.
    pub dev: u64,
    /// The inode.
    pub ino: u64,
}

/// A secret on its way to the server that it is for. Never shown by `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProgressToken(pub String);

impl fmt::Debug for ProgressToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[progress token]")
    }
}

/// Where a server may say how far it is, and with what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressAccess {
    /// The route.
    pub url: String,
    /// The bearer.
    pub token: ProgressToken,
}

/// What the app-bridge knows of a request for one of its servers. Whose request it is, the supervisor
/// knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestContext {
    /// The request's files, at most [`MAX_ATTACHED`].
    pub attachments: Vec<AttachedFile>,
    /// None where progress is off.
    pub progress: Option<ProgressAccess>,
}

/// Longest key of a progress post in characters.
pub const MAX_PROGRESS_KEY: usize = 128;
/// Longest message of one in bytes, as it is shown.
pub const MAX_PROGRESS_MESSAGE: usize = 1024;

/// Where the work that a server tells of stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProgressState {
    /// It goes on.
    Running,
    /// It is done.
    Completed,
    /// It is given up.
    Failed,
}

impl ProgressState {
    /// Its word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_of_progress_is_never_shown() {
        let context = RequestContext {
            attachments: vec![],
            progress: Some(ProgressAccess {
                url: "http://127.0.0.1:1/v1/progress".into(),
                token: ProgressToken("secret".into()),
            }),
        };
        assert!(!format!("{context:?}").contains("secret"));
    }
}
