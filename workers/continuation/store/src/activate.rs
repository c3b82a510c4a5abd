//! Activation of a turn's claims: one commit point for all of them (spec s1, "Activate after
//! origin commit"). Usually that is one frame of the log. When the members together are larger,
//! it is a marker, as older versions have it, and the records follow in several frames; a start
//! finishes what was interrupted between.

use crate::error::{OpenError, StoreError, UpdateError, damaged, io};
use crate::fs::{Folder, Fs};
use crate::meta::{Id, origin_key};
use crate::names;
use crate::shared::Shared;
use crate::state::{Draft, State};
use crate::store::Update;
use crate::txn::Origin;
use continuation_record::binding::{group_key, members_digest};
use continuation_record::{OriginContextState, Record, Time};
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::sync::Arc;

/// Longest marker, in bytes.
const MAX_MARKER: u64 = 64 * 1024;
/// Times that a marker's frames wait for a checkpoint before the store is given up.
const MAX_WAITS: usize = 1_000;

/// A marker as it stands in its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Marker {
    schema_version: u32,
    group_key: String,
    origin_run_id: String,
    origin_conversation_id: String,
    history_boundary: String,
    snapshot_digest: String,
    member_count: usize,
    member_set_digest: String,
    activated_at: Time,
}

fn key_of(origin: &Origin) -> String {
    group_key(&origin.run, &origin.conversation, &origin.boundary)
}

fn digest_of(members: &[Id]) -> String {
    let names: Vec<String> = members.iter().map(ToString::to_string).collect();
    members_digest(names.iter().map(String::as_str))
}

/// The record as it is once its turn is committed.
fn pinned(record: &Record, at: Time) -> Option<Record> {
    let waits = record.origin_context_state == OriginContextState::Pending
        && record.origin_context_ref.is_some()
        && record.state.is_pending();
    waits.then(|| Record {
        origin_context_state: OriginContextState::Pinned,
        updated_at: at,
        // A result that came early has waited for just this.
        next_attempt_at: None,
        ..record.clone()
    })
}

/// Bytes of a record's file, roughly.
fn weight(record: &Record) -> usize {
    let payload = record.result_payload.as_ref().map_or(0, |p| p.text().len());
    payload + record.synthesized_text.as_ref().map_or(0, String::len) + 4096
}

impl<F: Fs> Shared<F> {
    pub(crate) fn activate(&self, origin: &Origin, at: Time) -> Update<usize, Infallible> {
        match self.try_activate(origin, at) {
            Ok(update) => update,
            Err(error) => {
                tracing::error!(%error, "a turn's claims can't be activated");
                self.state().stop();
                Update::new(Err(UpdateError::Stopped), None)
            }
        }
    }

    fn try_activate(
        &self,
        origin: &Origin,
        at: Time,
    ) -> Result<Update<usize, Infallible>, StoreError> {
        let state = self.state();
        if state.stopped {
            return Ok(Update::new(Err(UpdateError::Stopped), None));
        }
        let key = origin_key(&origin.run, &origin.conversation, &origin.boundary);
        let mut draft = Draft::default();
        let (mut count, mut bytes) = (0, 0);
        let mut snapshots = Vec::new();
        for id in state.index.members(key) {
            let Some(record) = state.record(&id)?.and_then(|record| pinned(&record, at)) else {
                continue;
            };
            bytes += weight(&record);
            snapshots.extend(record.origin_context_ref.as_ref().map(|r| r.digest.clone()));
            count += 1;
            if bytes <= state.limits.group_bytes {
                draft.records.insert(id, Some(Arc::new(record)));
            }
        }
        if bytes <= state.limits.group_bytes {
            return Ok(self.stage(state, draft, false, count));
        }
        snapshots.dedup();
        let [snapshot] = snapshots.as_slice() else {
            return Err(damaged("a turn whose claims have several snapshots"));
        };
        let members = members(&state, origin, snapshot)?;
        drop(state);
        let marker = Marker {
            schema_version: 1,
            group_key: key_of(origin),
            origin_run_id: origin.run.clone(),
            origin_conversation_id: origin.conversation.clone(),
            history_boundary: origin.boundary.clone(),
            snapshot_digest: snapshot.clone(),
            member_count: members.len(),
            member_set_digest: digest_of(&members),
            activated_at: at,
        };
        // What the marker speaks of comes first.
        self.flush_by_hand()?;
        let text = serde_json::to_vec(&marker).map_err(|_| damaged("a marker"))?;
        let name = format!("{}.json", marker.group_key);
        let doing = "writing a marker";
        names::replace(self.fs.as_ref(), Folder::Groups, &name, &text, doing)?;
        self.materialize(&members, at)?;
        self.unmark(&name)?;
        Ok(Update::new(Ok(count), None))
    }

