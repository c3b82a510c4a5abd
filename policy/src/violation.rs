//! Forbidden system calls: heard from the kernel, named, and their process ended.
//!
//! The first filter holds a hostile call ([`crate::seccomp`]). The launcher sends the descriptor
//! on which the kernel tells of it, the listener, to whoever started it, who ends each process
//! that makes such a call. The call is never made: nothing of it happens while it is held, and
//! when nobody listens any more it returns `ENOSYS`.

use crate::seccomp::{AUDIT_ARCH, X32, name_of};
use mono_sys::process::{KINDS, pidfd_signal};
use mono_sys::seccomp_notify;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

/// A forbidden call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation {
    /// The process that made it, in the reader's pid namespace.
    pub pid: i32,
    /// The call's name, or one word for all calls of a table that is not this machine's own: so
    /// there is a bounded number of names, however many numbers a hostile process tries.
    pub call: &'static str,
    /// The call's number in its table.
    pub number: u32,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.call, self.number)
    }
}

/// A process that is held in a forbidden call.
#[derive(Debug)]
#[must_use = "it is held until it is ended"]
pub struct Caught {
    /// What it did.
    pub violation: Violation,
    /// The thread that waits in the call; `None` when it has ended meanwhile.
    thread: Option<OwnedFd>,
}

impl Caught {
    /// Ends the process.
    ///
    /// # Errors
    /// What the kernel says, e.g. `EPERM`; the call is then still held.
    pub fn end(self) -> io::Result<()> {
        let Some(thread) = self.thread else {
            return Ok(());
        };
        match pidfd_signal(thread, libc::SIGKILL) {
            // It ended by itself, which is what was wanted.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            other => other,
        }
    }
}

/// What a listener has to say.
#[derive(Debug)]
pub enum Heard {
    /// A process is held.
    Caught(Caught),
    /// None is.
    Nothing,
    /// No process has the filter any more.
    Over,
}

/// A pair of sockets that takes one listener from the launcher, whose end is the second, to
/// whoever starts it.
///
/// # Errors
/// `EMFILE` and the like.
pub fn channel() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

/// What comes over the channel, once.
#[derive(Debug)]
pub struct Arrival {
    /// The listener of the process's first filter.
    pub listener: OwnedFd,
    /// The namespaces of the process that are not the supervisor's. Only the launcher could see them:
    /// another user's process isn't shown to anybody, and has no means to change them.
    pub namespaces: Vec<&'static str>,
}

/// Sends the listener and the namespaces that are not the supervisor's; the launcher does, once.
///
/// # Errors
/// `EPIPE` when nobody will listen.
pub fn send(
    channel: impl AsFd,
    listener: impl AsFd,
    namespaces: &[&'static str],
) -> io::Result<()> {
    let kinds = KINDS.iter().enumerate();
    let marks = kinds.filter(|(_, kind)| namespaces.contains(kind));
    let marks = marks.fold(0_u8, |marks, (place, _)| marks | 1 << place);
    let fds = [listener.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    loop {
        let message = [b'L', marks];
        let parts = [IoSlice::new(&message)];
        match sendmsg(&channel, &parts, &mut control, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other.map(drop)?),
        }
    }
}

/// Receives the listener. Doesn't wait.
///
/// # Errors
/// `WouldBlock` when it is not there yet, `UnexpectedEof` when the launcher has ended without;
/// another when it was lost, because this process can have no more descriptors.
pub fn receive(channel: impl AsFd) -> io::Result<Arrival> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut message = [0; 2];
    let length = loop {
        let mut parts = [IoSliceMut::new(&mut message)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        match recvmsg(&channel, &mut parts, &mut control, flags) {
            // The launcher closes its other descriptors without having read from them.
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
            Err(error) => return Err(error.into()),
            Ok(received) => break received.bytes,
        }
    };
    let rights = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    });
    let listener = rights.ok_or_else(|| match length {
        0 => io::Error::from(io::ErrorKind::UnexpectedEof),
        _ => io::Error::other("the listener was lost on its way"),
    })?;
    let [_, marks] = message;
    let kinds = KINDS.into_iter().enumerate();
    let kinds = kinds.filter(|(place, _)| marks & 1 << place != 0);
    Ok(Arrival {
        listener,
        namespaces: kinds.map(|(_, kind)| kind).collect(),
    })
}

