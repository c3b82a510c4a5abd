//! Where a worker's state directory is, for what works by path and not by descriptor.

use crate::{FileId, KitError};
use nix::fcntl::readlink;
use nix::sys::stat::{fstat, lstat};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Where the worker's mount namespace shows the state directory.
const STATE: &str = "/state";

/// The path of the directory that `state` is open on. A path is only taken when it leads to the very
/// directory that the supervisor handed over: the fixed place in the mount namespace, or without one
/// the directory's own name.
///
/// # Errors
/// When no path leads there any more: another directory may have taken its name.
pub fn located(state: &OwnedFd) -> Result<PathBuf, KitError> {
    let granted = FileId::of(&fstat(state).map_err(KitError::worker)?);
    let link = format!("/proc/self/fd/{}", state.as_raw_fd());
    let own_name = readlink(link.as_str()).map(PathBuf::from).ok();
    let is_it = |path: &Path| lstat(path).is_ok_and(|found| FileId::of(&found) == granted);
    [Some(PathBuf::from(STATE)), own_name]
        .into_iter()
        .flatten()
        .find(|path| is_it(path))
        .ok_or_else(|| {
            let why = format!("the state directory of the descriptor is not at {STATE}");
            KitError::worker(why)
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn the_state_directory_is_the_descriptors_own() {
        let dir = tempfile::tempdir().unwrap();
        let fd = OwnedFd::from(File::open(dir.path()).unwrap());
        assert_eq!(located(&fd).unwrap(), dir.path().canonicalize().unwrap());
        // Another directory took the name: the descriptor's own one is not found by any name.
        let (state, kept) = (dir.path().join("state"), dir.path().join("kept"));
        fs::create_dir(&state).unwrap();
        let fd = OwnedFd::from(File::open(&state).unwrap());
        fs::remove_dir(&state).unwrap();
        fs::create_dir(&state).unwrap();
        assert!(located(&fd).is_err());
        // One that was only moved is found under its new name.
        let fd = OwnedFd::from(File::open(&state).unwrap());
        fs::rename(&state, &kept).unwrap();
        fs::create_dir(&state).unwrap();
        assert_eq!(located(&fd).unwrap(), kept.canonicalize().unwrap());
    }
}
