//! Copies of the folder in which a scene begins.

use anyhow::Result;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

/// Copies what is in a folder of plain files and folders, with modes and times of change: an age
/// is part of the scene.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            DirBuilder::new()
                .mode(metadata.mode() & 0o7777)
                .create(&target)?;
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
        File::open(&target)?.set_modified(metadata.modified()?)?;
    }
    Ok(())
}
