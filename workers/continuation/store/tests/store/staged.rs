//! Changes that are not on the disk yet while a checkpoint goes on: what they replace is all that a crash
//! leaves, so it is kept until they are.

use crate::{all, open, put};
use continuation_record::sample::{at, bound, claimed, context, delivered, id, received};
use continuation_record::{OriginContextState, Record};
use continuation_store::fs::{SimFs, World};
use continuation_store::{Store, Update};
use std::convert::Infallible;

fn stage(store: &Store<SimFs>, change: Option<Record>) -> Update<(), Infallible> {
    store.update(|txn| {
        match change {
            Some(record) => txn.put(record),
            None => txn.delete(&id(1)),
        }
        Ok(())
    })
}

/// What is there after the process died with a change staged and everything else in its place.
fn after(store: &Store<SimFs>, fs: &SimFs, change: Option<Record>) -> Store<SimFs> {
    store.hold(true);
    let staged = stage(store, change);
    while store.checkpoint().expect("a checkpoint") {}
    let left = fs.world().killed();
    drop(staged);
    open(left).1
}

#[test]
fn what_a_staged_change_replaces_outlives_a_crash() {
    for change in [Some(received(claimed(1), "1")), None] {
        let (fs, store, _) = open(World::new());
        put(&store, claimed(1)).expect("put");
        put(&store, claimed(2)).expect("put");
        let again = after(&store, &fs, change);
        assert_eq!(all(&again), [claimed(2), claimed(1)]);
        again.verify().expect("files and packs agree");
    }
}

#[test]
fn a_record_that_is_changed_again_and_again_outlives_a_crash() {
    let (fs, store, _) = open(World::new());
    put(&store, claimed(1)).expect("put");
    store.hold(true);
    // Two of them fly together, and the newest is behind them.
    let first = stage(&store, Some(received(claimed(1), "1")));
    let second = stage(&store, Some(received(claimed(1), "2")));
    store.flush().expect("both are durable");
    for staged in [first, second] {
        staged.wait().expect("durable");
    }
    let again = after(&store, &fs, Some(received(claimed(1), "3")));
    assert_eq!(all(&again), [received(claimed(1), "2")]);
}

#[test]
fn a_snapshot_that_a_staged_change_lets_go_outlives_a_crash() {
    for filed in [false, true] {
        let (fs, store, _) = open(World::new());
        let text = context("one");
        let pinned = |digest: &str| Record {
            origin_context_state: OriginContextState::Pinned,
            ..bound(claimed(1), digest, &text)
        };
        let digest = store.update(|txn| {
            let digest = txn.put_blob(text.clone());
            txn.put(pinned(&digest));
            Ok::<_, Infallible>(digest)
        });
        let digest = digest.wait().expect("put");
        if filed {
            store.close().expect("checkpoint");
        }
        // Its newest form stands behind the snapshot in the log.
        let known = received(pinned(&digest), "1");
        put(&store, known.clone()).expect("put");
        let again = after(&store, &fs, Some(delivered(known.clone(), at(9))));
        assert_eq!(all(&again), [known]);
        assert_eq!(again.blob(&digest).expect("read"), Some(text.clone()));
    }
}
