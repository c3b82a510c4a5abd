//! A run publishes, finalises and takes back; the disk and the account are looked at afterwards.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Place, integrity, published, refused};
use ipc_proto::reply::ReplyPart;
use jiff::Timestamp;
use mono_artifact::MAX_FILE;
use mono_artifact::quota::charge;
use mono_artifact::reading::Wish;
use mono_artifact::session::Outcome;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;

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
            other => panic!("{other:?}"),
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
