//! What the store knows and what it has under way: all that stands behind its one lock.

use crate::contexts::{self, Context, Contexts, Digest};
use crate::error::{StoreError, UpdateError, damaged, io};
use crate::frame::{HEAD, MAX_BODY, frame};
use crate::fs::{Folder, Fs};
use crate::guard;
use crate::index::{Grave, Index, Logged, Slot};
use crate::limits::Limits;
use crate::log::{Log, align};
use crate::meta::{Id, Meta};
use crate::op::Op;
use crate::pack::Packs;
use continuation_record::Record;
use continuation_record::validate::{self, MAX_RECORD_BYTES};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::oneshot;

/// What a checkpoint still has to put in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Dirty {
    Record(Id),
    Grave(Id),
    Context(Digest),
}

/// Frames that are written together.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) at: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Group {
    fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }

    fn part(&self, at: u64, length: u32) -> Option<&[u8]> {
        let from = usize::try_from(at.checked_sub(self.at)?).ok()?;
        self.bytes.get(from..from + usize::try_from(length).ok()?)
    }
}

/// A change that is asked for.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// By name, what becomes of a record: itself, or nothing.
    pub(crate) records: BTreeMap<Id, Option<Arc<Record>>>,
    pub(crate) contexts: BTreeMap<Digest, String>,
}

pub(crate) struct State<F: Fs> {
    pub(crate) fs: Arc<F>,
    pub(crate) limits: Limits,
    pub(crate) index: Index,
    pub(crate) graves: HashMap<Id, Grave>,
    pub(crate) contexts: Contexts,
    pub(crate) packs: Packs<F>,
    /// By frame, and a number that makes it unique.
    pub(crate) dirty: BTreeMap<(u64, u64), Dirty>,
    /// Frames that hold what another frame has replaced: that one, and which it replaced. In the order of
    /// the replacing ones.
    replaced: VecDeque<(u64, u64)>,
    order: u64,
    pub(crate) log: Log<F>,
    pub(crate) generation: u64,
    /// Frames before this are in files and packs.
    pub(crate) tail: u64,
    /// Frames before this are on the disk.
    pub(crate) durable: u64,
    /// Frames end here.
    pub(crate) end: u64,
    /// Groups that wait to be written.
    pub(crate) groups: VecDeque<Group>,
    /// Groups that are being written.
    pub(crate) flying: Vec<Arc<Group>>,
    pub(crate) waiters: VecDeque<(u64, oneshot::Sender<()>)>,
    pub(crate) guarded: bool,
    /// Nothing more is accepted.
    pub(crate) stopped: bool,
    /// Bytes of records that are kept in memory.
    pub(crate) held: usize,
}

/// What [`State::new`] begins with.
pub(crate) struct Start<F: Fs> {
    pub(crate) fs: Arc<F>,
    pub(crate) limits: Limits,
    pub(crate) log: Log<F>,
    pub(crate) tail: u64,
    pub(crate) guarded: bool,
}

impl<F: Fs> State<F> {
    pub(crate) fn new(start: Start<F>) -> Self {
        Self {
            fs: start.fs,
            limits: start.limits,
            index: Index::loading(),
            graves: HashMap::new(),
            contexts: Contexts::default(),
            packs: Packs::new(),
            dirty: BTreeMap::new(),
            replaced: VecDeque::new(),
            order: 0,
            log: start.log,
            generation: 0,
            tail: start.tail,
            durable: start.tail,
            end: start.tail,
            groups: VecDeque::new(),
            flying: Vec::new(),
            waiters: VecDeque::new(),
            guarded: start.guarded,
            stopped: false,
            held: 0,
        }
    }

    /// A record, from wherever it stands.
    pub(crate) fn record(&self, id: &Id) -> Result<Option<Arc<Record>>, StoreError> {
        let Some(slot) = self.index.get(id) else {
            return Ok(None);
        };
        if let Some(held) = &slot.held {
            return Ok(Some(Arc::clone(held)));
        }
        let bytes = self.body(slot)?;
        let record = validate::decode(&bytes)
            .map_err(|invalid| damaged(format!("the record {id} ({invalid})")))?;
        if Meta::of(&record) == slot.meta {
            Ok(Some(Arc::new(record)))
        } else {
            Err(damaged(format!("the record {id}")))
        }
    }

