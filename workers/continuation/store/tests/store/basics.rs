use crate::{SMALL, all, open, put};
use continuation_record::sample::{at, bound, claimed, context, delivered, id, ready, received};
use continuation_record::{OriginContextState, Record, State};
use continuation_store::fs::{Folder, SimFs, World};
use continuation_store::{OpenError, Origin, Retention, Store, StoreError, UpdateError};
use std::convert::Infallible;

fn origin() -> Origin {
    Origin {
        run: "run-1".to_owned(),
        conversation: "slack:D1:1.1#2026-07-14".to_owned(),
        boundary: "run-1".to_owned(),
    }
}

#[test]
fn what_was_accepted_is_there_after_every_kind_of_end() {
    for checkpoint in [false, true] {
        let (fs, store, opened) = open(World::new());
        assert!(opened.fresh);
        let first = claimed(1);
        let second = received(claimed(2), r#"{"a":[1,null]}"#);
        put(&store, first.clone()).expect("put");
        put(&store, second.clone()).expect("put");
        if checkpoint {
            store.close().expect("checkpoint");
        }
        drop(store);
        let (_, store, opened) = open(fs.world());
        assert_eq!(opened.replayed, if checkpoint { 0 } else { 2 });
        assert!(!opened.fresh);
        assert_eq!(all(&store), [second, first]);
        store.verify().expect("files and packs agree");
    }
}

#[test]
fn a_refused_change_has_no_effect() {
    let (fs, store, _) = open(World::new());
    put(&store, claimed(1)).expect("put");
    let before = fs.world();
    let refused = store.update(|txn| {
        txn.put(claimed(2));
        txn.delete(&id(1));
        Err::<(), _>("no")
    });
    assert!(matches!(refused.wait(), Err(UpdateError::Refused("no"))));
    assert_eq!(all(&store), [claimed(1)]);
    assert_eq!(
        fs.world().bytes(Folder::Root, "continuation-log-v1.bin"),
        before.bytes(Folder::Root, "continuation-log-v1.bin")
    );
}

#[test]
fn what_could_not_be_read_again_is_not_written() {
    let (_, store, _) = open(World::new());
    let wrong = Record {
        task_key: String::new(),
        ..claimed(1)
    };
    assert!(matches!(put(&store, wrong), Err(UpdateError::Invalid(_))));
    assert_eq!(all(&store), []);
    put(&store, claimed(1)).expect("the store goes on");
}

#[test]
fn two_names_for_one_claim_are_refused() {
    let (_, store, _) = open(World::new());
    put(&store, claimed(1)).expect("put");
    let other = Record {
        continuation_id: id(2),
        ..claimed(1)
    };
    assert!(matches!(
        put(&store, other.clone()),
        Err(UpdateError::Duplicate)
    ));
    let both = store.update(|txn| {
        txn.delete(&id(1));
        txn.put(other.clone());
        Ok::<_, Infallible>(())
    });
    both.wait().expect("the first is gone");
    assert_eq!(
        store.by_claim("work-control", "run-1", "task-1"),
        Some(id(2))
    );
    assert_eq!(store.by_claim("work-control", "run-1", "task-2"), None);
}

#[test]
fn a_change_sees_what_was_staged_before_it_and_what_it_does() {
    let (_, store, _) = open(World::new());
    store.hold(true);
    let first = store.update(|txn| {
        txn.put(claimed(1));
        Ok::<_, Infallible>(())
    });
    let second = store.update(|txn| {
        assert!(txn.get(&id(1)).is_some());
        txn.put(claimed(2));
        assert_eq!(txn.by_claim("work-control", "run-1", "task-2"), Some(id(2)));
        txn.delete(&id(1));
        assert_eq!(txn.get(&id(1)), None);
        assert_eq!(txn.by_claim("work-control", "run-1", "task-1"), None);
        Ok::<_, Infallible>(())
    });
    store.flush().expect("flush");
    first.wait().expect("durable");
    second.wait().expect("durable");
    assert_eq!(all(&store), [claimed(2)]);
}

#[test]
fn an_empty_change_waits_for_what_it_saw() {
    let (fs, store, _) = open(World::new());
    store.hold(true);
    let first = store.update(|txn| {
        txn.put(claimed(1));
        Ok::<_, Infallible>(())
    });
    let mut repeat = Box::pin(store.update(|txn| Ok::<_, Infallible>(txn.get(&id(1)).is_some())));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(repeat.as_mut().poll(&mut cx).is_pending());
    fs.watch(|_, _| Err(std::io::Error::other("the disk is gone")));
    store.flush().expect_err("the disk is gone");
    assert!(matches!(first.wait(), Err(UpdateError::Stopped)));
    assert!(matches!(
        repeat.as_mut().poll(&mut cx),
        std::task::Poll::Ready(Err(UpdateError::Stopped))
    ));
}

#[test]
fn after_a_failed_sync_nothing_is_accepted_until_a_restart() {
    let (fs, store, _) = open(World::new());
    put(&store, claimed(1)).expect("put");
    let mut syncs = 0;
    fs.watch(move |_, call| {
        syncs += usize::from(call == continuation_store::fs::Call::Sync);
        match syncs {
            1 => Err(std::io::Error::from_raw_os_error(5)),
            _ => Ok(()),
        }
    });
    assert!(matches!(put(&store, claimed(2)), Err(UpdateError::Stopped)));
    // The disk would take it again, but what it forgot can't be known.
    assert!(matches!(put(&store, claimed(3)), Err(UpdateError::Stopped)));
    assert!(matches!(store.get(&id(1)), Err(StoreError::Stopped)));
    assert!(store.is_stopped());
    fs.unwatch();
    drop(store);
    let (_, store, _) = open(fs.world());
    assert!(all(&store).contains(&claimed(1)));
    assert!(!all(&store).contains(&claimed(3)));
}

#[test]
fn what_a_failed_sync_left_in_the_cache_is_written_again() {
    for seed in 0..20 {
        let (fs, store, _) = open(World::new());
        put(&store, claimed(1)).expect("put");
        // The sync fails, and the disk forgets what it was to make durable; the kernel does not.
        fs.watch(|_, call| match call {
            continuation_store::fs::Call::Sync => Err(std::io::Error::from_raw_os_error(5)),
            _ => Ok(()),
        });
        put(&store, claimed(2)).expect_err("the sync fails");
        fs.unwatch();
        drop(store);
        // Another process goes on with what it sees, then the power goes.
        let (fs, store, _) = open(fs.world().killed());
        let seen = all(&store);
        put(&store, claimed(3)).expect("put");
        drop(store);
        let mut chance = continuation_store::fs::Chance::new(seed);
        let (_, store, _) = open(fs.world().crash(&mut chance));
        assert_eq!(all(&store).len(), seen.len() + 1);
    }
}

#[test]
fn orders_follow_every_change() {
    let (_, store, _) = open(World::new());
    let late = Record {
        next_attempt_at: Some(at(500)),
        ..received(claimed(1), "1")
    };
    put(&store, late).expect("put");
    put(&store, ready(received(claimed(2), "1"), "text")).expect("put");
    put(&store, received(claimed(3), "1")).expect("put");
    let leased = Record {
        lease_owner: Some("p".to_owned()),
        lease_until: Some(at(9)),
        ..received(claimed(4), "1")
    };
    put(&store, leased).expect("put");
    put(&store, claimed(5)).expect("put");
    assert_eq!(store.due(at(100), 9), [id(2), id(3)]);
    assert_eq!(store.due_count(at(100)), 4);
    assert_eq!(store.next_due(), Some(at(500)));
    assert_eq!(store.due(at(500), 9), [id(1), id(2), id(3)]);
    assert_eq!(store.due(at(500), 2), [id(1), id(2)]);
    assert_eq!(store.past_deadline(at(3_600_002), 9), [id(1), id(2)]);
    let pending: Vec<_> = (1..=5).map(id).collect();
    assert_eq!(store.interrupted(at(500)), pending);
    put(&store, delivered(received(claimed(2), "1"), at(600))).expect("put");
    assert_eq!(store.due(at(500), 9), [id(1), id(3)]);
    assert_eq!(store.past_deadline(at(3_600_002), 9), [id(1)]);
    let stats = store.stats();
    assert_eq!(stats.counts.of(State::Delivered), 1);
    assert_eq!(stats.counts.pending(), 4);
    assert_eq!(store.active_count(), 4);
    assert_eq!(store.active_of(&"a".repeat(64)), 4);
    assert_eq!(stats.oldest_pending, Some(at(1)));
}

#[test]
fn pages_have_newest_first_and_then_the_name() {
    let (_, store, _) = open(World::new());
    for number in [3, 1, 2] {
        let record = Record {
            created_at: at(0),
            ..claimed(number)
        };
        put(&store, record).expect("put");
    }
    put(&store, claimed(9)).expect("put");
    let names = |page: &continuation_store::Page| -> Vec<String> {
        let records = page.records.iter();
        records
            .map(|record| record.continuation_id.clone())
            .collect()
    };
    let first = store.page(None, 2).expect("page");
    assert_eq!(names(&first), [id(9), id(3)]);
    let second = store.page(first.next.as_ref(), 2).expect("page");
    assert_eq!(names(&second), [id(2), id(1)]);
    assert_eq!(second.next, None);
}

#[test]
fn a_snapshot_lives_as_long_as_a_record_refers_to_it() {
    let (fs, store, _) = open(World::new());
    let text = context("one");
    let digest = store.update(|txn| {
        let digest = txn.put_blob(text.clone());
        txn.put(bound(claimed(1), &digest, &text));
        txn.put(bound(claimed(2), &digest, &text));
        txn.put_blob(context("nobody's"));
        Ok::<_, Infallible>(digest)
    });
    let digest = digest.wait().expect("put");
    assert_eq!(store.blob(&digest).expect("read"), Some(text.clone()));
    store.close().expect("checkpoint");
    let name = format!("{digest}.json");
    assert_eq!(
        fs.world().names(Folder::Contexts),
        std::slice::from_ref(&name)
    );
    assert_eq!(store.blob(&digest).expect("read"), Some(text.clone()));
    put(&store, delivered(received(claimed(1), "1"), at(9))).expect("put");
    assert_eq!(store.stats().context_bytes, text.len() as u64);
    store.close().expect("checkpoint");
    put(&store, delivered(received(claimed(2), "1"), at(9))).expect("put");
    assert_eq!(store.stats().context_bytes, 0);
    assert_eq!(store.blob(&digest).expect("read"), None);
    store.close().expect("checkpoint");
    assert_eq!(fs.world().names(Folder::Contexts), Vec::<String>::new());
}

#[test]
fn a_snapshot_that_is_not_what_it_was_is_none() {
    let (fs, store, _) = open(World::new());
    let text = context("one");
    let digest = store
        .update(|txn| {
            let digest = txn.put_blob(text.clone());
            txn.put(bound(claimed(1), &digest, &text));
            Ok::<_, Infallible>(digest)
        })
        .wait()
        .expect("put");
    store.close().expect("checkpoint");
    drop(store);
    let mut world = fs.world();
    let name = format!("{digest}.json");
    world.spoil(Folder::Contexts, &name, |bytes| bytes[3] ^= 1);
    let (_, store, _) = open(world.clone());
    assert_eq!(store.blob(&digest).expect("read"), None);
    drop(store);
    world.lose(Folder::Contexts, &name);
    let (_, store, _) = open(world);
    assert_eq!(store.blob(&digest).expect("read"), None);
}

#[test]
fn snapshots_have_a_quota_and_must_be_bound_and_there() {
    let (_, store, _) = open(World::new());
    let bind = |number: usize, text: String| {
        store
            .update(|txn| {
                let digest = txn.put_blob(text.clone());
                txn.put(bound(claimed(number), &digest, &text));
                Ok::<_, Infallible>(())
            })
            .wait()
    };
    let long = |name: &str| format!("\"{}{name}\"", "x".repeat(20_000));
    for number in 0..3 {
        bind(number, long(&number.to_string())).expect("there is room");
    }
    assert!(matches!(bind(3, long("3")), Err(UpdateError::Quota)));
    bind(4, long("2")).expect("it is there already");
    put(&store, delivered(received(claimed(0), "1"), at(9))).expect("put");
    bind(3, long("3")).expect("there is room again");
    let absent = bound(claimed(5), &"c".repeat(64), "text");
    assert!(matches!(put(&store, absent), Err(UpdateError::Context)));
    // To the last byte.
    let rest = usize::try_from(SMALL.context_bytes - store.stats().context_bytes).expect("small");
    let filling = |bytes: usize| format!("\"{}\"", "y".repeat(bytes - 2));
    assert!(matches!(
        bind(6, filling(rest + 1)),
        Err(UpdateError::Quota)
    ));
    bind(6, filling(rest)).expect("it fits exactly");
    assert_eq!(store.stats().context_bytes, SMALL.context_bytes);
    assert!(matches!(bind(7, "1".to_owned()), Err(UpdateError::Quota)));
    // As the product has it.
    let product = continuation_store::Limits::default();
    assert_eq!(product.context_bytes, 256 * 1024 * 1024);
}

#[test]
fn activation_pins_what_waits_and_leaves_the_others_out() {
    // Once in one frame, once by a marker.
    for bytes in [100, 6_000] {
        let (fs, store, _) = open(World::new());
        let text = context("turn");
        let payload = format!("\"{}\"", "x".repeat(bytes));
        store
            .update(|txn| {
                let digest = txn.put_blob(text.clone());
                for number in 0..3 {
                    txn.put(bound(claimed(number), &digest, &text));
                }
                Ok::<_, Infallible>(())
            })
            .wait()
            .expect("put");
        // A result that came early, an end before the turn's, and one that was never bound.
        let early = store.get(&id(0)).expect("read").expect("there");
        let early = Record {
            next_attempt_at: Some(at(999)),
            ..received((*early).clone(), &payload)
        };
        put(&store, early).expect("put");
        for number in 4..6 {
            let early = store.get(&id(1)).expect("read").expect("there");
            let other = Record {
                continuation_id: id(number),
                task_key: format!("task-{number}"),
                ..received((*early).clone(), &payload)
            };
            put(&store, other).expect("put");
        }
        put(&store, delivered(received(claimed(2), "1"), at(9))).expect("put");
        put(&store, claimed(3)).expect("put");
        let count = store.activate(&origin(), at(50)).wait().expect("activated");
        assert_eq!(count, 4);
        let state = |number: usize| {
            let record = store.get(&id(number)).expect("read").expect("there");
            record.origin_context_state
        };
        for number in [0, 1, 4, 5] {
            assert_eq!(state(number), OriginContextState::Pinned);
        }
        assert_eq!(state(2), OriginContextState::Scrubbed);
        assert_eq!(state(3), OriginContextState::Pending);
        assert!(store.due(at(60), 9).contains(&id(0)), "it waits no longer");
        assert_eq!(fs.world().names(Folder::Groups), Vec::<String>::new());
    }
}

#[test]
fn retention_takes_the_oldest_first() {
    let (_, store, _) = open(World::new());
    for number in 0..5 {
        let end = at(i64::try_from(number).expect("small") * 1_000);
        let kept = Record {
            mode: continuation_record::Mode::Capture,
            synthesized_text: Some("text".to_owned()),
            ..delivered(received(claimed(number), "1"), end)
        };
        put(&store, kept).expect("put");
    }
    let keep = |records, age, texts, text_age| Retention {
        terminal_max_records: records,
        terminal_max_age_ms: age,
        captured_text_max_records: texts,
        captured_text_max_age_ms: text_age,
    };
    let over = store.overdue(at(4_000), &keep(3, 1_000_000, 1, 1_000_000), 3);
    assert_eq!(over.remove, [id(0), id(1)]);
    assert_eq!(over.strip, [id(0), id(1), id(2)]);
    let over = store.overdue(at(4_000), &keep(9, 2_999, 9, 999), 9);
    assert_eq!(over.remove, [id(0), id(1)]);
    assert_eq!(over.strip, [id(0), id(1), id(2), id(3)]);
    // What is just as old as may be is kept.
    let over = store.overdue(at(4_000), &keep(5, 3_000, 5, 1_000), 9);
    assert_eq!(over.remove, [id(0)]);
    assert_eq!(over.strip, [id(0), id(1), id(2)]);
    assert_eq!(store.stats().counts.captured_text, 5);
}

#[test]
fn the_log_refuses_before_it_is_full_and_goes_on_after_a_checkpoint() {
    let (_, store, _) = open(World::new());
    let admit = |number: usize| {
        store
            .admit(|txn| {
                txn.put(claimed(number));
                Ok::<_, Infallible>(())
            })
            .wait()
    };
    let mut number = 0;
    while admit(number).is_ok() {
        number += 1;
    }
    assert!(matches!(admit(number), Err(UpdateError::Busy)));
    assert!(store.stats().log_used <= store.stats().log_capacity / 4 * 3);
    put(&store, delivered(received(claimed(0), "1"), at(9))).expect("what goes on has more room");
    while put(&store, claimed(number)).is_ok() {
        number += 1;
    }
    assert!(store.stats().log_used > store.stats().log_capacity / 4 * 3);
    while store.checkpoint().expect("checkpoint") {}
    admit(number).expect("there is room again");
    assert_eq!(all(&store).len(), number + 1);
}

#[test]
fn a_change_has_a_bound() {
    let (_, store, _) = open(World::new());
    let text = "x".repeat(20_000);
    let large = store.update(|txn| {
        for number in 0..2 {
            txn.put(received(claimed(number), &format!("\"{text}\"")));
        }
        Ok::<_, Infallible>(())
    });
    assert!(matches!(large.wait(), Err(UpdateError::Large { .. })));
}

#[test]
fn packs_turn_over_and_stay_small() {
    let (fs, store, _) = open(World::new());
    for round in 0..400_i64 {
        let number = usize::try_from(round % 20).expect("small");
        let record = Record {
            updated_at: at(round),
            ..claimed(number)
        };
        put(&store, record).expect("put");
        if round % 7 == 0 {
            store
                .update(|txn| {
                    txn.delete(&id(number));
                    Ok::<_, Infallible>(())
                })
                .wait()
                .expect("deleted");
        }
        if round % 5 == 0 {
            while store.checkpoint().expect("checkpoint") {}
        }
    }
    store.close().expect("checkpoint");
    let before = all(&store);
    let packs = fs.world().names(Folder::Packs);
    assert!(packs.len() <= 4, "{packs:?}");
    drop(store);
    let (_, store, _) = open(fs.world());
    assert_eq!(all(&store), before);
    store.verify().expect("files and packs agree");
}

#[test]
fn many_openings_without_a_checkpoint() {
    let (fs, store, _) = open(World::new());
    drop(store);
    let mut world = fs.world();
    for number in 0..150 {
        let (fs, store, _) = open(world);
        put(&store, claimed(number)).expect("put");
        assert_eq!(store.stats().counts.records(), number + 1);
        drop(store);
        world = fs.world();
    }
}

fn spoiled(change: impl Fn(&mut World)) -> Result<(), OpenError> {
    let (fs, store, _) = open(World::new());
    put(&store, claimed(1)).expect("put");
    put(&store, delivered(received(claimed(2), "1"), at(9))).expect("put");
    store.close().expect("checkpoint");
    put(&store, claimed(3)).expect("put");
    drop(store);
    let mut world = fs.world();
    change(&mut world);
    let (store, _) = Store::open_manual(SimFs::new(world), SMALL)?;
    store.verify()?;
    Ok(())
}

#[test]
fn what_is_not_as_it_was_stops_the_start() {
    spoiled(|_| ()).expect("the control");
    let record = |world: &World| world.names(Folder::Records)[0].clone();
    let pack = |world: &World| world.names(Folder::Packs)[0].clone();
    let log = "continuation-log-v1.bin";
    type Change<'a> = &'a dyn Fn(&mut World);
    let cases: [(&str, Change<'_>); 12] = [
        ("an unknown record", &|w| {
            w.place(Folder::Records, "notes.txt", b"")
        }),
        ("a record of nobody", &|w| {
            w.place(Folder::Records, &format!("{}.json", "0".repeat(64)), b"{}");
        }),
        ("an unknown marker", &|w| w.place(Folder::Groups, "x", b"")),
        ("a marker of nothing", &|w| {
            w.place(Folder::Groups, &format!("{}.json", "0".repeat(64)), b"{}");
        }),
        ("an unknown pack", &|w| {
            w.place(Folder::Packs, "1.pack", b"")
        }),
        ("a missing record", &|w| w.lose(Folder::Records, &record(w))),
        ("another record's text", &|w| {
            let name = record(w);
            w.spoil(Folder::Records, &name, |bytes| {
                let text = String::from_utf8_lossy(bytes).replace("task-1", "task-7");
                *bytes = text.into_bytes();
            });
        }),
        ("a byte of a pack", &|w| {
            let name = pack(w);
            w.spoil(Folder::Packs, &name, |bytes| bytes[60] ^= 1);
        }),
        ("a pack cut off", &|w| {
            let name = pack(w);
            w.spoil(Folder::Packs, &name, |bytes| bytes.truncate(60));
        }),
        ("a missing pack", &|w| w.lose(Folder::Packs, &pack(w))),
        ("a missing log", &|w| w.lose(Folder::Root, log)),
        ("both heads of the log", &|w| {
            w.spoil(Folder::Root, log, |bytes| {
                bytes[20] ^= 1;
                bytes[16 * 1024 + 20] ^= 1;
            });
        }),
    ];
    for (what, change) in cases {
        assert!(spoiled(change).is_err(), "{what}");
    }
    let lost = spoiled(|w| w.lose(Folder::Root, "continuation-secret"));
    assert!(matches!(lost, Err(OpenError::Missing(_))), "{lost:?}");
    let other = spoiled(|w| {
        let text = format!("{}\n", "A".repeat(43));
        w.spoil(Folder::Root, "continuation-secret", |bytes| {
            *bytes = text.clone().into_bytes();
        });
    });
    assert!(other.is_err(), "another secret");
}

#[test]
fn a_hole_in_what_was_durable_stops_the_start() {
    let (fs, store, _) = open(World::new());
    for number in 0..3 {
        put(&store, claimed(number)).expect("put");
    }
    drop(store);
    let mut world = fs.world();
    let spoil = |bytes: &mut Vec<u8>| bytes[32 * 1024 + 100] ^= 1;
    world.spoil(Folder::Root, "continuation-log-v1.bin", spoil);
    // The first frame is gone; the later ones knew that it was durable.
    let opened = Store::open_manual(SimFs::new(world), SMALL);
    assert!(matches!(
        opened,
        Err(OpenError::Store(StoreError::Damaged { .. }))
    ));
}

#[test]
fn one_owner_at_a_time() {
    let (fs, store, _) = open(World::new());
    let second = Store::open_manual(fs.clone(), SMALL);
    assert!(matches!(second, Err(OpenError::Owned(_))));
    drop(store);
    Store::open_manual(fs, SMALL).expect("it is free again");
}

#[test]
fn the_guard_comes_with_the_first_record() {
    let (fs, store, _) = open(World::new());
    store.close().expect("checkpoint");
    assert!(
        !fs.world().has(Folder::Legacy),
        "an empty store leaves the way back open"
    );
    let manifest = |fs: &SimFs| {
        let world = fs.world();
        let bytes = world.bytes(Folder::Root, "continuation-store-v3.json");
        String::from_utf8_lossy(bytes.expect("there")).into_owned()
    };
    assert!(manifest(&fs).contains("\"rollbackGuardRequired\": false"));
    put(&store, claimed(1)).expect("put");
    assert_eq!(fs.world().names(Folder::Legacy), ["UPGRADED-TO-RECORDS-V3"]);
    store.close().expect("checkpoint");
    assert!(manifest(&fs).contains("\"rollbackGuardRequired\": true"));
}

#[test]
fn the_secret_is_made_once() {
    let (fs, store, _) = open(World::new());
    let secret = *store.secret().bytes();
    assert_ne!(secret, [0; 32]);
    drop(store);
    let (fs, store, _) = open(fs.world());
    assert_eq!(*store.secret().bytes(), secret);
    let file = fs.world();
    let file = file
        .bytes(Folder::Root, "continuation-secret")
        .expect("there");
    assert_eq!(file.len(), 44, "base64url and a newline");
}
