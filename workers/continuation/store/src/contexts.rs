//! Snapshots of conversations: each once, under its digest, as long as a record refers to it.

use crate::index::Logged;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashMap};

/// SHA-256 of a text.
pub(crate) type Digest = [u8; 32];

#[derive(Debug, Clone, Default)]
pub(crate) struct Context {
    /// Records that refer to it.
    pub(crate) references: usize,
    pub(crate) bytes: u32,
    /// Where it stands in the log, if no checkpoint has it yet.
    pub(crate) logged: Option<Logged>,
    /// Whether it has a file.
    pub(crate) filed: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Contexts {
    pub(crate) all: HashMap<Digest, Context>,
    /// Bytes of all that are referred to.
    pub(crate) bytes: u64,
    /// Files that nobody refers to any more, with the frame since which that is so: before it is durable
    /// a crash brings the reference back.
    pub(crate) swept: BTreeMap<Digest, u64>,
}

impl Contexts {
    /// A record refers to it.
    pub(crate) fn gain(&mut self, digest: Digest, bytes: u32) {
        let context = self.all.entry(digest).or_default();
        if context.references == 0 {
            context.bytes = bytes;
            self.bytes += u64::from(bytes);
        }
        context.references += 1;
    }

    /// A record refers to it no more since this frame; returns what was known of it when that was the
    /// last one.
    pub(crate) fn lose(&mut self, digest: &Digest, since: u64) -> Option<Context> {
        let context = self.all.get_mut(digest)?;
        context.references = context.references.saturating_sub(1);
        if context.references > 0 {
            return None;
        }
        let context = self.all.remove(digest)?;
        self.bytes = self.bytes.saturating_sub(u64::from(context.bytes));
        if context.filed {
            self.swept.insert(*digest, since);
        }
        Some(context)
    }
}

/// The digest under which a snapshot's canonical text stands.
#[must_use]
pub(crate) fn digest(text: &str) -> Digest {
    let mut hash = Sha256::new();
    hash.update(b"mono-agent-origin-context-v1\0");
    hash.update(text.as_bytes());
    hash.finalize().into()
}

/// The name of a snapshot's file.
pub(crate) fn file(digest: &Digest) -> String {
    format!("{}.json", hex::encode(digest))
}
