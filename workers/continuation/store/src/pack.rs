//! Packs: files that only grow, into which each checkpoint writes what has changed. They hold the
//! settled records, and of the others what the index needs, so that a start reads a few files in
//! a row and not thousands.
//!
//! A checkpoint's part of a pack is one batch: a head, the entries, and a seal, which is a MAC over
//! the pack's number, the batch's place in it and its bytes. Up to where a pack is valid stands in
//! the log's head. Bytes behind that were not finished, and the next batch overwrites them.

use crate::bytes::{Bytes, length};
use crate::error::{StoreError, damaged, io};
use crate::fs::{Folder, Fs, FsFile};
use crate::meta::{Id, Meta};
use crate::op::Op;
use crate::secret::Secret;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where an entry stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) pack: u32,
    /// Where the body begins.
    pub(crate) at: u32,
    /// The body's length; none if the body stands in the record's file.
    pub(crate) body: Option<u32>,
    /// CRC-32 of the body.
    pub(crate) checksum: u32,
    /// Bytes that the entry takes.
    pub(crate) size: u32,
}

/// One step for a pack.
#[derive(Debug)]
pub(crate) enum Entry {
    /// A record, with its body if it is packed.
    Put(Meta, Option<Vec<u8>>),
    /// A record is gone: what older packs say of it is void.
    Gone(Id),
}

const BATCH: [u8; 4] = *b"CPB1";
/// Magic, length of the entries.
const BATCH_HEAD: usize = 8;
const SEAL: usize = 32;
/// Largest batch that is read.
const MAX_BATCH: u64 = 256 * 1024 * 1024;
/// Bytes of entries after which a checkpoint makes another batch.
pub(crate) const BATCH_BYTES: usize = 4 * 1024 * 1024;

pub(crate) struct Pack<F: Fs> {
    pub(crate) file: Arc<F::File>,
    /// Valid up to here.
    pub(crate) length: u64,
    /// Bytes of entries that are still true.
    pub(crate) live: u64,
}

/// The packs there are, by number.
pub(crate) struct Packs<F: Fs> {
    pub(crate) all: BTreeMap<u32, Pack<F>>,
}

/// A pack's name.
pub(crate) fn name(number: u32) -> String {
    format!("{number:08x}.pack")
}

/// The number in a pack's name.
pub(crate) fn number(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(".pack")?;
    let number = u32::from_str_radix(digits, 16).ok()?;
    (self::name(number) == name).then_some(number)
}

/// A batch ready to be written, and where each of its entries will stand.
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) places: Vec<Place>,
}

/// Packs entries for this place.
pub(crate) fn batch(pack: u32, at: u64, entries: &[Entry], secret: &Secret) -> Batch {
    let mut bytes = vec![0; BATCH_HEAD];
    bytes[..4].copy_from_slice(&BATCH);
    let mut places = Vec::with_capacity(entries.len());
    for entry in entries {
        let start = bytes.len();
        let (body, checksum, body_at) = match entry {
            Entry::Put(meta, Some(body)) => {
                let body_at = Op::Put(meta.clone(), body).encode(&mut bytes);
                (Some(length(body)), crc32fast::hash(body), body_at)
            }
            Entry::Put(meta, None) => {
                let body_at = Op::Put(meta.clone(), &[]).encode(&mut bytes);
                (None, 0, body_at)
            }
            Entry::Gone(id) => (None, 0, Op::Delete(id.clone()).encode(&mut bytes)),
        };
        places.push(Place {
            pack,
            at: u32::try_from(at + body_at as u64).unwrap_or(u32::MAX),
            body,
            checksum,
            size: u32::try_from(bytes.len() - start).unwrap_or(u32::MAX),
        });
    }
    let entries = length(&bytes[BATCH_HEAD..]);
    bytes[4..8].copy_from_slice(&entries.to_le_bytes());
    let seal = seal(pack, at, &bytes, secret);
    bytes.extend(seal);
    Batch { bytes, places }
}

fn seal(pack: u32, at: u64, bytes: &[u8], secret: &Secret) -> [u8; SEAL] {
    secret.mac(
        "mono-agent-continuation-pack-v1",
        &[&pack.to_le_bytes(), &at.to_le_bytes(), bytes],
    )
}

