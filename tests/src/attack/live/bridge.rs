//! A hostile app-bridge against the supervisor: servers that are none, and too many of those that
//! are.

use crate::attack::live::wire::Said;
use crate::attack::live::worker::{Session, report};
use anyhow::{Result, bail};
use ipc_proto::edges::control::{FromWorker, ToWorker};

/// Names of the attacks, in the order in which they are made.
pub const NAMES: [&str; 4] = [
    "start-of-a-server-that-is-not",
    "start-of-a-server-by-path",
    "stop-of-a-server-that-is-not",
    "servers-without-end",
];

/// The configured server; it lives as long as its input is open.
pub const SERVER: &str = "waits";
/// More than the supervisor starts at once.
const MANY: u64 = 160;
/// What it starts at most.
const MOST: usize = 128;

/// Makes them one after the other, and lives on with all the servers that it got.
///
/// # Errors
/// When the supervisor ends the channel: it has no reason to.
pub fn serve(session: &mut Session) -> Result<()> {
    session.greet()?;
    session.become_ready()?;
    for (name, server) in [(NAMES[0], "none"), (NAMES[1], "/bin/sh")] {
        session.wire.tell(1, &start(server), &[])?;
        report(&format!("over {name} {}", answer(session)?));
    }
    session
        .wire
        .tell(2, &FromWorker::StopServer { server: 7 }, &[])?;
    report(&format!("over {} {}", NAMES[2], answer(session)?));

    let mut sent = 0;
    while sent < MANY {
        match session.wire.tell(10 + sent, &start(SERVER), &[])? {
            Said::Taken => sent += 1,
            Said::Full => session.wait_for_room()?,
            Said::Ended => bail!("the supervisor has ended the channel"),
        }
    }
    let (mut started, mut refused) = (Vec::new(), 0);
    while started.len() + refused < usize::try_from(MANY)? {
        match session.next_but_ping()? {
            Some((_, ToWorker::ServerStarted { .. }, fds)) => started.push(fds),
            Some((_, ToWorker::ServerFailed { .. }, _)) => refused += 1,
            Some(_) => {}
            None => bail!("the supervisor has ended the channel"),
        }
    }
    let within = !started.is_empty() && started.len() <= MOST;
    let outcome = if within { "answered" } else { "done" };
    report(&format!("over {} {outcome}", NAMES[3]));
    // Until it is ended, and with it the servers.
    while session.answers_a_ping()? {}
    Ok(())
}

fn start(name: &str) -> FromWorker {
    FromWorker::StartServer {
        name: name.to_owned(),
        run: None,
    }
}

fn answer(session: &mut Session) -> Result<&'static str> {
    loop {
        return Ok(match session.next_but_ping()? {
            // Others may want something of it at any time.
            Some((_, ToWorker::Grant { .. }, _)) => continue,
            None => "ended",
            Some((_, ToWorker::Done | ToWorker::ServerFailed { .. }, _)) => "answered",
            Some((_, ToWorker::ServerStarted { .. }, _)) => "done",
            Some((_, other, _)) => bail!("{other:?}"),
        });
    }
}
