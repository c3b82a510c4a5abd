//! What the kernel and the system offer.

use super::Finding;
use mono_sys::process::{IdMap, Namespaces, Spawn, spawn};
use nix::unistd::{getegid, geteuid};
use policy::LANDLOCK_FLOOR;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The first kernel with the Landlock that is needed.
const KERNEL: (u32, u32) = (6, 12);

/// Everything; `privileged` when the daemon runs as root.
pub(super) fn all(privileged: bool) -> Vec<Finding> {
    let release = nix::sys::utsname::uname();
    let release = release.map(|u| u.release().to_string_lossy().into_owned());
    let mut findings = vec![kernel(&release.unwrap_or_default())];
    let unmet = policy::unmet(!privileged);
    let (landlock, settings): (Vec<_>, Vec<_>) = unmet
        .iter()
        // Looked at below, with what else filters need.
        .filter(|unmet| !matches!(unmet, policy::Unmet::NoNotification(_)))
        .partition(|unmet| !matches!(unmet, policy::Unmet::Setting { .. }));
    match landlock.as_slice() {
        [] => {
            let abi = mono_sys::landlock::abi().unwrap_or(0);
            let detail = format!("ABI {abi}; ABI {LANDLOCK_FLOOR} or newer is needed");
            findings.push(Finding::ok("landlock", detail));
        }
        some => findings.extend(some.iter().map(|unmet| refused("landlock", unmet))),
    }
    match settings.as_slice() {
        [] => findings.push(namespaces(privileged)),
        some => findings.extend(some.iter().map(|unmet| refused("namespaces", unmet))),
    }
    let actions = std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail");
    findings.push(seccomp(actions.as_deref()));
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    findings.push(proc(&mounts, Path::new("/proc/1/stat").exists()));
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let offered = std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    findings.push(cgroup(&own, &offered));
    let path = std::env::var_os("PATH").unwrap_or_default();
    findings.extend(["node", "npm"].map(|name| program(name, &path)));
    findings
}

/// The policy's own words: what is wrong, a colon, what to do.
fn refused(check: &'static str, unmet: &policy::Unmet) -> Finding {
    let text = unmet.to_string();
    match text.split_once(": ") {
        Some((detail, remedy)) => Finding::missing(check, detail, remedy),
        None => Finding::missing(check, text.as_str(), "see docs/operations.md"),
    }
}

fn kernel(release: &str) -> Finding {
    let mut numbers = release.split(['.', '-']).map(str::parse::<u32>);
    let (major, minor) = (numbers.next(), numbers.next());
    let needed = format!("{}.{}", KERNEL.0, KERNEL.1);
    match (major, minor) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= KERNEL => {
            Finding::ok("kernel", release)
        }
        (Some(Ok(_)), Some(Ok(_))) => Finding::info(
            "kernel",
            format!("{release}, older than {needed}; what counts is the Landlock that it offers"),
        ),
        _ => Finding::info(
            "kernel",
            format!("its release {release:?} is not understood"),
        ),
    }
}

/// Makes the namespaces that a worker gets, for a process that ends at once.
fn namespaces(privileged: bool) -> Finding {
    const CHECK: &str = "namespaces";
    if privileged && !geteuid().is_root() {
        return Finding::info(CHECK, "the daemon is root and makes them without asking");
    }
    match try_namespaces() {
        Ok(()) => Finding::ok(
            CHECK,
            "user, pid, mount, network, IPC: a process got its own",
        ),
        Err(e) => Finding::missing(
            CHECK,
            format!("a process could not get its own: {e}"),
            "allow them in the container or service that this runs in (its seccomp or AppArmor \
             profile, systemd's RestrictNamespaces=), or run the daemon with --allow-degraded",
        ),
    }
}

fn try_namespaces() -> io::Result<()> {
    let me = File::open("/proc/self/exe")?;
    let kinds =
        Namespaces::PID | Namespaces::MOUNT | Namespaces::NET | Namespaces::IPC | Namespaces::UTS;
    let root = geteuid().is_root();
    let id_map = (!root).then(|| IdMap {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
    });
    let child = spawn(&Spawn {
        exe: me.as_fd(),
        argv: vec![c"monoctl".into(), c"version".into()],
        env: vec![],
        fds: vec![],
        namespaces: if root {
            kinds
        } else {
            kinds | Namespaces::USER
        },
        id_map,
        cgroup: None,
    })?;
    // It prints a line into nothing and ends; reaping it is all that is left.
    mono_sys::process::wait(&child.pidfd)?;
    Ok(())
}

fn seccomp(actions: Result<&str, &io::Error>) -> Finding {
    const NEEDED: [&str; 3] = ["user_notif", "errno", "allow"];
    const REMEDY: &str = "use a kernel with CONFIG_SECCOMP_FILTER=y";
    match actions {
        Ok(text) => {
            let offered: Vec<_> = text.split_whitespace().collect();
            let absent: Vec<_> = NEEDED.iter().filter(|n| !offered.contains(n)).collect();
            if absent.is_empty() {
                Finding::ok("seccomp", "filters, with every action that is used")
            } else {
                let detail = format!("the kernel lacks the actions {absent:?}");
                Finding::missing("seccomp", detail, REMEDY)
            }
        }
        Err(e) => Finding::missing("seccomp", format!("no filters are offered ({e})"), REMEDY),
    }
}

