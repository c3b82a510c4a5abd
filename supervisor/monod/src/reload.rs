//! A changed configuration without a stop: it is checked first, then the workers that it changes
//! are replaced one by one, while running turns finish on the old ones.

use crate::compose;
use crate::counters::Reason;
use crate::environment::environment;
use crate::input::ProcessId;
use crate::launch::LaunchError;
use crate::process::State;
use crate::supervisor::{Supervisor, limits};
use crate::systemd;
use ipc_proto::Role;
use ipc_proto::channel::Fault;
use ipc_proto::edges::control::ToWorker;
use mono_config::{Config, FieldReport, Loaded};
use serde::Serialize;

/// Roles that may live beside their successor. The owners of files can't: each holds its folder
/// alone.
pub(crate) const REPLACEABLE: [Role; 6] = [
    Role::Egress,
    Role::AppBridge,
    Role::ChannelOpenai,
    Role::ChannelConsole,
    Role::ChannelWebhook,
    Role::Metrics,
];

/// What a reload did.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    /// Roles whose workers are being replaced.
    replaced: Vec<&'static str>,
    /// Roles whose new worker could not be started; the old one stays.
    failed: Vec<Failed>,
    /// Settings that only a restart of the daemon changes; the old values stay.
    needs_restart: Vec<Fixed>,
    /// What the configuration's check remarked.
    warnings: Vec<String>,
}

/// A worker that could not be replaced.
#[derive(Debug, Serialize)]
struct Failed {
    role: &'static str,
    problem: String,
}

/// A setting that can't change while the daemon runs. The values are JSON, as `config show` has
/// them.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Fixed {
    key: &'static str,
    running: String,
    configured: String,
}

impl std::fmt::Display for Fixed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            key,
            running,
            configured,
        } = self;
        write!(f, "{key} stays {running} until a restart, not {configured}")
    }
}

/// Puts the running values back where a change can't take effect; returns their keys.
fn keep_fixed(running: &Config, new: &mut Config) -> Vec<&'static str> {
    let mut kept = Vec::new();
    macro_rules! fixed {
        ($key:literal, $($field:ident).+) => {
            if running.$($field).+ != new.$($field).+ {
                kept.push($key);
                new.$($field).+ = running.$($field).+.clone();
            }
        };
    }
    fixed!("runtime.workspace", runtime.workspace);
    fixed!("runtime.stateDir", runtime.state_dir);
    fixed!("artifacts.dir", artifacts.dir);
    fixed!(
        "artifacts.retention.maxAgeDays",
        artifacts.retention.max_age_days
    );
    fixed!(
        "artifacts.retention.maxCount",
        artifacts.retention.max_count
    );
    fixed!("artifacts.retention.dryRun", artifacts.retention.dry_run);
    fixed!("tools.gateway.enabled", tools.gateway.enabled);
    fixed!("openaiApi.enabled", openai_api.enabled);
    fixed!("openaiApi.host", openai_api.host);
    fixed!("openaiApi.port", openai_api.port);
    fixed!("console.enabled", console.enabled);
    fixed!("console.host", console.host);
    fixed!("console.port", console.port);
    fixed!("webhook.enabled", webhook.enabled);
    fixed!("webhook.host", webhook.host);
    fixed!("webhook.port", webhook.port);
    fixed!("continuations.enabled", continuations.enabled);
    fixed!("continuations.host", continuations.host);
    fixed!("continuations.port", continuations.port);
    fixed!("continuations.stateDir", continuations.state_dir);
    fixed!("interaction.bridge.host", interaction.bridge.host);
    fixed!("interaction.bridge.port", interaction.bridge.port);
    fixed!("metrics.enabled", metrics.enabled);
    fixed!("metrics.host", metrics.host);
    fixed!("metrics.port", metrics.port);
    kept
}

/// Names the values of what was kept, and corrects the new report: it is to say what is in force.
fn name_fixed(
    kept: &[&'static str],
    running: &[FieldReport],
    new: &mut [FieldReport],
) -> Vec<Fixed> {
    let name = |key: &&'static str| {
        let running = running.iter().find(|report| report.key == *key)?;
        let configured = new.iter_mut().find(|report| report.key == *key)?;
        let fixed = Fixed {
            key,
            running: running.value.clone(),
            configured: configured.value.clone(),
        };
        *configured = running.clone();
        Some(fixed)
    };
    kept.iter().filter_map(name).collect()
}

/// What the artifact worker never publishes is told to it once, at its start.
fn private_paths(running: &Config, new: &Config) -> Option<Fixed> {
    let shown = |config| compose::private_paths(config).join(" ");
    let (running, configured) = (shown(running), shown(new));
    (running != configured).then_some(Fixed {
        key: "paths that are never published",
        running,
        configured,
    })
}

