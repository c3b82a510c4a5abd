//! The executables, opened once: a package upgrade under a running supervisor can't mix versions.

use ipc_proto::Role;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// An executable that can't be used.
#[derive(Debug, thiserror::Error)]
#[error("can't open the program {}: {source}; reinstall, or point --libexec at the folder that holds it", path.display())]
pub(crate) struct ProgramError {
    path: PathBuf,
    source: nix::Error,
}

/// The opened programs.
#[derive(Debug)]
pub(crate) struct Programs {
    /// `mono-launch`.
    pub(crate) launch: OwnedFd,
    workers: BTreeMap<&'static str, OwnedFd>,
}

/// Which binary implements a role.
fn binary(role: Role) -> Option<&'static str> {
    Some(match role {
        Role::Store => "mono-store",
        Role::Artifact => "mono-artifact",
        Role::Egress => "mono-egress",
        Role::AppBridge => "mono-app-bridge",
        Role::Continuation => "mono-continuation",
        Role::Run => "mono-run",
        Role::Metrics => "mono-metrics",
        role if role.is_channel() => "mono-channel",
        _ => return None,
    })
}

impl Programs {
    /// Opens every program in `folder`.
    pub(crate) fn open(folder: &Path) -> Result<Self, ProgramError> {
        let one = |name: &str| {
            let path = folder.join(name);
            open(&path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
                .map_err(|source| ProgramError { path, source })
        };
        let mut workers = BTreeMap::new();
        for name in Role::ALL.into_iter().filter_map(binary) {
            if !workers.contains_key(name) {
                workers.insert(name, one(name)?);
            }
        }
        Ok(Self {
            launch: one("mono-launch")?,
            workers,
        })
    }

    /// The program of a role.
    pub(crate) fn worker(&self, role: Role) -> Option<&OwnedFd> {
        self.workers.get(binary(role)?)
    }
}
