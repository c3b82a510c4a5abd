//! Opening a state folder: what it has to be like, and what an earlier process left to do.

use crate::activate;
use crate::checkpoint::Checkpointer;
use crate::contexts::{self, Contexts};
use crate::error::{OpenError, StoreError, damaged, io};
use crate::frame::HEAD;
use crate::fs::{Folder, Fs};
use crate::index::Slot;
use crate::legacy;
use crate::limits::Limits;
use crate::log::{Book, Log, MAX_GENERATIONS};
use crate::meta::{Id, Meta};
use crate::names;
use crate::op::Op;
use crate::pack::{self, Place};
use crate::secret::Secret;
use crate::shared::Shared;
use crate::state::{Start, State};
use crate::{bytes::Bytes, guard};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// What opening found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Opened {
    /// There was no state before.
    pub fresh: bool,
    /// Changes that were in the log alone.
    pub replayed: usize,
    /// Records that were taken over from older versions.
    pub imported: usize,
    /// Turns whose activation was finished.
    pub activated: usize,
}

pub(crate) fn open<F: Fs>(fs: F, limits: Limits) -> Result<(Arc<Shared<F>>, Opened), OpenError> {
    let fs = Arc::new(fs);
    let owner = fs.own().map_err(OpenError::Owned)?;
    let mut opened = Opened::default();
    clean(fs.as_ref(), Folder::Root)?;
    let secret = match Secret::read(fs.as_ref())? {
        Some(secret) => secret,
        None => fresh_secret(fs.as_ref())?,
    };
    folders(fs.as_ref())?;
    let (log, mut book) = match Log::open(fs.as_ref(), &secret)? {
        Some(found) => found,
        None => {
            opened.fresh = true;
            make(fs.as_ref(), &secret, limits)?
        }
    };

    let mut state = State::new(Start {
        fs: Arc::clone(&fs),
        limits,
        log: log.clone(),
        tail: book.tail,
        guarded: book.guarded,
    });
    packs(&mut state, &book, &secret)?;
    let end = log.replay(&book, |head, body| {
        opened.replayed += 1;
        replay(&mut state, head.at, body)
    })?;
    state.forget_unwanted();
    state.index.sort();
    state.end = end;
    state.reaches(end);
    state.guarded |= state.index.counts.records() > 0 && guard::stands(fs.as_ref())?;
    if !book.guarded && !book.importing && legacy::evidence(fs.as_ref())? {
        book.importing = true;
        book.sequence += 1;
        log.write_book(&book, &secret)?;
    }
    let foreign = records(&mut state, book.importing)?;
    if !book.importing {
        snapshots(fs.as_ref(), &mut state.contexts)?;
    }

    let checkpointer = Checkpointer { book };
    let shared = Shared::new(state, checkpointer, secret, owner);
    generation(&shared)?;
    let importing = shared.book(|book| book.importing)?;
    if importing {
        opened.imported = legacy::import(&shared, &foreign)?;
        snapshots(fs.as_ref(), &mut shared.state().contexts)?;
    }
    opened.activated = activate::finish(&shared)?;
    Ok((shared, opened))
}

/// Unfinished files of an earlier process.
fn clean<F: Fs>(fs: &F, folder: Folder) -> Result<(), StoreError> {
    for name in fs.list(folder).map_err(io("listing a folder"))? {
        if names::is_temporary(&name) {
            fs.remove(folder, &name)
                .map_err(io("removing an unfinished file"))?;
        }
    }
    Ok(())
}

