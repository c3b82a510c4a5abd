//! From a profile and the facts of one process to what the launcher does.

use crate::bundle::Bundle;
use crate::context::{Context, Inside};
use crate::profile::{Access, Network, Proc, Profile, ProfileError, Resource, Subject, Variant};
use crate::rights;
use crate::seccomp;
use crate::spec::{Entry, Landlock, LaunchSpec, Program, VERSION, View};
use ipc_proto::Role;
use mono_sys::process::{IdMap, Namespaces};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;

/// A start that is ready to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// For the launcher.
    pub spec: LaunchSpec,
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

/// Where the scratch directory is inside a view.
const SCRATCH: &str = "/scratch";
/// Where the state directory is inside a view.
const STATE: &str = "/state";
/// Where its own temporary directory is inside a view.
const TEMPORARY: &str = "/tmp";
/// The user's name inside a view.
const USER: &str = "mono";
/// Tells a worker of ours which variant of its profile it was started under.
pub(crate) const VARIANT: &str = "MONO_SANDBOX";

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
    let words = Words {
        inside: &plan.inside,
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
    let shares_workspace = context
        .identity
        .as_ref()
        .is_some_and(|who| !who.groups.is_empty());
    Ok(Launch {
        namespaces: namespaces(context, network),
        id_map: (context.identity.is_none() && !context.degraded).then_some(IdMap { uid, gid }),
        inside: plan.inside.clone(),
        spec: LaunchSpec {
            version: VERSION,
            role,
            // With a workspace shared by group, what is made there is for the group too.
            umask: profile.umask.0 & if shares_workspace { !0o020 } else { !0 },
            limits: limits.map(|limit| (limit.resource, limit.value)).collect(),
            view: (!context.degraded).then(|| plan.view(&words)),
            loopback,
            identity: context.identity.clone(),
            directory,
            landlock,
            filter: filter.as_ref().clone(),
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

/// What stands for what in data files.
struct Words<'a> {
    inside: &'a Inside,
    degraded: bool,
    uid: u32,
    gid: u32,
}

impl Words<'_> {
    fn home(&self) -> &str {
        let scratch = self.inside.scratch.as_ref().and_then(|path| path.to_str());
        scratch.unwrap_or(if self.degraded {
            "/nonexistent"
        } else {
            TEMPORARY
        })
    }

    fn fill(&self, text: &str) -> String {
        let workspace = self
            .inside
            .workspace
            .as_ref()
            .and_then(|path| path.to_str());
        text.replace("@workspace", workspace.unwrap_or("/nonexistent"))
            .replace("@scratch", self.home())
            .replace("@home", self.home())
            .replace("@user", USER)
            .replace("@uid", &self.uid.to_string())
            .replace("@gid", &self.gid.to_string())
    }

    fn environment(
        &self,
        profile: &Profile,
        context: &Context,
        variant: Variant,
    ) -> Result<Vec<String>, CompileError> {
        let mut variables: BTreeMap<String, String> = BTreeMap::new();
        for variable in &profile.environment {
            variables.insert(variable.name.clone(), self.fill(&variable.value));
        }
        let ours = profile.role != Role::McpServer;
        for (name, value) in &context.environment {
            let refuse = |reason| {
                let name = name.clone();
                Err(CompileError::Variable {
                    name,
                    role: profile.role,
                    reason,
                })
            };
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return refuse("a name has no `=`, and neither part a zero byte");
            }
            if ours && !name.starts_with("MONO_") {
                return refuse("workers have the environment of their profile");
            }
            // These would load code into the program before its first line.
            if name.starts_with("LD_") {
                return refuse("it controls the dynamic loader");
            }
            variables.insert(name.clone(), value.clone());
        }
        if ours {
            let mut words = vec![if variant.degraded {
                "degraded"
            } else {
                "isolated"
            }];
            words.extend(variant.network.then_some("network"));
            variables.insert(VARIANT.into(), words.join(","));
        }
        Ok(variables
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect())
    }
}

/// The file system of one process, as it comes together.
struct Plan<'a> {
    profile: &'a Profile,
    context: &'a Context,
    variant: Variant,
    inside: Inside,
    /// By path inside; a path sorts before what lies in it.
    entries: BTreeMap<PathBuf, Entry>,
    rules: BTreeMap<PathBuf, u64>,
    hides: Vec<Entry>,
}

impl<'a> Plan<'a> {
    fn new(profile: &'a Profile, context: &'a Context, variant: Variant) -> Self {
        Plan {
            profile,
            context,
            variant,
            inside: Inside::default(),
            entries: BTreeMap::new(),
            rules: BTreeMap::new(),
            hides: Vec::new(),
        }
    }

