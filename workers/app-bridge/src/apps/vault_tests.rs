#![allow(clippy::unwrap_used)]

use super::super::quota::{QUARANTINE_CHARGE, QUARANTINE_MOST};
use super::*;
use crate::apps::audit::{Method, Phase};
use crate::apps::manifest::tests::sample;
use jiff::Timestamp;
use serde_json::json;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) fn folder(path: &Path) -> Folder {
    Folder::from_fd(fs::File::open(path).unwrap().into()).unwrap()
}

pub(crate) fn id(n: usize) -> String {
    format!("{n:032x}")
}

pub(crate) fn app(n: usize, html: &str) -> NewApp {
    let mut manifest = sample(&id(n));
    manifest.html_hash = hash(html.as_bytes());
    manifest.html_bytes = html.len();
    manifest.run = format!("run-{}", n % 2);
    NewApp {
        manifest,
        html: html.to_owned(),
        state: State {
            input: json!({ "n": n }),
            result: json!({ "content": [] }),
        },
    }
}

fn own(n: usize) -> NewApp {
    let mut app = app(n, "<p>");
    app.manifest.run = format!("own-{n}");
    app
}

fn publish(vault: &Vault, n: usize) {
    vault.publish(&own(n), 1_000).unwrap();
    vault.keep(&format!("own-{n}"), &[id(n)]).unwrap();
}

#[test]
fn a_record_is_whole_private_and_found_again_after_a_start() {
    let temp = tempfile::tempdir().unwrap();
    let vault = Vault::open(folder(temp.path()), 1_000).unwrap();
    publish(&vault, 1);
    let check = |vault: &Vault| {
        let manifest = vault.manifest(&id(1), 1_500).unwrap();
        assert_eq!(*manifest, own(1).manifest);
        assert_eq!(vault.state(&id(1), 1_500).unwrap(), app(1, "<p>").state);
        assert_eq!(vault.html(&manifest, 1_500).unwrap(), b"<p>");
        assert_eq!(vault.cards().len(), 1);
    };
    check(&vault);
    let own = temp.path().join("apps").join(id(1));
    assert_eq!(fs::metadata(&own).unwrap().mode() & 0o7777, 0o700);
    for file in fs::read_dir(&own).unwrap() {
        assert_eq!(file.unwrap().metadata().unwrap().mode() & 0o7777, 0o600);
    }
    let before = vault.usage();
    drop(vault);
    let vault = Vault::open(folder(temp.path()), 1_000).unwrap();
    assert_eq!(vault.usage(), before);
    check(&vault);
}

#[test]
fn a_record_that_can_not_be_protected_has_no_content_and_is_not_shown() {
    // A file of the same name stands there already: it can't be made, and so not protected.
    let temp = tempfile::tempdir().unwrap();
    let hit = Arc::new(AtomicBool::new(false));
    let (seen, root) = (hit.clone(), temp.path().to_owned());
    let hook: Hook = Arc::new(move |point| {
        if point == Point::Show && !seen.swap(true, Ordering::Relaxed) {
            let file = root.join("staging").join(id(1)).join(PAGE);
            assert_eq!(fs::metadata(file).unwrap().mode() & 0o7777, 0o600);
            // Not yet there for anybody.
            assert!(!root.join("apps").join(id(1)).exists());
        }
    });
    let vault = Vault::with(folder(temp.path()), 1_000, Bounds::default(), Some(hook)).unwrap();
    publish(&vault, 1);
    assert!(hit.load(Ordering::Relaxed));
    // The same name again: what is there stays, and nothing is left of the attempt.
    assert!(vault.publish(&app(1, "<b>"), 1_000).is_err());
    assert_eq!(
        fs::read_dir(temp.path().join("staging")).unwrap().count(),
        0
    );
    assert_eq!(vault.html(&app(1, "<p>").manifest, 1_500).unwrap(), b"<p>");
}

