//! The admin socket: with the gateway's ([`crate::stubs`]) the only named socket of the system.

use crate::input::Input;
use crate::operator::answer;
use ipc_proto::admin::{Admin, Ask};
use ipc_proto::channel::Fault;
use ipc_proto::{Role, Server};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket,
};
use nix::sys::stat::{Mode, umask};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_seqpacket::{UnixSeqpacket, UnixSeqpacketListener};

/// Connections at once.
const MAX_OPERATORS: usize = 64;

/// Why the admin socket can't be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    /// Something else is at the path.
    #[error("{} is {found}, not a socket of ours: look at it and remove it", path.display())]
    Planted {
        /// Where.
        path: PathBuf,
        /// What was found.
        found: String,
    },
    /// Another daemon answers there.
    #[error("another monod serves {}: stop it first, or give --socket another path", path.display())]
    InUse {
        /// Where.
        path: PathBuf,
    },
    /// The kernel refused.
    #[error("can't serve {}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Binds a socket, mode 0600 from its first moment. A left-over of an ended daemon is replaced;
/// anything else at the path refuses the start.
pub(crate) fn listen_at(path: &Path, kind: SockType) -> Result<OwnedFd, SocketError> {
    let failed = |source: io::Error| SocketError::Io {
        path: path.to_owned(),
        source,
    };
    let errno = |e: nix::Error| failed(e.into());
    let address = UnixAddr::new(path).map_err(errno)?;
    let new_socket = || {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        socket(AddressFamily::Unix, kind, flags, None).map_err(errno)
    };
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(failed(e)),
        Ok(found) => {
            let ours = found.uid() == nix::unistd::geteuid().as_raw();
            if !found.file_type().is_socket() || !ours {
                let what = if found.file_type().is_symlink() {
                    "a symbolic link".to_owned()
                } else if found.file_type().is_socket() {
                    format!("a socket of user {}", found.uid())
                } else {
                    "no socket".to_owned()
                };
                return Err(SocketError::Planted {
                    path: path.to_owned(),
                    found: what,
                });
            }
            let probe = new_socket()?;
            if connect(probe.as_raw_fd(), &address).is_ok() {
                return Err(SocketError::InUse {
                    path: path.to_owned(),
                });
            }
            std::fs::remove_file(path).map_err(failed)?;
        }
    }
    let listener = new_socket()?;
    // The file gets its mode when it is bound, so nobody else can connect even for a moment.
    let before = umask(Mode::from_bits_truncate(0o177));
    let bound = bind(listener.as_raw_fd(), &address);
    umask(before);
    bound.map_err(errno)?;
    listen(&listener, Backlog::new(64).map_err(errno)?).map_err(errno)?;
    Ok(listener)
}

/// A socket that systemd opened: it must be a listening `SOCK_SEQPACKET` one (`ListenSequentialPacket=`).
pub(crate) fn checked(fd: OwnedFd) -> Result<OwnedFd, SocketError> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    use nix::sys::socket::{getsockopt, sockopt};
    let path = || PathBuf::from("the socket passed as `admin`");
    let failed = |e: nix::Error| SocketError::Io {
        path: path(),
        source: e.into(),
    };
    let kind = getsockopt(&fd, sockopt::SockType).map_err(failed)?;
    if kind != SockType::SeqPacket || !getsockopt(&fd, sockopt::AcceptConn).map_err(failed)? {
        return Err(SocketError::Planted {
            path: path(),
            found: "not opened with ListenSequentialPacket=".to_owned(),
        });
    }
    fcntl(&fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(failed)?;
    Ok(fd)
}

/// Those who connect, and what they are owed.
#[derive(Debug)]
pub(crate) struct Operators {
    accepting: JoinHandle<()>,
    owed: Arc<Semaphore>,
}

impl Operators {
    /// Accepts operators from now on.
    pub(crate) fn accept(
        listener: OwnedFd,
        tell: mpsc::UnboundedSender<Input>,
    ) -> io::Result<Self> {
        let listener = UnixSeqpacketListener::try_from(listener)?;
        let owed = Arc::new(Semaphore::new(MAX_OPERATORS));
        let accepting = tokio::spawn(serve(listener, Arc::clone(&owed), tell));
        Ok(Self { accepting, owed })
    }

