//! Another view: mounts, roots, namespaces.

use super::{Action, action};
use crate::attack::facts::Facts;
use crate::attack::outcome::Outcome;
use mono_sys::attempt::{Hopeless, hopeless};
use mono_sys::{hostile, mount as by_descriptor};
use nix::fcntl::{OFlag, open};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::Mode;
use nix::unistd::{chdir, chroot, pivot_root};
use std::io;
use std::path::PathBuf;

const NONE: Option<&str> = None;

pub(super) const ACTIONS: &[Action] = &[
    action("mount", |f| Outcome::of(tmpfs(&f.place()))),
    action("mount-over-root", |_| Outcome::of(tmpfs(&"/".into()))),
    action("mount-proc", |f| {
        Outcome::of(mount(
            NONE,
            &f.place(),
            Some("proc"),
            MsFlags::empty(),
            NONE,
        ))
    }),
    action("bind-mount", |f| {
        let from = f.root.join("keys");
        Outcome::of(mount(Some(&from), &f.place(), NONE, MsFlags::MS_BIND, NONE))
    }),
    action("remount-writable", |f| {
        // What the sandbox shows read-only. Outside, a mount of one's own stands in for it.
        let place = if f.own.is_none() || std::path::Path::new("/.landlock").exists() {
            PathBuf::from("/")
        } else {
            let _ = tmpfs(&f.place());
            f.place()
        };
        Outcome::of(mount(NONE, &place, NONE, MsFlags::MS_REMOUNT, NONE))
    }),
    action("unmount", |f| {
        let place = f.place();
        let _ = tmpfs_where_it_works(f);
        Outcome::of(umount2(&place, MntFlags::MNT_DETACH))
    }),
    action("unmount-proc", |_| {
        Outcome::of(umount2("/proc", MntFlags::MNT_DETACH))
    }),
    action("change-root", |f| Outcome::of(chroot(&f.place()))),
    action("pivot-root", |f| {
        let place = f.place();
        let _ = tmpfs_where_it_works(f);
        let _ = chdir(&place);
        Outcome::of(pivot_root(".", "."))
    }),
    action("new-file-system", |_| {
        use by_descriptor::Attributes;
        Outcome::of(by_descriptor::new_filesystem(
            c"tmpfs",
            &[],
            Attributes::NO_SUID,
        ))
    }),
    action("clone-mount", |f| {
        let place = open(&f.place(), OFlag::O_PATH, Mode::empty());
        Outcome::of(
            place
                .map_err(io::Error::from)
                .and_then(by_descriptor::clone_tree),
        )
    }),
    action("ask-open-tree", |_| asked(Hopeless::OpenTree)),
    action("ask-move-mount", |_| asked(Hopeless::MoveMount)),
    action("ask-mount-setattr", |_| asked(Hopeless::MountSetattr)),
    action("ask-fsconfig", |_| asked(Hopeless::Fsconfig)),
    action("ask-fsmount", |_| asked(Hopeless::Fsmount)),
    action("ask-fspick", |_| asked(Hopeless::Fspick)),
    action("share-mounts-again", |_| {
        Outcome::of(by_descriptor::make_private())
    }),
    action("unshare-user", |_| unshared(CloneFlags::CLONE_NEWUSER)),
    action("unshare-mount", |_| unshared(CloneFlags::CLONE_NEWNS)),
    action("unshare-pid", |_| unshared(CloneFlags::CLONE_NEWPID)),
    action("unshare-network", |_| unshared(CloneFlags::CLONE_NEWNET)),
    action("unshare-ipc", |_| unshared(CloneFlags::CLONE_NEWIPC)),
    action("unshare-host-name", |_| unshared(CloneFlags::CLONE_NEWUTS)),
    action("unshare-control-group", |_| {
        unshared(CloneFlags::CLONE_NEWCGROUP)
    }),
    action("unshare-time", |_| {
        unshared(CloneFlags::from_bits_retain(CLONE_NEWTIME))
    }),
    action("unshare-files", |_| unshared(CloneFlags::CLONE_FILES)),
    action("clone-user", |_| cloned(CloneFlags::CLONE_NEWUSER)),
    action("clone-mount-namespace", |_| cloned(CloneFlags::CLONE_NEWNS)),
    action("clone-pid", |_| cloned(CloneFlags::CLONE_NEWPID)),
    action("clone-network", |_| cloned(CloneFlags::CLONE_NEWNET)),
    action("clone-ipc", |_| cloned(CloneFlags::CLONE_NEWIPC)),
    action("clone-host-name", |_| cloned(CloneFlags::CLONE_NEWUTS)),
    action("clone-control-group", |_| {
        cloned(CloneFlags::CLONE_NEWCGROUP)
    }),
    action("clone-user-and-everything", |_| {
        cloned(
            CloneFlags::CLONE_NEWUSER
                | CloneFlags::CLONE_NEWNS
                | CloneFlags::CLONE_NEWPID
                | CloneFlags::CLONE_NEWNET,
        )
    }),
    action("clone3-user", |_| clone3(CloneFlags::CLONE_NEWUSER)),
    action("clone3-user-and-mount", |_| {
        clone3(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)
    }),
    action("enter-mounts-of-first", |_| entered("/proc/1/ns/mnt")),
    action("enter-network-of-first", |_| entered("/proc/1/ns/net")),
    action("enter-processes-of-first", |_| entered("/proc/1/ns/pid")),
    action("enter-users-of-first", |_| entered("/proc/1/ns/user")),
    action("enter-own-mounts", |_| entered("/proc/self/ns/mnt")),
    action("enter-by-descriptor-of-victim", |f| {
        match hostile::pidfd_open(f.victim) {
            // Even without a descriptor the call is made.
            Err(_) => asked(Hopeless::Setns),
            Ok(victim) => Outcome::of(setns(victim, CloneFlags::CLONE_NEWNET)),
        }
    }),
];

const CLONE_NEWTIME: i32 = 0x80;

fn tmpfs(place: &PathBuf) -> nix::Result<()> {
    mount(
        NONE,
        place,
        Some("tmpfs"),
        MsFlags::empty(),
        Some("size=4k"),
    )
}

/// A mount to act on, where mounting doesn't end the process.
fn tmpfs_where_it_works(f: &Facts) -> nix::Result<()> {
    if std::path::Path::new("/.landlock").exists() {
        return Ok(());
    }
    tmpfs(&f.place())
}

fn asked(call: Hopeless) -> Outcome {
    Outcome::of_hopeless(hopeless(call))
}

fn unshared(flags: CloneFlags) -> Outcome {
    Outcome::of(unshare(flags))
}

fn cloned(flags: CloneFlags) -> Outcome {
    Outcome::of(hostile::clone_with(flags.bits()))
}

fn clone3(flags: CloneFlags) -> Outcome {
    Outcome::of(hostile::clone3_with(u64::from(
        flags.bits().cast_unsigned(),
    )))
}

fn entered(path: &str) -> Outcome {
    match open(path, OFlag::O_RDONLY, Mode::empty()) {
        Err(_) => asked(Hopeless::Setns),
        Ok(namespace) => Outcome::of(setns(namespace, CloneFlags::empty())),
    }
}
