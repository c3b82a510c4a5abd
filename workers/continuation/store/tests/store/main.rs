//! The store as its callers see it, on a simulated disk and on a real one.
#![forbid(unsafe_code)]

mod basics;
mod migration;
mod real;
mod staged;

use continuation_record::Record;
use continuation_store::fs::{Fs, SimFs, World};
use continuation_store::{Limits, Opened, Store, UpdateError};
use std::convert::Infallible;

/// Small enough that packs and the log turn over in a test.
pub(crate) const SMALL: Limits = Limits {
    log_bytes: 128 * 1024,
    context_bytes: 64 * 1024,
    pack_bytes: 16 * 1024,
    checkpoint_items: 8,
    packed_body: 2 * 1024,
    held_bytes: 8 * 1024,
    group_bytes: 24 * 1024,
};

pub(crate) fn open(world: World) -> (SimFs, Store<SimFs>, Opened) {
    let fs = SimFs::new(world);
    let (store, opened) = Store::open_manual(fs.clone(), SMALL).expect("it opens");
    (fs, store, opened)
}

pub(crate) fn put<F: Fs>(store: &Store<F>, record: Record) -> Result<(), UpdateError<Infallible>> {
    store
        .update(|txn| {
            txn.put(record);
            Ok(())
        })
        .wait()
}

/// Everything of a store, newest first.
pub(crate) fn all<F: Fs>(store: &Store<F>) -> Vec<Record> {
    let mut records = Vec::new();
    let mut cursor = None;
    loop {
        let page = store.page(cursor.as_ref(), 7).expect("it can be read");
        records.extend(page.records.iter().map(|record| (**record).clone()));
        match page.next {
            Some(next) => cursor = Some(next),
            None => return records,
        }
    }
}
