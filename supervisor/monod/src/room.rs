//! Who may have how many durable bytes: reply files and apps share one ceiling, and their owners
//! don't trust each other (spec s0, "Lifetime and limits"). The account is here, where both can be
//! told apart and whose life spans theirs; what an owner keeps stays counted while it is away.
//!
//! An owner says what it holds and what it wants. What is held is a fact and always granted; more
//! only below the ceiling, and only once the other one has said what it holds.

use crate::input::ProcessId;
use crate::supervisor::Supervisor;
use ipc_proto::Role;
use ipc_proto::edges::control::ToWorker;
use ipc_proto::reply::{AUDIT_RESERVE, DURABLE_CEILING};
use serde::{Deserialize, Serialize};

/// What one owner may have, and which of its processes said so last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Part {
    granted: u64,
    process: u64,
}

/// The account.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rooms {
    files: Option<Part>,
    apps: Option<Part>,
}

impl Rooms {
    /// What the owner may have from now on. 0 for a process that was replaced: what it held is its
    /// successor's.
    fn ask(&mut self, role: Role, process: u64, held: u64, wanted: u64) -> u64 {
        let files = role == Role::Artifact;
        let (own, other) = match files {
            true => (&mut self.files, self.apps),
            false => (&mut self.apps, self.files),
        };
        if own.is_some_and(|part| part.process > process) {
            return 0;
        }
        // Nobody can hold more than all, whatever it says.
        let held = held.min(DURABLE_CEILING);
        let granted = match other {
            None => held,
            Some(Part { granted, .. }) => {
                // The audit's part is never given to files, whether apps are on or not.
                let theirs = if files {
                    granted.max(AUDIT_RESERVE)
                } else {
                    granted
                };
                held.max(wanted.min(DURABLE_CEILING.saturating_sub(theirs)))
            }
        };
        *own = Some(Part { granted, process });
        granted
    }
}

impl Supervisor {
    /// An owner of rich replies wants room, or gives some back.
    pub(crate) fn grant_room(&mut self, id: ProcessId, request: u64, held: u64, wanted: u64) {
        let Some(process) = self.processes.get(&id) else {
            return;
        };
        let granted = self.rooms.ask(process.role, id.0, held, wanted);
        tracing::debug!(role = %process.role, held, wanted, granted, "room for durable bytes");
        process.send(request, ToWorker::Room { granted }, vec![]);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const FILES: Role = Role::Artifact;
    const APPS: Role = Role::AppBridge;
    const MIB: u64 = 1 << 20;

    #[test]
    fn nobody_grows_before_the_other_has_said_what_it_holds() {
        let mut rooms = Rooms::default();
        assert_eq!(rooms.ask(FILES, 1, 7, 9 * MIB), 7);
        assert_eq!(rooms.ask(FILES, 1, 7, 9 * MIB), 7);
        assert_eq!(rooms.ask(APPS, 2, MIB, MIB), MIB);
        assert_eq!(rooms.ask(FILES, 1, 7, 9 * MIB), 9 * MIB);
    }

    #[test]
    fn both_together_have_exactly_the_ceiling_and_files_never_the_audits_part() {
        let mut rooms = Rooms::default();
        rooms.ask(APPS, 2, 0, 0);
        assert_eq!(rooms.ask(FILES, 1, 0, 0), 0);
        assert_eq!(rooms.ask(FILES, 1, 0, u64::MAX), 255 * MIB);
        assert_eq!(rooms.ask(APPS, 2, 0, 2 * MIB), MIB);
        // What is given back is there for the other one.
        assert_eq!(rooms.ask(FILES, 1, 100 * MIB, 100 * MIB), 100 * MIB);
        assert_eq!(rooms.ask(APPS, 2, MIB, u64::MAX), 156 * MIB);
        assert_eq!(rooms.ask(FILES, 1, 100 * MIB, 101 * MIB), 100 * MIB);
    }

    #[test]
    fn what_is_there_is_counted_whatever_was_granted() {
        let mut rooms = Rooms::default();
        rooms.ask(APPS, 2, 200 * MIB, 200 * MIB);
        assert_eq!(rooms.ask(FILES, 1, 100 * MIB, 101 * MIB), 100 * MIB);
        assert_eq!(rooms.ask(APPS, 2, 200 * MIB, 201 * MIB), 200 * MIB);
        assert_eq!(rooms.ask(APPS, 2, u64::MAX, u64::MAX), 256 * MIB);
    }

    #[test]
    fn an_owner_that_is_away_keeps_its_part_and_a_successor_says_it_anew() {
        let mut rooms = Rooms::default();
        rooms.ask(FILES, 1, 0, 0);
        rooms.ask(APPS, 2, 50 * MIB, 60 * MIB);
        // Killed: nothing was said, so nothing changes.
        assert_eq!(rooms.ask(FILES, 1, 0, u64::MAX), 196 * MIB);
        assert_eq!(rooms.ask(FILES, 1, 0, 0), 0);
        assert_eq!(rooms.ask(APPS, 3, 50 * MIB, 50 * MIB), 50 * MIB);
        assert_eq!(rooms.ask(FILES, 1, 0, u64::MAX), 206 * MIB);
        // Its predecessor says nothing any more.
        assert_eq!(rooms.ask(APPS, 2, 0, 0), 0);
        assert_eq!(rooms.apps.unwrap().granted, 50 * MIB);
    }

    proptest! {
        /// Owners that keep to what they are granted stay below the ceiling together, whoever dies.
        #[test]
        fn two_honest_owners_never_pass_the_ceiling(
            steps in prop::collection::vec((any::<bool>(), 0u64..300 * MIB, 0u8..4), 1..80)
        ) {
            let mut rooms = Rooms::default();
            let mut held = [0u64; 2];
            let mut processes = [1u64, 2];
            rooms.ask(FILES, 1, 0, 0);
            rooms.ask(APPS, 2, 0, 0);
            for (files, bytes, what) in steps {
                let at = usize::from(files);
                let role = if files { FILES } else { APPS };
                match what {
                    0 => processes[at] += 2,
                    1 => held[at] = held[at].min(bytes),
                    _ => {
                        let wanted = held[at].saturating_add(bytes);
                        if rooms.ask(role, processes[at], held[at], wanted) >= wanted {
                            held[at] = wanted;
                        }
                    }
                }
                prop_assert!(held[0] + held[1] <= DURABLE_CEILING);
            }
        }
    }
}
