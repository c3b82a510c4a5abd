//! Any bytes in the place of any file of a state folder: the store opens or refuses, and does not
//! panic. In the log they also stand behind a head that is right.
#![no_main]

use continuation_store::fs::{Folder, SimFs, World};
use continuation_store::{Limits, Store};
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

const LIMITS: Limits = Limits {
    log_bytes: 64 * 1024,
    context_bytes: 64 * 1024,
    pack_bytes: 16 * 1024,
    checkpoint_items: 8,
    packed_body: 1024,
    held_bytes: 8 * 1024,
    group_bytes: 8 * 1024,
};
const LOG: &str = "continuation-log-v1.bin";
/// Bytes of the log's head.
const HEAD: usize = 32 * 1024;

/// A folder that was used once, and is empty.
fn fresh() -> World {
    static FRESH: OnceLock<World> = OnceLock::new();
    FRESH
        .get_or_init(|| {
            let fs = SimFs::new(World::new());
            let opened = Store::open_manual(fs.clone(), LIMITS);
            drop(opened);
            fs.world().killed()
        })
        .clone()
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, bytes)) = input.split_first() else {
        return;
    };
    let mut world = fresh();
    let digest = format!("{}.json", "0".repeat(64));
    match choice % 8 {
        0 => world.spoil(Folder::Root, LOG, |log| {
            let end = (HEAD + bytes.len()).min(log.len());
            log[HEAD..end].copy_from_slice(&bytes[..end - HEAD]);
        }),
        1 => world.spoil(Folder::Root, LOG, |log| {
            let end = bytes.len().min(log.len());
            log[..end].copy_from_slice(&bytes[..end]);
        }),
        2 => world.place(Folder::Packs, "00000000.pack", bytes),
        3 => world.place(Folder::Groups, &digest, bytes),
        4 => world.place(Folder::Contexts, &digest, bytes),
        older => {
            // A folder from before the log.
            world.lose(Folder::Root, LOG);
            let name = match older {
                5 => "continuations-v1.json",
                6 => "continuation-transaction-v3.json",
                _ => "continuation-store-v3.json",
            };
            world.place(Folder::Root, name, bytes);
        }
    }
    if let Ok((store, _)) = Store::open_manual(SimFs::new(world), LIMITS) {
        let _ = store.page(None, 100);
        let _ = store.close();
    }
});
