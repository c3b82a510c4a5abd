//! `config check`: section by section, what is ready and what waits for a setting.

use crate::diagnostic::{Diagnostic, Severity};
use crate::env::Env;
use crate::form;
use crate::load::{Analysis, analyse};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

/// Sections that are checked here and that this version of the daemon doesn't serve yet. When one
/// is served, its line goes.
const NOT_SERVED: &[&str] = &["memory", "cron", "tui", "slack", "telegram", "a2a"];

/// The outcome of [`check`]. Holds no secret, and no path outside the configuration's folder or the
/// home folder in full.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// No section is [`Status::Error`].
    pub ok: bool,
    pub sections: Vec<SectionReport>,
}

#[derive(Debug, Clone, Serialize)]
pub struct SectionReport {
    pub id: String,
    pub status: Status,
    /// Lines for a person; those that begin with `[WARN]` are advice.
    pub details: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Ok,
    /// Valid, but something must be set before it can do its work.
    Waiting,
    Disabled,
    Error,
}

impl Report {
    /// Valid, yet something waits: not to be called ready to start.
    pub fn needs_attention(&self) -> bool {
        self.sections
            .iter()
            .any(|section| section.status == Status::Waiting)
    }
}

impl Report {
    /// What waits for a setting, each with its section: it doesn't keep the daemon from starting,
    /// and something won't work until it is there.
    pub fn waiting(&self) -> impl Iterator<Item = String> + '_ {
        self.sections
            .iter()
            .filter(|section| section.status == Status::Waiting)
            .flat_map(|section| {
                let told = section.details.iter().filter(|d| !d.starts_with("[WARN]"));
                told.map(|detail| format!("waiting: {}: {detail}", section.id))
            })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Status::Ok => "ok",
            Status::Waiting => "waiting",
            Status::Disabled => "disabled",
            Status::Error => "error",
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for section in &self.sections {
            writeln!(f, "{:<9}{}", section.status, section.id)?;
            for detail in &section.details {
                writeln!(f, "         {}", detail.replace('\n', "\n           "))?;
            }
        }
        f.write_str(match (self.ok, self.needs_attention()) {
            (false, _) => "the configuration has errors",
            (true, true) => "the configuration is valid, but needs attention",
            (true, false) => "the configuration is valid",
        })
    }
}

/// Reads and checks the configuration, and creates nothing.
pub fn check(path: &Path, env: &Env) -> Report {
    let analysis = analyse(path, env);
    let mut by_section: BTreeMap<&str, Vec<&Diagnostic>> = BTreeMap::new();
    for diagnostic in &analysis.diagnostics {
        by_section
            .entry(section_of(diagnostic))
            .or_default()
            .push(diagnostic);
    }
    let look = Look {
        analysis: &analysis,
        env,
    };
    let mut sections = Vec::new();
    let mut add = |id: &str, state: Option<(Status, Vec<String>)>| {
        let problems = by_section.get(id).map(Vec::as_slice).unwrap_or_default();
        let Some((mut status, mut details)) =
            state.or_else(|| (!problems.is_empty()).then(|| (Status::Ok, Vec::new())))
        else {
            return;
        };
        for problem in problems {
            details.push(look.line(problem));
            match problem.severity {
                Severity::Error => status = Status::Error,
                // A well-known trap: an empty allowlist looks like a default.
                Severity::Warning if problem.code == "no_tools" && status == Status::Ok => {
                    status = Status::Waiting
                }
                Severity::Warning => {}
            }
        }
        sections.push(SectionReport {
            id: id.to_string(),
            status,
            details,
        });
    };
    add(
        "configuration",
        (!analysis.parsed).then(|| (Status::Error, Vec::new())),
    );
    if analysis.parsed {
        add("runtime", Some(look.runtime()));
        add("providers", Some(look.providers()));
        add("context", Some((Status::Ok, Vec::new())));
        add("memory", Some(look.section("memory")));
        add("tools", Some(look.tools()));
        add("sandbox", Some(look.sandbox()));
        add("artifacts", Some((Status::Ok, Vec::new())));
        add("apps", None);
        add("continuations", Some(look.section("continuations")));
        add("interaction", None);
        add("metrics", Some(look.section("metrics")));
        // Left out when there is nothing to say.
        add("secrets", None);
        for channel in [
            "openaiApi",
            "console",
            "webhook",
            "cron",
            "tui",
            "slack",
            "telegram",
            "a2a",
        ] {
            add(channel, Some(look.section(channel)));
        }
    }
    let ok = sections
        .iter()
        .all(|section| section.status != Status::Error);
    Report { ok, sections }
}

