//! From the configuration to what each role is told: its settings and its descriptors.
//!
//! Secrets are handed on as descriptors. A key file is opened and never read here; a key that
//! stands in the environment or in the configuration is wrapped into a sealed memfd.

mod channels;
mod servers;

pub(crate) use channels::{channel_secrets, given_to_endpoints, has_webhook_keys};
pub(crate) use servers::{has_http_servers, shows_apps};

use channels::{MAX_ENDPOINT_KEYS, console, offered, openai, reachable, webhook};
use ipc_proto::Role;
use ipc_proto::callbacks::CallbackHosts;
use ipc_proto::settings::{
    ArtifactSettings, ContinuationSettings, EgressSettings, ModelChoice, NamedRouteSettings,
    ProviderSettings, RoleSettings, RunSettings, StoreSettings, Wire,
};
use mono_config::{Config, SecretSource, Wire as ConfigWire};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use servers::app_bridge;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Something a role needs can't be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ComposeError {
    /// A file or folder can't be opened.
    #[error("can't open {what} {}: {source}", path.display())]
    Open {
        /// What it is for.
        what: String,
        /// Where it should be.
        path: PathBuf,
        /// Why.
        source: nix::Error,
    },
    /// A named environment variable is not set.
    #[error("{what} is to come from the environment variable {name}, which is not set")]
    Unset {
        /// What it is for.
        what: String,
        /// The variable.
        name: String,
    },
    /// A systemd credential that the unit doesn't load.
    #[error(
        "{what} is to come from the credential {name}; add LoadCredential={name}:FILE to the unit"
    )]
    NoCredential {
        /// What it is for.
        what: String,
        /// The credential.
        name: String,
    },
    /// No memfd.
    #[error("no memory file for {what}: {source}")]
    Memfd {
        /// What it is for.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// More skills than a worker can be handed.
    #[error("context.selectedSkills has {0} skills, at most {MAX_SKILLS} can be given to a run")]
    Skills(usize),
    /// More keys than the webhook channel can be handed.
    #[error(
        "webhook.endpoints have {0} keys of their own, at most {MAX_ENDPOINT_KEYS} can be handed on; let some use webhook.apiKey and webhook.callback.secret"
    )]
    EndpointKeys(usize),
    /// The role has no settings in this build.
    #[error("the role {0} is not part of this build")]
    Role(Role),
}

/// Where things are on disk.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    pub(crate) store: PathBuf,
    pub(crate) artifacts: PathBuf,
    /// Apps of MCP servers.
    pub(crate) apps: PathBuf,
    pub(crate) continuations: PathBuf,
    /// Scratch directories, one per run worker or server.
    pub(crate) scratch: PathBuf,
    pub(crate) workspace: PathBuf,
}

/// Descriptors by name, in the order of the packet.
pub(crate) type Descriptors = Vec<(String, OwnedFd)>;

fn open_file(what: &str, path: &Path, flags: OFlag) -> Result<OwnedFd, ComposeError> {
    open(path, flags | OFlag::O_CLOEXEC, Mode::empty()).map_err(|source| ComposeError::Open {
        what: what.to_owned(),
        path: path.to_owned(),
        source,
    })
}

fn folder(what: &str, path: &Path) -> Result<OwnedFd, ComposeError> {
    open_file(
        what,
        path,
        OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW,
    )
}

/// A descriptor from which exactly one worker reads a secret.
pub(crate) fn secret(what: &str, source: &SecretSource) -> Result<OwnedFd, ComposeError> {
    let sealed = |bytes: &[u8]| {
        mono_sys::memfd::sealed_memfd(c"mono-secret", bytes).map_err(|source| ComposeError::Memfd {
            what: what.to_owned(),
            source,
        })
    };
    match source {
        SecretSource::Literal { value } => sealed(value.expose().as_bytes()),
        SecretSource::Env { name } => match std::env::var(name) {
            Ok(value) if !value.is_empty() => sealed(value.as_bytes()),
            _ => Err(ComposeError::Unset {
                what: what.to_owned(),
                name: name.clone(),
            }),
        },
        SecretSource::File { path } => open_file(what, path, OFlag::O_RDONLY),
        SecretSource::Credential { name, path } => match path {
            Some(path) => open_file(what, path, OFlag::O_RDONLY),
            None => Err(ComposeError::NoCredential {
                what: what.to_owned(),
                name: name.clone(),
            }),
        },
    }
}