    /// The records follow their marker.
    fn materialize(&self, members: &[Id], at: Time) -> Result<(), StoreError> {
        let mut rest = members.iter().peekable();
        while rest.peek().is_some() {
            let mut chunk = Vec::new();
            let mut bytes = 0;
            while let Some(id) = rest.peek() {
                let record = self.state().record(id)?;
                let record = record.and_then(|record| pinned(&record, at));
                bytes += record.as_ref().map_or(0, weight);
                if !chunk.is_empty() && bytes > self.state().limits.group_bytes / 2 {
                    break;
                }
                chunk.extend(record.map(|record| ((*id).clone(), Some(Arc::new(record)))));
                rest.next();
            }
            self.put_all(chunk)?;
        }
        Ok(())
    }

    /// Puts records, and makes room in the log as often as that takes.
    pub(crate) fn put_all(
        &self,
        records: Vec<(Id, Option<Arc<Record>>)>,
    ) -> Result<(), StoreError> {
        for _ in 0..MAX_WAITS {
            let draft = Draft {
                records: records.iter().cloned().collect(),
                ..Draft::default()
            };
            let update: Update<(), Infallible> = self.stage(self.state(), draft, false, ());
            match update.wait() {
                Ok(()) => return Ok(()),
                Err(UpdateError::Busy) => {
                    self.checkpoint()?;
                }
                Err(UpdateError::Stopped) => return Err(StoreError::Stopped),
                Err(other) => return Err(damaged(format!("a change of the store ({other})"))),
            }
        }
        Err(damaged("the log, which no checkpoint frees,"))
    }

    fn unmark(&self, name: &str) -> Result<(), StoreError> {
        let doing = "removing a marker";
        self.fs.remove(Folder::Groups, name).map_err(io(doing))?;
        self.fs.sync_folder(Folder::Groups).map_err(io(doing))
    }
}

/// Finishes what markers say; returns how many there were.
pub(crate) fn finish<F: Fs>(shared: &Arc<Shared<F>>) -> Result<usize, OpenError> {
    let names = names::digests(shared.fs.as_ref(), Folder::Groups)?;
    for name in &names {
        let what = || damaged(format!("the marker {name}"));
        let text = shared
            .fs
            .read(Folder::Groups, name, MAX_MARKER)
            .map_err(io("reading a marker"))?
            .ok_or_else(what)?;
        let marker: Marker = serde_json::from_slice(&text).map_err(|_| what())?;
        let origin = Origin {
            run: marker.origin_run_id.clone(),
            conversation: marker.origin_conversation_id.clone(),
            boundary: marker.history_boundary.clone(),
        };
        let named = marker.schema_version == 1
            && key_of(&origin) == marker.group_key
            && *name == format!("{}.json", marker.group_key);
        if !named {
            return Err(what().into());
        }
        let members = members(&shared.state(), &origin, &marker.snapshot_digest)?;
        // Some may have gone on since, but none may have joined.
        let same = members.len() < marker.member_count
            || (members.len() == marker.member_count
                && digest_of(&members) == marker.member_set_digest);
        if !same {
            return Err(what().into());
        }
        shared.materialize(&members, marker.activated_at)?;
        shared.unmark(name)?;
    }
    Ok(names.len())
}

/// The records that a marker speaks of: those of the turn that are not over and are bound to the
/// snapshot, also if they were activated before.
fn members<F: Fs>(
    state: &State<F>,
    origin: &Origin,
    snapshot: &str,
) -> Result<Vec<Id>, StoreError> {
    let key = origin_key(&origin.run, &origin.conversation, &origin.boundary);
    let mut members = Vec::new();
    for id in state.index.members(key) {
        let bound = state.record(&id)?.is_some_and(|record| {
            let reference = record.origin_context_ref.as_ref();
            reference.is_some_and(|reference| reference.digest == snapshot)
        });
        if bound {
            members.push(id);
        }
    }
    Ok(members)
}
