//! The folder of apps goes from one process to the next while runs of the first one go on: a reload
//! starts a new app-bridge, and the old one finishes what it has.
//!
//! The records go at once, with everything that is asked of them. What stays behind is what only
//! the old process can say: whether its runs keep the apps that they have brought. It says so where
//! it always does, in the app's folder. It brings no further ones, so nothing is counted twice.
//!
//! Two locks say who is who: one on the folder for whose it is, and a shared one on `staging` for
//! those that still have runs.

use super::books::{Card, Owner};
use super::desk::Desk;
use super::vault::{CLOSED, KEPT, Vault, VaultError};
use nix::fcntl::Flock;
use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;

/// How long the old process waits for what is under way, which was told to end.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
/// Between two looks at whether it has.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Between two looks at whether an earlier process has ended.
const EARLIER_AGAIN: Duration = Duration::from_millis(500);

impl Vault {
    /// True once another process has the apps, or is about to.
    #[must_use]
    pub fn is_left(&self) -> bool {
        self.books().left
    }

    /// Takes nothing new from now on.
    pub fn leave(&self) {
        self.books().left = true;
    }

    /// Nothing is being written, and no action's end is owed.
    fn is_quiet(&self) -> bool {
        let books = self.books();
        books.staged == 0 && books.owners.values().all(|owner| owner.under_way == 0)
    }

    /// Says to the next process, as long as what is returned lives, that runs of this one go on.
    ///
    /// # Errors
    /// What `openat` and `flock` say.
    fn stay_behind(&self) -> io::Result<Flock<OwnedFd>> {
        self.staging.share()
    }

    /// What is known of an app that can be shown: its run goes on here, or has kept it. Of one whose
    /// run belongs to an earlier process the folder is asked.
    #[must_use]
    pub fn found(&self, id: &str) -> Option<Card> {
        let mut books = self.books();
        let owner = books.owners.get_mut(id)?;
        if owner.pending && self.is_marked(owner, KEPT) {
            owner.card.closed |= self.is_marked(owner, CLOSED);
            owner.card.kept = true;
            owner.pending = false;
        }
        (!owner.pending).then(|| owner.card.clone())
    }

    /// As [`Vault::found`], with true; or with false an app of a run of an earlier process that goes on
    /// and may still keep it. That one can be looked at. Nothing is done in its name, for what would
    /// be written down of it would go with its run.
    #[must_use]
    pub fn seen(&self, id: &str) -> Option<(Card, bool)> {
        let found = self.found(id).map(|card| (card, true));
        found.or_else(|| self.card(id).map(|card| (card, false)))
    }

    fn is_marked(&self, owner: &Owner, mark: &str) -> bool {
        let folder = self.folder_of(owner);
        folder.is_ok_and(|folder| matches!(folder.stat(mark), Ok(Some(_))))
    }

    /// Runs of earlier processes are over: what they have not kept goes. False while they are not.
    ///
    /// # Errors
    /// What `openat` and `flock` say.
    pub fn settle_earlier(&self) -> io::Result<bool> {
        let Some(_alone) = self.staging.hold()? else {
            return Ok(false);
        };
        let pending: Vec<String> = {
            let books = self.books();
            let pending = books.owners.values().filter(|owner| owner.pending);
            pending.map(|owner| owner.card.id.clone()).collect()
        };
        for id in pending {
            if self.found(&id).is_some() {
                continue;
            }
            if matches!(self.apps.stat(&id), Ok(None)) {
                // Its process has removed it.
                self.books().owners.remove(&id);
            } else {
                self.give_up(&id);
            }
        }
        Ok(true)
    }
}

impl Desk {
    /// True once another process answers about apps.
    #[must_use]
    pub fn is_left(&self) -> bool {
        self.vault.is_left()
    }