/// Settings and descriptors of a role.
pub(crate) fn compose(
    config: &Config,
    places: &Places,
    role: Role,
    listener: Option<OwnedFd>,
) -> Result<(RoleSettings, Descriptors), ComposeError> {
    match role {
        Role::Store => Ok((
            RoleSettings::Store(StoreSettings::default()),
            vec![(
                "state".into(),
                folder("the store's directory", &places.store)?,
            )],
        )),
        Role::Artifact => Ok((
            RoleSettings::Artifact(ArtifactSettings {
                max_age_days: config.artifacts.retention.max_age_days,
                max_count: config.artifacts.retention.max_count,
                dry_run: config.artifacts.retention.dry_run,
                private_paths: private_paths(config),
            }),
            vec![
                (
                    "state".into(),
                    folder("the artifact directory", &places.artifacts)?,
                ),
                (
                    "workspace".into(),
                    folder("the workspace", &places.workspace)?,
                ),
                (
                    "outbound".into(),
                    folder("the scratch directory", &places.scratch)?,
                ),
            ],
        )),
        Role::Egress => egress(config),
        Role::AppBridge => {
            let mut descriptors = named_listener(listener);
            descriptors.push(("state".into(), folder("the folder of apps", &places.apps)?));
            Ok((RoleSettings::AppBridge(app_bridge(config)), descriptors))
        }
        Role::ChannelOpenai => openai(config, listener),
        Role::ChannelConsole => Ok((
            RoleSettings::ChannelConsole(console(config)),
            named_listener(listener),
        )),
        Role::ChannelWebhook => webhook(config, listener),
        Role::Run => run(config, places),
        Role::Metrics => Ok((RoleSettings::Metrics, named_listener(listener))),
        Role::Continuation => continuation(config, places, listener),
        other => Err(ComposeError::Role(other)),
    }
}

fn egress(config: &Config) -> Result<(RoleSettings, Descriptors), ComposeError> {
    let mut descriptors = Vec::new();
    let mut providers = BTreeMap::new();
    let choice = |model: &mono_config::ModelName, effort: Option<mono_config::Effort>, attempts| {
        ModelChoice {
            provider: model.provider.clone(),
            model: model.model.clone(),
            effort: effort.map(|e| e.as_str().to_owned()),
            attempts,
        }
    };
    let runtime = &config.runtime;
    let mut chain = vec![choice(
        &runtime.model,
        runtime.effort,
        runtime.retry.primary_attempts,
    )];
    chain.extend(
        runtime
            .fallbacks
            .iter()
            .map(|f| choice(&f.model, f.effort, f.attempts)),
    );
    let offered: Vec<_> = offered(config)
        .map(|model| choice(model, None, runtime.retry.primary_attempts))
        .collect();
    for (id, provider) in &config.providers.by_id {
        // Keys of providers that no model in use names stay where they are.
        if !chain.iter().chain(&offered).any(|c| c.provider == *id) {
            continue;
        }
        if let Some(source) = &provider.api_key {
            let what = format!("the API key of provider {id}");
            descriptors.push((format!("key:{id}"), secret(&what, source)?));
        }
        providers.insert(
            id.clone(),
            ProviderSettings {
                wire: match provider.wire {
                    Some(ConfigWire::OpenaiResponses) => Wire::OpenaiResponses,
                    Some(ConfigWire::AnthropicMessages) => Wire::AnthropicMessages,
                    Some(ConfigWire::Demo) => Wire::Demo,
                    Some(ConfigWire::OpenaiChat) | None => Wire::OpenaiChat,
                },
                base_url: provider.base_url.clone().unwrap_or_default(),
                has_key: provider.api_key.is_some(),
            },
        );
    }
    let settings = EgressSettings {
        providers,
        chain,
        offered,
        backoff_ms: runtime.retry.backoff_ms,
        max_backoff_ms: runtime.retry.max_backoff_ms,
        max_retry_delay_ms: config
            .providers
            .pi_native
            .as_ref()
            .map_or(60_000, |native| native.max_retry_delay_ms),
        idle_timeout_ms: 120_000,
        allow_private_hosts: config.tools.web.fetch.allow_private_hosts.clone(),
        callback_hosts: callback_hosts(config),
    };
    Ok((RoleSettings::Egress(settings), descriptors))
}

/// Where results may be sent: nowhere while no channel would send any.
fn callback_hosts(config: &Config) -> CallbackHosts {
    let webhook = &config.webhook;
    if !webhook.enabled {
        return CallbackHosts::default();
    }
    CallbackHosts {
        public: webhook.callback.hosts.clone(),
        private: webhook.callback.private_hosts.clone(),
    }
}

