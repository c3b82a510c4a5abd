//! A change as it is put together.

use crate::contexts;
use crate::error::StoreError;
use crate::fs::Fs;
use crate::meta::{Id, claim_key, fingerprint_key, origin_key};
use crate::state::{Draft, State};
use continuation_record::Record;
use std::sync::Arc;

/// The turn that claims belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Its run.
    pub run: String,
    /// Its history, with the bucket of a rollover.
    pub conversation: String,
    /// Where the history ends for it.
    pub boundary: String,
}

/// What a change sees and does. It sees everything that was staged before it and what it did
/// itself. Nothing happens until the closure that it was given to returns `Ok`; then all of it.
pub struct Txn<'a, F: Fs> {
    state: &'a State<F>,
    pub(crate) draft: Draft,
    /// A read that failed; the change can't be made then.
    pub(crate) failed: Option<StoreError>,
}

impl<F: Fs> std::fmt::Debug for Txn<'_, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Txn").finish_non_exhaustive()
    }
}

impl<'a, F: Fs> Txn<'a, F> {
    pub(crate) fn new(state: &'a State<F>) -> Self {
        Self {
            state,
            draft: Draft::default(),
            failed: None,
        }
    }

    /// A record. If it can't be read, this is `None` and the change fails whatever is done then.
    pub fn get(&mut self, id: &str) -> Option<Arc<Record>> {
        let id = Id::new(id);
        if let Some(own) = self.draft.records.get(&id) {
            return own.clone();
        }
        match self.state.record(&id) {
            Ok(record) => record,
            Err(error) => {
                self.failed.get_or_insert(error);
                None
            }
        }
    }

    /// The continuation of this claim.
    #[must_use]
    pub fn by_claim(&self, server: &str, run: &str, task_key: &str) -> Option<String> {
        let own = self.draft.records.values().flatten().find(|record| {
            record.server_name == server
                && record.origin_run_id == run
                && record.task_key == task_key
        });
        if let Some(own) = own {
            return Some(own.continuation_id.clone());
        }
        let id = self.state.index.claim(&claim_key(server, run, task_key))?;
        // What this change has made of it counts.
        (!self.draft.records.contains_key(id)).then(|| id.to_string())
    }

    /// Records that count against admission, without what this change does.
    #[must_use]
    pub fn active_count(&self) -> usize {
        self.state.index.counts.active()
    }

    /// The same of one claim fingerprint.
    #[must_use]
    pub fn active_of(&self, fingerprint: &str) -> usize {
        self.state.index.active_of(&fingerprint_key(fingerprint))
    }

    /// Pending records of a turn, whatever is known of its context, without what this change does.
    #[must_use]
    pub fn members(&self, origin: &Origin) -> Vec<String> {
        let key = origin_key(&origin.run, &origin.conversation, &origin.boundary);
        let members = self.state.index.members(key);
        members.iter().map(ToString::to_string).collect()
    }

    /// Puts a record in the place of what has its name.
    pub fn put(&mut self, record: impl Into<Arc<Record>>) {
        let record = record.into();
        let id = Id::new(&record.continuation_id);
        self.draft.records.insert(id, Some(record));
    }

    /// Removes a record, if it is there.
    pub fn delete(&mut self, id: &str) {
        self.draft.records.insert(Id::new(id), None);
    }

    /// Keeps a snapshot's canonical text, and returns the digest under which it is found. It stays
    /// as long as a record refers to it, and is dropped if none of this change does.
    pub fn put_blob(&mut self, text: String) -> String {
        let digest = contexts::digest(&text);
        self.draft.contexts.insert(digest, text);
        hex::encode(digest)
    }
}
