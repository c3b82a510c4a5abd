//! A new network namespace and its loopback interface.

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use std::io;
use std::os::fd::AsRawFd;

/// Makes a network namespace and enters it with the calling thread: empty, with a loopback interface
/// that is down.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`, `ENOSPC` at the system's limit.
pub fn own() -> io::Result<()> {
    crate::process::unshare(crate::process::Namespaces::NET)
}

/// Brings `lo` up in this network namespace, so that programs of one sandbox can talk to each
/// other over 127.0.0.1. Nothing else becomes reachable.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN` over the network namespace.
pub fn loopback_up() -> io::Result<()> {
    let socket = socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    // SAFETY: ifreq is plain data for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    let set_flags = libc::SIOCSIFFLAGS as libc::Ioctl;
    // SAFETY: the request is a valid ifreq with a null-terminated name.
    if unsafe { libc::ioctl(socket.as_raw_fd(), set_flags, &mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
