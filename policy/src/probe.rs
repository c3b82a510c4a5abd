//! What a worker tries once it serves, to see it refused. A sandbox that nobody has tested is a
//! claim; the supervisor uses no worker whose probe succeeds.
//!
//! Only what is answered with an error can be tried: the hostile set ends the process.

use crate::profile::{Profile, ProfileError};
use crate::seccomp::errno_of;
use ipc_proto::Role;
use mono_sys::attempt::{self, Hopeless};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType};
use serde::Deserialize;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Something to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attempt {
    /// Reading the machine's password hashes.
    ReadShadow,
    /// Listing the directory with everybody's state.
    ReadStateRoot,
    /// Opening any file at all.
    OpenFile,
    /// Making a file among the system's.
    WriteSystem,
    /// A TCP or UDP socket.
    SocketInet,
    /// A Unix socket.
    SocketUnix,
    /// A socket to the kernel's network configuration.
    SocketNetlink,
    /// A TCP connection to an address outside.
    TcpOut,
    /// Connecting to the admin socket.
    ConnectAdmin,
    /// Setting a socket listening.
    Listen,
    /// Executing a program.
    Exec,
    /// Executing a program from a descriptor.
    ExecDescriptor,
    /// Starting a process.
    NewProcess,
    /// Starting a process by the call whose flags no filter can see.
    Clone3,
    /// Executable memory.
    ExecutableMemory,
    /// Signalling the supervisor.
    SignalSupervisor,
}

/// Where the things are that must be out of reach; of the machine, not of the sandbox.
#[derive(Debug, Clone, Default)]
pub struct Outside {
    /// The directory with everybody's state.
    pub state_root: Option<PathBuf>,
    /// The admin socket.
    pub admin_socket: Option<PathBuf>,
    /// The supervisor.
    pub supervisor: Option<i32>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Refused, as the profile says it must be.
    Refused(i32),
    /// Refused, but with an error that the profile doesn't expect: something else is at work, and
    /// it may not be there the next time.
    Unexpected(i32),
    /// It worked.
    Succeeded,
    /// Not tried, because the worker was not told where it would be.
    Skipped,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Refused(errno) => write!(f, "refused: {}", Errno::from_raw(*errno)),
            Outcome::Unexpected(errno) => {
                write!(
                    f,
                    "refused, but not as expected: {}",
                    Errno::from_raw(*errno)
                )
            }
            Outcome::Succeeded => f.write_str("succeeded"),
            Outcome::Skipped => f.write_str("not tried: its place was not told"),
        }
    }
}

/// One attempt and its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeOutcome {
    /// What was tried, e.g. `read-shadow`.
    pub name: String,
    /// What came of it.
    pub outcome: Outcome,
}

impl ProbeOutcome {
    /// True when the sandbox did what the profile says.
    pub fn holds(&self) -> bool {
        matches!(self.outcome, Outcome::Refused(_) | Outcome::Skipped)
    }
}

/// The first probe that shows a hole, if any.
pub fn verdict(outcomes: &[ProbeOutcome]) -> Result<(), &ProbeOutcome> {
    outcomes
        .iter()
        .find(|outcome| !outcome.holds())
        .map_or(Ok(()), Err)
}

/// Tries everything that the role's profile lists. Call it after the second stage.
///
/// # Errors
/// [`ProfileError`] when the role has no profile.
pub fn run(role: Role, outside: &Outside) -> Result<Vec<ProbeOutcome>, ProfileError> {
    let outcomes = Profile::of(role)?.probes.into_iter().map(|row| {
        let outcome = match attempt(row.attempt, outside) {
            None => Outcome::Skipped,
            Some(Ok(())) => Outcome::Succeeded,
            Some(Err(error)) => match error.raw_os_error() {
                // Not the kernel's refusal: e.g. a connection attempt that ran out of time.
                None => Outcome::Succeeded,
                Some(errno) => {
                    let expected = |name: &String| errno_of(name).map(i32::from) == Some(errno);
                    if row.errors.iter().any(expected) {
                        Outcome::Refused(errno)
                    } else {
                        Outcome::Unexpected(errno)
                    }
                }
            },
        };
        ProbeOutcome {
            name: name(row.attempt),
            outcome,
        }
    });
    Ok(outcomes.collect())
}

