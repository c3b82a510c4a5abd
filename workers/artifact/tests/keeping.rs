//! What is kept: the quota, the inventory of a start, retention, and what is not ours.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Place, published, refused};
use jiff::{SignedDuration, Timestamp};
use mono_artifact::index::Retention;
use mono_artifact::quota::{CEILING, charge};
use mono_artifact::reading::Wish;
use mono_artifact::session::Desk;
use mono_artifact::shelf::{OpenError, STAGING_GRACE, Shelf};
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use worker_kit::room::Room;

#[test]
fn the_quota_is_reserved_before_the_copy_and_evicts_nothing() {
    let place = Place::new();
    let desk = place.desk_with(charge(1000) + charge(500), Timestamp::now());
    let mut session = place.session(&desk);
    place.write("w/a.txt", vec![1; 1000]);
    place.write("w/b.txt", vec![2; 501]);
    place.write("w/c.txt", vec![3; 500]);
    let first = place.publish(&mut session, "a.txt");
    published(&first);
    let copied = std::cell::Cell::new(false);
    let outcome = place.publish_watched(&mut session, "b.txt", &|_| {
        copied.set(true);
        true
    });
    assert_eq!(
        (refused(&outcome), copied.get()),
        ("artifact_publish_failed", false)
    );
    published(&place.publish(&mut session, "c.txt"));
    // A retry needs no room.
    assert_eq!(place.publish(&mut session, "a.txt"), first);
    assert_eq!(
        (desk.shelf.count(), desk.shelf.used()),
        (2, charge(1000) + charge(500))
    );
}

#[test]
fn room_is_asked_for_to_the_last_byte_and_given_back() {
    let place = Place::new();
    place.write("w/a.txt", vec![1; 1000]);
    place.write("w/b.txt", vec![2; 1000]);
    let now = Timestamp::now();
    let (most, said) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(Mutex::new(Vec::new())),
    );
    let shared = || {
        let (most, said) = (most.clone(), said.clone());
        let room = Room::asking(Box::new(move |held, wanted| {
            said.lock().unwrap().push((held, wanted));
            Some(held.max(wanted.min(most.load(Ordering::Relaxed))))
        }));
        let desk = Arc::into_inner(place.desk_with(CEILING, now)).unwrap();
        Arc::new(Desk {
            shelf: desk.shelf.sharing(room),
            ..desk
        })
    };
    let desk = shared();
    let mut session = place.session(&desk);
    most.store(charge(1000) - 1, Ordering::Relaxed);
    assert_eq!(
        refused(&place.publish(&mut session, "a.txt")),
        "artifact_publish_failed"
    );
    most.store(charge(1000), Ordering::Relaxed);
    published(&place.publish(&mut session, "a.txt"));
    most.store(2 * charge(1000) - 1, Ordering::Relaxed);
    refused(&place.publish(&mut session, "b.txt"));
    session.finalise().unwrap();
    // Operators see the ceiling, not what others leave of it.
    let usage = desk.shelf.usage(&desk.retention, now);
    assert_eq!(
        (usage.used_bytes, usage.ceiling_bytes),
        (charge(1000), CEILING)
    );
    drop((session, desk));
    // After a start what is there is said before anything is asked for.
    let desk = shared();
    desk.shelf.give_back();
    let last = || *said.lock().unwrap().last().unwrap();
    assert_eq!(last(), (charge(1000), charge(1000)));
    let mut session = place.session(&desk);
    most.store(u64::MAX, Ordering::Relaxed);
    published(&place.publish(&mut session, "b.txt"));
    assert_eq!(last(), (charge(1000), 1 << 20));
    assert!(!desk.shelf.has_spare());
    drop(session);
    desk.shelf.give_back();
    assert_eq!(last(), (charge(1000), charge(1000)));
}

