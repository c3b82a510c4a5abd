//! Packets and descriptors over one non-blocking `SOCK_SEQPACKET` socket, for tokio.
//!
//! The socket is registered for reading only. A socket registered for writing too is woken by the
//! kernel each time its peer takes a packet: two more context switches a round trip, for the rare
//! case that a queue is full. That case pays for itself instead: [`Socket::send`].

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, ready};

use crate::channel::locked;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, recvmsg, send, sendmsg, shutdown,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Most descriptors of any packet; sizes the control buffers.
pub(crate) const MAX_DESCRIPTORS: usize = 16;
/// `CMSG_LEN` of one `SCM_RIGHTS` message without descriptors on a 64-bit Linux.
const CMSG_HEADER: usize = 16;

/// Bytes of a packet that is joined on the stack before it is sent.
const SMALL: usize = 512;

/// Room for one control message, aligned as the kernel's `cmsghdr` wants it.
#[repr(align(8))]
struct Control([MaybeUninit<u8>; CMSG_HEADER + 4 * MAX_DESCRIPTORS]);

impl Control {
    fn new() -> Self {
        Self([MaybeUninit::uninit(); CMSG_HEADER + 4 * MAX_DESCRIPTORS])
    }
}

/// One received packet.
#[derive(Debug)]
pub(crate) struct Received {
    /// Bytes in the buffer; 0 when the peer closed its end.
    pub(crate) length: usize,
    /// Descriptors, close-on-exec.
    pub(crate) fds: VecDeque<OwnedFd>,
    /// There were more descriptors than room; the kernel dropped the rest.
    pub(crate) descriptors_lost: bool,
}

#[derive(Debug)]
pub(crate) struct Socket {
    reading: AsyncFd<OwnedFd>,
    /// Shared by all who wait for a place in the peer's queue, and gone with the last of them. A
    /// peer that reads nothing must not cost a descriptor for each of its answers.
    writing: Mutex<Weak<AsyncFd<OwnedFd>>>,
}

impl Socket {
    /// Registers one end of a pair.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            reading: registered(fd, Interest::READABLE)?,
            writing: Mutex::default(),
        })
    }

    /// Ends the channel both ways, even while others hold the socket: what was sent can still be
    /// read, and who waits to send fails.
    pub(crate) fn close(&self) {
        // Fails only for a socket whose peer is gone.
        let _ = shutdown(self.reading.get_ref(), Shutdown::Both);
    }

    /// A second descriptor of the same socket.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.reading.get_ref().try_clone()
    }

    fn writing(&self) -> io::Result<Arc<AsyncFd<OwnedFd>>> {
        let mut shared = locked(&self.writing);
        if let Some(writing) = shared.upgrade() {
            return Ok(writing);
        }
        // A second descriptor, because one can't be registered twice.
        let fd = self.reading.get_ref().try_clone()?;
        let writing = Arc::new(registered(fd, Interest::WRITABLE)?);
        *shared = Arc::downgrade(&writing);
        Ok(writing)
    }

    /// Sends one packet, complete or not at all. Waits while the peer's queue is full.
    pub(crate) async fn send(
        &self,
        parts: &[IoSlice<'_>],
        fds: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        match send_now(self.reading.get_ref().as_fd(), parts, fds) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
        let writing = self.writing()?;
        loop {
            let mut guard = writing.writable().await?;
            match guard.try_io(|fd| send_now(fd.get_ref().as_fd(), parts, fds)) {
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }

    /// Receives one packet with at most `room` descriptors.
    pub(crate) fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        room: usize,
    ) -> Poll<io::Result<Received>> {
        loop {
            let mut guard = ready!(self.reading.poll_read_ready(cx))?;
            match guard.try_io(|fd| receive_now(fd.get_ref().as_fd(), buffer, room)) {
                Ok(result) => return Poll::Ready(result),
                Err(_would_block) => {}
            }
        }
    }

    /// As [`Socket::poll_recv`], and looks at the socket even when the runtime has not heard of a
    /// packet: it hears of it only when it polls the kernel.
    pub(crate) fn poll_recv_at_once(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        room: usize,
    ) -> Poll<io::Result<Received>> {
        if let Poll::Ready(guard) = self.reading.poll_read_ready(cx) {
            let mut guard = guard?;
            if let Ok(result) = guard.try_io(|fd| receive_now(fd.get_ref().as_fd(), buffer, room)) {
                return Poll::Ready(result);
            }
            return self.poll_recv(cx, buffer, room);
        }
        match receive_now(self.reading.get_ref().as_fd(), buffer, room) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            result => Poll::Ready(result),
        }
    }
}

#[allow(
    deprecated,
    reason = "it lets safe code register something that is no descriptor; an OwnedFd is one, and \
              stays it for as long as the registration owns it"
)]
fn registered(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, interest)
}

/// Sends one packet, or says that the peer's queue is full.
pub(crate) fn send_now(
    socket: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    // One small piece without descriptors takes the kernel's short way in.
    let length: usize = parts.iter().map(|part| part.len()).sum();
    if fds.is_empty() && length <= SMALL {
        let mut packet = [0; SMALL];
        let mut at = 0;
        for part in parts {
            packet[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        return uninterrupted(|| send(socket, &packet[..length], SendFlags::NOSIGNAL));
    }
    let mut space = Control::new();
    let mut control = SendAncillaryBuffer::new(&mut space.0);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::TOOBIG.into());
    }
    uninterrupted(|| sendmsg(socket, parts, &mut control, SendFlags::NOSIGNAL))
}

fn uninterrupted(mut sent: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<()> {
    loop {
        match sent() {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

fn receive_now(socket: BorrowedFd<'_>, buffer: &mut [u8], room: usize) -> io::Result<Received> {
    let mut space = Control::new();
    // Room for exactly that many: the kernel drops the rest and says so.
    let bytes = match room.min(MAX_DESCRIPTORS) {
        0 => 0,
        room => CMSG_HEADER + 4 * room,
    };
    let mut control = RecvAncillaryBuffer::new(&mut space.0[..bytes]);
    let received = loop {
        let mut parts = [IoSliceMut::new(buffer)];
        match recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => break received,
            // A peer that ended without reading all we sent leaves this error once, and what it
            // sent before is still to be read.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            Err(e) => return Err(e.into()),
        }
    };
    let mut fds = VecDeque::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(list) = message {
            fds.extend(list);
        }
    }
    Ok(Received {
        length: received.bytes,
        fds,
        descriptors_lost: received.flags.contains(ReturnFlags::CTRUNC),
    })
}
