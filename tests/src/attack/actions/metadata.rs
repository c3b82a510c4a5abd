//! What a file is, and whose: modes, owners, times, attributes.

use super::{Action, action};
use crate::attack::facts::Facts;
use crate::attack::outcome::Outcome;
use mono_sys::hostile;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::stat::{
    FchmodatFlags, Mode, SFlag, UtimensatFlags, fchmodat, mknod, stat, utimensat,
};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, fchownat};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub(super) const ACTIONS: &[Action] = &[
    action("chmod-elsewhere", |f| chmod(&f.own_elsewhere(), 0o666)),
    action("chmod-key", |f| chmod(&f.key(), 0o600)),
    action("chmod-admin-socket", |f| chmod(&f.admin_socket(), 0o600)),
    action("chown-elsewhere", |f| {
        chown(&f.own_elsewhere(), Uid::current(), Gid::current())
    }),
    action("utimes-elsewhere", |f| utimes(&f.own_elsewhere())),
    action("attribute-elsewhere", |f| {
        attribute(&f.own_elsewhere(), "user.attack")
    }),
    action("chmod-own-set-user-id", |f| {
        with_own(f, "plain", |path| chmod(path, 0o4755))
    }),
    action("chmod-own-set-group-id", |f| {
        with_own(f, "plain", |path| chmod(path, 0o2755))
    }),
    action("make-set-user-id", |f| {
        let path = fresh(f, "set-user-id");
        let mut options = OpenOptions::new();
        let made = options
            .create_new(true)
            .write(true)
            .mode(0o4755)
            .open(&path);
        set_user_id(&path, made.map(drop))
    }),
    action("make-set-user-id-by-openat2", |f| {
        let path = fresh(f, "set-user-id");
        set_user_id(&path, hostile::make_by_openat2(&path, 0o4755).map(drop))
    }),
    action("make-set-user-id-by-mknod", |f| {
        let path = fresh(f, "set-user-id");
        let mode = Mode::from_bits_truncate(0o4755);
        let made = mknod(&path, SFlag::S_IFREG, mode, 0);
        set_user_id(&path, made.map_err(io::Error::from))
    }),
    action("chown-own-to-root", |f| {
        with_own(f, "plain", |path| {
            chown(path, Uid::from_raw(0), Gid::from_raw(0))
        })
    }),
    action("capabilities-for-own-file", |f| {
        // VFS_CAP_REVISION_2 with CAP_NET_RAW, effective.
        let mut value = [0_u8; 20];
        value[..4].copy_from_slice(&0x0200_0001_u32.to_le_bytes());
        value[4..8].copy_from_slice(&(1_u32 << 13).to_le_bytes());
        with_own(f, "plain", |path| {
            let set = hostile::set_file_attribute(path, "security.capability", &value);
            Outcome::of(set)
        })
    }),
    action("attribute-of-own-file", |f| {
        with_own(f, "plain", |path| attribute(path, "user.attack"))
    }),
];

fn chmod(path: &Path, mode: u32) -> Outcome {
    let mode = Mode::from_bits_truncate(mode);
    Outcome::of(fchmodat(AT_FDCWD, path, mode, FchmodatFlags::FollowSymlink))
}

fn chown(path: &Path, uid: Uid, gid: Gid) -> Outcome {
    Outcome::of(fchownat(
        AT_FDCWD,
        path,
        Some(uid),
        Some(gid),
        AtFlags::empty(),
    ))
}

fn utimes(path: &Path) -> Outcome {
    let then = TimeSpec::new(1_000_000_000, 0);
    let flags = UtimensatFlags::FollowSymlink;
    Outcome::of(utimensat(AT_FDCWD, path, &then, &then, flags))
}

fn attribute(path: &Path, name: &str) -> Outcome {
    Outcome::of(hostile::set_file_attribute(path, name, b"x"))
}

fn fresh(f: &Facts, name: &str) -> PathBuf {
    let path = f.place().join(name);
    let _ = fs::remove_file(&path);
    path
}

/// A file of one's own, as far as one can be made; the attempt is made in any case.
fn with_own(f: &Facts, name: &str, attempt: impl Fn(&Path) -> Outcome) -> Outcome {
    let path = fresh(f, name);
    let _ = File::create(&path);
    let outcome = attempt(&path);
    let _ = fs::remove_file(&path);
    outcome
}

/// The bit must be there in the end: the kernel may drop it and make the file nevertheless.
fn set_user_id(path: &Path, made: io::Result<()>) -> Outcome {
    let outcome = match made.and_then(|()| Ok(stat(path)?)) {
        Ok(found) if found.st_mode & 0o4000 != 0 => Outcome::Done,
        Ok(_) => Outcome::Nothing,
        Err(error) => Outcome::from(error),
    };
    let _ = fs::remove_file(path);
    outcome
}
