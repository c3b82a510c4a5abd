//! A run publishes, finalises and takes back; the disk and the account are looked at afterwards.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Place, published, refused};
use ipc_proto::reply::ReplyPart;
use jiff::{SignedDuration, Timestamp};
use mono_artifact::MAX_FILE;
use mono_artifact::index::Retention;
use mono_artifact::quota::charge;
use mono_artifact::reading::Wish;
use mono_artifact::session::Outcome;
use mono_artifact::shelf::{OpenError, STAGING_GRACE, Shelf};
use sha2::{Digest as _, Sha256};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, symlink};

fn integrity(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

#[test]
fn a_published_file_is_private_complete_and_readable_by_its_conversation_only() {
    let place = Place::new();
    let desk = place.desk();
    let mut session = place.session(&desk);
    place.write("w/weekly.csv", "a,b\n1,2\n");
    let outcome = place.publish(&mut session, "weekly.csv");
    let (id, integrity_id) = published(&outcome);
    assert_eq!(integrity_id, integrity(b"a,b\n1,2\n"));
    // Out of sight while its run is at work.
    assert_eq!(place.names(), (vec![], vec![id.clone()]));
    let home = place.at("state/reply-files/.staging").join(&id);
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!((mode(&home), mode(&home.join("content"))), (0o700, 0o600));

    let delivery = common::scope("run-1").delivery;
    let foreign = ipc_proto::ConversationId::parse("web:2").unwrap();
    let now = Timestamp::now();
    let read = |integrity_id: Option<&str>, delivery, now| {
        let wish = Wish {
            id: &id,
            integrity_id,
            delivery,
            run: None,
        };
        desk.shelf
            .read(wish, now)
            .map_err(|e| e.code().unwrap().as_str())
    };
    // Not before the run is finalised.
    assert_eq!(
        read(Some(&integrity_id), Some(&delivery), now).unwrap_err(),
        "artifact_missing"
    );
    assert_eq!(session.finalise().unwrap().len(), 1);
    assert_eq!(place.names(), (vec![id.clone()], vec![]));
    let home = place.at("state/reply-files").join(&id);
    assert_eq!(
        (
            mode(&home),
            mode(&home.join("content")),
            mode(&home.join("metadata.json"))
        ),
        (0o700, 0o600, 0o600)
    );
    let (manifest, sealed) = read(Some(&integrity_id), Some(&delivery), now).unwrap();
    assert_eq!(
        (manifest.name.as_str(), manifest.media_type.as_str()),
        ("weekly.csv", "text/csv")
    );
    let mut bytes = Vec::new();
    let mut sealed = File::from(sealed);
    sealed.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"a,b\n1,2\n");
    assert!(sealed.write_all(b"x").is_err() && sealed.set_len(0).is_err());
    // An operator needs neither conversation nor hash.
    assert!(read(None, None, now).is_ok());
    assert_eq!(
        read(Some(&integrity_id), Some(&foreign), now).unwrap_err(),
        "artifact_missing"
    );
    assert_eq!(
        read(Some(&integrity(b"other")), Some(&delivery), now).unwrap_err(),
        "artifact_integrity_failed"
    );
    let later = now + SignedDuration::from_hours(24 * 365);
    assert_eq!(
        read(Some(&integrity_id), Some(&delivery), later).unwrap_err(),
        "artifact_expired"
    );
    // A foreign reader doesn't even learn that it expired.
    assert_eq!(
        read(Some(&integrity_id), Some(&foreign), later).unwrap_err(),
        "artifact_missing"
    );
    // Kept after the session is gone.
    drop(session);
    assert!(read(None, Some(&delivery), now).is_ok());
}

