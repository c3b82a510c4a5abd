//! What a copy of the launcher does to become the program.

use crate::confine;
use crate::failure::{During, Failure};
use crate::ground::Ground;
use crate::spare::{Given, HOST_NAME};
use crate::view::{self, Taken};
use mono_sys::process::{KINDS, own_namespace, own_namespaces_of};
use mono_sys::{fd, network};
use nix::fcntl::AtFlags;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, umask};
use policy::Resource;
use policy::exit::Step;
use policy::request::{Passed, Purpose};
use policy::spec::{Base, LaunchSpec, Program, descriptor};
use std::convert::Infallible;
use std::ffi::{CString, NulError};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// One start, in the process that it is about.
pub(crate) struct Start<'a> {
    pub(crate) base: &'a Base,
    /// What was made before.
    pub(crate) ready: Option<Given>,
    /// It is in the launcher's network and makes its own.
    pub(crate) make_network: bool,
    pub(crate) ground: Result<Option<Ground>, Failure>,
    pub(crate) spec: LaunchSpec,
    pub(crate) taken: Result<Vec<Taken>, Failure>,
    pub(crate) supervisor: OwnedFd,
}

impl Start<'_> {
    /// Becomes the program.
    pub(crate) fn now(self, mut passed: Passed) -> Result<Infallible, Failure> {
        // First of all, since standard error is among them.
        place(&mut passed)?;
        let Self {
            base,
            ready,
            make_network,
            ground,
            spec,
            taken,
            supervisor,
        } = self;
        let (ground, taken) = (ground?, taken?);
        let program = match &spec.program {
            Program::Descriptor => Some(required(&mut passed, Purpose::Program)?),
            Program::Named(_) => None,
        };
        let release = required(&mut passed, Purpose::Release)?;
        let violations = required(&mut passed, Purpose::Violations)?;

        if let Some(ids) = base.ids {
            map_ids(ids)?;
        }
        let see = || {
            let mut before = Vec::new();
            if let Some(view) = &base.view {
                if ready.is_none() {
                    nix::unistd::sethostname(HOST_NAME).during(Step::HostName)?;
                }
                let given = ready.unwrap_or_default();
                before = given.namespaces;
                view::complete(view, &spec.own, taken, given.trees)?;
            }
            let namespaces = differing(&base.supervisors, &before)?;
            let domain = confine::prepare_landlock(&spec.landlock, program.as_ref())?;
            Ok((domain, namespaces))
        };
        let (domain, namespaces) = if make_network {
            // The kernel takes longer for an empty network than for all else: side by side.
            std::thread::scope(|scope| {
                let seeing = std::thread::Builder::new()
                    .stack_size(SMALL_STACK)
                    .spawn_scoped(scope, see)
                    .during(Step::Limit)?;
                let network = network::own().and_then(|()| match spec.loopback {
                    true => network::loopback_up(),
                    false => Ok(()),
                });
                let seen = seeing.join().unwrap_or_else(|_| {
                    Err(io::Error::other("a thread ended early")).during(Step::FileSystem)
                });
                network.during(Step::Loopback)?;
                // The other thread was not in it.
                let (domain, mut namespaces) = seen?;
                let network = own_namespace(NETWORK).during(Step::Loopback)?;
                if base.supervisors.iter().all(|theirs| *theirs != network) {
                    namespaces.push(NETWORK);
                }
                Ok((domain, namespaces))
            })?
        } else {
            see()?
        };
        // The machine's tree is out of reach from here on.
        drop(ground);
        let arguments = strings(&spec.arguments)?;
        let environment = strings(&spec.environment)?;
        let candidates = candidates(&spec)?;
        released(release)?;
        nix::unistd::setsid().during(Step::Session)?;
        if base.ids.is_some() {
            // A new user namespace begins with all of them.
            confine::renounce()?;
        }
        confine::drop_privileges(spec.identity.as_ref())?;
        follow(&supervisor)?;
        // After the change of user: the kernel counts processes by user.
        confine::limit(&spec.limits, |resource| resource != Resource::OpenFiles)?;
        umask(Mode::from_bits_truncate(spec.umask));
        nix::unistd::chdir(&spec.directory).during_on(Step::Directory, &spec.directory)?;
        nix::sys::prctl::set_no_new_privs().during(Step::NoNewPrivileges)?;
        confine::enter_landlock(domain)?;
        let first = if program.is_some() {
            descriptor::CONTROL + 1
        } else {
            descriptor::CONTROL
        };
        fd::cloexec_from(first.unsigned_abs()).during(Step::Execute)?;
        confine::filter(&base.filter, &violations, &namespaces)?;
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
}

/// Its name among the kinds of namespaces.
const NETWORK: &str = "net";

/// Bytes for the thread that prepares what is seen.
const SMALL_STACK: usize = 256 * 1024;

/// The namespaces of this process that the supervisor doesn't share. It is in those before, which the
/// launcher was in when it looked.
fn differing(
    supervisors: &[String],
    before: &[(&'static str, String)],
) -> Result<Vec<&'static str>, Failure> {
    let known = |kind: &str| before.iter().find(|(known, _)| *known == kind);
    let others: Vec<_> = KINDS
        .into_iter()
        .filter(|kind| known(kind).is_none())
        .collect();
    let read = own_namespaces_of(&others).during(Step::FileSystem)?;
    let own = others.into_iter().zip(&read);
    let own = own.chain(before.iter().map(|(kind, name)| (*kind, name)));
    Ok(own
        .filter(|(_, name)| !supervisors.contains(name))
        .map(|(kind, _)| kind)
        .collect())
}

/// Puts the descriptors that the program has at their numbers; what is not passed stays as the
/// launcher has it, on `/dev/null`.
fn place(passed: &mut Passed) -> Result<(), Failure> {
    let numbered = [
        (Purpose::Input, 0),
        (Purpose::Output, 1),
        (Purpose::Error, 2),
        (Purpose::Control, descriptor::CONTROL),
    ];
    let taken: Vec<_> = numbered
        .into_iter()
        .filter_map(|(purpose, number)| Some((passed.take(purpose)?, number)))
        .collect();
    let moves: Vec<_> = taken
        .iter()
        .map(|(fd, number)| (fd.as_fd(), *number))
        .collect();
    fd::place(&moves).during(Step::Spec)
}

fn required(passed: &mut Passed, purpose: Purpose) -> Result<OwnedFd, Failure> {
    passed
        .take(purpose)
        .ok_or_else(|| io::Error::other(format!("a request without its {purpose:?}")))
        .during(Step::Spec)
}

/// The one user and group of a new user namespace. The launcher's own has none but these either, and
/// `setgroups` is refused in it, which is inherited and lets an ordinary process write the map.
fn map_ids((uid, gid): (u32, u32)) -> Result<(), Failure> {
    for (file, id) in [("/proc/self/uid_map", uid), ("/proc/self/gid_map", gid)] {
        std::fs::write(file, format!("{id} {id} 1")).during_on(Step::User, Path::new(file))?;
    }
    Ok(())
}

/// Waits until the supervisor knows of the process.
fn released(release: OwnedFd) -> Result<(), Failure> {
    loop {
        match nix::unistd::read(&release, &mut [0]) {
            Ok(1..) => return Ok(()),
            Ok(0) => {
                let gone = io::Error::other("the supervisor wants it no more");
                return Err(gone).during(Step::Supervisor);
            }
            Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno).during(Step::Supervisor),
        }
    }
}

/// Dies when the supervisor does. A change of user would clear it, so it comes after; then it is checked that nothing happened in between.
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
