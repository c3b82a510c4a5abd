//! Rules of the tool policy and of MCP servers.

use super::Rules;
use crate::config::transport_of;
use crate::diagnostic::nearest;
use crate::form;
use secret_signs::{looks_secret, names_secret};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Tools that the policy knows (spec s3, "MCP servers").
pub const TOOL_NAMES: &[&str] = &[
    "Read",
    "Write",
    "Edit",
    "Glob",
    "Grep",
    "Bash",
    "Exec",
    "NodeRepl",
    "WebFetch",
    "WebSearch",
    "ReadSkill",
    "PublishReplyFile",
    "RunHistory",
    "SessionHistory",
    "MemoryJournal",
    "MemoryRecall",
    "Remember",
    "SetConversationTitle",
    "AskUser",
    "AskCollaborator",
    "SlackSendMessage",
    "TelegramSendMessage",
    "TelegramSendFile",
];

/// Older names that the policy still accepts.
fn current_name(name: &str) -> &str {
    match name {
        "run_history" => "RunHistory",
        "session_history" => "SessionHistory",
        other => other,
    }
}

impl Rules<'_> {
    /// A name in both lists, or twice in one, is refused: which of the two was meant can't be told.
    pub(super) fn tool_policy(&mut self) {
        let mut first: BTreeMap<String, String> = BTreeMap::new();
        for list in ["tools.allowedTools", "tools.disallowedTools"] {
            let mut here = BTreeSet::new();
            for (index, name) in self.texts(list).into_iter().enumerate() {
                let key = format!("{list}[{index}]");
                let current = current_name(&name).to_string();
                let earlier = first.get(&current).cloned();
                if !here.insert(current.clone()) {
                    self.error(
                        "invalid_tool_policy",
                        &key,
                        format!("`{name}` stands twice in {list}"),
                    );
                } else if let Some(earlier) = earlier.filter(|_| current != "*") {
                    self.error(
                        "invalid_tool_policy",
                        &key,
                        format!("`{name}` is both allowed and disallowed"),
                    )
                    .expected = Some(format!("it in one list only; {earlier} allows it"));
                } else {
                    first.insert(current.clone(), key.clone());
                }
                self.tool_name(list, &key, &name, &current);
            }
        }
        if self.texts("tools.allowedTools").is_empty() && self.written("tools.allowedTools") {
            self.warn(
                "no_tools",
                "tools.allowedTools",
                "an empty list: the agent has no built-in tool",
            )
            .suggestion = Some("leave the key out, or write [\"*\"], for all".into());
        }
    }

    fn tool_name(&mut self, list: &str, key: &str, name: &str, current: &str) {
        if current == "*" || TOOL_NAMES.contains(&current) {
            return;
        }
        if name.starts_with("mcp__") {
            if list == "tools.allowedTools" {
                self.warn(
                    "no_effect",
                    key,
                    "tools of MCP servers are not gated by the allowlist",
                )
                .suggestion = Some("declare the server or leave it out".into());
            }
            return;
        }
        // A bare name of an MCP server's tool may stand in the denylist; nobody knows those yet.
        let near = nearest(current, TOOL_NAMES.iter().copied());
        self.warn(
            "unknown_tool",
            key,
            format!("no built-in tool is called `{}`", bounded(name)),
        )
        .suggestion = near.map(|near| format!("did you mean `{near}`?"));
    }

    pub(super) fn servers(&mut self) {
        let servers = self.object("tools.mcpServers");
        for (name, server) in &servers {
            self.server(name, server);
        }
        let kind_of = |name: &str| servers.get(name).map(|server| kind(server));
        for list in [
            "tools.mcpRequestContextServers",
            "tools.continuationServers",
        ] {
            let continuation = list == "tools.continuationServers";
            let mut seen = BTreeSet::new();
            for (index, name) in self.texts(list).into_iter().enumerate() {
                let key = format!("{list}[{index}]");
                if !seen.insert(name.clone()) {
                    self.warn("duplicate", &key, format!("`{name}` stands twice"));
                    continue;
                }
                let Some(kind) = kind_of(&name) else {
                    if self.servers_known || continuation {
                        let near =
                            nearest(&name, servers.keys().map(String::as_str)).map(str::to_string);
                        let problem = self.error(
                            "unknown_server",
                            &key,
                            format!("no MCP server is called `{name}`"),
                        );
                        problem.expected = Some(
                            "a name in tools.mcpServers or in the file of tools.mcpConfigPath"
                                .into(),
                        );
                        problem.suggestion = near.map(|near| format!("did you mean `{near}`?"));
                    }
                    continue;
                };
                if continuation {
                    self.continuation_server(&key, &name, kind, &servers[&name]);
                } else if kind != "stdio" {
                    self.warn(
                        "no_effect",
                        &key,
                        format!("`{name}` is not a stdio server and gets no request context"),
                    );
                }
            }
        }
    }

    /// Spec s1, "Configure a trusted continuation server": stdio or loopback streamable HTTP only.
    fn continuation_server(&mut self, key: &str, name: &str, kind: &str, server: &Value) {
        let expected = "a stdio server, or a streamable HTTP server on localhost, 127.0.0.1 or ::1";
        if kind == "sse" {
            self.error(
                "unsupported_continuation_server",
                key,
                format!("`{name}` is an SSE server"),
            )
            .expected = Some(expected.into());
        } else if kind == "stdio" {
            if server.pointer("/sandbox/network") != Some(&Value::from("all")) {
                self.warn(
                    "unreachable",
                    key,
                    format!("`{name}` has no network, so it can't reach the address to claim at"),
                )
                .expected = Some(format!("tools.mcpServers.{name}.sandbox.network: \"all\""));
            }
        } else if kind == "http" {
            let url = server
                .get("url")
                .and_then(Value::as_str)
                .and_then(form::web_url);
            let local = url.is_some_and(|url| {
                url.scheme() == "http"
                    && matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"))
            });
            if !local {
                self.error(
                    "unsupported_continuation_server",
                    key,
                    format!("`{name}` is not on a loopback address"),
                )
                .expected = Some(expected.into());
            }
        }
    }

    fn server(&mut self, name: &str, server: &Value) {
        let key = format!("tools.mcpServers.{name}");
        let has = |part: &str| server.get(part).is_some();
        let said = server.get("type").and_then(Value::as_str);
        match (has("command"), has("url")) {
            (true, true) => {
                self.error("ambiguous_server", &key, "has both a command and a url")
                    .expected = Some("exactly one of command (stdio) and url (http, sse)".into());
                return;
            }
            (false, false) => {
                self.error("incomplete_server", &key, "has neither a command nor a url")
                    .expected = Some("exactly one of command (stdio) and url (http, sse)".into());
                return;
            }
            (true, false) if matches!(said, Some("http" | "sse")) => {
                self.error(
                    "ambiguous_server",
                    &format!("{key}.type"),
                    "a command is started over stdio",
                );
            }
            (false, true) if said == Some("stdio") => {
                self.error(
                    "ambiguous_server",
                    &format!("{key}.type"),
                    "a stdio server has a command, not a url",
                );
            }
            _ => {}
        }
        let filled = |part: &str| match server.get(part) {
            Some(Value::Object(map)) => !map.is_empty(),
            Some(Value::Array(list)) => !list.is_empty(),
            other => other.is_some(),
        };
        let stdio = has("command");
        let strange: &[&str] = if stdio {
            &["headers"]
        } else {
            &["args", "env", "cwd"]
        };
        for part in strange.iter().filter(|part| filled(part)) {
            let which = if stdio {
                "a stdio server"
            } else {
                "a server with a url"
            };
            self.error(
                "misplaced_key",
                &format!("{key}.{part}"),
                format!("{which} has no {part}"),
            );
        }
        if !stdio && self.written(&format!("{key}.sandbox")) {
            self.warn(
                "no_effect",
                &format!("{key}.sandbox"),
                "a server with a url is not started here",
            );
        }
        let variables = server
            .get("env")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        for variable in variables.keys() {
            if form::check(crate::field::Form::EnvName, variable).is_err() {
                self.error(
                    "wrong_form",
                    &format!("{key}.env"),
                    format!("`{}` is no name of a variable", bounded(variable)),
                );
            }
        }
        let headers = server
            .get("headers")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        for (header, value) in &headers {
            let below = format!("{key}.headers.{header}");
            let text = value.as_str().unwrap_or_default();
            let name_ok = !header.is_empty()
                && header.len() <= 128
                && header
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
            if !name_ok || text.chars().any(|c| c.is_control() && c != '\t') {
                self.error("wrong_form", &below, "not a valid HTTP header");
            }
            if names_secret(header) || looks_secret(text) {
                self.warn(
                    "secret_in_file",
                    &below,
                    "the header looks like a credential, and values here are literal",
                )
                .suggestion = Some(
                    "don't keep a credential in this file; there is no indirection for headers"
                        .into(),
                );
            }
        }
    }
}

/// The transport of a checked server entry.
pub(crate) fn kind(server: &Value) -> &'static str {
    let text = |key: &str| server.get(key).and_then(Value::as_str);
    transport_of(text("type"), text("url"))
}

fn bounded(text: &str) -> String {
    text.chars().take(64).collect()
}
