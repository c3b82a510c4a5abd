//! Rules of models, providers, retries and the agent's files.

use super::Rules;
use crate::config::{DEMO, known};
use crate::diagnostic::{Diagnostic, nearest};
use crate::form;
use crate::shape;
use std::collections::BTreeSet;
use std::path::Path;

/// A key as the table writes it: `a[].b` for `a[3].b`.
fn pattern(key: &str) -> String {
    let mut out = String::new();
    for (index, piece) in key.split('[').enumerate() {
        match (index, piece.split_once(']')) {
            (0, _) | (_, None) => out.push_str(piece),
            (_, Some((_, rest))) => {
                out.push_str("[]");
                out.push_str(rest);
            }
        }
    }
    out
}

impl Rules<'_> {
    /// Every key that names a model.
    pub(crate) fn model_keys(&self) -> Vec<(String, String)> {
        let mut keys = vec!["runtime.model".to_string()];
        for (list, name) in [
            ("runtime.fallbacks", "model"),
            ("webhook.endpoints", "model"),
            ("cron.jobs", "model"),
        ] {
            keys.extend(
                (0..self.records(list).len()).map(|index| format!("{list}[{index}].{name}")),
            );
        }
        keys.into_iter()
            .filter_map(|key| {
                let model = match key.split_once('[') {
                    None => self.text(&key)?.to_string(),
                    Some((list, rest)) => {
                        let (index, name) = rest.split_once("].")?;
                        self.records(list)
                            .get(index.parse::<usize>().ok()?)?
                            .get(name)?
                            .as_str()?
                            .to_string()
                    }
                };
                Some((key, model))
            })
            .collect()
    }

    /// A model's provider has an address: its own entry, or one that is known by its name.
    pub(super) fn models(&mut self) {
        let providers = self.object("providers");
        for (key, model) in self.model_keys() {
            let Some((id, _)) = form::split_model(&model) else {
                continue;
            };
            let entry = providers.get(id);
            if id == DEMO
                || known(id).is_some()
                || entry.is_some_and(|entry| entry.get("baseUrl").is_some())
            {
                if id == DEMO && model != "demo:scripted" {
                    self.error(
                        "unknown_model",
                        &key,
                        format!("the built-in provider has no model {model:?}"),
                    )
                    .suggestion = Some("write demo:scripted".into());
                }
                continue;
            }
            let problem = self.error(
                "unknown_provider",
                &key,
                format!("no address is known for the provider `{id}`"),
            );
            problem.expected = Some(format!("providers.{id}.baseUrl"));
            let names = providers.keys().map(String::as_str).chain([
                "demo",
                "anthropic",
                "openai",
                "ollama",
                "lmstudio",
            ]);
            let names: Vec<&str> = names
                .filter(|name| *name != id && !name.starts_with("pi"))
                .collect();
            problem.suggestion = nearest(id, names).map(|near| format!("did you mean `{near}:`?"));
        }
    }

    pub(super) fn providers(&mut self) {
        if self.written("providers.piAuthPath") || self.get("providers.piNative").is_some() {
            self.warn(
                "not_used",
                "providers",
                "piAuthPath and piNative are accepted and have no effect",
            );
        }
        for (id, entry) in self.object("providers") {
            if id == "piAuthPath" || id == "piNative" {
                continue;
            }
            let key = format!("providers.{id}");
            if id == DEMO {
                self.error("reserved_provider", &key, "`demo` is the built-in provider")
                    .suggestion = Some("take another name".into());
                continue;
            }
            let address = entry.get("baseUrl").and_then(|url| url.as_str());
            if address.is_none() && known(&id).is_none() {
                self.error(
                    "missing",
                    &format!("{key}.baseUrl"),
                    "required, because no address is known for this provider",
                )
                .expected = Some(form::expected(crate::field::Form::BaseUrl).into());
            }
            let Some(url) = address.and_then(form::web_url) else {
                continue;
            };
            let private = url.host_str().is_some_and(form::is_loopback);
            if url.scheme() == "http" && !private && entry.get("apiKey").is_some() {
                self.warn(
                    "key_in_clear",
                    &format!("{key}.baseUrl"),
                    "the key travels unencrypted",
                )
                .suggestion = Some("use https://".into());
            }
        }
    }

    pub(super) fn retry(&mut self) {
        let (first, longest) = (
            self.number("runtime.retry.backoffMs"),
            self.number("runtime.retry.maxBackoffMs"),
        );
        if first > longest {
            self.warn(
                "odd_bounds",
                "runtime.retry.backoffMs",
                "longer than runtime.retry.maxBackoffMs, which wins",
            );
        }
        let (silence, total) = (
            self.number("tools.mcpCallTimeoutMs"),
            self.number("tools.mcpCallMaxTotalTimeoutMs"),
        );
        if silence > total {
            self.warn(
                "odd_bounds",
                "tools.mcpCallTimeoutMs",
                "longer than tools.mcpCallMaxTotalTimeoutMs, which wins",
            );
        }
        let (beat, stale) = (
            self.number("traceability.heartbeatMs"),
            self.number("traceability.staleAfterMs"),
        );
        if beat >= stale {
            self.warn(
                "odd_bounds",
                "traceability.staleAfterMs",
                "not longer than traceability.heartbeatMs: a running instance looks gone",
            );
        }
    }

    /// The files that a turn can't do without are there.
    pub(super) fn context(&mut self) {
        for key in ["context.identityPath", "context.soulPath"] {
            if let Some(path) = self.text(key)
                && !Path::new(path).is_file()
            {
                let message = match Path::new(path).is_dir() {
                    true => "that is a folder",
                    false => "there is no such file",
                };
                self.error("missing_file", key, message).expected = Some(
                    "a readable text file; a relative path is taken from this file's folder".into(),
                );
            }
        }
        for key in ["runtime.workspace", "context.skillsRoot"] {
            if let Some(path) = self.text(key)
                && !Path::new(path).is_dir()
            {
                let problem = self.error("missing_folder", key, "there is no such folder");
                problem.expected = Some(
                    "a folder that is there; a relative path is taken from this file's folder"
                        .into(),
                );
                problem.suggestion = Some("make it (mkdir), or name another".into());
            }
        }
        if !self.texts("context.selectedSkills").is_empty()
            && self.get("context.skillsRoot").is_none()
        {
            self.warn(
                "no_effect",
                "context.selectedSkills",
                "without context.skillsRoot no skill is found",
            );
        }
    }

    /// A secret written out in the file works, and belongs elsewhere.
    pub(super) fn secrets_in_the_file(&mut self) {
        let secrets: BTreeSet<&str> = crate::table::fields()
            .filter(|field| field.secret && matches!(field.kind, crate::field::Kind::Text { .. }))
            .map(|field| field.key)
            .collect();
        let literal: Vec<String> = self
            .places
            .iter()
            .filter(|(_, place)| matches!(place, crate::diagnostic::Place::File { .. }))
            .filter(|(key, _)| secrets.contains(pattern(key).as_str()))
            .map(|(key, _)| key.clone())
            .collect();
        for key in literal {
            self.warn(
                "secret_in_file",
                &key,
                "a secret written out in the configuration",
            )
            .suggestion = Some(format!(
                "keep it in a file of mode 0600 and name that in {key}File, or use {key}Credential"
            ));
        }
    }

    /// A variable with the prefix that nobody reads, and that looks like one that is read.
    pub(super) fn variables(&mut self) {
        let known = shape::root().env_names();
        let mut referred: Vec<String> = Vec::new();
        collect_env_names(
            &serde_json::Value::Object(self.document.clone()),
            &mut referred,
        );
        let strange: Vec<String> = self
            .env
            .keys()
            .filter(|name| name.starts_with(crate::field::ENV_PREFIX))
            .filter(|name| !known.contains(name) && !referred.contains(name))
            .cloned()
            .collect();
        for name in strange {
            let Some(short) = name.strip_prefix(crate::field::ENV_PREFIX) else {
                continue;
            };
            let candidates = known
                .iter()
                .filter_map(|name| name.strip_prefix(crate::field::ENV_PREFIX));
            if let Some(near) = nearest(short, candidates) {
                let place = crate::diagnostic::Place::Env(name.clone());
                let message = "no such variable; it has no effect";
                let suggestion = format!("did you mean {}{near}?", crate::field::ENV_PREFIX);
                self.found.push(
                    Diagnostic::warning("unknown_variable", "", message)
                        .at(&place)
                        .suggest(suggestion),
                );
            }
        }
    }
}

/// The names in `{"from": "env", "name": …}`.
fn collect_env_names(value: &serde_json::Value, out: &mut Vec<String>) {
    if let Some(object) = value.as_object() {
        if object.get("from").and_then(|from| from.as_str()) == Some("env")
            && let Some(name) = object.get("name").and_then(|name| name.as_str())
        {
            out.push(name.to_string());
        }
        object
            .values()
            .for_each(|value| collect_env_names(value, out));
    } else if let Some(items) = value.as_array() {
        items.iter().for_each(|value| collect_env_names(value, out));
    }
}
