//! Rules that look at the machine, and what would only show when somebody waits for it: a port that
//! two sections want, a key that everybody can read, a program that isn't there, a route that leads
//! nowhere. They look and read nothing.

use super::Rules;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Where a server's program is looked for inside its sandbox (`policy/profiles/mcp-server.json`).
const PROGRAM_FOLDERS: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

impl Rules<'_> {
    /// Two listeners on one port: the second can't be bound.
    pub(super) fn ports(&mut self) {
        let mut taken: BTreeMap<(String, i64), &str> = BTreeMap::new();
        for section in [
            "openaiApi",
            "console",
            "webhook",
            "continuations",
            "metrics",
        ] {
            let serves = match section {
                "continuations" => self.continuations_enabled(),
                _ => self.flag(&format!("{section}.enabled")),
            };
            let key = format!("{section}.port");
            let Some(port) = self.number(&key).filter(|port| serves && *port != 0) else {
                continue;
            };
            let host = match self.text(&format!("{section}.host")) {
                None | Some("localhost") => "127.0.0.1",
                Some(host) => host,
            };
            let place = (host.to_owned(), port);
            if let Some(first) = taken.get(&place) {
                self.error("duplicate", &key, format!("{port} is the port of {first}"))
                    .expected = Some("a port of its own".into());
                continue;
            }
            taken.insert(place, section);
        }
    }

    /// A key file is its owner's alone.
    pub(super) fn exposed_keys(&mut self) {
        let mut files = Vec::new();
        key_files("", &Value::Object(self.document.clone()), &mut files);
        for (key, path) in files {
            let Ok(meta) = std::fs::metadata(&path) else {
                continue;
            };
            let mode = meta.permissions().mode() & 0o777;
            if meta.is_file() && mode & 0o007 != 0 {
                self.warn(
                    "key_exposed",
                    &format!("{key}File"),
                    format!("every user of this machine can read the key (mode {mode:04o})"),
                )
                .suggestion = Some("chmod 600 it".into());
            }
        }
    }

    /// What a stdio server is started with is there.
    pub(super) fn programs(&mut self) {
        for (name, server) in self.object("tools.mcpServers") {
            let key = format!("tools.mcpServers.{name}");
            let Some(command) = server.get("command").and_then(Value::as_str) else {
                continue;
            };
            if !is_there(command) {
                self.warn(
                    "missing_program",
                    &format!("{key}.command"),
                    "there is no such program",
                )
                .expected = Some(format!(
                    "the path of a program, or a name in {}",
                    PROGRAM_FOLDERS.join(", ")
                ));
            }
            for roots in ["readableRoots", "writableRoots"] {
                let listed = server.get("sandbox").and_then(|sandbox| sandbox.get(roots));
                let listed = listed.and_then(Value::as_array).cloned();
                for (index, root) in listed.unwrap_or_default().iter().enumerate() {
                    if root.as_str().is_some_and(|root| !Path::new(root).exists()) {
                        let key = format!("{key}.sandbox.{roots}[{index}]");
                        self.warn("missing_folder", &key, "there is no such folder");
                    }
                }
            }
        }
    }

    /// A route's answers have a place that some channel delivers to.
    pub(super) fn routes(&mut self) {
        for (name, route) in self.object("continuations.namedRoutes") {
            let to = route.get("conversationId").and_then(Value::as_str);
            let notifies = route.get("mode") == Some(&Value::from("notify_if_actionable"));
            let Some(to) = to.filter(|_| notifies && self.continuations_enabled()) else {
                continue;
            };
            let off = match to.split_once(':') {
                Some(("terminal", name)) if !name.is_empty() => continue,
                Some(("web", name)) if !name.is_empty() => "console",
                Some(("webhook", name)) if !name.is_empty() => "webhook",
                _ => "",
            };
            if !off.is_empty() && self.flag(&format!("{off}.enabled")) {
                continue;
            }
            let key = format!("continuations.namedRoutes.{name}.conversationId");
            let message = match off {
                "" => "no channel delivers there: every answer will be dead-lettered".to_owned(),
                off => format!("{off} is not enabled: every answer will be dead-lettered"),
            };
            self.warn("unreachable_route", &key, message).expected = Some(
                "`web:` and the id of a thread, or `terminal:` and the name of a conversation"
                    .into(),
            );
        }
    }
}

fn is_there(command: &str) -> bool {
    if command.starts_with('/') {
        return Path::new(command).exists();
    }
    // A relative path begins in a folder that only the server's start decides.
    command.contains('/')
        || PROGRAM_FOLDERS
            .iter()
            .any(|folder| Path::new(folder).join(command).exists())
}

/// Every file that a secret is in, by the key without its `File`.
fn key_files(key: &str, value: &Value, found: &mut Vec<(String, String)>) {
    let below = |name: &str| match key {
        "" => name.to_owned(),
        key => format!("{key}.{name}"),
    };
    match value {
        Value::Object(members) => match secret_file(members) {
            Some(path) => found.push((key.to_owned(), path)),
            None => members
                .iter()
                .for_each(|(name, value)| key_files(&below(name), value, found)),
        },
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(n, item)| key_files(&format!("{key}[{n}]"), item, found)),
        _ => {}
    }
}

fn secret_file(members: &Map<String, Value>) -> Option<String> {
    let file = members.len() == 2 && members.get("from")? == "file";
    let path = members.get("path")?.as_str()?;
    file.then(|| path.to_owned())
}