/// A folder without a secret is a new one; with records it would be one that lost it, and no token
/// that was given out would be right again.
fn fresh_secret<F: Fs>(fs: &F) -> Result<Secret, OpenError> {
    let has = |name| {
        fs.len(Folder::Root, name)
            .map_err(io("looking for the log"))
    };
    let used = has(names::LOG)?.is_some()
        || has(names::TRANSACTION)?.is_some()
        || !fs
            .list(Folder::Records)
            .map_err(io("listing records"))?
            .iter()
            .all(|name| names::is_temporary(name));
    if used {
        return Err(OpenError::Missing(format!("the file {}", names::SECRET)));
    }
    let mut bytes = [0; crate::secret::SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(|e| StoreError::Io {
        doing: "making the secret",
        source: std::io::Error::other(e),
    })?;
    Ok(Secret::make(fs, bytes)?)
}

fn folders<F: Fs>(fs: &F) -> Result<(), StoreError> {
    let doing = "making a folder";
    for folder in [
        Folder::Records,
        Folder::Contexts,
        Folder::Groups,
        Folder::Packs,
    ] {
        if !fs.has(folder).map_err(io(doing))? {
            fs.make(folder).map_err(io(doing))?;
        }
    }
    // Also when they were there: an earlier process may have ended before this.
    fs.sync_folder(Folder::Root).map_err(io(doing))
}

/// A folder that no version with a log has used yet.
fn make<F: Fs>(fs: &F, secret: &Secret, limits: Limits) -> Result<(Log<F>, Book), OpenError> {
    let packs = fs.list(Folder::Packs).map_err(io("listing packs"))?;
    if !packs.is_empty() {
        return Err(OpenError::Missing(format!("the file {}", names::LOG)));
    }
    let book = Book {
        sequence: 1,
        capacity: limits.log_bytes.next_multiple_of(4096).max(64 * 1024),
        tail: 0,
        importing: legacy::evidence(fs)? || legacy::foreign(fs)?,
        guarded: false,
        generations: Vec::new(),
        packs: Vec::new(),
    };
    let log = Log::make(fs, &book, secret)?;
    Ok((log, book))
}

fn packs<F: Fs>(state: &mut State<F>, book: &Book, secret: &Secret) -> Result<(), OpenError> {
    let fs = Arc::clone(&state.fs);
    let valid: HashSet<u32> = book.packs.iter().map(|(number, _)| *number).collect();
    for name in fs.list(Folder::Packs).map_err(io("listing packs"))? {
        match pack::number(&name) {
            Some(number) if valid.contains(&number) => {}
            // One that was not finished, or was copied into another.
            Some(_) => fs
                .remove(Folder::Packs, &name)
                .map_err(io("removing a pack"))?,
            None => {
                let folder = Folder::Packs.name();
                return Err(OpenError::Unknown { folder, name });
            }
        }
    }
    for (number, length) in &book.packs {
        let mut packs = std::mem::replace(&mut state.packs, crate::pack::Packs::new());
        let loaded = packs.load(fs.as_ref(), *number, *length, secret, |op, place| {
            match op {
                Op::Put(meta, _) => state.enter_packed(meta, place),
                Op::Delete(id) => state.leave_packed(&id),
                Op::Context(..) => return Err(damaged("a pack")),
            }
            Ok(())
        });
        state.packs = packs;
        loaded?;
    }
    let places: Vec<_> = state.index.slots().filter_map(|slot| slot.packed).collect();
    for place in &places {
        state.packs.gain(Some(place));
    }
    Ok(())
}

impl<F: Fs> State<F> {
    fn enter_packed(&mut self, meta: Meta, packed: Option<Place>) {
        if let Some((digest, bytes)) = meta.active.as_ref().and_then(|active| active.context) {
            self.contexts.gain(digest, bytes);
        }
        self.leave_packed(&meta.id);
        let filed = !meta.state.is_settled();
        self.index.put(Slot {
            meta,
            held: None,
            logged: None,
            packed,
            filed,
        });
    }

    fn leave_packed(&mut self, id: &Id) {
        let old = self.index.remove(id);
        if let Some((digest, _)) = old.and_then(|old| old.meta.active?.context) {
            self.contexts.lose(&digest, 0);
        }
    }
}

fn replay<F: Fs>(state: &mut State<F>, frame: u64, body: &[u8]) -> Result<(), StoreError> {
    let mut rest = Bytes(body);
    while !rest.is_empty() {
        let op = Op::decode(&mut rest).ok_or_else(|| damaged("a frame of the log"))?;
        let end = frame + (HEAD + body.len() - rest.0.len()) as u64;
        let mut logged = |text: &[u8]| state.logged_at(frame, end - text.len() as u64, text.len());
        match op {
            Op::Put(meta, text) => {
                let logged = logged(text);
                state.enter(meta, logged, None);
            }
            Op::Delete(id) => state.bury(&id, frame),
            Op::Context(digest, text) => {
                let logged = logged(text);
                state.keep_context(digest, text.len(), logged);
            }
        }
    }
    Ok(())
}

/// Every record that is not settled has its file, unless the log has it; no other file is there.
/// While older versions' records are taken over, the others are those, and are returned.
fn records<F: Fs>(state: &mut State<F>, importing: bool) -> Result<Vec<String>, OpenError> {
    let fs = Arc::clone(&state.fs);
    let names = names::digests(fs.as_ref(), Folder::Records)?;
    // Ordered, as what is removed: two openings of one folder do the same.
    let mut others: BTreeSet<String> = names.into_iter().collect();
    let mut found = Vec::new();
    for slot in state.index.slots() {
        if slot.meta.state.is_settled() && slot.logged.is_none() {
            continue;
        }
        let name = slot.meta.id.file();
        let there = others.remove(&name);
        if slot.logged.is_some() {
            // A checkpoint may have been under way.
            found.push((slot.meta.id.clone(), there));
        } else {
            let length = fs
                .len(Folder::Records, &name)
                .map_err(io("looking at a record"))?;
            if !there || length.is_none_or(|length| length == 0) {
                return Err(OpenError::Missing(format!(
                    "the file of the record {}",
                    slot.meta.id
                )));
            }
        }
    }
    for (id, filed) in found {
        if let Some(slot) = state.index.get_mut(&id) {
            slot.filed = filed;
        }
    }
    for (id, grave) in &mut state.graves {
        grave.filed = others.remove(&id.file());
    }
    if others.is_empty() {
        return Ok(Vec::new());
    }
    // Settled records lose their file with their pack; one may be left of an older version.
    let mut left = Vec::new();
    for slot in state.index.slots() {
        let name = slot.meta.id.file();
        if others.remove(&name) {
            left.push(name);
        }
    }
    left.sort();
    if !importing {
        for name in left {
            fs.remove(Folder::Records, &name)
                .map_err(io("removing a record"))?;
        }
        if let Some(name) = others.into_iter().next() {
            let folder = Folder::Records.name();
            return Err(OpenError::Unknown { folder, name });
        }
        return Ok(Vec::new());
    }
    left.extend(others);
    left.sort();
    Ok(left)
}

/// Which snapshots have a file; those that nobody refers to are removed.
fn snapshots<F: Fs>(fs: &F, contexts: &mut Contexts) -> Result<(), OpenError> {
    for name in names::digests(fs, Folder::Contexts)? {
        let digest = names::digest(&name).and_then(|digest| hex::decode(digest).ok());
        let digest: Option<contexts::Digest> = digest.and_then(|digest| digest.try_into().ok());
        match digest.and_then(|digest| contexts.all.get_mut(&digest)) {
            Some(context) => context.filed = true,
            None => fs
                .remove(Folder::Contexts, &name)
                .map_err(io("removing a snapshot"))?,
        }
    }
    contexts.swept.clear();
    debug_assert!(contexts.all.keys().all(|d| contexts::file(d).len() == 69));
    Ok(())
}

/// From here on frames belong to this opening.
fn generation<F: Fs>(shared: &Arc<Shared<F>>) -> Result<(), OpenError> {
    if shared.book(|book| book.generations.len())? >= MAX_GENERATIONS {
        while shared.checkpoint()? {}
    }
    let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
    let generation = high ^ low;
    let (log, end) = {
        let mut state = shared.state();
        state.generation = generation;
        (state.log.clone(), state.end)
    };
    let book = shared.book(|book| {
        book.prune();
        book.sequence += 1;
        book.generations.push((end, generation));
        book.clone()
    })?;
    Ok(log.write_book(&book, &shared.secret)?)
}
