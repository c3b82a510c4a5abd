//! One socket pair end: sends and receives packets, checked against the table.

use crate::channel::Fault;
use crate::codec::{self, CodecError};
use crate::frame::{FrameError, Header, MAX_PACKET};
use crate::message::Message;
use crate::socket::{MAX_DESCRIPTORS, Received, Socket, send_now};
use crate::table::{CANCEL, CREDIT, FAULT, Guard, Violation};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Bytes of the receive buffer: far more than a packet, so that the allocator maps it instead of
/// zeroing it, and only the pages exist that a packet once reached.
const BUFFER: usize = 4 * MAX_PACKET;

thread_local! {
    /// One receive buffer per thread: a packet is decoded before the next is read.
    static PACKET: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER]);
}

/// Why a link is of no more use, or why a message was not sent.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The kernel said so; the peer is usually gone.
    #[error("the channel failed: {0}")]
    Io(#[from] io::Error),
    /// No packet of ours.
    #[error("a packet without a valid header: {0}")]
    Frame(#[from] FrameError),
    /// A body of another shape.
    #[error("{0}")]
    Codec(#[from] CodecError),
    /// The table refused it.
    #[error("{0}")]
    Violation(#[from] Violation),
}

/// What a packet carried.
#[derive(Debug)]
pub enum Payload<M> {
    /// A message of the edge.
    Message(M),
    /// The request with this packet's id is withdrawn.
    Cancel,
    /// So many more messages may be sent for this id.
    Credit(u32),
    /// The request with this id can't be served.
    Fault(Fault),
}

/// A received packet.
#[derive(Debug)]
pub struct Incoming<M> {
    /// Correlation id.
    pub id: u64,
    /// Milliseconds that the sender waits; 0 for no bound.
    pub deadline_ms: u32,
    /// What it carried.
    pub payload: Payload<M>,
    /// Its descriptors, close-on-exec.
    pub fds: VecDeque<OwnedFd>,
}

/// The sending half; clones send on the same socket.
#[derive(Debug, Clone)]
pub struct LinkSender {
    socket: Arc<Socket>,
    version: u16,
}

/// The receiving half.
#[derive(Debug)]
pub struct LinkReceiver {
    socket: Arc<Socket>,
    guard: Guard,
}

/// Both halves.
#[derive(Debug)]
pub struct Link {
    /// Sends.
    pub sender: LinkSender,
    /// Receives.
    pub receiver: LinkReceiver,
}

impl Link {
    /// Takes one end of a non-blocking `SOCK_SEQPACKET` pair. Needs a tokio runtime.
    ///
    /// # Errors
    /// When the descriptor can't be registered with the runtime.
    pub fn new(fd: OwnedFd, guard: Guard) -> io::Result<Self> {
        let socket = Arc::new(Socket::new(fd)?);
        Ok(Self {
            sender: LinkSender {
                socket: socket.clone(),
                version: crate::VERSION_MAX,
            },
            receiver: LinkReceiver { socket, guard },
        })
    }
}

/// A connected, non-blocking, close-on-exec `SOCK_SEQPACKET` pair. Needs no runtime.
///
/// # Errors
/// When the process has no descriptors left.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    Ok(socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
    )?)
}

/// Sends one message without descriptors on a socket that is no [`Link`] yet. Needs no runtime: for
/// what is said first, when the peer's queue is empty.
///
/// # Errors
/// When the peer is gone, or its queue is full after all.
pub fn say<M: Message>(socket: &OwnedFd, message: &M) -> Result<(), LinkError> {
    let header = Header {
        version: crate::VERSION_MAX,
        kind: message.kind(),
        id: 0,
        deadline_ms: 0,
        descriptors: 0,
    };
    let (head, body) = (header.encode(), message.encode()?);
    let parts = [IoSlice::new(&head), IoSlice::new(&body)];
    Ok(send_now(socket.as_fd(), &parts, &[])?)
}

impl LinkSender {
    /// Ends the channel both ways, also for who waits to send on a clone.
    pub(crate) fn close(&self) {
        self.socket.close();
    }

    /// Speaks this protocol version from now on.
    pub fn set_version(&mut self, version: u16) {
        self.version = version;
    }

    /// Sends one message with its descriptors. Waits while the peer's buffer is full.
    ///
    /// # Errors
    /// When the peer is gone or the message doesn't fit a packet.
    pub async fn send<M: Message>(
        &self,
        id: u64,
        deadline_ms: u32,
        message: &M,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), LinkError> {
        self.send_raw(id, deadline_ms, message.kind(), &message.encode()?, fds)
            .await
    }

    /// Withdraws the request `id`.
    ///
    /// # Errors
    /// When the peer is gone.
    pub async fn cancel(&self, id: u64) -> Result<(), LinkError> {
        self.send_raw(id, 0, CANCEL, &[], &[]).await
    }

    /// Allows `n` more messages for `id`.
    ///
    /// # Errors
    /// When the peer is gone.
    pub async fn credit(&self, id: u64, n: u32) -> Result<(), LinkError> {
        self.send_raw(id, 0, CREDIT, &codec::encode(&n)?, &[]).await
    }

