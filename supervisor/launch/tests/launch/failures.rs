//! Starts that must not succeed: each ends with its own code and one line.

use crate::fixture::{Fixture, is_root};
use ipc_proto::Role;
use mono_sys::process::ExitStatus;
use policy::exit::Step;
use policy::spec::{Entry, Place};
use policy::{Access, CompileError, Declared, Launch, compile};
use std::sync::Arc;

#[track_caller]
fn fails(fixture: &Fixture, launch: &Launch, step: Step, words: &str) {
    let ended = fixture.start(launch, true);
    assert_eq!(
        ended.status,
        ExitStatus::Exited(i32::from(step.code())),
        "{ended:?}"
    );
    assert_eq!(ended.output, "");
    assert_eq!(ended.error.lines().count(), 1, "{ended:?}");
    assert!(
        ended.error.contains(words) && ended.error.contains(step.remedy()),
        "{ended:?}"
    );
}

fn store(fixture: &Fixture) -> Launch {
    compile(Role::Store, &fixture.context(Role::Store)).unwrap()
}

#[test]
fn each_step_that_fails_is_told_by_its_code() {
    let fixture = Fixture::new();
    let good = store(&fixture);

    let mut launch = good.clone();
    launch.spec.version = 99;
    fails(&fixture, &launch, Step::Spec, "version 99");

    let mut launch = good.clone();
    Arc::make_mut(&mut launch.filter).pop();
    fails(&fixture, &launch, Step::Filter, "whole number");

    let mut launch = good.clone();
    Arc::make_mut(&mut launch.filter).clear();
    fails(&fixture, &launch, Step::Filter, "empty");

    let mut launch = good.clone();
    launch.spec.directory = "/nowhere".into();
    fails(&fixture, &launch, Step::Directory, "/nowhere");

    let mut launch = good.clone();
    launch
        .spec
        .landlock
        .paths
        .push(("/nowhere".into(), policy::rights::listing()));
    fails(&fixture, &launch, Step::LandlockRule, "/nowhere");

    let mut launch = good.clone();
    launch.spec.landlock.paths.push(("/usr".into(), 1 << 40));
    fails(&fixture, &launch, Step::Spec, "doesn't know");

    std::fs::remove_dir_all(fixture.path("state")).unwrap();
    fails(&fixture, &good, Step::Grant, "/state");
}

#[test]
fn a_link_that_was_put_in_the_place_of_a_granted_path_is_not_followed() {
    let fixture = Fixture::new();
    let launch = store(&fixture);
    std::fs::rename(fixture.path("state"), fixture.path("moved")).unwrap();
    std::os::unix::fs::symlink("outside", fixture.path("state")).unwrap();
    fails(&fixture, &launch, Step::Grant, "/state");
    // And one that is there already is refused before anything is started.
    let error = compile(Role::Store, &fixture.context(Role::Store)).unwrap_err();
    assert!(error.to_string().contains("symbolic link"), "{error}");
}

#[test]
fn a_spec_that_asks_for_root_is_refused() {
    let fixture = Fixture::new();
    if is_root() {
        let mut context = fixture.context(Role::Store);
        context.identity = None;
        assert!(matches!(
            compile(Role::Store, &context),
            Err(CompileError::Root(Role::Store))
        ));
        let mut launch = store(&fixture);
        launch.spec.identity.as_mut().unwrap().uid = 0;
        fails(&fixture, &launch, Step::User, "still root");
    } else {
        // An ordinary user can't become anyone else.
        let mut launch = store(&fixture);
        launch.spec.identity = Some(policy::Identity {
            uid: 1,
            gid: 1,
            groups: vec![],
        });
        fails(&fixture, &launch, Step::User, "");
    }
}

#[test]
fn paths_that_no_view_can_have_are_refused_with_the_reason() {
    let fixture = Fixture::new();
    for (path, reason) in [
        ("/", "root of the file system"),
        ("relative", "absolute"),
        ("/usr/../etc", "`..`"),
        ("/proc/self", "made by the sandbox"),
        ("/dev/null", "made by the sandbox"),
        ("/nowhere/at/all", "must exist"),
    ] {
        let mut context = fixture.context(Role::Run);
        context.declared = vec![Declared {
            path: path.into(),
            access: Access::Read,
        }];
        let error = compile(Role::Run, &context).unwrap_err().to_string();
        assert!(error.contains(reason), "{path}: {error}");
    }
}

#[test]
fn a_declared_path_is_there_as_declared() {
    let fixture = Fixture::new();
    let secret = fixture.text("outside/secret");
    let mut context = fixture.context(Role::Run);
    context.declared = vec![Declared {
        path: secret.clone().into(),
        access: Access::Read,
    }];
    let read = format!("read:{secret}");
    let write = format!("write:{secret}");
    let ended = fixture.probe_with(Role::Run, &context, &[&read, &write]);
    assert_eq!(ended.of(&read), "secret");
    assert!(["EACCES", "EROFS"].contains(&ended.of(&write)), "{ended:?}");
}

#[test]
fn nothing_is_mounted_where_a_file_is() {
    let fixture = Fixture::new();
    let mut launch = store(&fixture);
    let view = launch.view.as_mut().unwrap();
    view.entries.push(Entry::Text {
        path: "/file".into(),
        text: String::new(),
    });
    launch.spec.own.push(Entry::Temporary {
        path: "/file/below".into(),
        bytes: 4096,
    });
    fails(&fixture, &launch, Step::Place, "/file/below");
    let view = launch.view.as_mut().unwrap();
    view.places.push(Place {
        path: "/file/below".into(),
        directory: true,
    });
    fails(&fixture, &launch, Step::Place, "/file/below");
}

#[test]
fn a_worker_takes_no_variables_but_its_own_and_nobody_the_loaders() {
    let fixture = Fixture::new();
    for (role, name) in [
        (Role::Store, "PATH"),
        (Role::Run, "LD_PRELOAD"),
        (Role::Store, "A=B"),
    ] {
        let mut context = fixture.context(role);
        context.environment = vec![(name.into(), "x".into())];
        let error = compile(role, &context).unwrap_err();
        assert!(
            matches!(error, CompileError::Variable { .. }),
            "{name}: {error}"
        );
    }
}