fn name(attempt: Attempt) -> String {
    // `ReadShadow` is `read-shadow` in the data.
    let mut name = String::new();
    for letter in format!("{attempt:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

fn attempt(what: Attempt, outside: &Outside) -> Option<io::Result<()>> {
    let opened = |result: io::Result<File>| Some(result.map(drop));
    // A hopeless call that gets through has another error than one that is refused.
    let hopeless = |call| Some(Err(attempt::hopeless(call)));
    match what {
        Attempt::ReadShadow => opened(File::open("/etc/shadow")),
        Attempt::ReadStateRoot => opened(File::open(outside.state_root.as_ref()?)),
        Attempt::OpenFile => opened(File::open("/usr/lib")),
        Attempt::WriteSystem => opened(
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open("/usr/lib/.mono-probe"),
        ),
        Attempt::SocketInet => socket(AddressFamily::Inet, SockType::Stream),
        Attempt::SocketUnix => socket(AddressFamily::Unix, SockType::Stream),
        Attempt::SocketNetlink => socket(AddressFamily::Netlink, SockType::Raw),
        // A range that is kept for documentation: nobody is there, but a way out would take it,
        // and on its way is as good as there.
        Attempt::TcpOut => {
            let address = SocketAddr::from(([192, 0, 2, 1], 9));
            Some(TcpStream::connect_timeout(&address, Duration::from_millis(1)).map(drop))
        }
        Attempt::ConnectAdmin => {
            Some(UnixStream::connect(outside.admin_socket.as_ref()?).map(drop))
        }
        Attempt::Listen => hopeless(Hopeless::Listen),
        Attempt::Exec => hopeless(Hopeless::Execve),
        Attempt::ExecDescriptor => Some(Err(attempt::execute_descriptor())),
        Attempt::NewProcess => Some(Err(attempt::new_process())),
        Attempt::Clone3 => hopeless(Hopeless::Clone3),
        Attempt::ExecutableMemory => Some(attempt::executable_memory()),
        Attempt::SignalSupervisor => {
            let supervisor = nix::unistd::Pid::from_raw(outside.supervisor.filter(|pid| *pid > 1)?);
            Some(nix::sys::signal::kill(supervisor, None).map_err(io::Error::from))
        }
    }
}

fn socket(family: AddressFamily, kind: SockType) -> Option<io::Result<()>> {
    let made = nix::sys::socket::socket(family, kind, SockFlag::SOCK_CLOEXEC, None);
    Some(made.map(drop).map_err(io::Error::from))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn without_a_sandbox_the_probes_find_their_holes() {
        // The control: a probe that is refused everywhere would prove nothing.
        let outcomes = run(Role::Store, &Outside::default()).unwrap();
        let of = |name: &str| {
            &outcomes
                .iter()
                .find(|probe| probe.name == name)
                .unwrap()
                .outcome
        };
        for open in [
            "socket-inet",
            "socket-unix",
            "socket-netlink",
            "executable-memory",
        ] {
            assert_eq!(of(open), &Outcome::Succeeded, "{open}");
        }
        for open in ["exec", "new-process", "clone3"] {
            assert!(matches!(of(open), Outcome::Unexpected(_)), "{open}");
        }
        assert_eq!(of("connect-admin"), &Outcome::Skipped);
        assert!(verdict(&outcomes).is_err());
    }

    #[test]
    fn names_are_those_of_the_data() {
        for text in ["read-shadow", "clone3", "exec-descriptor", "socket-inet"] {
            let attempt: Attempt = serde_json::from_str(&format!("\"{text}\"")).unwrap();
            assert_eq!(name(attempt), text);
        }
    }
}
