//! Walking the workspace for `Glob` and `Grep`: in the order of names, without `.git` and what
//! `.gitignore` leaves out, never through a symbolic link, and not for ever.

use ignore::overrides::Override;
use ignore::types::Types;
use ignore::{DirEntry, WalkBuilder};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Entries looked at in one call (facts 4.1).
pub const MAX_ENTRIES: usize = 100_000;
/// Time for one call (facts 4.1).
pub const MAX_TIME: Duration = Duration::from_secs(15);

/// Why a walk ended before it had seen everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// [`MAX_ENTRIES`].
    Entries,
    /// [`MAX_TIME`].
    Time,
    /// The run was cancelled.
    Cancelled,
}

impl Stopped {
    /// The note for the model.
    #[must_use]
    pub const fn note(self) -> &'static str {
        match self {
            Self::Entries => "[Stopped after 100,000 entries; narrow the path or the pattern.]",
            Self::Time => "[Stopped after 15 seconds; narrow the path or the pattern.]",
            Self::Cancelled => "[Stopped: the run was cancelled.]",
        }
    }
}

/// What one call may still spend.
#[derive(Debug)]
pub struct Budget {
    entries: usize,
    until: Instant,
    cancel: CancellationToken,
}

impl Budget {
    /// The full budget, from now.
    #[must_use]
    pub fn new(cancel: CancellationToken) -> Self {
        Self {
            entries: MAX_ENTRIES,
            until: Instant::now() + MAX_TIME,
            cancel,
        }
    }

    /// Takes one entry off the budget.
    fn spend(&mut self) -> Option<Stopped> {
        if self.cancel.is_cancelled() {
            return Some(Stopped::Cancelled);
        }
        if Instant::now() >= self.until {
            return Some(Stopped::Time);
        }
        match self.entries.checked_sub(1) {
            Some(left) => {
                self.entries = left;
                None
            }
            None => Some(Stopped::Entries),
        }
    }
}

/// Calls `visit` for each entry below `root` (without `root`) until it returns false. Returns why
/// the walk didn't come to its end by itself.
pub fn walk(
    root: &Path,
    filters: Option<(Override, Types)>,
    mut budget: Budget,
    mut visit: impl FnMut(&DirEntry) -> bool,
) -> Option<Stopped> {
    let mut builder = WalkBuilder::new(root);
    builder
        .hidden(false)
        // The person's own excludes are outside the sandbox; asking for them would only cost.
        .git_global(false)
        .follow_links(false)
        .sort_by_file_name(std::ffi::OsStr::cmp)
        .filter_entry(|entry| entry.depth() == 0 || entry.file_name() != ".git");
    if let Some((overrides, types)) = filters {
        builder.overrides(overrides).types(types);
    }
    // Entries that can't be read (gone meanwhile, no permission) are left out, like a shell's `*`.
    for entry in builder.build().flatten().filter(|entry| entry.depth() > 0) {
        if let Some(stopped) = budget.spend() {
            return Some(stopped);
        }
        if !visit(&entry) {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn budget() -> Budget {
        Budget::new(CancellationToken::new())
    }

    #[test]
    fn names_in_order_without_git_ignored_and_linked_things() {
        let dir = tempfile::tempdir().unwrap();
        for name in [".git", "b", "a/inner", "out"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        for (name, text) in [
            (".gitignore", "out/\n"),
            (".git/HEAD", ""),
            ("a/inner/x", ""),
            ("out/y", ""),
            ("z", ""),
        ] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        std::os::unix::fs::symlink("/", dir.path().join("root")).unwrap();
        let mut seen = Vec::new();
        let stopped = walk(dir.path(), None, budget(), |entry| {
            seen.push(
                entry
                    .path()
                    .strip_prefix(dir.path())
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned(),
            );
            true
        });
        assert_eq!(stopped, None);
        assert_eq!(
            seen,
            [".gitignore", "a", "a/inner", "a/inner/x", "b", "root", "z"]
        );
    }

    #[test]
    fn each_bound_stops_the_walk() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "").unwrap();
        std::fs::write(dir.path().join("b"), "").unwrap();
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        let late = Budget {
            until: Instant::now(),
            ..budget()
        };
        assert_eq!(
            walk(
                dir.path(),
                None,
                Budget {
                    entries: 1,
                    ..budget()
                },
                |_| true
            ),
            Some(Stopped::Entries)
        );
        assert_eq!(
            walk(
                dir.path(),
                None,
                Budget {
                    entries: 2,
                    ..budget()
                },
                |_| true
            ),
            None
        );
        assert_eq!(walk(dir.path(), None, late, |_| true), Some(Stopped::Time));
        assert_eq!(
            walk(dir.path(), None, Budget::new(cancelled), |_| true),
            Some(Stopped::Cancelled)
        );
    }
}
