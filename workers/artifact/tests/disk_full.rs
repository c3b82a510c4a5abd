//! Writes fail at every file of a publication. The limit is the process's, so this test has a
//! process of its own.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Place, published, refused};
use ipc_proto::reply::ReplyPart;
use jiff::Timestamp;
use mono_artifact::reading::{ReadError, Wish};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};

/// From now on no file grows over `bytes`: a write that would gives `EFBIG`, as a full disk gives
/// `ENOSPC`.
fn limit(bytes: u64) {
    let (_, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    setrlimit(Resource::RLIMIT_FSIZE, bytes.min(hard), hard).unwrap();
}

#[test]
fn a_disk_that_takes_no_more_leaves_no_trace_and_loses_nothing() {
    // The kernel's signal for this would end the process; blocked, the error code is left.
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGXFSZ);
    blocked.thread_block().unwrap();
    let place = Place::new();
    let desk = place.desk();
    place.write("w/small.txt", "small");
    place.write("w/middle.bin", vec![1; 100 * 1024]);
    place.write("w/large.bin", vec![2; 3 * 1024 * 1024]);

    // The content doesn't fit, in either way of copying.
    limit(64 * 1024);
    let mut session = place.session(&desk);
    for path in ["middle.bin", "large.bin"] {
        assert_eq!(
            refused(&place.publish(&mut session, path)),
            "artifact_publish_failed",
            "{path}"
        );
        place.assert_empty(&desk);
    }
    // The content fits, its manifest doesn't: the file is a failure after all, and leaves nothing.
    limit(100);
    published(&place.publish(&mut session, "small.txt"));
    let parts = session.finalise().unwrap();
    let codes: Vec<_> = parts
        .iter()
        .map(|part| match part {
            ReplyPart::Failure { code, .. } => code.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    // Those of the two that were refused before, too.
    assert_eq!(codes, ["artifact_publish_failed"; 3]);
    drop(session);
    place.assert_empty(&desk);
    // A reader gets no partial copy, and the artifact is blamed for nothing.
    limit(u64::MAX);
    let mut session = place.session(&desk);
    let (id, _) = published(&place.publish(&mut session, "large.bin"));
    session.finalise().unwrap();
    limit(1024);
    let wish = Wish::of(&id);
    let error = desk.shelf.read(wish, Timestamp::now()).unwrap_err();
    assert!(matches!(&error, ReadError::Copy(_)) && error.code().is_none());
    limit(u64::MAX);
    assert!(desk.shelf.read(wish, Timestamp::now()).is_ok());
}
