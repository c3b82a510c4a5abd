//! The rules between keys: what no single value can break alone.
//!
//! They run over the checked document, in which an invalid value has been replaced by its default,
//! so one mistake neither hides another nor is told twice.

mod agent;
mod channels;
mod machine;
mod services;
mod tools;

pub use tools::TOOL_NAMES;
pub(crate) use tools::kind;

use crate::diagnostic::{Diagnostic, Place};
use crate::env::Env;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The checked document, its places, and the list of problems.
pub(crate) struct Rules<'a> {
    pub(crate) document: &'a Map<String, Value>,
    pub(crate) places: &'a BTreeMap<String, Place>,
    pub(crate) env: &'a Env,
    /// The file of `tools.mcpConfigPath` was read (or none is configured): every server is known.
    pub(crate) servers_known: bool,
    pub(crate) found: Vec<Diagnostic>,
    /// Keys of which an error is told already: what a rule says of them only follows from it.
    pub(crate) told: BTreeSet<String>,
}

impl Rules<'_> {
    pub(crate) fn run(mut self) -> Vec<Diagnostic> {
        self.models();
        self.providers();
        self.retry();
        self.context();
        self.tool_policy();
        self.servers();
        self.continuations();
        self.memory();
        self.sandbox();
        self.listeners();
        self.ports();
        self.callbacks();
        self.named_entries();
        self.programs();
        self.routes();
        self.secrets_in_the_file();
        self.exposed_keys();
        self.variables();
        let told = self.told;
        self.found
            .retain(|problem| problem.key.is_empty() || !told.contains(&problem.key));
        self.found
    }

    fn error(
        &mut self,
        code: &'static str,
        key: &str,
        message: impl Into<String>,
    ) -> &mut Diagnostic {
        self.push(Diagnostic::error(code, key, message))
    }

    fn warn(
        &mut self,
        code: &'static str,
        key: &str,
        message: impl Into<String>,
    ) -> &mut Diagnostic {
        self.push(Diagnostic::warning(code, key, message))
    }

    fn push(&mut self, diagnostic: Diagnostic) -> &mut Diagnostic {
        let diagnostic = match self.place(&diagnostic.key) {
            Some(place) => diagnostic.at(place),
            None => diagnostic,
        };
        self.found.push(diagnostic);
        let last = self.found.len() - 1;
        &mut self.found[last]
    }

    /// The place of a key, or of the nearest thing around it that somebody wrote.
    fn place(&self, key: &str) -> Option<&Place> {
        let mut key = key;
        loop {
            if let Some(place) = self.places.get(key) {
                return Some(place);
            }
            key = match key.rfind(['.', '[']) {
                Some(end) => &key[..end],
                None => return self.places.get(""),
            };
        }
    }

    fn written(&self, key: &str) -> bool {
        self.places.contains_key(key)
    }

    fn get(&self, key: &str) -> Option<&Value> {
        let mut parts = key.split('.');
        let mut here = self.document.get(parts.next()?)?;
        for part in parts {
            here = here.get(part)?;
        }
        Some(here)
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }

    fn flag(&self, key: &str) -> bool {
        self.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    fn number(&self, key: &str) -> Option<i64> {
        self.get(key)?.as_i64()
    }

    fn texts(&self, key: &str) -> Vec<String> {
        let list = self.get(key).and_then(Value::as_array);
        list.into_iter()
            .flatten()
            .filter_map(|value| value.as_str().map(str::to_string))
            .collect()
    }

    fn object(&self, key: &str) -> Map<String, Value> {
        self.get(key)
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default()
    }

    fn records(&self, key: &str) -> Vec<Value> {
        self.get(key)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    }
}
