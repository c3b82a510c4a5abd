//! What the launcher is told: a profile made concrete, in two parts. What all processes of one kind
//! have in common is made once; the rest comes with the request for each.

use crate::identity::Identity;
use crate::profile::Resource;
use ipc_proto::Role;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The launcher and the supervisor are one version or nothing.
pub const VERSION: u32 = 3;

/// What the processes of one kind have in common. A launcher is started with it, in a sealed memory
/// file, and makes it once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// [`VERSION`].
    pub version: u32,
    /// The namespaces of each process, as `mono_sys::process::Namespaces` counts them.
    pub namespaces: u64,
    /// There will be more than one process: what the next one needs can be made before it.
    pub stays: bool,
    /// User and group in a user namespace of its own.
    pub ids: Option<(u32, u32)>,
    /// Those of the supervisor, as the kernel names them, in the order of
    /// `mono_sys::process::KINDS`: only the launcher can compare.
    pub supervisors: Vec<String>,
    /// The file system that they see; `None` leaves the machine's (no namespaces).
    pub view: Option<View>,
    /// The first filter, as `seccomp::to_bytes` gives it.
    pub filter: Vec<u8>,
}

/// What one process is, beside what it has in common with others, in the order in which the
/// launcher does it.
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
    /// What its view has beside the common part, in an order in which each can be put in its place.
    pub own: Vec<Entry>,
    /// Brings up loopback in its own network namespace.
    pub loopback: bool,
    /// Who it becomes; `None` when it stays who started it.
    pub identity: Option<Identity>,
    /// Where it starts.
    pub directory: PathBuf,
    /// What Landlock allows; everything else that it handles is refused.
    pub landlock: Landlock,
    /// What is executed.
    pub program: Program,
    /// Arguments, beginning with the name.
    pub arguments: Vec<String>,
    /// The whole environment.
    pub environment: Vec<String>,
}

/// The common part of a file system: read-only for every process that sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// In an order in which each can be made: a place before what lies in it.
    pub entries: Vec<Entry>,
    /// Where what a process has for itself will be put.
    pub places: Vec<Place>,
    /// For ordinary programs: `/proc` shows the machine's public files too, and `/dev` has the
    /// usual links.
    pub for_programs: bool,
}

/// Something empty to mount on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Where.
    pub path: PathBuf,
    /// A directory, or a file.
    pub directory: bool,
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
    /// A file with this text, readable by all. One that a process has for itself lies in [`OWN`].
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

/// Where the texts are that a process has for itself; the common part has links to them.
pub const OWN: &str = "/.own";

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

/// Numbers of descriptors.
pub mod descriptor {
    use std::os::fd::RawFd;

    /// A worker's control socket.
    pub const CONTROL: RawFd = 3;
    /// The launcher's socket for requests (`crate::request`).
    pub const REQUESTS: RawFd = 3;
    /// The launcher's sealed memory file with the [`super::Base`].
    pub const BASE: RawFd = 4;
    /// A pidfd of the supervisor, for the launcher's processes to see whether it still lives.
    pub const SUPERVISOR: RawFd = 5;
}
