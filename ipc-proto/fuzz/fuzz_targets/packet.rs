//! A packet, as the receiver of any direction decodes it, from any sender, in any phase.
//!
//! The first byte picks the direction, the second the sender, the third the phase; the rest is the
//! packet. It comes twice, since a kind that may be said once must be refused then.
#![no_main]

use ipc_proto::Role;
use ipc_proto::admin::{Answer, Ask};
use ipc_proto::edges::{
    app_bridge, artifact, bench, continuation, control, delivery, egress, events, store,
};
use ipc_proto::frame::Header;
use ipc_proto::link::{Payload, decode};
use ipc_proto::message::Message;
use ipc_proto::table::{Guard, Phase, find};
use libfuzzer_sys::fuzz_target;
use std::collections::VecDeque;

fn take<M: Message + PartialEq>(guard: &mut Guard, packet: &[u8]) {
    for time in 0..2 {
        let Ok(taken) = decode::<M>(guard, packet, VecDeque::new()) else {
            continue;
        };
        let Ok((header, _)) = Header::decode(packet) else {
            panic!("taken without a header");
        };
        let Some(rule) = find(header.kind) else {
            panic!("{:#06x} is in no table", header.kind);
        };
        assert!(time == 0 || !rule.once, "{} was taken twice", rule.name);
        if let Payload::Message(message) = taken.payload {
            assert_eq!(message.kind(), header.kind);
            // What was understood can be said again.
            message.encode().expect("a decoded message can be encoded");
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let [direction, sender, phase, packet @ ..] = bytes else {
        return;
    };
    let mut guard = Guard::greeting(Role::ALL[usize::from(*sender) % Role::ALL.len()]);
    guard.enter([Phase::Serving, Phase::Greeting, Phase::Starting][usize::from(*phase) % 3]);
    let guard = &mut guard;
    match direction % 19 {
        0 => take::<control::ToWorker>(guard, packet),
        1 => take::<control::FromWorker>(guard, packet),
        2 => take::<store::Request>(guard, packet),
        3 => take::<store::Reply>(guard, packet),
        4 => take::<artifact::Request>(guard, packet),
        5 => take::<artifact::Reply>(guard, packet),
        6 => take::<egress::Request>(guard, packet),
        7 => take::<egress::Reply>(guard, packet),
        8 => take::<app_bridge::Request>(guard, packet),
        9 => take::<app_bridge::Reply>(guard, packet),
        10 => take::<events::RunEvent>(guard, packet),
        11 => take::<bench::Request>(guard, packet),
        12 => take::<bench::Reply>(guard, packet),
        13 => take::<Ask>(guard, packet),
        14 => take::<continuation::Request>(guard, packet),
        15 => take::<continuation::Reply>(guard, packet),
        16 => take::<delivery::Request>(guard, packet),
        17 => take::<delivery::Reply>(guard, packet),
        _ => take::<Answer>(guard, packet),
    }
});
