//! The frames of the log. Each holds one change and says where it stands, what precedes it, to
//! which opening of the store it belongs, and what was durable when it was made; so a piece of an
//! older frame is never taken for a new one.

use crate::bytes::{Bytes, length};

/// Bytes before a frame's body.
pub(crate) const HEAD: usize = 48;
/// Longest body: a change that is larger is refused (spec s1's bound of a transaction).
pub(crate) const MAX_BODY: usize = 16 * 1024 * 1024;

const MAGIC: [u8; 4] = *b"CLF1";

/// What stands before a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// Where the frame begins, counted from the log's first byte ever.
    pub(crate) at: u64,
    /// Where the frame before it ended.
    pub(crate) previous: u64,
    /// Up to where the log was durable when this was made.
    pub(crate) durable: u64,
    /// The opening that made it.
    pub(crate) generation: u64,
    /// Length of the body.
    pub(crate) length: u32,
    checksum: u32,
}

impl Head {
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(bytes);
        if bytes.array()? != MAGIC {
            return None;
        }
        let checksum = bytes.u32()?;
        let head = Self {
            at: bytes.u64()?,
            previous: bytes.u64()?,
            durable: bytes.u64()?,
            generation: bytes.u64()?,
            length: bytes.u32()?,
            checksum,
        };
        let spare = bytes.u32()?;
        let plausible = spare == 0 && usize::try_from(head.length).ok()? <= MAX_BODY;
        plausible.then_some(head)
    }

    fn encode(&self) -> [u8; HEAD] {
        let mut out = [0; HEAD];
        out[..4].copy_from_slice(&MAGIC);
        out[4..8].copy_from_slice(&self.checksum.to_le_bytes());
        out[8..16].copy_from_slice(&self.at.to_le_bytes());
        out[16..24].copy_from_slice(&self.previous.to_le_bytes());
        out[24..32].copy_from_slice(&self.durable.to_le_bytes());
        out[32..40].copy_from_slice(&self.generation.to_le_bytes());
        out[40..44].copy_from_slice(&self.length.to_le_bytes());
        out
    }

    /// Where the frame ends.
    pub(crate) fn end(&self) -> u64 {
        self.at + HEAD as u64 + u64::from(self.length)
    }

    /// The whole frame.
    pub(crate) fn with(&self, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD + body.len());
        out.extend(self.encode());
        out.extend(body);
        out
    }

    /// Whether this is the body that belongs to it.
    pub(crate) fn fits(&self, body: &[u8]) -> bool {
        length(body) == self.length && checksum(&self.encode(), body) == self.checksum
    }
}

fn checksum(head: &[u8; HEAD], body: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&head[8..]);
    crc.update(body);
    crc.finalize()
}

/// A frame around a body.
pub(crate) fn frame(at: u64, previous: u64, durable: u64, generation: u64, body: &[u8]) -> Vec<u8> {
    let mut head = Head {
        at,
        previous,
        durable,
        generation,
        length: length(body),
        checksum: 0,
    };
    head.checksum = checksum(&head.encode(), body);
    head.with(body)
}
