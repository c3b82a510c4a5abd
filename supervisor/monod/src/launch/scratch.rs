//! The scratch directory that a process has for itself, and its names.

use super::{LaunchError, Launcher, io_error};
use crate::input::ProcessId;
use crate::ownership::slot;
use crate::process::Process;
use crate::request::{Paths, RunFolders};
use ipc_proto::{Role, RunId};
use nix::unistd::{Gid, Uid, chown};
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What was made for one run worker on the disk.
pub(crate) struct Folders {
    pub(crate) scratch: PathBuf,
    /// In the scratch folder.
    pub(crate) shared: RunFolders,
}

impl Launcher {
    /// The path by which a run knows its scratch directory.
    pub(crate) fn scratch_inside(&self, scratch: &Path) -> String {
        let inside = if self.degraded {
            scratch
        } else {
            Path::new(crate::compose::SCRATCH)
        };
        inside.to_string_lossy().into_owned()
    }

    /// A directory of its own for a process that is about to start.
    pub(crate) fn make_scratch(&self, id: ProcessId) -> Result<PathBuf, LaunchError> {
        let path = pool_path(&self.places.scratch, id);
        let failed = || format!("the scratch directory {}", path.display());
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(io_error(failed()))?;
        if let Some(identity) = self.ownership.identity(Role::Run, 0) {
            // Artifact reaches what a run publishes from its scratch by the workspace's group.
            let group = identity.groups.first().copied().unwrap_or(identity.gid);
            let owner = self
                .ownership
                .identity(Role::Run, slot(id))
                .map_or(identity.uid, |i| i.uid);
            chown(
                &path,
                Some(Uid::from_raw(owner)),
                Some(Gid::from_raw(group)),
            )
            .map_err(|e| io_error(failed())(e.into()))?;
            std::fs::set_permissions(&path, Permissions::from_mode(0o2770))
                .map_err(io_error(failed()))?;
        }
        Ok(path)
    }

    /// Makes what a run shares with its servers.
    pub(super) fn make_run_folders(
        &self,
        scratch: &Path,
        id: ProcessId,
    ) -> Result<RunFolders, LaunchError> {
        let owner = self.ownership.identity(Role::Run, slot(id));
        let made = RunFolders::make(scratch, owner.map(|owner| owner.uid));
        made.map_err(io_error(format!("folders in {}", scratch.display())))
    }

    /// Where a run, and each of its servers, has the run's scratch directory.
    pub(crate) fn paths_of_run(&self, run: ProcessId, scratch: &Path) -> Paths {
        if self.degraded {
            let base = scratch.parent().unwrap_or(scratch);
            return Paths {
                inside: pool_path(base, run),
                canonical: scratch.to_owned(),
            };
        }
        Paths {
            inside: crate::compose::SCRATCH.into(),
            canonical: crate::compose::SCRATCH.into(),
        }
    }

    /// Names a run worker's scratch after its run, which is where `artifact` looks for it.
    pub(crate) fn name_scratch(&self, process: Option<&mut Process>, run: &RunId) {
        let Some(path) = process.and_then(|p| p.scratch.as_mut()) else {
            return;
        };
        let named = path.with_file_name(run.as_str());
        match std::fs::rename(&*path, &named) {
            Ok(()) => {
                // Without a view of its own the run knows it by the path that it started with.
                if self.degraded
                    && let Err(e) = std::os::unix::fs::symlink(&named, &*path)
                {
                    tracing::warn!(run = %run, "its scratch loses its earlier name: {e}");
                }
                *path = named;
            }
            Err(e) => tracing::warn!(run = %run, "its scratch can't be named: {e}"),
        }
    }
}

/// Where a scratch directory is before it has a run's name.
fn pool_path(base: &Path, id: ProcessId) -> PathBuf {
    base.join(format!("pool-{}", id.0))
}

/// Removes a scratch directory on a thread of its own: a run may have left many files. One of a run goes
/// only while it is the one that was made.
pub(crate) fn remove_scratch(
    path: PathBuf,
    id: ProcessId,
    made: Option<RunFolders>,
) -> tokio::task::JoinHandle<()> {
    tokio::task::spawn_blocking(move || remove(&path, id, made))
}

pub(super) fn remove(path: &Path, id: ProcessId, made: Option<RunFolders>) {
    if let Some(base) = path.parent() {
        // The link of a degraded run; usually there is none.
        let _ = std::fs::remove_file(pool_path(base, id));
    }
    if made.is_some_and(|made| !made.is_at(path)) {
        tracing::warn!("{} is not what was made there, and stays", path.display());
        return;
    }
    if let Err(e) = std::fs::remove_dir_all(path)
        && e.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!("{} can't be removed: {e}", path.display());
    }
}