impl Supervisor {
    /// Reads the configuration again. A configuration with errors changes nothing.
    pub(crate) fn reload(&mut self) -> Result<Report, Fault> {
        if self.is_stopping() {
            return Err(Fault::new("shutting_down", "the daemon is stopping"));
        }
        systemd::reloading();
        let result = self.read_again().map(|(loaded, needs_restart)| {
            let (replaced, failed) = self.apply(loaded.config);
            self.reports = loaded.fields;
            Report {
                replaced,
                failed,
                needs_restart,
                warnings: loaded.warnings.iter().map(ToString::to_string).collect(),
            }
        });
        self.tell_ready();
        match &result {
            Ok(report) => {
                tracing::info!(replaced = report.replaced.join(" "), "reloaded");
                for fixed in &report.needs_restart {
                    tracing::warn!("{fixed}");
                }
            }
            Err(refused) => tracing::error!("the configuration is not reloaded: {refused}"),
        }
        result
    }

    /// The configuration as it could take effect now, and what it can't change.
    pub(crate) fn read_again(&self) -> Result<(Loaded, Vec<Fixed>), Fault> {
        let invalid = |problem: String| Fault::new("config_invalid", problem);
        let loaded = mono_config::load(&self.file, &environment());
        let mut loaded = loaded.map_err(|errors| invalid(errors.to_string()))?;
        let config = &mut loaded.config;
        config.env_file.clone_from(&self.config.env_file);
        let kept = keep_fixed(&self.config, config);
        // The bound address is what counts; it stays, so its need of a key stays too.
        for (role, section, key) in [
            (Role::ChannelOpenai, "openaiApi", &config.openai_api.api_key),
            (Role::ChannelWebhook, "webhook", &config.webhook.api_key),
        ] {
            if key.is_none() && self.listens_beyond_loopback(role) {
                return Err(invalid(format!(
                    "{section}.apiKey can't be taken away while it listens beyond loopback"
                )));
            }
        }
        if config.console.allowed_hosts.is_empty()
            && self.listens_beyond_loopback(Role::ChannelConsole)
        {
            return Err(invalid(
                "console.allowedHosts can't be emptied while it listens beyond loopback".to_owned(),
            ));
        }
        // A key file or a variable that isn't there is found before anything is changed.
        let present = |role: &Role| self.slots.iter().any(|slot| slot.role == *role);
        let replaceable = REPLACEABLE.into_iter().filter(present);
        let owner = [Role::Continuation].into_iter().filter(present);
        for role in replaceable.chain(owner).chain([Role::Run]) {
            compose::compose(config, &self.places, role, None)
                .map_err(|problem| invalid(problem.to_string()))?;
        }
        let mut needs_restart = name_fixed(&kept, &self.reports, &mut loaded.fields);
        needs_restart.extend(private_paths(&self.config, config));
        Ok((loaded, needs_restart))
    }

    fn listens_beyond_loopback(&self, role: Role) -> bool {
        self.listeners
            .get(&role)
            .and_then(|listener| listener.local_addr().ok())
            .is_some_and(|address| !address.ip().is_loopback())
    }

    fn apply(&mut self, config: Config) -> (Vec<&'static str>, Vec<Failed>) {
        let changed: Vec<Role> = self
            .slots
            .iter()
            .filter(|slot| REPLACEABLE.contains(&slot.role))
            .filter(|slot| slot.outdated || self.differs(&config, slot.role))
            .map(|slot| slot.role)
            .collect();
        let renewed = self.differs(&config, Role::Continuation);
        self.queue.set_limits(limits(&config));
        self.discard_ahead();
        self.launcher.reconfigure(&config);
        self.config = config;
        let (mut replaced, mut failed) = (Vec::new(), Vec::new());
        for role in changed {
            match self.replace(role) {
                Ok(()) => replaced.push(role.name()),
                Err(e) => {
                    tracing::error!(role = %role, "its successor can't start: {e}");
                    failed.push(Failed {
                        role: role.name(),
                        problem: e.to_string(),
                    });
                }
            }
        }
        // It holds its folder alone, so its successor starts when it has ended: once no run needs it.
        let slots = self.slots.iter_mut();
        for slot in slots.filter(|slot| renewed && slot.role == Role::Continuation) {
            slot.outdated = true;
            replaced.push(slot.role.name());
        }
        self.renew_owners();
        // Idle run workers have the old settings, and the old identity, whose change doesn't show
        // in any setting. The working ones end with their runs.
        let idle: Vec<_> = self.idle_run_workers(false).map(|p| p.id).collect();
        for id in idle {
            self.dismiss(id);
        }
        replaced.push(Role::Run.name());
        // More runs may work at once now.
        self.dispatch();
        (replaced, failed)
    }

    /// True when a role is told something else by the new configuration, or when that can't be
    /// seen: keys and programs of MCP servers don't show in settings.
    fn differs(&self, new: &Config, role: Role) -> bool {
        let unseen = match role {
            Role::Egress => new.providers.by_id.values().any(|p| p.api_key.is_some()),
            Role::AppBridge => {
                !(new.tools.mcp_servers.is_empty() && self.config.tools.mcp_servers.is_empty())
            }
            Role::ChannelOpenai => new.openai_api.api_key.is_some(),
            Role::Continuation => !new.continuations.detached_services.is_empty(),
            Role::ChannelWebhook => compose::has_webhook_keys(new),
            _ => false,
        };
        let told = |config: &Config| {
            compose::compose(config, &self.places, role, None)
                .map(|(settings, _)| settings)
                .ok()
        };
        unseen || told(new) != told(&self.config)
    }