fn continuation(
    config: &Config,
    places: &Places,
    listener: Option<OwnedFd>,
) -> Result<(RoleSettings, Descriptors), ComposeError> {
    let settings = &config.continuations;
    let mut descriptors = named_listener(listener);
    let folder = folder("the continuations' directory", &places.continuations)?;
    descriptors.push(("state".to_owned(), folder));
    for (n, service) in settings.detached_services.iter().enumerate() {
        let what = format!("continuations.detachedServices[{n}].token");
        descriptors.push((format!("token:{n}"), secret(&what, &service.token)?));
    }
    let routes = settings.named_routes.iter().map(|(name, route)| {
        let mode = match route.mode {
            mono_config::RouteMode::NotifyIfActionable => "notify_if_actionable",
            mono_config::RouteMode::Capture => "capture",
            mono_config::RouteMode::Silent => "silent",
        };
        let route = NamedRouteSettings {
            mode: mode.to_owned(),
            conversation_id: route.conversation_id.clone(),
        };
        (name.clone(), route)
    });
    let (limits, retention) = (&settings.limits, &settings.retention);
    let services = settings.detached_services.iter();
    let settings = ContinuationSettings {
        host: settings.host.clone(),
        port: settings.port,
        max_active_records: limits.max_active_records,
        // The smaller one wins.
        max_active_per_origin: limits.max_active_per_origin.min(limits.max_active_records),
        max_concurrent: limits.max_concurrent,
        synthesis_timeout_ms: limits.synthesis_timeout_ms,
        delivery_timeout_ms: limits.delivery_timeout_ms,
        operator_page_size: limits.operator_page_size,
        terminal_max_records: retention.terminal_max_records,
        terminal_max_age_ms: retention.terminal_max_age_ms,
        captured_text_max_records: retention.captured_text_max_records,
        captured_text_max_age_ms: retention.captured_text_max_age_ms,
        named_routes: routes.collect(),
        detached_services: services.map(|service| service.name.clone()).collect(),
        channels: reachable(config),
    };
    Ok((RoleSettings::Continuation(settings), descriptors))
}

fn named_listener(listener: Option<OwnedFd>) -> Descriptors {
    let named = |listener| ("listener".to_owned(), listener);
    listener.map(named).into_iter().collect()
}

/// Path of a run's scratch directory inside its mount namespace.
pub(crate) const SCRATCH: &str = "/scratch";

fn run(config: &Config, places: &Places) -> Result<(RoleSettings, Descriptors), ComposeError> {
    let mut descriptors = vec![(
        "identity".to_owned(),
        open_file(
            "context.identityPath",
            &config.context.identity_path,
            OFlag::O_RDONLY,
        )?,
    )];
    if let Some(path) = &config.context.soul_path {
        descriptors.push((
            "soul".to_owned(),
            open_file("context.soulPath", path, OFlag::O_RDONLY)?,
        ));
    }
    let skills = skills(config);
    if skills.len() > MAX_SKILLS {
        return Err(ComposeError::Skills(skills.len()));
    }
    for (name, path) in skills {
        let file = open_file("context.selectedSkills", &path, OFlag::O_RDONLY)?;
        descriptors.push((format!("skill:{name}"), file));
    }
    let tools = &config.tools;
    let everything = tools.allowed_tools.iter().any(|t| t == "*");
    let settings = RunSettings {
        workspace: places.workspace.to_string_lossy().into_owned(),
        scratch: SCRATCH.to_owned(),
        allowed_tools: (!everything).then(|| tools.allowed_tools.clone()),
        disallowed_tools: tools.disallowed_tools.clone(),
        max_turns: config.runtime.turn_limit(),
        model: config.runtime.model.to_string(),
        skill_max_bytes: usize::try_from(config.context.skill_max_bytes).unwrap_or(usize::MAX),
        skill_index: config.context.skill_disclosure == mono_config::SkillDisclosure::Index,
        app_endpoint: tools.app_endpoint,
        claim_servers: match config.continuations.enabled {
            true => tools.continuation_servers.clone(),
            false => vec![],
        },
        accompanies: servers::tells_any(config),
    };
    Ok((RoleSettings::Run(settings), descriptors))
}

/// Descriptors of one packet bound the skills of one agent.
const MAX_SKILLS: usize = 12;

/// Selected skills and their files: `<skillsRoot>/<name>/SKILL.md`.
fn skills(config: &Config) -> Vec<(&str, PathBuf)> {
    let Some(root) = &config.context.skills_root else {
        return vec![];
    };
    let selected = config.context.selected_skills.iter();
    selected
        .map(|name| (name.as_str(), root.join(name).join("SKILL.md")))
        .collect()
}

/// Workspace-relative paths that are never published: state, configuration, keys, MCP file, variables.
pub(crate) fn private_paths(config: &Config) -> Vec<String> {
    let mut all = vec![
        config.runtime.state_dir.clone(),
        config.file.clone(),
        config.artifacts.dir.clone(),
        config.continuations.state_dir.clone(),
    ];
    all.extend(config.tools.mcp_config_path.clone());
    all.extend(config.env_file.clone());
    all.extend(
        config
            .providers
            .by_id
            .values()
            .filter_map(|p| match &p.api_key {
                Some(SecretSource::File { path }) => Some(path.clone()),
                _ => None,
            }),
    );
    let channels = channel_secrets(config).into_iter();
    all.extend(channels.filter_map(|source| match source {
        SecretSource::File { path } => Some(path.clone()),
        _ => None,
    }));
    all.iter()
        .filter_map(|path| path.strip_prefix(&config.runtime.workspace).ok())
        .map(|path| path.to_string_lossy().into_owned())
        .filter(|path| !path.is_empty())
        .collect()
}
