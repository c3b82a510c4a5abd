//! Checkpoints: what stands in the log is put into files and packs, and the log is freed.
//!
//! In this order, each step durable before the next: the new files under temporary names and the
//! batch in the pack; the files under their own names, and the removals; the manifest; the head of
//! the log. A crash before the last leaves the log as it was, and what it replays is put into its
//! place once more.

use crate::contexts::{self, Digest};
use crate::error::{StoreError, damaged, io};
use crate::fs::{Folder, Fs, FsFile};
use crate::index::{Grave, Logged};
use crate::log::{Book, MAX_PACKS};
use crate::manifest;
use crate::meta::{Id, Meta};
use crate::names;
use crate::op::Op;
use crate::pack::{self, BATCH_BYTES, Entry, Pack, Place};
use crate::shared::Shared;
use crate::state::{Dirty, State};
use continuation_record::Record;
use continuation_record::validate;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Files above which everything is synced at once and not each for itself.
const MANY: usize = 16;

/// What only checkpoints change.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    pub(crate) book: Book,
}

/// A record that goes into its place.
struct Item {
    id: Id,
    logged: Logged,
    meta: Meta,
    record: Option<Arc<Record>>,
    filed: bool,
}

/// All that one checkpoint takes.
struct Batch {
    items: Vec<Item>,
    graves: Vec<(Id, Grave)>,
    contexts: Vec<(Digest, Logged)>,
    swept: BTreeSet<Digest>,
}

impl Batch {
    fn take<F: Fs>(state: &mut State<F>) -> Self {
        let durable = state.durable;
        let swept = &mut state.contexts.swept;
        let later = swept.extract_if(.., |_, since| *since < durable);
        let mut batch = Self {
            items: Vec::new(),
            graves: Vec::new(),
            contexts: Vec::new(),
            swept: later.map(|(digest, _)| digest).collect(),
        };
        let mut bytes = 0;
        for ((frame, _), dirty) in &state.dirty {
            let taken = batch.items.len() + batch.graves.len() + batch.contexts.len();
            let full = taken >= state.limits.checkpoint_items || bytes >= BATCH_BYTES;
            if *frame >= state.durable || full {
                break;
            }
            match dirty {
                Dirty::Record(id) => {
                    if let Some(slot) = state.index.get(id)
                        && let Some(logged) = slot.logged
                    {
                        bytes += usize::try_from(logged.length).unwrap_or(0);
                        batch.items.push(Item {
                            id: id.clone(),
                            logged,
                            meta: slot.meta.clone(),
                            record: slot.held.clone(),
                            filed: slot.filed,
                        });
                    }
                }
                Dirty::Grave(id) => {
                    if let Some(grave) = state.graves.get(id) {
                        batch.graves.push((id.clone(), grave.clone()));
                    }
                }
                Dirty::Context(digest) => {
                    if let Some(context) = state.contexts.all.get(digest)
                        && let Some(logged) = context.logged
                    {
                        bytes += usize::try_from(logged.length).unwrap_or(0);
                        batch.contexts.push((*digest, logged));
                    }
                }
            }
        }
        batch
    }
}

/// A file that waits for its name.
struct Waiting<T> {
    folder: Folder,
    temporary: String,
    name: String,
    file: T,
}

