//! Files by their own names: what belongs to others, what belongs to the machine, writing where
//! nothing is granted.

use super::{Action, action};
use crate::attack::facts::Facts;
use crate::attack::outcome::Outcome;
use nix::fcntl::{AT_FDCWD, OFlag, open};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::{linkat, mkdir, mkfifo, symlinkat, unlink};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::path::Path;

pub(super) const ACTIONS: &[Action] = &[
    action("read-shadow", |_| read("/etc/shadow".as_ref())),
    action("read-other-state", |f| read(&f.other_state())),
    action("list-other-state", |f| list(&f.root.join("state/other"))),
    action("list-state-root", |f| list(&f.root.join("state"))),
    action("read-configuration", |f| read(&f.configuration())),
    action("read-key", |f| read(&f.key())),
    action("read-home", |f| read(&f.home())),
    action("list-home", |f| list(&f.root.join("home"))),
    action("list-root-home", |_| list("/root".as_ref())),
    action("list-home-folders", |_| list("/home".as_ref())),
    action("list-machine-state", |_| list("/var/lib".as_ref())),
    action("list-machine-runtime", |_| list("/run".as_ref())),
    action("read-hidden-state", |f| {
        read(&f.workspace().join(".hidden/conversation"))
    }),
    action("list-hidden-state", |f| {
        list(&f.workspace().join(".hidden"))
    }),
    action("read-hidden-key", |f| {
        read(&f.workspace().join(".hidden.key"))
    }),
    action("move-hidden-key", |f| {
        let key = f.workspace().join(".hidden.key");
        Outcome::of(
            fs::rename(&key, f.workspace().join("moved.key")).and_then(|()| {
                // Put back for the other attempts.
                fs::rename(f.workspace().join("moved.key"), &key)
            }),
        )
    }),
    action("stat-key", |f| Outcome::of(fs::metadata(f.key()))),
    action("stat-admin-socket", |f| {
        Outcome::of(fs::symlink_metadata(f.admin_socket()))
    }),
    action("stat-gateway-socket", |f| {
        Outcome::of(fs::symlink_metadata(f.gateway_socket()))
    }),
    action("handle-of-admin-socket", |f| {
        // O_PATH asks for no right and gives a descriptor to act on later.
        Outcome::of(open(&f.admin_socket(), OFlag::O_PATH, Mode::empty()))
    }),
    action("list-root", |_| list("/".as_ref())),
    action("read-kernel-log-file", |_| {
        Outcome::of(File::open("/proc/kmsg"))
    }),
    action("read-kernel-memory-file", |_| {
        Outcome::of(File::open("/proc/kcore"))
    }),
    action("list-devices-of-the-kernel", |_| {
        list("/sys/kernel".as_ref())
    }),
    action("write-root", |_| write("/mono-attack".as_ref())),
    action("write-usr", |_| write("/usr/mono-attack".as_ref())),
    action("write-usr-lib", |_| write("/usr/lib/mono-attack".as_ref())),
    action("write-etc", |_| write("/etc/mono-attack".as_ref())),
    action("write-tmp", |_| write("/tmp/mono-attack".as_ref())),
    action("write-var-tmp", |_| write("/var/tmp/mono-attack".as_ref())),
    action("write-dev-shm", |_| write("/dev/shm/mono-attack".as_ref())),
    action("write-dev", |_| write("/dev/mono-attack".as_ref())),
    action("write-open-folder", |f| write(&f.open().join("made"))),
    action("write-beside-workspace", |f| {
        write(&f.workspace().join("../open/beside"))
    }),
    action("append-to-configuration", |f| append(&f.configuration())),
    action("append-to-other-state", |f| append(&f.other_state())),
    action("append-to-own-elsewhere", |f| append(&f.own_elsewhere())),
    action("truncate-own-elsewhere", |f| {
        Outcome::of(nix::unistd::truncate(&f.own_elsewhere(), 0))
    }),
    action("remove-elsewhere", |f| {
        Outcome::of(unlink(&f.open().join("to-remove")))
    }),
    action("rename-elsewhere", |f| {
        let place = f.open();
        Outcome::of(fs::rename(place.join("to-rename"), place.join("renamed")))
    }),
    action("make-folder-elsewhere", |f| {
        Outcome::of(mkdir(&f.open().join("folder"), Mode::S_IRWXU))
    }),
    action("symlink-elsewhere", |f| {
        Outcome::of(symlinkat("/etc/shadow", AT_FDCWD, &f.open().join("link")))
    }),
    action("move-own-file-out", |f| {
        let from = f.place().join("to-move");
        Outcome::of(File::create(&from).and_then(|_| fs::rename(&from, f.open().join("moved-out"))))
    }),
    action("hard-link-own-file-out", |f| {
        let from = f.place().join("to-link");
        let made = File::create(&from).and_then(|_| Ok(link(&from, &f.open().join("linked-out"))?));
        Outcome::of(made)
    }),
    action("write-own-place", |f| write(&f.place().join("made-here"))),
    action("make-fifo", |f| {
        Outcome::of(mkfifo(&f.place().join("fifo"), Mode::S_IRWXU))
    }),
    action("make-character-device", |f| {
        device(f, SFlag::S_IFCHR, (1, 1))
    }),
    action("make-block-device", |f| device(f, SFlag::S_IFBLK, (254, 0))),
    action("open-memory-device", |_| {
        Outcome::of(File::open("/dev/mem"))
    }),
    action("open-kernel-log-device", |_| {
        Outcome::of(File::open("/dev/kmsg"))
    }),
    action("open-terminal-maker", |_| {
        Outcome::of(File::open("/dev/ptmx"))
    }),
    action("open-disk", |_| open_disk()),
    action("set-core-pattern", |_| {
        open_for_writing("/proc/sys/kernel/core_pattern")
    }),
    action("set-namespace-limit", |_| {
        open_for_writing("/proc/sys/user/max_user_namespaces")
    }),
    action("press-sysrq", |_| open_for_writing("/proc/sysrq-trigger")),
    action("set-oom-score", |_| {
        // Worse than before, which everybody may ask for.
        Outcome::of(fs::write("/proc/self/oom_score_adj", "1000"))
    }),
    action("set-user-map", |_| open_for_writing("/proc/self/uid_map")),
    action("set-label", |_| open_for_writing("/proc/self/attr/exec")),
    action("set-own-memory", |_| open_for_writing("/proc/self/mem")),
    action("set-coredump-filter", |_| {
        open_for_writing("/proc/self/coredump_filter")
    }),
    action("leave-control-group", |_| {
        let all = [
            "/sys/fs/cgroup/cgroup.procs",
            "/sys/fs/cgroup/unified/cgroup.procs",
        ];
        let mut outcome = Outcome::Nothing;
        for path in all {
            outcome = open_for_writing(path);
            if outcome.is_breach() {
                break;
            }
        }
        outcome
    }),
];

