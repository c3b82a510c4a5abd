//! The manifest: what a reader of the folder is told. It is advice; the records are the truth. One
//! field is more: whether older versions are locked out for good.

use crate::error::{OpenError, StoreError, damaged, io};
use crate::fs::{Folder, Fs};
use crate::index::Counts;
use crate::names;
use continuation_record::{State, Time};
use serde::Deserialize;
use serde_json::json;
use std::time::{SystemTime, UNIX_EPOCH};

/// Longest manifest, in bytes.
pub(crate) const MAX_BYTES: u64 = 1024 * 1024;
/// Longest generation of a manifest or a transaction, in bytes.
pub(crate) const MAX_GENERATION: usize = 256;

/// What is read of it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    schema_version: u32,
    generation: String,
    /// Absent in manifests of versions that made the guard at once.
    #[serde(default = "yes")]
    pub(crate) rollback_guard_required: bool,
}

const fn yes() -> bool {
    true
}

/// Replaces the manifest, durably.
pub(crate) fn write<F: Fs>(
    fs: &F,
    sequence: u64,
    guarded: bool,
    counts: &Counts,
) -> Result<(), StoreError> {
    let manifest = json!({
        "schemaVersion": 3,
        "generation": format!("{sequence:016x}-{}", uuid::Uuid::new_v4()),
        "updatedAt": now(),
        "rollbackGuardRequired": guarded,
        "stats": {
            "format": "per-record-v3",
            "records": counts.records(),
            "active": counts.pending(),
            "unresolvedDelivery": counts.of(State::DeliveryUnknown),
            "deadLettered": counts.of(State::DeadLettered),
            "terminalTombstones": counts.settled(),
            "compacted": counts.compacted,
            "capturedText": counts.captured_text,
            "historyDegraded": counts.history_degraded,
        },
    });
    let mut text = serde_json::to_vec_pretty(&manifest).map_err(|e| StoreError::Io {
        doing: "writing the manifest",
        source: e.into(),
    })?;
    text.push(b'\n');
    names::replace(
        fs,
        Folder::Root,
        names::MANIFEST,
        &text,
        "writing the manifest",
    )
}

/// For who reads it; nothing is decided by it.
fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let ms = since.map_or(0, |since| since.as_millis());
    Time::from_ms(i64::try_from(ms).unwrap_or(i64::MAX))
}

/// Reads it, if there is one.
pub(crate) fn read<F: Fs>(fs: &F) -> Result<Option<Manifest>, OpenError> {
    let text = fs
        .read(Folder::Root, names::MANIFEST, MAX_BYTES)
        .map_err(io("reading the manifest"))?;
    let Some(text) = text else {
        return Ok(None);
    };
    let manifest: Manifest = serde_json::from_slice(&text).map_err(|_| damaged("the manifest"))?;
    if manifest.schema_version == 3 && manifest.generation.len() <= MAX_GENERATION {
        Ok(Some(manifest))
    } else {
        Err(damaged("the manifest").into())
    }
}
