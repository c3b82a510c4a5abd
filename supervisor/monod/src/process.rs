//! One confined process: its descriptors, its state, the tasks that read from it.

use crate::input::{Input, ProcessId};
use crate::memory::Bound;
use crate::request::RunFolders;
use crate::violations::Ear;
use ipc_proto::edges::control::{FromWorker, SandboxReport, ToWorker};
use ipc_proto::link::{Incoming, Link, LinkReceiver, LinkSender, Payload, borrow};
use ipc_proto::table::{Guard, Phase};
use ipc_proto::{Role, RunId};
use mono_sys::process::ExitStatus;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinHandle;

/// Packets to one worker that wait for its socket; a worker that lets more pile up is ended.
const OUTGOING: usize = 1024;
/// Longest log line of a worker in bytes; a longer one is taken as several.
const LINE: u64 = 8 * 1024;
/// Lines and packets of one process that were read and not decided; what is more waits in the
/// kernel, and then the process waits.
const UNDECIDED: usize = 256;

/// Where a process stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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
    /// Those that differ from ours, as its launcher saw; `None` until it has told.
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
    /// What was made of it for a run.
    pub(crate) folders: Option<RunFolders>,
    /// How much memory it may use, with all below it.
    pub(crate) memory: Option<Bound>,
    /// Its handshake or its sandbox was refused.
    pub(crate) unfit: bool,
    /// It was ended because it is no longer wanted.
    pub(crate) dismissed: bool,
    /// It was told to end, or killed; it takes nothing on any more.
    pub(crate) ending: bool,
    /// It has ended, in this state and this way; its last lines may still be on their way.
    pub(crate) exit: Option<(State, String)>,
    /// When that was seen.
    pub(crate) ended_at: Instant,
    /// Hears of its forbidden system calls.
    pub(crate) ear: Option<Ear>,
    /// The one that it ends by.
    pub(crate) forbidden_call: Option<&'static str>,
    /// Its own and those of what it started.
    pub(crate) forbidden_calls: u32,
    /// Of its control channel and its standard error, those whose end has not come through the
    /// queue.
    open_streams: u8,
    outgoing: Option<mpsc::Sender<Outgoing>>,
    following: Option<Following>,
}

/// The tasks that follow a process. Told to stop, the readers give their descriptors back.
#[derive(Debug)]
struct Following {
    stop: watch::Sender<bool>,
    control: Option<JoinHandle<Option<OwnedFd>>>,
    stderr: Option<JoinHandle<Option<Unfinished>>>,
    writer: Option<JoinHandle<()>>,
}

/// A reader's descriptor, and the beginning of a line whose end has not come yet.
type Unfinished = (OwnedFd, Vec<u8>);

