//! The profiles: one data file a role under `profiles/`, read and checked here.

use crate::seccomp::{Filter, SetError, errno_of, set_names};
use ipc_proto::Role;
use serde::Deserialize;
use thiserror::Error;

/// What one role may do, as its file says it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The role.
    pub role: Role,
    /// One sentence for people.
    pub summary: String,
    /// Whether it shares the machine's network.
    pub network: Network,
    /// Whether loopback works in its own network namespace.
    #[serde(default)]
    pub loopback: bool,
    /// What it sees of `/proc`.
    pub proc: Proc,
    /// Size of its own `/tmp` in bytes; 0 for none.
    #[serde(default)]
    pub temporary_bytes: u64,
    /// Device files under `/dev`.
    #[serde(default)]
    pub devices: Vec<String>,
    /// File mode bits that new files never have.
    pub umask: Octal,
    /// The oldest Landlock that will do.
    pub landlock_floor: u32,
    /// Limits that the kernel enforces.
    pub limits: Vec<Limit>,
    /// What it reaches of the file system.
    pub grants: Vec<Grant>,
    /// Its whole environment.
    pub environment: Vec<Variable>,
    /// System calls from the launcher's `exec` on.
    pub stage1: Stage,
    /// System calls once it serves; none for programs that aren't ours.
    pub stage2: Option<Stage>,
    /// What it tries once it serves, to see it refused.
    pub probes: Vec<ProbeRow>,
}

/// Which network a role has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// None: a network namespace of its own.
    None,
    /// The machine's, for connections outward.
    Host,
    /// The machine's when the configuration declares a use for it, else none.
    Declared,
}

/// What a role sees of `/proc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proc {
    /// Its own processes only, nothing about the machine.
    Own,
    /// Its own processes, and what the machine tells everyone (`/proc/cpuinfo`).
    Full,
}

/// A number that people write in octal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Octal(pub u32);

impl TryFrom<String> for Octal {
    type Error = std::num::ParseIntError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        u32::from_str_radix(&text, 8).map(Octal)
    }
}

/// A limit of a process.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Which.
    pub resource: Resource,
    /// Soft and hard value: bytes or a count.
    pub value: u64,
    /// Why this value.
    pub reason: String,
}

/// The limits that profiles use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// Open descriptors.
    OpenFiles,
    /// Processes and threads of its user in its user namespace.
    Processes,
    /// Bytes of a core dump.
    Core,
    /// Bytes of the largest file it writes.
    FileSize,
    /// Bytes of address space.
    AddressSpace,
    /// Bytes of private memory that it can write to: what it asked for, used or not.
    Data,
    /// Bytes of locked memory.
    LockedMemory,
    /// Bytes in POSIX message queues.
    MessageQueues,
}

/// A part of the file system that a role reaches.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// What.
    pub what: Subject,
    /// How; bundles say it themselves.
    pub access: Option<Access>,
    /// Why.
    pub reason: String,
}

/// What a grant is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// The workspace, at its own path.
    Workspace,
    /// The run's scratch directory, at `/scratch`.
    Scratch,
    /// The role's own state directory, at `/state`.
    State,
    /// What the configuration declares for this process.
    Declared,
    /// The folder of a run for what its servers make, at `/scratch/outbound`, where the run has it too.
    Outbound,
    /// The files of the request that a server works for, at `/scratch/attachments`, likewise.
    Attachments,
    /// The bundle of this name in `profiles/bundles.json`.
    Loader,
    /// As above.
    Programs,
    /// As above.
    Resolver,
    /// As above.
    Certificates,
}

impl Subject {
    /// The bundle's name, for those that are one.
    pub const fn bundle(self) -> Option<&'static str> {
        match self {
            Subject::Loader => Some("loader"),
            Subject::Programs => Some("programs"),
            Subject::Resolver => Some("resolver"),
            Subject::Certificates => Some("certificates"),
            Subject::Workspace
            | Subject::Scratch
            | Subject::State
            | Subject::Declared
            | Subject::Outbound
            | Subject::Attachments => None,
        }
    }
}

/// What may be done beneath a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Reading files and listing directories.
    Read,
    /// Reading and executing.
    ReadExec,
    /// Reading, and making, writing, moving and removing files, directories and symbolic links.
    Write,
    /// As `write`, and executing, pipes and sockets: a place that programs work in.
    WriteExec,
}

/// One variable. `@workspace`, `@scratch` and `@tmp` in the value stand for the paths inside.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Why, where it isn't plain.
    #[serde(default)]
    pub reason: String,
}

/// The system calls of one stage, by sets.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Stage {
    /// Always allowed.
    pub allow: Vec<String>,
    /// Allowed beside them with namespaces of its own.
    #[serde(default)]
    pub when_isolated: Vec<String>,
    /// Allowed beside them when it shares the machine's network.
    #[serde(default)]
    pub when_network: Vec<String>,
    /// Ending the process.
    #[serde(default)]
    pub kill: Vec<String>,
    /// Only for a second stage that takes a little away: calls that no set lists are left to the
    /// first. It keeps the list of ordinary programs from being read and installed twice.
    #[serde(default)]
    pub rest_as_before: bool,
}

