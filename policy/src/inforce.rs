//! What the kernel enforces on a process, as `/proc` says it; not what was asked for.

use serde::Serialize;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

/// The confinement of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct InForce {
    /// 0 none, 1 strict, 2 filter.
    pub seccomp: u32,
    /// Filters stacked.
    pub filters: u32,
    /// It can't gain privileges by an exec.
    pub no_new_privs: bool,
    /// Effective user id, as the reader sees it.
    pub uid: u32,
    /// Effective group id, as the reader sees it.
    pub gid: u32,
    /// Effective capabilities as bits.
    pub capabilities: u64,
    /// Capabilities that it could ever have again: permitted, inheritable, bounding, ambient.
    pub obtainable: u64,
    /// Namespaces that differ from the reader's. `None` when the kernel doesn't let the reader
    /// look.
    pub namespaces: Option<Vec<&'static str>>,
}

/// Largest status file that is read; real ones have under 2 KiB.
const MAX_STATUS: usize = 16 * 1024;

/// The confinement of a process by its id in the reader's pid namespace.
///
/// # Errors
/// When the process has ended or `/proc` is not there.
pub fn of(pid: i32) -> io::Result<InForce> {
    let status = File::open(format!("/proc/{pid}/status"))?;
    let mut found = parse(&read(&status)?)?;
    found.namespaces = mono_sys::process::differing_namespaces(pid).ok();
    Ok(found)
}

/// A process's own status, which can still be read when it can't open files any more.
#[derive(Debug)]
pub struct OwnStatus(File);

impl OwnStatus {
    /// Opens it.
    ///
    /// # Errors
    /// When `/proc` is not there.
    pub fn open() -> io::Result<Self> {
        File::open("/proc/self/status").map(OwnStatus)
    }

    /// What is in force now. Namespaces are not told: only another process can compare them.
    ///
    /// # Errors
    /// When the kernel's text is not as expected.
    pub fn read(&self) -> io::Result<InForce> {
        parse(&read(&self.0)?)
    }
}

fn read(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; MAX_STATUS];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    bytes.truncate(filled);
    String::from_utf8(bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

fn parse(status: &str) -> io::Result<InForce> {
    let missing = |name: &str| {
        io::Error::new(
            ErrorKind::InvalidData,
            format!("/proc status without a valid `{name}`"),
        )
    };
    let field = |name: &str| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim).ok_or_else(|| missing(name))
    };
    let number = |name: &str| field(name)?.parse::<u32>().map_err(|_| missing(name));
    let bits = |name: &str| u64::from_str_radix(field(name)?, 16).map_err(|_| missing(name));
    // Real, effective, saved, file system.
    let effective = |name: &str| {
        let id = field(name)?
            .split_whitespace()
            .nth(1)
            .and_then(|id| id.parse().ok());
        id.ok_or_else(|| missing(name))
    };
    Ok(InForce {
        seccomp: number("Seccomp")?,
        filters: number("Seccomp_filters")?,
        no_new_privs: number("NoNewPrivs")? == 1,
        uid: effective("Uid")?,
        gid: effective("Gid")?,
        capabilities: bits("CapEff")?,
        obtainable: bits("CapPrm")? | bits("CapInh")? | bits("CapBnd")? | bits("CapAmb")?,
        namespaces: None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const STATUS: &str = "Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nCapInh:\t01\nCapPrm:\t02\n\
        CapEff:\t0000000000000010\nCapBnd:\t04\nCapAmb:\t08\nNoNewPrivs:\t1\nSeccomp:\t2\n\
        Seccomp_filters:\t3\n";

    #[test]
    fn the_kernels_text_is_read_field_by_field() {
        let found = parse(STATUS).unwrap();
        let expected = InForce {
            seccomp: 2,
            filters: 3,
            no_new_privs: true,
            uid: 2,
            gid: 6,
            capabilities: 16,
            obtainable: 15,
            namespaces: None,
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_missing_or_strange_field_is_an_error_and_no_default() {
        for line in STATUS.lines().skip(1) {
            let name = line.split(':').next().unwrap();
            assert!(
                parse(&STATUS.replace(line, ""))
                    .unwrap_err()
                    .to_string()
                    .contains(name)
            );
            assert!(
                parse(&STATUS.replace(line, &format!("{name}:\tnone"))).is_err(),
                "{name}"
            );
        }
    }

    #[test]
    fn this_process_shares_its_own_namespaces() {
        let own = of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert_eq!(own.namespaces.as_deref(), Some(&[][..]));
        assert_eq!(OwnStatus::open().unwrap().read().unwrap().uid, own.uid);
    }
}
