//! Which file it is, whatever path leads to it.

use nix::sys::stat::FileStat;

/// Which file an inode is, on any path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId {
    dev: u64,
    ino: u64,
}

impl FileId {
    /// From a file's status.
    #[must_use]
    pub const fn of(stat: &FileStat) -> Self {
        Self {
            dev: stat.st_dev,
            ino: stat.st_ino,
        }
    }
}
