//! Rules of continuations, memory and the sandbox section.

use super::Rules;
use serde_json::Value;
use std::collections::BTreeSet;

/// Spec s1: a detached service's bearer has at least this many characters.
const MIN_TOKEN: usize = 16;

impl Rules<'_> {
    /// On when the file says so, else when the block or a continuation server is there.
    pub(crate) fn continuations_enabled(&self) -> bool {
        match self.get("continuations.enabled").and_then(Value::as_bool) {
            Some(said) => said,
            None => {
                self.written("continuations") || !self.texts("tools.continuationServers").is_empty()
            }
        }
    }

    pub(super) fn continuations(&mut self) {
        for (name, route) in self.object("continuations.namedRoutes") {
            let key = format!("continuations.namedRoutes.{name}");
            let conversation = route.get("conversationId").is_some();
            match route.get("mode").and_then(Value::as_str) {
                Some("silent") if conversation => {
                    self.error(
                        "misplaced_key",
                        &format!("{key}.conversationId"),
                        "a silent route has no conversation",
                    );
                }
                Some("notify_if_actionable" | "capture") if !conversation => {
                    self.error(
                        "missing",
                        &format!("{key}.conversationId"),
                        "required for this mode",
                    );
                }
                _ => {}
            }
        }
        let enabled = self.continuations_enabled();
        let mut names = BTreeSet::new();
        for (index, service) in self
            .records("continuations.detachedServices")
            .into_iter()
            .enumerate()
        {
            let key = format!("continuations.detachedServices[{index}]");
            let name = service
                .get("name")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_string();
            if !name.is_empty() && !names.insert(name.clone()) {
                self.error(
                    "duplicate",
                    &format!("{key}.name"),
                    format!("`{name}` stands twice"),
                );
            }
            let source = service.get("token");
            let from = |of: &str| source.is_some_and(|token| token["from"] == of);
            let Some(variable) = source.and_then(|token| token["name"].as_str()) else {
                self.error("key_required", &key, "the service has no bearer")
                    .expected = Some("tokenEnv or tokenCredential".into());
                continue;
            };
            // What a credential holds, the worker reads and measures.
            if !from("env") || !enabled {
                continue;
            }
            let below = format!("{key}.tokenEnv");
            match self.env.get(variable).map(|token| token.chars().count()) {
                None | Some(0) => {
                    self.error("unset_variable", &below, format!("{variable} is not set"))
                        .expected = Some(format!("a bearer of at least {MIN_TOKEN} characters"));
                }
                Some(length) if length < MIN_TOKEN => {
                    self.error(
                        "weak_token",
                        &below,
                        format!("the bearer in {variable} is too short"),
                    )
                    .expected = Some(format!("at least {MIN_TOKEN} characters"));
                }
                Some(_) => {}
            }
        }
        let all = self.number("continuations.limits.maxActiveRecords");
        let one = self.number("continuations.limits.maxActivePerOrigin");
        if one > all {
            self.warn(
                "odd_bounds",
                "continuations.limits.maxActivePerOrigin",
                "more than maxActiveRecords, which wins",
            );
        }
        if self.get("continuations.enabled") == Some(&Value::Bool(false))
            && !self.texts("tools.continuationServers").is_empty()
        {
            self.warn(
                "no_effect",
                "tools.continuationServers",
                "continuations are switched off",
            );
        }
    }

    pub(super) fn memory(&mut self) {
        if self.get("memory").is_none() {
            return;
        }
        let mode = self.text("memory.mode").unwrap_or_default().to_string();
        // "A block must exist and be non-empty": an empty one is a sentence somebody didn't finish.
        let embeddings = self
            .places
            .keys()
            .any(|key| key.starts_with("memory.embeddings."));
        if self.get("memory.embeddings").is_some() && !embeddings {
            self.error("empty", "memory.embeddings", "an empty block")
                .expected = Some("at least one key, for example \"provider\": \"ollama\"".into());
        } else if !embeddings && mode != "lite" {
            self.error(
                "missing",
                "memory.embeddings",
                format!("required for mode {mode}"),
            );
        }
        if mode == "bujo" && self.get("memory.llm").is_none() {
            self.error("missing", "memory.llm", "required for mode bujo");
        }
        if self.text("memory.writeMode") == Some("capture") && mode != "bujo" {
            self.error(
                "wrong_mode",
                "memory.writeMode",
                format!("capture can't be used with mode {mode}"),
            )
            .expected = Some("mode bujo".into());
        }
    }

    pub(super) fn sandbox(&mut self) {
        if self.get("sandbox").is_none() {
            return;
        }
        let native = self.text("sandbox.mode") == Some("native");
        for key in [
            "tools.filesystem.readableRoots",
            "tools.filesystem.writableRoots",
        ] {
            if native && !self.texts(key).is_empty() {
                self.warn("no_effect", key, "only used while sandbox.mode is off");
            }
        }
        let unsafe_fallback = self.text("sandbox.fallback") == Some("unsafe-host-process");
        if unsafe_fallback && !self.flag("sandbox.unsafeAllowHostProcess") {
            self.error(
                "missing",
                "sandbox.fallback",
                "unsafe-host-process needs a second key",
            )
            .expected = Some("sandbox.unsafeAllowHostProcess: true".into());
        } else if unsafe_fallback {
            self.warn(
                "unsafe_fallback",
                "sandbox.fallback",
                "a command may run outside of this section's rules",
            );
        }
        let allowlist = !self.texts("sandbox.network.allowlist").is_empty();
        let listed = self.text("sandbox.network.mode") == Some("allowlist");
        if allowlist && !listed {
            self.warn(
                "no_effect",
                "sandbox.network.allowlist",
                "only used with network mode allowlist",
            );
        } else if listed && !allowlist {
            self.warn(
                "no_effect",
                "sandbox.network.mode",
                "an empty allowlist reaches nothing",
            );
        }
    }
}
