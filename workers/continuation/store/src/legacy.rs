//! Taking over what older versions wrote: the file of version 1, the folder of version 2, and
//! version 3 as it was before the log (spec s1, "Opening v3 state migrates only when…").
//!
//! Everything is read and compared before anything is changed. Then come the guard, the records,
//! and last the word in the head of the log and in the manifest that it is done; until then every
//! start does it again, and finds that what is already there is the same.

use crate::error::{OpenError, damaged, io};
use crate::fs::{Folder, Fs};
use crate::manifest::{self, MAX_GENERATION};
use crate::meta::Id;
use crate::names;
use crate::shared::Shared;
use continuation_record::validate::{self, MAX_RECORD_BYTES};
use continuation_record::{OriginContextState, Record, Time};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bytes of all records of versions 1 and 2 together.
const MAX_LEGACY_BYTES: u64 = 256 * 1024 * 1024;
/// Bytes of a transaction's file.
const MAX_TRANSACTION: u64 = 16 * 1024 * 1024;
/// Bytes of records that are put at once.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// Fields that versions 1 and 2 did not have.
const LATER: [&str; 8] = [
    "originContextState",
    "originContextRef",
    "originContextDigest",
    "originContextMessageCount",
    "originContextFingerprint",
    "originContextBindingMac",
    "completionKind",
    "synthesisDeferrals",
];

type Fields = BTreeMap<String, Box<RawValue>>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct First {
    schema_version: u32,
    #[serde(rename = "updatedAt")]
    _updated_at: Time,
    records: BTreeMap<String, Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Transaction {
    schema_version: u32,
    generation: String,
    #[serde(rename = "createdAt")]
    _created_at: Time,
    writes: Vec<Box<RawValue>>,
    deletes: Vec<String>,
}

fn legacy(why: impl Into<String>) -> OpenError {
    OpenError::Legacy(why.into())
}

/// Whether there is anything of versions 1 or 2, and no word that it was taken over.
pub(crate) fn evidence<F: Fs>(fs: &F) -> Result<bool, OpenError> {
    let closed = manifest::read(fs)?.is_some_and(|manifest| manifest.rollback_guard_required);
    if closed {
        return Ok(false);
    }
    let doing = "looking for records of older versions";
    let has = |name| fs.len(Folder::Root, name).map_err(io(doing));
    let folder = names::digests(fs, Folder::Legacy)?;
    Ok(has(names::LEGACY_FILE)?.is_some()
        || has(names::LEGACY_TRANSACTION)?.is_some()
        || !folder.is_empty())
}

/// Whether there is anything of version 3 from before the log.
pub(crate) fn foreign<F: Fs>(fs: &F) -> Result<bool, OpenError> {
    let doing = "looking for records of older versions";
    let transaction = fs
        .len(Folder::Root, names::TRANSACTION)
        .map_err(io(doing))?;
    Ok(transaction.is_some() || !names::digests(fs, Folder::Records)?.is_empty())
}

/// Takes everything over. `files` are those in the folder of records that the index doesn't explain.
pub(crate) fn import<F: Fs>(shared: &Arc<Shared<F>>, files: &[String]) -> Result<usize, OpenError> {
    let fs = shared.fs.as_ref();
    let old = if evidence(fs)? {
        second(fs, first(fs)?)?
    } else {
        BTreeMap::new()
    };
    let (writes, deletes) = transaction(fs, names::TRANSACTION, 3, current)?;
    // First a dry run: nothing is changed as long as anything may be refused.
    let mut known = BTreeSet::new();
    for name in files {
        let record = file(fs, name)?;
        let id = Id::new(&record.continuation_id);
        if deletes.contains(&id) || writes.contains_key(&id) {
            continue;
        }
        same(&old, &id, &record)?;
        agree(shared, &id, &record)?;
        known.insert(id);
    }
    for (id, record) in &writes {
        same(&old, id, record)?;
        agree(shared, id, record)?;
    }
    for (id, record) in &old {
        agree(shared, id, record)?;
    }

    let mut count = 0;
    let mut batch = Batch::new(shared);
    for name in files {
        let record = file(fs, name)?;
        let id = Id::new(&record.continuation_id);
        if known.contains(&id) {
            count += batch.add(id, record, true)?;
        }
    }
    for (id, record) in writes {
        count += batch.add(id, record, true)?;
    }
    for (id, record) in old {
        if !known.contains(&id) && !deletes.contains(&id) {
            count += batch.add(id, record, false)?;
        }
    }
    batch.put()?;
    finish(shared, files, &deletes)?;
    Ok(count)
}

/// Everything is in its place before the word that it is done.
fn finish<F: Fs>(
    shared: &Arc<Shared<F>>,
    files: &[String],
    deletes: &BTreeSet<Id>,
) -> Result<(), OpenError> {
    let fs = shared.fs.as_ref();
    shared.settle()?;
    let deleted: BTreeSet<_> = deletes.iter().map(Id::file).collect();
    let doing = "removing a record that was deleted";
    for name in files.iter().filter(|name| deleted.contains(*name)) {
        fs.remove(Folder::Records, name).map_err(io(doing))?;
    }
    fs.sync_folder(Folder::Records).map_err(io(doing))?;
    shared.book(|book| book.importing = false)?;
    shared.checkpoint()?;
    let doing = "removing a transaction";
    if fs
        .len(Folder::Root, names::TRANSACTION)
        .map_err(io(doing))?
        .is_some()
    {
        fs.remove(Folder::Root, names::TRANSACTION)
            .map_err(io(doing))?;
        fs.sync_folder(Folder::Root).map_err(io(doing))?;
    }
    Ok(())
}

/// Records on their way into the log.
struct Batch<'a, F: Fs> {
    shared: &'a Arc<Shared<F>>,
    records: Vec<(Id, Option<Arc<Record>>)>,
    filed: Vec<Id>,
    bytes: usize,
}

