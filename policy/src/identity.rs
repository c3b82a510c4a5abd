//! Which user a process runs as when the supervisor is privileged: one for each role, and for
//! runs one for each slot, so that they can't touch each other.

use ipc_proto::Role;
use serde::{Deserialize, Serialize};

/// The user and the groups of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Real, effective and saved user.
    pub uid: u32,
    /// Real, effective and saved group.
    pub gid: u32,
    /// Supplementary groups: the one that shares the workspace, or none.
    pub groups: Vec<u32>,
}

/// The first user id when the configuration says nothing: above what distributions hand out to
/// services and people and what systemd maps into containers (60577), below its dynamic users
/// (61184 to 65519). All 256 lie in a range that nobody else hands out.
pub const DEFAULT_BASE: u32 = 60_800;

/// Runs (and MCP servers) beyond this number at once share their users again.
pub const SLOTS: u32 = 64;

impl Identity {
    /// The user of a role: `base` and the role's place in [`Role::ALL`]. A run or an MCP server
    /// also has a slot, taken modulo [`SLOTS`]. The group has the user's number. All of it lies in
    /// `base..base + 256`.
    pub fn of(role: Role, slot: u32, base: u32, workspace_group: Option<u32>) -> Self {
        let place = Role::ALL
            .iter()
            .position(|known| *known == role)
            .unwrap_or(0);
        let place = u32::try_from(place).unwrap_or(0);
        let slot = slot % SLOTS;
        let uid = match role {
            Role::Run => base + 64 + slot,
            Role::McpServer => base + 128 + slot,
            _ => base + place,
        };
        Self {
            uid,
            gid: uid,
            groups: workspace_group.into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_processes_that_live_at_once_share_a_user_and_none_is_root() {
        let mut seen = BTreeSet::new();
        // Else a service with `DynamicUser=` could become a worker's user.
        const { assert!(DEFAULT_BASE > 60_577 && DEFAULT_BASE + 256 <= 61_184) };
        for role in Role::ALL {
            let slots = if matches!(role, Role::Run | Role::McpServer) {
                SLOTS
            } else {
                1
            };
            for slot in 0..slots {
                let identity = Identity::of(role, slot, DEFAULT_BASE, Some(1000));
                assert!((DEFAULT_BASE..DEFAULT_BASE + 256).contains(&identity.uid));
                assert!(seen.insert(identity.uid), "{role} {slot}");
                assert_eq!(identity.groups, [1000]);
            }
        }
        assert_eq!(
            Identity::of(Role::Run, SLOTS, 1, None),
            Identity::of(Role::Run, 0, 1, None)
        );
    }
}
