//! Where apps are asked for: at a desk, once there is one, until another process has it.

use super::desk::Desk;
use super::files::Keeper;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;

/// How long who asks waits for a desk that is to come.
const OPENS_WITHIN: Duration = Duration::from_secs(10);

/// The place of the desk.
#[derive(Debug)]
pub struct Stand {
    desk: OnceLock<Arc<Desk>>,
    to_come: watch::Sender<bool>,
    keeper: Keeper,
}

impl Default for Stand {
    fn default() -> Self {
        Self {
            desk: OnceLock::new(),
            to_come: watch::Sender::new(false),
            keeper: Keeper::default(),
        }
    }
}

impl Stand {
    /// Who keeps files of apps.
    pub const fn keeper(&self) -> &Keeper {
        &self.keeper
    }

    /// There will be a desk soon, or there won't be after all.
    pub fn awaits(&self, to_come: bool) {
        self.to_come.send_replace(to_come);
    }

    /// There is a desk from now on.
    pub fn show(&self, desk: Arc<Desk>) {
        // The first stays; there is only one.
        let _ = self.desk.set(desk);
        self.awaits(false);
    }

    /// The desk, if this process shows apps.
    pub fn desk(&self) -> Option<&Arc<Desk>> {
        self.desk.get().filter(|desk| !desk.is_left())
    }

    /// True when there is a desk, or will be.
    pub fn shows(&self) -> bool {
        self.desk().is_some() || *self.to_come.borrow()
    }

    /// The desk, also when it is another process's by now: for what runs of this one have to say.
    pub fn own(&self) -> Option<&Arc<Desk>> {
        self.desk.get()
    }

    /// The desk, waited for where it is to come.
    pub async fn soon(&self) -> Option<&Arc<Desk>> {
        let mut to_come = self.to_come.subscribe();
        let _ = tokio::time::timeout(OPENS_WITHIN, to_come.wait_for(|to_come| !to_come)).await;
        self.desk()
    }
}
