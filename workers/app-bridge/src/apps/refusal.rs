//! Why an app does not get what it asks for.

use super::vault::VaultError;
use ipc_proto::apps::{Confirmation, RpcError};

/// What is not done, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// One of facts 5.2.
    pub code: &'static str,
    /// One sentence.
    pub message: String,
    /// The server's own error.
    pub rpc: Option<RpcError>,
}

impl Refusal {
    /// A refusal without an error of the server.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            rpc: None,
        }
    }
}

/// Why a request has no result yet.
#[derive(Debug)]
pub enum Stop {
    /// And gets none.
    Refused(Refusal),
    /// A person has to decide.
    Confirm(Box<Confirmation>),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<VaultError> for Refusal {
    fn from(error: VaultError) -> Self {
        match error {
            VaultError::Expired => Self::new("app_expired", "The app is no longer kept."),
            VaultError::Missing => Self::new("app_missing", "There is no such app."),
            other => {
                tracing::error!("an app can't be read: {other}");
                Self::new("app_missing", "The app can't be read.")
            }
        }
    }
}

pub(super) fn closed() -> Refusal {
    Refusal::new("app_connection_closed", "The app's connection is closed.")
}
