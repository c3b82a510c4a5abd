//! `mcp.json`: the file of `tools.mcpConfigPath`.
//!
//! It lies in the workspace, where the agent may write. So it says which servers there are and how
//! they are reached, and never what they may do: `sandbox` and `shared` stand in the configuration
//! itself, in an inline entry of the same name, which needs no command then.

use crate::diagnostic::{Diagnostic, Place};
use crate::json::{Node, Tree};
use crate::load::{Unreadable, read};
use crate::report::FieldReport;
use crate::shape::Shape;
use crate::walk::{Source, Walk};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::path::Path;

const SERVERS: &str = "tools.mcpServers";
/// What only the configuration itself may say of a server.
const GRANTS: &[&str] = &["sandbox", "shared", "apps"];
const OTHERS: &[&str] = &["type", "args", "env", "cwd", "headers"];

/// Adds the file's servers to the inline ones. Returns whether every server is known now.
pub(crate) fn merge(walk: &mut Walk<'_>, shape: &Shape, document: &mut Map<String, Value>) -> bool {
    let key = "tools.mcpConfigPath";
    let tools = document.get_mut("tools").and_then(Value::as_object_mut);
    let Some(tools) = tools else { return true };
    let Some(path) = tools
        .get("mcpConfigPath")
        .and_then(Value::as_str)
        .map(str::to_string)
    else {
        return true;
    };
    let place = walk.places.get(key).cloned();
    let tell = |walk: &mut Walk<'_>, problem: Diagnostic| {
        walk.push(match &place {
            Some(place) => problem.at(place),
            None => problem,
        });
    };
    let shown = walk.bases.show(Path::new(&path));
    let text = match read(Path::new(&path)) {
        Ok(text) => text,
        Err(Unreadable::Missing) => {
            let problem = Diagnostic::warning(
                "mcp_config_missing",
                key,
                format!("an MCP config file is missing: {shown}"),
            )
            .expected("a path relative to the workspace");
            tell(walk, problem);
            return false;
        }
        Err(Unreadable::Other(message)) => {
            tell(
                walk,
                Diagnostic::error("mcp_config_unreadable", key, format!("{shown}: {message}")),
            );
            return false;
        }
        Err(Unreadable::NotText(at)) => {
            let place = Place::File { file: path, at };
            walk.push(Diagnostic::error("not_utf8", "", "not UTF-8 text").at(&place));
            return false;
        }
    };
    let (mut node, duplicates) = match crate::json::parse(&text) {
        Ok(parsed) => parsed,
        Err(error) => {
            let mut problem = Diagnostic::error("syntax", "", error.message).at(&Place::File {
                file: path,
                at: error.at,
            });
            problem.expected = error.expected.map(str::to_string);
            walk.push(problem);
            return false;
        }
    };
    for duplicate in duplicates {
        let place = Place::File {
            file: path.clone(),
            at: duplicate.at,
        };
        let message = format!(
            "stands twice; the first is on line {}",
            duplicate.first.line
        );
        walk.push(Diagnostic::error("duplicate_key", duplicate.path, message).at(&place));
    }
    servers(walk, shape, tools, &path, &node);
    node.wipe();
    true
}

