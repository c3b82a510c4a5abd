//! Whether a record's file says what its pack says.

use crate::error::{StoreError, damaged, io};
use crate::fs::{Folder, Fs};
use crate::index::Slot;
use crate::meta::{Id, Meta};
use crate::shared::Shared;
use continuation_record::validate::{self, MAX_RECORD_BYTES};

/// A slot that a checkpoint has put in its place, and nobody has changed since.
fn settled<F: Fs>(shared: &Shared<F>, id: &Id) -> Option<(Slot, Option<Vec<u8>>)> {
    let state = shared.state();
    let slot = state.index.get(id)?;
    if slot.logged.is_some() || !slot.filed {
        return None;
    }
    let packed = slot.packed.filter(|place| place.body.is_some());
    let body = packed.and_then(|place| state.packs.body(&place).ok());
    Some((slot.clone(), body))
}

pub(crate) fn one<F: Fs>(shared: &Shared<F>, id: &Id) -> Result<(), StoreError> {
    let Some((before, body)) = settled(shared, id) else {
        return Ok(());
    };
    let file = shared.fs.read(
        Folder::Records,
        &before.meta.id.file(),
        MAX_RECORD_BYTES as u64,
    );
    // What changed meanwhile has been written anew.
    if settled(shared, id).is_none_or(|(after, _)| after.packed != before.packed) {
        return Ok(());
    }
    let what = || damaged(format!("the file of the record {id}"));
    let file = file.map_err(io("reading a record"))?.ok_or_else(what)?;
    let record = validate::decode(&file).map_err(|_| what())?;
    let same_body = match body {
        Some(body) => validate::decode(&body).is_ok_and(|packed| packed == record),
        None => before.packed.is_none_or(|place| place.body.is_none()),
    };
    if same_body && Meta::of(&record) == before.meta {
        Ok(())
    } else {
        Err(what())
    }
}
