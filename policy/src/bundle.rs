//! Parts of the system that belong together, read from `profiles/bundles.json`: what a dynamic
//! program needs to start, what programs work with, name resolution, certificates.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

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
}

impl Bundle {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        static ALL: LazyLock<BTreeMap<String, Bundle>> = LazyLock::new(|| {
            serde_json::from_str(include_str!("../profiles/bundles.json")).unwrap_or_default()
        });
        ALL.get(name)
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