/// What is read from a process, when nothing reads from it any more.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// Our end of its control channel.
    pub(crate) control: Option<OwnedFd>,
    /// Our end of its standard error.
    pub(crate) stderr: Option<OwnedFd>,
    /// The beginning of a line whose end has not come yet.
    pub(crate) begun: Vec<u8>,
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
            namespaces: None,
            state: State::Starting,
            since: Instant::now(),
            protocol: 0,
            sandbox: None,
            last_line: String::new(),
            ping: None,
            run: None,
            scratch,
            folders: None,
            memory: None,
            unfit: false,
            dismissed: false,
            ending: false,
            exit: None,
            ended_at: Instant::now(),
            ear: None,
            forbidden_call: None,
            forbidden_calls: 0,
            open_streams: 0,
            outgoing: None,
            following: None,
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
            Ok(None) => None,
            Ok(Some(status)) => Some(match self.forbidden_call {
                Some(call) if status == ExitStatus::Signalled(nix::libc::SIGKILL) => {
                    format!("ended by a forbidden system call: {call}")
                }
                _ => status.to_string(),
            }),
            Err(e) => Some(format!("unknown end: {e}")),
        }
    }

    /// Ends it at once, with everything in its process namespace.
    pub(crate) fn kill(&self) {
        // ESRCH: it ended by itself, which is what was wanted.
        let _ = mono_sys::process::pidfd_signal(&self.pidfd, nix::libc::SIGKILL);
    }

    /// Starts the tasks that follow the process: its log lines, its control channel. A channel
    /// whose handshake is over, as that of a process which was taken over, goes on in that phase.
    pub(crate) fn follow(
        &mut self,
        streams: Streams,
        tell: &mpsc::UnboundedSender<Input>,
    ) -> io::Result<()> {
        let (stop, stopped) = watch::channel(false);
        let mut following = Following {
            stop,
            control: None,
            stderr: None,
            writer: None,
        };
        let places = Arc::new(Semaphore::new(UNDECIDED));
        let line = Source {
            process: self.id,
            role: self.role,
            pid: self.pid,
        };
        if let Some(stderr) = streams.stderr {
            let reader = pipe::Receiver::from_owned_fd(stderr)?;
            let lines = Voice {
                tell: tell.clone(),
                stop: stopped.clone(),
                places: places.clone(),
            };
            let lines = read_lines(line, reader, streams.begun, lines);
            following.stderr = Some(tokio::spawn(lines));
            self.open_streams += 1;
        }
        if let Some(fd) = streams.control {
            let mut guard = Guard::greeting(self.role);
            if self.state != State::Starting {
                guard.enter(Phase::Serving);
            }
            let Link { sender, receiver } = Link::new(fd, guard)?;
            let (queue, wishes) = mpsc::channel(OUTGOING);
            self.outgoing = Some(queue);
            following.writer = Some(tokio::spawn(write_packets(sender, wishes)));
            let voice = Voice {
                tell: tell.clone(),
                stop: stopped,
                places,
            };
            let packets = read_packets(self.id, receiver, voice);
            following.control = Some(tokio::spawn(packets));
            self.open_streams += 1;
        }
        self.following = Some(following);
        Ok(())
    }

    /// Listens for its forbidden system calls, and ends what makes one.
    pub(crate) fn hear(&mut self, ear: Ear, tell: &mpsc::UnboundedSender<Input>) {
        let source = Source {
            process: self.id,
            role: self.role,
            pid: self.pid,
        };
        ear.listen(source, tell);
        self.ear = Some(ear);
    }

    /// True until everything that it said has gone through the supervisor's queue.
    pub(crate) fn is_talking(&self) -> bool {
        self.open_streams > 0
    }

    /// One of its streams has ended.
    pub(crate) fn stream_ended(&mut self) {
        self.open_streams = self.open_streams.saturating_sub(1);
    }

    /// Stops reading. What came so far is in the supervisor's queue, what comes from now on waits
    /// in the kernel.
    pub(crate) async fn quieten(&mut self) -> Streams {
        let mut streams = Streams::default();
        if let Some(following) = &mut self.following {
            let _ = following.stop.send(true);
            if let Some(task) = following.control.take() {
                streams.control = task.await.ok().flatten();
            }
            if let Some(task) = following.stderr.take()
                && let Some((fd, begun)) = task.await.ok().flatten()
            {
                streams.stderr = Some(fd);
                streams.begun = begun;
            }
        }
        streams
    }

    /// Sends nothing more; the task that ends when what was sent has reached the worker's queue.
    pub(crate) fn last_sent(&mut self) -> Option<JoinHandle<()>> {
        self.outgoing = None;
        self.following.take().and_then(|f| f.writer)
    }
}

/// Where a line comes from; known also when the process is long reaped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    pub(crate) process: ProcessId,
    pub(crate) role: Role,
    pub(crate) pid: i32,
}

/// What a reader needs to be heard.
struct Voice {
    tell: mpsc::UnboundedSender<Input>,
    stop: watch::Receiver<bool>,
    places: Arc<Semaphore>,
}

impl Voice {
    /// A place in the supervisor's queue; `None` when the reader is to stop.
    async fn place(&mut self) -> Option<OwnedSemaphorePermit> {
        tokio::select! {
            biased;
            Ok(()) = self.stop.changed() => None,
            place = self.places.clone().acquire_owned() => place.ok(),
        }
    }
}

