//! Who reads an artifact gets what was published, or a code and not one byte.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Place, integrity, published};
use jiff::{SignedDuration, Timestamp};
use mono_artifact::reading::Wish;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, symlink};

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
