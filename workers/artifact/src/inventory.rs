//! The one inventory of a start: what is there, what it is charged, what has to go.

use crate::dir::{Dir, is_regular};
use crate::manifest::{MAX_MANIFEST, Manifest};
use crate::shelf::{CONTENT, METADATA, STAGING, Shelf};
use jiff::Timestamp;
use std::io;
use uuid::Uuid;

/// Most names looked at in either directory. The ceiling allows 16,384 artifacts; what is over the
/// bound is charged a manifest each and not touched.
const MAX_ENTRIES: usize = 32_768;

/// Why a directory in the live namespace is no artifact.
#[derive(Debug, thiserror::Error)]
enum Foreign {
    #[error("its name is no artifact id")]
    Name,
    #[error("it can't be opened: {0}")]
    Open(io::Error),
    #[error("its manifest can't be read: {0}")]
    Read(io::Error),
    #[error(transparent)]
    Manifest(#[from] crate::manifest::ManifestError),
    #[error("its manifest is of {0}")]
    Other(Uuid),
    #[error("it is not finalised, and only what is comes here")]
    Unbound,
}

impl Shelf {
    /// Fills the index. Artifacts stay, even with damaged content: their readers get the integrity
    /// code. What was not finalised is in staging, where it is swept after its grace. What is not
    /// ours is charged, named in the log and left alone.
    pub(crate) fn inventory(&self, now: Timestamp) -> io::Result<()> {
        let found = self.live.names(MAX_ENTRIES)?;
        let mut foreign = found.others;
        for name in found.names.iter().filter(|name| *name != STAGING) {
            match self.examine(name) {
                Ok(manifest) => self.index().publish(manifest),
                Err(reason) => {
                    tracing::warn!(name, %reason, "not an artifact; it is charged and left alone");
                    self.index().quarantine(content_size(&self.live, name));
                    foreign += 1;
                }
            }
        }
        (0..found.others).for_each(|_| self.index().quarantine(0));
        let staged = self.staging.names(MAX_ENTRIES)?;
        (0..staged.others).for_each(|_| self.index().quarantine(0));
        for name in staged.names {
            let size = content_size(&self.staging, &name);
            self.index().leftover(name, size);
        }
        self.sweep(now);
        tracing::info!(
            artifacts = self.count(),
            bytes = self.used(),
            foreign,
            "inventory"
        );
        Ok(())
    }

    fn examine(&self, name: &str) -> Result<Manifest, Foreign> {
        let id = Uuid::try_parse(name)
            .ok()
            .filter(|id| id.to_string() == name)
            .ok_or(Foreign::Name)?;
        let home = self.live.open(name).map_err(Foreign::Open)?;
        let manifest = Manifest::parse(
            &home
                .read_small(METADATA, MAX_MANIFEST)
                .map_err(Foreign::Read)?,
        )?;
        match &manifest.delivery {
            _ if manifest.id != id => Err(Foreign::Other(manifest.id)),
            None => Err(Foreign::Unbound),
            Some(_) => Ok(manifest),
        }
    }
}

/// Bytes of `name`'s content, as far as they can be known; 0 for what has none.
fn content_size(parent: &Dir, name: &str) -> u64 {
    let inside = parent.open(name).and_then(|home| home.stat(CONTENT));
    inside
        .or_else(|_| parent.stat(name))
        .ok()
        .filter(is_regular)
        .map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0))
}