    /// Accepts no more: who connects now waits for the next daemon, if the socket is the unit's.
    pub(crate) fn close(&self) {
        self.accepting.abort();
    }

    /// Waits until everyone who was accepted has asked something.
    pub(crate) async fn have_asked(&self) {
        // Fails when the semaphore is closed, which it never is.
        let _ = self.owed.acquire_many(MAX_OPERATORS as u32).await;
    }
}

async fn serve(
    mut listener: UnixSeqpacketListener,
    owed: Arc<Semaphore>,
    tell: mpsc::UnboundedSender<Input>,
) {
    let places = Arc::new(Semaphore::new(MAX_OPERATORS));
    loop {
        let connection = match listener.accept().await {
            Ok(connection) => connection,
            Err(e) => {
                tracing::warn!("an operator could not connect: {e}");
                // Out of descriptors: a moment later some are free again.
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::warn!("{MAX_OPERATORS} operators are connected already");
            continue;
        };
        let Ok(debt) = Arc::clone(&owed).try_acquire_owned() else {
            continue;
        };
        let tell = tell.clone();
        tokio::spawn(async move {
            if let Err(e) = converse(connection, debt, tell).await {
                tracing::debug!("an operator's connection ended: {e}");
            }
            drop(place);
        });
    }
}

async fn converse(
    connection: UnixSeqpacket,
    debt: OwnedSemaphorePermit,
    tell: mpsc::UnboundedSender<Input>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let peer = connection.peer_cred()?;
    let us = nix::unistd::geteuid().as_raw();
    if peer.uid() != us && peer.uid() != 0 {
        tracing::warn!(uid = peer.uid(), "refused an operator of another user");
        return Ok(());
    }
    // monoctl is no worker: its permission is the socket, and it speaks with our name.
    let mut server: Server<Admin> = Server::new(connection.into(), Role::Monod)?;
    let mut greeted = false;
    let mut debt = Some(debt);
    while let Some(call) = server.recv().await? {
        greeted |= matches!(call.request, Ask::Hello { .. });
        if !greeted {
            let fault = Fault::new("no_hello", "the first request must be `hello`");
            answer::<()>(call.responder, Err(fault)).await;
            return Ok(());
        }
        let question = !matches!(call.request, Ask::Hello { .. });
        let asked = Input::Asked {
            ask: call.request,
            fds: call.fds,
            responder: call.responder,
        };
        if tell.send(asked).is_err() {
            return Ok(());
        }
        if question {
            debt = None;
        }
    }
    drop(debt);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ipc_proto::Client;
    use std::time::{Duration, Instant};

    type Inputs = mpsc::UnboundedReceiver<Input>;

    /// True when the daemon hears who connects; who is turned away finds the connection closed.
    async fn is_heard(client: &Client<Admin>, inputs: &mut Inputs) -> bool {
        let hello = Ask::Hello {
            version_min: 1,
            version_max: 1,
        };
        let Ok(_replies) = client.stream(&hello, &[], None).await else {
            return false;
        };
        tokio::select! {
            input = inputs.recv() => matches!(input, Some(Input::Asked { .. })),
            () = client.closed() => false,
        }
    }

    #[tokio::test]
    async fn sixty_four_operators_are_connected_at_once_and_one_more_is_turned_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("monod.sock");
        let listener = listen_at(&path, SockType::SeqPacket).unwrap();
        let (tell, mut inputs) = mpsc::unbounded_channel();
        let operators = Operators::accept(listener, tell).unwrap();
        let connect = || async {
            let connection = UnixSeqpacket::connect(&path).await.unwrap();
            Client::<Admin>::new(connection.into(), Role::Monod).unwrap()
        };
        let mut connected = Vec::new();
        for number in 0..64 {
            let client = connect().await;
            assert!(is_heard(&client, &mut inputs).await, "{number}");
            connected.push(client);
        }
        assert!(!is_heard(&connect().await, &mut inputs).await);
        // Who leaves makes room.
        connected.pop();
        let deadline = Instant::now() + Duration::from_secs(30);
        while !is_heard(&connect().await, &mut inputs).await {
            assert!(Instant::now() < deadline);
        }
        operators.close();
    }
}