#[test]
fn what_is_not_kept_goes_with_its_run_or_with_the_next_start() {
    let temp = tempfile::tempdir().unwrap();
    let vault = Vault::open(folder(temp.path()), 1_000).unwrap();
    for n in [1, 3, 5] {
        vault.publish(&app(n, "<p>"), 1_000).unwrap();
    }
    vault.publish(&app(2, "<p>"), 1_000).unwrap();
    vault.keep("run-1", &[id(3), id(99)]).unwrap();
    assert!(vault.card(&id(1)).is_none() && vault.card(&id(5)).is_none());
    assert!(vault.card(&id(3)).unwrap().kept);
    vault.settle("run-1");
    assert!(vault.card(&id(3)).is_some());
    // Another run's is not touched by all that.
    assert!(!vault.card(&id(2)).unwrap().kept);
    drop(vault);
    let vault = Vault::open(folder(temp.path()), 1_000).unwrap();
    let left: Vec<_> = vault.cards().into_iter().map(|card| card.id).collect();
    assert_eq!(left, [id(3)]);
    // A run that fails after all takes back what it kept.
    vault.keep("run-1", &[]).unwrap();
    assert_eq!(vault.usage().records, 0);
}

#[test]
fn what_was_done_in_the_name_of_an_app_that_its_run_drops_stays_on_record() {
    let temp = tempfile::tempdir().unwrap();
    let act = |vault: &Arc<Vault>, n: usize| {
        vault
            .begin(
                &id(n),
                Method::Call,
                Phase::Confirmed,
                Timestamp::UNIX_EPOCH,
                &|_| false,
            )
            .unwrap()
            .complete(Timestamp::UNIX_EPOCH)
            .unwrap();
    };
    let vault = Arc::new(Vault::open(folder(temp.path()), 1_000).unwrap());
    // By a run that fails, one that does without it, and one that dies.
    for n in [1, 3, 5, 7] {
        vault.publish(&app(n, "<p>"), 1_000).unwrap();
        assert!(vault.found(&id(n)).is_some_and(|card| !card.kept));
    }
    vault.publish(&app(2, "<p>"), 1_000).unwrap();
    vault.publish(&app(4, "<p>"), 1_000).unwrap();
    for n in [1, 3, 2] {
        act(&vault, n);
    }
    vault.keep("run-1", &[id(3)]).unwrap();
    vault.settle("run-1");
    let stands = |vault: &Vault, n: usize| vault.card(&id(n)).map(|card| (card.kept, card.closed));
    assert_eq!(stands(&vault, 1), Some((true, true)));
    assert_eq!(stands(&vault, 3), Some((true, false)));
    assert_eq!((stands(&vault, 5), stands(&vault, 7)), (None, None));
    drop(vault);
    let vault = Vault::open(folder(temp.path()), 1_000).unwrap();
    assert_eq!(stands(&vault, 1), Some((true, true)));
    assert_eq!(stands(&vault, 2), Some((true, true)));
    assert_eq!(stands(&vault, 4), None);
    assert_eq!(vault.log(&id(2)).unwrap().len(), 2);
}

#[test]
fn expiry_is_enforced_on_every_read() {
    let temp = tempfile::tempdir().unwrap();
    let vault = Vault::open(folder(temp.path()), 1_000).unwrap();
    publish(&vault, 1);
    publish(&vault, 2);
    assert!(vault.manifest(&id(1), 1_999).is_ok());
    assert!(matches!(
        vault.manifest(&id(1), 2_000),
        Err(VaultError::Expired)
    ));
    assert!(!temp.path().join("apps").join(id(1)).exists());
    assert!(matches!(
        vault.manifest(&id(1), 1_000),
        Err(VaultError::Missing)
    ));
    // What a page is shown with, and the page.
    for n in [3, 4] {
        publish(&vault, n);
    }
    assert!(vault.state(&id(3), 1_999).is_ok());
    assert!(matches!(
        vault.state(&id(3), 2_000),
        Err(VaultError::Expired)
    ));
    assert!(vault.html(&own(4).manifest, 1_999).is_ok());
    assert!(matches!(
        vault.html(&own(4).manifest, 2_000),
        Err(VaultError::Expired)
    ));
    vault.clean(2_000);
    assert_eq!(vault.usage().records, 0);
    assert_eq!(fs::read_dir(temp.path().join("apps")).unwrap().count(), 0);
}

#[test]
fn what_expires_in_the_middle_of_an_action_goes_when_that_is_over() {
    let temp = tempfile::tempdir().unwrap();
    let vault = Arc::new(Vault::open(folder(temp.path()), 1_000).unwrap());
    publish(&vault, 1);
    let (call, confirmed) = (Method::Call, Phase::Confirmed);
    let now = Timestamp::UNIX_EPOCH;
    let ticket = vault
        .begin(&id(1), call, confirmed, now, &|_| true)
        .unwrap();
    let expired = |vault: &Vault| matches!(vault.state(&id(1), 2_000), Err(VaultError::Expired));
    assert!(expired(&vault));
    ticket.complete(now).unwrap();
    assert_eq!(vault.log(&id(1)).unwrap().len(), 2);
    assert!(expired(&vault) && vault.card(&id(1)).is_none());
}

