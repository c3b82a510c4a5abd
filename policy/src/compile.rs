//! From a profile and the facts of one process to what the launcher does.

use crate::context::{Context, Inside};
use crate::plan::Plan;
use crate::profile::{Network, Profile, ProfileError, Resource, Variant};
use crate::rights;
use crate::seccomp;
use crate::spec::{Landlock, LaunchSpec, Program, VERSION, View};
use crate::words::Words;
use ipc_proto::Role;
use mono_sys::process::{IdMap, Namespaces};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;

/// A start that is ready to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// For the launcher, for this one process.
    pub spec: LaunchSpec,
    /// For the launcher, for all of its kind; `None` leaves the machine's file system.
    pub view: Option<View>,
    /// For all of its kind: the first filter, as `seccomp::to_bytes` gives it.
    pub filter: Arc<Vec<u8>>,
    /// The namespaces that its process is made in.
    pub namespaces: Namespaces,
    /// The user map of a user namespace.
    pub id_map: Option<IdMap>,
    /// Where the process finds its paths.
    pub inside: Inside,
}

/// A profile can't be made concrete.
#[derive(Debug, Error)]
pub enum CompileError {
    /// The profile itself.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A path that no view can have.
    #[error("{path}: {reason}", path = .path.display())]
    Path {
        /// Which.
        path: PathBuf,
        /// What is wrong, and what would be right.
        reason: &'static str,
    },
    /// A variable that can't be given.
    #[error("the environment variable `{name}` can't be given to {role}: {reason}")]
    Variable {
        /// Which.
        name: String,
        /// To whom.
        role: Role,
        /// Why.
        reason: &'static str,
    },
    /// Something to hide that can't be hidden.
    #[error("{hidden} lies in {granted}, which {role} may reach, and without namespaces nothing can hide it: move one of them, or don't run degraded",
            hidden = .hidden.display(), granted = .granted.display())]
    Hidden {
        /// What.
        hidden: PathBuf,
        /// Where it lies.
        granted: PathBuf,
        /// Who would see it.
        role: Role,
    },
    /// A worker can't be root.
    #[error(
        "{0} would run as user or group 0: start monod as an ordinary user, or give it a user for each role"
    )]
    Root(Role),
    /// An MCP server without a command, or a worker with one.
    #[error("{0}: exactly MCP servers are started by a command")]
    Command(Role),
}

/// A role's profile, read once.
fn profile(role: Role) -> Result<Arc<Profile>, ProfileError> {
    static CACHE: Mutex<BTreeMap<Role, Arc<Profile>>> = Mutex::new(BTreeMap::new());
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(profile) = cache.get(&role) {
        return Ok(Arc::clone(profile));
    }
    let profile = Arc::new(Profile::of(role)?);
    cache.insert(role, Arc::clone(&profile));
    Ok(profile)
}

/// A profile's first filter, assembled once: it costs more than all the rest of a start.
fn filter(profile: &Profile, variant: Variant) -> Result<Arc<Vec<u8>>, ProfileError> {
    type Filters = BTreeMap<(Role, Variant), Arc<Vec<u8>>>;
    static CACHE: Mutex<Filters> = Mutex::new(BTreeMap::new());
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(filter) = cache.get(&(profile.role, variant)) {
        return Ok(Arc::clone(filter));
    }
    let filter = Arc::new(seccomp::to_bytes(
        &profile.stage1_filter(variant)?.assemble(),
    ));
    cache.insert((profile.role, variant), Arc::clone(&filter));
    Ok(filter)
}

/// Makes a role's profile concrete.
///
/// # Errors
/// [`CompileError`]: a path, a variable or a user that the profile can't be used with.
pub fn compile(role: Role, context: &Context) -> Result<Launch, CompileError> {
    let profile = profile(role)?;
    let profile = profile.as_ref();
    let network = match profile.network {
        Network::None => false,
        Network::Host => true,
        Network::Declared => context.network,
    };
    let variant = Variant {
        network,
        degraded: context.degraded,
    };
    let filter = filter(profile, variant)?;
    if (role == Role::McpServer) != context.server.is_some() {
        return Err(CompileError::Command(role));
    }
    let (uid, gid) = match &context.identity {
        Some(identity) => (identity.uid, identity.gid),
        None => (
            nix::unistd::geteuid().as_raw(),
            nix::unistd::getegid().as_raw(),
        ),
    };
    if uid == 0 || gid == 0 {
        return Err(CompileError::Root(role));
    }

    let mut plan = Plan::new(profile, context, variant);
    plan.grant_all()?;
    let inside = plan.inside.clone();
    let words = Words {
        inside: &inside,
        degraded: context.degraded,
        uid,
        gid,
    };
    let environment = words.environment(profile, context, variant)?;
    let directory = match role {
        Role::Run | Role::McpServer => {
            let chosen = context
                .server
                .as_ref()
                .and_then(|server| server.directory.clone());
            let fallback = plan
                .inside
                .workspace
                .clone()
                .or_else(|| plan.inside.scratch.clone());
            chosen.or(fallback).unwrap_or_else(|| "/".into())
        }
        _ => "/".into(),
    };
    let (program, arguments) = match &context.server {
        None => (Program::Descriptor, vec![role.name().to_owned()]),
        Some(server) => {
            let name = server.command.to_str().ok_or_else(|| CompileError::Path {
                path: server.command.clone(),
                reason: "a command must be valid UTF-8",
            })?;
            let mut arguments = vec![name.to_owned()];
            arguments.extend(server.arguments.iter().cloned());
            (Program::Named(server.command.clone()), arguments)
        }
    };
    let loopback = profile.loopback && !network && !context.degraded;
    let (view, own) = match context.degraded {
        true => (None, Vec::new()),
        false => {
            let (view, own) = plan.view(&words, context.identity.is_some());
            (Some(view), own)
        }
    };
    let landlock = Landlock {
        refused_net: match (network, loopback) {
            (true, _) => rights::bind(),
            (false, true) => 0,
            (false, false) => rights::tcp(),
        },
        paths: std::mem::take(&mut plan.rules).into_iter().collect(),
    };
    // Without a user namespace of its own it would count all processes of the person.
    let counts_others = context.degraded && context.identity.is_none();
    let limits = profile.limits.iter();
    let limits = limits.filter(|limit| !(counts_others && limit.resource == Resource::Processes));
    let limits = limits.map(|limit| (limit.resource, limit.value));
    let data = context.data_max.map(|bytes| (Resource::Data, bytes));
    let shares_workspace = context
        .identity
        .as_ref()
        .is_some_and(|who| !who.groups.is_empty());
    Ok(Launch {
        namespaces: namespaces(context, network),
        id_map: (context.identity.is_none() && !context.degraded).then_some(IdMap { uid, gid }),
        inside: inside.clone(),
        view,
        filter,
        spec: LaunchSpec {
            version: VERSION,
            role,
            // With a workspace shared by group, what is made there is for the group too.
            umask: profile.umask.0 & if shares_workspace { !0o020 } else { !0 },
            limits: limits.chain(data).collect(),
            own,
            loopback,
            identity: context.identity.clone(),
            directory,
            landlock,
            program,
            arguments,
            environment,
        },
    })
}

fn namespaces(context: &Context, network: bool) -> Namespaces {
    if context.degraded {
        return Namespaces::NONE;
    }
    let mut set = Namespaces::PID | Namespaces::MOUNT | Namespaces::IPC | Namespaces::UTS;
    if !network {
        set = set | Namespaces::NET;
    }
    // Root makes the others without; its workers are other users anyway.
    if context.identity.is_none() {
        set = set | Namespaces::USER;
    }
    set
}