/// Gives each entry of a pack to `take`, in order, after its batch's seal was found right.
pub(crate) fn read<F: Fs>(
    file: &F::File,
    number: u32,
    valid: u64,
    secret: &Secret,
    mut take: impl FnMut(Op<'_>, Option<Place>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let what = || damaged(format!("the pack {}", name(number)));
    let doing = "reading a pack";
    let mut at = 0;
    while at < valid {
        let mut head = [0; BATCH_HEAD];
        file.read_at(at, &mut head).map_err(io(doing))?;
        let mut fields = Bytes(&head);
        let magic = fields.array::<4>();
        let size = fields.u32().map_or(0, u64::from);
        let whole = BATCH_HEAD as u64 + size + SEAL as u64;
        if magic != Some(BATCH) || size > MAX_BATCH || at + whole > valid {
            return Err(what());
        }
        let mut bytes = vec![0; usize::try_from(whole).map_err(|_| what())?];
        file.read_at(at, &mut bytes).map_err(io(doing))?;
        let (body, given) = bytes.split_at(bytes.len() - SEAL);
        if !Secret::same(&seal(number, at, body, secret), given) {
            return Err(what());
        }
        entries(number, at, body, &mut take)?;
        at += whole;
    }
    Ok(())
}

fn entries(
    number: u32,
    at: u64,
    body: &[u8],
    take: &mut impl FnMut(Op<'_>, Option<Place>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let what = || damaged(format!("the pack {}", name(number)));
    let mut rest = Bytes(&body[BATCH_HEAD..]);
    while !rest.is_empty() {
        let start = body.len() - rest.0.len();
        let op = Op::decode(&mut rest).ok_or_else(what)?;
        let end = body.len() - rest.0.len();
        let place = match &op {
            Op::Put(meta, text) => {
                // Only what is not settled may do without a body.
                let packed = !text.is_empty() || meta.state.is_settled();
                let from = at + (end - text.len()) as u64;
                Some(Place {
                    pack: number,
                    at: u32::try_from(from).map_err(|_| what())?,
                    body: packed.then(|| length(text)),
                    checksum: if packed { crc32fast::hash(text) } else { 0 },
                    size: u32::try_from(end - start).map_err(|_| what())?,
                })
            }
            _ => None,
        };
        take(op, place)?;
    }
    Ok(())
}

impl<F: Fs> Packs<F> {
    pub(crate) const fn new() -> Self {
        Self {
            all: BTreeMap::new(),
        }
    }

    /// Opens a pack and gives each of its entries to `take`, in order.
    pub(crate) fn load(
        &mut self,
        fs: &F,
        number: u32,
        valid: u64,
        secret: &Secret,
        take: impl FnMut(Op<'_>, Option<Place>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let file = fs
            .open(Folder::Packs, &name(number))
            .map_err(io("opening a pack"))?
            .ok_or_else(|| damaged(format!("the pack {}", name(number))))?;
        read::<F>(&file, number, valid, secret, take)?;
        let pack = Pack {
            file: Arc::new(file),
            length: valid,
            live: 0,
        };
        self.all.insert(number, pack);
        Ok(())
    }

    /// An entry's body.
    pub(crate) fn body(&self, place: &Place) -> Result<Vec<u8>, StoreError> {
        let what = || damaged(format!("the pack {}", name(place.pack)));
        let pack = self.all.get(&place.pack).ok_or_else(what)?;
        let size = place.body.ok_or_else(what)?;
        let mut body = vec![0; usize::try_from(size).map_err(|_| what())?];
        pack.file
            .read_at(u64::from(place.at), &mut body)
            .map_err(io("reading a pack"))?;
        if crc32fast::hash(&body) == place.checksum {
            Ok(body)
        } else {
            Err(what())
        }
    }

    pub(crate) fn gain(&mut self, place: Option<&Place>) {
        if let Some(place) = place
            && let Some(pack) = self.all.get_mut(&place.pack)
        {
            pack.live += u64::from(place.size);
        }
    }

    pub(crate) fn lose(&mut self, place: Option<&Place>) {
        if let Some(place) = place
            && let Some(pack) = self.all.get_mut(&place.pack)
        {
            pack.live = pack.live.saturating_sub(u64::from(place.size));
        }
    }

    /// The pack that it is most worth to copy the rest of: less than half of it is true.
    pub(crate) fn wasteful(&self) -> Option<u32> {
        let (last, _) = self.all.last_key_value()?;
        self.all
            .iter()
            .filter(|(number, pack)| *number != last && pack.live * 2 < pack.length)
            .min_by_key(|(_, pack)| pack.live)
            .map(|(number, _)| *number)
    }
}
