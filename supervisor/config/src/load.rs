//! From a file and an environment to a configuration.

use crate::config::Config;
use crate::diagnostic::{Diagnostic, Errors, Place, sort};
use crate::env::Env;
use crate::json::{self, MAX_BYTES, Position};
use crate::paths::{Bases, tidy};
use crate::report::FieldReport;
use crate::rules::Rules;
use crate::walk::{Source, Walk};
use crate::{form, mcp, shape};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use zeroize::{Zeroize, Zeroizing};

/// For whoever has none yet; the handbook begins with it too.
const SMALLEST: &str =
    r#"{"runtime": {"model": "demo:scripted"}, "context": {"identityPath": "identity.md"}}"#;

/// A configuration that can be used.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    /// Every key with its value and who set it; for `config show`.
    pub fields: Vec<FieldReport>,
    pub warnings: Vec<Diagnostic>,
}

/// Reads and checks the configuration.
///
/// Reads `path` and the file that `tools.mcpConfigPath` names, and looks whether the files that the
/// context needs are there; writes nothing. All problems come in one [`Errors`].
pub fn load(path: &Path, env: &Env) -> Result<Loaded, Errors> {
    let analysis = analyse(path, env);
    match analysis.config {
        Some(config) => Ok(Loaded {
            config,
            fields: analysis.fields,
            warnings: analysis.diagnostics,
        }),
        None => Err(Errors {
            diagnostics: analysis.diagnostics,
        }),
    }
}

/// Everything that is found out about a configuration, whether it can be used or not.
pub(crate) struct Analysis {
    /// Present when there is no error.
    pub(crate) config: Option<Config>,
    /// The checked document, without secrets.
    pub(crate) document: Map<String, Value>,
    pub(crate) fields: Vec<FieldReport>,
    pub(crate) places: BTreeMap<String, Place>,
    pub(crate) diagnostics: Vec<Diagnostic>,
    pub(crate) bases: Bases,
    /// The document could be parsed.
    pub(crate) parsed: bool,
}

pub(crate) fn analyse(path: &Path, env: &Env) -> Analysis {
    let path = tidy(&std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()));
    let folder = path.parent().unwrap_or(Path::new("/")).to_path_buf();
    let bases = Bases::new(folder, env);
    let failed = |diagnostic: Diagnostic, bases: Bases| Analysis {
        config: None,
        document: Map::new(),
        fields: Vec::new(),
        places: BTreeMap::new(),
        diagnostics: vec![diagnostic],
        bases,
        parsed: false,
    };
    let start = Position { line: 1, column: 1 };
    let Some(file) = path.to_str().map(str::to_string) else {
        return failed(
            Diagnostic::error(
                "unreadable",
                "",
                "the path of the configuration is not UTF-8",
            ),
            bases,
        );
    };
    let at = |at: Position| Place::File {
        file: file.clone(),
        at,
    };
    let text = match read(&path) {
        Ok(text) => text,
        Err(Unreadable::NotText(position)) => {
            return failed(
                Diagnostic::error("not_utf8", "", "not UTF-8 text").at(&at(position)),
                bases,
            );
        }
        Err(why) => {
            let problem = match why {
                Unreadable::Other(message) => Diagnostic::error("unreadable", "", message),
                _ => Diagnostic::error("unreadable", "", "there is no such file")
                    .expected(format!("a configuration; the smallest one is {SMALLEST}"))
                    .suggest("name another with --config"),
            };
            return failed(problem.at(&at(start)), bases);
        }
    };
    let (mut node, duplicates) = match json::parse(&text) {
        Ok(parsed) => parsed,
        Err(error) => {
            let mut problem = Diagnostic::error("syntax", "", error.message).at(&at(error.at));
            problem.expected = error.expected.map(str::to_string);
            return failed(problem, bases);
        }
    };

    let mut walk = Walk::new(env, bases);
    for duplicate in duplicates {
        let message = format!(
            "stands twice; the first is on line {}",
            duplicate.first.line
        );
        walk.push(
            Diagnostic::error("duplicate_key", duplicate.path, message).at(&at(duplicate.at)),
        );
    }
    let root = shape::root();
    let mut document = walk.object(root, "", Some((&node, Source::File(&file))));
    node.wipe();
    drop(text);
    let servers_known = match root.find("tools.mcpServers") {
        Some(servers) => mcp::merge(&mut walk, servers, &mut document),
        None => true,
    };
    let told = walk
        .diagnostics
        .iter()
        .filter(|d| d.is_error())
        .map(|d| d.key.clone())
        .collect();
    let rules = Rules {
        document: &document,
        places: &walk.places,
        env,
        servers_known,
        found: Vec::new(),
        told,
    };
    let continuations = rules.continuations_enabled();
    let a2a = rules.a2a_enabled();
    let used: BTreeSet<String> = rules
        .model_keys()
        .iter()
        .filter_map(|(_, model)| form::split_model(model).map(|(provider, _)| provider.to_string()))
        .collect();
    let found = rules.run();
    found.into_iter().for_each(|problem| walk.push(problem));
    walk.diagnostics.extend(walk.untold());

    decide(&mut document, "continuations", continuations);
    decide(&mut document, "a2a", a2a);
    document.insert("file".to_string(), json!(file));
    let mut config = None;
    if !walk.diagnostics.iter().any(Diagnostic::is_error) {
        match fill(&document) {
            Ok(mut filled) => {
                filled.providers.complete(&used);
                config = Some(filled);
            }
            Err(problem) => walk.push(*problem),
        }
    }
    document.values_mut().for_each(wipe_secrets);
    sort(&mut walk.diagnostics);
    Analysis {
        config,
        document,
        fields: walk.fields,
        places: walk.places,
        diagnostics: walk.diagnostics,
        bases: walk.bases,
        parsed: true,
    }
}