#[test]
fn payloads_leave_the_reserve_alone_and_the_next_one_fails_alone() {
    let temp = tempfile::tempdir().unwrap();
    let (ceiling, reserve) = (20_000, 4_000);
    let bounds = Bounds {
        ceiling,
        reserve,
        ..Bounds::default()
    };
    let vault = Vault::with(folder(temp.path()), 1_000, bounds, None).unwrap();
    let page = "x".repeat(6_000);
    vault.publish(&app(1, &page), 1_000).unwrap();
    vault.publish(&app(3, &page), 1_000).unwrap();
    assert!(matches!(
        vault.publish(&app(5, &page), 1_000),
        Err(VaultError::Full)
    ));
    vault.keep("run-1", &[id(1), id(3)]).unwrap();
    assert_eq!(vault.cards().len(), 2);
    assert!(vault.usage().payload <= ceiling - reserve);
    // What has expired makes room.
    vault.publish(&app(5, &page), 2_000).unwrap();
}

#[test]
fn bounds_of_one_record_hold_at_both_edges() {
    let temp = tempfile::tempdir().unwrap();
    let vault = Vault::open(folder(temp.path()), 1_000).unwrap();
    let page = "x".repeat(MAX_HTML);
    vault.publish(&app(1, &page), 1_000).unwrap();
    let page = "x".repeat(MAX_HTML + 1);
    assert!(matches!(
        vault.publish(&app(3, &page), 1_000),
        Err(VaultError::TooLarge(_))
    ));
    let mut large = app(5, "");
    large.manifest.uri = "u".repeat(MAX_MANIFEST);
    assert!(matches!(
        vault.publish(&large, 1_000),
        Err(VaultError::TooLarge(_))
    ));
}

#[test]
fn what_is_none_of_ours_is_charged_and_left_alone() {
    let temp = tempfile::tempdir().unwrap();
    let vault = Vault::open(folder(temp.path()), 1_000).unwrap();
    for n in 1..=4 {
        publish(&vault, n);
    }
    drop(vault);
    let apps = temp.path().join("apps");
    let of = |n: usize, file: &str| apps.join(id(n)).join(file);
    // A later build's record, a strange file, a second name of a log, and a folder of another.
    let manifest = fs::read_to_string(of(1, MANIFEST)).unwrap();
    fs::write(
        of(1, MANIFEST),
        manifest.replace("\"schema\":1", "\"schema\":2"),
    )
    .unwrap();
    fs::write(of(2, "strange"), b"").unwrap();
    fs::write(temp.path().join("log"), b"x").unwrap();
    fs::hard_link(temp.path().join("log"), of(3, LOGS[0])).unwrap();
    fs::create_dir(apps.join("Foreign")).unwrap();
    symlink(temp.path(), apps.join(id(9))).unwrap();
    let vault = Vault::open(folder(temp.path()), 1_000).unwrap();
    let left: Vec<_> = vault.cards().into_iter().map(|card| card.id).collect();
    assert_eq!(left, [id(4)]);
    let usage = vault.usage();
    assert_eq!(usage.quarantined, 5);
    assert!(usage.payload >= 5 * QUARANTINE_CHARGE && usage.payload < 6 * QUARANTINE_CHARGE);
    vault.clean(i64::MAX);
    for name in [id(1), id(2), id(3), "Foreign".to_owned(), id(9)] {
        assert!(fs::symlink_metadata(apps.join(&name)).is_ok(), "{name}");
    }
}