impl Checkpointer {
    /// One checkpoint. True if there is more to do.
    pub(crate) fn run<F: Fs>(&mut self, shared: &Shared<F>) -> Result<bool, StoreError> {
        let fs = shared.fs.as_ref();
        let (batch, log, limits, old) = {
            let mut state = shared.state();
            let old = state.packs.wasteful();
            let batch = Batch::take(&mut state);
            (batch, state.log.clone(), state.limits, old)
        };
        let copies = match old {
            Some(old) => copy(shared, old, self.book.packs.first().map(|(n, _)| *n))?,
            None => Vec::new(),
        };
        // First what is older: of two entries the later one counts.
        let mut copied = Vec::with_capacity(copies.len());
        let mut entries = Vec::with_capacity(copies.len() + batch.items.len());
        for (id, place, entry) in copies {
            copied.push((id, place));
            entries.push(entry);
        }
        let mut waiting = Vec::new();
        for item in &batch.items {
            let body = log.read(item.logged.at, item.logged.length)?;
            let settled = item.meta.state.is_settled();
            if !settled {
                let record = match &item.record {
                    Some(record) => Arc::clone(record),
                    None => Arc::new(decode(&body, &item.id)?),
                };
                let text = validate::encode_file(&record)
                    .map_err(|_| damaged(format!("the record {}", item.id)))?;
                waiting.push(write(fs, Folder::Records, item.id.file(), &text)?);
            }
            let packed = settled || body.len() <= limits.packed_body;
            entries.push(Entry::Put(item.meta.clone(), packed.then_some(body)));
        }
        for (digest, logged) in &batch.contexts {
            let text = log.read(logged.at, logged.length)?;
            waiting.push(write(fs, Folder::Contexts, contexts::file(digest), &text)?);
        }
        entries.extend(batch.graves.iter().map(|(id, _)| Entry::Gone(id.clone())));

        let places = self.pack(shared, &entries)?;
        name(fs, waiting)?;
        remove(fs, &batch)?;
        let more = self.settle(shared, &batch, &places, &copied, old)?;
        if let Some(old) = old {
            shared.state().packs.all.remove(&old);
            fs.remove(Folder::Packs, &pack::name(old))
                .map_err(io("removing a pack"))?;
        }
        Ok(more)
    }

    /// Writes the entries into the newest pack, or into a new one if that is full.
    fn pack<F: Fs>(
        &mut self,
        shared: &Shared<F>,
        entries: &[Entry],
    ) -> Result<Vec<Place>, StoreError> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let fs = shared.fs.as_ref();
        let doing = "writing a pack";
        let newest = {
            let state = shared.state();
            let last = state.packs.all.last_key_value();
            last.map(|(number, pack)| (*number, pack.length, Arc::clone(&pack.file)))
        };
        let (number, at, file) = match newest {
            Some((number, length, file)) if length < shared.state().limits.pack_bytes => {
                (number, length, file)
            }
            other => {
                let number = other.map_or(0, |(number, ..)| number + 1);
                if self.book.packs.len() >= MAX_PACKS {
                    return Err(damaged("the list of packs, which is too long,"));
                }
                let file = fs
                    .create(Folder::Packs, &pack::name(number))
                    .map_err(io(doing))?;
                fs.sync_folder(Folder::Packs).map_err(io(doing))?;
                (number, 0, Arc::new(file))
            }
        };
        let batch = pack::batch(number, at, entries, &shared.secret);
        file.write_at(at, &batch.bytes).map_err(io(doing))?;
        file.sync().map_err(io(doing))?;
        let length = at + batch.bytes.len() as u64;
        let mut state = shared.state();
        let pack = state.packs.all.entry(number).or_insert(Pack {
            file,
            length,
            live: 0,
        });
        pack.length = length;
        drop(state);
        self.book.packs.retain(|(other, _)| *other != number);
        self.book.packs.push((number, length));
        Ok(batch.places)
    }

    /// Everything is in its place: says so, then frees the log.
    fn settle<F: Fs>(
        &mut self,
        shared: &Shared<F>,
        batch: &Batch,
        places: &[Place],
        copied: &[(Option<Id>, Option<Place>)],
        old: Option<u32>,
    ) -> Result<bool, StoreError> {
        let mut state = shared.state();
        let mut places = places.iter().copied();
        for (id, from) in copied {
            state.copy_in_place(id.as_ref(), from.as_ref(), places.next());
        }
        for item in &batch.items {
            state.put_in_place(item, places.next());
        }
        for (digest, logged) in &batch.contexts {
            state.context_in_place(digest, logged);
        }
        for (id, grave) in &batch.graves {
            state.grave_in_place(id, grave);
        }
        let tail = state.free();
        let mut waits = state.dirty.keys().map(|(frame, _)| *frame).take(1);
        let mut unneeded = state.contexts.swept.values().copied();
        let durable = |frame| frame < state.durable;
        let more = waits.any(durable) || unneeded.any(durable);
        let (guarded, counts) = (state.guarded, state.index.counts);
        drop(state);

        self.book.sequence += 1;
        self.book.tail = tail;
        self.book.guarded = guarded;
        self.book.prune();
        if let Some(old) = old {
            self.book.packs.retain(|(number, _)| *number != old);
        }
        let closes = guarded && !self.book.importing;
        manifest::write(shared.fs.as_ref(), self.book.sequence, closes, &counts)?;
        let log = shared.state().log.clone();
        log.write_book(&self.book, &shared.secret)?;
        shared.state().tail = tail;
        Ok(more)
    }
}

