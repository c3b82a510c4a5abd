//! Waiting for the disk, for several files at once.

use crate::shelf::ShelfError;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use uuid::Uuid;

/// Files that are synced at once. A journal makes one commit of those that wait together, and a
/// disk one flush; more than these add little.
const AT_ONCE: usize = 8;

/// A file or directory that is not on the disk yet.
#[derive(Debug)]
pub(crate) struct Unsynced {
    /// How the step is called in an error.
    pub(crate) step: &'static str,
    /// Whose it is.
    pub(crate) id: Uuid,
    /// What is synced.
    pub(crate) file: OwnedFd,
}

/// Syncs all of them, in no order.
///
/// # Errors
/// The first failure that was seen; the others were tried or not.
pub(crate) fn sync_all(files: &[Unsynced]) -> Result<(), ShelfError> {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    let work = || {
        while let Some(one) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = nix::unistd::fsync(&one.file) {
                let failure = ShelfError::Disk {
                    step: one.step,
                    id: one.id,
                    error: error.into(),
                };
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
                // The rest is of no use.
                next.store(files.len(), Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..files.len().min(AT_ONCE) {
            let started = thread::Builder::new()
                .name("sync".to_owned())
                .spawn_scoped(scope, work);
            if started.is_err() {
                // No thread to be had is no reason to fail.
                break;
            }
        }
        work();
    });
    let failed = failed.into_inner();
    failed
        .unwrap_or_else(PoisonError::into_inner)
        .map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::File;

    fn unsynced(file: File) -> Unsynced {
        Unsynced {
            step: "sync it",
            id: Uuid::from_u128(7),
            file: file.into(),
        }
    }

    #[test]
    fn files_and_directories_are_synced_and_one_failure_is_enough() {
        assert!(sync_all(&[]).is_ok());
        let temp = tempfile::tempdir().unwrap();
        let mut files: Vec<_> = (0..20)
            .map(|n| unsynced(File::create(temp.path().join(n.to_string())).unwrap()))
            .collect();
        files.push(unsynced(File::open(temp.path()).unwrap()));
        sync_all(&files).unwrap();
        // A pipe can't be synced.
        let (reader, _writer) = nix::unistd::pipe().unwrap();
        files.insert(
            9,
            Unsynced {
                step: "sync it",
                id: Uuid::from_u128(9),
                file: reader,
            },
        );
        let failure = sync_all(&files).unwrap_err();
        assert!(
            matches!(&failure, ShelfError::Disk { step: "sync it", id, .. } if *id == Uuid::from_u128(9)),
            "{failure}"
        );
    }
}