impl<'a, F: Fs> Batch<'a, F> {
    const fn new(shared: &'a Arc<Shared<F>>) -> Self {
        Self {
            shared,
            records: Vec::new(),
            filed: Vec::new(),
            bytes: 0,
        }
    }

    /// One more, unless it is there already; `filed` if it has a file among the records.
    fn add(&mut self, id: Id, record: Record, filed: bool) -> Result<usize, OpenError> {
        if self.shared.state().index.get(&id).is_some() {
            if filed {
                self.file(&id);
            }
            return Ok(0);
        }
        let size = validate::encode(&record)
            .map_err(|invalid| legacy(format!("record {id}: {invalid}")))?
            .len();
        let room = BATCH_BYTES.min(self.room());
        if self.bytes + size > room {
            self.put()?;
        }
        self.context(&record)?;
        if filed {
            self.filed.push(id.clone());
        }
        self.records.push((id, Some(Arc::new(record))));
        self.bytes += size;
        Ok(1)
    }

    fn room(&self) -> usize {
        let capacity = self.shared.state().log.capacity;
        usize::try_from(capacity / 16).unwrap_or(BATCH_BYTES)
    }

    /// What the record refers to may be lost; then the fixed answer takes its place.
    fn context(&self, record: &Record) -> Result<(), OpenError> {
        let reference = record.origin_context_ref.as_ref();
        let digest = reference.and_then(|reference| hex::decode(&reference.digest).ok());
        if let Some(digest) = digest.and_then(|digest| digest.try_into().ok()) {
            let name = crate::contexts::file(&digest);
            let file = self.shared.fs.len(Folder::Contexts, &name);
            let filed = file.map_err(io("looking for a snapshot"))?.is_some();
            let mut state = self.shared.state();
            state.contexts.all.entry(digest).or_default().filed = filed;
        }
        Ok(())
    }

    fn put(&mut self) -> Result<(), OpenError> {
        self.bytes = 0;
        self.shared.put_all(std::mem::take(&mut self.records))?;
        for id in std::mem::take(&mut self.filed) {
            self.file(&id);
        }
        Ok(())
    }

    fn file(&self, id: &Id) {
        if let Some(slot) = self.shared.state().index.get_mut(id) {
            slot.filed = true;
        }
    }
}

fn same(old: &BTreeMap<Id, Record>, id: &Id, record: &Record) -> Result<(), OpenError> {
    match old.get(id) {
        Some(other) if other != record => {
            Err(legacy(format!("record {id} differs between two versions")))
        }
        _ => Ok(()),
    }
}

/// What an interrupted start has taken over is the same.
fn agree<F: Fs>(shared: &Shared<F>, id: &Id, record: &Record) -> Result<(), OpenError> {
    match shared.state().record(id)? {
        Some(other) if *other != *record => Err(legacy(format!(
            "record {id} differs from what was taken over"
        ))),
        _ => Ok(()),
    }
}

/// A record's file of version 3.
fn file<F: Fs>(fs: &F, name: &str) -> Result<Record, OpenError> {
    let bytes = fs
        .read(Folder::Records, name, MAX_RECORD_BYTES as u64)
        .map_err(io("reading a record"))?
        .ok_or_else(|| damaged("the folder of records"))?;
    let record = current(&bytes)?;
    if Id::new(&record.continuation_id).file() == name {
        Ok(record)
    } else {
        Err(legacy(format!("the file {name} is of another record")))
    }
}

fn current(bytes: &[u8]) -> Result<Record, OpenError> {
    let record = validate::decode(bytes).map_err(|invalid| legacy(invalid.to_string()))?;
    preflight(&record)?;
    Ok(record)
}

