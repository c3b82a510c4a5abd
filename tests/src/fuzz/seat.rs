//! The ends that a hostile process may find itself opposite to.

use crate::fuzz::direction::{self, Direction};
use ipc_proto::Role;

/// One channel end, told by what its holder hears and from whom it believes to hear it.
#[derive(Debug)]
pub struct Seat<'a> {
    /// What is heard.
    pub direction: &'a Direction,
    /// From whom.
    pub sender: Role,
}

/// Every direction with each of its senders, and the run's end of an event channel, which hears
/// nothing but credit.
#[must_use]
pub fn all(directions: &[Direction]) -> Vec<Seat<'_>> {
    let mut seats = Vec::new();
    for direction in directions {
        let extra = (direction.name == direction::EVENTS).then_some(Role::ChannelOpenai);
        for sender in direction.senders.iter().copied().chain(extra) {
            seats.push(Seat { direction, sender });
        }
    }
    seats
}
