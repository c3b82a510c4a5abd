//! The gateway's socket: whoever connects is of our own user, or is turned away; the connection goes
//! to `app-bridge`, which speaks with it. Not one byte of it is read here.

use crate::input::Input;
use crate::supervisor::Supervisor;
use ipc_proto::Role;
use ipc_proto::edges::control::ToWorker;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener as StdListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Connections that wait for the supervisor's decision.
const UNDECIDED: usize = 16;

/// A connection whose other end is known.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) fd: OwnedFd,
    pub(crate) pid: u32,
    pub(crate) started: u64,
    _place: OwnedSemaphorePermit,
}

/// Accepts stubs from now on.
///
/// # Errors
/// When the socket can't be waited for.
pub(crate) fn accept(listener: OwnedFd, tell: mpsc::UnboundedSender<Input>) -> io::Result<()> {
    let listener = UnixListener::from_std(StdListener::from(listener))?;
    tokio::spawn(serve(listener, tell));
    Ok(())
}

async fn serve(listener: UnixListener, tell: mpsc::UnboundedSender<Input>) {
    let places = Arc::new(Semaphore::new(UNDECIDED));
    loop {
        // Who connects in a loop fills the socket's own queue and not ours.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => match arrival(stream, place) {
                Ok(arrival) => {
                    if tell.send(Input::Arrived(arrival)).is_err() {
                        return;
                    }
                }
                Err(e) => tracing::warn!("refused at the gateway: {e}"),
            },
            Err(e) => {
                tracing::warn!("a stub could not connect: {e}");
                // Out of descriptors: a moment later some are free again.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn arrival(stream: UnixStream, place: OwnedSemaphorePermit) -> io::Result<Arrival> {
    let peer = stream.peer_cred()?;
    let us = nix::unistd::geteuid().as_raw();
    if peer.uid() != us {
        let text = format!("a process of user {}, not of {us}", peer.uid());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok());
    let pid = pid.filter(|pid| *pid != 0);
    let pid = pid.ok_or_else(|| io::Error::other("a process that can't be seen from here"))?;
    let started = started(&std::fs::read_to_string(
        Path::new("/proc").join(pid.to_string()).join("stat"),
    )?);
    let started = started.ok_or_else(|| io::Error::other("a process without a start time"))?;
    Ok(Arrival {
        fd: stream.into_std()?.into(),
        pid,
        started,
        _place: place,
    })
}

/// When a process was started, of its `/proc/PID/stat`. Its name may hold anything, brackets too.
fn started(stat: &str) -> Option<u64> {
    let (_, after) = stat.rsplit_once(')')?;
    after.split_ascii_whitespace().nth(19)?.parse().ok()
}

impl Supervisor {
    /// A stub has connected. Without a bridge it is let go, and comes again.
    pub(crate) fn arrived(&mut self, arrival: Arrival) {
        let bridge = self.serving(Role::AppBridge);
        let bridge = bridge.and_then(|id| self.processes.get(&id));
        let Arrival {
            fd, pid, started, ..
        } = arrival;
        let taken = bridge.is_some_and(|bridge| {
            let stub = ToWorker::Stub { pid, started };
            bridge.send(0, stub, vec![fd])
        });
        if !taken {
            tracing::debug!(pid, "a stub connected and nobody serves the gateway");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_start_time_is_read_whatever_the_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 424242 20";
        assert_eq!(started(&format!("7 (a) {rest}")), Some(424_242));
        assert_eq!(started(&format!("7 (a) S) 0 (b) {rest}")), Some(424_242));
        assert_eq!(started("7 (a) S 1"), None);
        let own = std::fs::read_to_string("/proc/self/stat").unwrap();
        assert!(started(&own).unwrap() > 0);
    }
}
