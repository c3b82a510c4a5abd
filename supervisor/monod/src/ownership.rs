//! Which user a process is.

use crate::input::ProcessId;
use ipc_proto::Role;
use policy::{Identity, SLOTS};
use std::collections::BTreeSet;

/// Who owns what when the daemon runs as root.
#[derive(Debug)]
pub(crate) struct Ownership {
    /// The daemon is root: every role has a user of its own.
    pub(crate) privileged: bool,
    workspace_group: Option<u32>,
}

impl Ownership {
    /// As root, who works on the workspace shares it by its group.
    pub(crate) fn new(privileged: bool, workspace_group: u32) -> Self {
        Self {
            privileged,
            workspace_group: privileged.then_some(workspace_group),
        }
    }

    /// User and group of a role's state.
    pub(crate) fn of(&self, role: Role) -> Option<(u32, u32)> {
        let identity = self.identity(role, 0)?;
        Some((identity.uid, identity.gid))
    }

    /// User and groups of a process of this role, `None` where all are the daemon's own user.
    pub(crate) fn identity(&self, role: Role, slot: u32) -> Option<Identity> {
        // Who works on the workspace shares it by its group; nobody else can.
        let shares = matches!(role, Role::Run | Role::McpServer | Role::Artifact);
        let group = self.workspace_group.filter(|_| shares);
        self.privileged
            .then(|| Identity::of(role, slot, policy::DEFAULT_BASE, group))
    }
}

/// Of the users of its role, the one that a process with this number has.
pub(crate) fn slot(id: ProcessId) -> u32 {
    u32::try_from(id.0 % u64::from(SLOTS)).unwrap_or(0)
}

/// The first number from here on with which a process has a user that none of these has: what a user
/// may use of the kernel (processes, watches, pipes) is counted for all of its processes together.
/// Where all users are taken they are shared again.
pub(crate) fn unshared(from: u64, living: impl Iterator<Item = ProcessId>) -> ProcessId {
    let taken: BTreeSet<u32> = living.map(slot).collect();
    let mut round = (from..from.saturating_add(SLOTS.into())).map(ProcessId);
    let free = |id: &ProcessId| !taken.contains(&slot(*id));
    round.find(free).unwrap_or(ProcessId(from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_live_at_once_share_no_user_before_there_are_as_many_as_users() {
        let mut living: Vec<ProcessId> = Vec::new();
        let mut next = 1;
        for _ in 0..SLOTS {
            // Others take numbers meanwhile, so that these come round to the same users.
            next += 5 * u64::from(SLOTS) - 1;
            let id = unshared(next, living.iter().copied());
            assert!(id.0 >= next && living.iter().all(|other| slot(*other) != slot(id)));
            next = id.0 + 1;
            living.push(id);
        }
        let shared = unshared(next, living.iter().copied());
        assert_eq!(shared, ProcessId(next));
        // The one that has ended leaves its user to the next.
        let ended = living.remove(17);
        assert_eq!(slot(unshared(next, living.iter().copied())), slot(ended));
    }
}
