//! From the configuration to what each role is told: its settings and its descriptors.
//!
//! Secrets are handed on as descriptors. A key file is opened and never read here; a key that
//! stands in the environment or in the configuration is wrapped into a sealed memfd.

use ipc_proto::Role;
use ipc_proto::callbacks::CallbackHosts;
use ipc_proto::rooms::Reserved;
use ipc_proto::settings::{
    AppBridgeSettings, AppRule, AppsSettings, ArtifactSettings, ConsoleSettings,
    ContinuationSettings, EgressSettings, GatewaySettings, McpServerSettings, McpTransport,
    ModelChoice, NamedRouteSettings, OpenaiSettings, ProviderSettings, RoleSettings, RunSettings,
    ServerApps, StoreSettings, Verdict, WebhookEndpoint, WebhookSettings, Wire,
};
use mono_config::{
    AppDecision, Config, McpTransport as Transport, SecretSource, Wire as ConfigWire,
};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
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

/// True when any configured MCP server is reached over the network.
pub(crate) fn has_http_servers(config: &Config) -> bool {
    config
        .tools
        .mcp_servers
        .values()
        .any(|s| !matches!(s.transport, Transport::Stdio { .. }))
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
        Role::AppBridge => Ok((
            RoleSettings::AppBridge(app_bridge(config)),
            vec![("state".into(), folder("the folder of apps", &places.apps)?)],
        )),
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

/// True for a server that may claim continuations.
fn may_claim(config: &Config, server: &str) -> bool {
    let selected = &config.tools.continuation_servers;
    config.continuations.enabled && selected.iter().any(|name| name == server)
}

/// Where nobody could see an app, servers are told of none.
fn shows_apps(config: &Config) -> bool {
    config.apps.enabled && config.console.enabled
}

fn app_bridge(config: &Config) -> AppBridgeSettings {
    let plain = |headers: &BTreeMap<String, mono_config::Secret>| {
        headers
            .iter()
            .map(|(k, v)| (k.clone(), v.expose().to_owned()))
            .collect()
    };
    let tools = &config.tools;
    let servers = tools
        .mcp_servers
        .iter()
        .map(|(name, server)| McpServerSettings {
            name: name.clone(),
            transport: match &server.transport {
                Transport::Stdio { .. } => McpTransport::Stdio,
                Transport::Http { url, headers } => McpTransport::Http {
                    url: url.clone(),
                    headers: plain(headers),
                },
                Transport::Sse { url, headers } => McpTransport::Sse {
                    url: url.clone(),
                    headers: plain(headers),
                },
            },
            shared: server.shared,
            per_run: tools.mcp_request_context_servers.contains(name) || may_claim(config, name),
            claims: may_claim(config, name),
            apps: (shows_apps(config) && server.apps.enabled).then_some(ServerApps {
                exact_results: server.apps.exact_results,
                webrtc: server.apps.webrtc,
            }),
        })
        .collect();
    let rule = |rule: &mono_config::AppRule| AppRule {
        tool: rule.tool.clone(),
        decision: match rule.decision {
            AppDecision::Allow => Verdict::Allow,
            AppDecision::Ask => Verdict::Ask,
            AppDecision::Deny => Verdict::Deny,
        },
    };
    AppBridgeSettings {
        servers,
        call_timeout_ms: tools.mcp_call_timeout_ms,
        call_max_total_ms: tools.mcp_call_max_total_timeout_ms,
        apps: AppsSettings {
            max_age_days: config.artifacts.retention.max_age_days,
            allowed_origins: config.apps.allowed_origins.clone(),
            clipboard: config.apps.clipboard_write,
            rules: config.apps.rules.iter().map(rule).collect(),
        },
        gateway: tools.gateway.enabled.then_some(GatewaySettings {
            max_sessions: tools.gateway.max_sessions,
            max_backends: tools.gateway.max_backends,
            shows_apps: config.console.enabled,
        }),
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

/// Beginnings of the places to which an answer can be delivered later.
fn reachable(config: &Config) -> Vec<String> {
    let mut all = vec!["terminal".to_owned()];
    if config.console.enabled {
        all.push("web".to_owned());
    }
    if config.webhook.enabled {
        all.push("webhook".to_owned());
    }
    all
}

fn named_listener(listener: Option<OwnedFd>) -> Descriptors {
    let named = |listener| ("listener".to_owned(), listener);
    listener.map(named).into_iter().collect()
}

fn openai(
    config: &Config,
    listener: Option<OwnedFd>,
) -> Result<(RoleSettings, Descriptors), ComposeError> {
    let api = &config.openai_api;
    let mut descriptors = named_listener(listener);
    if let Some(source) = &api.api_key {
        descriptors.push(("bearer".to_owned(), secret("openaiApi.apiKey", source)?));
    }
    let settings = OpenaiSettings {
        base_path: api.base_path.clone(),
        model_id: api.model_id.clone(),
        bearer: api.api_key.is_some(),
        reserved: given_to_endpoints(config),
    };
    Ok((RoleSettings::ChannelOpenai(settings), descriptors))
}

/// Largest file that a run publishes (spec s0).
const MAX_REPLY_FILE: u64 = 20 * 1024 * 1024;

fn console(config: &Config) -> ConsoleSettings {
    let runtime = &config.runtime;
    let model = runtime.model.to_string();
    let mut models = vec![model.clone()];
    let further = runtime.fallbacks.iter().map(|f| &f.model);
    for model in further.chain(offered(config)) {
        let name = model.to_string();
        if !models.contains(&name) {
            models.push(name);
        }
    }
    let folder = runtime.workspace.file_name();
    ConsoleSettings {
        allowed_hosts: config.console.allowed_hosts.clone(),
        label: folder.map_or_else(
            || "mono".to_owned(),
            |name| name.to_string_lossy().into_owned(),
        ),
        model,
        models,
        max_reply_bytes: MAX_REPLY_FILE,
        shows_apps: shows_apps(config),
    }
}

/// Conversations of webhook endpoints: no client of another door goes on in them.
fn given_to_endpoints(config: &Config) -> Reserved {
    let webhook = &config.webhook;
    let endpoints = webhook.endpoints.iter().filter(|_| webhook.enabled);
    Reserved(
        endpoints
            .filter_map(|e| e.conversation_id.clone())
            .collect(),
    )
}

/// Models that requests may ask for beside the chain.
fn offered(config: &Config) -> impl Iterator<Item = &mono_config::ModelName> {
    let webhook = &config.webhook;
    let endpoints = webhook.endpoints.iter().filter(|_| webhook.enabled);
    endpoints.filter_map(|endpoint| endpoint.model.as_ref())
}

/// Descriptors of one packet bound the keys that endpoints have of their own: the settings, the
/// listener and the channel's two keys come along.
const MAX_ENDPOINT_KEYS: usize = 12;

fn webhook(
    config: &Config,
    listener: Option<OwnedFd>,
) -> Result<(RoleSettings, Descriptors), ComposeError> {
    let webhook = &config.webhook;
    let mut descriptors = Vec::new();
    if let Some(listener) = listener {
        descriptors.push(("listener".to_owned(), listener));
    }
    let mut add = |name: String, key: &str, source: &Option<SecretSource>| {
        if let Some(source) = source {
            descriptors.push((name, secret(key, source)?));
        }
        Ok::<_, ComposeError>(())
    };
    add("bearer:0".into(), "webhook.apiKey", &webhook.api_key)?;
    let signing = &webhook.callback.secret;
    add("secret:0".into(), "webhook.callback.secret", signing)?;
    let own = webhook.endpoints.iter();
    let own =
        own.map(|e| usize::from(e.api_key.is_some()) + usize::from(e.callback_secret.is_some()));
    let own: usize = own.sum();
    if own > MAX_ENDPOINT_KEYS {
        return Err(ComposeError::EndpointKeys(own));
    }
    let wait = |mode| mode == mono_config::WebhookMode::Sync;
    let mut endpoints = vec![WebhookEndpoint {
        name: "webhook".to_owned(),
        path: webhook.path.clone(),
        bearer: webhook.api_key.is_some(),
        secret: signing.is_some(),
        wait: wait(webhook.default_mode),
        conversation: None,
        model: None,
        effort: None,
        prompt: None,
        callback_url: None,
    }];
    for (index, endpoint) in webhook.endpoints.iter().enumerate() {
        let n = index + 1;
        let key = |part: &str| format!("webhook.endpoints[{index}].{part}");
        add(format!("bearer:{n}"), &key("apiKey"), &endpoint.api_key)?;
        add(
            format!("secret:{n}"),
            &key("callbackSecret"),
            &endpoint.callback_secret,
        )?;
        endpoints.push(WebhookEndpoint {
            name: endpoint.name.clone(),
            path: endpoint.path.clone(),
            bearer: endpoint.api_key.is_some(),
            secret: endpoint.callback_secret.is_some(),
            wait: wait(endpoint.mode.unwrap_or(webhook.default_mode)),
            conversation: endpoint.conversation_id.clone(),
            model: endpoint.model.as_ref().map(ToString::to_string),
            effort: endpoint.effort.map(|e| e.as_str().to_owned()),
            prompt: endpoint.prompt.clone(),
            callback_url: endpoint.callback_url.clone(),
        });
    }
    let callback = &webhook.callback;
    let settings = WebhookSettings {
        endpoints,
        retention_ms: webhook.retention_ms,
        max_stored: webhook.max_stored_requests,
        max_run_ms: webhook.max_run_ms,
        max_attachment_bytes: webhook.max_attachment_bytes,
        callback_hosts: callback_hosts(config),
        callback_attempts: callback.attempts,
        callback_backoff_ms: callback.backoff_ms,
        callback_max_backoff_ms: callback.max_backoff_ms,
        callback_timeout_ms: callback.timeout_ms,
    };
    Ok((RoleSettings::ChannelWebhook(settings), descriptors))
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

/// True when the webhook channel is handed any key.
pub(crate) fn has_webhook_keys(config: &Config) -> bool {
    let openai = usize::from(config.openai_api.api_key.is_some());
    channel_secrets(config).len() > openai
}

/// Every secret of every channel.
pub(crate) fn channel_secrets(config: &Config) -> Vec<&SecretSource> {
    let webhook = &config.webhook;
    let channels = [
        &config.openai_api.api_key,
        &webhook.api_key,
        &webhook.callback.secret,
    ];
    let endpoints = webhook.endpoints.iter();
    let endpoints = endpoints.flat_map(|e| [&e.api_key, &e.callback_secret]);
    channels.into_iter().chain(endpoints).flatten().collect()
}

/// Workspace-relative paths that are never published: state, configuration, keys, MCP file.
pub(crate) fn private_paths(config: &Config) -> Vec<String> {
    let mut all = vec![
        config.runtime.state_dir.clone(),
        config.file.clone(),
        config.artifacts.dir.clone(),
        config.continuations.state_dir.clone(),
    ];
    all.extend(config.tools.mcp_config_path.clone());
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn webhook_of(
        endpoints: usize,
        own: &str,
    ) -> Result<(RoleSettings, Descriptors), ComposeError> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ID.md"), "x").unwrap();
        let endpoints: Vec<String> = (0..endpoints)
            .map(|n| format!(r#"{{"name":"{n}","path":"/{n}",{own}}}"#))
            .collect();
        let text = format!(
            r#"{{"runtime":{{"model":"demo:scripted"}},"context":{{"identityPath":"ID.md"}},
               "webhook":{{"enabled":true,"apiKey":"a-common-key","callback":{{"hosts":["a.example"],
               "secret":"a-common-secret!"}},"endpoints":[{}]}}}}"#,
            endpoints.join(",")
        );
        let file = folder.path().join("c.json");
        std::fs::write(&file, text).unwrap();
        let loaded = mono_config::load(&file, &BTreeMap::new()).unwrap();
        webhook(&loaded.config, None)
    }

    #[test]
    fn each_endpoint_is_told_of_its_keys_and_gets_them() {
        let own = r#""apiKey":"its-own-key","callbackSecret":"its-own-secret!!""#;
        let (settings, descriptors) = webhook_of(2, own).unwrap();
        let names: Vec<&str> = descriptors.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "bearer:0", "secret:0", "bearer:1", "secret:1", "bearer:2", "secret:2"
            ]
        );
        let RoleSettings::ChannelWebhook(settings) = settings else {
            panic!("{settings:?}")
        };
        assert!(settings.endpoints.iter().all(|e| e.bearer && e.secret));
        assert!(!format!("{settings:?}").contains("its-own"), "{settings:?}");
        let (settings, _) = webhook_of(1, r#""notify":false"#).unwrap();
        let RoleSettings::ChannelWebhook(settings) = settings else {
            panic!("{settings:?}")
        };
        assert!(!settings.endpoints[1].bearer && !settings.endpoints[1].secret);
    }

    #[test]
    fn more_keys_than_a_packet_carries_are_refused() {
        let one = r#""apiKey":"its-own-key""#;
        let (_, descriptors) = webhook_of(MAX_ENDPOINT_KEYS, one).unwrap();
        // With the settings' own memory file and the listener.
        assert_eq!(descriptors.len() + 2, 16);
        let refused = webhook_of(MAX_ENDPOINT_KEYS + 1, one);
        assert!(matches!(refused, Err(ComposeError::EndpointKeys(13))));
    }
}
