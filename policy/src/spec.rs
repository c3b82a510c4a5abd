//! What the launcher is told: a profile made concrete for one process. It travels in a sealed
//! memory file, so that the launcher parses nothing that could still change.

use crate::identity::Identity;
use crate::profile::Resource;
use ipc_proto::Role;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The launcher and the supervisor are one version or nothing.
pub const VERSION: u32 = 1;

/// Everything that the launcher does, in the order in which it does it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// [`VERSION`].
    pub version: u32,
    /// The role, for messages.
    pub role: Role,
    /// File mode bits that new files never have.
    pub umask: u32,
    /// Limits; a hard limit that is lower already stays.
    pub limits: Vec<(Resource, u64)>,
    /// The file system that it sees; `None` leaves the machine's (no namespaces).
    pub view: Option<View>,
    /// Brings up loopback in its own network namespace.
    pub loopback: bool,
    /// Who it becomes; `None` when it stays who started it.
    pub identity: Option<Identity>,
    /// Where it starts.
    pub directory: PathBuf,
    /// What Landlock allows; everything else that it handles is refused.
    pub landlock: Landlock,
    /// The first filter, as `seccomp::to_bytes` gives it.
    pub filter: Vec<u8>,
    /// What is executed.
    pub program: Program,
    /// Arguments, beginning with the name.
    pub arguments: Vec<String>,
    /// The whole environment.
    pub environment: Vec<String>,
}

/// A file system made for one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// In an order in which each can be made: a place before what lies in it.
    pub entries: Vec<Entry>,
    /// For ordinary programs: `/proc` shows the machine's public files too, and `/dev` has the
    /// usual links.
    pub for_programs: bool,
}

/// One thing in a view. All paths are absolute and plain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// A symbolic link.
    Link {
        /// Where.
        path: PathBuf,
        /// What it says.
        target: PathBuf,
    },
    /// A file with this text, readable by all.
    Text {
        /// Where.
        path: PathBuf,
        /// What it holds.
        text: String,
    },
    /// A copy of the machine's file of the same path, at most [`MAX_COPY`] bytes; nothing when
    /// there is none.
    Copy {
        /// Where, on both sides.
        path: PathBuf,
    },
    /// A file or directory of the machine with all that is mounted beneath.
    Show {
        /// Where it is.
        source: PathBuf,
        /// Where it will be.
        path: PathBuf,
        /// A directory, or a file.
        directory: bool,
        /// Writable.
        write: bool,
        /// Programs in it can be executed.
        execute: bool,
        /// A device file.
        device: bool,
    },
    /// An empty file system in memory that anyone may write to.
    Temporary {
        /// Where.
        path: PathBuf,
        /// Its size in bytes.
        bytes: u64,
    },
    /// Something empty and closed over a part of what was shown before.
    Hide {
        /// Where.
        path: PathBuf,
        /// A directory, or a file.
        directory: bool,
    },
}

/// Bytes of a file that is copied into a view.
pub const MAX_COPY: u64 = 64 * 1024;

/// The file in every view that no profile grants: whoever can open it has no Landlock domain.
pub const SENTINEL: &str = "/.landlock";

/// What Landlock allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landlock {
    /// Rights by path, as the bits of `landlock::AccessFs`.
    pub paths: Vec<(PathBuf, u64)>,
    /// The TCP rights that are handled, which without any rule means refused; bits of
    /// `landlock::AccessNet`.
    pub refused_net: u64,
}

/// What is executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// The descriptor that was passed along.
    Descriptor,
    /// A path inside, or a plain name that is looked up in the environment's `PATH`.
    Named(PathBuf),
}

/// Numbers of the launcher's descriptors.
pub mod descriptor {
    use std::os::fd::RawFd;

    /// The worker's control socket; it keeps this number.
    pub const CONTROL: RawFd = 3;
    /// The sealed memory file with the spec.
    pub const SPEC: RawFd = 4;
    /// The worker's executable.
    pub const PROGRAM: RawFd = 5;
    /// A pidfd of the supervisor, to see whether it still lives.
    pub const SUPERVISOR: RawFd = 6;
    /// Takes the listener of the first filter to the supervisor (`crate::violation`).
    pub const VIOLATIONS: RawFd = 7;
}