/// The next process that is held. Never waits, as long as one thread at a time asks.
///
/// # Errors
/// When the descriptor is no listener, or the kernel has no descriptor left.
pub fn next(listener: impl AsFd) -> io::Result<Heard> {
    let notice = match seccomp_notify::next(&listener)? {
        seccomp_notify::Heard::Call(notice) => notice,
        seccomp_notify::Heard::Nothing => return Ok(Heard::Nothing),
        seccomp_notify::Heard::Over => return Ok(Heard::Over),
    };
    // Read before it is checked that the thread is still held: so it is this thread's.
    let process = process_of(notice.thread);
    let thread = seccomp_notify::caller(&listener, &notice)?;
    Ok(Heard::Caught(Caught {
        violation: Violation {
            pid: process
                .filter(|_| thread.is_some())
                .unwrap_or(notice.thread),
            call: named(notice.architecture, notice.number),
            number: notice.number,
        },
        thread,
    }))
}

/// Waits for the listener of one launch and then ends every process that makes a forbidden call,
/// until none is left. For whoever has a thread to spare; `tell` is called before each end.
///
/// # Errors
/// `UnexpectedEof` when the launcher ended without sending one; else as [`next`] and
/// [`Caught::end`].
pub fn watch(channel: OwnedFd, mut tell: impl FnMut(&Violation)) -> io::Result<()> {
    wait(&channel)?;
    let listener = receive(&channel)?.listener;
    drop(channel);
    loop {
        match next(&listener)? {
            Heard::Caught(caught) => {
                tell(&caught.violation);
                caught.end()?;
            }
            Heard::Nothing => wait(&listener)?,
            Heard::Over => return Ok(()),
        }
    }
}

fn wait(fd: impl AsFd) -> io::Result<()> {
    let mut ready = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    match poll(&mut ready, PollTimeout::NONE) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The process of a thread, as its status says.
fn process_of(thread: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

/// i386, whose calls an x86-64 kernel may take too.
const AUDIT_ARCH_I386: u32 = 0x4000_0003;

fn named(architecture: u32, number: u32) -> &'static str {
    match (architecture, number) {
        (AUDIT_ARCH, number) => name_of(number).unwrap_or(if number >= X32 {
            "an x32 call"
        } else {
            "an unknown call"
        }),
        (AUDIT_ARCH_I386, _) => "an i386 call",
        _ => "a call of another architecture",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write as _;

    #[test]
    fn every_call_has_one_of_a_bounded_number_of_names() {
        let ptrace = u32::try_from(libc::SYS_ptrace).unwrap();
        let cases = [
            (AUDIT_ARCH, ptrace, "ptrace"),
            (AUDIT_ARCH, 9999, "an unknown call"),
            (AUDIT_ARCH, X32 + ptrace, "an x32 call"),
            (AUDIT_ARCH, u32::MAX, "an x32 call"),
            (AUDIT_ARCH_I386, 26, "an i386 call"),
            (0x4000_0028, 26, "a call of another architecture"),
        ];
        for (architecture, number, name) in cases {
            assert_eq!(named(architecture, number), name);
        }
    }

    #[test]
    fn a_listener_arrives_once_or_it_is_told_why_not() {
        let (ours, theirs) = channel().unwrap();
        let early = receive(&ours).unwrap_err();
        assert_eq!(early.kind(), io::ErrorKind::WouldBlock);
        let (mut reader, mut writer) = io::pipe().unwrap();
        send(&theirs, &reader, &["mnt", "uts"]).unwrap();
        let received = receive(&ours).unwrap();
        assert_eq!(received.namespaces, ["mnt", "uts"]);
        writer.write_all(b"x").unwrap();
        reader = received.listener.into();
        io::Read::read_exact(&mut reader, &mut [0]).unwrap();
        drop(theirs);
        let late = receive(&ours).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::UnexpectedEof);
        let ended = watch(ours, |_| ()).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);

        let (ours, theirs) = channel().unwrap();
        drop(ours);
        let nobody = send(&theirs, &reader, &[]).unwrap_err();
        assert_eq!(nobody.kind(), io::ErrorKind::BrokenPipe);
    }
}
