#![allow(clippy::unwrap_used)]
use super::*;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

struct Fixture {
    temp: tempfile::TempDir,
    roots: Roots,
    run: RunId,
}

fn dir(path: &Path) -> Dir {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    Dir::from_fd(nix::fcntl::open(path, flags, nix::sys::stat::Mode::empty()).unwrap()).unwrap()
}

/// workspace `w` with the state directory inside, outbound `o`, and a file outside both.
fn fixture() -> Fixture {
    let temp = tempfile::tempdir().unwrap();
    let at = |p: &str| temp.path().join(p);
    fs::create_dir_all(at("w/sub/deep")).unwrap();
    fs::create_dir_all(at("w/state/reply-files")).unwrap();
    fs::create_dir_all(at("w/conf")).unwrap();
    fs::create_dir_all(at("o/run-1/outbound")).unwrap();
    fs::create_dir_all(at("o/run-2/outbound")).unwrap();
    for file in [
        "w/a.txt",
        "w/sub/deep/b.txt",
        "w/state/reply-files/c.txt",
        "w/conf/agent.json",
        "o/run-1/outbound/d.txt",
        "o/run-2/outbound/e.txt",
        "outside.txt",
    ] {
        fs::write(at(file), file).unwrap();
    }
    let private = [
        "conf/agent.json".to_owned(),
        "Later/place".to_owned(),
        "./".to_owned(),
    ];
    let own = dir(&at("w/state")).id().unwrap();
    let roots = Roots::new(Some(dir(&at("w"))), Some(dir(&at("o"))), &private, own);
    Fixture {
        temp,
        roots,
        run: RunId::parse("run-1").unwrap(),
    }
}

impl Fixture {
    fn at(&self, path: &str) -> PathBuf {
        self.temp.path().join(path)
    }

    /// Hands over `opened`, claims `path`.
    fn claim(&self, root: Root, path: &str, opened: &str) -> Result<Source, VerifyError> {
        let fd = File::open(self.at(opened)).ok().map(OwnedFd::from);
        self.roots.verify(root, &self.run, path, fd)
    }
}

#[test]
fn a_file_below_either_root_passes() {
    let f = fixture();
    assert_eq!(
        f.claim(Root::Workspace, "a.txt", "w/a.txt").unwrap().size,
        7
    );
    assert!(
        f.claim(Root::Workspace, "./sub//deep/b.txt", "w/sub/deep/b.txt")
            .is_ok()
    );
    assert!(
        f.claim(Root::Outbound, "d.txt", "o/run-1/outbound/d.txt")
            .is_ok()
    );
}

#[test]
fn another_run_s_outbound_directory_is_out_of_reach() {
    let f = fixture();
    assert!(matches!(
        f.claim(Root::Outbound, "e.txt", "o/run-2/outbound/e.txt"),
        Err(VerifyError::Missing { .. })
    ));
    assert!(matches!(
        f.claim(
            Root::Outbound,
            "run-2/outbound/e.txt",
            "o/run-2/outbound/e.txt"
        ),
        Err(VerifyError::Missing { .. })
    ));
    assert!(matches!(
        f.claim(
            Root::Outbound,
            "../../run-2/outbound/e.txt",
            "o/run-2/outbound/e.txt"
        ),
        Err(VerifyError::Source(_))
    ));
}

#[test]
fn climbing_absolute_and_sensitive_paths_are_refused_before_the_disk_is_asked() {
    let f = fixture();
    for path in [
        "../outside.txt",
        "/etc/hostname",
        "sub/../../outside.txt",
        ".env",
        "x/id_rsa",
    ] {
        assert!(
            matches!(
                f.claim(Root::Workspace, path, "outside.txt"),
                Err(VerifyError::Source(_))
            ),
            "{path}"
        );
    }
}

#[test]
fn a_symlink_in_any_place_of_the_path_is_refused() {
    let f = fixture();
    symlink(f.at("outside.txt"), f.at("w/final.txt")).unwrap();
    symlink("a.txt", f.at("w/inside.txt")).unwrap();
    symlink("sub", f.at("w/first")).unwrap();
    symlink("deep", f.at("w/sub/second")).unwrap();
    symlink("/proc/self/root", f.at("w/magic")).unwrap();
    for (path, opened) in [
        ("final.txt", "outside.txt"),
        ("inside.txt", "w/a.txt"),
        ("first/deep/b.txt", "w/sub/deep/b.txt"),
        ("sub/second/b.txt", "w/sub/deep/b.txt"),
        ("magic/etc/hostname", "outside.txt"),
    ] {
        // A last component that is a link is seen as itself: no regular file.
        let refused = f.claim(Root::Workspace, path, opened).unwrap_err();
        let expected = if path.contains('/') {
            matches!(refused, VerifyError::Walk { .. })
        } else {
            matches!(refused, VerifyError::NotRegular)
        };
        assert!(expected, "{path}: {refused}");
    }
}

