//! The guard against versions that know only the records of version 2: they refuse to start when
//! they find it, instead of working on what is no longer true.

use crate::error::{StoreError, io};
use crate::fs::{Folder, Fs, FsFile};
use crate::names::{GUARD, GUARD_TEXT, temporary};

const DOING: &str = "making the guard against older versions";

/// Whether it stands.
pub(crate) fn stands<F: Fs>(fs: &F) -> Result<bool, StoreError> {
    let text = fs.read(Folder::Legacy, GUARD, 4096).map_err(io(DOING))?;
    Ok(text.is_some_and(|text| text == GUARD_TEXT.as_bytes()))
}

/// Makes it, durable before this returns: the folder, its name in the state folder, the file, its
/// name in the folder.
pub(crate) fn make<F: Fs>(fs: &F) -> Result<(), StoreError> {
    if !fs.has(Folder::Legacy).map_err(io(DOING))? {
        fs.make(Folder::Legacy).map_err(io(DOING))?;
    }
    // Also when it was there: an earlier process may have ended before this.
    fs.sync_folder(Folder::Root).map_err(io(DOING))?;
    if !stands(fs)? {
        let name = temporary(GUARD);
        let file = fs.create(Folder::Legacy, &name).map_err(io(DOING))?;
        file.write_at(0, GUARD_TEXT.as_bytes()).map_err(io(DOING))?;
        file.sync().map_err(io(DOING))?;
        fs.rename(Folder::Legacy, &name, GUARD).map_err(io(DOING))?;
    }
    fs.sync_folder(Folder::Legacy).map_err(io(DOING))
}
