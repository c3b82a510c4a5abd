//! A hostile channel worker against the supervisor: starts of runs that are none.

use crate::attack::live::wire::Said;
use crate::attack::live::worker::{Session, report};
use anyhow::{Result, bail};
use ipc_proto::Body;
use ipc_proto::edges::control::{FromWorker, StartRun, ToWorker, Trigger};
use ipc_proto::{ConversationId, RunId};
use nix::fcntl::{OFlag, open};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::Mode;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

/// Names of the attacks, in the order in which they are made.
pub const NAMES: [&str; 7] = [
    "cancel-of-a-run-that-is-not",
    "run-whose-input-is-a-pipe",
    "run-whose-input-can-still-change",
    "run-whose-input-did-not-come",
    "run-whose-input-is-a-file",
    "run-whose-input-is-no-json",
    "runs-without-end",
];

/// Starts of a flood; far more than the queue takes.
const FLOOD: u64 = 2_000;

/// Makes them one after the other.
///
/// # Errors
/// When the supervisor ends the channel: it has no reason to.
pub fn serve(session: &mut Session) -> Result<()> {
    session.greet()?;
    // The key and the listener are of no use to it here.
    let device: OwnedFd = open("/proc/self/status", OFlag::O_RDONLY, Mode::empty())?;
    session.become_ready()?;
    let (pipe, _writer) = std::io::pipe()?;
    let memory = memfd_create(c"attack", MFdFlags::empty())?;
    let starts: [(&str, Body, Option<OwnedFd>); 5] = [
        (NAMES[1], Body::Sealed(100), Some(pipe.into())),
        (NAMES[2], Body::Sealed(100), Some(memory)),
        (NAMES[3], Body::Sealed(100), None),
        (NAMES[4], Body::Sealed(100), Some(File::from(device).into())),
        (NAMES[5], Body::Inline(b"{".to_vec()), None),
    ];
    let cancel = FromWorker::CancelRun {
        run: RunId::new(),
        reason: "attack".into(),
    };
    session.wire.tell(1, &cancel, &[])?;
    report(&format!("over {} {}", NAMES[0], answer(session)?));
    for (name, input, fd) in starts {
        let fds: Vec<_> = fd.iter().map(AsRawFd::as_raw_fd).collect();
        session.wire.tell(2, &start(input), &fds)?;
        report(&format!("over {name} {}", answer(session)?));
    }
    let mut sent = 0;
    while sent < FLOOD {
        match session
            .wire
            .tell(3 + sent, &start(Body::Inline(b"{".to_vec())), &[])?
        {
            Said::Taken => sent += 1,
            Said::Full => session.wait_for_room()?,
            Said::Ended => bail!("the supervisor has ended the channel"),
        }
    }
    // Nothing was read in the meantime; what was queued is bounded, and some of it is lost.
    let content = if session.answers_a_ping()? {
        "answered"
    } else {
        "ended"
    };
    report(&format!("over {} {content}", NAMES[6]));
    while session.answers_a_ping()? {}
    Ok(())
}

fn start(input: Body) -> FromWorker {
    let conversation = || ConversationId::parse("attack:flood");
    FromWorker::StartRun {
        start: StartRun {
            conversation: conversation().unwrap_or_else(|e| panic!("{e}")),
            delivery: conversation().unwrap_or_else(|e| panic!("{e}")),
            trigger: Trigger {
                source: "attack".into(),
                detail: None,
            },
            input,
        },
    }
}

fn answer(session: &mut Session) -> Result<&'static str> {
    Ok(match session.next_but_ping()? {
        None => "ended",
        Some((
            _,
            ToWorker::Done | ToWorker::RunStarted { .. } | ToWorker::RunRefused { .. },
            _,
        )) => "answered",
        Some((_, other, _)) => bail!("{other:?}"),
    })
}
