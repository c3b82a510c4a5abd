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
pub const NAMES: [&str; 8] = [
    "cancel-of-a-run-that-is-not",
    "run-whose-input-is-a-pipe",
    "run-whose-input-can-still-change",
    "run-whose-input-did-not-come",
    "run-whose-input-is-a-file",
    "run-whose-input-is-no-json",
    "run-in-a-conversation-of-the-console",
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
    report(&format!("over {} {}", NAMES[0], answer(session)?.0));
    for (name, input, fd) in starts {
        let fds: Vec<_> = fd.iter().map(AsRawFd::as_raw_fd).collect();
        session.wire.tell(2, &start(OWN, input), &fds)?;
        report(&format!("over {name} {}", answer(session)?.0));
    }
    let foreign = start("web:attack", Body::Inline(b"{}".to_vec()));
    session.wire.tell(2, &foreign, &[])?;
    let (content, started) = answer(session)?;
    let content = if started { "done" } else { content };
    report(&format!("over {} {content}", NAMES[6]));
    let mut sent = 0;
    while sent < FLOOD {
        match session
            .wire
            .tell(3 + sent, &start(OWN, Body::Inline(b"{".to_vec())), &[])?
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
    report(&format!("over {} {content}", NAMES[7]));
    while session.answers_a_ping()? {}
    Ok(())
}

/// A conversation that the channel's clients may name.
const OWN: &str = "attack:flood";

fn start(conversation: &str, input: Body) -> FromWorker {
    let conversation = || ConversationId::parse(conversation);
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

/// What the supervisor does, and whether it has started a run.
fn answer(session: &mut Session) -> Result<(&'static str, bool)> {
    Ok(match session.next_but_ping()? {
        None => ("ended", false),
        Some((_, ToWorker::RunStarted { .. }, _)) => ("answered", true),
        Some((_, ToWorker::Done | ToWorker::RunRefused { .. }, _)) => ("answered", false),
        Some((_, other, _)) => bail!("{other:?}"),
    })
}
