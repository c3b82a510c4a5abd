//! What is wrong with what a crash has left.

use super::images::{Image, Records, Story};
use continuation_record::sample;
use continuation_store::fs::{Chance, Folder, SimFs, World};
use continuation_store::{Limits, Store};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

/// Small enough that the log goes round, packs fill, and checkpoints take several turns.
pub(super) const LIMITS: Limits = Limits {
    log_bytes: 64 * 1024,
    context_bytes: 64 * 1024,
    pack_bytes: 12 * 1024,
    checkpoint_items: 6,
    packed_body: 1_500,
    held_bytes: 8 * 1024,
    group_bytes: 14 * 1024,
};

/// Opens the store on it and looks; now and then it crashes once more while it does.
pub(super) fn at(image: &Image, world: World, chance: &mut Chance) -> Vec<String> {
    let world = if chance.once_in(4) {
        again(world, chance)
    } else {
        world
    };
    match open(&image.story, world) {
        Ok(wrong) => wrong,
        Err(error) => vec![format!("the store can't go on: {error:#}")],
    }
}

/// The disk that a second crash leaves, at any call of the recovery and of a checkpoint after it.
fn again(world: World, chance: &mut Chance) -> World {
    let fs = SimFs::new(world.clone());
    let count = chance.below(40) + 1;
    let shot = Arc::new(Mutex::new((0, None)));
    let camera = Arc::clone(&shot);
    fs.watch(move |world, _| {
        let mut camera = camera.lock().unwrap_or_else(PoisonError::into_inner);
        camera.0 += 1;
        // Of the calls that there are, the last one before the count is up.
        if camera.0 <= count {
            camera.1 = Some(world.clone());
        }
        Ok(())
    });
    if let Ok((store, _)) = Store::open_manual(fs.clone(), LIMITS) {
        // The crash may be in it.
        let _ = store.close();
    }
    fs.unwatch();
    let shot = shot.lock().unwrap_or_else(PoisonError::into_inner).1.take();
    shot.map_or(world, |world| world.crash(chance))
}

fn open(story: &Story, world: World) -> anyhow::Result<Vec<String>> {
    let fs = SimFs::new(world);
    let (store, _) = Store::open_manual(fs.clone(), LIMITS)?;
    let mut wrong = Vec::new();
    let there = all(&store)?;
    let from = story.promised.min(story.states.len().saturating_sub(1));
    let expected = &story.states[from..];
    if !expected.iter().any(|state| **state == there) {
        let names: Vec<_> = there.keys().collect();
        wrong.push(format!(
            "it holds {names:?}, which is none of what it was from change {from} on"
        ));
    }
    if story
        .secret
        .is_some_and(|secret| secret != *store.secret().bytes())
    {
        wrong.push("the secret is another one, and no token is right any more".to_owned());
    }
    wrong.extend(whole(&fs, &store, &there)?);
    // It goes on.
    store
        .update(|txn| {
            txn.put(sample::claimed(900));
            Ok::<_, Infallible>(())
        })
        .wait()?;
    store.close()?;
    store.verify()?;
    let files = fs.world().names(Folder::Contexts).len();
    if files != store.stats().contexts {
        wrong.push(format!("{files} snapshots have a file"));
    }
    drop(store);
    let (store, _) = Store::open_manual(SimFs::new(fs.world().killed()), LIMITS)?;
    if all(&store)?.len() != there.len() + 1 {
        wrong.push("what came after the crash is lost".to_owned());
    }
    Ok(wrong)
}

/// Counts are those of a recount, snapshots those that are referred to, and nothing is half done.
fn whole(fs: &SimFs, store: &Store<SimFs>, there: &Records) -> anyhow::Result<Vec<String>> {
    let mut wrong = Vec::new();
    let stats = store.stats();
    for state in continuation_record::State::ALL {
        let count = there
            .values()
            .filter(|record| record.state == state)
            .count();
        if stats.counts.of(state) != count {
            wrong.push(format!("{} are counted wrong", state.name()));
        }
    }
    let mut bytes = 0;
    let mut digests = BTreeSet::new();
    for reference in there.values().filter_map(|r| r.origin_context_ref.as_ref()) {
        if digests.insert(reference.digest.clone()) {
            bytes += reference.bytes;
            if store.blob(&reference.digest)?.is_none() {
                wrong.push("a snapshot is gone that is referred to".to_owned());
            }
        }
    }
    if stats.context_bytes != bytes {
        wrong.push(format!(
            "{} bytes of snapshots are counted",
            stats.context_bytes
        ));
    }
    store.verify()?;
    for folder in Folder::ALL.into_iter().chain([Folder::Root]) {
        let names = fs.world().names(folder);
        if let Some(name) = names.iter().find(|name| name.ends_with(".tmp")) {
            wrong.push(format!("{name} is left of a file that was not finished"));
        }
    }
    Ok(wrong)
}

pub(super) fn all(store: &Store<SimFs>) -> anyhow::Result<Records> {
    let page = store.page(None, 10_000)?;
    let records = page.records.into_iter().map(Arc::unwrap_or_clone);
    Ok(records
        .map(|record| (record.continuation_id.clone(), record))
        .collect())
}