#[test]
fn ids_that_are_not_exactly_ours_are_missing() {
    let place = Place::new();
    let desk = place.desk();
    let mut session = place.session(&desk);
    place.write("w/a.txt", "a");
    let (id, _) = published(&place.publish(&mut session, "a.txt"));
    session.finalise().unwrap();
    let upper = id.to_uppercase();
    let simple = id.replace('-', "");
    let long = "a".repeat(10_000);
    for wrong in [
        "",
        ".",
        "..",
        ".staging",
        "../reply-files",
        "/etc/passwd",
        &upper,
        &simple,
        &format!("{{{id}}}"),
        &format!("{id}/"),
        &long,
    ] {
        let wish = Wish::of(wrong);
        let code = desk
            .shelf
            .read(wish, Timestamp::now())
            .unwrap_err()
            .code()
            .unwrap();
        assert_eq!(code.as_str(), "artifact_missing", "{wrong}");
    }
}

#[test]
fn tampering_with_what_is_retained_gives_no_byte() {
    type Tamper = fn(&std::path::Path);
    let tampers: [(&str, Tamper, &str); 17] = [
        (
            "another file of the same size in its place",
            |home| {
                fs::write(home.join("other"), "content of b").unwrap();
                fs::rename(home.join("other"), home.join("content")).unwrap();
            },
            "artifact_integrity_failed",
        ),
        (
            "content is a link to a file with the same bytes",
            |home| {
                let outside = home.parent().unwrap().parent().unwrap().join("same");
                fs::write(&outside, "content of a").unwrap();
                fs::remove_file(home.join("content")).unwrap();
                symlink(outside, home.join("content")).unwrap();
            },
            "artifact_integrity_failed",
        ),
        (
            "content is a hard link to a file with the same bytes",
            |home| {
                let outside = home.parent().unwrap().parent().unwrap().join("same");
                fs::write(&outside, "content of a").unwrap();
                fs::remove_file(home.join("content")).unwrap();
                fs::hard_link(outside, home.join("content")).unwrap();
            },
            "artifact_integrity_failed",
        ),
        (
            "content is a FIFO",
            |home| {
                fs::remove_file(home.join("content")).unwrap();
                let mode = nix::sys::stat::Mode::S_IRWXU;
                nix::unistd::mkfifo(&home.join("content"), mode).unwrap();
            },
            "artifact_integrity_failed",
        ),
        (
            "content is a directory",
            |home| {
                fs::remove_file(home.join("content")).unwrap();
                fs::create_dir(home.join("content")).unwrap();
            },
            "artifact_integrity_failed",
        ),
        (
            "manifest is a link",
            |home| {
                fs::rename(home.join("metadata.json"), home.join("moved")).unwrap();
                symlink("moved", home.join("metadata.json")).unwrap();
            },
            "artifact_integrity_failed",
        ),
        (
            "directory is a link",
            |home| {
                let moved = home.with_file_name("moved");
                fs::rename(home, &moved).unwrap();
                symlink(moved, home).unwrap();
            },
            "artifact_integrity_failed",
        ),
        (
            "manifest bound to another conversation",
            |home| {
                let text = fs::read_to_string(home.join("metadata.json")).unwrap();
                let bound = "\"deliveryConversationId\": \"web:1\"";
                assert!(text.contains(bound));
                let other = text.replace(bound, "\"deliveryConversationId\": \"web:2\"");
                fs::write(home.join("metadata.json"), other).unwrap();
            },
            "artifact_integrity_failed",
        ),
        (
            "flipped byte",
            |home| {
                File::options()
                    .write(true)
                    .open(home.join("content"))
                    .unwrap()
                    .write_all_at(b"X", 3)
                    .unwrap()
            },
            "artifact_integrity_failed",
        ),
        (
            "truncated",
            |home| {
                File::options()
                    .write(true)
                    .open(home.join("content"))
                    .unwrap()
                    .set_len(2)
                    .unwrap()
            },
            "artifact_integrity_failed",
        ),
        (
            "grown",
            |home| {
                File::options()
                    .append(true)
                    .open(home.join("content"))
                    .unwrap()
                    .write_all(b"x")
                    .unwrap()
            },
            "artifact_integrity_failed",
        ),
        (
            "content removed",
            |home| fs::remove_file(home.join("content")).unwrap(),
            "artifact_integrity_failed",
        ),
        (
            "content is a link",
            |home| {
                fs::rename(home.join("content"), home.join("moved")).unwrap();
                symlink("moved", home.join("content")).unwrap();
            },
            "artifact_integrity_failed",
        ),
        (
            "content has two links",
            |home| fs::hard_link(home.join("content"), home.join("second")).unwrap(),
            "artifact_integrity_failed",
        ),
        (
            "manifest rewritten",
            |home| {
                let text = fs::read_to_string(home.join("metadata.json")).unwrap();
                fs::write(home.join("metadata.json"), text.replace("a.txt", "b.txt")).unwrap();
            },
            "artifact_integrity_failed",
        ),
        (
            "manifest removed",
            |home| fs::remove_file(home.join("metadata.json")).unwrap(),
            "artifact_integrity_failed",
        ),
        (
            "directory removed",
            |home| fs::remove_dir_all(home).unwrap(),
            "artifact_missing",
        ),
    ];
    for (what, tamper, code) in tampers {
        let place = Place::new();
        let desk = place.desk();
        let mut session = place.session(&desk);
        place.write("w/a.txt", "content of a");
        let (id, _) = published(&place.publish(&mut session, "a.txt"));
        session.finalise().unwrap();
        tamper(&place.at("state/reply-files").join(&id));
        let wish = Wish::of(&id);
        let error = desk.shelf.read(wish, Timestamp::now()).unwrap_err();
        assert_eq!(error.code().unwrap().as_str(), code, "{what}: {error}");
    }
}

