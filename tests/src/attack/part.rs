//! The parts of the suite: what is attacked from where.

use crate::attack::actions;
use crate::attack::live::{AFTERWARDS, bridge, channel, control, edges, gateway, order, secrets};

/// What is attacked, with a table of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Everything around it, from inside a role's sandbox.
    Sandbox,
    /// The supervisor of a running daemon, from each of its workers.
    Supervisor,
    /// The owners and the reader of a run's channels, from a run.
    Owners,
    /// The gateway of a running daemon, from a process of its own user.
    Gateway,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Sandbox, Self::Supervisor, Self::Owners, Self::Gateway];

    /// For reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Supervisor => "supervisor",
            Self::Owners => "owners",
            Self::Gateway => "gateway",
        }
    }

    /// The file of its table, in the folder `tests/expected`.
    #[must_use]
    pub const fn file(self) -> &'static str {
        match self {
            Self::Sandbox => "attack.sandbox.txt",
            Self::Supervisor => "attack.supervisor.txt",
            Self::Owners => "attack.owners.txt",
            Self::Gateway => "attack.gateway.txt",
        }
    }

    /// Its table.
    pub(super) const fn text(self) -> &'static str {
        macro_rules! text {
            ($name:literal) => {
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/expected/", $name))
            };
        }
        match self {
            Self::Sandbox => text!("attack.sandbox.txt"),
            Self::Supervisor => text!("attack.supervisor.txt"),
            Self::Owners => text!("attack.owners.txt"),
            Self::Gateway => text!("attack.gateway.txt"),
        }
    }

    /// Whether its attacks have a meaning without a sandbox.
    pub(super) const fn has_control(self) -> bool {
        matches!(self, Self::Sandbox)
    }

    /// Its actions by group, in the order of the table.
    #[must_use]
    pub fn groups(self) -> Vec<(&'static str, Vec<String>)> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        match self {
            Self::Sandbox => {
                let group = |group: &actions::Group| {
                    let names = group.lists.iter().copied().flatten();
                    (
                        group.name,
                        names.map(|action| action.name.to_owned()).collect(),
                    )
                };
                actions::GROUPS.iter().map(group).collect()
            }
            Self::Supervisor => {
                let attacks = control::ATTACKS.iter().map(|attack| attack.name);
                vec![
                    ("ipc", attacks.map(str::to_owned).collect()),
                    ("runs", owned(&channel::NAMES)),
                    ("servers", owned(&bridge::NAMES)),
                    ("secrets", secrets::names()),
                ]
            }
            Self::Owners => vec![
                ("ipc", edges::names()),
                ("control", order::own_names()),
                ("afterwards", owned(&AFTERWARDS)),
            ],
            Self::Gateway => vec![
                ("strangers", gateway::names(gateway::STRANGERS)),
                ("members", gateway::names(gateway::MEMBERS)),
                ("afterwards", owned(&gateway::AFTERWARDS)),
            ],
        }
    }
}
