//! One confined process: its descriptors, its state, the tasks that read from it.

use crate::input::{Input, ProcessId};
use ipc_proto::edges::control::{FromWorker, SandboxReport, ToWorker};
use ipc_proto::link::{Incoming, Link, LinkReceiver, LinkSender, Payload, borrow};
use ipc_proto::table::{Guard, Phase};
use ipc_proto::{Role, RunId};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Instant;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

/// Packets to one worker that wait for its socket; a worker that lets more pile up is ended.
const OUTGOING: usize = 1024;
/// Longest log line of a worker in bytes; the rest of it is dropped.
const LINE: u64 = 8 * 1024;

/// Where a process stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Started, not ready.
    Starting,
    /// Ready.
    Serving,
    /// Another process has taken over; it finishes what it began.
    Draining,
    /// Asked to end.
    Ending,
}

impl State {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Serving => "serving",
            Self::Draining => "draining",
            Self::Ending => "ending",
        }
    }
}

/// A packet on its way to a worker.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) id: u64,
    pub(crate) message: ToWorker,
    pub(crate) fds: Vec<OwnedFd>,
}

/// A confined process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) role: Role,
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
    /// Those that differ from ours, as the kernel told before it ran anything.
    pub(crate) namespaces: Option<Vec<&'static str>>,
    pub(crate) state: State,
    pub(crate) since: Instant,
    pub(crate) protocol: u16,
    pub(crate) sandbox: Option<SandboxReport>,
    pub(crate) last_line: String,
    /// The heartbeat that is out, and since when.
    pub(crate) ping: Option<(u64, Instant)>,
    /// The run it serves.
    pub(crate) run: Option<RunId>,
    /// Removed with the process.
    pub(crate) scratch: Option<PathBuf>,
    /// Its handshake or its sandbox was refused.
    pub(crate) unfit: bool,
    /// It was ended because it is no longer wanted.
    pub(crate) dismissed: bool,
    outgoing: Option<mpsc::Sender<Outgoing>>,
}

impl Process {
    /// Follows a started child.
    pub(crate) fn new(
        id: ProcessId,
        role: Role,
        child: mono_sys::process::Child,
        scratch: Option<PathBuf>,
    ) -> Self {
        Self {
            id,
            role,
            pid: child.pid,
            pidfd: child.pidfd,
            namespaces: child.namespaces,
            state: State::Starting,
            since: Instant::now(),
            protocol: 0,
            sandbox: None,
            last_line: String::new(),
            ping: None,
            run: None,
            scratch,
            unfit: false,
            dismissed: false,
            outgoing: None,
        }
    }

    /// Sends, without ever waiting for the worker. False when its queue is full or it is gone.
    pub(crate) fn send(&self, id: u64, message: ToWorker, fds: Vec<OwnedFd>) -> bool {
        self.outgoing
            .as_ref()
            .is_some_and(|queue| queue.try_send(Outgoing { id, message, fds }).is_ok())
    }

    /// How it ended, once it has; reaps it.
    pub(crate) fn ended(&self) -> Option<String> {
        match mono_sys::process::try_wait(&self.pidfd) {
            Ok(status) => status.map(|s| s.to_string()),
            Err(e) => Some(format!("unknown end: {e}")),
        }
    }

    /// Ends it at once, with everything in its process namespace.
    pub(crate) fn kill(&self) {
        // ESRCH: it ended by itself, which is what was wanted.
        let _ = mono_sys::process::pidfd_signal(&self.pidfd, nix::libc::SIGKILL);
    }

    /// Starts the tasks that follow the process: its log lines, its control channel.
    pub(crate) fn follow(
        &mut self,
        control: Option<OwnedFd>,
        stderr: Option<OwnedFd>,
        tell: &mpsc::UnboundedSender<Input>,
    ) -> io::Result<()> {
        let id = self.id;
        if let Some(stderr) = stderr {
            let reader = pipe::Receiver::from_owned_fd(stderr)?;
            tokio::spawn(read_lines(id, reader, tell.clone()));
        }
        if let Some(fd) = control {
            let Link { sender, receiver } = Link::new(fd, Guard::greeting(self.role))?;
            let (queue, wishes) = mpsc::channel(OUTGOING);
            self.outgoing = Some(queue);
            tokio::spawn(write_packets(sender, wishes));
            tokio::spawn(read_packets(id, receiver, tell.clone()));
        }
        Ok(())
    }
}

async fn read_lines(id: ProcessId, reader: pipe::Receiver, tell: mpsc::UnboundedSender<Input>) {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut bounded = (&mut reader).take(LINE);
        match bounded.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                if !text.is_empty() && tell.send(Input::Line { process: id, text }).is_err() {
                    return;
                }
            }
        }
    }
}

async fn write_packets(sender: LinkSender, mut wishes: mpsc::Receiver<Outgoing>) {
    while let Some(Outgoing { id, message, fds }) = wishes.recv().await {
        if sender.send(id, 0, &message, &borrow(&fds)).await.is_err() {
            return;
        }
    }
}

async fn read_packets(
    id: ProcessId,
    mut receiver: LinkReceiver,
    tell: mpsc::UnboundedSender<Input>,
) {
    let error = loop {
        let packet = match receiver.recv::<FromWorker>().await {
            Ok(Some(packet)) => packet,
            Ok(None) => break None,
            Err(e) => break Some(e.to_string()),
        };
        let Incoming {
            id: request,
            payload: Payload::Message(message),
            fds,
            ..
        } = packet
        else {
            break Some("expected a message, got a stream's packet".to_owned());
        };
        match message {
            FromWorker::Hello { .. } => receiver.guard().enter(Phase::Starting),
            FromWorker::Ready { .. } => receiver.guard().enter(Phase::Serving),
            _ => {}
        }
        let fds: VecDeque<OwnedFd> = fds;
        if tell
            .send(Input::Packet {
                process: id,
                request,
                message,
                fds,
            })
            .is_err()
        {
            return;
        }
    };
    let _ = tell.send(Input::ChannelEnded { process: id, error });
}
