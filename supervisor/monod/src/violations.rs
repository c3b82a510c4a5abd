//! Forbidden system calls of confined processes: heard from the kernel, ended, logged, counted.

use crate::input::Input;
use crate::process::Source;
use crate::supervisor::Supervisor;
use ipc_proto::{Role, RunId};
use policy::violation::{self, Arrival, Heard, Violation};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

/// Log lines about one process tree; a run may make such calls as fast as it can start commands.
/// All are counted.
const LOGGED: u32 = 32;

/// Calls that ended a process, by role and by the call's name. Bounded: the names are those of the
/// policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Violations(BTreeMap<String, BTreeMap<String, u64>>);

impl Violations {
    /// Role, call and how often.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        self.0.iter().flat_map(|(role, calls)| {
            calls
                .iter()
                .map(move |(call, n)| (role.as_str(), call.as_str(), *n))
        })
    }

    fn enter(&mut self, role: Role, call: &'static str) {
        let calls = self.0.entry(role.name().to_owned()).or_default();
        *calls.entry(call.to_owned()).or_default() += 1;
    }
}

/// The descriptor that tells of a process's forbidden calls. It must stay open: without it such
/// calls return an error, and nobody learns of them.
#[derive(Debug, Clone)]
pub(crate) enum Hearing {
    /// The launcher is about to send it over this socket.
    Awaited(Arc<OwnedFd>),
    /// The listener of the process's first filter.
    Listener(Arc<OwnedFd>),
}

/// Shared between a process and the task that listens for it.
#[derive(Debug, Clone)]
pub(crate) struct Ear(Arc<Mutex<Hearing>>);

impl Ear {
    pub(crate) fn new(hearing: Hearing) -> Self {
        Self(Arc::new(Mutex::new(hearing)))
    }

    /// For a process whose launcher has just been started.
    pub(crate) fn awaiting(socket: OwnedFd) -> Self {
        Self::new(Hearing::Awaited(Arc::new(socket)))
    }

    /// Another descriptor of what it hears with, for another image of the supervisor, and whether
    /// the listener is only to come on it.
    pub(crate) fn pack(&self) -> io::Result<(OwnedFd, bool)> {
        match self.hearing() {
            Hearing::Awaited(socket) => Ok((socket.try_clone()?, true)),
            Hearing::Listener(listener) => Ok((listener.try_clone()?, false)),
        }
    }

    /// [`Ear::pack`] undone.
    pub(crate) fn packed(fd: OwnedFd, awaited: bool) -> Self {
        let fd = Arc::new(fd);
        Self::new(if awaited {
            Hearing::Awaited(fd)
        } else {
            Hearing::Listener(fd)
        })
    }

    /// What it hears with now.
    fn hearing(&self) -> Hearing {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, hearing: Hearing) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = hearing;
    }

    /// Starts the task that ends whoever makes a forbidden call.
    pub(crate) fn listen(&self, source: Source, tell: &mpsc::UnboundedSender<Input>) {
        let ear = self.clone();
        let tell = tell.clone();
        tokio::spawn(async move {
            let event = |event| Input::Forbidden { source, event };
            let heard = |heard| drop(tell.send(event(heard)));
            if let Err(e) = ear.hear(heard).await {
                let _ = tell.send(event(Event::Deaf(e.to_string())));
            }
        });
    }

    /// Until no process has the filter any more.
    async fn hear(&self, tell: impl Fn(Event)) -> io::Result<()> {
        let listener = match self.hearing() {
            Hearing::Listener(listener) => listener,
            Hearing::Awaited(socket) => match received(socket).await {
                Ok(Arrival {
                    listener,
                    namespaces,
                }) => {
                    tell(Event::Listening(namespaces));
                    let listener = Arc::new(listener);
                    self.set(Hearing::Listener(Arc::clone(&listener)));
                    listener
                }
                // The launcher failed before, and its exit status says at what.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(e) => return Err(e),
            },
        };
        let listener = registered(listener)?;
        loop {
            let mut ready = listener.readable().await?;
            loop {
                match violation::next(listener.get_ref())? {
                    Heard::Caught(caught) => {
                        // First, so that the name is known when the end is.
                        tell(Event::Called(caught.violation));
                        caught.end()?;
                        // A run can make such calls faster than they are taken; the daemon has
                        // more to do.
                        tokio::task::yield_now().await;
                    }
                    Heard::Nothing => break,
                    Heard::Over => return Ok(()),
                }
            }
            ready.clear_ready();
        }
    }
}

#[allow(
    deprecated,
    reason = "it lets safe code register something that is no descriptor; an OwnedFd is one, and \
              stays it for as long as the registration shares it"
)]
fn registered(fd: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}

async fn received(socket: Arc<OwnedFd>) -> io::Result<Arrival> {
    let socket = registered(socket)?;
    loop {
        let mut ready = socket.readable().await?;
        if let Ok(result) = ready.try_io(|socket| violation::receive(socket.get_ref())) {
            return result;
        }
    }
}

