//! Everything that is tried, by group.

mod aliases;
mod calls;
mod code;
mod files;
mod metadata;
mod mounts;
mod network;
mod others;
mod own;
mod secrets;
mod sockets;

pub use secrets::search;

use crate::attack::facts::Facts;
use crate::attack::outcome::Outcome;

/// One thing to try.
#[derive(Debug, Clone, Copy)]
pub struct Action {
    /// Unique among all.
    pub name: &'static str,
    /// Tries it.
    pub run: fn(&Facts) -> Outcome,
}

/// Actions that belong together.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    /// For tables.
    pub name: &'static str,
    /// In the order in which they are tried: what harms the program itself comes late.
    pub lists: &'static [&'static [Action]],
}

/// All groups whose actions need nothing but a sandbox.
pub const GROUPS: &[Group] = &[
    Group {
        name: "files",
        lists: &[
            files::ACTIONS,
            aliases::ACTIONS,
            metadata::ACTIONS,
            code::ACTIONS,
        ],
    },
    Group {
        name: "processes",
        lists: &[others::ACTIONS, own::ACTIONS],
    },
    Group {
        name: "kernel",
        lists: &[mounts::ACTIONS, calls::ACTIONS],
    },
    Group {
        name: "network",
        lists: &[network::ACTIONS, sockets::ACTIONS],
    },
    Group {
        name: "secrets",
        lists: &[secrets::ACTIONS],
    },
];

/// All actions with their groups.
pub fn all() -> impl Iterator<Item = (&'static str, &'static Action)> {
    GROUPS.iter().flat_map(|group| {
        let actions = group.lists.iter().copied().flatten();
        actions.map(|action| (group.name, action))
    })
}

/// The action of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Action> {
    all()
        .map(|(_, action)| action)
        .find(|action| action.name == name)
}

const fn action(name: &'static str, run: fn(&Facts) -> Outcome) -> Action {
    Action { name, run }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn there_are_many_actions_and_each_has_a_name_of_its_own() {
        let names: Vec<_> = all().map(|(_, action)| action.name).collect();
        let distinct: BTreeSet<_> = names.iter().collect();
        assert_eq!(names.len(), distinct.len());
        assert!(names.len() >= 120, "{}", names.len());
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(names.iter().all(|name| name.chars().all(plain)));
    }
}
