//! Internet sockets: out, in, to the machine's own listeners.

use super::{Action, action};
use crate::attack::facts::Facts;
use crate::attack::outcome::Outcome;
use mono_sys::{hostile, network};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::sys::socket::sockopt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Ranges that are kept for documentation: nobody is there.
const OUT_4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const OUT_6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
/// Where clouds tell a machine's secrets to whoever asks.
const METADATA_4: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
const METADATA_6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
const HOST_4: Ipv4Addr = Ipv4Addr::LOCALHOST;
const HOST_6: Ipv6Addr = Ipv6Addr::LOCALHOST;

/// Whoever is there answers within this, however busy the machine is.
const PATIENCE_MS: u16 = 20_000;

const MPTCP: i32 = 262;
const SCTP: i32 = 132;

pub(super) const ACTIONS: &[Action] = &[
    action("tcp4-to-machine", |f| tcp(HOST_4.into(), f.tcp[0])),
    action("tcp6-to-machine", |f| tcp(HOST_6.into(), f.tcp[1])),
    action("tcp4-out", |_| tcp(OUT_4.into(), 80)),
    action("tcp6-out", |_| tcp(OUT_6.into(), 80)),
    action("tcp4-to-cloud-metadata", |_| tcp(METADATA_4.into(), 80)),
    action("tcp6-to-cloud-metadata", |_| tcp(METADATA_6.into(), 80)),
    action("tcp4-to-machine-by-first-packet", |f| {
        let made = hostile::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        Outcome::of(made.and_then(|socket| hostile::send_and_connect(&socket, f.tcp[0])))
    }),
    action("mptcp-to-machine", |f| {
        let made = hostile::socket(libc::AF_INET, libc::SOCK_STREAM, MPTCP);
        Outcome::of(made.and_then(|socket| join(&socket, HOST_4.into(), f.tcp[0])))
    }),
    action("udp4-to-machine", |f| udp(HOST_4.into(), f.udp[0])),
    action("udp6-to-machine", |f| udp(HOST_6.into(), f.udp[1])),
    action("udp4-out", |_| send(OUT_4.into(), 53)),
    action("udp6-out", |_| send(OUT_6.into(), 53)),
    action("ask-name-server", dns),
    action("tcp4-listen", |_| {
        listen(libc::SOCK_STREAM, 0, HOST_4.into())
    }),
    action("tcp6-listen", |_| {
        listen(libc::SOCK_STREAM, 0, HOST_6.into())
    }),
    action("tcp4-listen-everywhere", |_| {
        listen(libc::SOCK_STREAM, 0, Ipv4Addr::UNSPECIFIED.into())
    }),
    action("tcp4-listen-without-port", |_| {
        // The kernel picks one when nobody has: no bind to refuse.
        let made = hostile::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        Outcome::of(made.and_then(|socket| hostile::listen(&socket)))
    }),
    action("tcp6-listen-everywhere", |_| {
        listen(libc::SOCK_STREAM, 0, Ipv6Addr::UNSPECIFIED.into())
    }),
    action("mptcp-listen", |_| {
        listen(libc::SOCK_STREAM, MPTCP, HOST_4.into())
    }),
    action("tcp4-privileged-port", |_| {
        let made = hostile::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        Outcome::of(made.and_then(|socket| bound(&socket, HOST_4.into(), 81)))
    }),
    action("udp4-listen", |_| receive(HOST_4.into())),
    action("udp6-listen", |_| receive(HOST_6.into())),
    action("udp4-listen-everywhere", |_| {
        receive(Ipv4Addr::UNSPECIFIED.into())
    }),
    action("raw4", |_| {
        made(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP)
    }),
    action("raw6", |_| {
        made(libc::AF_INET6, libc::SOCK_RAW, libc::IPPROTO_ICMPV6)
    }),
    action("raw4-any", |_| {
        made(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW)
    }),
    action("ping4", |_| {
        made(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP)
    }),
    action("sctp4", |_| made(libc::AF_INET, libc::SOCK_STREAM, SCTP)),
    action("mptcp4", |_| made(libc::AF_INET, libc::SOCK_STREAM, MPTCP)),
    action("udp-lite4", |_| {
        made(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_UDPLITE)
    }),
    action("mark-packets", |_| {
        let made = hostile::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        Outcome::of(
            made.and_then(|socket| Ok(nix::sys::socket::setsockopt(&socket, sockopt::Mark, &7)?)),
        )
    }),
    action("set-interface-up", |_| Outcome::of(network::loopback_up())),
];

