//! The log: one file, preallocated and zeroed, so that a commit changes no metadata. Two slots of a
//! head are followed by a ring of frames. Positions are counted from the first byte ever written;
//! where that stands in the file is a matter of the remainder.
//!
//! What was written together begins at a sector of its own, so what is durable is never written
//! again until a checkpoint has freed it. The head says from where on frames count, and which
//! packs are valid up to where; it is written into the two slots in turn, with a MAC.

use crate::bytes::{Bytes, put_block};
use crate::error::{OpenError, StoreError, damaged, io};
use crate::frame::{HEAD, Head, MAX_BODY};
use crate::fs::{Folder, Fs, FsFile};
use crate::names;
use crate::secret::Secret;
use std::sync::Arc;

/// Bytes of one slot of the head.
const SLOT: usize = 16 * 1024;
/// Where the ring begins in the file.
const RING: u64 = 2 * SLOT as u64;
/// Bytes that a disk writes whole or not at all.
const SECTOR: u64 = 512;
/// Openings since the last checkpoint that the head has room for.
pub(crate) const MAX_GENERATIONS: usize = 64;
/// Packs that the head has room for.
pub(crate) const MAX_PACKS: usize = 1_000;
const MAGIC: [u8; 4] = *b"CLH1";
const WINDOW: usize = 1024 * 1024;

/// The head of the log: the one place that says what is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Book {
    /// The higher is the newer.
    pub(crate) sequence: u64,
    /// Bytes of the ring.
    pub(crate) capacity: u64,
    /// Frames before this are in files and packs.
    pub(crate) tail: u64,
    /// Records of older versions are still being taken over.
    pub(crate) importing: bool,
    /// A record was written, so older versions are locked out.
    pub(crate) guarded: bool,
    /// From where on frames belong to which opening.
    pub(crate) generations: Vec<(u64, u64)>,
    /// Packs, and up to where they are valid.
    pub(crate) packs: Vec<(u32, u64)>,
}

impl Book {
    fn encode(&self, secret: &Secret) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(self.sequence.to_le_bytes());
        body.extend(self.capacity.to_le_bytes());
        body.extend(self.tail.to_le_bytes());
        body.push(u8::from(self.importing));
        body.push(u8::from(self.guarded));
        let count = |count: usize| u16::try_from(count).unwrap_or(u16::MAX).to_le_bytes();
        body.extend(count(self.generations.len()));
        for (from, generation) in &self.generations {
            body.extend(from.to_le_bytes());
            body.extend(generation.to_le_bytes());
        }
        body.extend(count(self.packs.len()));
        for (number, valid) in &self.packs {
            body.extend(number.to_le_bytes());
            body.extend(valid.to_le_bytes());
        }
        let mut out = MAGIC.to_vec();
        put_block(&mut out, &body);
        out.extend(secret.mac("mono-agent-continuation-log-v1", &[&body]));
        out
    }

    fn decode(slot: &[u8], secret: &Secret) -> Option<Self> {
        let mut slot = Bytes(slot);
        if slot.array()? != MAGIC {
            return None;
        }
        let body = slot.block()?;
        let given = slot.array::<32>()?;
        if !Secret::same(
            &secret.mac("mono-agent-continuation-log-v1", &[body]),
            &given,
        ) {
            return None;
        }
        let mut body = Bytes(body);
        let mut book = Self {
            sequence: body.u64()?,
            capacity: body.u64()?,
            tail: body.u64()?,
            importing: body.u8()? != 0,
            guarded: body.u8()? != 0,
            generations: Vec::new(),
            packs: Vec::new(),
        };
        for _ in 0..body.u16()? {
            book.generations.push((body.u64()?, body.u64()?));
        }
        for _ in 0..body.u16()? {
            book.packs.push((body.u32()?, body.u64()?));
        }
        Some(book)
    }

    /// The opening that frames of this position belong to.
    fn generation(&self, at: u64) -> Option<u64> {
        let before = self.generations.iter().rev();
        before
            .clone()
            .find(|(from, _)| *from <= at)
            .map(|(_, generation)| *generation)
    }

    /// Forgets openings that have no frames any more.
    pub(crate) fn prune(&mut self) {
        let tail = self.tail;
        let first = self
            .generations
            .iter()
            .rposition(|(from, _)| *from <= tail)
            .unwrap_or(0);
        self.generations.drain(..first);
    }
}

