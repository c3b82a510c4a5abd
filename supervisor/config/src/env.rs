//! Values from environment variables, as the JSON that they stand for.

use crate::diagnostic::{Diagnostic, Place, quote};
use crate::field::{Field, Kind};
use crate::json::{self, Node, Position, Tree};
use crate::value;
use std::collections::BTreeMap;

/// The process environment, as far as the configuration looks at it.
pub type Env = BTreeMap<String, String>;

const START: Position = Position { line: 1, column: 1 };

fn node(tree: Tree) -> Node {
    Node { at: START, tree }
}

/// The value that the environment gives to this row, if it gives one.
///
/// An empty variable counts as unset, but for the rows that say that it is an empty list
/// (`MONO_AGENT_ALLOWED_TOOLS`: no tools).
pub(crate) fn read(field: &Field, key: &str, env: &Env) -> Option<Result<Node, Diagnostic>> {
    let name = field.env_name()?;
    let raw = env.get(&name)?;
    if raw.trim().is_empty() && !field.empty_env_is_empty_list {
        return None;
    }
    let refuse = |message: String, expected: String| {
        Diagnostic::error("invalid_variable", key, message).at(&Place::Env(name.clone())).expected(expected)
    };
    let found = || if field.secret { "a value".to_string() } else { quote(raw) };
    let text = raw.trim();
    Some(match field.kind {
        Kind::Bool => match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Ok(node(Tree::Bool(true))),
            "false" | "0" | "no" | "off" => Ok(node(Tree::Bool(false))),
            _ => Err(refuse(format!("found {}", found()), "true or false".into())),
        },
        Kind::Int { .. } | Kind::Millis { .. } | Kind::Number { .. } | Kind::IntChoice(_) => {
            if field.nullable && text.eq_ignore_ascii_case("none") {
                return Some(Ok(node(Tree::Null)));
            }
            match serde_json::from_str::<serde_json::Number>(text) {
                Ok(number) => Ok(node(Tree::Number(number))),
                Err(_) => {
                    let mut expected = value::expected(&field.kind);
                    if field.nullable {
                        expected.push_str(", or none");
                    }
                    Err(refuse(format!("found {}", found()), expected))
                }
            }
        }
        Kind::List { .. } if !text.starts_with('[') => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Ok(node(Tree::List(items.map(|item| node(Tree::Text(item.to_string()))).collect())))
        }
        Kind::List { .. }
        | Kind::Records { .. }
        | Kind::Map { .. }
        | Kind::Section { .. }
        | Kind::TextMap { .. }
        | Kind::Payload => match json::parse(raw) {
            Ok((node, duplicates)) if duplicates.is_empty() => Ok(node),
            Ok((_, duplicates)) => Err(refuse(
                format!("{} stands twice", quote(&duplicates[0].path)),
                "JSON with each key once".into(),
            )),
            Err(error) => Err(refuse(format!("no valid JSON: {error}"), value::expected(&field.kind))),
        },
        Kind::Text { .. }
        | Kind::Id
        | Kind::Choice(_)
        | Kind::Path(_)
        | Kind::SecretEnv
        | Kind::SecretFile
        | Kind::SecretCredential => Ok(node(Tree::Text(raw.clone()))),
    })
}
