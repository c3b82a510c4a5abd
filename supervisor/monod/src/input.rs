//! Everything that happens to the supervisor, in one queue: it decides one thing at a time.

use crate::process::Source;
use crate::stubs::Arrival;
use crate::violations::Event;
use ipc_proto::RunId;
use ipc_proto::admin::{Admin, Ask};
use ipc_proto::channel::{Fault, Responder};
use ipc_proto::edges::control::FromWorker;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Instant;
use tokio::sync::OwnedSemaphorePermit;

/// Names a process for as long as the supervisor lives; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ProcessId(pub(crate) u64);

/// One thing that happened. What a process says holds one of its places in the queue until it was
/// decided, so that none fills it.
#[derive(Debug)]
pub(crate) enum Input {
    /// A worker said something that the table allows.
    Packet {
        process: ProcessId,
        request: u64,
        message: FromWorker,
        fds: VecDeque<OwnedFd>,
        _place: OwnedSemaphorePermit,
    },
    /// A worker closed its control channel, or broke the protocol.
    ChannelEnded {
        process: ProcessId,
        error: Option<String>,
    },
    /// SIGCHLD: at least one process ended.
    ChildEnded,
    /// A process logged a line.
    Line {
        source: Source,
        text: String,
        _place: OwnedSemaphorePermit,
    },
    /// A process made a forbidden system call.
    Forbidden { source: Source, event: Event },
    /// A process logs nothing more.
    LinesEnded { process: ProcessId },
    /// A slot's delay is over.
    Due,
    /// An operator asks.
    Asked {
        ask: Ask,
        fds: VecDeque<OwnedFd>,
        responder: Responder<Admin>,
    },
    /// The program on disk would take over, or says why not.
    Checked {
        result: Result<(), String>,
        responder: Responder<Admin>,
    },
    /// The end of a run that its process did not report is on record.
    Interrupted { run: RunId },
    /// What the console wanted to see is there.
    Looked {
        process: ProcessId,
        request: u64,
        result: Result<serde_json::Value, Fault>,
    },
    /// A stub has connected to the gateway.
    Arrived(Arrival),
    /// Heartbeats and deadlines.
    Tick,
    /// The next look at the memory of runs and servers is due; the one before began then.
    LookAtMemory { since: Instant },
    /// Processes that were seen above their limit, and the bytes that they used.
    Memory {
        since: Instant,
        above: Vec<(ProcessId, u64)>,
    },
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGTERM, SIGINT.
    Stop,
}