#[test]
fn an_artifact_in_the_place_of_another_gives_no_byte() {
    let place = Place::new();
    let desk = place.desk();
    let mut session = place.session(&desk);
    place.write("w/a.txt", "content of a");
    place.write("w/b.txt", "content of b");
    let ids = ["a.txt", "b.txt"].map(|path| published(&place.publish(&mut session, path)).0);
    session.finalise().unwrap();
    let live = place.at("state/reply-files");
    fs::rename(live.join(&ids[0]), live.join("away")).unwrap();
    fs::rename(live.join(&ids[1]), live.join(&ids[0])).unwrap();
    fs::rename(live.join("away"), live.join(&ids[1])).unwrap();
    for id in &ids {
        let error = desk.shelf.read(Wish::of(id), Timestamp::now()).unwrap_err();
        assert_eq!(error.code().unwrap().as_str(), "artifact_integrity_failed");
    }
}

#[test]
fn a_run_that_does_not_succeed_leaves_nothing() {
    let place = Place::new();
    let desk = place.desk();
    place.write("w/a.txt", "a");
    place.write("w/b.txt", "b");
    // The channel closed unfinalised.
    let mut session = place.session(&desk);
    for path in ["a.txt", "b.txt"] {
        published(&place.publish(&mut session, path));
    }
    drop(session);
    place.assert_empty(&desk);
    // Discarded, also after it was finalised: the commit failed.
    for finalise in [false, true] {
        let mut session = place.session(&desk);
        published(&place.publish(&mut session, "a.txt"));
        if finalise {
            session.finalise().unwrap();
        }
        session.discard().unwrap();
        assert!(
            session
                .publish(place.request("a.txt", None), Timestamp::now(), &|_| true)
                .is_err()
        );
        assert!(session.finalise().is_err());
        drop(session);
        place.assert_empty(&desk);
    }
}

#[test]
fn nothing_is_published_after_the_run_was_finalised() {
    let place = Place::new();
    let desk = place.desk();
    let mut session = place.session(&desk);
    place.write("w/a.txt", "a");
    assert_eq!(session.finalise().unwrap(), []);
    assert!(
        session
            .publish(place.request("a.txt", None), Timestamp::now(), &|_| true)
            .is_err()
    );
    assert!(session.finalise().is_err());
    place.assert_empty(&desk);
}