#[test]
fn a_restart_keeps_what_is_finalised_removes_the_rest_and_knows_the_account() {
    let place = Place::new();
    place.write("w/kept.txt", "kept");
    place.write("w/lost.txt", "lost");
    let now = Timestamp::now();
    let desk = place.desk();
    let mut done = place.session(&desk);
    let kept = published(&place.publish(&mut done, "kept.txt")).0;
    done.finalise().unwrap();
    let used = desk.shelf.used();
    let mut torn = place.session(&desk);
    let lost = published(&place.publish(&mut torn, "lost.txt")).0;
    // What a crash at this moment leaves is the directory as it stands.
    let place = place.after_crash();
    let staging = place.at("state/reply-files/.staging");
    for name in ["young", "00000000-0000-4000-8000-000000000001"] {
        fs::create_dir(staging.join(name)).unwrap();
        fs::write(staging.join(name).join("content"), "12345").unwrap();
    }
    let desk = place.desk_with(1 << 28, now);
    assert_eq!(place.names().0, std::slice::from_ref(&kept));
    assert_eq!(desk.shelf.used(), used + 2 * charge(5) + charge(4));
    let error = desk.shelf.read(Wish::of(&lost), now).unwrap_err();
    assert_eq!(error.code().unwrap().as_str(), "artifact_missing");
    assert!(desk.shelf.read(Wish::of(&kept), now).is_ok());
    // Young leftovers stay for the grace, then they and their charge go.
    let retention = Retention {
        max_age_days: 365,
        max_count: 50_000,
        dry_run: false,
    };
    desk.shelf.clean(&retention, now);
    assert_eq!(place.names().1.len(), 3);
    // They are a little younger than `now`, how much depends on the machine.
    desk.shelf.clean(
        &retention,
        now + SignedDuration::from_secs(STAGING_GRACE + 600),
    );
    assert_eq!((place.names().1.len(), desk.shelf.used()), (0, used));
}

#[test]
fn a_copy_in_flight_is_never_swept() {
    let place = Place::new();
    let desk = place.desk();
    let mut session = place.session(&desk);
    place.write("w/a.bin", vec![1; 1024 * 1024]);
    let future = Timestamp::now() + SignedDuration::from_hours(24 * 3650);
    let retention = Retention {
        max_age_days: 1,
        max_count: 1,
        dry_run: false,
    };
    let outcome = place.publish_watched(&mut session, "a.bin", &|_| {
        desk.shelf.clean(&retention, future);
        true
    });
    published(&outcome);
    assert_eq!(desk.shelf.used(), charge(1024 * 1024));
}

#[test]
fn retention_removes_the_expired_and_the_oldest_and_nothing_in_a_dry_run() {
    let place = Place::new();
    let desk = place.desk();
    let mut session = place.session(&desk);
    for n in 0..3 {
        place.write(&format!("w/{n}.txt"), format!("{n}"));
        published(&place.publish(&mut session, &format!("{n}.txt")));
    }
    session.finalise().unwrap();
    let now = Timestamp::now();
    let mut retention = Retention {
        max_age_days: 365,
        max_count: 1,
        dry_run: true,
    };
    assert_eq!(
        (desk.shelf.clean(&retention, now), desk.shelf.count()),
        (2, 3)
    );
    retention.dry_run = false;
    assert_eq!(
        (desk.shelf.clean(&retention, now), desk.shelf.count()),
        (2, 1)
    );
    assert_eq!(
        desk.shelf
            .clean(&retention, now + SignedDuration::from_hours(24 * 366)),
        1
    );
    place.assert_empty(&desk);
}

/// What was logged while `work` ran on this thread.
fn logged(work: impl FnOnce()) -> String {
    #[derive(Clone, Default)]
    struct Log(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);
    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, work);
    String::from_utf8(log.0.lock().unwrap().clone()).unwrap()
}

