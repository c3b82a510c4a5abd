//! Hostile packets through the decoder, in this process, as fast as it goes.

use crate::fuzz::direction::{self, Direction};
use crate::fuzz::packet::Seeds;
use crate::fuzz::random::Random;
use crate::fuzz::{Budget, LAST_PACKET};
use ipc_proto::Role;
use ipc_proto::body::Body;
use ipc_proto::table::Phase;
use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::OwnedFd;

/// Packets said on one channel before the next begins.
const ON_ONE_CHANNEL: u64 = 8;

/// What came of it.
#[derive(Debug, Default, Clone, Copy)]
pub struct Decoded {
    /// Packets decoded.
    pub packets: u64,
    /// Packets that were valid after all, so the rest did not fail at the door alone.
    pub accepted: u64,
}

/// Decodes until the budget is used up.
pub fn decode(seeds: &Seeds, random: &mut Random, budget: &Budget) -> Decoded {
    let directions = direction::all();
    let mut done = Decoded::default();
    let spare = File::open("/dev/null").ok();
    while budget.take(ON_ONE_CHANNEL) {
        let direction: &Direction = random.pick(&directions);
        let role = if random.one_in(4) {
            *random.pick(&Role::ALL)
        } else {
            *random.pick(&direction.senders)
        };
        let phase = match random.below(8) {
            0 => Phase::Greeting,
            1 => Phase::Starting,
            _ => Phase::Serving,
        };
        let mut guard = direction::guard(role, phase);
        for _ in 0..ON_ONE_CHANNEL {
            let count = if random.one_in(64) {
                random.below(18)
            } else {
                0
            };
            let fds: VecDeque<OwnedFd> = spare
                .iter()
                .cycle()
                .take(count)
                .filter_map(|file| Some(file.try_clone().ok()?.into()))
                .collect();
            // In two steps: the panic report must be able to read it while it is decoded.
            LAST_PACKET.with_borrow_mut(|out| {
                seeds.write(random, &direction.kinds, fds.len(), out);
            });
            let result =
                LAST_PACKET.with_borrow(|packet| (direction.decode)(&mut guard, packet, fds));
            done.accepted += u64::from(result.is_ok());
        }
        done.packets += ON_ONE_CHANNEL;
        if random.one_in(512) {
            lying_body(random);
        }
    }
    done
}

/// A large body whose descriptor is not what the message says.
fn lying_body(random: &mut Random) {
    const MOST: usize = 1 << 20;
    let announced = match random.below(4) {
        0 => u64::MAX,
        1 => 40_000,
        2 => 0,
        _ => random.next() >> random.below(64),
    };
    let path = *random.pick(&["/dev/zero", "/dev/null", "/", "/proc/self/status"]);
    let mut fds: VecDeque<OwnedFd> = if random.one_in(3) {
        Body::pack(vec![0; 40_000])
            .ok()
            .and_then(|(_, fd)| fd)
            .into_iter()
            .collect()
    } else {
        File::open(path)
            .ok()
            .map(OwnedFd::from)
            .into_iter()
            .collect()
    };
    // Right by chance only for the sealed one; anything else must be an error, never a panic,
    // and never more memory than the reader's bound.
    if let Ok(bytes) = Body::Sealed(announced).unpack(&mut fds, MOST) {
        assert_eq!(
            (announced, bytes.len()),
            (40_000, 40_000),
            "a lying body was taken"
        );
    }
}