/// A record of version 1 or 2 as one of version 3: its turn had no snapshot.
fn normalize(bytes: &[u8]) -> Result<Record, OpenError> {
    let wrong = || legacy("a record is not as its format has it");
    let mut fields: Fields = serde_json::from_slice(bytes).map_err(|_| wrong())?;
    if LATER.iter().any(|name| fields.contains_key(*name)) {
        return Err(wrong());
    }
    let context = if fields.contains_key("historyBoundary") {
        OriginContextState::LegacyMissing
    } else {
        OriginContextState::DetachedLatest
    };
    for (name, value) in [
        ("originContextState", format!("{:?}", context.name())),
        ("synthesisDeferrals", "0".to_owned()),
    ] {
        let value = RawValue::from_string(value).map_err(|_| wrong())?;
        fields.insert(name.to_owned(), value);
    }
    current(&serde_json::to_vec(&fields).map_err(|_| wrong())?)
}

/// What retention will make of it must fit too: it adds to a record, and a record that has become
/// too long could never be written again.
fn preflight(record: &Record) -> Result<(), OpenError> {
    let mut later = record.clone();
    if later.state.is_settled() {
        later.result_payload = None;
        later.origin_context_ref = None;
        later.origin_context_state = OriginContextState::Scrubbed;
        later.compacted_at = Some(later.updated_at);
    }
    for record in [record, &later] {
        let id = &record.continuation_id;
        validate::encode(record)
            .and_then(|_| validate::encode_file(record))
            .map_err(|invalid| legacy(format!("record {id}: {invalid}")))?;
    }
    Ok(())
}

/// The file of version 1.
fn first<F: Fs>(fs: &F) -> Result<BTreeMap<Id, Record>, OpenError> {
    let bytes = fs
        .read(Folder::Root, names::LEGACY_FILE, MAX_LEGACY_BYTES)
        .map_err(io("reading the records of version 1"))?;
    let Some(bytes) = bytes else {
        return Ok(BTreeMap::new());
    };
    let first: First = serde_json::from_slice(&bytes)
        .map_err(|_| legacy("the file of version 1 is not as its format has it"))?;
    drop(bytes);
    if first.schema_version != 1 {
        return Err(legacy("the file of version 1 says another version"));
    }
    let mut records = BTreeMap::new();
    for (name, text) in first.records {
        let record = normalize(text.get().as_bytes())?;
        if record.continuation_id != name {
            return Err(legacy("a record of version 1 has two names"));
        }
        records.insert(Id::new(&name), record);
    }
    Ok(records)
}

/// The folder of version 2, added to what version 1 left.
fn second<F: Fs>(
    fs: &F,
    mut records: BTreeMap<Id, Record>,
) -> Result<BTreeMap<Id, Record>, OpenError> {
    let (writes, deletes) = transaction(fs, names::LEGACY_TRANSACTION, 2, normalize)?;
    let mut total = 0;
    for name in names::digests(fs, Folder::Legacy)? {
        let bytes = fs
            .read(Folder::Legacy, &name, MAX_RECORD_BYTES as u64)
            .map_err(io("reading a record of version 2"))?
            .ok_or_else(|| damaged("the folder of version 2"))?;
        total += bytes.len() as u64;
        if total > MAX_LEGACY_BYTES {
            return Err(legacy("the records of version 2 are too many"));
        }
        let record = normalize(&bytes)?;
        let id = Id::new(&record.continuation_id);
        if id.file() != name {
            return Err(legacy(format!("the file {name} is of another record")));
        }
        if deletes.contains(&id) || writes.contains_key(&id) {
            continue;
        }
        same(&records, &id, &record)?;
        records.insert(id, record);
    }
    for id in deletes {
        records.remove(&id);
    }
    for (id, record) in writes {
        same(&records, &id, &record)?;
        records.insert(id, record);
    }
    Ok(records)
}

type Changes = (BTreeMap<Id, Record>, BTreeSet<Id>);

/// A transaction that was interrupted: it happens.
fn transaction<F: Fs>(
    fs: &F,
    name: &str,
    version: u32,
    read: impl Fn(&[u8]) -> Result<Record, OpenError>,
) -> Result<Changes, OpenError> {
    let wrong = || legacy(format!("{name} is not as its format has it"));
    let bytes = fs
        .read(Folder::Root, name, MAX_TRANSACTION)
        .map_err(io("reading a transaction"))?;
    let Some(bytes) = bytes else {
        return Ok(Changes::default());
    };
    let transaction: Transaction = serde_json::from_slice(&bytes).map_err(|_| wrong())?;
    if transaction.schema_version != version || transaction.generation.len() > MAX_GENERATION {
        return Err(wrong());
    }
    let (mut writes, mut deletes) = Changes::default();
    for text in &transaction.writes {
        let record = read(text.get().as_bytes())?;
        let id = Id::new(&record.continuation_id);
        if writes.insert(id, record).is_some() {
            return Err(wrong());
        }
    }
    for id in &transaction.deletes {
        let id = Id::new(id);
        if writes.contains_key(&id) || !deletes.insert(id) {
            return Err(wrong());
        }
    }
    Ok((writes, deletes))
}
