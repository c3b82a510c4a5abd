//! Which calls of a scene are disturbed, and how.

use super::Step;
use super::trace::{Action, Edge, Stop};
use nix::errno::Errno;
use nix::libc::{
    O_CREAT, SYS_fdatasync, SYS_fsync, SYS_ftruncate, SYS_getdents64, SYS_memfd_create,
    SYS_mkdirat, SYS_newfstatat, SYS_openat, SYS_pread64, SYS_pwrite64, SYS_read, SYS_renameat,
    SYS_renameat2, SYS_sync_file_range, SYS_syncfs, SYS_unlinkat, SYS_write,
};
use std::fmt;
use std::path::Path;

/// What the disk says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is full.
    Full,
    /// It can't be read or written.
    Broken,
}

impl Fault {
    const fn errno(self) -> Errno {
        match self {
            Self::Full => Errno::ENOSPC,
            Self::Broken => Errno::EIO,
        }
    }
}

/// One disturbance. Numbers count from 0: all calls, or those that can meet the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// Killed before the call.
    Before(usize, i64),
    /// Killed after the call.
    After(usize, i64),
    /// The call fails, and with `all` every later one that can.
    Fails {
        /// How.
        fault: Fault,
        /// Which.
        at: usize,
        /// Its number.
        call: i64,
        /// Every later one, too.
        all: bool,
    },
}

impl Point {
    /// How it disturbs.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Before(..) => "killed_before",
            Self::After(..) => "killed_after",
            Self::Fails {
                fault: Fault::Full,
                all: false,
                ..
            } => "full_once",
            Self::Fails {
                fault: Fault::Full,
                all: true,
                ..
            } => "full_from_here",
            Self::Fails {
                fault: Fault::Broken,
                all: false,
                ..
            } => "broken_once",
            Self::Fails {
                fault: Fault::Broken,
                all: true,
                ..
            } => "broken_from_here",
        }
    }

    /// The process is not killed.
    #[must_use]
    pub const fn is_fault(&self) -> bool {
        matches!(self, Self::Fails { .. })
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Before(at, call) | Self::After(at, call) | Self::Fails { at, call, .. }) = self;
        write!(f, "{} at {at} ({})", self.kind(), name(*call))
    }
}

/// The calls that the disk can refuse, by name.
const DISK: [(i64, &str); 17] = [
    (SYS_write, "write"),
    (SYS_pwrite64, "pwrite64"),
    (SYS_read, "read"),
    (SYS_pread64, "pread64"),
    (SYS_openat, "openat"),
    (SYS_mkdirat, "mkdirat"),
    (SYS_unlinkat, "unlinkat"),
    (SYS_renameat, "renameat"),
    (SYS_renameat2, "renameat2"),
    (SYS_fsync, "fsync"),
    (SYS_fdatasync, "fdatasync"),
    (SYS_sync_file_range, "sync_file_range"),
    (SYS_syncfs, "syncfs"),
    (SYS_ftruncate, "ftruncate"),
    (SYS_getdents64, "getdents64"),
    (SYS_newfstatat, "newfstatat"),
    (SYS_memfd_create, "memfd_create"),
];

fn name(call: i64) -> String {
    DISK.iter()
        .find(|(number, _)| *number == call)
        .map_or_else(|| format!("call {call}"), |(_, name)| (*name).to_owned())
}

/// True when it is a call that the disk sees, on something in the folder.
pub(super) fn is_on_disk(stop: &Stop, folder: &Path) -> bool {
    let known = DISK.iter().any(|(number, _)| *number == stop.call);
    let there = |file: String| Path::new(&file).starts_with(folder);
    known && stop.file(0).is_some_and(there)
}

/// True when the disk can answer this call with the fault. Pipes and the system's own files are
/// no disk of the owner's.
fn can_meet(fault: Fault, stop: &Stop, folder: &Path) -> bool {
    let on_disk = |argument| {
        stop.file(argument)
            .is_some_and(|file| Path::new(&file).starts_with(folder) || file.starts_with("/memfd:"))
    };
    // The names are not all constants of one pattern type, hence no `match`.
    let is = |calls: &[i64]| calls.contains(&stop.call);
    if is(&[
        SYS_write,
        SYS_pwrite64,
        SYS_ftruncate,
        SYS_fsync,
        SYS_fdatasync,
        SYS_sync_file_range,
        SYS_syncfs,
    ]) || is(&[SYS_mkdirat, SYS_renameat, SYS_renameat2])
    {
        return on_disk(0);
    }
    if stop.call == SYS_memfd_create {
        return true;
    }
    if stop.call == SYS_openat {
        let makes = stop.args[2] & O_CREAT as u64 != 0;
        return (makes || fault == Fault::Broken) && on_disk(0);
    }
    fault == Fault::Broken
        && is(&[
            SYS_read,
            SYS_pread64,
            SYS_unlinkat,
            SYS_getdents64,
            SYS_newfstatat,
        ])
        && on_disk(0)
}

