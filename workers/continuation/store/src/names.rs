//! Names of files in the state folder.

use crate::error::{OpenError, StoreError, io};
use crate::fs::{Folder, Fs, FsFile};
use sha2::{Digest as _, Sha256};

pub(crate) const LOG: &str = "continuation-log-v1.bin";
pub(crate) const MANIFEST: &str = "continuation-store-v3.json";
pub(crate) const SECRET: &str = "continuation-secret";
pub(crate) const TRANSACTION: &str = "continuation-transaction-v3.json";
pub(crate) const LEGACY_TRANSACTION: &str = "continuation-transaction-v2.json";
pub(crate) const LEGACY_FILE: &str = "continuations-v1.json";
/// In the folder of version 2: versions that know only that one must not start.
pub(crate) const GUARD: &str = "UPGRADED-TO-RECORDS-V3";
pub(crate) const GUARD_TEXT: &str =
    "This state directory uses continuation records v3. Older runtimes must not open records-v2.\n";

/// A name for a file that will be given its own name when it is complete:
/// `.<12 hex>-<pid>-<uuid>.tmp`. Of one file they sort as they were made, so that a folder is walked in the
/// same order in each simulation of one seed.
pub(crate) fn temporary(for_: &str) -> String {
    let digest = hex::encode(Sha256::digest(for_.as_bytes()));
    let unique = uuid::Uuid::now_v7();
    format!(".{}-{}-{unique}.tmp", &digest[..12], std::process::id())
}

/// Whether it is such a name, ours or an earlier process's.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(".tmp") && name.len() > 5
}

/// The digest in the name `<64 hex>.json`.
pub(crate) fn digest(name: &str) -> Option<&str> {
    let digest = name.strip_suffix(".json")?;
    let is_hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    (digest.len() == 64 && digest.bytes().all(is_hex)).then_some(digest)
}

/// The names in a folder that all must be `<64 hex>.json`; unfinished files are removed.
pub(crate) fn digests<F: Fs>(fs: &F, folder: Folder) -> Result<Vec<String>, OpenError> {
    let mut names = Vec::new();
    for name in fs.list(folder).map_err(io("listing a folder"))? {
        if is_temporary(&name) {
            fs.remove(folder, &name)
                .map_err(io("removing an unfinished file"))?;
        } else if digest(&name).is_some() {
            names.push(name);
        } else if !(folder == Folder::Legacy && name == GUARD) {
            let folder = folder.name();
            return Err(OpenError::Unknown { folder, name });
        }
    }
    Ok(names)
}

/// Puts a whole file in the place of another, durably.
pub(crate) fn replace<F: Fs>(
    fs: &F,
    folder: Folder,
    name: &str,
    bytes: &[u8],
    doing: &'static str,
) -> Result<(), StoreError> {
    let temporary = temporary(name);
    let file = fs.create(folder, &temporary).map_err(io(doing))?;
    file.write_at(0, bytes).map_err(io(doing))?;
    file.sync().map_err(io(doing))?;
    fs.rename(folder, &temporary, name).map_err(io(doing))?;
    fs.sync_folder(folder).map_err(io(doing))
}