fn decide(document: &mut Map<String, Value>, section: &str, enabled: bool) {
    if let Some(section) = document.get_mut(section).and_then(Value::as_object_mut) {
        section.insert("enabled".to_string(), Value::Bool(enabled));
    }
}

/// The typed structure. It can only fail where the table and the structure differ, which is a fault
/// of this crate; tests hold the two together.
fn fill(document: &Map<String, Value>) -> Result<Config, Box<Diagnostic>> {
    let value = Value::Object(document.clone());
    let filled = Config::deserialize(&value);
    let mut value = value;
    wipe_secrets(&mut value);
    // What the error says may hold a value, and so a secret.
    filled.map_err(|_| {
        let message = "the key table and the configuration's type differ";
        Box::new(Diagnostic::error("internal", "", message))
    })
}

/// Overwrites what `{"from": "literal", "value": …}`, `env` and `headers` hold.
fn wipe_secrets(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(wipe_secrets),
        Value::Object(object) => {
            for (key, value) in object {
                match value {
                    Value::String(text) if key == "value" => text.zeroize(),
                    Value::Object(map) if key == "env" || key == "headers" => {
                        for value in map.values_mut() {
                            if let Value::String(text) = value {
                                text.zeroize();
                            }
                        }
                    }
                    other => wipe_secrets(other),
                }
            }
        }
        _ => {}
    }
}

pub(crate) enum Unreadable {
    Missing,
    NotText(Position),
    Other(String),
}

/// A regular file of at most 1 MiB of UTF-8.
pub(crate) fn read(path: &Path) -> Result<Zeroizing<String>, Unreadable> {
    let other = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => Unreadable::Missing,
        _ => Unreadable::Other(error.to_string()),
    };
    // Looked at before it is opened: opening a FIFO would wait for a writer.
    if !std::fs::metadata(path).map_err(other)?.is_file() {
        return Err(Unreadable::Other("not a regular file".into()));
    }
    let file = std::fs::File::open(path).map_err(other)?;
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(other)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Unreadable::Other(format!("larger than {MAX_BYTES} bytes")));
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(Zeroizing::new(text.to_string())),
        Err(error) => {
            let good = String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned();
            let line = good.matches('\n').count() + 1;
            let column = good.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            // Both are below the file's 2^20 bytes.
            Err(Unreadable::NotText(Position {
                line: line as u32,
                column: column as u32,
            }))
        }
    }
}
