//! Parts of the system that belong together, read from `profiles/bundles.json`: what a dynamic
//! program needs to start, what programs work with, name resolution, certificates.

use crate::profile::Access;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, OnceLock};

/// A named part of the system.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bundle {
    /// For the reader.
    #[expect(dead_code, reason = "its presence is required")]
    summary: String,
    /// Directories and files that are shown at their own path. Symbolic links at the top level
    /// (`/lib` on a merged system) are made again as links.
    pub(crate) shown: Vec<String>,
    /// What of them may be read.
    #[serde(default)]
    pub(crate) read: Vec<String>,
    /// What of them may be read and executed.
    #[serde(default)]
    pub(crate) read_exec: Vec<String>,
    /// Small files that are copied when the process starts, so that each costs no mount.
    #[serde(default)]
    pub(crate) copied: Vec<String>,
    /// Files that are written instead of shown: the machine's own say too much.
    #[serde(default)]
    pub(crate) written: BTreeMap<String, String>,
    /// How this machine has them. Looked at once in the life of the process: a system's layout
    /// changes by an upgrade, and looking costs as much as all else before a start.
    #[serde(skip)]
    layout: OnceLock<Layout>,
}

/// A bundle on this machine.
#[derive(Debug, Clone)]
struct Layout {
    places: Vec<Place>,
    rules: Vec<(PathBuf, Access, bool)>,
}

/// Something shown, as this machine has it.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    /// What it says, when it is a symbolic link.
    pub(crate) link: Option<PathBuf>,
    /// The path without any link.
    pub(crate) real: PathBuf,
    pub(crate) directory: bool,
    pub(crate) execute: bool,
}

impl Layout {
    fn of(bundle: &Bundle) -> Self {
        let place = |path: &String| {
            let path = PathBuf::from(path);
            let directory = std::fs::symlink_metadata(&path).ok()?.is_dir();
            let mut execs = bundle.read_exec.iter();
            Some(Place {
                link: std::fs::read_link(&path).ok(),
                real: std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone()),
                directory,
                execute: execs.any(|exec| Path::new(exec).starts_with(&path)),
                path,
            })
        };
        let rule = |(path, access): (&String, Access)| {
            let path = PathBuf::from(path);
            let metadata = std::fs::symlink_metadata(&path).ok()?;
            // A link at this place ends in something that is granted at its own.
            (!metadata.is_symlink()).then(|| (path, access, metadata.is_dir()))
        };
        let read = bundle.read.iter().map(|path| (path, Access::Read));
        let exec = bundle.read_exec.iter().map(|path| (path, Access::ReadExec));
        Layout {
            places: bundle.shown.iter().filter_map(place).collect(),
            rules: read.chain(exec).filter_map(rule).collect(),
        }
    }
}

impl Bundle {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        static ALL: LazyLock<BTreeMap<String, Bundle>> = LazyLock::new(|| {
            serde_json::from_str(include_str!("../profiles/bundles.json")).unwrap_or_default()
        });
        ALL.get(name)
    }

    fn layout(&self) -> &Layout {
        self.layout.get_or_init(|| Layout::of(self))
    }

    /// What is shown of it here.
    pub(crate) fn places(&self) -> &[Place] {
        &self.layout().places
    }

    /// What may be done with it here: path, access, whether it is a directory.
    pub(crate) fn rules(&self) -> &[(PathBuf, Access, bool)] {
        &self.layout().rules
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_file_is_understood_and_every_path_is_absolute_and_plain() {
        for name in ["loader", "programs", "resolver", "certificates"] {
            let bundle = Bundle::named(name).unwrap();
            let lists = [
                &bundle.shown,
                &bundle.read,
                &bundle.read_exec,
                &bundle.copied,
            ];
            for path in lists.into_iter().flatten().chain(bundle.written.keys()) {
                assert!(path.starts_with('/') && !path.contains(".."), "{path}");
            }
            // Nothing is granted that isn't there to be seen.
            for path in bundle.read.iter().chain(&bundle.read_exec) {
                let covered = |top: &String| path == top || path.starts_with(&format!("{top}/"));
                assert!(bundle.shown.iter().any(covered), "{name}: {path}");
            }
        }
        assert!(Bundle::named("everything").is_none());
    }
}
