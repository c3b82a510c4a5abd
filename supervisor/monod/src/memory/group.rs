//! Control groups of version 2, made in the part of the hierarchy that the daemon has to itself
//! (cgroup-v2 of the kernel's admin guide, "Delegation" and "Memory").

use ipc_proto::Role;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The daemon's own place: a group with children has no processes itself.
const SUPERVISOR: &str = "supervisor";
/// Where a group says what controllers its children have.
const CHILDREN: &str = "cgroup.subtree_control";
const PROCESSES: &str = "cgroup.procs";

/// The groups of runs and servers.
#[derive(Debug)]
pub(crate) struct Groups {
    base: PathBuf,
}

/// The folder of the process whose folder in `/proc` this is.
///
/// # Errors
/// Why there is none, for people.
pub(super) fn own(process: &Path) -> Result<PathBuf, String> {
    let read = |name| {
        fs::read_to_string(process.join(name))
            .map_err(|e| format!("{}/{name} can't be read: {e}", process.display()))
    };
    let (groups, mounts) = (read("cgroup")?, read("mountinfo")?);
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let group = group.ok_or("this system has no control groups of version 2")?;
    mounts
        .lines()
        .filter_map(|line| mounted(line, group))
        .next_back()
        .ok_or_else(|| format!("the control group {group} is not mounted here"))
}

/// The folder of a group in one line of `mountinfo`, if that mount has it: see proc(5).
fn mounted(line: &str, group: &str) -> Option<PathBuf> {
    let (before, after) = line.split_once(" - ")?;
    if after.split(' ').next() != Some("cgroup2") {
        return None;
    }
    let mut fields = before.split(' ').skip(3);
    let (root, place) = (fields.next()?, fields.next()?);
    let below = Path::new(group).strip_prefix(root).ok()?;
    // Without the slash that joining nothing would add.
    Some(Path::new(place).join(below).components().collect())
}

fn has(list: &Path, word: &str) -> bool {
    fs::read_to_string(list).is_ok_and(|text| text.split_whitespace().any(|w| w == word))
}

impl Groups {
    /// Moves this process into a leaf of its own group, so that runs and servers can have groups
    /// beside it. Leaves everything as it was when that can't be done.
    ///
    /// # Errors
    /// Why not, for people.
    pub(super) fn take(own: &Path) -> Result<Self, String> {
        // A daemon that was replaced by another in the same process is there already.
        if own.file_name().is_some_and(|name| name == SUPERVISOR)
            && let Some(base) = own.parent()
            && has(&base.join(CHILDREN), "memory")
        {
            return Ok(Self::cleared(base));
        }
        let shown = own.display();
        if !has(&own.join("cgroup.controllers"), "memory") {
            return Err(format!(
                "the control group {shown} has no memory controller"
            ));
        }
        let me = std::process::id().to_string();
        let others = fs::read_to_string(own.join(PROCESSES))
            .map_err(|e| format!("the processes of the control group {shown} can't be read: {e}"))?
            .lines()
            .any(|pid| pid != me);
        if others {
            return Err(format!(
                "the control group {shown} has other processes, too"
            ));
        }
        let leaf = own.join(SUPERVISOR);
        let refused = |what: &str, e: &io::Error| {
            format!("the control group {shown} is not delegated to the daemon: {what}: {e}")
        };
        match fs::create_dir(&leaf) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                return Err(refused("no group can be made in it", &e));
            }
            _ => {}
        }
        let moved = fs::write(leaf.join(PROCESSES), &me)
            .and_then(|()| fs::write(own.join(CHILDREN), "+memory"));
        if let Err(e) = moved {
            let _ = fs::write(own.join(PROCESSES), &me);
            let _ = fs::remove_dir(&leaf);
            return Err(refused("its groups can't be given the controller", &e));
        }
        // For who looks at the groups; the number of processes has its own limit.
        let _ = fs::write(own.join(CHILDREN), "+pids");
        Ok(Self::cleared(own))
    }

    /// Removes what an earlier daemon left behind. Groups with processes stay, and so does what
    /// systemd makes there for commands of the unit.
    fn cleared(base: &Path) -> Self {
        for entry in fs::read_dir(base).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let mut bounded = [Role::Run, Role::McpServer].into_iter();
            if bounded.any(|role| name.starts_with(&format!("{role}-"))) {
                let _ = fs::remove_dir(entry.path());
            }
        }
        Self {
            base: base.to_owned(),
        }
    }

    /// A group of which every process ends when together they use more than `limit` bytes.
    ///
    /// # Errors
    /// What the kernel says; no group is left then.
    pub(super) fn make(&self, name: &str, limit: u64) -> io::Result<PathBuf> {
        let group = self.base.join(name);
        // One of that name is of an earlier process, and empty.
        let _ = fs::remove_dir(&group);
        fs::create_dir(&group)?;
        if let Err(e) = limit_to(&group, limit) {
            let _ = fs::remove_dir(&group);
            return Err(e);
        }
        Ok(group)
    }
}

