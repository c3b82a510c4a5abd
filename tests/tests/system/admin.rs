//! The admin socket and the folders that the daemon refuses to use.

use mono_tests::daemon::Setup;
use nix::unistd::geteuid;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;

fn mode(path: &std::path::Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn the_admin_socket_is_the_owners_and_one_daemon_serves_a_folder() {
    let mut daemon = Setup::new().unwrap().start().unwrap();
    let path = daemon.folder().join("monod.sock");
    let meta = std::fs::symlink_metadata(&path).unwrap();
    assert!(meta.file_type().is_socket());
    assert_eq!(
        (meta.mode() & 0o7777, meta.uid()),
        (0o600, geteuid().as_raw())
    );

    // As if a run had something there: a second daemon must not take it for what is left over.
    let scratch = daemon.folder().join(".mono-agent/run/of-a-run");
    std::fs::create_dir(&scratch).unwrap();
    let (code, words) = daemon.refused_beside().unwrap();
    assert_eq!(code, 1);
    assert!(scratch.exists(), "{words}");
    assert!(
        words.contains("another monod serves") && words.contains("--socket"),
        "{words}"
    );
    // The first one is not disturbed.
    daemon.wait_healthy().unwrap();
    assert_eq!(daemon.send("a", "hello").unwrap().code, 0);

    if geteuid().is_root() {
        // Another user can't connect, even where the folder lets it through.
        mode(daemon.folder(), 0o755);
        let mut command = daemon.monoctl();
        let refused = command
            .arg("status")
            .uid(61_099)
            .gid(61_099)
            .output()
            .unwrap();
        assert_eq!(refused.status.code(), Some(3), "{refused:?}");
        assert!(
            String::from_utf8_lossy(&refused.stderr).contains("ermission"),
            "{refused:?}"
        );
    }

    // What a killed daemon leaves behind is no obstacle.
    daemon.kill_daemon().unwrap();
    assert!(path.exists());
    daemon.restart().unwrap();

    // State is its owners'.
    let state = daemon.folder().join(".mono-agent");
    for folder in ["store", "artifacts"] {
        let meta = std::fs::metadata(state.join(folder)).unwrap();
        assert_eq!(meta.mode() & 0o7777, 0o700, "{folder}");
        assert_ne!(meta.uid(), 0, "{folder}");
    }
    assert_eq!(std::fs::metadata(&state).unwrap().mode() & 0o066, 0);
}

/// Puts something at the socket's path.
type Plant = fn(&std::path::Path);

#[test]
fn what_was_planted_at_the_sockets_path_refuses_the_start() {
    let plants: [(&str, Plant); 3] = [
        ("file", |path| std::fs::write(path, "mine").unwrap()),
        ("link", |path| symlink("/tmp/elsewhere.sock", path).unwrap()),
        ("folder", |path| std::fs::create_dir(path).unwrap()),
    ];
    for (what, plant) in plants {
        let setup = Setup::new().unwrap();
        let path = setup.folder().join("monod.sock");
        plant(&path);
        let (code, words) = setup.refused().unwrap();
        assert_eq!(code, 1, "{what}");
        assert!(
            words.contains("not a socket of ours") && words.contains("remove it"),
            "{what}: {words}"
        );
    }
    // A link to a socket that somebody serves is a link all the same.
    let setup = Setup::new().unwrap();
    let elsewhere = setup.folder().join("elsewhere.sock");
    let _served = UnixListener::bind(&elsewhere).unwrap();
    symlink(&elsewhere, setup.folder().join("monod.sock")).unwrap();
    let (code, words) = setup.refused().unwrap();
    assert!(code == 1 && words.contains("a symbolic link"), "{words}");
}

#[test]
fn folders_that_others_could_write_refuse_the_start_with_a_remedy() {
    let setup = Setup::new().unwrap();
    let state = setup.folder().join(".mono-agent");
    std::fs::create_dir(&state).unwrap();
    mode(&state, 0o770);
    let (code, words) = setup.refused().unwrap();
    assert_eq!(code, 1);
    assert!(
        words.contains("can be written by others") && words.contains("chmod go-w"),
        "{words}"
    );

    if geteuid().is_root() {
        // Started as root, agents are other users: they must be able to use the workspace.
        let setup = Setup::new().unwrap();
        nix::unistd::chown(&setup.workspace(), None, Some(0.into())).unwrap();
        let (code, words) = setup.refused().unwrap();
        assert_eq!(code, 1);
        assert!(
            words.contains("chgrp") && words.contains("ordinary user"),
            "{words}"
        );
        // The state of somebody else is not used either.
        let setup = Setup::new().unwrap();
        let state = setup.folder().join(".mono-agent");
        std::fs::create_dir(&state).unwrap();
        nix::unistd::chown(&state, Some(61_099.into()), None).unwrap();
        let (code, words) = setup.refused().unwrap();
        assert_eq!(code, 1);
        assert!(
            words.contains("belongs to user 61099") && words.contains("chown"),
            "{words}"
        );
    } else {
        // A workspace that is not there, and one that is a file.
        let mut setup = Setup::new().unwrap();
        setup.config["runtime"]["workspace"] = "nowhere".into();
        let (code, words) = setup.refused().unwrap();
        assert!(code == 1 && words.contains("runtime.workspace"), "{words}");
    }
}
