//! Starts a program as on a machine that lacks something: `lacking WHAT [PATH] -- PROGRAM ARG…`.
//!
//! `landlock-absent` and `landlock-forbidden` answer as a kernel without Landlock, or one where it
//! is off, does. `user-namespaces` gives the program no right to make any. `writable PATH` mounts a
//! folder read-only. `signals` holds all signals back that can be. The program is never user 0, since root needs no user namespace.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::SigSet;
use policy::seccomp::{Action, Decision, Filter};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The user that root becomes; to the system outside it is still root.
const USER: u32 = 61_099;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().context("what is to be lacking?")?;
    match what.as_str() {
        "landlock-absent" => refuse_landlock(nix::libc::ENOSYS)?,
        "landlock-forbidden" => refuse_landlock(nix::libc::EPERM)?,
        "user-namespaces" => {
            own_user_namespace(CloneFlags::empty())?;
            std::fs::write("/proc/sys/user/max_user_namespaces", "0")
                .context("the limit of user namespaces")?;
        }
        "signals" => SigSet::all().thread_block()?,
        "writable" => {
            let path = arguments.next().context("which folder?")?;
            own_user_namespace(CloneFlags::CLONE_NEWNS)?;
            read_only(Path::new(&path)).context("mounting it read-only")?;
        }
        other => bail!("{other:?} is nothing that can be lacking here"),
    }
    if arguments.next().as_deref() != Some("--") {
        bail!("-- and the program come after what is lacking");
    }
    let program = arguments.next().context("which program?")?;
    Err(Command::new(program).args(arguments).exec().into())
}

/// One user and one group exist: ours, which is not called root inside.
fn own_user_namespace(more: CloneFlags) -> Result<()> {
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    let (inner, inner_group) = if uid.is_root() {
        (USER, USER)
    } else {
        (uid.as_raw(), gid.as_raw())
    };
    unshare(CloneFlags::CLONE_NEWUSER | more).context("a user namespace")?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{inner} {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{inner_group} {gid} 1"))?;
    Ok(())
}

fn read_only(path: &Path) -> nix::Result<()> {
    let none: Option<&str> = None;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(none, "/", none, private, none)?;
    mount(Some(path), path, none, MsFlags::MS_BIND, none)?;
    let again = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    mount(none, path, none, again, none)
}

fn refuse_landlock(error: i32) -> Result<()> {
    let number = u32::try_from(nix::libc::SYS_landlock_create_ruleset)?;
    let refused = Decision {
        rules: vec![],
        otherwise: Action::Errno(u16::try_from(error)?),
    };
    let filter = Filter {
        calls: BTreeMap::from([(number, refused)]),
        unlisted: Action::Allow,
        foreign: Action::Allow,
    };
    nix::sys::prctl::set_no_new_privs()?;
    seccompiler::apply_filter(&filter.assemble())?;
    Ok(())
}
