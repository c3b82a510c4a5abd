//! Every direction of every edge, as bytes see it.

use ipc_proto::Role;
use ipc_proto::admin::{ANSWER, ASK, Answer, Ask};
use ipc_proto::edges::{
    app_bridge, artifact, bench, continuation, control, delivery, egress, events, store,
};
use ipc_proto::link::{self, LinkError};
use ipc_proto::message::Message;
use ipc_proto::table::{Guard, Phase, find};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// Name of the direction in which a run tells its channel what happens.
pub const EVENTS: &str = "events";

/// Decodes a packet as the receiver of one direction does.
pub type Decode = fn(&mut Guard, &[u8], VecDeque<OwnedFd>) -> Result<(), LinkError>;

/// One direction of an edge.
#[derive(Debug)]
pub struct Direction {
    /// For reports.
    pub name: &'static str,
    /// What may be said in it.
    pub kinds: Vec<u16>,
    /// Who may say any of it.
    pub senders: Vec<Role>,
    /// The receiver.
    pub decode: Decode,
}

fn decode<M: Message>(
    guard: &mut Guard,
    packet: &[u8],
    fds: VecDeque<OwnedFd>,
) -> Result<(), LinkError> {
    link::decode::<M>(guard, packet, fds).map(drop)
}

/// A guard in a phase.
#[must_use]
pub fn guard(sender: Role, phase: Phase) -> Guard {
    let mut guard = Guard::greeting(sender);
    guard.enter(phase);
    guard
}

fn direction<M: Message>(name: &'static str, kinds: &[u16]) -> Direction {
    let allowed = |role: &Role| {
        kinds.iter().filter_map(|k| find(*k)).any(|row| {
            guard(*role, row.phase)
                .admit(row.kind, row.descriptors.0.into())
                .is_ok()
        })
    };
    Direction {
        name,
        kinds: kinds.to_vec(),
        senders: Role::ALL.into_iter().filter(allowed).collect(),
        decode: decode::<M>,
    }
}

fn kinds(list: &[(u16, &str)]) -> Vec<u16> {
    list.iter().map(|(kind, _)| *kind).collect()
}

/// All of them.
#[must_use]
pub fn all() -> Vec<Direction> {
    macro_rules! of {
        ($name:expr, $message:ty) => {
            direction::<$message>($name, &kinds(<$message>::KINDS))
        };
    }
    vec![
        of!("control/to-worker", control::ToWorker),
        of!("control/from-worker", control::FromWorker),
        of!("store/request", store::Request),
        of!("store/reply", store::Reply),
        of!("artifact/request", artifact::Request),
        of!("artifact/reply", artifact::Reply),
        of!("egress/request", egress::Request),
        of!("egress/reply", egress::Reply),
        of!("app-bridge/request", app_bridge::Request),
        of!("app-bridge/reply", app_bridge::Reply),
        of!(EVENTS, events::RunEvent),
        of!("bench/request", bench::Request),
        of!("bench/reply", bench::Reply),
        of!("continuation/request", continuation::Request),
        of!("continuation/reply", continuation::Reply),
        of!("delivery/request", delivery::Request),
        of!("delivery/reply", delivery::Reply),
        direction::<Ask>("admin/ask", &[ASK]),
        direction::<Answer>("admin/answer", &[ANSWER]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipc_proto::table::RULES;

    #[test]
    fn every_row_of_the_table_belongs_to_a_direction_that_somebody_may_use() {
        let all = all();
        for row in RULES.iter().filter(|row| row.kind > 0x00ff) {
            let of = all.iter().filter(|d| d.kinds.contains(&row.kind)).count();
            assert_eq!(of, 1, "{}", row.name);
        }
        for direction in &all {
            assert!(!direction.senders.is_empty(), "{}", direction.name);
        }
    }
}