#[test]
fn a_retry_reuses_the_part_and_writes_nothing() {
    let place = Place::new();
    let desk = place.desk();
    let mut session = place.session(&desk);
    place.write("w/a.txt", "same");
    place.write("w/copy.txt", "same");
    place.write("w/like.txt", "like");
    let first = place.publish(&mut session, "a.txt");
    assert_eq!(place.publish(&mut session, "a.txt"), first);
    assert_eq!(place.publish(&mut session, "copy.txt"), first);
    assert_eq!((desk.shelf.count(), desk.shelf.used()), (1, charge(4)));
    // The same size is not the same content.
    assert_ne!(place.publish(&mut session, "like.txt"), first);
    assert_eq!(session.finalise().unwrap().len(), 2);
}

#[test]
fn twenty_distinct_files_fit_and_the_twenty_first_replaces_nothing() {
    let place = Place::new();
    let desk = place.desk();
    let mut session = place.session(&desk);
    for n in 0..21 {
        place.write(&format!("w/{n}.txt"), format!("file {n}"));
    }
    let ids: Vec<_> = (0..20)
        .map(|n| published(&place.publish(&mut session, &format!("{n}.txt"))).0)
        .collect();
    let outcome = place.publish(&mut session, "20.txt");
    assert_eq!(
        outcome,
        Outcome::Refused(mono_artifact::Code::PartTooLarge, None)
    );
    assert_eq!(
        refused(&place.publish(&mut session, "no such.txt")),
        "reply_part_too_large"
    );
    assert_eq!(published(&place.publish(&mut session, "3.txt")).0, ids[3]);
    assert_eq!((desk.shelf.count(), place.names().1.len()), (20, 20));
    let parts = session.finalise().unwrap();
    let kept: Vec<_> = parts
        .iter()
        .map(|part| match part {
            ReplyPart::Attachment { reference, .. } => reference.id.clone(),
            other @ ReplyPart::Failure { .. } => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kept, ids);
}

#[test]
fn a_failure_is_a_part_until_a_file_of_that_name_succeeds() {
    let place = Place::new();
    let desk = place.desk();
    let mut session = place.session(&desk);
    let failed = place.publish(&mut session, "late.txt");
    assert_eq!(refused(&failed), "artifact_missing");
    assert_eq!(place.publish(&mut session, "late.txt"), failed);
    assert_eq!(
        refused(&place.publish(&mut session, ".env")),
        "artifact_publish_failed"
    );
    place.write("w/late.txt", "now");
    let (id, _) = published(&place.publish(&mut session, "late.txt"));
    let parts = session.finalise().unwrap();
    assert!(matches!(&parts[0], ReplyPart::Attachment { reference, .. } if reference.id == id));
    assert!(
        matches!(&parts[1], ReplyPart::Failure { code, message, .. } if code == "artifact_publish_failed" && message == "The file could not be published.")
    );
    assert_eq!(parts.len(), 2);
}

#[test]
fn twenty_mebibytes_are_published_and_one_byte_more_is_not() {
    let place = Place::new();
    let desk = place.desk();
    let mut session = place.session(&desk);
    let bytes: Vec<u8> = (0..MAX_FILE).map(|i| (i * 7 % 253) as u8).collect();
    place.write("w/big.bin", &bytes);
    let (id, integrity_id) = published(&place.publish(&mut session, "big.bin"));
    assert_eq!(integrity_id, integrity(&bytes));
    session.finalise().unwrap();
    let (_, sealed) = desk.shelf.read(Wish::of(&id), Timestamp::now()).unwrap();
    let mut copied = Vec::new();
    File::from(sealed).read_to_end(&mut copied).unwrap();
    assert!(copied == bytes);
    let mut session = place.session(&desk);
    place.write("w/big.bin", [bytes.as_slice(), b"x"].concat());
    assert_eq!(
        refused(&place.publish(&mut session, "big.bin")),
        "artifact_too_large"
    );
    assert_eq!(desk.shelf.used(), charge(MAX_FILE));
}

#[test]
fn a_file_changed_during_the_copy_is_not_published() {
    type Change = fn(&Place);
    let changes: [(&str, Change); 6] = [
        ("written in place", |p| {
            File::options()
                .write(true)
                .open(p.at("w/a.bin"))
                .unwrap()
                .write_all_at(b"X", 0)
                .unwrap()
        }),
        ("grown", |p| {
            File::options()
                .append(true)
                .open(p.at("w/a.bin"))
                .unwrap()
                .write_all(b"x")
                .unwrap()
        }),
        ("truncated", |p| {
            File::options()
                .write(true)
                .open(p.at("w/a.bin"))
                .unwrap()
                .set_len(10)
                .unwrap()
        }),
        ("replaced by a rename", |p| {
            p.write("w/b.bin", "other");
            fs::rename(p.at("w/b.bin"), p.at("w/a.bin")).unwrap();
        }),
        ("given a second name", |p| {
            fs::hard_link(p.at("w/a.bin"), p.at("w/second.bin")).unwrap()
        }),
        ("removed", |p| fs::remove_file(p.at("w/a.bin")).unwrap()),
    ];
    for size in [200 * 1024, 2 * 1024 * 1024] {
        for (what, change) in &changes {
            let place = Place::new();
            let desk = place.desk();
            let mut session = place.session(&desk);
            place.write("w/a.bin", vec![1; size]);
            let watch = |at: u64| {
                if at == 128 * 1024 {
                    change(&place);
                }
                true
            };
            let outcome = place.publish_watched(&mut session, "a.bin", &watch);
            assert_eq!(
                refused(&outcome),
                "artifact_publish_failed",
                "{what}, {size} bytes"
            );
            place.assert_empty(&desk);
        }
    }
}

#[test]
fn a_cancelled_copy_leaves_nothing() {
    let place = Place::new();
    let desk = place.desk();
    let mut session = place.session(&desk);
    place.write("w/a.bin", vec![1; 2 * 1024 * 1024]);
    let outcome = place.publish_watched(&mut session, "a.bin", &|at| at < 512 * 1024);
    assert_eq!(refused(&outcome), "artifact_publish_failed");
    place.assert_empty(&desk);
}

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
    desk.shelf.clean(
        &retention,
        now + SignedDuration::from_secs(STAGING_GRACE + 5),
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

#[test]
fn pages_list_newest_first_and_refuse_foreign_cursors() {
    let place = Place::new();
    let desk = place.desk();
    let mut session = place.session(&desk);
    let start = Timestamp::now();
    for n in 0..5 {
        place.write(&format!("w/{n}.txt"), format!("{n}"));
        let at = start + SignedDuration::from_secs(n);
        published(
            &session
                .publish(place.request(&format!("{n}.txt"), None), at, &|_| true)
                .unwrap(),
        );
    }
    let first = desk.shelf.list(3, None).unwrap();
    let names = |page: &ipc_proto::edges::artifact::ArtifactPage| {
        page.artifacts
            .iter()
            .map(|a| a.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&first), ["4.txt", "3.txt", "2.txt"]);
    assert_eq!(first.artifacts[0].delivery_conversation_id, None);
    let second = desk.shelf.list(3, first.next_cursor.as_deref()).unwrap();
    assert_eq!(
        (names(&second), second.next_cursor),
        (vec!["1.txt".to_owned(), "0.txt".to_owned()], None)
    );
    assert_eq!(desk.shelf.list(3, Some("nonsense")), None);
    assert_eq!(names(&desk.shelf.list(0, None).unwrap()).len(), 1);
}