    fn grant_all(&mut self) -> Result<(), CompileError> {
        for name in &self.profile.devices {
            self.device(&Path::new("/dev").join(name));
        }
        if self.profile.temporary_bytes > 0 && !self.variant.degraded {
            let bytes = self.profile.temporary_bytes;
            let path = PathBuf::from(TEMPORARY);
            self.entries
                .insert(path.clone(), Entry::Temporary { path, bytes });
            self.rule(Path::new(TEMPORARY), rights::of(Access::WriteExec, true));
        }
        let mut programs = false;
        for grant in &self.profile.grants {
            let access = grant.access.unwrap_or(Access::Read);
            match grant.what {
                Subject::Workspace => {
                    self.inside.workspace = self.named(&self.context.workspace, None, access)?;
                }
                Subject::Scratch => {
                    self.inside.scratch =
                        self.named(&self.context.scratch, Some(SCRATCH), access)?;
                }
                Subject::State => {
                    self.inside.state = self.named(&self.context.state, Some(STATE), access)?;
                }
                Subject::Declared => {
                    for declared in &self.context.declared {
                        self.show(&declared.path, &declared.path, declared.access)?;
                    }
                }
                // Without a network they are of no use, and each costs a mount.
                Subject::Resolver | Subject::Certificates if !self.variant.network => {}
                Subject::Loader | Subject::Programs | Subject::Resolver | Subject::Certificates => {
                    programs |= grant.what == Subject::Programs;
                    if let Some(bundle) = grant.what.bundle().and_then(Bundle::named) {
                        self.bundle(bundle);
                    }
                }
            }
        }
        self.hide()?;
        if self.variant.degraded {
            let own = matches!(self.profile.proc, Proc::Own);
            let path = Path::new(if own { "/proc/self" } else { "/proc" });
            self.rule(path, rights::of(Access::Read, true));
        } else {
            self.rule(Path::new("/proc"), rights::of(Access::Read, true));
            if self.entries.keys().any(|path| path.starts_with("/etc")) {
                // A view's /etc has nothing but what was meant to be read.
                self.rules.retain(|path, _| !path.starts_with("/etc"));
                self.rule(Path::new("/etc"), rights::of(Access::Read, true));
            }
            if programs {
                self.rule(Path::new("/"), rights::listing());
            }
        }
        Ok(())
    }

    fn rule(&mut self, path: &Path, rights: u64) {
        *self.rules.entry(path.to_owned()).or_default() |= rights;
    }

    fn device(&mut self, path: &Path) {
        if !path.exists() {
            return;
        }
        let entry = Entry::Show {
            source: path.to_owned(),
            path: path.to_owned(),
            directory: false,
            write: true,
            execute: false,
            device: true,
        };
        self.entries.insert(path.to_owned(), entry);
        self.rule(path, rights::device());
    }

    /// Shows a path of the context, at a fixed place where the view has one.
    fn named(
        &mut self,
        source: &Option<PathBuf>,
        place: Option<&str>,
        access: Access,
    ) -> Result<Option<PathBuf>, CompileError> {
        let Some(source) = source else {
            return Ok(None);
        };
        let place = place.filter(|_| !self.variant.degraded);
        let path = place.map_or_else(|| source.clone(), PathBuf::from);
        self.show(source, &path, access)?;
        Ok(Some(path))
    }

    fn show(&mut self, source: &Path, path: &Path, access: Access) -> Result<(), CompileError> {
        check(source)?;
        check(path)?;
        let refuse = |reason| {
            Err(CompileError::Path {
                path: source.to_owned(),
                reason,
            })
        };
        let (Ok(real), Ok(metadata)) = (std::fs::canonicalize(source), std::fs::metadata(source))
        else {
            return refuse("it must exist and be reachable for the user that monod runs as");
        };
        // What lies in a workspace may have been made by an agent: a link there would make this
        // grant one of the link's target. Links of the operator are resolved when the
        // configuration is read.
        if real != source {
            return refuse("a granted path must not go through a symbolic link");
        }
        let directory = metadata.is_dir();
        if !directory && !metadata.is_file() {
            return refuse("only directories and regular files can be granted");
        }
        let write = matches!(access, Access::Write | Access::WriteExec);
        let execute = matches!(access, Access::ReadExec | Access::WriteExec);
        let covered = source == path && path.ancestors().skip(1).any(|above| {
            matches!(self.entries.get(above), Some(Entry::Show { source, write: w, execute: x, .. })
                    if source == above && *w == write && (*x || !execute))
        });
        if !covered {
            let entry = Entry::Show {
                source: source.to_owned(),
                path: path.to_owned(),
                directory,
                write,
                execute,
                device: false,
            };
            self.entries.insert(path.to_owned(), entry);
        }
        self.rule(path, rights::of(access, directory));
        Ok(())
    }