fn limit_to(group: &Path, bytes: u64) -> io::Result<()> {
    fs::write(group.join("memory.max"), bytes.to_string())?;
    // Not there on a system without swap.
    let swap = group.join("memory.swap.max");
    if swap.exists() {
        fs::write(swap, "0")?;
    }
    // All of it or none: a turn that lost one of its processes would go on with half a result.
    fs::write(group.join("memory.oom.group"), "1")
}

/// True when the kernel has ended the group's processes because of the group's own limit, and not
/// because the whole machine had no memory left.
pub(super) fn was_ended(group: &Path) -> bool {
    let events = fs::read_to_string(group.join("memory.events")).unwrap_or_default();
    let count = |name: &str| {
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
        events.lines().find_map(value).unwrap_or(0_u64)
    };
    count("oom_kill") > 0 && count("oom") > 0
}

/// Bytes that the group uses.
pub(super) fn used(group: &Path) -> Option<u64> {
    let text = fs::read_to_string(group.join("memory.current")).ok()?;
    text.trim().parse().ok()
}

/// Removes the group of a process that has ended, and ends what it left behind.
pub(super) fn remove(group: &Path) -> io::Result<()> {
    match fs::remove_dir(group) {
        Err(e) if e.kind() == io::ErrorKind::ResourceBusy => {
            fs::write(group.join("cgroup.kill"), "1")?;
            fs::remove_dir(group)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tempfile::TempDir;

    /// A folder that looks like a group with this process in it.
    fn group(controllers: &str, processes: &str) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cgroup.controllers"), controllers).unwrap();
        fs::write(folder.path().join(PROCESSES), processes).unwrap();
        fs::write(folder.path().join(CHILDREN), "").unwrap();
        folder
    }

    fn me() -> String {
        format!("{}\n", std::process::id())
    }

    fn text(folder: &Path, name: &str) -> String {
        fs::read_to_string(folder.join(name)).unwrap()
    }

    #[test]
    fn the_own_group_is_found_below_its_mount() {
        let find = |groups: &str, mounts: &str| {
            let process = tempfile::tempdir().unwrap();
            fs::write(process.path().join("cgroup"), groups).unwrap();
            fs::write(process.path().join("mountinfo"), mounts).unwrap();
            own(process.path()).map(PathBuf::into_os_string)
        };
        let whole = "25 1 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        let unit = "0::/system.slice/monod.service\n";
        let expected = "/sys/fs/cgroup/system.slice/monod.service";
        assert_eq!(find(unit, whole).unwrap(), expected);
        // The unit's own part, shown again so that it can be written to.
        let part = format!(
            "{whole}80 25 0:22 /system.slice/monod.service \
             /sys/fs/cgroup/system.slice/monod.service rw - cgroup2 cgroup2 rw\n"
        );
        assert_eq!(find(unit, &part).unwrap(), expected);
        // In a namespace of its own, and on a hybrid system.
        let hybrid = "26 25 0:23 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      27 25 0:24 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        assert_eq!(
            find("4:memory:/x\n0::/\n", hybrid).unwrap(),
            "/sys/fs/cgroup/unified"
        );
        let elsewhere = "25 1 0:22 /other /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert!(find(unit, elsewhere).unwrap_err().contains("not mounted"));
        assert!(
            find("4:memory:/x\n", whole)
                .unwrap_err()
                .contains("version 2")
        );
    }

    #[test]
    fn a_delegated_group_is_taken_and_the_daemon_moves_into_its_leaf() {
        let own = group("cpu memory pids\n", &me());
        for left in ["run-7", "mcp-server-9", ".control"] {
            fs::create_dir(own.path().join(left)).unwrap();
        }
        let groups = Groups::take(own.path()).unwrap();
        let leaf = own.path().join(SUPERVISOR);
        assert_eq!(text(&leaf, PROCESSES), me().trim());
        let there =
            ["run-7", "mcp-server-9", ".control"].map(|name| own.path().join(name).exists());
        assert_eq!(there, [false, false, true], "left by an earlier one");

        // The kernel adds to the list what is written with a plus.
        fs::write(own.path().join(CHILDREN), "memory pids\n").unwrap();
        let made = groups.make("run-8", 64 << 20).unwrap();
        assert_eq!(text(&made, "memory.max"), "67108864");
        assert_eq!(text(&made, "memory.oom.group"), "1");
        assert!(!made.join("memory.swap.max").exists());
        // The next daemon in the same process finds the same place, and what is in use.
        let again = Groups::take(&leaf).unwrap();
        assert_eq!(again.base, groups.base);
        assert!(made.exists());
    }

    #[test]
    fn what_is_not_the_daemons_alone_is_left_as_it_was() {
        let without = group("cpu pids\n", &me());
        let shared = group("memory\n", &format!("{}1\n", me()));
        let closed = group("memory\n", &me());
        // The kernel refuses to give the controller to the children of a group with processes.
        fs::remove_file(closed.path().join(CHILDREN)).unwrap();
        fs::create_dir(closed.path().join(CHILDREN)).unwrap();
        for (folder, reason) in [
            (&without, "memory controller"),
            (&shared, "other processes"),
            (&closed, "not delegated"),
        ] {
            let refused = Groups::take(folder.path()).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
            let processes = text(folder.path(), PROCESSES);
            assert!(processes.starts_with(me().trim()), "{processes}");
        }
        for folder in [&without, &shared] {
            assert!(!folder.path().join(SUPERVISOR).exists());
        }
        // A leaf whose parent gives no controller away is no place of ours either.
        let leaf = without.path().join(SUPERVISOR);
        fs::create_dir(&leaf).unwrap();
        assert!(Groups::take(&leaf).is_err());
    }

    #[test]
    fn the_kernels_reason_is_told_from_an_end_for_lack_of_memory_everywhere() {
        let folder = tempfile::tempdir().unwrap();
        for (events, expected) in [
            (
                "low 0\nhigh 0\nmax 9\noom 1\noom_kill 3\noom_group_kill 1\n",
                true,
            ),
            ("max 0\noom 0\noom_kill 1\noom_group_kill 1\n", false),
            ("max 9\noom 1\noom_kill 0\n", false),
            ("", false),
        ] {
            fs::write(folder.path().join("memory.events"), events).unwrap();
            assert_eq!(was_ended(folder.path()), expected, "{events}");
        }
        fs::write(folder.path().join("memory.current"), "4096\n").unwrap();
        assert_eq!(used(folder.path()), Some(4096));
        assert!(!was_ended(Path::new("/nonexistent")) && used(Path::new("/nonexistent")).is_none());
    }

    #[test]
    fn swap_is_no_way_around_the_limit() {
        let made = tempfile::tempdir().unwrap();
        fs::write(made.path().join("memory.swap.max"), "max").unwrap();
        limit_to(made.path(), 5).unwrap();
        assert_eq!(text(made.path(), "memory.swap.max"), "0");
        assert_eq!(text(made.path(), "memory.max"), "5");
    }

    #[test]
    fn a_group_that_cannot_be_limited_is_none_and_one_that_is_gone_is_removed() {
        let own = group("memory\n", &me());
        let groups = Groups::take(own.path()).unwrap();
        // Something else of that name: nothing is started without its limit.
        fs::write(own.path().join("run-1"), "").unwrap();
        assert!(groups.make("run-1", 1).is_err());
        remove(Path::new("/nonexistent/group")).unwrap();
    }
}
