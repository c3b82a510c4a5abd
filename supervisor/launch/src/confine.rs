//! What the process is kept from beside the files that it can't see: Landlock, capabilities, its
//! user, limits, the filter.

use crate::failure::{During, Failure};
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use mono_sys::{capability, seccomp_notify};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use policy::exit::Step;
use policy::{Identity, rights, spec, violation};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Sets the limits that `which` picks; one that is tighter already stays.
pub(crate) fn limit(
    limits: &[(policy::Resource, u64)],
    which: impl Fn(policy::Resource) -> bool,
) -> Result<(), Failure> {
    for (resource, value) in limits.iter().filter(|(resource, _)| which(*resource)) {
        let resource = match resource {
            policy::Resource::OpenFiles => Resource::RLIMIT_NOFILE,
            policy::Resource::Processes => Resource::RLIMIT_NPROC,
            policy::Resource::Core => Resource::RLIMIT_CORE,
            policy::Resource::FileSize => Resource::RLIMIT_FSIZE,
            policy::Resource::AddressSpace => Resource::RLIMIT_AS,
            policy::Resource::Data => Resource::RLIMIT_DATA,
            policy::Resource::LockedMemory => Resource::RLIMIT_MEMLOCK,
            policy::Resource::MessageQueues => Resource::RLIMIT_MSGQUEUE,
        };
        let (_, hard) = getrlimit(resource).during(Step::Limit)?;
        let value = hard.min(*value);
        setrlimit(resource, value, value).during(Step::Limit)?;
    }
    Ok(())
}

/// Raises the limit of open files as far as it goes. The kernel holds descriptors that a user has
/// sent and nobody has received against the sender's limit: processes of the same user that fill
/// theirs must not keep this one from sending its listener.
pub(crate) fn open_files_up() -> Result<(), Failure> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).during(Step::Limit)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).during(Step::Limit)?;
    }
    Ok(())
}

fn landlock_error<E: std::error::Error + Send + Sync + 'static>(error: E) -> io::Error {
    io::Error::other(error)
}

/// Prepares the Landlock domain while paths can still be opened freely. Everything is a hard
/// requirement: a kernel that lacks a part of it is an error and not a weaker domain.
pub(crate) fn prepare_landlock(
    spec: &spec::Landlock,
    program: Option<&OwnedFd>,
) -> Result<RulesetCreated, Failure> {
    let rule = |error| landlock_error::<landlock::RulesetError>(error);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(rights::handled())
        .map_err(rule)
        .during(Step::LandlockRule)?;
    if spec.refused_net != 0 {
        let net = known(rights::of_net(spec.refused_net))?;
        ruleset = ruleset
            .handle_access(net)
            .map_err(rule)
            .during(Step::LandlockRule)?;
    }
    let mut ruleset = ruleset
        .scope(Scope::from_all(ABI::V6))
        .and_then(Ruleset::create)
        .map_err(rule)
        .during(Step::LandlockRule)?;
    for (path, rights) in &spec.paths {
        let rights = known(rights::of_files(*rights))?;
        let place = PathFd::new(path)
            .map_err(landlock_error)
            .during_on(Step::LandlockRule, path)?;
        ruleset = ruleset
            .add_rule(PathBeneath::new(place, rights))
            .map_err(rule)
            .during_on(Step::LandlockRule, path)?;
    }
    if let Some(program) = program {
        // The worker's own file lies in no granted path, and needs none.
        ruleset = ruleset
            .add_rule(PathBeneath::new(
                program,
                AccessFs::ReadFile | AccessFs::Execute,
            ))
            .map_err(rule)
            .during_on(Step::LandlockRule, Path::new("the program"))?;
    }
    Ok(ruleset)
}

fn known<T>(rights: Option<T>) -> Result<T, Failure> {
    rights
        .ok_or_else(|| io::Error::other("a right that this launcher doesn't know"))
        .during(Step::Spec)
}

/// Enters the domain.
pub(crate) fn enter_landlock(ruleset: RulesetCreated) -> Result<(), Failure> {
    let status = ruleset
        .restrict_self()
        .map_err(landlock_error)
        .during(Step::Landlock)?;
    if status.ruleset != RulesetStatus::FullyEnforced {
        let partial = io::Error::other("the kernel enforces only a part of the domain");
        return Err(partial).during(Step::Landlock);
    }
    Ok(())
}

/// Gives up every way to get a capability again. Those in force stay.
pub(crate) fn renounce() -> Result<(), Failure> {
    const SETPCAP: u64 = 1 << 8;
    let held = capability::effective().during(Step::Capabilities)?;
    // An ordinary user without namespaces has none to begin with, and no_new_privs keeps it so.
    if held & SETPCAP != 0 || Uid::effective().is_root() {
        capability::renounce().during(Step::Capabilities)?;
    }
    Ok(())
}

/// Gives up every capability, and becomes the role's user.
pub(crate) fn drop_privileges(identity: Option<&Identity>) -> Result<(), Failure> {
    if let Some(who) = identity {
        let groups: Vec<Gid> = who
            .groups
            .iter()
            .map(|group| Gid::from_raw(*group))
            .collect();
        let (uid, gid) = (Uid::from_raw(who.uid), Gid::from_raw(who.gid));
        setgroups(&groups).during(Step::User)?;
        setresgid(gid, gid, gid).during(Step::User)?;
        setresuid(uid, uid, uid).during(Step::User)?;
    }
    capability::clear().during(Step::Capabilities)?;
    let uid = nix::unistd::getresuid().during(Step::User)?;
    let root = Uid::from_raw(0);
    if [uid.real, uid.effective, uid.saved].contains(&root) {
        return Err(io::Error::other("still root")).during(Step::User);
    }
    if capability::effective().during(Step::Capabilities)? != 0 {
        return Err(io::Error::other("capabilities are left")).during(Step::Capabilities);
    }
    Ok(())
}

/// Installs the first filter of system calls and sends the descriptor on which the kernel tells of
/// those that it holds, with what the supervisor is to know of the process. Everything after it must be in the role's list.
pub(crate) fn filter(
    program: &[u8],
    violations: &OwnedFd,
    namespaces: &[&'static str],
) -> Result<(), Failure> {
    let (program, []) = program.as_chunks() else {
        let odd = io::Error::other("the filter is no whole number of instructions");
        return Err(odd).during(Step::Filter);
    };
    if program.is_empty() {
        return Err(io::Error::other("the filter is empty")).during(Step::Filter);
    }
    let installed = seccomp_notify::install(program);
    let step = match &installed {
        // The filter is good, and another one around has a listener.
        Err(error) if error.raw_os_error() == Some(Errno::EBUSY as i32) => Step::Listener,
        _ => Step::Filter,
    };
    let listener = installed.during(step)?;
    violation::send(violations, &listener, namespaces).during(Step::Listener)
}
