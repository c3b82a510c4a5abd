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

use become_it::Start;
use failure::{During, Failure};
use ground::Ground;
use mono_sys::process::{Alone, Namespaces, Side};
use mono_sys::{fd, memfd};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Pid, setpgid};
use policy::exit::Step;
use policy::request::{self, Purpose, Reply};
use policy::spec::{Base, VERSION, descriptor};
use spare::Spare;
use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
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
    let kinds = Spare::kinds(&base, namespaces);
    let mut spare: Option<Spare> = None;
    let mut packet = vec![0; request::MAX_REQUEST];
    while let Some((spec, mut passed)) =
        request::receive(&requests, &mut packet).during(Step::Spec)?
    {
        let cgroup = passed.take(Purpose::Cgroup);
        // One that doesn't serve is given up here, and so are its mounts below.
        let ready = spare.take().filter(|spare| spare.serves(&spec));
        let begin = ready.as_ref().and_then(Spare::mounts);
        // What fails from here on is told by the process that was asked for.
        let taken = match (readable(spec.version), &ground) {
            (Err(failure), _) => Err(failure),
            (Ok(()), Ok(Some(ground))) => ground.take(&spec.own, begin)?,
            (Ok(()), _) => Ok(Vec::new()),
        };
        let ready = ready.map(Spare::given);
        let before = ready.as_ref().map_or(Namespaces::NONE, |_| kinds);
        let made = namespaces.without(before | Namespaces::NET);
        match alone.sibling(made, cgroup.as_ref().map(AsFd::as_fd)) {
            Ok(Side::Copy) => {
                drop((requests, cgroup));
                let start = Start {
                    base: &base,
                    ready,
                    make_network: namespaces.without(before).contains(Namespaces::NET),
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
                if base.stays
                    && let Ok(ground) = &ground
                {
                    // The process's own: that it has ended is seen when nobody has them.
                    drop((ready, taken, passed));
                    asked(&requests, UNDISTURBED_MS.into()).during(Step::Supervisor)?;
                    spare = Spare::make(kinds, ground.as_ref(), &spec)?;
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

/// So many milliseconds a process that was started has the machine to itself, unless another one is asked for: it is
/// usually ready by then. What is made for the next one takes half a millisecond, and the kernel may run
/// it before the process and on the same processor, although another one is idle: that of a virtual
/// machine that has halted counts as taken away.
const UNDISTURBED_MS: u8 = 5;

/// Waits until another process is asked for, or the supervisor has ended, or the time is over.
fn asked(requests: &OwnedFd, timeout: PollTimeout) -> nix::Result<()> {
    let mut request = [PollFd::new(requests.as_fd(), PollFlags::POLLIN)];
    match poll(&mut request, timeout) {
        // Early, which does no harm.
        Err(Errno::EINTR) => Ok(()),
        other => other.map(drop),
    }
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
