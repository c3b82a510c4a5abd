//! Where the hostile program is put: every role, and a role twice where its profile has two
//! variants.

use ipc_proto::Role;
use std::fmt;

/// A role under one variant of its profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seat {
    /// The role.
    pub role: Role,
    /// With the machine's network, where the configuration decides that.
    pub network: bool,
}

impl Seat {
    /// All of them.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let roles = Role::ALL.into_iter().filter(|role| *role != Role::Monod);
        let variants = |role| match role {
            Role::AppBridge | Role::McpServer => vec![false, true],
            _ => vec![false],
        };
        roles
            .flat_map(|role| {
                variants(role)
                    .into_iter()
                    .map(move |network| Self { role, network })
            })
            .collect()
    }

    /// Runs and servers work in a workspace with a scratch directory; the others have a state
    /// directory or nothing.
    #[must_use]
    pub fn is_tool(self) -> bool {
        matches!(self.role, Role::Run | Role::McpServer)
    }
}

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let network = if self.network { "+network" } else { "" };
        write!(f, "{}{network}", self.role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_but_the_supervisor_has_a_seat() {
        let names: Vec<_> = Seat::all().iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), Role::ALL.len() - 1 + 2);
        assert!(names.contains(&"mcp-server+network".to_owned()));
        assert!(!names.contains(&"monod".to_owned()));
    }
}