fn servers(
    walk: &mut Walk<'_>,
    shape: &Shape,
    tools: &mut Map<String, Value>,
    path: &str,
    node: &Node,
) {
    let Some(member) = node.get("mcpServers") else {
        let place = Place::File {
            file: path.to_string(),
            at: node.at,
        };
        walk.push(
            Diagnostic::error("missing", "mcpServers", "required, and not there")
                .at(&place)
                .expected("an object of servers"),
        );
        return;
    };
    let inline = tools
        .get("mcpServers")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    let inline_places = walk.places.clone();
    let before = walk.diagnostics.len();
    let inline_fields = std::mem::take(&mut walk.fields);
    walk.lenient = true;
    let mut found = walk.object(shape, SERVERS, Some((&member.node, Source::File(path))));
    walk.lenient = false;
    // In that file the keys begin at `mcpServers`.
    for problem in &mut walk.diagnostics[before..] {
        if let Some(key) = problem.key.strip_prefix("tools.") {
            problem.key = key.to_string();
        }
    }
    let file_fields = std::mem::replace(&mut walk.fields, inline_fields);
    one_report_each(walk, file_fields, &inline);
    for name in found.keys() {
        for grant in GRANTS {
            let key = format!("{SERVERS}.{name}.{grant}");
            let written = match &member.node.tree {
                Tree::Object(_) => member
                    .node
                    .get(name)
                    .and_then(|server| server.node.get(grant)),
                _ => None,
            };
            if let Some(written) = written {
                let place = Place::File {
                    file: path.to_string(),
                    at: written.at,
                };
                let problem = Diagnostic::error(
                    "grant_in_mcp_config",
                    format!("mcpServers.{name}.{grant}"),
                    "a server's rights can't be given here: the agent may write this file",
                )
                .at(&place)
                .suggest(format!("write it as {key} in the configuration"));
                walk.push(problem);
            }
        }
    }
    for (name, entry) in inline {
        let complete = is_complete(&entry);
        match found.get_mut(&name) {
            Some(file_entry) if !complete => {
                for part in OTHERS
                    .iter()
                    .filter(|part| inline_places.contains_key(&format!("{SERVERS}.{name}.{part}")))
                {
                    let key = format!("{SERVERS}.{name}.{part}");
                    let problem = Diagnostic::error(
                        "misplaced_key",
                        &key,
                        "the server is declared in the file of tools.mcpConfigPath",
                    )
                    .expected("only sandbox and shared here, or the whole server");
                    walk.push(match inline_places.get(&key) {
                        Some(place) => problem.at(place),
                        None => problem,
                    });
                }
                for grant in GRANTS {
                    if let (Some(value), Some(entry)) =
                        (entry.get(grant), file_entry.as_object_mut())
                    {
                        entry.insert((*grant).to_string(), value.clone());
                    }
                }
            }
            other => {
                if other.is_some() {
                    let key = format!("{SERVERS}.{name}");
                    let mut problem = Diagnostic::warning(
                        "duplicate_server",
                        &key,
                        "also in the file of tools.mcpConfigPath; this one is used",
                    );
                    if let Some(place) = inline_places.get(&key) {
                        problem = problem.at(place);
                    }
                    walk.push(problem);
                }
                found.insert(name, entry);
            }
        }
    }
    walk.places.extend(inline_places);
    tools.insert("mcpServers".to_string(), Value::Object(found));
}

fn is_complete(entry: &Value) -> bool {
    entry.get("command").is_some() || entry.get("url").is_some()
}

/// A server that stands in both files has each key reported once, from where it is taken.
fn one_report_each(
    walk: &mut Walk<'_>,
    file_fields: Vec<FieldReport>,
    inline: &Map<String, Value>,
) {
    // The server's name and whether the key is a grant.
    let part_of = |key: &str| {
        let (name, part) = key
            .strip_prefix(SERVERS)?
            .strip_prefix('.')?
            .split_once('.')?;
        let grant = GRANTS.contains(&part.split('.').next().unwrap_or_default());
        Some((name.to_string(), grant))
    };
    let in_file: BTreeSet<String> = file_fields
        .iter()
        .filter_map(|f| part_of(&f.key))
        .map(|(name, _)| name)
        .collect();
    walk.fields.retain(|field| match part_of(&field.key) {
        Some((name, grant)) => {
            grant || !in_file.contains(&name) || inline.get(&name).is_none_or(is_complete)
        }
        None => true,
    });
    walk.fields.extend(file_fields.into_iter().filter(|field| {
        match part_of(&field.key) {
            Some((name, grant)) => inline
                .get(&name)
                .is_none_or(|entry| !grant && !is_complete(entry)),
            None => true,
        }
    }));
}