/// Opens and reads one byte: an open that gives nothing is no breach.
pub(super) fn read(path: &Path) -> Outcome {
    let read = File::open(path).and_then(|mut file| file.read(&mut [0]));
    Outcome::of(read)
}

fn list(path: &Path) -> Outcome {
    Outcome::of(fs::read_dir(path))
}

fn write(path: &Path) -> Outcome {
    let made = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path);
    let outcome = Outcome::of(made);
    if outcome == Outcome::Done {
        let _ = fs::remove_file(path);
    }
    outcome
}

fn append(path: &Path) -> Outcome {
    Outcome::of(OpenOptions::new().append(true).open(path))
}

/// Opens without writing: being let in is the breach, and what would be written might do harm.
fn open_for_writing(path: &str) -> Outcome {
    Outcome::of(OpenOptions::new().write(true).open(path))
}

fn link(from: &Path, to: &Path) -> nix::Result<()> {
    linkat(AT_FDCWD, from, AT_FDCWD, to, nix::fcntl::AtFlags::empty())
}

fn device(f: &Facts, kind: SFlag, (major, minor): (u64, u64)) -> Outcome {
    let path = f.place().join(format!("device-{major}"));
    let made = mknod(&path, kind, Mode::S_IRUSR, makedev(major, minor));
    let _ = fs::remove_file(&path);
    Outcome::of(made)
}

/// The first disk that the machine may have.
fn open_disk() -> Outcome {
    let mut outcome = Outcome::of::<(), _>(Err(io::Error::from(nix::errno::Errno::ENOENT)));
    for name in ["vda", "sda", "nvme0n1", "xvda", "loop0"] {
        match File::open(Path::new("/dev").join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => outcome = Outcome::of(other),
        }
    }
    outcome
}
