//! One daemon for each state folder: a second one would clear the scratch of the first one's runs
//! and wait for owners that can't have their folders.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long what a daemon that was killed had may still be somebody's: its workers are gone with it,
/// but not at the same moment, and one that was being started holds its descriptors until it becomes
/// its program. A busy machine takes its time over that.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// Holds the folder as long as it lives. Not a file in it, so that nothing can be left over.
#[derive(Debug)]
pub(crate) struct Alone(#[expect(dead_code, reason = "held, not used")] Option<File>);

/// Takes the folder; `None` when another daemon has it. Where the file system knows no locks
/// there is none, and a warning says so.
///
/// # Errors
/// When the folder can't be opened.
pub(crate) fn alone(folder: &Path) -> io::Result<Option<Alone>> {
    let file = File::open(folder)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(Alone(Some(file)))),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(LOOK);
            }
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(e)) => {
                tracing::warn!("{} can't be locked: {e}", folder.display());
                return Ok(Some(Alone(None)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_folder_is_one_daemons_until_that_ends() {
        let folder = tempfile::tempdir().unwrap();
        let first = alone(folder.path()).unwrap();
        assert!(first.is_some());
        assert!(alone(folder.path()).unwrap().is_none());
        drop(first);
        assert!(alone(folder.path()).unwrap().is_some());
        assert!(alone(&folder.path().join("absent")).is_err());
    }
}
