//! A changed configuration without a stop: it is checked first, then the workers that it changes
//! are replaced one by one, while running turns finish on the old ones.

use crate::boot::environment;
use crate::compose;
use crate::input::ProcessId;
use crate::process::State;
use crate::supervisor::{Supervisor, limits};
use crate::systemd;
use ipc_proto::Role;
use ipc_proto::channel::Fault;
use ipc_proto::edges::control::ToWorker;
use mono_config::Config;
use serde::Serialize;

/// Roles that may live beside their successor. The owners of files can't: each holds its folder
/// alone.
const REPLACEABLE: [Role; 3] = [Role::Egress, Role::AppBridge, Role::ChannelOpenai];

/// What a reload did.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    /// Roles whose workers are being replaced.
    replaced: Vec<&'static str>,
    /// Settings that only a restart of the daemon changes; the old values stay.
    needs_restart: Vec<Fixed>,
    /// What the configuration's check remarked.
    warnings: Vec<String>,
}

/// A setting that can't change while the daemon runs.
#[derive(Debug, Serialize)]
struct Fixed {
    key: &'static str,
    running: String,
    configured: String,
}

/// Puts the running values back where a change can't take effect, and says so.
fn keep_fixed(running: &Config, new: &mut Config) -> Vec<Fixed> {
    let mut kept = Vec::new();
    macro_rules! fixed {
        ($key:literal, $($field:ident).+) => {
            if running.$($field).+ != new.$($field).+ {
                kept.push(Fixed {
                    key: $key,
                    running: format!("{:?}", running.$($field).+),
                    configured: format!("{:?}", new.$($field).+),
                });
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
    fixed!("openaiApi.enabled", openai_api.enabled);
    fixed!("openaiApi.host", openai_api.host);
    fixed!("openaiApi.port", openai_api.port);
    kept
}

impl Supervisor {
    /// Reads the configuration again. A configuration with errors changes nothing.
    pub(crate) fn reload(&mut self) -> Result<Report, Fault> {
        if self.is_stopping() {
            return Err(Fault::new("shutting_down", "the daemon is stopping"));
        }
        systemd::reloading();
        let loaded = mono_config::load(&self.file, &environment());
        let result = match loaded {
            Ok(loaded) => {
                let mut config = loaded.config;
                let needs_restart = keep_fixed(&self.config, &mut config);
                // The bound address is what counts; it stays, so its need of a key stays too.
                if config.openai_api.api_key.is_none() && self.listens_beyond_loopback() {
                    let message = "openaiApi.apiKey can't be taken away while the API listens \
                                   beyond loopback";
                    Err(Fault::new("config_invalid", message))
                } else {
                    let replaced = self.apply(config);
                    self.reports = loaded.fields;
                    let warnings = loaded.warnings.iter().map(ToString::to_string).collect();
                    Ok(Report {
                        replaced,
                        needs_restart,
                        warnings,
                    })
                }
            }
            Err(errors) => Err(Fault::new("config_invalid", errors.to_string())),
        };
        systemd::ready(self.slots.len());
        result
    }

    fn listens_beyond_loopback(&self) -> bool {
        self.listeners
            .get(&Role::ChannelOpenai)
            .and_then(|listener| listener.local_addr().ok())
            .is_some_and(|address| !address.ip().is_loopback())
    }

    fn apply(&mut self, config: Config) -> Vec<&'static str> {
        let mut changed: Vec<Role> = REPLACEABLE
            .into_iter()
            .filter(|role| self.slots.iter().any(|slot| slot.role == *role))
            .filter(|role| self.differs(&config, *role))
            .collect();
        let runs = self.differs(&config, Role::Run);
        self.queue.set_limits(limits(&config));
        self.launcher.reconfigure(&config);
        self.config = config;
        changed.retain(|role| self.replace(*role));
        let mut names: Vec<_> = changed.into_iter().map(Role::name).collect();
        if runs {
            // The idle ones have the old settings; the working ones end with their runs.
            let idle: Vec<_> = self.idle_run_workers(false).map(|p| p.id).collect();
            for id in idle {
                self.dismiss(id);
            }
            self.fill_pool();
            names.push(Role::Run.name());
        }
        names
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
    fn replace(&mut self, role: Role) -> bool {
        let id = match self.start(role) {
            Ok(id) => id,
            Err(e) => {
                tracing::error!(role = %role, "its successor can't start: {e}");
                return false;
            }
        };
        let Some(slot) = self.slots.iter_mut().find(|s| s.role == role) else {
            return false;
        };
        let earlier = slot.successor.replace(id);
        // A reload during a reload: the newest configuration wins.
        if let Some(earlier) = earlier {
            self.dismiss(earlier);
        }
        true
    }

    /// A process is ready: if it is a successor, it takes its slot and the old one drains.
    pub(crate) fn take_over(&mut self, id: ProcessId) {
        let Some(slot) = self.slots.iter_mut().find(|s| s.successor == Some(id)) else {
            return;
        };
        slot.successor = None;
        slot.forgive();
        let old = slot.process();
        slot.occupant = crate::slot::Occupant::Filled(id);
        tracing::info!(role = %slot.role, "a new worker has taken over");
        if let Some(old) = old.and_then(|old| self.processes.get_mut(&old)) {
            old.state = State::Draining;
            if !old.send(0, ToWorker::Drain, vec![]) {
                old.kill();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn config(folder: &std::path::Path, port: u16, turns: u32) -> Config {
        std::fs::write(folder.join("ID.md"), "x").unwrap();
        let text = format!(
            r#"{{"runtime":{{"model":"demo:scripted","maxTurns":{turns}}},"context":{{"identityPath":"ID.md"}},
               "openaiApi":{{"enabled":true,"port":{port}}}}}"#
        );
        let file = folder.join("c.json");
        std::fs::write(&file, text).unwrap();
        mono_config::load(&file, &std::collections::BTreeMap::new())
            .unwrap()
            .config
    }

    #[test]
    fn what_cannot_change_is_named_with_both_values_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let running = config(folder.path(), 8000, 3);
        let mut new = config(folder.path(), 9000, 4);
        let kept = keep_fixed(&running, &mut new);
        assert_eq!(kept.len(), 1);
        assert_eq!(
            (kept[0].key, &*kept[0].running, &*kept[0].configured),
            ("openaiApi.port", "8000", "9000")
        );
        assert_eq!(new.openai_api.port, 8000);
        assert_eq!(new.runtime.max_turns, Some(4));
        assert!(keep_fixed(&running, &mut config(folder.path(), 8000, 3)).is_empty());
    }
}