/// The section that a problem belongs to.
fn section_of(diagnostic: &Diagnostic) -> &str {
    if diagnostic.code == "secret_in_file" {
        return "secrets";
    }
    let first = diagnostic.key.split(['.', '[']).next().unwrap_or_default();
    match first {
        "concurrency" | "traceability" => "runtime",
        "mcpServers" => "tools",
        "runtime" | "providers" | "context" | "memory" | "tools" | "sandbox" | "artifacts"
        | "apps" | "continuations" | "interaction" | "metrics" | "openaiApi" | "console"
        | "webhook" | "cron" | "tui" | "slack" | "telegram" | "a2a" => first,
        _ => "configuration",
    }
}

struct Look<'a> {
    analysis: &'a Analysis,
    env: &'a Env,
}

type State = (Status, Vec<String>);

impl Look<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        let mut parts = key.split('.');
        let mut here = self.analysis.document.get(parts.next()?)?;
        for part in parts {
            here = here.get(part)?;
        }
        Some(here)
    }

    fn flag(&self, key: &str) -> bool {
        self.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    fn filled(&self, key: &str) -> bool {
        self.get(key)
            .and_then(Value::as_array)
            .is_some_and(|list| !list.is_empty())
    }

    /// One line for a problem: no folder, only the file where it isn't the configuration itself.
    fn line(&self, problem: &Diagnostic) -> String {
        let mut shown = problem.clone();
        if let Some(file) = &problem.file {
            shown.file = Some(self.analysis.bases.show(Path::new(file)));
        }
        match problem.severity {
            Severity::Error => shown.to_string(),
            Severity::Warning => format!("[WARN] {shown}"),
        }
    }

    fn models(&self) -> Vec<String> {
        let fallbacks = self.get("runtime.fallbacks").and_then(Value::as_array);
        let fallbacks = fallbacks
            .into_iter()
            .flatten()
            .filter_map(|fallback| fallback.get("model"));
        self.get("runtime.model")
            .into_iter()
            .chain(fallbacks)
            .filter_map(Value::as_str)
            .map(str::to_string)
            .collect()
    }

    fn runtime(&self) -> State {
        (
            Status::Ok,
            self.models()
                .first()
                .map(|model| format!("model: {model}"))
                .into_iter()
                .collect(),
        )
    }

    fn providers(&self) -> State {
        let Some(config) = &self.analysis.config else {
            return (Status::Ok, Vec::new());
        };
        let models = self.models();
        let used: BTreeSet<&str> = models
            .iter()
            .filter_map(|model| form::split_model(model))
            .map(|(provider, _)| provider)
            .collect();
        let (mut status, mut details) = (Status::Ok, Vec::new());
        for (id, provider) in &config.providers.by_id {
            let Some(source) = &provider.api_key else {
                continue;
            };
            let problem = self.unavailable(source);
            match (problem, used.contains(id.as_str())) {
                (None, _) => details.push(format!("{id}: key set")),
                (Some(problem), true) => {
                    status = Status::Waiting;
                    details.push(format!("{id}: {problem}"));
                }
                (Some(problem), false) => {
                    details.push(format!("[WARN] {id}: {problem}; no model uses it"))
                }
            }
        }
        (status, details)
    }

    /// Why a secret can't be had, if it can't. Looks, and doesn't read.
    fn unavailable(&self, source: &crate::SecretSource) -> Option<String> {
        use crate::SecretSource::*;
        match source {
            Literal { .. } => None,
            Env { name } => {
                let set = self.env.get(name).is_some_and(|value| !value.is_empty());
                (!set).then(|| format!("{name} is not set"))
            }
            File { path } => {
                let shown = self.analysis.bases.show(path);
                match std::fs::metadata(path) {
                    Ok(meta) if meta.is_dir() => Some(format!("the key file {shown} is a folder")),
                    Ok(meta) if meta.is_file() && meta.len() == 0 => {
                        Some(format!("the key file {shown} is empty"))
                    }
                    Ok(_) => None,
                    Err(_) => Some(format!("there is no key file {shown}")),
                }
            }
            Credential { name, path: None } => Some(format!(
                "the credential `{name}` is only there when systemd starts the daemon"
            )),
            Credential {
                name,
                path: Some(path),
            } => {
                (!path.is_file()).then(|| format!("systemd has not given the credential `{name}`"))
            }
        }
    }

    fn tools(&self) -> State {
        let mut details = Vec::new();
        let path = self.get("tools.mcpConfigPath").and_then(Value::as_str);
        if let Some(path) = path.filter(|path| Path::new(path).is_file()) {
            details.push(format!(
                "MCP config: {}",
                self.analysis.bases.show(Path::new(path))
            ));
        }
        let servers = self.get("tools.mcpServers").and_then(Value::as_object);
        for (name, server) in servers.into_iter().flatten() {
            details.push(format!(
                "MCP server: {name} ({})",
                crate::rules::kind(server)
            ));
        }
        (Status::Ok, details)
    }

    fn sandbox(&self) -> State {
        match self.get("sandbox.mode").and_then(Value::as_str) {
            Some("native") => (Status::Ok, Vec::new()),
            _ => (
                Status::Disabled,
                vec!["no narrower rules; every run is confined all the same".to_string()],
            ),
        }
    }

    /// A section with a switch: off, waiting for a setting, or ready.
    fn section(&self, id: &str) -> State {
        let enabled = match id {
            "memory" => self.get(id).is_some(),
            _ => self.flag(&format!("{id}.enabled")),
        };
        if !enabled {
            return (Status::Disabled, Vec::new());
        }
        if NOT_SERVED.contains(&id) {
            // What nobody asked for is no reason to call for attention.
            let written = self
                .analysis
                .places
                .keys()
                .any(|key| key.split(['.', '[']).next() == Some(id));
            let status = if written {
                Status::Waiting
            } else {
                Status::Disabled
            };
            return (
                status,
                vec!["accepted; this version does not serve it".to_string()],
            );
        }
        let mut advice = Vec::new();
        let mut missing = Vec::new();
        let mut need = |there: bool, what: &str| {
            if !there {
                missing.push(format!("waits for {what}"));
            }
        };
        match id {
            "slack" => {
                need(
                    self.get("slack.botToken").is_some(),
                    "slack.botTokenFile or slack.botTokenCredential",
                );
                need(
                    self.get("slack.appToken").is_some(),
                    "slack.appTokenFile or slack.appTokenCredential",
                );
                let allowed =
                    self.filled("slack.allowedChannelIds") || self.flag("slack.allowAllChannels");
                need(allowed, "slack.allowedChannelIds or slack.allowAllChannels");
            }
            "telegram" => {
                need(
                    self.get("telegram.botToken").is_some(),
                    "telegram.botTokenFile or telegram.botTokenCredential",
                );
                let allowed =
                    self.filled("telegram.allowedChatIds") || self.flag("telegram.allowAllChats");
                need(allowed, "telegram.allowedChatIds or telegram.allowAllChats");
            }
            "a2a" => need(self.get("a2a.agent").is_some(), "a2a.agent"),
            _ => {}
        }
        let mut written = self.analysis.places.keys();
        if id == "interaction" && written.any(|key| key.starts_with("interaction.askUser")) {
            advice.push(
                "[WARN] interaction.askUser: accepted; this version asks the person nothing"
                    .to_string(),
            );
        }
        if id == "webhook"
            && let Some(config) = &self.analysis.config
        {
            let notifies = config.webhook.endpoints.iter().any(|e| e.notify);
            if notifies {
                advice.push("[WARN] webhook.endpoints[].notify: accepted; this version sends no text to another conversation".to_string());
            }
            if config.webhook.dir.is_dir() {
                advice.push("[WARN] webhook.dir: accepted; this version reads endpoints from the configuration only".to_string());
            }
        }
        if let Some(config) = &self.analysis.config {
            let tokens;
            let secrets = match id {
                "openaiApi" => vec![&config.openai_api.api_key],
                "webhook" => {
                    let webhook = &config.webhook;
                    let own = webhook.endpoints.iter();
                    let own = own.flat_map(|e| [&e.api_key, &e.callback_secret]);
                    [&webhook.api_key, &webhook.callback.secret]
                        .into_iter()
                        .chain(own)
                        .collect()
                }
                "tui" => vec![&config.tui.api_key],
                "continuations" => {
                    let services = config.continuations.detached_services.iter();
                    tokens = services.map(|s| Some(s.token.clone())).collect::<Vec<_>>();
                    tokens.iter().collect()
                }
                "slack" => config
                    .slack
                    .iter()
                    .flat_map(|slack| [&slack.bot_token, &slack.app_token])
                    .collect(),
                "telegram" => config
                    .telegram
                    .iter()
                    .map(|telegram| &telegram.bot_token)
                    .collect(),
                "a2a" => config
                    .a2a
                    .iter()
                    .map(|a2a| &a2a.provider.bearer_token)
                    .collect(),
                _ => Vec::new(),
            };
            missing.extend(
                secrets
                    .into_iter()
                    .flatten()
                    .filter_map(|source| self.unavailable(source)),
            );
        }
        let status = if missing.is_empty() {
            Status::Ok
        } else {
            Status::Waiting
        };
        missing.extend(advice);
        (status, missing)
    }
}
