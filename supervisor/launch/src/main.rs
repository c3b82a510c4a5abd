//! `mono-launch`: applies one launch spec to itself and becomes the program. Started by the
//! supervisor, single-threaded, alive for milliseconds.
//!
//! Descriptors: 3 the worker's control socket (stays), 4 the sealed spec, 5 the worker's
//! executable, 6 a pidfd of the supervisor, 7 a socket that takes the filter's listener to it.
//! Standard error gets one line when a step fails, and
//! the exit status says which (`policy::exit::Step`).
#![forbid(unsafe_code)]

mod confine;
mod failure;
mod view;

use failure::{During, Failure};
use mono_sys::{fd, memfd, network};
use nix::fcntl::AtFlags;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, umask};
use policy::Resource;
use policy::exit::Step;
use policy::spec::{LaunchSpec, Program, VERSION, descriptor};
use std::convert::Infallible;
use std::ffi::{CString, NulError};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let failure = match launch() {
        Ok(never) => match never {},
        Err(failure) => failure,
    };
    let role = std::env::args().nth(1).unwrap_or_default();
    eprintln!("mono-launch {role}: {failure}");
    ExitCode::from(failure.step.code())
}

fn launch() -> Result<Infallible, Failure> {
    let spec = read_spec()?;
    let program = match &spec.program {
        Program::Descriptor => Some(fd::take_fd(descriptor::PROGRAM).during(Step::Spec)?),
        Program::Named(_) => None,
    };
    let supervisor = fd::take_fd(descriptor::SUPERVISOR).during(Step::Supervisor)?;
    let violations = fd::take_fd(descriptor::VIOLATIONS).during(Step::Listener)?;

    nix::unistd::setsid().during(Step::Session)?;
    // What the launcher itself makes is for everyone to read.
    umask(Mode::from_bits_truncate(0o022));
    if let Some(view) = &spec.view {
        nix::unistd::sethostname("mono").during(Step::HostName)?;
        view::enter(view)?;
    }
    if spec.loopback {
        network::loopback_up().during(Step::Loopback)?;
    }
    let domain = confine::prepare_landlock(&spec.landlock, program.as_ref())?;
    confine::drop_privileges(spec.identity.as_ref())?;
    follow(&supervisor)?;
    // After the change of user: the kernel counts processes by user.
    confine::limit(&spec.limits, |resource| resource != Resource::OpenFiles)?;
    confine::open_files_up()?;
    umask(Mode::from_bits_truncate(spec.umask));
    nix::unistd::chdir(&spec.directory).during_on(Step::Directory, &spec.directory)?;
    nix::sys::prctl::set_no_new_privs().during(Step::NoNewPrivileges)?;
    confine::enter_landlock(domain)?;

    let arguments = strings(&spec.arguments)?;
    let environment = strings(&spec.environment)?;
    let candidates = candidates(&spec)?;
    let first = if program.is_some() {
        descriptor::CONTROL + 1
    } else {
        descriptor::CONTROL
    };
    fd::cloexec_from(first.unsigned_abs()).during(Step::Execute)?;
    confine::filter(&spec, &violations)?;
    confine::limit(&spec.limits, |resource| resource == Resource::OpenFiles)?;
    match program {
        Some(program) => nix::unistd::execveat(
            &program,
            c"",
            &arguments,
            &environment,
            AtFlags::AT_EMPTY_PATH,
        )
        .during(Step::Execute),
        None => execute_first(&candidates, &arguments, &environment),
    }
}

/// Largest spec: what fits a packet, since the same codec makes it.
const MAX_SPEC: usize = 64 * 1024;

fn read_spec() -> Result<LaunchSpec, Failure> {
    let file = fd::take_fd(descriptor::SPEC).during(Step::Spec)?;
    let bytes = memfd::read_sealed(&file, MAX_SPEC)
        .map_err(io::Error::other)
        .during(Step::Spec)?;
    let spec: LaunchSpec = ipc_proto::codec::decode(&bytes)
        .map_err(io::Error::other)
        .during(Step::Spec)?;
    if spec.version != VERSION {
        let other = format!(
            "it has version {}, this launcher reads {VERSION}",
            spec.version
        );
        return Err(io::Error::other(other)).during(Step::Spec);
    }
    Ok(spec)
}

/// Dies when the supervisor does. A change of user has cleared what the supervisor's own spawn
/// had set, so it is set again, and then it is checked that nothing happened in between.
fn follow(supervisor: &OwnedFd) -> Result<(), Failure> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).during(Step::Supervisor)?;
    let mut ended = [PollFd::new(supervisor.as_fd(), PollFlags::POLLIN)];
    if poll(&mut ended, PollTimeout::ZERO).during(Step::Supervisor)? != 0 {
        return Err(io::Error::other("the supervisor has ended")).during(Step::Supervisor);
    }
    Ok(())
}

fn strings(list: &[String]) -> Result<Vec<CString>, Failure> {
    let strings: Result<_, NulError> = list.iter().map(|text| CString::new(&**text)).collect();
    strings.during(Step::Spec)
}

/// The paths to try, in order: the one that was named, or the name in each directory of the
/// program's own `PATH`.
fn candidates(spec: &LaunchSpec) -> Result<Vec<PathBuf>, Failure> {
    let Program::Named(name) = &spec.program else {
        return Ok(Vec::new());
    };
    if name.as_os_str().as_bytes().contains(&b'/') {
        return Ok(vec![name.clone()]);
    }
    let path = spec
        .environment
        .iter()
        .find_map(|variable| variable.strip_prefix("PATH="));
    let directories = path
        .unwrap_or_default()
        .split(':')
        .filter(|part| part.starts_with('/'));
    Ok(directories
        .map(|directory| Path::new(directory).join(name))
        .collect())
}

fn execute_first(
    candidates: &[PathBuf],
    arguments: &[CString],
    environment: &[CString],
) -> Result<Infallible, Failure> {
    let mut last = Err(io::Error::from(io::ErrorKind::NotFound)).during(Step::Execute);
    for path in candidates {
        let name = CString::new(path.as_os_str().as_bytes()).during(Step::Execute)?;
        let error = match nix::unistd::execve(&name, arguments, environment) {
            Ok(never) => match never {},
            Err(errno) => io::Error::from(errno),
        };
        let missing = error.kind() == io::ErrorKind::NotFound;
        last = Err(error).during_on(Step::Execute, path);
        if !missing {
            break;
        }
    }
    last
}