#[test]
fn a_dry_run_names_what_it_would_remove_once_with_size_and_reason() {
    let place = Place::new();
    let desk = place.desk();
    let mut session = place.session(&desk);
    let now = Timestamp::now();
    let ids = ["old", "over", "kept"].map(|name| {
        place.write(&format!("w/{name}.txt"), name);
        let age = if name == "old" { 24 * 365 } else { 1 };
        let at = now - SignedDuration::from_hours(age);
        let request = place.request(&format!("{name}.txt"), None);
        published(&session.publish(request, at, &|_| true).unwrap()).0
    });
    session.finalise().unwrap();
    let retention = Retention {
        max_age_days: 365,
        max_count: 1,
        dry_run: true,
    };
    let first = logged(|| {
        desk.shelf.clean(&retention, now);
    });
    let lines: Vec<_> = first.lines().collect();
    assert_eq!(lines.len(), 2, "{first}");
    assert!(lines[0].contains(&ids[0]) && lines[0].contains("bytes=3 reason=expired"));
    assert!(lines[1].contains("bytes=4 reason=over artifacts.retention.maxCount"));
    assert!(!first.contains(".txt"), "{first}");
    let second = logged(|| {
        assert_eq!(desk.shelf.clean(&retention, now), 2);
    });
    assert_eq!(second, "");
    assert_eq!(desk.shelf.usage(&retention, now).due, 2);
    assert_eq!(desk.shelf.count(), 3);
    // Not deleted, and not handed out either.
    let error = desk.shelf.read(Wish::of(&ids[0]), now).unwrap_err();
    assert_eq!(error.code().unwrap().as_str(), "artifact_expired");
}

#[test]
fn what_is_not_ours_is_charged_and_left_alone() {
    let place = Place::new();
    drop(place.desk());
    let live = place.at("state/reply-files");
    fs::create_dir_all(live.join("00000000-0000-4000-8000-000000000002/deeper")).unwrap();
    fs::create_dir(live.join("notes")).unwrap();
    fs::write(live.join("notes/content"), vec![0; 100]).unwrap();
    fs::write(live.join("stray"), vec![0; 50]).unwrap();
    symlink("/etc", live.join("link")).unwrap();
    let desk = place.desk();
    assert_eq!(
        desk.shelf.used(),
        charge(0) + charge(100) + charge(50) + charge(0)
    );
    assert_eq!((desk.shelf.count(), place.names().0.len()), (0, 4));
    assert!(desk.shelf.list(10, None).unwrap().artifacts.is_empty());
}

#[test]
fn a_manifest_of_another_artifact_or_of_no_conversation_is_not_ours() {
    let place = Place::new();
    let desk = place.desk();
    place.write("w/a.txt", "12345");
    let mut session = place.session(&desk);
    let (id, _) = published(&place.publish(&mut session, "a.txt"));
    session.finalise().unwrap();
    drop((session, desk));
    let live = place.at("state/reply-files");
    let home = live.join(&id);
    let bound = fs::read_to_string(home.join("metadata.json")).unwrap();
    let other = "00000000-0000-4000-8000-000000000003";
    fs::rename(&home, live.join(other)).unwrap();
    assert_eq!(place.desk().shelf.count(), 0);
    fs::rename(live.join(other), &home).unwrap();
    let unbound = bound.replace("  \"deliveryConversationId\": \"web:1\",\n", "");
    assert_ne!(unbound, bound);
    fs::write(home.join("metadata.json"), unbound).unwrap();
    let desk = place.desk();
    assert_eq!((desk.shelf.count(), desk.shelf.used()), (0, charge(5)));
    assert_eq!(place.names().0, [id]);
    drop(desk);
    fs::write(home.join("metadata.json"), bound).unwrap();
    assert_eq!(place.desk().shelf.count(), 1);
}

#[test]
fn the_directory_belongs_to_one_process_and_to_nobody_else() {
    let place = Place::new();
    let desk = place.desk();
    let state = common::dir(&place.at("state"));
    assert!(matches!(
        Shelf::open(&state, 1, Timestamp::now()),
        Err(OpenError::Held)
    ));
    drop(desk);
    assert!(Shelf::open(&state, 1, Timestamp::now()).is_ok());
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(place.at("state"), fs::Permissions::from_mode(0o750)).unwrap();
    assert!(matches!(
        Shelf::open(&state, 1, Timestamp::now()),
        Err(OpenError::Open(0o750))
    ));
}
