//! The second stage, in the worker: after its configuration, before the first hostile byte.

use crate::inforce::{InForce, OwnStatus};
use crate::profile::{Profile, ProfileError, Variant};
use crate::spec::SENTINEL;
use crate::words::VARIANT;
use ipc_proto::Role;
use std::fs::File;
use std::io;
use std::path::Path;
use thiserror::Error;

/// What holds for a worker once it serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement {
    /// What `/proc` says, read after the filter was installed.
    pub in_force: InForce,
    /// The kernel's Landlock ABI if a file that no profile grants could not be opened; 0 when it
    /// could, so there is no domain.
    pub landlock: u32,
}

/// The second stage failed; the worker must end.
#[derive(Debug, Error)]
pub enum Stage2Error {
    /// The profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Reading what is in force.
    #[error("reading /proc/self/status: {0}")]
    Status(#[from] io::Error),
    /// Closing the process to debuggers.
    #[error("making the process not dumpable: {0}")]
    Dumpable(nix::Error),
    /// The filter.
    #[error("installing the second system-call filter: {0}")]
    Filter(#[from] seccompiler::Error),
}

/// Closes this process to debuggers and installs the role's second filter on all its threads.
/// Call it once, with descriptors for everything that the role will need in hand.
///
/// # Errors
/// [`Stage2Error`]; then the process is not confined as its profile says and must not go on.
pub fn apply(role: Role) -> Result<Confinement, Stage2Error> {
    let status = OwnStatus::open()?;
    let landlock = if landlock_domain() {
        mono_sys::landlock::abi().unwrap_or(0)
    } else {
        0
    };
    nix::sys::prctl::set_dumpable(false).map_err(Stage2Error::Dumpable)?;
    if let Some(filter) = Profile::of(role)?.stage2_filter(variant())? {
        // All threads: one that the runtime has started already must not stay behind.
        seccompiler::apply_filter_all_threads(&filter.assemble())?;
    }
    Ok(Confinement {
        in_force: status.read()?,
        landlock,
    })
}

/// True when a file that everyone may read can't be opened: only a Landlock domain does that.
/// Before the second filter, which may refuse to open anything.
fn landlock_domain() -> bool {
    // Landlock doesn't hide that a file exists. Without a view of its own there is no such file,
    // and the root directory is what no profile grants.
    let path = if Path::new(SENTINEL).exists() {
        SENTINEL
    } else {
        "/"
    };
    File::open(path).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// The variant that this process was started under. Without a word the narrowest.
fn variant() -> Variant {
    let words = std::env::var(VARIANT).unwrap_or_default();
    let has = |word| words.split(',').any(|known| known == word);
    Variant {
        network: has("network"),
        degraded: !has("isolated"),
    }
}