/// A call of the undisturbed scene.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    call: i64,
    full: bool,
    broken: bool,
}

impl Record {
    pub(super) fn of(stop: &Stop, folder: &Path) -> Self {
        Self {
            call: stop.call,
            full: can_meet(Fault::Full, stop, folder),
            broken: can_meet(Fault::Broken, stop, folder),
        }
    }
}

/// Every point of a scene.
pub(super) fn of(record: &[Record]) -> Vec<Point> {
    let mut all = Vec::new();
    for (at, one) in record.iter().enumerate() {
        all.extend([Point::Before(at, one.call), Point::After(at, one.call)]);
    }
    for fault in [Fault::Full, Fault::Broken] {
        let meets = |one: &&Record| match fault {
            Fault::Full => one.full,
            Fault::Broken => one.broken,
        };
        for (at, one) in record.iter().filter(meets).enumerate() {
            let call = one.call;
            all.extend([false, true].map(|all| Point::Fails {
                fault,
                at,
                call,
                all,
            }));
        }
    }
    all
}

/// A call for who looks at the order.
pub(super) fn step(stop: &Stop) -> Step {
    let in_folder = |folder: usize, name: usize| {
        let folder = stop.file(folder).unwrap_or_default();
        format!("{folder}/{}", stop.text(name).unwrap_or_default())
    };
    let is = |calls: &[i64]| calls.contains(&stop.call);
    let paths = if is(&[SYS_renameat, SYS_renameat2]) {
        vec![in_folder(0, 1), in_folder(2, 3)]
    } else if is(&[SYS_openat, SYS_mkdirat, SYS_unlinkat, SYS_newfstatat]) {
        vec![in_folder(0, 1)]
    } else if DISK.iter().any(|(number, _)| *number == stop.call) {
        vec![stop.file(0).unwrap_or_default()]
    } else {
        vec![]
    };
    Step {
        call: stop.call,
        paths,
    }
}

/// Watches for the one call that is disturbed.
pub(super) struct Plan<'a> {
    point: Point,
    folder: &'a Path,
    seen: usize,
    /// The call after which the process is killed has been entered.
    armed: bool,
}

impl<'a> Plan<'a> {
    pub(super) fn new(point: Point, folder: &'a Path) -> Self {
        Self {
            point,
            folder,
            seen: 0,
            armed: false,
        }
    }

    pub(super) fn at(&mut self, stop: &Stop) -> Action {
        if stop.edge == Edge::Exit {
            // With several threads it may be another one's call that returns; as good a moment.
            return if self.armed {
                Action::Kill
            } else {
                Action::Pass
            };
        }
        let (at, counts) = match self.point {
            Point::Before(at, _) | Point::After(at, _) => (at, true),
            Point::Fails { fault, at, .. } => (at, can_meet(fault, stop, self.folder)),
        };
        if !counts {
            return Action::Pass;
        }
        let here = self.seen;
        self.seen += 1;
        match self.point {
            Point::Before(..) if here == at => Action::Kill,
            Point::After(..) => {
                self.armed |= here == at;
                Action::Pass
            }
            Point::Fails { fault, all, .. } if here == at || (all && here > at) => {
                Action::Fail(fault.errno())
            }
            _ => Action::Pass,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_killed_at_twice_and_those_of_the_disk_fail_in_each_way() {
        let record = |call, full, broken| Record { call, full, broken };
        let points = of(&[record(SYS_write, true, true), record(SYS_read, false, true)]);
        let count = |kind: &str| points.iter().filter(|point| point.kind() == kind).count();
        assert_eq!((count("killed_before"), count("killed_after")), (2, 2));
        assert_eq!((count("full_once"), count("full_from_here")), (1, 1));
        assert_eq!((count("broken_once"), count("broken_from_here")), (2, 2));
        assert_eq!(points[3].to_string(), "killed_after at 1 (read)");
    }
}