    /// Says that the request `id` can't be served.
    ///
    /// # Errors
    /// When the peer is gone.
    pub async fn fault(&self, id: u64, fault: &Fault) -> Result<(), LinkError> {
        self.send_raw(id, 0, FAULT, &codec::encode(fault)?, &[])
            .await
    }

    /// Sends a body of any kind; the tests of hostile packets use it too.
    ///
    /// # Errors
    /// When the peer is gone.
    pub async fn send_raw(
        &self,
        id: u64,
        deadline_ms: u32,
        kind: u16,
        body: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), LinkError> {
        let header = Header {
            version: self.version,
            kind,
            id,
            deadline_ms,
            descriptors: u8::try_from(fds.len()).unwrap_or(u8::MAX),
        };
        let head = header.encode();
        let parts = [IoSlice::new(&head), IoSlice::new(body)];
        if fds.len() > MAX_DESCRIPTORS {
            return Err(Violation::new("at most 16 descriptors", fds.len().to_string()).into());
        }
        self.socket.send(&parts, fds).await?;
        Ok(())
    }
}

impl LinkReceiver {
    /// Who is at the other end, and what it may say.
    pub fn guard(&mut self) -> &mut Guard {
        &mut self.guard
    }

    /// The socket once more, to go on with it in another process image. What has not been
    /// received waits in it.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.socket.descriptor()
    }

    /// The next packet, or `None` when the peer closed its end.
    ///
    /// # Errors
    /// After an error the link must be dropped: the peer broke the protocol or is gone.
    pub async fn recv<M: Message>(&mut self) -> Result<Option<Incoming<M>>, LinkError> {
        poll_fn(|cx| self.poll_recv(cx, false)).await
    }

    /// [`LinkReceiver::recv`] as a poll; the socket wakes the last one who polled. With `at_once`
    /// the socket is looked at even when the runtime has not heard of a packet.
    pub(crate) fn poll_recv<M: Message>(
        &mut self,
        cx: &mut Context<'_>,
        at_once: bool,
    ) -> Poll<Result<Option<Incoming<M>>, LinkError>> {
        PACKET.with_borrow_mut(|buffer| {
            // One byte more than a packet has, to see that it was longer.
            let buffer = &mut buffer[..=MAX_PACKET];
            let room = usize::from(M::MAX_DESCRIPTORS);
            let received = ready!(if at_once {
                self.socket.poll_recv_at_once(cx, buffer, room)
            } else {
                self.socket.poll_recv(cx, buffer, room)
            });
            Poll::Ready(incoming(&mut self.guard, buffer, room, received))
        })
    }
}

fn incoming<M: Message>(
    guard: &mut Guard,
    buffer: &[u8],
    room: usize,
    received: io::Result<Received>,
) -> Result<Option<Incoming<M>>, LinkError> {
    let packet = match received {
        Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
        other => other?,
    };
    if packet.descriptors_lost {
        let most = format!("at most {room} descriptors");
        return Err(Violation::new(most, "more of them").into());
    }
    if packet.length == 0 {
        return Ok(None);
    }
    decode(guard, &buffer[..packet.length], packet.fds).map(Some)
}

/// Everything that is done with the bytes of a packet; pure, and the fuzz target's entry.
///
/// # Errors
/// [`LinkError`] for anything that isn't exactly what the table allows.
pub fn decode<M: Message>(
    guard: &mut Guard,
    packet: &[u8],
    fds: VecDeque<OwnedFd>,
) -> Result<Incoming<M>, LinkError> {
    let (header, body) = Header::decode(packet)?;
    if header.version < crate::VERSION_MIN || header.version > crate::VERSION_MAX {
        return Err(Violation::new(
            format!("version {} to {}", crate::VERSION_MIN, crate::VERSION_MAX),
            header.version.to_string(),
        )
        .into());
    }
    if usize::from(header.descriptors) != fds.len() {
        return Err(Violation::new(
            format!("{} descriptors as announced", header.descriptors),
            fds.len().to_string(),
        )
        .into());
    }
    guard.admit(header.kind, fds.len())?;
    let payload = match header.kind {
        CANCEL => {
            if !body.is_empty() {
                return Err(CodecError::LeftOver(body.len()).into());
            }
            Payload::Cancel
        }
        CREDIT => Payload::Credit(codec::decode(body)?),
        FAULT => Payload::Fault(codec::decode(body)?),
        kind => {
            let message = M::decode(body)?;
            if message.kind() != kind {
                return Err(Violation::new(
                    format!("a body of kind {kind:#06x}"),
                    format!("one of kind {:#06x}", message.kind()),
                )
                .into());
            }
            Payload::Message(message)
        }
    };
    Ok(Incoming {
        id: header.id,
        deadline_ms: header.deadline_ms,
        payload,
        fds,
    })
}

/// Borrows a list of owned descriptors for sending.
#[must_use]
pub fn borrow(fds: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    fds.iter().map(AsFd::as_fd).collect()
}