/// The open file.
#[derive(Debug)]
pub(crate) struct Log<F: Fs> {
    file: Arc<F::File>,
    pub(crate) capacity: u64,
}

impl<F: Fs> Clone for Log<F> {
    fn clone(&self) -> Self {
        Self {
            file: Arc::clone(&self.file),
            capacity: self.capacity,
        }
    }
}

pub(crate) const fn align(at: u64) -> u64 {
    at.next_multiple_of(SECTOR)
}

impl<F: Fs> Log<F> {
    /// Makes the file, complete before it has its name.
    pub(crate) fn make(fs: &F, book: &Book, secret: &Secret) -> Result<Self, StoreError> {
        let doing = "making the log";
        let temporary = names::temporary(names::LOG);
        let file = fs.create(Folder::Root, &temporary).map_err(io(doing))?;
        let zeros = vec![0; 1024 * 1024];
        let whole = RING + book.capacity;
        let mut at = 0;
        while at < whole {
            let size = usize::try_from(whole - at).map_or(zeros.len(), |n| n.min(zeros.len()));
            file.write_at(at, &zeros[..size]).map_err(io(doing))?;
            at += size as u64;
        }
        let log = Self {
            file: Arc::new(file),
            capacity: book.capacity,
        };
        log.write_book(book, secret)?;
        fs.rename(Folder::Root, &temporary, names::LOG)
            .map_err(io(doing))?;
        fs.sync_folder(Folder::Root).map_err(io(doing))?;
        Ok(log)
    }

    /// Opens the file, if there is one.
    pub(crate) fn open(fs: &F, secret: &Secret) -> Result<Option<(Self, Book)>, OpenError> {
        let doing = "opening the log";
        let what = || damaged(format!("the file {}", names::LOG));
        let Some(length) = fs.len(Folder::Root, names::LOG).map_err(io(doing))? else {
            return Ok(None);
        };
        let file = fs.open(Folder::Root, names::LOG).map_err(io(doing))?;
        let file = file.ok_or_else(what)?;
        if length < RING {
            return Err(what().into());
        }
        let mut newest: Option<Book> = None;
        for at in [0, SLOT as u64] {
            let mut slot = vec![0; SLOT];
            file.read_at(at, &mut slot).map_err(io(doing))?;
            if let Some(book) = Book::decode(&slot, secret)
                && newest.as_ref().is_none_or(|n| n.sequence < book.sequence)
            {
                newest = Some(book);
            }
        }
        let book = newest.ok_or_else(what)?;
        if book.capacity == 0 || RING.checked_add(book.capacity) != Some(length) {
            return Err(what().into());
        }
        let log = Self {
            file: Arc::new(file),
            capacity: book.capacity,
        };
        Ok(Some((log, book)))
    }

    /// Writes the head into the slot whose turn it is, durably.
    pub(crate) fn write_book(&self, book: &Book, secret: &Secret) -> Result<(), StoreError> {
        let doing = "writing the head of the log";
        let bytes = book.encode(secret);
        if bytes.len() > SLOT {
            return Err(damaged("the list of packs, which is too long,"));
        }
        let at = (book.sequence % 2) * SLOT as u64;
        self.file.write_at(at, &bytes).map_err(io(doing))?;
        self.file.sync().map_err(io(doing))
    }

    fn position(&self, at: u64) -> u64 {
        RING + at % self.capacity
    }

    /// Whether so many bytes from there on stand in one piece.
    pub(crate) fn is_whole(&self, at: u64, size: u64) -> bool {
        at % self.capacity + size <= self.capacity
    }