/// What a listening task tells.
#[derive(Debug)]
pub(crate) enum Event {
    /// It is listened to from now on; the namespaces of the process that are not ours.
    Listening(Vec<&'static str>),
    /// A process made a forbidden call and is being ended.
    Called(Violation),
    /// Nothing is heard of the process any more.
    Deaf(String),
}

impl Supervisor {
    /// A forbidden call, or that none would be heard of.
    pub(crate) fn forbidden(&mut self, source: Source, event: Event) {
        let Source { process, role, .. } = source;
        match event {
            Event::Listening(namespaces) => {
                if let Some(process) = self.processes.get_mut(&process) {
                    process.namespaces = Some(namespaces);
                }
            }
            Event::Called(violation) => self.called(source, violation),
            Event::Deaf(why) => {
                tracing::error!(role = %role, pid = source.pid, "its forbidden system calls can't be heard: {why}");
                if let Some(process) = self.processes.get_mut(&process) {
                    process.last_line = "its forbidden system calls can't be heard".to_owned();
                }
                self.end(process);
            }
        }
    }

    fn called(&mut self, source: Source, violation: Violation) {
        let Source { process, role, .. } = source;
        let Violation { pid, call, number } = violation;
        self.forbidden.enter(role, call);
        let mut run = None;
        if let Some(process) = self.processes.get_mut(&process) {
            process.forbidden_calls = process.forbidden_calls.saturating_add(1);
            if pid == process.pid {
                process.forbidden_call = Some(call);
            }
            match said_of(process.forbidden_calls) {
                Said::Whole => {}
                Said::LastWord => {
                    tracing::warn!(role = %role, pid = process.pid, "further forbidden system calls of it are only counted");
                    return;
                }
                Said::Nothing => return,
            }
            run.clone_from(&process.run);
        }
        let run = run.as_ref().map(RunId::as_str);
        tracing::warn!(
            role = %role,
            pid,
            run = run.unwrap_or_default(),
            call,
            number,
            "ended by a forbidden system call: {call}"
        );
        let words = format!("ended by a forbidden system call: {call}");
        self.logbook.enter((role, pid), run, &words);
    }
}

/// What the log says of a call.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Whole,
    /// That no more is said.
    LastWord,
    Nothing,
}

/// What the log says of so many-th call of one process tree.
const fn said_of(calls: u32) -> Said {
    match calls {
        ..=LOGGED => Said::Whole,
        n if n == LOGGED + 1 => Said::LastWord,
        _ => Said::Nothing,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn calls_are_counted_by_role_and_name() {
        let mut found = Violations::default();
        for call in ["ptrace", "bpf", "ptrace"] {
            found.enter(Role::Run, call);
        }
        found.enter(Role::Store, "mount");
        let json = serde_json::to_value(&found).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"run": {"bpf": 1, "ptrace": 2}, "store": {"mount": 1}})
        );
        assert_eq!(serde_json::from_value::<Violations>(json).unwrap(), found);
    }

    #[test]
    fn thirty_two_calls_of_one_tree_are_logged_and_all_are_counted() {
        let said: Vec<Said> = (1..=1_000).map(said_of).collect();
        let whole = said.iter().filter(|said| **said == Said::Whole).count();
        assert_eq!(whole, 32);
        assert_eq!(said[32], Said::LastWord);
        assert!(said[33..].iter().all(|said| *said == Said::Nothing));
        assert_eq!(said_of(u32::MAX), Said::Nothing);
    }

    #[tokio::test]
    async fn a_launcher_that_fails_is_no_deafness_and_a_lost_listener_is() {
        let (ours, theirs) = violation::channel().unwrap();
        let ear = Ear::awaiting(ours);
        drop(theirs);
        ear.hear(|_| ()).await.unwrap();

        let (ours, theirs) = violation::channel().unwrap();
        let ear = Ear::awaiting(ours);
        nix::unistd::write(&theirs, b"L").unwrap();
        ear.hear(|_| ()).await.unwrap_err();
        assert!(matches!(ear.hearing(), Hearing::Awaited(_)));

        // Anything may be sent; only a listener can be listened to.
        let (ours, theirs) = violation::channel().unwrap();
        let ear = Ear::awaiting(ours);
        let (reader, mut writer) = io::pipe().unwrap();
        violation::send(&theirs, &reader, &["mnt"]).unwrap();
        io::Write::write_all(&mut writer, b"x").unwrap();
        let told = Mutex::new(Vec::new());
        let hear = ear.hear(|event| told.lock().unwrap().push(event));
        hear.await.unwrap_err();
        let told = told.into_inner().unwrap();
        assert!(matches!(&told[..], [Event::Listening(own)] if *own == ["mnt"]));
        assert!(matches!(ear.hearing(), Hearing::Listener(_)));
    }
}