    /// Starts the successor of a role's worker; the old one serves until it is ready.
    pub(crate) fn replace(&mut self, role: Role) -> Result<(), LaunchError> {
        for slot in self.slots.iter_mut().filter(|s| s.role == role) {
            slot.outdated = true;
        }
        let id = self.start(role)?;
        let slot = self.slots.iter_mut().find(|s| s.role == role);
        let earlier = slot.and_then(|slot| slot.successor.replace(id));
        // A reload during a reload: the newest configuration wins.
        if let Some(earlier) = earlier {
            self.dismiss(earlier);
        }
        Ok(())
    }

    /// A process is ready: if it is a successor, it takes its slot and the old one drains.
    pub(crate) fn take_over(&mut self, id: ProcessId) {
        let Some(slot) = self.slots.iter_mut().find(|s| s.successor == Some(id)) else {
            return;
        };
        slot.successor = None;
        slot.outdated = false;
        slot.forgive();
        let old = slot.process();
        slot.occupant = crate::slot::Occupant::Filled(id);
        tracing::info!(role = %slot.role, "a new worker has taken over");
        self.counters.restart(slot.role, Reason::Reload);
        if let Some(old) = old.and_then(|old| self.processes.get_mut(&old)) {
            // One that never served has nothing to finish.
            if old.state != State::Serving || !old.send(0, ToWorker::Drain, vec![]) {
                old.kill();
            }
            old.state = State::Draining;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn config(folder: &std::path::Path, port: u16, rest: &str) -> mono_config::Loaded {
        std::fs::write(folder.join("ID.md"), "x").unwrap();
        let text = format!(
            r#"{{"runtime":{{"model":"demo:scripted"}},"context":{{"identityPath":"ID.md"}},
               "openaiApi":{{"enabled":true,"port":{port}}}{rest}}}"#
        );
        let file = folder.join("c.json");
        std::fs::write(&file, text).unwrap();
        mono_config::load(&file, &std::collections::BTreeMap::new()).unwrap()
    }

    #[test]
    fn what_cannot_change_is_named_with_both_values_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let running = config(folder.path(), 8000, "");
        let more =
            r#","artifacts":{"retention":{"maxCount":7}},"concurrency":{"maxConcurrentRuns":3}"#;
        let mut new = config(folder.path(), 9000, more);
        let kept = keep_fixed(&running.config, &mut new.config);
        assert_eq!(kept, ["artifacts.retention.maxCount", "openaiApi.port"]);
        assert_eq!(new.config.openai_api.port, 8000);
        assert_eq!(new.config.concurrency.max_concurrent_runs, Some(3));
        let fixed = name_fixed(&kept, &running.fields, &mut new.fields);
        let values = |f: &Fixed| (f.running.clone(), f.configured.clone());
        assert_eq!(values(&fixed[1]), ("8000".into(), "9000".into()));
        assert_eq!(fixed[0].configured, "7");
        // What is shown as the configuration is what is in force, so that the next reload names
        // the same two values.
        let port = new.fields.iter().find(|f| f.key == "openaiApi.port");
        assert_eq!(port.unwrap().value, "8000");
        let mut same = config(folder.path(), 8000, "");
        assert!(keep_fixed(&running.config, &mut same.config).is_empty());
    }

    #[test]
    fn every_key_that_is_kept_has_a_value_to_name() {
        let folder = tempfile::tempdir().unwrap();
        let running = config(folder.path(), 8000, "");
        let mut new = config(folder.path(), 9000, "");
        let other = &mut new.config;
        other.runtime.workspace.push("other");
        other.runtime.state_dir.push("other");
        other.artifacts.dir.push("other");
        other.artifacts.retention.max_age_days += 1;
        other.artifacts.retention.max_count += 1;
        other.artifacts.retention.dry_run ^= true;
        other.openai_api.enabled ^= true;
        other.openai_api.host.push('0');
        other.console.enabled ^= true;
        other.console.host.push('0');
        other.console.port += 1;
        other.webhook.enabled ^= true;
        other.webhook.host.push('0');
        other.webhook.port += 1;
        other.metrics.enabled ^= true;
        other.metrics.host.push('0');
        other.metrics.port += 1;
        let kept = keep_fixed(&running.config, &mut new.config);
        let fixed = name_fixed(&kept, &running.fields, &mut new.fields);
        assert_eq!((kept.len(), fixed.len()), (18, 18), "{kept:?}");
    }

    #[test]
    fn a_new_key_file_in_the_workspace_takes_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key"), "secret").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(folder.path().join("key"), mode).unwrap();
        let running = config(folder.path(), 8000, "").config;
        let rest = r#","providers":{"p":{"baseUrl":"http://127.0.0.1:1/v1","apiKeyFile":"key"}}"#;
        let new = config(folder.path(), 8000, rest).config;
        let fixed = private_paths(&running, &new).unwrap();
        assert!(fixed.configured.contains("key") && !fixed.running.contains("key"));
        assert!(private_paths(&running, &running.clone()).is_none());
    }
}
