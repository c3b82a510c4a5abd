//! `mono-launch`: makes what the processes of one kind have in common, and then, for each request of
//! the supervisor, a copy of itself that becomes the program. Single-threaded; it ends when there
//! will be no more requests.
//!
//! Descriptors: 3 the socket for requests, 4 the sealed [`Base`], 5 a pidfd of the supervisor.
//!
//! A copy is the supervisor's child and not the launcher's. Its standard error gets one line when a
//! step fails, and the exit status says which (`policy::exit::Step`).
#![forbid(unsafe_code)]

mod become_it;
mod confine;
mod failure;
mod ground;
mod spare;
mod view;

use become_it::{Network, Start};
use failure::{During, Failure};
use ground::Ground;
use mono_sys::process::{Alone, Namespaces, Side};
use mono_sys::{fd, memfd};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Pid, setpgid};
use policy::exit::Step;
use policy::request::{self, Purpose, Reply};
use policy::spec::{Base, VERSION, descriptor};
use spare::Spare;
use std::convert::Infallible;
use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let role = std::env::args().nth(1).unwrap_or_default();
            eprintln!("mono-launch {role}: {failure}");
            ExitCode::from(failure.step.code())
        }
    }
}

/// Answers requests until there are no more. In a copy it returns only when a step fails.
fn serve() -> Result<(), Failure> {
    let alone = Alone::new().during(Step::Spec)?;
    let base = read_base()?;
    let namespaces = Namespaces::from_bits(base.namespaces)
        .ok_or_else(|| io::Error::other("namespaces that this launcher doesn't know"))
        .during(Step::Spec)?;
    let requests = fd::take_fd(descriptor::REQUESTS).during(Step::Spec)?;
    let supervisor = fd::take_fd(descriptor::SUPERVISOR).during(Step::Supervisor)?;
    // By its group the supervisor finds a copy that it was not told of.
    setpgid(Pid::from_raw(0), Pid::from_raw(0)).during(Step::Session)?;
    confine::open_files_up()?;
    if base.ids.is_none() {
        // For all of its processes: each of the many would cost them time.
        confine::renounce()?;
    }
    // What the launcher itself makes is for everyone to read.
    umask(Mode::from_bits_truncate(0o022));
    let ground = base.view.as_ref().map(Ground::make).transpose();
    let mut spare = Spare::none();
    while let Some((spec, mut passed)) = request::receive(&requests).during(Step::Spec)? {
        let cgroup = passed.take(Purpose::Cgroup);
        // What fails from here on is told by the process that was asked for.
        let taken = match (readable(spec.version), &ground) {
            (Err(failure), _) => Err(failure),
            (Ok(()), Ok(Some(ground))) => ground.take(&spec.own)?,
            (Ok(()), _) => Ok(Vec::new()),
        };
        match alone.sibling(
            namespaces.without(Namespaces::NET),
            cgroup.as_ref().map(AsFd::as_fd),
        ) {
            Ok(Side::Copy) => {
                drop((requests, cgroup));
                let start = Start {
                    base: &base,
                    network: match namespaces.contains(Namespaces::NET) {
                        true if spare.serves(&spec) => Network::Ready,
                        true => Network::Make,
                        false => Network::Shared,
                    },
                    ground,
                    spec,
                    taken,
                    supervisor,
                };
                return start.now(passed).map(|never: Infallible| match never {});
            }
            Ok(Side::Original(child)) => {
                let started = Reply::Started { pid: child.pid };
                request::reply(&requests, started, Some(child.pidfd.as_fd()))
                    .during(Step::Supervisor)?;
                // The one before is that process's now.
                spare = Spare::none();
                if base.stays && namespaces.contains(Namespaces::NET) {
                    spare = Spare::make(&spec);
                }
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or_default();
                request::reply(&requests, Reply::Refused { errno }, None)
                    .during(Step::Supervisor)?;
            }
        }
        if let Err(failure) = ground {
            // Another launcher may have more luck.
            return Err(failure);
        }
    }
    Ok(())
}

/// Largest base: what fits a packet, since the same codec makes it.
const MAX_BASE: usize = 64 * 1024;

fn read_base() -> Result<Base, Failure> {
    let file = fd::take_fd(descriptor::BASE).during(Step::Spec)?;
    let bytes = memfd::read_sealed(&file, MAX_BASE)
        .map_err(io::Error::other)
        .during(Step::Spec)?;
    let base: Base = ipc_proto::codec::decode(&bytes)
        .map_err(io::Error::other)
        .during(Step::Spec)?;
    readable(base.version).map(|()| base)
}

fn readable(version: u32) -> Result<(), Failure> {
    if version == VERSION {
        return Ok(());
    }
    let other = format!("it has version {version}, this launcher reads {VERSION}");
    Err(io::Error::other(other)).during(Step::Spec)
}