    /// Gives the apps to the next process: ends what views have under way, has the logs on the
    /// disk, and lets go of the folder. Runs may still say what they keep.
    pub async fn hand_over(&self) {
        self.vault.leave();
        super::desk::locked(&self.views).close_every();
        let quiet = async {
            while !self.vault.is_quiet() {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        if tokio::time::timeout(ENDS_WITHIN, quiet).await.is_err() {
            tracing::warn!("something of an app is still under way when others take over");
        }
        let vault = self.vault.clone();
        let behind = spawn_blocking(move || {
            vault.sync_logs();
            vault.stay_behind()
        });
        match behind.await {
            Ok(Ok(behind)) => {
                *super::desk::locked(&self.behind) = Some(behind);
                drop(super::desk::locked(&self.hold).take());
                tracing::info!("the apps go to the next process");
            }
            // The next one waits until this process has ended.
            Ok(Err(error)) => tracing::error!("the apps can't be handed over: {error}"),
            Err(_) => {}
        }
    }

    /// Removes what runs of earlier processes have not kept, once they are over.
    pub async fn settle_earlier(self: Arc<Self>) {
        loop {
            let vault = self.vault.clone();
            match spawn_blocking(move || vault.settle_earlier()).await {
                Ok(Ok(false)) => tokio::time::sleep(EARLIER_AGAIN).await,
                Ok(Ok(true)) | Err(_) => return,
                Ok(Err(error)) => {
                    return tracing::error!(
                        "apps of earlier runs stay until the next start: {error}"
                    );
                }
            }
        }
    }
}

impl super::views::Views {
    /// Ends every view.
    fn close_every(&mut self) {
        let apps: HashSet<String> = self.apps();
        for app in apps {
            self.close_all(&app);
        }
    }
}

pub(super) const fn refuse_left(left: bool) -> Result<(), VaultError> {
    if left { Err(VaultError::Left) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::audit::{Method, Phase};
    use super::super::vault::tests::{app, folder, id};
    use super::*;
    use jiff::Timestamp;
    use std::path::Path;

    fn open(path: &Path) -> Arc<Vault> {
        Arc::new(Vault::open(folder(path), 1_000).unwrap())
    }

    #[test]
    fn what_earlier_runs_keep_is_shown_and_the_rest_goes_when_they_are_over() {
        let temp = tempfile::tempdir().unwrap();
        let old = open(temp.path());
        // Of run-0: kept before, kept later, removed later. Of run-1: one, nothing is said of it.
        for n in [0, 2, 4, 1] {
            old.publish(&app(n, "<p>"), 1_000).unwrap();
        }
        old.keep("run-1", &[id(1)]).unwrap();
        old.publish(&app(3, "<p>"), 1_000).unwrap();
        old.leave();
        let behind = old.stay_behind().unwrap();
        let new = open(temp.path());
        assert!(new.found(&id(1)).is_some());
        for n in [0, 2, 3, 4] {
            assert!(new.found(&id(n)).is_none(), "{n}");
            assert!(new.seen(&id(n)).is_some_and(|(_, acts)| !acts), "{n}");
            assert!(new.state(&id(n), 1_000).is_ok(), "{n}");
        }
        assert!(new.seen(&id(9)).is_none());
        assert_eq!(new.usage().records, 5);
        assert!(!new.settle_earlier().unwrap());
        old.keep("run-0", &[id(0), id(2)]).unwrap();
        assert!(new.found(&id(0)).is_some() && new.found(&id(4)).is_none());
        assert!(
            new.state(&id(4), 1_000).is_err(),
            "what has gone is not shown"
        );
        drop(behind);
        drop(old);
        assert!(new.settle_earlier().unwrap());
        let cards: Vec<_> = new.cards().into_iter().map(|card| card.id).collect();
        assert_eq!(cards.len(), 3, "{cards:?}");
        let usage = new.usage();
        assert_eq!((usage.records, usage.quarantined), (3, 0));
        drop(new);
        assert_eq!(open(temp.path()).usage(), usage);
    }

    #[test]
    fn who_has_left_takes_nothing_new() {
        let temp = tempfile::tempdir().unwrap();
        let old = open(temp.path());
        old.publish(&app(1, "<p>"), 1_000).unwrap();
        old.keep("run-1", &[id(1)]).unwrap();
        let seen = |_: &Card| true;
        let begin = |vault: &Arc<Vault>| {
            vault.begin(
                &id(1),
                Method::Call,
                Phase::Confirmed,
                Timestamp::UNIX_EPOCH,
                &seen,
            )
        };
        let ticket = begin(&old).unwrap();
        old.leave();
        assert!(!old.is_quiet());
        // What has begun may still end.
        ticket.complete(Timestamp::UNIX_EPOCH).unwrap();
        assert!(old.is_quiet() && begin(&old).is_err());
        let noted = old.note(
            &id(1),
            Method::Call,
            Phase::Rejected,
            Timestamp::UNIX_EPOCH,
            &seen,
        );
        assert!(noted.is_err());
        assert!(matches!(
            old.publish(&app(2, "<p>"), 1_000),
            Err(VaultError::Left)
        ));
        let new = open(temp.path());
        assert_eq!(new.log(&id(1)).unwrap().len(), 2);
        assert!(new.settle_earlier().unwrap());
        begin(&new).unwrap();
    }

    #[test]
    fn the_next_one_of_the_next_one_waits_for_all_before() {
        let temp = tempfile::tempdir().unwrap();
        let first = open(temp.path());
        first.publish(&app(1, "<p>"), 1_000).unwrap();
        first.leave();
        let one = first.stay_behind().unwrap();
        let second = open(temp.path());
        second.publish(&app(2, "<p>"), 1_000).unwrap();
        second.leave();
        let two = second.stay_behind().unwrap();
        let third = open(temp.path());
        assert!(!third.settle_earlier().unwrap());
        drop(two);
        assert!(!third.settle_earlier().unwrap());
        first.keep("run-1", &[id(1)]).unwrap();
        drop(one);
        assert!(third.settle_earlier().unwrap());
        assert!(third.found(&id(1)).is_some() && third.found(&id(2)).is_none());
        assert_eq!(third.usage().records, 1);
    }
}
