//! Namespaces: sets of their kinds, leaving them, and their names.

use nix::fcntl::{OFlag, open};
use nix::sched::CloneFlags;
use nix::sys::stat::Mode;
use std::ffi::{CString, c_int};
use std::io;
use std::ops::BitOr;
use std::os::fd::{AsRawFd, OwnedFd};

/// A set of namespaces that a child gets for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Namespaces(u64);

impl Namespaces {
    /// No namespace of its own.
    pub const NONE: Self = Self(0);
    /// User ids and capabilities.
    pub const USER: Self = Self(libc::CLONE_NEWUSER as u64);
    /// Process ids; the child is process 1 of it.
    pub const PID: Self = Self(libc::CLONE_NEWPID as u64);
    /// Mounts.
    pub const MOUNT: Self = Self(libc::CLONE_NEWNS as u64);
    /// Network: empty, with a loopback interface that is down.
    pub const NET: Self = Self(libc::CLONE_NEWNET as u64);
    /// System V and POSIX IPC.
    pub const IPC: Self = Self(libc::CLONE_NEWIPC as u64);
    /// Host name.
    pub const UTS: Self = Self(libc::CLONE_NEWUTS as u64);

    /// True when every namespace of `other` is in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// As the kernel counts them.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The set without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// What is in both sets.
    #[must_use]
    pub const fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The set with these bits; `None` when one of them is no namespace of this list.
    pub const fn from_bits(bits: u64) -> Option<Self> {
        let all = Self::USER.0 | Self::PID.0 | Self::MOUNT.0 | Self::NET.0;
        let all = all | Self::IPC.0 | Self::UTS.0;
        if bits & !all == 0 {
            Some(Self(bits))
        } else {
            None
        }
    }
}

impl BitOr for Namespaces {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Leaves the namespaces of these kinds for new ones: with the calling thread where it is one of
/// many, which can't make mounts so. New mounts are a copy of those before, a new network is empty
/// with a loopback interface that is down. One of processes holds from the next child on.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`, `ENOSPC` at the system's limit; nothing was left then.
pub fn unshare(namespaces: Namespaces) -> io::Result<()> {
    let bits = c_int::try_from(namespaces.0).map_err(io::Error::other)?;
    Ok(nix::sched::unshare(CloneFlags::from_bits_retain(bits))?)
}

/// Kinds of namespaces, as `/proc/PID/ns` names them.
pub const KINDS: [&str; 7] = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];

/// The namespaces that this process is in, as the kernel names them, in the order of [`KINDS`].
///
/// # Errors
/// When `/proc` is not there.
pub fn own_namespaces() -> io::Result<Vec<String>> {
    own_namespaces_of(&KINDS)
}

/// As [`own_namespaces`], of these kinds and in their order.
///
/// # Errors
/// When `/proc` is not there, or knows no such kind.
pub fn own_namespaces_of(kinds: &[&str]) -> io::Result<Vec<String>> {
    namespaces_of("self", kinds)
}

/// The namespace of one kind that this process is in, as the kernel names it.
///
/// # Errors
/// When `/proc` is not there, or knows no such kind.
pub fn own_namespace(kind: &str) -> io::Result<String> {
    name_of(&namespaces_in("self")?, kind)
}

/// The namespaces of a process that differ from the caller's.
///
/// # Errors
/// When the process has ended, or is another user's and the caller has no `CAP_SYS_PTRACE`.
pub fn differing_namespaces(pid: i32) -> io::Result<Vec<&'static str>> {
    let (own, other) = (own_namespaces()?, namespaces_of(&pid.to_string(), &KINDS)?);
    let pairs = KINDS.into_iter().zip(own.iter().zip(&other));
    Ok(pairs
        .filter_map(|(kind, (own, other))| (own != other).then_some(kind))
        .collect())
}

fn namespaces_of(process: &str, kinds: &[&str]) -> io::Result<Vec<String>> {
    let folder = namespaces_in(process)?;
    kinds.iter().map(|kind| name_of(&folder, kind)).collect()
}

fn namespaces_in(process: &str) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    Ok(open(&*format!("/proc/{process}/ns"), flags, Mode::empty())?)
}

/// Longest name of a namespace: its kind and a number of 32 bits.
const MAX_NAME: usize = 32;

/// What the link of this kind says. Every start reads them, and what `std` and `nix` offer takes a
/// page from the allocator for each.
fn name_of(folder: &OwnedFd, kind: &str) -> io::Result<String> {
    let link = CString::new(kind)?;
    let mut name = [0_u8; MAX_NAME];
    // SAFETY: the path is null-terminated, the buffer is valid for its length.
    let length = unsafe {
        libc::readlinkat(
            folder.as_raw_fd(),
            link.as_ptr(),
            name.as_mut_ptr().cast(),
            name.len(),
        )
    };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    let name = name.get(..length).unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}
