//! On a real disk: what a folder has to be like, and threads.

use crate::{SMALL, all, put};
use continuation_record::sample::{at, bound, claimed, context, delivered, id, received};
use continuation_store::fs::{Counting, RealFs};
use continuation_store::{Limits, OpenError, Store};
use rusqlite::{Connection, ErrorCode};
use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::Duration;

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).expect("chmod");
    folder
}

fn store(path: &Path) -> Result<Store<RealFs>, OpenError> {
    let fs = RealFs::open(path).map_err(OpenError::Owned)?;
    Store::open(fs, SMALL).map(|(store, _)| store)
}

#[test]
fn threads_keep_what_many_callers_put() {
    let folder = folder();
    let limits = Limits {
        log_bytes: 1024 * 1024,
        ..SMALL
    };
    let fs = RealFs::open(folder.path()).expect("open");
    let (store, _) = Store::open(fs, limits).expect("open");
    std::thread::scope(|scope| {
        for caller in 0..8 {
            let store = store.clone();
            scope.spawn(move || {
                for step in 0..60 {
                    let number = caller * 100 + step;
                    put(&store, claimed(number)).expect("put");
                    if step % 2 == 0 {
                        let record = delivered(received(claimed(number), "1"), at(9));
                        put(&store, record).expect("put");
                    }
                }
            });
        }
    });
    let before = all(&store);
    assert_eq!(before.len(), 480);
    drop(store);
    let fs = RealFs::open(folder.path()).expect("open");
    let (store, _) = Store::open(fs, limits).expect("open");
    assert_eq!(all(&store), before);
    store.close().expect("checkpoint");
    store.verify().expect("files and packs agree");
    let files = fs::read_dir(folder.path().join("records-v3")).expect("list");
    assert_eq!(files.count(), 240);
}

#[test]
fn files_and_folders_are_private() {
    let folder = folder();
    let store = store(folder.path()).expect("open");
    let text = context("one");
    store
        .update(|txn| {
            let digest = txn.put_blob(text.clone());
            txn.put(bound(claimed(1), &digest, &text));
            Ok::<_, Infallible>(())
        })
        .wait()
        .expect("put");
    store.close().expect("checkpoint");
    let mut folders = vec![folder.path().to_owned()];
    let mut files = 0;
    while let Some(path) = folders.pop() {
        for entry in fs::read_dir(path).expect("list") {
            let entry = entry.expect("entry");
            let metadata = entry.metadata().expect("stat");
            let mode = metadata.permissions().mode() & 0o777;
            if metadata.is_dir() {
                assert_eq!(mode, 0o700, "{:?}", entry.path());
                folders.push(entry.path());
            } else {
                files += 1;
                assert_eq!(mode, 0o600, "{:?}", entry.path());
            }
        }
    }
    assert!(files >= 7, "{files}");
}

#[test]
fn a_second_owner_is_refused() {
    let folder = folder();
    let first = store(folder.path()).expect("open");
    assert!(matches!(store(folder.path()), Err(OpenError::Owned(_))));
    // Looking did not free it.
    assert!(matches!(store(folder.path()), Err(OpenError::Owned(_))));
    drop(first);
    store(folder.path()).expect("it is free again");
}

#[test]
fn who_owns_it_through_sqlite_is_kept_out_and_keeps_out() {
    let folder = folder();
    let first = store(folder.path()).expect("open");
    let sqlite = Connection::open(folder.path().join("continuations-owner.sqlite")).expect("open");
    sqlite.busy_timeout(Duration::ZERO).expect("set");
    let begins = [
        "BEGIN EXCLUSIVE",
        "BEGIN IMMEDIATE",
        "PRAGMA schema_version",
    ];
    for begin in begins {
        let error = sqlite.execute_batch(begin).expect_err(begin);
        assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    }
    drop(first);
    for begin in &begins[..2] {
        sqlite.execute_batch(begin).expect(begin);
        let refused = store(folder.path());
        assert!(matches!(refused, Err(OpenError::Owned(_))), "{begin}");
        sqlite.execute_batch("ROLLBACK").expect("ends");
    }
    store(folder.path()).expect("it is free again");
}