    /// A record's text, compact or indented.
    pub(crate) fn body(&self, slot: &Slot) -> Result<Vec<u8>, StoreError> {
        if let Some(logged) = &slot.logged {
            return self.logged(logged);
        }
        match &slot.packed {
            Some(place) if place.body.is_some() => self.packs.body(place),
            _ => {
                let name = slot.meta.id.file();
                self.fs
                    .read(Folder::Records, &name, MAX_RECORD_BYTES as u64)
                    .map_err(io("reading a record"))?
                    .ok_or_else(|| damaged(format!("the record {}", slot.meta.id)))
            }
        }
    }

    /// What stands in the log, written or about to be.
    pub(crate) fn logged(&self, logged: &Logged) -> Result<Vec<u8>, StoreError> {
        let here = self
            .groups
            .iter()
            .chain(self.flying.iter().map(AsRef::as_ref))
            .find_map(|group| group.part(logged.at, logged.length));
        match here {
            Some(bytes) => Ok(bytes.to_vec()),
            None => self.log.read(logged.at, logged.length),
        }
    }

    /// A snapshot's text; none if it is not there or not what it was.
    pub(crate) fn context(&self, digest: &Digest) -> Result<Option<String>, StoreError> {
        let Some(context) = self.contexts.all.get(digest) else {
            return Ok(None);
        };
        let bytes = match &context.logged {
            Some(logged) => Some(self.logged(logged)?),
            None => self.context_file(digest, context),
        };
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        Ok(text.and_then(|text| {
            if contexts::digest(&text) == *digest {
                return Some(text);
            }
            // An earlier version may have written it in another form.
            let canonical = continuation_record::canonical::canonical(&text).ok()?;
            (contexts::digest(&canonical) == *digest).then_some(canonical)
        }))
    }

