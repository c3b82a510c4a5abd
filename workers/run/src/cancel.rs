//! Why a run is to end early: the first reason counts.

use std::sync::{Arc, OnceLock};
use tokio_util::sync::CancellationToken;

/// A cancellation with its reason. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    token: CancellationToken,
    reason: Arc<OnceLock<String>>,
}

impl Cancel {
    /// Ends the run as cancelled. Later reasons are ignored.
    pub fn cancel(&self, reason: &str) {
        let _ = self.reason.set(reason.to_owned());
        self.token.cancel();
    }

    /// For whatever must stop at once.
    #[must_use]
    pub const fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// True once cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Why.
    #[must_use]
    pub fn reason(&self) -> String {
        self.reason.get().cloned().unwrap_or_default()
    }
}