    fn bundle(&mut self, bundle: &Bundle) {
        let degraded = self.variant.degraded;
        for text in &bundle.shown {
            let path = PathBuf::from(text);
            let Ok(metadata) = std::fs::symlink_metadata(&path) else {
                continue;
            };
            if let Ok(target) = std::fs::read_link(&path) {
                self.entries
                    .insert(path.clone(), Entry::Link { path, target });
                continue;
            }
            let executes = bundle
                .read_exec
                .iter()
                .any(|exec| Path::new(exec).starts_with(&path));
            // Two bundles may show one place; what one needs the other doesn't take away.
            let before = self.entries.get(&path);
            let execute = executes || matches!(before, Some(Entry::Show { execute: true, .. }));
            let entry = Entry::Show {
                source: std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone()),
                path: path.clone(),
                directory: metadata.is_dir(),
                write: false,
                execute,
                device: false,
            };
            self.entries.insert(path, entry);
        }
        for (paths, access) in [
            (&bundle.read, Access::Read),
            (&bundle.read_exec, Access::ReadExec),
        ] {
            for path in paths.iter().map(Path::new) {
                // A link at this place ends in something that is granted at its own.
                let Ok(metadata) = std::fs::symlink_metadata(path) else {
                    continue;
                };
                if !metadata.is_symlink() {
                    self.rule(path, rights::of(access, metadata.is_dir()));
                }
            }
        }
        for path in bundle.copied.iter().map(PathBuf::from) {
            if degraded && path.is_file() {
                self.rule(&path, rights::of(Access::Read, false));
            }
            self.entries.insert(path.clone(), Entry::Copy { path });
        }
        for (path, text) in &bundle.written {
            let path = PathBuf::from(path);
            if degraded && path.is_file() {
                self.rule(&path, rights::of(Access::Read, false));
            }
            self.entries.insert(
                path.clone(),
                Entry::Text {
                    path,
                    text: text.clone(),
                },
            );
        }
    }

    /// Covers what must not be seen, wherever a granted path would show it.
    fn hide(&mut self) -> Result<(), CompileError> {
        for hidden in &self.context.hidden {
            check(hidden)?;
            let shows = self.entries.values().filter_map(|entry| match entry {
                Entry::Show {
                    source,
                    path,
                    device: false,
                    ..
                } => hidden
                    .strip_prefix(source)
                    .ok()
                    .map(|rest| (source, path.join(rest))),
                _ => None,
            });
            for (granted, path) in shows {
                // The role's own state directory lies in what is hidden, not the other way round.
                let Ok(metadata) = std::fs::symlink_metadata(hidden) else {
                    continue;
                };
                if self.variant.degraded {
                    return Err(CompileError::Hidden {
                        hidden: hidden.clone(),
                        granted: granted.clone(),
                        role: self.profile.role,
                    });
                }
                self.hides.push(Entry::Hide {
                    path,
                    directory: metadata.is_dir(),
                });
            }
        }
        Ok(())
    }

    fn view(&self, words: &Words<'_>) -> View {
        let fill = |entry: &Entry| match entry {
            Entry::Text { path, text } => Entry::Text {
                path: path.clone(),
                text: words.fill(text),
            },
            other => other.clone(),
        };
        let entries = self
            .entries
            .values()
            .map(fill)
            .chain(self.hides.iter().cloned());
        View {
            entries: entries.collect(),
            for_programs: matches!(self.profile.proc, Proc::Full),
        }
    }
}

/// Places that a view makes itself, or that no process gets.
const RESERVED: [&str; 4] = ["/proc", "/dev", "/sys", "/.landlock"];

fn check(path: &Path) -> Result<(), CompileError> {
    let refuse = |reason| {
        Err(CompileError::Path {
            path: path.to_owned(),
            reason,
        })
    };
    let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    if !path.is_absolute() || !path.components().all(plain) {
        return refuse("a granted path must be absolute and without `..`");
    }
    if path.to_str().is_none_or(|text| text.contains('\0')) {
        return refuse("a granted path must be valid UTF-8");
    }
    if path == Path::new("/") {
        return refuse("the root of the file system can't be granted; name what is needed");
    }
    if RESERVED.iter().any(|reserved| path.starts_with(reserved)) {
        return refuse("this place is made by the sandbox itself; choose another");
    }
    Ok(())
}