async fn read_lines(
    source: Source,
    reader: pipe::Receiver,
    mut line: Vec<u8>,
    mut voice: Voice,
) -> Option<Unfinished> {
    let mut reader = BufReader::new(reader);
    loop {
        let Some(place) = voice.place().await else {
            return unread(reader, line);
        };
        let mut bounded = (&mut reader).take(LINE);
        let read = tokio::select! {
            biased;
            // A process that never stops talking must not keep us from stopping.
            Ok(()) = voice.stop.changed() => return unread(reader, line),
            read = bounded.read_until(b'\n', &mut line) => read,
        };
        let ended = !matches!(read, Ok(count) if count > 0);
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        let said = Input::Line {
            source,
            text,
            _place: place,
        };
        if !line.trim_ascii().is_empty() && voice.tell.send(said).is_err() {
            return None;
        }
        line.clear();
        if ended {
            let process = source.process;
            let _ = voice.tell.send(Input::LinesEnded { process });
            return None;
        }
    }
}

/// The descriptor, and what was read from it and not said.
fn unread(reader: BufReader<pipe::Receiver>, mut begun: Vec<u8>) -> Option<Unfinished> {
    begun.extend_from_slice(reader.buffer());
    let fd = reader.into_inner().into_nonblocking_fd().ok()?;
    Some((fd, begun))
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
    mut voice: Voice,
) -> Option<OwnedFd> {
    let error = loop {
        let Some(place) = voice.place().await else {
            return receiver.descriptor().ok();
        };
        // A packet is taken from the socket whole and at once: to stop here loses none.
        let received = tokio::select! {
            biased;
            Ok(()) = voice.stop.changed() => return receiver.descriptor().ok(),
            received = receiver.recv::<FromWorker>() => received,
        };
        let packet = match received {
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
        let said = Input::Packet {
            process: id,
            request,
            message,
            fds,
            _place: place,
        };
        if voice.tell.send(said).is_err() {
            return None;
        }
    };
    let _ = voice.tell.send(Input::ChannelEnded { process: id, error });
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write;

    #[tokio::test]
    async fn a_thousand_and_twenty_four_packets_wait_for_a_worker_that_reads_nothing() {
        let (ours, _theirs) = ipc_proto::link::pair().unwrap();
        let pidfd = std::fs::File::open("/dev/null").unwrap().into();
        let child = mono_sys::process::Child { pid: 1, pidfd };
        let mut process = Process::new(ProcessId(1), Role::Store, child, None);
        let ping = |seq| ToWorker::Ping { seq };
        assert!(!process.send(0, ping(0), vec![]), "nobody is there yet");
        let (tell, _inputs) = mpsc::unbounded_channel();
        let streams = Streams {
            control: Some(ours),
            ..Streams::default()
        };
        process.follow(streams, &tell).unwrap();
        // The writer has no turn in between: nothing of it is in the kernel.
        assert!((0..1024).all(|seq| process.send(0, ping(seq), vec![])));
        assert!(!process.send(0, ping(1024), vec![]));
    }

    #[tokio::test]
    async fn a_flood_of_lines_waits_in_the_kernel_and_none_is_lost() {
        const LINES: usize = 20_000;
        let (reader, mut writer) = std::io::pipe().unwrap();
        let flood = std::thread::spawn(move || {
            for n in 0..LINES {
                writeln!(writer, "line {n}").unwrap();
            }
        });
        let (tell, mut inputs) = mpsc::unbounded_channel();
        let (_stop, stop) = watch::channel(false);
        let voice = Voice {
            tell,
            stop,
            places: Arc::new(Semaphore::new(UNDECIDED)),
        };
        let source = Source {
            process: ProcessId(1),
            role: Role::Store,
            pid: 1,
        };
        let reader = pipe::Receiver::from_owned_fd(reader.into()).unwrap();
        tokio::spawn(read_lines(source, reader, vec![], voice));
        let mut seen = 0;
        while let Some(input) = inputs.recv().await {
            assert!(inputs.len() < UNDECIDED, "{}", inputs.len());
            match input {
                Input::Line { text, .. } => assert_eq!(text, format!("line {seen}")),
                Input::LinesEnded { .. } => break,
                other => panic!("{other:?}"),
            }
            seen += 1;
            if seen % 1_000 == 0 {
                // Time in which a reader that doesn't wait would read on.
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            }
        }
        assert_eq!(seen, LINES);
        flood.join().unwrap();
    }
}