#[test]
fn an_unsafe_folder_or_file_stops_the_start() {
    type Change = fn(&Path);
    let cases: [(&str, Change); 8] = [
        ("an open folder", |path| {
            fs::set_permissions(path, Permissions::from_mode(0o750)).expect("chmod");
        }),
        ("an open folder of records", |path| {
            let path = path.join("records-v3");
            fs::set_permissions(path, Permissions::from_mode(0o701)).expect("chmod");
        }),
        ("an open secret", |path| {
            let path = path.join("continuation-secret");
            fs::set_permissions(path, Permissions::from_mode(0o640)).expect("chmod");
        }),
        ("a linked secret", |path| {
            let file = path.join("continuation-secret");
            fs::hard_link(&file, path.join("other")).expect("link");
        }),
        ("a symbolic link for the log", |path| {
            let log = path.join("continuation-log-v1.bin");
            fs::rename(&log, path.join("elsewhere")).expect("rename");
            symlink(path.join("elsewhere"), log).expect("symlink");
        }),
        ("a linked record", |path| {
            let mut files = fs::read_dir(path.join("records-v3")).expect("list");
            let file = files.next().expect("one").expect("entry").path();
            fs::hard_link(file, path.join("other")).expect("link");
        }),
        ("a FIFO for the manifest", |path| {
            let file = path.join("continuation-store-v3.json");
            fs::remove_file(&file).expect("remove");
            nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).expect("mkfifo");
            // Only a start that looks for older versions reads it.
            fs::remove_file(path.join("continuation-log-v1.bin")).expect("remove");
        }),
        ("a folder that is a file", |path| {
            let groups = path.join("origin-context-groups-v1");
            fs::remove_dir(&groups).expect("remove");
            fs::write(&groups, "").expect("write");
            fs::set_permissions(&groups, Permissions::from_mode(0o600)).expect("chmod");
        }),
    ];
    for (what, change) in cases {
        let folder = folder();
        let first = store(folder.path()).expect("open");
        put(&first, claimed(1)).expect("put");
        first.close().expect("checkpoint");
        drop(first);
        change(folder.path());
        assert!(store(folder.path()).is_err(), "{what}");
    }
}

#[test]
fn what_belongs_to_another_user_stops_the_start() {
    for name in [
        "",
        "records-v3",
        "continuation-secret",
        "continuation-log-v1.bin",
    ] {
        let folder = folder();
        drop(store(folder.path()).expect("open"));
        let given = std::os::unix::fs::chown(folder.path().join(name), Some(65_534), None);
        if nix::unistd::geteuid().is_root() {
            given.expect("root may");
            assert!(store(folder.path()).is_err(), "{name}");
        } else {
            // Nobody but root gives a file away, and so nobody who could try it here.
            given.expect_err("it is root's alone to do");
        }
    }
}

#[test]
fn a_process_that_ends_at_any_call_loses_nothing() {
    let scene = |store: &Store<Counting<RealFs>>| {
        let mut done = Vec::new();
        for number in 0..4 {
            if put(store, claimed(number)).is_ok() {
                done.push(id(number));
            }
        }
        let _ = store.close();
        if put(store, delivered(received(claimed(0), "1"), at(9))).is_ok() {
            done.push(id(0));
        }
        let _ = store.close();
        done
    };
    let mut calls = 0;
    loop {
        let folder = folder();
        let fs = Counting::new(RealFs::open(folder.path()).expect("open"), calls);
        let count = fs.count();
        let done = match Store::open_manual(fs, SMALL) {
            Ok((store, _)) => scene(&store),
            Err(_) => Vec::new(),
        };
        let whole = count() <= calls;
        let store = store(folder.path()).expect("the next process opens it");
        for id in done {
            assert!(
                store.get(&id).expect("read").is_some(),
                "call {calls}, {id}"
            );
        }
        if whole {
            assert!(calls > 60, "{calls}");
            break;
        }
        calls += 1;
    }
}

#[test]
fn version_1_has_at_most_256_mebibytes_and_more_changes_nothing() {
    const MOST: u64 = 256 * 1024 * 1024;
    for (bytes, why) in [(MOST, "as its format has it"), (MOST + 1, "are allowed")] {
        let folder = folder();
        let path = folder.path().join("continuations-v1.json");
        // Nothing but a length: it takes no room on the disk.
        let file = fs::File::create(&path).expect("made");
        file.set_len(bytes).expect("set");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("chmod");
        let error = store(folder.path()).expect_err("it is refused");
        let text = std::iter::successors(Some(&error as &dyn std::error::Error), |error| {
            error.source()
        });
        let text: Vec<_> = text.map(ToString::to_string).collect();
        assert!(text.iter().any(|text| text.contains(why)), "{text:?}");
        assert!(!folder.path().join("records-v2").exists());
        assert_eq!(fs::metadata(&path).expect("it is there").len(), bytes);
    }
}