#[test]
fn a_fifo_a_socket_a_device_and_a_directory_are_refused_without_blocking() {
    let f = fixture();
    nix::unistd::mkfifo(&f.at("w/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(f.at("w/socket")).unwrap();
    for path in ["fifo", "socket", "sub"] {
        assert!(
            matches!(
                f.claim(Root::Workspace, path, "w/a.txt"),
                Err(VerifyError::NotRegular)
            ),
            "{path}"
        );
    }
    // The named file is regular, the descriptor is not.
    let (reader, _writer) = nix::unistd::pipe().unwrap();
    for fd in [
        reader,
        File::open("/dev/null").unwrap().into(),
        File::open(f.at("w/sub")).unwrap().into(),
    ] {
        let refused = f.roots.verify(Root::Workspace, &f.run, "a.txt", Some(fd));
        assert!(
            matches!(refused, Err(VerifyError::NotRegular)),
            "{refused:?}"
        );
    }
    // A device by its own path: the root is /dev here.
    let roots = Roots::new(Some(dir(Path::new("/dev"))), None, &[], f.roots.own);
    let null = File::open("/dev/null").unwrap().into();
    assert!(matches!(
        roots.verify(Root::Workspace, &f.run, "null", Some(null)),
        Err(VerifyError::NotRegular)
    ));
}

#[test]
fn the_descriptor_must_be_the_named_file_read_only_and_singly_linked() {
    let f = fixture();
    assert!(matches!(
        f.claim(Root::Workspace, "a.txt", "outside.txt"),
        Err(VerifyError::Swapped)
    ));
    assert!(matches!(
        f.claim(Root::Workspace, "a.txt", "no such file"),
        Err(VerifyError::NoDescriptor)
    ));
    assert!(matches!(
        f.claim(Root::Workspace, "sub/no.txt", "w/a.txt"),
        Err(VerifyError::Missing { .. })
    ));
    assert!(matches!(
        f.claim(Root::Workspace, "a.txt/b", "w/a.txt"),
        Err(VerifyError::Walk { .. })
    ));
    let writable = File::options()
        .read(true)
        .write(true)
        .open(f.at("w/a.txt"))
        .unwrap();
    let refused = f
        .roots
        .verify(Root::Workspace, &f.run, "a.txt", Some(writable.into()));
    assert!(matches!(refused, Err(VerifyError::Mode)));
    let handle = dir(&f.at("w")).step("a.txt", false).unwrap();
    assert!(matches!(
        f.roots
            .verify(Root::Workspace, &f.run, "a.txt", Some(handle)),
        Err(VerifyError::Mode)
    ));
    fs::hard_link(f.at("outside.txt"), f.at("w/linked.txt")).unwrap();
    assert!(matches!(
        f.claim(Root::Workspace, "linked.txt", "w/linked.txt"),
        Err(VerifyError::Links(2))
    ));
    // Opened, then replaced by a rename: the path is another file now.
    let opened = File::open(f.at("w/a.txt")).unwrap();
    fs::rename(f.at("w/sub/deep/b.txt"), f.at("w/a.txt")).unwrap();
    let refused = f
        .roots
        .verify(Root::Workspace, &f.run, "a.txt", Some(opened.into()));
    assert!(matches!(refused, Err(VerifyError::Swapped)));
}

#[test]
fn private_places_inside_the_workspace_are_refused_by_name_and_by_identity() {
    let f = fixture();
    let refused = |path: &str, opened: &str| {
        matches!(
            f.claim(Root::Workspace, path, opened),
            Err(VerifyError::Private { .. })
        )
    };
    assert!(refused(
        "state/reply-files/c.txt",
        "w/state/reply-files/c.txt"
    ));
    assert!(refused("conf/agent.json", "w/conf/agent.json"));
    // Not there yet, in another case and normal form.
    assert!(refused("later/pla\u{301}ce/x.txt", "w/a.txt"));
    assert!(!refused("later/x.txt", "w/a.txt"));
    // The same file by another path of the same workspace.
    fs::rename(f.at("w/conf/agent.json"), f.at("w/sub/plain.json")).unwrap();
    fs::write(f.at("w/conf/agent.json"), b"new").unwrap();
    assert!(!refused("sub/plain.json", "w/sub/plain.json"));
    fs::hard_link(f.at("w/conf/agent.json"), f.at("w/sub/alias.json")).unwrap();
    assert!(refused("sub/alias.json", "w/sub/alias.json"));
}

#[test]
fn twenty_mebibytes_pass_and_one_byte_more_is_too_large() {
    let f = fixture();
    let file = File::create(f.at("w/big.bin")).unwrap();
    file.set_len(MAX_FILE).unwrap();
    assert_eq!(
        f.claim(Root::Workspace, "big.bin", "w/big.bin")
            .unwrap()
            .size,
        MAX_FILE
    );
    file.set_len(MAX_FILE + 1).unwrap();
    let refused = f
        .claim(Root::Workspace, "big.bin", "w/big.bin")
        .unwrap_err();
    assert!(matches!(refused, VerifyError::TooLarge(size) if size == MAX_FILE + 1));
    assert_eq!(refused.code(), Code::TooLarge);
}

#[test]
fn a_missing_root_is_named() {
    let f = fixture();
    let roots = Roots::new(None, None, &[], f.roots.own);
    for root in [Root::Workspace, Root::Outbound] {
        assert!(
            matches!(roots.verify(root, &f.run, "a.txt", None), Err(VerifyError::NoRoot(r)) if r == root)
        );
    }
}