#[test]
fn what_is_left_alone_stays_so_until_the_next_start_and_is_charged_within_a_bound() {
    let temp = tempfile::tempdir().unwrap();
    let vault = Vault::open(folder(temp.path()), 1_000).unwrap();
    publish(&vault, 1);
    drop(vault);
    let apps = temp.path().join("apps");
    let strange = apps.join(id(1)).join("strange");
    fs::write(&strange, b"").unwrap();
    let vault = Vault::open(folder(temp.path()), 1_000).unwrap();
    assert_eq!(vault.usage().quarantined, 1);
    // Put right, it is still left alone, and another of its name is not made.
    fs::remove_file(&strange).unwrap();
    assert!(matches!(
        vault.manifest(&id(1), 1_500),
        Err(VaultError::Missing)
    ));
    vault.clean(i64::MAX);
    assert!(vault.publish(&own(1), 1_500).is_err());
    assert_eq!((vault.usage().quarantined, vault.usage().records), (1, 0));
    drop(vault);
    let vault = Vault::open(folder(temp.path()), 1_000).unwrap();
    assert!(vault.manifest(&id(1), 1_500).is_ok());
    assert_eq!(vault.usage().quarantined, 0);
    drop(vault);
    // Ever so many strangers take half of the room, and no more.
    let most = usize::try_from(QUARANTINE_MOST / QUARANTINE_CHARGE).unwrap();
    for n in 0..=most + 2 {
        fs::create_dir(apps.join(format!("stranger-{n}"))).unwrap();
    }
    let vault = Vault::open(folder(temp.path()), 1_000).unwrap();
    let own = vault.card(&id(1)).unwrap().bytes;
    assert_eq!(vault.usage().payload, own + QUARANTINE_MOST);
    publish(&vault, 2);
}

#[test]
fn what_has_grown_beyond_its_bound_is_not_read() {
    for (name, most) in [(MANIFEST, MAX_MANIFEST), (STATE, MAX_STATE_FILE)] {
        for (bytes, is_read) in [(most, true), (most + 1, false)] {
            let temp = tempfile::tempdir().unwrap();
            let vault = Vault::open(folder(temp.path()), 1_000).unwrap();
            publish(&vault, 1);
            drop(vault);
            // The same JSON with space after it.
            let file = temp.path().join("apps").join(id(1)).join(name);
            let mut text = fs::read(&file).unwrap();
            text.resize(bytes, b' ');
            fs::write(&file, text).unwrap();
            let vault = Vault::open(folder(temp.path()), 1_000).unwrap();
            let read = vault.manifest(&id(1), 1_500).is_ok() && vault.state(&id(1), 1_500).is_ok();
            assert_eq!(read, is_read, "{name} {bytes}");
        }
    }
}

#[test]
fn a_folder_that_is_exchanged_is_not_read_and_not_removed() {
    let temp = tempfile::tempdir().unwrap();
    let vault = Vault::open(folder(temp.path()), 1_000).unwrap();
    publish(&vault, 1);
    publish(&vault, 2);
    let apps = temp.path().join("apps");
    fs::rename(apps.join(id(1)), temp.path().join("aside")).unwrap();
    fs::create_dir(apps.join(id(1))).unwrap();
    fs::write(apps.join(id(1)).join("precious"), b"").unwrap();
    assert!(matches!(
        vault.manifest(&id(1), 1_500),
        Err(VaultError::Changed(_))
    ));
    vault.clean(5_000);
    assert!(apps.join(id(1)).join("precious").exists());
    assert_eq!(vault.usage().quarantined, 1);
    // The folder of all of them, likewise.
    publish(&vault, 4);
    fs::rename(&apps, temp.path().join("apps-aside")).unwrap();
    fs::create_dir(&apps).unwrap();
    assert!(vault.manifest(&id(4), 1_500).is_err());
    assert!(vault.publish(&app(6, "<p>"), 1_000).is_err());
}

#[test]
fn a_page_that_is_not_what_was_written_is_not_shown() {
    let temp = tempfile::tempdir().unwrap();
    let vault = Vault::open(folder(temp.path()), 1_000).unwrap();
    publish(&vault, 1);
    let file = temp.path().join("apps").join(id(1)).join(PAGE);
    fs::write(&file, b"<q>").unwrap();
    let manifest = vault.manifest(&id(1), 1_500).unwrap();
    assert!(matches!(
        vault.html(&manifest, 1_500),
        Err(VaultError::Missing)
    ));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(vault.html(&manifest, 1_500).is_err());
}

#[test]
fn an_app_that_was_closed_stays_closed() {
    let temp = tempfile::tempdir().unwrap();
    let vault = Vault::open(folder(temp.path()), 1_000).unwrap();
    publish(&vault, 1);
    vault.close(&id(1)).unwrap();
    vault.close(&id(1)).unwrap();
    assert!(matches!(vault.close(&id(9)), Err(VaultError::Missing)));
    drop(vault);
    let vault = Vault::open(folder(temp.path()), 1_000).unwrap();
    assert!(vault.card(&id(1)).unwrap().closed);
}
