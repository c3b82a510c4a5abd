//! What the next process will be in, made while there is nothing else to do.

use crate::failure::{During, Failure};
use crate::ground::Ground;
use crate::view::Trees;
use mono_sys::network;
use mono_sys::process::{Namespaces, own_namespaces_of, unshare};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use policy::exit::Step;
use policy::spec::{Base, LaunchSpec};
use std::os::fd::OwnedFd;

/// The name of every host that a process sees.
pub(crate) const HOST_NAME: &str = "mono";

/// Namespaces that the launcher that stays is in, and nobody else: the next process is a copy of it
/// and begins there, and the launcher leaves them before it makes another copy. Where they could not
/// be made it has none to give, and the process gets new ones like those of any other launcher.
///
/// They belong to the launcher's user namespace. That of the process is below it, or the same one in
/// which the process has no capability left: there is nothing in them that it could change.
pub(crate) struct Spare {
    /// Its loopback is up, in a network of its own.
    loopback: bool,
    /// The copy of the common part of the view, where a process makes its own mounts in it.
    mounts: Option<OwnedFd>,
    given: Given,
}

/// What goes over to the process.
#[derive(Default)]
pub(crate) struct Given {
    /// Empty file systems that it will put in their places.
    pub(crate) trees: Trees,
    /// The namespaces that it begins in, as the kernel names them.
    pub(crate) namespaces: Vec<(&'static str, String)>,
}

/// The kinds of namespaces that can be made before, as `/proc` names them.
const KINDS: [(Namespaces, &str); 4] = [
    (Namespaces::NET, "net"),
    (Namespaces::IPC, "ipc"),
    (Namespaces::UTS, "uts"),
    (Namespaces::MOUNT, "mnt"),
];

impl Spare {
    /// Those that can be made before there is a process. The first process of a namespace of
    /// processes is made with it, and mounts are made by who is in a user namespace of its own
    /// only in a copy that belongs to that.
    pub(crate) fn kinds(base: &Base, all: Namespaces) -> Namespaces {
        let kinds = Namespaces::NET | Namespaces::IPC | Namespaces::UTS;
        all.both(match base.ids {
            Some(_) => kinds,
            None => kinds | Namespaces::MOUNT,
        })
    }

    /// Leaves what is the last process's now for new namespaces of these kinds, like those that it
    /// asked for. After an error nothing may be started any more.
    pub(crate) fn make(
        kinds: Namespaces,
        ground: Option<&Ground>,
        like: &LaunchSpec,
    ) -> Result<Option<Self>, Failure> {
        if let Some(ground) = ground {
            ground.enter_common()?;
        }
        let network = kinds.contains(Namespaces::NET);
        let made = unshare(kinds)
            .and_then(|()| match network && like.loopback {
                true => network::loopback_up(),
                false => Ok(()),
            })
            .and_then(|()| match kinds.contains(Namespaces::UTS) {
                true => Ok(nix::unistd::sethostname(HOST_NAME)?),
                false => Ok(()),
            });
        if made.is_err() {
            return Ok(None);
        }
        let mounts = match kinds.contains(Namespaces::MOUNT) {
            true => Some(open("/proc/self/ns/mnt", OFlag::O_CLOEXEC, Mode::empty())),
            false => None,
        };
        let kinds: Vec<&str> = KINDS
            .into_iter()
            .filter_map(|(namespace, name)| kinds.contains(namespace).then_some(name))
            .collect();
        let names = own_namespaces_of(&kinds).during(Step::Private)?;
        Ok(Some(Self {
            loopback: like.loopback,
            mounts: mounts.transpose().during(Step::Private)?,
            given: Given {
                trees: Trees::make(&like.own),
                namespaces: kinds.into_iter().zip(names).collect(),
            },
        }))
    }

    /// True when it is what this process asks for.
    pub(crate) fn serves(&self, spec: &LaunchSpec) -> bool {
        self.loopback == spec.loopback
    }

    /// What goes over to the process that begins here.
    pub(crate) fn given(self) -> Given {
        self.given
    }

    /// The mounts that the process begins with.
    pub(crate) fn mounts(&self) -> Option<&OwnedFd> {
        self.mounts.as_ref()
    }
}