/// What a filter depends on beside the role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Variant {
    /// It shares the machine's network.
    pub network: bool,
    /// It has no namespaces of its own.
    pub degraded: bool,
}

impl Stage {
    fn allowed(&self, variant: Variant) -> impl Iterator<Item = &str> {
        let isolated = self.when_isolated.iter().filter(move |_| !variant.degraded);
        let network = self.when_network.iter().filter(move |_| variant.network);
        self.allow
            .iter()
            .chain(isolated)
            .chain(network)
            .map(String::as_str)
    }

    fn sets(&self) -> impl Iterator<Item = &str> {
        let lists = [
            &self.allow,
            &self.when_isolated,
            &self.when_network,
            &self.kill,
        ];
        lists.into_iter().flatten().map(String::as_str)
    }
}

/// Something a worker tries, and how it must be refused.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeRow {
    /// What.
    #[serde(rename = "try")]
    pub attempt: crate::probe::Attempt,
    /// The errors that count as the expected refusal.
    pub errors: Vec<String>,
}

/// A profile can't be used.
#[derive(Debug, Error)]
pub enum ProfileError {
    /// Nobody starts this role through the launcher.
    #[error("the role {0} has no profile: it is not started by the supervisor")]
    NoProfile(Role),
    /// The file is not of the form that is read.
    #[error("profiles/{role}.json: {source}")]
    Malformed {
        /// Whose.
        role: Role,
        /// Where and why.
        source: serde_json::Error,
    },
    /// The file contradicts itself or a rule for all profiles.
    #[error("profiles/{role}.json: {what}")]
    Invalid {
        /// Whose.
        role: Role,
        /// What, and what would be right.
        what: String,
    },
    /// A set of system calls is wrong.
    #[error("profiles/{role}.json: {source}")]
    Set {
        /// Whose.
        role: Role,
        /// What.
        source: SetError,
    },
}

macro_rules! files {
    ($($role:ident = $name:literal),* $(,)?) => {
        const fn file(role: Role) -> Option<&'static str> {
            match role {
                $(Role::$role =>
                    Some(include_str!(concat!("../profiles/", $name, ".json"))),)*
                Role::Monod => None,
            }
        }
    };
}

files! {
    Store = "store",
    Artifact = "artifact",
    Continuation = "continuation",
    Egress = "egress",
    AppBridge = "app-bridge",
    ChannelOpenai = "channel-openai",
    ChannelConsole = "channel-console",
    ChannelWebhook = "channel-webhook",
    ChannelA2a = "channel-a2a",
    ChannelCron = "channel-cron",
    ChannelSlack = "channel-slack",
    ChannelTelegram = "channel-telegram",
    Run = "run",
    McpServer = "mcp-server",
    Metrics = "metrics",
}

/// Landlock before this ABI has no scopes: a sandboxed process could signal any process of its
/// user and connect to any abstract socket of its network namespace. (Kernel 6.12.)
pub const LANDLOCK_FLOOR: u32 = 6;

impl Profile {
    /// The profile of a role, checked.
    ///
    /// # Errors
    /// [`ProfileError`]; only `monod` has none, and the files in the repository are tested.
    pub fn of(role: Role) -> Result<Self, ProfileError> {
        let text = file(role).ok_or(ProfileError::NoProfile(role))?;
        Self::read(role, text)
    }

    fn read(role: Role, text: &str) -> Result<Self, ProfileError> {
        let profile: Profile = serde_json::from_str(text)
            .map_err(|source| ProfileError::Malformed { role, source })?;
        match profile.fault(role) {
            Some(what) => Err(ProfileError::Invalid { role, what }),
            None => Ok(profile),
        }
    }

