//! What the supervisor and its launcher say to each other: a request with the descriptors of one
//! process, and what came of it. Each is one packet.

use crate::spec::LaunchSpec;
use ipc_proto::codec;
use ipc_proto::frame::MAX_BODY;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What a descriptor of a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// One byte comes over it when the process may go on; its end means that it must not.
    Release,
    /// Standard input.
    Input,
    /// Standard output.
    Output,
    /// Standard error, also for a step that fails.
    Error,
    /// The worker's control socket.
    Control,
    /// The worker's executable.
    Program,
    /// Takes the listener of the first filter.
    Violations,
    /// The control group to begin in.
    Cgroup,
}

/// As many as there are purposes.
const MOST: usize = 8;

/// One process that is to be started.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// What the descriptors are for, in their order; each purpose once at most.
    pub descriptors: Vec<Purpose>,
    /// What it is to be.
    pub spec: LaunchSpec,
}

/// What came of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The process is there, and its pidfd comes along. How it fares is told by its exit status.
    Started {
        /// Its number in the launcher's namespace, which is the supervisor's.
        pid: i32,
    },
    /// The kernel makes no such process.
    Refused {
        /// Its error.
        errno: i32,
    },
}

/// Descriptors that came with a request, by purpose.
#[derive(Debug, Default)]
pub struct Passed(Vec<(Purpose, OwnedFd)>);

impl Passed {
    /// Takes the one for a purpose.
    pub fn take(&mut self, purpose: Purpose) -> Option<OwnedFd> {
        let index = self.0.iter().position(|(known, _)| *known == purpose)?;
        Some(self.0.swap_remove(index).1)
    }
}

fn malformed(what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Sends a request.
///
/// # Errors
/// `InvalidData` when it doesn't fit a packet, `EPIPE` when the launcher has ended.
pub fn send(
    socket: impl AsFd,
    spec: &LaunchSpec,
    descriptors: &[(Purpose, BorrowedFd<'_>)],
) -> io::Result<()> {
    /// A [`Request`] that owns nothing.
    #[derive(Serialize)]
    struct Borrowed<'a> {
        descriptors: Vec<Purpose>,
        spec: &'a LaunchSpec,
    }
    let (purposes, fds): (Vec<_>, Vec<_>) = descriptors.iter().copied().unzip();
    let request = Borrowed {
        descriptors: purposes,
        spec,
    };
    transmit(socket, &request, &fds)
}

/// Bytes of the largest request, for the buffer of [`receive`].
pub const MAX_REQUEST: usize = MAX_BODY;
/// Bytes of the largest answer, and more.
const MAX_REPLY: usize = 64;

/// Receives a request; `None` when there will be none any more. Nothing is left of it in the buffer.
///
/// # Errors
/// `InvalidData` for a packet that is no request: nothing may be started for it.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<(LaunchSpec, Passed)>> {
    let Some((request, fds)) = obtain::<Request>(socket, buffer)? else {
        return Ok(None);
    };
    let mut passed = Passed::default();
    if request.descriptors.len() != fds.len() {
        return Err(malformed(
            "descriptors that were announced and didn't come, or others",
        ));
    }
    for (purpose, fd) in request.descriptors.into_iter().zip(fds) {
        if passed.0.iter().any(|(known, _)| *known == purpose) {
            return Err(malformed("two descriptors for one purpose"));
        }
        passed.0.push((purpose, fd));
    }
    Ok(Some((request.spec, passed)))
}

/// Answers a request.
///
/// # Errors
/// `EPIPE` when the supervisor has ended.
pub fn reply(socket: impl AsFd, reply: Reply, pidfd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    transmit(socket, &reply, pidfd.as_slice())
}

/// Receives the answer; `None` when the launcher has ended without.
///
/// # Errors
/// `InvalidData` for what is no answer.
pub fn answer(socket: impl AsFd) -> io::Result<Option<(Reply, Option<OwnedFd>)>> {
    let Some((reply, mut fds)) = obtain::<Reply>(socket, &mut [0; MAX_REPLY])? else {
        return Ok(None);
    };
    let pidfd = fds.pop();
    if pidfd.is_some() != matches!(reply, Reply::Started { .. }) || !fds.is_empty() {
        return Err(malformed("an answer with the wrong descriptors"));
    }
    Ok(Some((reply, pidfd)))
}

fn transmit(socket: impl AsFd, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = codec::encode(message).map_err(malformed)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(malformed("too many descriptors"));
    }
    loop {
        let parts = [IoSlice::new(&bytes)];
        match sendmsg(&socket, &parts, &mut control, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other.map(drop)?),
        }
    }
}

fn obtain<T: DeserializeOwned>(
    socket: impl AsFd,
    buffer: &mut [u8],
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let (length, flags) = loop {
        let mut parts = [IoSliceMut::new(buffer)];
        match recvmsg(&socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            // An end with something unread in it.
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            other => {
                let received = other?;
                break (received.bytes, received.flags);
            }
        }
    };
    let fds: Vec<OwnedFd> = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => Some(rights),
            _ => None,
        })
        .flatten()
        .collect();
    if length == 0 && fds.is_empty() {
        return Ok(None);
    }
    if flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(malformed(
            "a packet that is too large, or descriptors were lost",
        ));
    }
    let received = buffer.get_mut(..length).unwrap_or_default();
    let message = codec::decode(received).map_err(malformed);
    received.fill(0);
    Ok(Some((message?, fds)))
}