fn decode(body: &[u8], id: &Id) -> Result<Record, StoreError> {
    validate::decode(body).map_err(|_| damaged(format!("the record {id}")))
}

fn write<F: Fs>(
    fs: &F,
    folder: Folder,
    name: String,
    bytes: &[u8],
) -> Result<Waiting<F::File>, StoreError> {
    let doing = "writing a file of a checkpoint";
    let temporary = names::temporary(&name);
    let file = fs.create(folder, &temporary).map_err(io(doing))?;
    file.write_at(0, bytes).map_err(io(doing))?;
    Ok(Waiting {
        folder,
        temporary,
        name,
        file,
    })
}

/// Syncs the files, then gives them their names.
fn name<F: Fs>(fs: &F, waiting: Vec<Waiting<F::File>>) -> Result<(), StoreError> {
    let doing = "syncing files of a checkpoint";
    if waiting.len() > MANY {
        fs.sync_all().map_err(io(doing))?;
    } else {
        for file in &waiting {
            file.file.sync().map_err(io(doing))?;
        }
    }
    for file in waiting {
        fs.rename(file.folder, &file.temporary, &file.name)
            .map_err(io("naming a file of a checkpoint"))?;
    }
    Ok(())
}

/// Removes the files of what is settled or gone; then the names in the folders are durable.
fn remove<F: Fs>(fs: &F, batch: &Batch) -> Result<(), StoreError> {
    let doing = "removing a file";
    let settled = batch
        .items
        .iter()
        .filter(|item| item.filed && item.meta.state.is_settled())
        .map(|item| &item.id);
    let gone = batch.graves.iter().filter(|(_, grave)| grave.filed);
    for id in settled.chain(gone.map(|(id, _)| id)) {
        let name = id.file();
        // A crash may have been after the removal: then the log asks for it once more.
        if fs.len(Folder::Records, &name).map_err(io(doing))?.is_some() {
            fs.remove(Folder::Records, &name).map_err(io(doing))?;
        }
    }
    for digest in &batch.swept {
        let name = contexts::file(digest);
        if fs
            .len(Folder::Contexts, &name)
            .map_err(io(doing))?
            .is_some()
        {
            fs.remove(Folder::Contexts, &name).map_err(io(doing))?;
        }
    }
    let doing = "syncing a folder";
    if !batch.items.is_empty() || !batch.graves.is_empty() {
        fs.sync_folder(Folder::Records).map_err(io(doing))?;
    }
    if !batch.contexts.is_empty() || !batch.swept.is_empty() {
        fs.sync_folder(Folder::Contexts).map_err(io(doing))?;
    }
    Ok(())
}

type Copy = (Option<Id>, Option<Place>, Entry);

