//! Which addresses a fetch on behalf of a tool may reach.
//!
//! A tool's URL comes from a model, so it is hostile: a fetch that reaches this machine, its
//! network or a cloud's metadata service would hand out what no stranger can see. The check runs on
//! the resolved address and the connection goes to exactly that address, because a name may resolve
//! differently a moment later.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// True when `ip` is an ordinary address of the public internet.
///
/// Everything that the IANA special-purpose registries call not globally reachable is refused, and
/// so is an IPv6 address that only wraps an IPv4 address (mapped, 6to4, NAT64) unless the wrapped
/// address is public itself: a translator on the way would unwrap it.
#[must_use]
pub fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

/// Not globally reachable IPv4 blocks: network and prefix length.
const CLOSED_V4: &[([u8; 4], u32)] = &[
    ([0, 0, 0, 0], 8),       // "this network"; 0.0.0.0 connects to the own host
    ([10, 0, 0, 0], 8),      // private
    ([100, 64, 0, 0], 10),   // carrier-grade NAT; some clouds keep metadata services here
    ([127, 0, 0, 0], 8),     // loopback
    ([169, 254, 0, 0], 16),  // link-local; the usual home of metadata services
    ([172, 16, 0, 0], 12),   // private
    ([192, 0, 0, 0], 24),    // protocol assignments; one cloud's metadata service
    ([192, 0, 2, 0], 24),    // documentation
    ([192, 88, 99, 0], 24),  // retired 6to4 relays
    ([192, 168, 0, 0], 16),  // private
    ([198, 18, 0, 0], 15),   // benchmarking
    ([198, 51, 100, 0], 24), // documentation
    ([203, 0, 113, 0], 24),  // documentation
    ([224, 0, 0, 0], 4),     // multicast
    ([240, 0, 0, 0], 4),     // reserved, and the limited broadcast
];

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let bits = ip.to_bits();
    !CLOSED_V4.iter().any(|(network, length)| {
        let mask = u32::MAX << (32 - length);
        bits & mask == u32::from_be_bytes(*network)
    })
}

/// Blocks inside the global unicast space (2000::/3) that are not ordinary hosts.
const CLOSED_V6: &[([u16; 3], u32)] = &[
    ([0x2001, 0, 0], 23),      // protocol assignments: Teredo, benchmarking, ORCHID
    ([0x2001, 0x0db8, 0], 32), // documentation
    ([0x3fff, 0, 0], 20),      // documentation
];

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let s = ip.segments();
    let wrapped = |high: u16, low: u16| {
        is_public_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
    };
    match s {
        // IPv4-mapped: the kernel connects to the IPv4 address.
        [0, 0, 0, 0, 0, 0xffff, high, low] => wrapped(high, low),
        // NAT64 with the well-known prefix.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => wrapped(high, low),
        // 6to4.
        [0x2002, high, low, ..] => wrapped(high, low),
        // Only global unicast is left. Unspecified, loopback, IPv4-compatible, local NAT64 prefixes,
        // discard, unique-local, link-local, site-local and multicast all lie outside.
        [first, ..] if first & 0xe000 != 0x2000 => false,
        _ => !CLOSED_V6.iter().any(|(network, length)| {
            let mask = u128::MAX << (128 - length);
            let network = u128::from(network[0]) << 112
                | u128::from(network[1]) << 96
                | u128::from(network[2]) << 80;
            ip.to_bits() & mask == network
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn public_addresses_are_let_through() {
        for ip in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.0.3.0",
            "192.88.98.1",
            "192.88.100.1",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "198.51.99.1",
            "198.51.101.1",
            "203.0.112.1",
            "203.0.114.1",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2001:4860:4860::8888",
            "2001:200::1",
            "2a00:1450:4001::1",
            "2003::1",
            "2001:db7:ffff::1",
            "2001:db9::1",
            "3ffe::1",
            "3fff:1000::1",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
        ] {
            assert!(is_public(ip.parse().unwrap()), "{ip} is public");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for ip in [
            "0.0.0.0",
            "0.255.255.255",
            "10.0.0.0",
            "10.255.255.255",
            "100.64.0.0",
            "100.100.100.200",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.0.0",
            "169.254.169.254",
            "169.254.255.255",
            "172.16.0.0",
            "172.31.255.255",
            "192.0.0.0",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.0",
            "192.168.255.255",
            "198.18.0.0",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.7",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::2",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:127.0.0.1",
            "::ffff:10.1.2.3",
            "::ffff:169.254.169.254",
            "::ffff:0.0.0.0",
            "::ffff:0:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::8.8.8.8",
            "64:ff9b::1:0:808:808",
            "2002:7f00:1::1",
            "2002:a00:1::1",
            "2002:c0a8:101::",
            "2002:a9fe:a9fe::1",
            "2001::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:1ff::1",
            "2001:db8::1",
            "2001:db8:ffff::1",
            "3fff::1",
            "3fff:fff::1",
            "100::1",
            "1fff::1",
            "4000::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fdff::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "ff0e::1",
        ] {
            assert!(!is_public(ip.parse().unwrap()), "{ip} is not public");
        }
    }

    proptest! {
        /// No wrapping makes a closed IPv4 address reachable.
        #[test]
        fn wrapping_changes_nothing(bits: u32, tail: u64) {
            let v4 = Ipv4Addr::from_bits(bits);
            let (high, low) = ((bits >> 16) as u16, bits as u16);
            let expected = is_public(IpAddr::V4(v4));
            let mapped = v4.to_ipv6_mapped();
            let nat64 = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low);
            let six_to_four = Ipv6Addr::from_bits(
                0x2002_u128 << 112 | u128::from(bits) << 80 | u128::from(tail),
            );
            for v6 in [mapped, nat64, six_to_four] {
                prop_assert_eq!(is_public(IpAddr::V6(v6)), expected);
            }
        }
    }
}
