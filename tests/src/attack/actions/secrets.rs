//! Reading everything that can be read, for texts that nobody else may find.

use super::aliases::processes;
use super::{Action, action};
use crate::attack::facts::{Canaries, Facts};
use crate::attack::outcome::Outcome;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub(super) const ACTIONS: &[Action] = &[
    action("find-key", |f| found(f, |canaries| &canaries.key)),
    action("find-configuration", |f| {
        found(f, |canaries| &canaries.configuration)
    }),
    action("find-conversation", |f| {
        found(f, |canaries| &canaries.conversation)
    }),
    action("find-environment", |f| {
        found(f, |canaries| &canaries.environment)
    }),
];

/// Bytes of one file that are looked at. A fresh store's journal alone has 330 KiB, with what came
/// last at its end.
const MOST_BYTES: u64 = 8 * 1024 * 1024;
/// Files and folders that are looked at, so that an unexpectedly wide view ends some day.
const MOST_ENTRIES: usize = 200_000;
/// Parts of the system that are the same on every machine and that a search would spend all its
/// time in. What is looked for was put elsewhere.
const SYSTEM: [&str; 9] = [
    "/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/sys", "/proc",
];

fn found(f: &Facts, which: impl Fn(&Canaries) -> &String) -> Outcome {
    // All of it is looked for at once.
    static SEEN: OnceLock<BTreeSet<String>> = OnceLock::new();
    let seen = SEEN.get_or_init(|| search(&f.canaries, &places(f), &f.root, &f.handed));
    match seen.contains(which(&f.canaries)) {
        true => Outcome::Done,
        false => Outcome::Nothing,
    }
}

/// Where a search begins: at the root, and at every place that can be named when the root can't be
/// listed.
fn places(f: &Facts) -> Vec<PathBuf> {
    let mut all = vec![f.search_from.clone(), f.root.clone(), f.place()];
    if f.search_from == Path::new("/") {
        all.extend(
            [
                "/state", "/scratch", "/tmp", "/etc", "/dev/shm", "/root", "/home",
            ]
            .map(PathBuf::from),
        );
    }
    all
}

/// Everything that is found, beginning at these places, at `root` by all its other names, in every
/// process and behind every descriptor that was handed over.
#[must_use]
pub fn search(
    canaries: &Canaries,
    places: &[PathBuf],
    root: &Path,
    handed: &[(String, RawFd)],
) -> BTreeSet<String> {
    let mut search = Search {
        texts: [
            &canaries.key,
            &canaries.configuration,
            &canaries.conversation,
            &canaries.environment,
        ],
        seen: BTreeSet::new(),
        visited: BTreeSet::new(),
        left: MOST_ENTRIES,
    };
    for place in places {
        search.folder(place);
    }
    for file in ["environ", "cmdline", "mountinfo"] {
        search.file(&Path::new("/proc/self").join(file));
    }
    for base in ["/proc/self/root", "/proc/self/cwd", "/proc/1/root"] {
        search.folder(&PathBuf::from(format!("{base}{}", root.display())));
    }
    for process in processes() {
        for file in ["environ", "cmdline"] {
            search.file(&Path::new(&process).join(file));
        }
        search.folder(&Path::new(&process).join("fd"));
        search.folder(&PathBuf::from(format!("{process}/root{}", root.display())));
    }
    for (_, raw) in handed {
        search.descriptor(*raw, root);
    }
    search.seen
}

struct Search<'a> {
    texts: [&'a String; 4],
    seen: BTreeSet<String>,
    visited: BTreeSet<(u64, u64)>,
    left: usize,
}

impl Search<'_> {
    fn folder(&mut self, path: &Path) {
        if SYSTEM.iter().any(|part| path == Path::new(part)) || !self.count() {
            return;
        }
        let Ok(metadata) = fs::metadata(path) else {
            return;
        };
        if !self.visited.insert((metadata.dev(), metadata.ino())) {
            return;
        }
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => self.folder(&path),
                // Links of a process's descriptors are files by another name.
                Ok(kind) if kind.is_file() || kind.is_symlink() => self.file(&path),
                _ => {}
            }
        }
    }

    fn file(&mut self, path: &Path) {
        // Nothing that waits for a writer is opened.
        let plain = fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
        if plain
            && self.count()
            && let Ok(file) = File::open(path)
        {
            self.text(file);
        }
    }

    fn text(&mut self, file: impl std::io::Read) {
        let mut bytes = Vec::new();
        let _ = file.take(MOST_BYTES).read_to_end(&mut bytes);
        for text in self.texts {
            if !text.is_empty() && memchr::memmem::find(&bytes, text.as_bytes()).is_some() {
                self.seen.insert(text.clone());
            }
        }
    }

    /// Reads what was handed over itself, and from a folder goes up and down again.
    fn descriptor(&mut self, raw: RawFd, root: &Path) {
        let copy = mono_sys::hostile::with_fd(raw, |fd| fd.try_clone_to_owned());
        if let Some(Ok(copy)) = copy {
            let file = File::from(copy);
            if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
                return self.text(file);
            }
        }
        let mut way: PathBuf = std::iter::repeat_n("..", 24).collect();
        way.extend(root.components().skip(1));
        let opened = mono_sys::hostile::with_fd(raw, |fd| {
            openat(
                fd,
                &way,
                OFlag::O_RDONLY | OFlag::O_DIRECTORY,
                Mode::empty(),
            )
        });
        if let Some(Ok(folder)) = opened {
            self.folder(&PathBuf::from(format!(
                "/proc/self/fd/{}",
                folder.as_raw_fd()
            )));
        }
    }

    fn count(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left > 0
    }
}