fn made(family: i32, kind: i32, protocol: i32) -> Outcome {
    Outcome::of(hostile::socket(family, kind, protocol))
}

fn family(address: IpAddr) -> i32 {
    match address {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    }
}

fn join(socket: &OwnedFd, address: IpAddr, port: u16) -> io::Result<()> {
    fcntl(socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    match rustix::net::connect(socket, &SocketAddr::new(address, port)) {
        // On its way is as good as there.
        Ok(()) => return Ok(()),
        Err(rustix::io::Errno::INPROGRESS) if !address.is_loopback() => return Ok(()),
        Err(rustix::io::Errno::INPROGRESS) => {}
        Err(errno) => return Err(errno.into()),
    }
    // The machine itself says at once whether somebody listens.
    let mut waiting = [nix::poll::PollFd::new(
        std::os::fd::AsFd::as_fd(socket),
        nix::poll::PollFlags::POLLOUT,
    )];
    nix::poll::poll(&mut waiting, PATIENCE_MS)?;
    match nix::sys::socket::getsockopt(socket, sockopt::SocketError)? {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn tcp(address: IpAddr, port: u16) -> Outcome {
    let made = hostile::socket(family(address), libc::SOCK_STREAM, 0);
    Outcome::of(made.and_then(|socket| join(&socket, address, port)))
}

fn bound(socket: &OwnedFd, address: IpAddr, port: u16) -> io::Result<()> {
    Ok(rustix::net::bind(socket, &SocketAddr::new(address, port))?)
}

fn listen(kind: i32, protocol: i32, address: IpAddr) -> Outcome {
    let made = hostile::socket(family(address), kind, protocol);
    Outcome::of(made.and_then(|socket| {
        bound(&socket, address, 0)?;
        hostile::listen(&socket)
    }))
}

fn receive(address: IpAddr) -> Outcome {
    let made = hostile::socket(family(address), libc::SOCK_DGRAM, 0);
    Outcome::of(made.and_then(|socket| bound(&socket, address, 0)))
}

fn open_udp(address: IpAddr) -> io::Result<UdpSocket> {
    let socket = hostile::socket(family(address), libc::SOCK_DGRAM, 0)?;
    Ok(UdpSocket::from(socket))
}

fn send(address: IpAddr, port: u16) -> Outcome {
    let target = SocketAddr::new(address, port);
    Outcome::of(open_udp(address).and_then(|socket| socket.send_to(b"x", target)))
}

/// Sends and waits for the answer: on a network of one's own nobody is there to give it.
fn udp(address: IpAddr, port: u16) -> Outcome {
    Outcome::of(asked(address, port, b"x"))
}

fn asked(address: IpAddr, port: u16, question: &[u8]) -> io::Result<()> {
    let socket = open_udp(address)?;
    socket.connect(SocketAddr::new(address, port))?;
    socket.set_read_timeout(Some(Duration::from_millis(PATIENCE_MS.into())))?;
    socket.send(question)?;
    socket.recv(&mut [0; 64]).map(drop)
}

/// One question about `example.com`, as every resolver asks it.
fn dns(f: &Facts) -> Outcome {
    let mut question = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    question.extend(b"\x07example\x03com\x00\x00\x01\x00\x01");
    Outcome::of(asked(HOST_4.into(), f.udp[0], &question))
}