    /// Where the ring begins anew at or after this.
    pub(crate) fn turn(&self, at: u64) -> u64 {
        at.next_multiple_of(self.capacity)
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.file
            .write_at(self.position(at), bytes)
            .map_err(io("writing the log"))
    }

    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.file.sync().map_err(io("syncing the log"))
    }

    pub(crate) fn read(&self, at: u64, length: u32) -> Result<Vec<u8>, StoreError> {
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        self.file
            .read_at(self.position(at), &mut bytes)
            .map_err(io("reading the log"))?;
        Ok(bytes)
    }

    /// Gives every frame from the tail on to `take`, and returns where the last one ends.
    ///
    /// Each frame is also written once more. Had an earlier process failed to sync it, it might
    /// stand in the kernel's cache alone, where a later sync takes it for clean; the next head of
    /// the log is synced with it.
    ///
    /// # Errors
    /// When the log can't be read, `take` fails, or a frame is gone that had been durable.
    pub(crate) fn replay(
        &self,
        book: &Book,
        mut take: impl FnMut(&Head, &[u8]) -> Result<(), StoreError>,
    ) -> Result<u64, StoreError> {
        let mut window = Window::new(self);
        let mut end = book.tail;
        let mut first = true;
        loop {
            let mut found = None;
            for at in [end, align(end), self.turn(end)] {
                let Some((head, body)) = window.frame(at, book)? else {
                    continue;
                };
                if head.previous == end || (first && at == end) {
                    self.write(at, &head.with(body))?;
                    take(&head, body)?;
                    found = Some(head.end());
                    break;
                }
            }
            match found {
                Some(next) if next - book.tail <= self.capacity => end = next,
                Some(_) => return Err(damaged("the log, which bites its tail,")),
                None => break,
            }
            first = false;
        }
        self.nothing_lost(&mut window, end, book)?;
        Ok(end)
    }

    /// A frame behind the end may have been under way; but none that knew more to be durable.
    fn nothing_lost(
        &self,
        window: &mut Window<'_, F>,
        end: u64,
        book: &Book,
    ) -> Result<(), StoreError> {
        let span = (MAX_BODY as u64 + 4 * 1024 * 1024).min(self.capacity);
        let mut at = align(end);
        while at < end + span {
            if let Some((head, _)) = window.frame(at, book)?
                && head.durable > end
            {
                return Err(damaged(format!(
                    "the log at {end}, which was durable up to {},",
                    head.durable
                )));
            }
            at += SECTOR;
        }
        Ok(())
    }
}

/// Reads ahead.
struct Window<'a, F: Fs> {
    log: &'a Log<F>,
    from: u64,
    bytes: Vec<u8>,
}

impl<'a, F: Fs> Window<'a, F> {
    const fn new(log: &'a Log<F>) -> Self {
        Self {
            log,
            from: 0,
            bytes: Vec::new(),
        }
    }

    fn get(&mut self, at: u64, size: usize) -> Result<&[u8], StoreError> {
        let from = self.log.position(at);
        let end = RING + self.log.capacity;
        let inside = from >= self.from
            && from + size as u64 <= self.from + self.bytes.len() as u64
            && !self.bytes.is_empty();
        if !inside {
            let most = usize::try_from(end - from).unwrap_or(usize::MAX);
            self.bytes.resize(size.max(WINDOW).min(most), 0);
            self.from = from;
            self.log
                .file
                .read_at(from, &mut self.bytes)
                .map_err(io("reading the log"))?;
        }
        let start = usize::try_from(from - self.from).unwrap_or(0);
        Ok(&self.bytes[start..start + size])
    }

    /// The frame that begins there, if a valid one does.
    fn frame(&mut self, at: u64, book: &Book) -> Result<Option<(Head, &[u8])>, StoreError> {
        if !self.log.is_whole(at, HEAD as u64) {
            return Ok(None);
        }
        let Some(head) = Head::decode(self.get(at, HEAD)?) else {
            return Ok(None);
        };
        let ours = head.at == at
            && book.generation(at) == Some(head.generation)
            && head.previous <= at
            && head.durable <= at
            && self.log.is_whole(at, head.end() - at);
        if !ours {
            return Ok(None);
        }
        let size = usize::try_from(head.end() - at).unwrap_or(0);
        let body = &self.get(at, size)?[HEAD..];
        Ok(head.fits(body).then_some((head, body)))
    }
}
