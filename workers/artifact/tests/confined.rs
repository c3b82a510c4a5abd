//! The worker's rights are enough for its work: its own directory, handles of the roots, and
//! descriptors that others opened. A domain binds the thread that enters it and those it starts.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Place, dir, published, refused, scope};
use ipc_proto::edges::artifact::Root;
use jiff::Timestamp;
use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, PathBeneath, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _,
};
use mono_artifact::dir::Dir;
use mono_artifact::index::Retention;
use mono_artifact::reading::Wish;
use mono_artifact::session::{Desk, Request, Session};
use mono_artifact::verify::Roots;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

fn handle(path: &Path) -> Dir {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Dir::from_fd(open(path, flags, Mode::empty()).unwrap()).unwrap()
}

#[test]
fn with_rights_to_its_own_directory_alone_the_worker_does_all_its_work() {
    let place = Place::new();
    place.write("w/large.bin", vec![2; 3 * 1024 * 1024]);
    place.write("w/small.txt", "small");
    place.write("o/run-1/outbound/out.txt", "out");
    let sources =
        ["w/large.bin", "o/run-1/outbound/out.txt"].map(|path| File::open(place.at(path)).unwrap());
    let (state, workspace, scratch) = (
        handle(&place.at("state")),
        handle(&place.at("w")),
        handle(&place.at("o")),
    );
    std::thread::scope(|scope| {
        scope
            .spawn(|| confined(&place, state, workspace, scratch, sources))
            .join()
            .unwrap();
    });
    // The domain ended with its thread: the account is what it should be from outside, too.
    let before = place.names().0.len();
    drop(dir(&place.at("w")));
    assert_eq!((before, place.names().1.len()), (1, 0));
}

fn confined(place: &Place, state: Dir, workspace: Dir, scratch: Dir, sources: [File; 2]) {
    let all = AccessFs::from_all(ABI::V5);
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(all)
        .unwrap()
        .create()
        .unwrap()
        .add_rule(PathBeneath::new(&state, all))
        .unwrap()
        .restrict_self()
        .unwrap();
    // Confined indeed: neither an absolute path nor the handle opens what is in the workspace.
    assert!(File::open(place.at("w/small.txt")).is_err());
    assert!(workspace.read("small.txt").is_err());

    let own = state.id().unwrap();
    let roots = Roots::new(Some(workspace), Some(scratch), &["private".to_owned()], own);
    let retention = Retention {
        max_age_days: 1,
        max_count: 1,
        dry_run: false,
    };
    let shelf = mono_artifact::Shelf::open(&state, 1 << 28, Timestamp::now()).unwrap();
    let desk = Arc::new(Desk {
        shelf,
        roots,
        retention,
    });
    let mut session = Session::new(desk.clone(), scope("run-1"));
    let [large, out] = sources;
    let mut publish = |root, path: &str, file: Option<File>| {
        let source = file.map(Into::into);
        let request = Request {
            root,
            path: path.to_owned(),
            name: None,
            media_type: None,
            source,
        };
        session
            .publish(request, Timestamp::now(), &|_| true)
            .unwrap()
    };
    let (id, _) = published(&publish(Root::Workspace, "large.bin", Some(large)));
    published(&publish(Root::Outbound, "out.txt", Some(out)));
    assert_eq!(
        refused(&publish(Root::Workspace, "small.txt", None)),
        "artifact_missing"
    );
    session.finalise().unwrap();
    let wish = Wish::of(&id);
    assert_eq!(
        desk.shelf
            .read(wish, Timestamp::now())
            .unwrap()
            .0
            .size_bytes,
        3 * 1024 * 1024
    );
    assert_eq!(desk.shelf.clean(&retention, Timestamp::now()), 1);
}
