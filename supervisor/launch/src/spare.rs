//! The network of the next process, made while there is nothing else to do.

use mono_sys::network;
use policy::spec::LaunchSpec;

/// What the launcher that stays knows of the network that it is in.
///
/// A network that nobody has used yet is one in which the launcher is alone: the next process
/// is a copy of it and begins there, and the launcher leaves for a new one before it makes another
/// copy. Where that fails it has none to give, and the process makes its own.
///
/// It belongs to the launcher's user namespace. That of the process is below it, or the same one in
/// which the process has no capability left: there is nothing in the network that it could change.
pub(crate) struct Spare {
    /// With its loopback up or not; none that could be given.
    loopback: Option<bool>,
}

impl Spare {
    pub(crate) fn none() -> Self {
        Self { loopback: None }
    }

    /// Leaves the present network for a new one, like the one that this process asked for.
    pub(crate) fn make(like: &LaunchSpec) -> Self {
        let made = network::own().and_then(|()| match like.loopback {
            true => network::loopback_up(),
            false => Ok(()),
        });
        Self {
            loopback: made.is_ok().then_some(like.loopback),
        }
    }

    /// True when it is what this process asks for.
    pub(crate) fn serves(&self, spec: &LaunchSpec) -> bool {
        self.loopback == Some(spec.loopback)
    }
}
