//! One end of a channel, without any of the care that workers take.

use anyhow::Result;
use ipc_proto::frame::{Header, MAX_PACKET};
use ipc_proto::message::Message;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Most descriptors that the kernel lets one packet carry (`SCM_MAX_FD`).
pub const MOST_DESCRIPTORS: usize = 253;

/// What came.
#[derive(Debug)]
pub enum Heard {
    /// A packet with its descriptors.
    Packet(Vec<u8>, VecDeque<OwnedFd>),
    /// The other side has ended the channel.
    Ended,
    /// Nothing, for as long as was waited.
    Silence,
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// The kernel has it.
    Taken,
    /// The other side reads nothing.
    Full,
    /// There is no other side any more.
    Ended,
}

/// One end.
#[derive(Debug)]
pub struct Wire(OwnedFd);

impl Wire {
    /// Of a non-blocking `SOCK_SEQPACKET` socket.
    #[must_use]
    pub fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Its number.
    #[must_use]
    pub fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Sends bytes as one packet.
    ///
    /// # Errors
    /// When the kernel refuses for another reason than the other side.
    pub fn say(&self, packet: &[u8], fds: &[RawFd]) -> Result<Said> {
        let parts = [IoSlice::new(packet)];
        let rights = [ControlMessage::ScmRights(fds)];
        let control = if fds.is_empty() { &[][..] } else { &rights[..] };
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        match sendmsg::<()>(self.raw(), &parts, control, flags, None) {
            Ok(_) => Ok(Said::Taken),
            Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ETOOMANYREFS) => Ok(Said::Full),
            Err(Errno::EPIPE | Errno::ECONNRESET | Errno::ENOTCONN) => Ok(Said::Ended),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sends a message as it should be sent.
    ///
    /// # Errors
    /// As [`Wire::say`].
    pub fn tell<M: Message>(&self, id: u64, message: &M, fds: &[RawFd]) -> Result<Said> {
        self.say(
            &packet(message.kind(), id, fds.len(), &message.encode()?),
            fds,
        )
    }

    /// Waits for the next packet.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn hear(&self, patience: Duration) -> Result<Heard> {
        let deadline = Instant::now() + patience;
        let mut buffer = vec![0; MAX_PACKET + 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut waiting = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            if poll(&mut waiting, timeout)? == 0 {
                return Ok(Heard::Silence);
            }
            let mut parts = [IoSliceMut::new(&mut buffer)];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let message = match recvmsg(&self.0, &mut parts, &mut control, flags) {
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::CONNRESET) => return Ok(Heard::Ended),
                other => other?,
            };
            let mut fds = VecDeque::new();
            for part in control.drain() {
                if let RecvAncillaryMessage::ScmRights(list) = part {
                    fds.extend(list);
                }
            }
            let length = message.bytes;
            if length == 0 {
                return Ok(Heard::Ended);
            }
            return Ok(Heard::Packet(buffer[..length].to_vec(), fds));
        }
    }
}

/// A packet with a header as it should be.
#[must_use]
pub fn packet(kind: u16, id: u64, descriptors: usize, body: &[u8]) -> Vec<u8> {
    let header = Header {
        version: ipc_proto::VERSION_MAX,
        kind,
        id,
        deadline_ms: 0,
        descriptors: u8::try_from(descriptors).unwrap_or(u8::MAX),
    };
    [&header.encode()[..], body].concat()
}