/// The daemon reads there what is in force on its workers, and `monoctl top` what they use.
fn proc(mounts: &str, sees_others: bool) -> Finding {
    let mut lines = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    let Some(mount) = lines.find(|f| f.get(1) == Some(&"/proc") && f.get(2) == Some(&"proc"))
    else {
        return Finding::missing(
            "proc",
            "no proc file system is mounted at /proc",
            "mount -t proc proc /proc (in a container: let it have one)",
        );
    };
    let options = mount.get(3).copied().unwrap_or_default();
    let hidden = options
        .split(',')
        .find_map(|option| option.strip_prefix("hidepid="))
        .filter(|value| !matches!(*value, "0" | "off"));
    match (hidden, sees_others) {
        (None, true) => Finding::ok("proc", "mounted; processes of others can be seen"),
        (Some(value), _) => Finding::info(
            "proc",
            format!(
                "mounted with hidepid={value}: only root sees the workers of a daemon that is root"
            ),
        ),
        (None, false) => Finding::info(
            "proc",
            "mounted for some processes only; `monoctl top` shows what it can see",
        ),
    }
}

fn cgroup(own: &str, controllers: &str) -> Finding {
    let unified = own.lines().find_map(|line| line.strip_prefix("0::"));
    match (unified, controllers.trim()) {
        (Some(path), "") => Finding::info(
            "cgroup",
            format!("version 2 at {path}, no controllers seen"),
        ),
        (Some(path), some) => Finding::info(
            "cgroup",
            format!("version 2 at {path}; controllers: {some}"),
        ),
        (None, _) => Finding::info("cgroup", "no version 2; limits are each process's own"),
    }
}

/// MCP servers are often programs of Node; nothing of ours is.
fn program(name: &'static str, path: &OsStr) -> Finding {
    let executable = |file: &Path| {
        std::fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    let mut places = std::env::split_paths(path).map(|folder| folder.join(name));
    match places.find(|file| executable(file)) {
        Some(file) => Finding::info(name, file.display().to_string()),
        None => Finding::info(
            name,
            "not found; only MCP servers that are programs of Node need it",
        ),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::State;
    use super::*;
    use policy::Unmet;

    #[test]
    fn everything_unmet_comes_with_its_remedy() {
        let all = [
            Unmet::NoLandlock("Operation not supported (os error 95)".into()),
            Unmet::OldLandlock { found: 3 },
            Unmet::NoNotification("errno allow".into()),
            Unmet::Setting {
                setting: "user.max_user_namespaces",
                value: "0".into(),
                needed: "at least 64",
            },
        ];
        for unmet in all {
            let found = refused("landlock", &unmet);
            let remedy = found.remedy.unwrap();
            assert_eq!(found.state, State::Missing);
            assert!(!remedy.contains("docs/") && remedy.len() > 20, "{remedy}");
            assert_eq!(format!("{}: {remedy}", found.detail), unmet.to_string());
        }
    }

    #[test]
    fn kernels_are_told_apart() {
        for (release, state) in [
            ("6.12.0-rc1", State::Ok),
            ("6.18.44-x", State::Ok),
            ("7.0", State::Ok),
            ("6.11.9", State::Info),
            ("5.15.0-generic", State::Info),
            ("", State::Info),
            ("odd", State::Info),
        ] {
            assert_eq!(kernel(release).state, state, "{release}");
        }
    }

    #[test]
    fn seccomp_needs_every_action() {
        let all = "kill_process kill_thread trap errno user_notif trace log allow\n";
        assert_eq!(seccomp(Ok(all)).state, State::Ok);
        let old = seccomp(Ok("trap errno allow"));
        assert!(old.state == State::Missing && old.detail.contains("user_notif"));
        let none = io::Error::from(io::ErrorKind::NotFound);
        let none = seccomp(Err(&none));
        assert!(none.remedy.unwrap().contains("CONFIG_SECCOMP_FILTER"));
    }

    #[test]
    fn a_proc_that_hides_is_named() {
        let mounted = |options: &str| format!("a / ext4 rw 0 0\nproc /proc proc {options} 0 0\n");
        assert_eq!(proc(&mounted("rw,nosuid"), true).state, State::Ok);
        assert_eq!(proc(&mounted("rw,hidepid=0"), true).state, State::Ok);
        assert_eq!(proc(&mounted("rw,nosuid"), false).state, State::Info);
        let hiding = proc(&mounted("rw,hidepid=invisible"), true);
        assert!(hiding.state == State::Info && hiding.detail.contains("hidepid=invisible"));
        assert_eq!(proc("none / tmpfs rw 0 0", true).state, State::Missing);
    }

    #[test]
    fn cgroups_and_programs_are_for_information() {
        assert!(
            cgroup("0::/a.slice\n", "cpu memory pids\n")
                .detail
                .contains("memory")
        );
        assert!(cgroup("4:memory:/x\n", "").detail.contains("no version 2"));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("node");
        std::fs::write(&file, "").unwrap();
        let path = folder.path().as_os_str();
        assert!(program("node", path).detail.contains("not found"));
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(program("node", path).detail, file.display().to_string());
    }
}
