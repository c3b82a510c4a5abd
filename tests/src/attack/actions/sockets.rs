//! Sockets of other families: Unix by path and by name, the kernel's own.

use super::{Action, action};
use crate::attack::outcome::Outcome;
use mono_sys::hostile;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, bind, connect, sendto, socketpair,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

pub(super) const ACTIONS: &[Action] = &[
    action("unix-to-admin-socket", |f| by_path(&f.admin_socket())),
    action("unix-to-gateway-socket", |f| by_path(&f.gateway_socket())),
    action("unix-to-hidden-admin-socket", |f| {
        by_path(&f.workspace().join(".hidden/monod.sock"))
    }),
    action("unix-to-open-socket", |f| {
        by_path(&f.open().join("served.sock"))
    }),
    action("unix-to-socket-of-workspace", |f| {
        by_path(&f.workspace().join("served.sock"))
    }),
    action("unix-to-open-socket-by-own-root", |f| {
        let path = f.open().join("served.sock");
        by_path(Path::new(&format!("/proc/self/root{}", path.display())))
    }),
    action("unix-datagram-to-open-socket", |f| {
        let path = f.open().join("datagrams.sock");
        Outcome::of(open(libc::SOCK_DGRAM).and_then(|socket| {
            let address = UnixAddr::new(&path)?;
            Ok(sendto(
                socket.as_raw_fd(),
                b"x",
                &address,
                MsgFlags::empty(),
            )?)
        }))
    }),
    action("unix-to-message-bus", |_| {
        by_path("/run/dbus/system_bus_socket".as_ref())
    }),
    action("unix-to-init", |_| by_path("/run/systemd/private".as_ref())),
    action("unix-to-container-engine", |_| {
        by_path("/var/run/docker.sock".as_ref())
    }),
    action("unix-by-name", |f| {
        Outcome::of(open(libc::SOCK_STREAM).and_then(|socket| {
            let address = UnixAddr::new_abstract(f.abstract_name.as_bytes())?;
            Ok(connect(socket.as_raw_fd(), &address)?)
        }))
    }),
    action("unix-listen-by-name", |_| {
        Outcome::of(open(libc::SOCK_STREAM).and_then(|socket| {
            let name = format!("mono-attack-{}", std::process::id());
            bind(
                socket.as_raw_fd(),
                &UnixAddr::new_abstract(name.as_bytes())?,
            )?;
            hostile::listen(&socket)
        }))
    }),
    action("unix-listen-in-own-place", |f| {
        let path = f.place().join("listening.sock");
        let outcome = Outcome::of(open(libc::SOCK_STREAM).and_then(|socket| {
            bind(socket.as_raw_fd(), &UnixAddr::new(&path)?)?;
            hostile::listen(&socket)
        }));
        let _ = std::fs::remove_file(path);
        outcome
    }),
    action("unix-pair", |_| {
        let (family, kind) = (AddressFamily::Unix, SockType::Stream);
        Outcome::of(socketpair(family, kind, None, SockFlag::empty()))
    }),
    action("packet", |_| made(libc::AF_PACKET, libc::SOCK_RAW, 0x300)),
    action("packet-datagram", |_| {
        made(libc::AF_PACKET, libc::SOCK_DGRAM, 0x300)
    }),
    action("netlink-routes", |_| {
        made(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)
    }),
    action("netlink-firewall", |_| {
        made(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_NETFILTER)
    }),
    action("netlink-events", |_| {
        made(
            libc::AF_NETLINK,
            libc::SOCK_DGRAM,
            libc::NETLINK_KOBJECT_UEVENT,
        )
    }),
    action("virtual-machine", |_| {
        made(libc::AF_VSOCK, libc::SOCK_STREAM, 0)
    }),
    action("kernel-cryptography", |_| {
        made(libc::AF_ALG, libc::SOCK_SEQPACKET, 0)
    }),
    action("express-data-path", |_| {
        made(libc::AF_XDP, libc::SOCK_RAW, 0)
    }),
    action("bluetooth", |_| made(libc::AF_BLUETOOTH, libc::SOCK_RAW, 1)),
    action("keys-of-the-network", |_| {
        made(libc::AF_KEY, libc::SOCK_RAW, 2)
    }),
];

fn open(kind: i32) -> io::Result<OwnedFd> {
    hostile::socket(libc::AF_UNIX, kind, 0)
}

fn by_path(path: &Path) -> Outcome {
    Outcome::of(open(libc::SOCK_STREAM).and_then(|socket| {
        let address = UnixAddr::new(path)?;
        Ok(connect(socket.as_raw_fd(), &address)?)
    }))
}

fn made(family: i32, kind: i32, protocol: i32) -> Outcome {
    Outcome::of(hostile::socket(family, kind, protocol))
}
