//! What starts of one kind stand on: the machine's tree, out of which grants are taken, and a file
//! system that has all that they have in common.

use crate::failure::{During, Failure};
use crate::view::{self, Taken};
use mono_sys::mount;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::Mode;
use policy::exit::Step;
use policy::spec::{Entry, View};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Two mount namespaces. Each process gets a copy of the second; the launcher is in it, or in the
/// copy of the next process.
pub(crate) struct Ground {
    /// Follows what is mounted and unmounted on the machine.
    machine: OwnedFd,
    /// Its root, since entering a namespace changes to a root that need not be the supervisor's.
    root: OwnedFd,
    /// The common part of the view, and nothing else but an old `/proc` where one is needed.
    common: OwnedFd,
}

impl Ground {
    /// Makes it. Needs a mount namespace of its own and `CAP_SYS_ADMIN` over it.
    pub(crate) fn make(view: &View) -> Result<Self, Failure> {
        mount::make_slave().during(Step::Private)?;
        let own = || open("/proc/self/ns/mnt", OFlag::O_CLOEXEC, Mode::empty());
        let machine = own().during(Step::Private)?;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = open("/", flags, Mode::empty()).during(Step::Root)?;
        unshare(CloneFlags::CLONE_NEWNS).during(Step::Private)?;
        let common = own().during(Step::Private)?;
        view::enter_common(view)?;
        Ok(Self {
            machine,
            root,
            common,
        })
    }

    /// Takes what a process has for itself out of the machine's tree, and goes from there to the
    /// mounts that it begins with: these, or else the common part. The inner failure is of that
    /// process alone; after the outer one nothing may be started any more.
    pub(crate) fn take(
        &self,
        own: &[Entry],
        begin: Option<&OwnedFd>,
    ) -> Result<Result<Vec<Taken>, Failure>, Failure> {
        setns(&self.machine, CloneFlags::CLONE_NEWNS).during(Step::Grant)?;
        let taken = own
            .iter()
            .map(|entry| view::take(entry, |path| self.open(path)))
            .collect();
        let begin = begin.unwrap_or(&self.common);
        setns(begin, CloneFlags::CLONE_NEWNS).during(Step::Root)?;
        Ok(taken)
    }

    /// Goes to the common part.
    pub(crate) fn enter_common(&self) -> Result<(), Failure> {
        setns(&self.common, CloneFlags::CLONE_NEWNS).during(Step::Root)
    }

    /// Granted paths were checked to go through no link; one that was put there since is an error.
    fn open(&self, path: &Path) -> io::Result<OwnedFd> {
        open_beneath(&self.root, path)
    }
}

/// Opens an absolute path below this root, through no link.
pub(crate) fn open_beneath(root: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(
            ResolveFlag::RESOLVE_IN_ROOT
                | ResolveFlag::RESOLVE_NO_SYMLINKS
                | ResolveFlag::RESOLVE_NO_MAGICLINKS,
        );
    Ok(openat2(root, path, how)?)
}
