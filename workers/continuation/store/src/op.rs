//! What one change consists of, as it stands in the log and in the packs.

use crate::bytes::{Bytes, put_block};
use crate::meta::{Id, Meta};

/// One step of a change. All steps of a frame happen or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op<'a> {
    /// A record is so from now on. In a pack the body is empty if it is too long for one: then it
    /// stands in the record's file.
    Put(Meta, &'a [u8]),
    /// A record is gone.
    Delete(Id),
    /// A snapshot's text, under its digest.
    Context([u8; 32], &'a [u8]),
}

const PUT: u8 = 1;
const DELETE: u8 = 2;
const CONTEXT: u8 = 3;

impl<'a> Op<'a> {
    /// Appends the step; returns where its body begins in `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> usize {
        let body: &[u8] = match self {
            Self::Put(meta, body) => {
                out.push(PUT);
                meta.encode(out);
                body
            }
            Self::Delete(id) => {
                out.push(DELETE);
                put_block(out, id.to_string().as_bytes());
                return out.len();
            }
            Self::Context(digest, text) => {
                out.push(CONTEXT);
                out.extend(digest);
                text
            }
        };
        put_block(out, body);
        out.len() - body.len()
    }

    /// The next step.
    pub(crate) fn decode(bytes: &mut Bytes<'a>) -> Option<Self> {
        match bytes.u8()? {
            PUT => {
                let meta = Meta::decode(bytes)?;
                Some(Self::Put(meta, bytes.block()?))
            }
            DELETE => {
                let id = std::str::from_utf8(bytes.block()?).ok()?;
                Some(Self::Delete(Id::new(id)))
            }
            CONTEXT => {
                let digest = bytes.array()?;
                Some(Self::Context(digest, bytes.block()?))
            }
            _ => None,
        }
    }
}
