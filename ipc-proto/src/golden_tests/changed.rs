//! The frozen bytes, changed by chance.

use super::*;
use crate::frame::Header;
use crate::link::decode;
use crate::table::Guard;

/// Decodes a packet as every direction would, from every role.
fn decode_all(packet: &[u8]) {
    for role in Role::ALL {
        let guard = || Guard::serving(role);
        let fds = std::collections::VecDeque::new;
        let _ = decode::<ToWorker>(&mut guard(), packet, fds());
        let _ = decode::<FromWorker>(&mut guard(), packet, fds());
        let _ = decode::<store::Request>(&mut guard(), packet, fds());
        let _ = decode::<store::Reply>(&mut guard(), packet, fds());
        let _ = decode::<artifact::Request>(&mut guard(), packet, fds());
        let _ = decode::<artifact::Reply>(&mut guard(), packet, fds());
        let _ = decode::<egress::Request>(&mut guard(), packet, fds());
        let _ = decode::<egress::Reply>(&mut guard(), packet, fds());
        let _ = decode::<app_bridge::Request>(&mut guard(), packet, fds());
        let _ = decode::<app_bridge::Reply>(&mut guard(), packet, fds());
        let _ = decode::<RunEvent>(&mut guard(), packet, fds());
        let _ = decode::<continuation::Request>(&mut guard(), packet, fds());
        let _ = decode::<continuation::Reply>(&mut guard(), packet, fds());
        let _ = decode::<delivery::Request>(&mut guard(), packet, fds());
        let _ = decode::<delivery::Reply>(&mut guard(), packet, fds());
        let _ = decode::<crate::admin::Ask>(&mut guard(), packet, fds());
        let _ = decode::<crate::admin::Answer>(&mut guard(), packet, fds());
    }
}

proptest::proptest! {
    #[test]
    fn changed_vectors_never_panic(
        which in proptest::prelude::any::<proptest::sample::Index>(),
        changes in proptest::collection::vec((proptest::prelude::any::<proptest::sample::Index>(), proptest::prelude::any::<u8>()), 0..6),
        cut in proptest::option::of(proptest::prelude::any::<proptest::sample::Index>()),
    ) {
        let all = vectors().1;
        let (kind, body) = all.iter().nth(which.index(all.len())).unwrap();
        let header = Header { version: 1, kind: *kind, id: 1, deadline_ms: 0, descriptors: 0 };
        let mut packet = [&header.encode()[..], body].concat();
        for (at, byte) in changes {
            let at = at.index(packet.len());
            packet[at] = byte;
        }
        if let Some(cut) = cut {
            packet.truncate(cut.index(packet.len()));
        }
        decode_all(&packet);
    }
}