    /// The rules that hold for every profile.
    fn fault(&self, role: Role) -> Option<String> {
        if self.role != role {
            return Some(format!("it says that it is for {}", self.role));
        }
        if self.landlock_floor < LANDLOCK_FLOOR {
            return Some(format!(
                "`landlock_floor` must be at least {LANDLOCK_FLOOR}"
            ));
        }
        if !self
            .limits
            .iter()
            .any(|limit| limit.resource == Resource::Core && limit.value == 0)
        {
            return Some("core dumps must be limited to 0: they would hold secrets".into());
        }
        if !self
            .limits
            .iter()
            .any(|limit| limit.resource == Resource::OpenFiles)
        {
            return Some("it needs a limit of open files".into());
        }
        if self.stage1.kill.iter().all(|set| set != "kill-hostile") {
            return Some("`stage1.kill` must have `kill-hostile`".into());
        }
        if self.stage2.iter().any(|stage| !stage.kill.is_empty()) {
            return Some("`kill` is for the first stage: only its filter has a listener".into());
        }
        if self.stage2.is_none() != (role == Role::McpServer) {
            return Some("every worker of ours has a second stage, and nobody else".into());
        }
        if self.loopback && self.network == Network::Host {
            return Some("`loopback` is for a network namespace of its own".into());
        }
        if let Some(grant) = self.grants.iter().find(|grant| {
            grant.access.is_some()
                == (grant.what.bundle().is_some() || grant.what == Subject::Declared)
        }) {
            return Some(format!(
                "grant {:?}: `access` is for what isn't a bundle",
                grant.what
            ));
        }
        let leaves = self
            .stage2
            .as_ref()
            .is_some_and(|stage2| stage2.rest_as_before);
        if self.stage1.rest_as_before || leaves != (role == Role::Run) {
            return Some("`rest-as-before` is for the second stage of the run worker".into());
        }
        let unknown = |stage: &Stage| {
            let mut sets = stage.sets();
            sets.find(|set| !set_names().any(|name| name == *set))
                .map(str::to_owned)
        };
        let stages = [Some(&self.stage1), self.stage2.as_ref()];
        if let Some(set) = stages.into_iter().flatten().find_map(unknown) {
            return Some(format!("there is no set of system calls named `{set}`"));
        }
        if self.probes.is_empty() && role != Role::McpServer {
            return Some("a worker that tries nothing proves nothing".into());
        }
        self.probes
            .iter()
            .flat_map(|row| &row.errors)
            .find_map(|name| {
                errno_of(name)
                    .is_none()
                    .then(|| format!("`{name}` is no known error name"))
            })
    }

    /// The filter that the launcher installs: also what the second stage will need, since a later
    /// filter can only take away.
    ///
    /// # Errors
    /// [`ProfileError::Set`].
    pub fn stage1_filter(&self, variant: Variant) -> Result<Filter, ProfileError> {
        let mut allow: Vec<&str> = self.stage1.allowed(variant).collect();
        if let Some(stage2) = self.stage2.as_ref().filter(|_| self.role != Role::Run) {
            allow.extend(stage2.allowed(variant));
        }
        Filter::from_sets(&allow, &self.killed()).map_err(|source| ProfileError::Set {
            role: self.role,
            source,
        })
    }

    fn killed(&self) -> Vec<&str> {
        self.stage1.kill.iter().map(String::as_str).collect()
    }

    /// The filter that the worker installs once it has what it needs; `None` where there is none.
    ///
    /// # Errors
    /// [`ProfileError::Set`].
    pub fn stage2_filter(&self, variant: Variant) -> Result<Option<Filter>, ProfileError> {
        let Some(stage2) = &self.stage2 else {
            return Ok(None);
        };
        let allow: Vec<&str> = stage2.allowed(variant).collect();
        let of_role = |source| ProfileError::Set {
            role: self.role,
            source,
        };
        let filter = Filter::from_sets(&allow, &[]).map_err(of_role)?;
        let filter = if stage2.rest_as_before {
            filter.rest_allowed()
        } else {
            filter
        };
        // Not the whole first filter: the run's is long, and reading it would be felt at each start.
        let held = Filter::from_sets(&[], &self.killed()).map_err(of_role)?;
        Ok(Some(filter.after(&held)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_role_but_the_supervisor_has_a_valid_profile() {
        for role in Role::ALL {
            match Profile::of(role) {
                Err(ProfileError::NoProfile(Role::Monod)) if role == Role::Monod => {}
                other => assert!(!other.unwrap().summary.is_empty(), "{role}"),
            }
        }
    }

    #[test]
    fn a_profile_that_breaks_a_rule_is_refused_with_the_rule() {
        let text = file(Role::Store).unwrap();
        let cases = [
            (
                "\"role\": \"store\"",
                "\"role\": \"run\"",
                "it says that it is for run",
            ),
            (
                "\"landlock_floor\": 6",
                "\"landlock_floor\": 5",
                "at least 6",
            ),
            (
                "\"resource\": \"core\"",
                "\"resource\": \"locked-memory\"",
                "core dumps",
            ),
            (
                "\"resource\": \"open-files\"",
                "\"resource\": \"locked-memory\"",
                "open files",
            ),
            ("\"kill-hostile\"", "\"kill-io-uring\"", "kill-hostile"),
            ("\"files-own\"", "\"files-mine\"", "files-mine"),
            (
                "\"files-own\"]",
                "\"files-own\"], \"kill\": [\"kill-hostile\"]",
                "first stage",
            ),
            ("\"ENOENT\"", "\"ENONENT\"", "ENONENT"),
            ("\"summary\"", "\"sumary\"", "sumary"),
        ];
        for (from, to, expected) in cases {
            assert!(text.contains(from), "{from}");
            let error = Profile::read(Role::Store, &text.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
