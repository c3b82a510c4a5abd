//! Values from environment variables, as the JSON that they stand for.

use crate::diagnostic::{Diagnostic, Errors, Place, quote};
use crate::field::{Field, Form, Kind};
use crate::json::{self, Node, Position, Tree};
use crate::load::Unreadable;
use crate::{form, value};
use std::collections::BTreeMap;

/// The process environment, as far as the configuration looks at it.
pub type Env = BTreeMap<String, String>;

/// Adds the variables of an environment file (`.env`) to `env`; those that are there already win.
/// Somebody has named the file: that it is missing is an error.
///
/// A line is `NAME=value`, with an optional `export`; a value may stand in double quotes (with the
/// escapes of JSON) or in single quotes (as it is). Nothing is expanded. All wrong lines come at once.
pub fn read_env_file(path: &std::path::Path, env: &mut Env) -> Result<(), Errors> {
    let file = path.display().to_string();
    let place = |at: Position| Place::File {
        file: file.clone(),
        at,
    };
    let text = match crate::load::read(path) {
        Ok(text) => text,
        Err(Unreadable::Missing) => {
            let problem = Diagnostic::error("unreadable", "", "there is no such file");
            return Err(Errors {
                diagnostics: vec![problem.at(&place(START))],
            });
        }
        Err(Unreadable::NotText(at)) => {
            return Err(Errors {
                diagnostics: vec![
                    Diagnostic::error("not_utf8", "", "not UTF-8 text").at(&place(at)),
                ],
            });
        }
        Err(Unreadable::Other(why)) => {
            return Err(Errors {
                diagnostics: vec![Diagnostic::error("unreadable", "", why).at(&place(START))],
            });
        }
    };
    let mut wrong = Vec::new();
    let mut found = Env::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match variable(line) {
            Some((name, value)) => {
                found.insert(name, value);
            }
            None => {
                let at = Position {
                    line: u32::try_from(index + 1).unwrap_or(u32::MAX),
                    column: 1,
                };
                // The line is not quoted: it may hold a secret.
                let problem = Diagnostic::error("wrong_form", "", "a line that sets no variable")
                    .at(&place(at));
                wrong.push(problem.expected("NAME=value, a comment, or nothing"));
            }
        }
    }
    if !wrong.is_empty() {
        return Err(Errors { diagnostics: wrong });
    }
    for (name, value) in found {
        env.entry(name).or_insert(value);
    }
    Ok(())
}

fn variable(line: &str) -> Option<(String, String)> {
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, value) = line.split_once('=')?;
    let (name, value) = (name.trim_end(), value.trim());
    form::check(Form::EnvName, name).ok()?;
    let value = if value.starts_with('"') {
        match json::parse(value).ok()?.0.tree {
            Tree::Text(text) => text,
            _ => return None,
        }
    } else if let Some(rest) = value.strip_prefix('\'') {
        rest.strip_suffix('\'')?.to_string()
    } else {
        value.to_string()
    };
    (!value.contains('\0')).then(|| (name.to_string(), value))
}

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
        Diagnostic::error("invalid_variable", key, message)
            .at(&Place::Env(name.clone()))
            .expected(expected)
    };
    let found = || {
        if field.secret {
            "a value".to_string()
        } else {
            quote(raw)
        }
    };
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
            let items = text
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty());
            Ok(node(Tree::List(
                items
                    .map(|item| node(Tree::Text(item.to_string())))
                    .collect(),
            )))
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
            Err(error) => Err(refuse(
                format!("no valid JSON: {error}"),
                value::expected(&field.kind),
            )),
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_environment_file_adds_what_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".env");
        let mut env = Env::from([("A".to_string(), "exported".to_string())]);
        let missing = read_env_file(&path, &mut env).unwrap_err().to_string();
        assert!(missing.contains("no such file"), "{missing}");
        std::fs::write(
            &path,
            "# c\nA=file\nexport B = \"x\\n#\" \n\nC='a \"b\"'\nD=\nE=a=b # c\n",
        )
        .unwrap();
        read_env_file(&path, &mut env).unwrap();
        let expected = [
            ("A", "exported"),
            ("B", "x\n#"),
            ("C", "a \"b\""),
            ("D", ""),
            ("E", "a=b # c"),
        ];
        assert_eq!(
            env,
            expected.map(|(k, v)| (k.to_string(), v.to_string())).into()
        );
    }

    #[test]
    fn wrong_lines_are_told_together_and_add_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".env");
        std::fs::write(&path, "A=1\nhunter2\n1B=hunter2\nC=\"hunter2\nD='hunter2\n").unwrap();
        let mut env = Env::new();
        let errors = read_env_file(&path, &mut env).unwrap_err();
        assert_eq!(
            errors
                .diagnostics
                .iter()
                .map(|d| d.line.unwrap())
                .collect::<Vec<_>>(),
            [2, 3, 4, 5]
        );
        assert!(!errors.to_string().contains("hunter2") && env.is_empty());
    }
}