/// What is still true in a pack that is mostly not.
fn copy<F: Fs>(
    shared: &Shared<F>,
    number: u32,
    first: Option<u32>,
) -> Result<Vec<Copy>, StoreError> {
    let what = || damaged(format!("the pack {}", pack::name(number)));
    let (file, length) = {
        let state = shared.state();
        let pack = state.packs.all.get(&number).ok_or_else(what)?;
        (Arc::clone(&pack.file), pack.length)
    };
    // Deletions matter as long as an older pack may have what they delete.
    let oldest = first.is_none_or(|first| first == number);
    let mut copies = Vec::new();
    pack::read::<F>(&file, number, length, &shared.secret, |op, place| {
        let state = shared.state();
        match op {
            Op::Put(meta, body) => {
                let slot = state.index.get(&meta.id);
                let grave = state.graves.get(&meta.id);
                let now = slot
                    .and_then(|slot| slot.packed)
                    .or_else(|| grave.and_then(|grave| grave.packed));
                if now == place && place.is_some() {
                    let id = Some(meta.id.clone());
                    let packed = place.is_some_and(|place| place.body.is_some());
                    let entry = Entry::Put(meta, packed.then(|| body.to_vec()));
                    copies.push((id, place, entry));
                }
            }
            Op::Delete(id)
                if !oldest && state.index.get(&id).is_none_or(|s| s.packed.is_none()) =>
            {
                copies.push((None, None, Entry::Gone(id)));
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(copies)
}

impl<F: Fs> State<F> {
    fn put_in_place(&mut self, item: &Item, place: Option<Place>) {
        self.packs.gain(place.as_ref());
        let filed = !item.meta.state.is_settled();
        let Some(slot) = self.index.get_mut(&item.id) else {
            // Deleted meanwhile: the grave has to know what there is now.
            if let Some(grave) = self.graves.get_mut(&item.id) {
                let old = grave.packed;
                grave.packed = place;
                grave.filed = filed;
                self.packs.lose(old.as_ref());
            } else {
                self.orphan(item, place, filed);
            }
            return;
        };
        let old = slot.packed;
        slot.packed = place;
        slot.filed = filed;
        let held = slot.held.is_some();
        if slot.logged == Some(item.logged) {
            slot.logged = None;
            slot.held = None;
            self.dirty.remove(&(item.logged.frame, item.logged.order));
            if held {
                let bytes = usize::try_from(item.logged.length).unwrap_or(0);
                self.held = self.held.saturating_sub(bytes);
            }
        }
        self.packs.lose(old.as_ref());
    }

    /// A record that was deleted while this checkpoint packed it for the first time.
    fn orphan(&mut self, item: &Item, packed: Option<Place>, filed: bool) {
        let frame = self.durable.max(item.logged.frame);
        let logged = self.logged_at(frame, frame, 0);
        let grave = Grave {
            frame,
            order: logged.order,
            packed,
            filed,
        };
        self.dirty
            .insert((frame, logged.order), Dirty::Grave(item.id.clone()));
        self.graves.insert(item.id.clone(), grave);
    }

    fn context_in_place(&mut self, digest: &Digest, logged: &Logged) {
        match self.contexts.all.get_mut(digest) {
            Some(context) => {
                context.filed = true;
                if let Some(now) = context.logged.take() {
                    // Whichever frame it is from, the content is the same.
                    self.dirty.remove(&(now.frame, now.order));
                }
                self.dirty.remove(&(logged.frame, logged.order));
            }
            None => {
                // By a frame that is staged already.
                let since = self.end.saturating_sub(1);
                self.contexts.swept.insert(*digest, since);
            }
        }
    }

    fn grave_in_place(&mut self, id: &Id, grave: &Grave) {
        self.packs.lose(grave.packed.as_ref());
        if let Some(slot) = self.index.get_mut(id) {
            // It is there again; what was packed of it before is void.
            if slot.packed == grave.packed {
                slot.packed = None;
            }
            if slot.logged.is_some() {
                slot.filed = false;
            }
        }
        let same = self
            .graves
            .get(id)
            .is_some_and(|now| (now.frame, now.order) == (grave.frame, grave.order));
        if same {
            self.graves.remove(id);
            self.dirty.remove(&(grave.frame, grave.order));
        } else if let Some(now) = self.graves.get_mut(id)
            && now.packed == grave.packed
        {
            now.packed = None;
            now.filed = false;
        }
    }

    fn copy_in_place(&mut self, id: Option<&Id>, from: Option<&Place>, place: Option<Place>) {
        let (Some(id), Some(from)) = (id, from) else {
            return;
        };
        let slot = self.index.get_mut(id);
        let packed = match slot {
            Some(slot) => &mut slot.packed,
            None => match self.graves.get_mut(id) {
                Some(grave) => &mut grave.packed,
                None => return,
            },
        };
        if packed.as_ref() == Some(from) {
            *packed = place;
            self.packs.gain(place.as_ref());
            self.packs.lose(Some(from));
        }
    }
}