    /// A damaged or unsafe file is as good as none: there is a way to go on without it.
    fn context_file(&self, digest: &Digest, context: &Context) -> Option<Vec<u8>> {
        if !context.filed {
            return None;
        }
        let max = u64::from(context.bytes) * 2 + 4096;
        match self.fs.read(Folder::Contexts, &contexts::file(digest), max) {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::warn!(%error, "a snapshot of a conversation can't be read");
                None
            }
        }
    }

    /// Puts a change into the log and into what is known. It is not on the disk yet.
    pub(crate) fn stage<E>(&mut self, draft: Draft, admission: bool) -> Result<(), UpdateError<E>> {
        if self.stopped {
            return Err(UpdateError::Stopped);
        }
        let mut puts = Vec::with_capacity(draft.records.len());
        let mut deletes = Vec::new();
        for (id, record) in draft.records {
            match record {
                Some(record) => {
                    let body = validate::encode(&record)?;
                    let meta = Meta::of(&record);
                    puts.push((meta, record, body));
                }
                None if self.index.get(&id).is_some() => deletes.push(id),
                None => {}
            }
        }
        self.claims(&puts, &deletes)?;
        let contexts = self.wanted(&puts, draft.contexts)?;
        if puts.is_empty() && deletes.is_empty() {
            return Ok(());
        }

        let mut body = Vec::new();
        let mut at = Vec::new();
        for id in &deletes {
            Op::Delete(id.clone()).encode(&mut body);
        }
        for (digest, text) in &contexts {
            at.push(Op::Context(*digest, text.as_bytes()).encode(&mut body));
        }
        for (meta, _, text) in &puts {
            at.push(Op::Put(meta.clone(), text).encode(&mut body));
        }
        let start = self.append(&body, admission)?;

        for id in deletes {
            self.bury(&id, start);
        }
        let mut at = at.into_iter().map(|at| start + (HEAD + at) as u64);
        for (digest, text) in contexts {
            let at = at.next().unwrap_or(start);
            let logged = self.logged_at(start, at, text.len());
            self.keep_context(digest, text.len(), logged);
        }
        for (meta, record, text) in puts {
            let at = at.next().unwrap_or(start);
            let logged = self.logged_at(start, at, text.len());
            let small = text.len() <= self.limits.packed_body
                && self.held + text.len() <= self.limits.held_bytes;
            self.enter(meta, logged, small.then_some(record));
        }
        Ok(())
    }

    /// No two names for one claim.
    fn claims<E>(
        &self,
        puts: &[(Meta, Arc<Record>, Vec<u8>)],
        deletes: &[Id],
    ) -> Result<(), UpdateError<E>> {
        let mut new = HashMap::new();
        for (meta, ..) in puts {
            let other = self.index.claim(&meta.claim);
            let taken = other.is_some_and(|other| {
                *other != meta.id
                    && !deletes.contains(other)
                    // It may have another claim from now on.
                    && !puts.iter().any(|(moved, ..)| moved.id == *other)
            });
            if taken || new.insert(meta.claim, &meta.id).is_some() {
                return Err(UpdateError::Duplicate);
            }
        }
        Ok(())
    }

    /// Of the snapshots that come with a change, those that are new and referred to.
    fn wanted<E>(
        &self,
        puts: &[(Meta, Arc<Record>, Vec<u8>)],
        mut given: BTreeMap<Digest, String>,
    ) -> Result<Vec<(Digest, String)>, UpdateError<E>> {
        let mut wanted = Vec::new();
        let mut bytes = self.contexts.bytes;
        for (meta, ..) in puts {
            let Some((digest, size)) = meta.active.as_ref().and_then(|active| active.context)
            else {
                continue;
            };
            if self.contexts.all.contains_key(&digest) {
                continue;
            }
            if let Some(text) = given.remove(&digest) {
                if contexts::digest(&text) != digest || text.len() as u64 != u64::from(size) {
                    return Err(UpdateError::Context);
                }
                bytes += u64::from(size);
                wanted.push((digest, text));
            } else if !wanted.iter().any(|(other, _)| *other == digest) {
                return Err(UpdateError::Context);
            }
        }
        if !wanted.is_empty() && bytes > self.limits.context_bytes {
            return Err(UpdateError::Quota);
        }
        Ok(wanted)
    }

    /// Appends a frame to what is to be written, and returns where it begins.
    fn append<E>(&mut self, body: &[u8], admission: bool) -> Result<u64, UpdateError<E>> {
        let max = usize::try_from(self.log.capacity / 4)
            .unwrap_or(MAX_BODY)
            .min(MAX_BODY);
        if body.len() > max {
            let bytes = body.len();
            return Err(UpdateError::Large { bytes, max });
        }
        let size = (HEAD + body.len()) as u64;
        let follows = self
            .groups
            .back()
            .is_some_and(|group| group.end() == self.end && self.log.is_whole(self.end, size));
        let at = if follows { self.end } else { align(self.end) };
        let at = if self.log.is_whole(at, size) {
            at
        } else {
            self.log.turn(at)
        };
        let end = at + size;
        let used = align(end).saturating_sub(self.tail / 512 * 512);
        let room = if admission {
            self.log.capacity / 4 * 3
        } else {
            self.log.capacity
        };
        if used > room {
            return Err(UpdateError::Busy);
        }
        if !self.guarded {
            // Before anything of this version is durable.
            if let Err(error) = guard::make(self.fs.as_ref()) {
                tracing::error!(%error, "the guard against older versions can't be made");
                self.stop();
                return Err(UpdateError::Stopped);
            }
            self.guarded = true;
        }
        let bytes = frame(at, self.end, self.durable, self.generation, body);
        match self.groups.back_mut() {
            Some(group) if follows => group.bytes.extend(bytes),
            _ => self.groups.push_back(Group { at, bytes }),
        }
        self.end = end;
        Ok(at)
    }

    pub(crate) fn logged_at(&mut self, frame: u64, at: u64, length: usize) -> Logged {
        self.order += 1;
        Logged {
            frame,
            order: self.order,
            at,
            length: u32::try_from(length).unwrap_or(u32::MAX),
        }
    }

    /// A record is so from now on.
    pub(crate) fn enter(&mut self, meta: Meta, logged: Logged, held: Option<Arc<Record>>) {
        let id = meta.id.clone();
        let old = self.index.remove(&id);
        let grave = self.graves.remove(&id);
        let (mut packed, mut filed) = (None, false);
        if let Some(grave) = grave {
            self.dirty.remove(&(grave.frame, grave.order));
            self.replaced.push_back((logged.frame, grave.frame));
            (packed, filed) = (grave.packed, grave.filed);
        }
        if let Some((digest, bytes)) = meta.active.as_ref().and_then(|active| active.context) {
            self.contexts.gain(digest, bytes);
        }
        if let Some(old) = old {
            self.leave(&old, logged.frame);
            (packed, filed) = (old.packed, old.filed);
        }
        if held.is_some() {
            self.held += usize::try_from(logged.length).unwrap_or(0);
        }
        let key = (logged.frame, logged.order);
        self.dirty.insert(key, Dirty::Record(id));
        self.index.put(Slot {
            meta,
            held,
            logged: Some(logged),
            packed,
            filed,
        });
    }

    /// A record is gone.
    pub(crate) fn bury(&mut self, id: &Id, frame: u64) {
        let Some(old) = self.index.remove(id) else {
            return;
        };
        self.leave(&old, frame);
        if old.packed.is_some() || old.filed {
            self.order += 1;
            let order = self.order;
            self.dirty.insert((frame, order), Dirty::Grave(id.clone()));
            let grave = Grave {
                frame,
                order,
                packed: old.packed,
                filed: old.filed,
            };
            self.graves.insert(id.clone(), grave);
        }
    }

    /// What a record held on to is free since this frame.
    fn leave(&mut self, old: &Slot, since: u64) {
        if let Some(logged) = &old.logged {
            self.dirty.remove(&(logged.frame, logged.order));
            self.replaced.push_back((since, logged.frame));
            if old.held.is_some() {
                let bytes = usize::try_from(logged.length).unwrap_or(0);
                self.held = self.held.saturating_sub(bytes);
            }
        }
        if let Some((digest, _)) = old.meta.active.as_ref().and_then(|active| active.context)
            && let Some(context) = self.contexts.lose(&digest, since)
            && let Some(logged) = context.logged
        {
            self.dirty.remove(&(logged.frame, logged.order));
            self.replaced.push_back((since, logged.frame));
        }
    }

    /// A snapshot stands in the log; the records that refer to it come with the same change.
    pub(crate) fn keep_context(&mut self, digest: Digest, bytes: usize, logged: Logged) {
        let swept = self.contexts.swept.remove(&digest).is_some();
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let context = self.contexts.all.entry(digest).or_default();
        if let Some(old) = context.logged.take() {
            self.dirty.remove(&(old.frame, old.order));
            self.replaced.push_back((logged.frame, old.frame));
        }
        if context.references == 0 {
            context.bytes = bytes;
        }
        if swept {
            // Its file is still there, and what has this name has this content.
            context.filed = true;
        } else if !context.filed {
            context.logged = Some(logged);
            let key = (logged.frame, logged.order);
            self.dirty.insert(key, Dirty::Context(digest));
        }
    }

    /// Snapshots that came with a change in which nobody refers to them in the end.
    pub(crate) fn forget_unwanted(&mut self) {
        let dirty = &mut self.dirty;
        let swept = &mut self.contexts.swept;
        self.contexts.all.retain(|digest, context| {
            if context.references > 0 {
                return true;
            }
            if let Some(logged) = &context.logged {
                dirty.remove(&(logged.frame, logged.order));
            }
            if context.filed {
                swept.insert(*digest, 0);
            }
            false
        });
    }

    /// Frames before this are on the disk: what they replaced is needed no more.
    pub(crate) fn reaches(&mut self, durable: u64) {
        self.durable = durable;
        while let Some((by, _)) = self.replaced.front()
            && *by < durable
        {
            self.replaced.pop_front();
        }
    }

    /// Frames before this are not needed for what is durable. What was replaced by a frame that is not is
    /// all that a crash would leave of it.
    pub(crate) fn free(&self) -> u64 {
        let waits = self.dirty.first_key_value().map(|((frame, _), _)| *frame);
        let replaced = self.replaced.iter().map(|(_, frame)| *frame);
        replaced.chain(waits).fold(self.durable, u64::min)
    }

    /// Nothing more is accepted, and whoever waits learns that it can't be told.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
        self.waiters.clear();
    }
}
