//! Walks a document beside the key table: checks each value, fills the defaults, lets the
//! environment have its say, and remembers where everything came from.

use crate::diagnostic::{Diagnostic, Place, nearest};
use crate::env::{self, Env};
use crate::field::{Base, Field, Kind};
use crate::json::{Node, Tree};
use crate::paths::Bases;
use crate::report::{FieldReport, Origin};
use crate::shape::Shape;
use crate::value::{self, Mismatch};
use crate::{form, table};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Bytes of one value of an `env` or `headers` map.
const MAX_MAP_VALUE: usize = 32_768;

/// The outcome: a document in which every value is valid. An invalid one is replaced by its default,
/// so that the rules between keys can still be checked and all problems are told in one go.
pub(crate) struct Walk<'a> {
    pub(crate) env: &'a Env,
    pub(crate) bases: Bases,
    pub(crate) fields: Vec<FieldReport>,
    /// Where each value that somebody set stands, by key.
    pub(crate) places: BTreeMap<String, Place>,
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// `mcp.json` belongs to many programs: keys of others are only warned about.
    pub(crate) lenient: bool,
    /// Errors and warnings so far, those that are no longer told among them.
    counts: [usize; 2],
}

/// Errors that are told, and as many warnings: a wrong file can hold tens of thousands.
pub(crate) const MAX_TOLD: usize = 100;

/// Where an input was read.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    File(&'a str),
    Env(&'a str),
}

impl Source<'_> {
    fn place(self, at: crate::json::Position) -> Place {
        match self {
            Source::File(file) => Place::File {
                file: file.to_string(),
                at,
            },
            Source::Env(name) => Place::Env(name.to_string()),
        }
    }

    fn origin(self) -> Origin {
        match self {
            Source::File(_) => Origin::Json,
            Source::Env(_) => Origin::Env,
        }
    }
}

type Input<'a> = Option<(&'a Node, Source<'a>)>;

impl<'a> Walk<'a> {
    pub(crate) fn new(env: &'a Env, bases: Bases) -> Walk<'a> {
        Walk {
            env,
            bases,
            fields: Vec::new(),
            places: BTreeMap::new(),
            diagnostics: Vec::new(),
            lenient: false,
            counts: [0; 2],
        }
    }

    pub(crate) fn object(
        &mut self,
        shape: &Shape,
        key: &str,
        input: Input<'_>,
    ) -> Map<String, Value> {
        let mut out = Map::new();
        let members = self.members(shape, key, input);
        // What isn't an object is told once, and not again for each member that it lacks.
        let broken = input.is_some() && members.is_none();
        let find = |name: &str| {
            let (members, source) = members?;
            members
                .iter()
                .find(|member| member.key == name)
                .map(|member| (&member.node, source))
        };
        for child in &shape.named {
            let below = join(key, &child.name);
            let given = find(&child.name);
            if child.field.is_some_and(|field| field.required)
                && given.is_none()
                && !self.has_env(child)
            {
                if !broken {
                    self.missing(&below, child, input);
                }
                continue;
            }
            if let Some(value) = self.value(child, &below, given) {
                out.insert(child.name.clone(), value);
            }
        }
        if let Some((members, source)) = members {
            for member in members {
                if shape.member(&member.key).is_some() {
                    continue;
                }
                let below = join(key, &member.key);
                let place = source.place(member.at);
                match &shape.each {
                    None => self.unknown(shape, &below, &member.key, &place),
                    Some(each) => {
                        if let Some(Field {
                            kind: Kind::Map { name, .. },
                            ..
                        }) = shape.field
                            && let Err(expected) = form::check(*name, &member.key)
                        {
                            let problem =
                                Diagnostic::error("wrong_form", below, "the name doesn't fit");
                            self.push(problem.at(&place).expected(expected));
                            continue;
                        }
                        if let Some(value) = self.value(each, &below, Some((&member.node, source)))
                        {
                            out.insert(member.key.clone(), value);
                        }
                    }
                }
            }
        }
        self.secrets(shape, key, &mut out);
        out
    }

    /// The members of an input that should be an object.
    fn members<'n>(
        &mut self,
        shape: &Shape,
        key: &str,
        input: Input<'n>,
    ) -> Option<(&'n [crate::json::Member], Source<'n>)> {
        let (node, source) = input?;
        let place = source.place(node.at);
        self.places.insert(key.to_string(), place.clone());
        let Tree::Object(members) = &node.tree else {
            let found = value::describe(node, false);
            let problem = Diagnostic::error("wrong_type", key, format!("found {found}"));
            self.push(problem.at(&place).expected("an object"));
            return None;
        };
        if let Some(Field {
            kind: Kind::Map { max, .. },
            ..
        }) = shape.field
            && members.len() > *max
        {
            let problem =
                Diagnostic::error("too_many", key, format!("found {} entries", members.len()));
            self.push(problem.at(&place).expected(format!("at most {max}")));
        }
        Some((members, source))
    }

    fn value(&mut self, shape: &Shape, key: &str, given: Input<'_>) -> Option<Value> {
        let mut own = None;
        let variable;
        if let Some(field) = shape.field
            && let Some(read) = env::read(field, key, self.env)
        {
            match read {
                Ok(node) => {
                    variable = field.env_name().unwrap_or_default();
                    own = Some((node, Source::Env(&variable)));
                }
                Err(problem) => self.push(problem),
            }
        }
        let input = match &own {
            Some((node, source)) => Some((node, *source)),
            None => given,
        };
        let value = if shape.is_object() {
            if shape.is_optional() && input.is_none() && !self.has_env(shape) {
                return None;
            }
            Some(Value::Object(self.object(shape, key, input)))
        } else {
            let field = shape.field?;
            match (&field.kind, &shape.item) {
                (Kind::Records { max }, Some(item)) => Some(self.records(item, key, *max, input)),
                _ => self.leaf(field, key, input),
            }
        };
        if let Some((mut node, _)) = own {
            node.wipe();
        }
        value
    }

    fn records(&mut self, item: &Shape, key: &str, max: usize, input: Input<'_>) -> Value {
        let mut out = Vec::new();
        if let Some((node, source)) = input {
            let place = source.place(node.at);
            self.places.insert(key.to_string(), place.clone());
            match &node.tree {
                Tree::List(items) => {
                    if items.len() > max {
                        let problem = Diagnostic::error(
                            "too_many",
                            key,
                            format!("found {} entries", items.len()),
                        );
                        self.push(problem.at(&place).expected(format!("at most {max}")));
                    }
                    for (index, node) in items.iter().enumerate() {
                        let below = format!("{key}[{index}]");
                        out.push(Value::Object(self.object(
                            item,
                            &below,
                            Some((node, source)),
                        )));
                    }
                }
                _ => {
                    let found = value::describe(node, false);
                    let problem = Diagnostic::error("wrong_type", key, format!("found {found}"));
                    self.push(
                        problem
                            .at(&place)
                            .expected(value::expected(&Kind::Records { max })),
                    );
                }
            }
        }
        Value::Array(out)
    }

    fn leaf(&mut self, field: &'static Field, key: &str, input: Input<'_>) -> Option<Value> {
        let mut origin = Origin::Default;
        let mut value = None;
        if let Some((node, source)) = input {
            let place = source.place(node.at);
            self.places.insert(key.to_string(), place.clone());
            match self.checked(field, key, node, source) {
                Ok(checked) => {
                    origin = source.origin();
                    value = Some(checked);
                }
                Err(Some(mismatch)) => {
                    let mut problem = Diagnostic::error(mismatch.code, key, mismatch.message)
                        .at(&place)
                        .expected(mismatch.expected);
                    problem.suggestion = mismatch.suggestion;
                    self.push(problem);
                }
                // Already told, value by value.
                Err(None) => {}
            }
        }
        if value.is_none() {
            value = value::default(field).map(|default| self.resolved(&field.kind, default, key));
        }
        self.fields
            .push(FieldReport::new(field, key, value.as_ref(), origin));
        let value = value?;
        if field.key == "runtime.workspace"
            && let Some(path) = value.as_str()
        {
            self.bases.workspace = path.into();
        }
        Some(value)
    }

    fn checked(
        &mut self,
        field: &Field,
        key: &str,
        node: &Node,
        source: Source<'_>,
    ) -> Result<Value, Option<Mismatch>> {
        if field.nullable && matches!(node.tree, Tree::Null) {
            return Ok(Value::Null);
        }
        let mismatch = |code, message, expected| {
            Some(Mismatch {
                code,
                message,
                expected,
                suggestion: None,
            })
        };
        let wrong_type = || {
            mismatch(
                "wrong_type",
                format!("found {}", value::describe(node, field.secret)),
                value::expected(&field.kind),
            )
        };
        match (&field.kind, &node.tree) {
            (Kind::Payload, Tree::Object(_)) => Ok(node.to_value()),
            (Kind::Payload | Kind::List { .. } | Kind::TextMap { .. }, tree)
                if !matches!(
                    (&field.kind, tree),
                    (Kind::List { .. }, Tree::List(_)) | (Kind::TextMap { .. }, Tree::Object(_))
                ) =>
            {
                Err(wrong_type())
            }
            (Kind::List { item, max }, Tree::List(nodes)) => {
                if nodes.len() > *max {
                    return Err(mismatch(
                        "too_many",
                        format!("found {} values", nodes.len()),
                        format!("at most {max}"),
                    ));
                }
                let mut out = Vec::new();
                let mut whole = true;
                for (index, node) in nodes.iter().enumerate() {
                    let below = format!("{key}[{index}]");
                    let place = source.place(node.at);
                    match value::check(item, node, field.secret) {
                        Ok(value) => {
                            out.push(self.resolved(item, value, &below));
                            self.places.insert(below, place);
                        }
                        Err(wrong) => {
                            whole = false;
                            let mut problem = Diagnostic::error(wrong.code, below, wrong.message)
                                .at(&place)
                                .expected(wrong.expected);
                            problem.suggestion = wrong.suggestion;
                            self.push(problem);
                        }
                    }
                }
                if whole {
                    Ok(Value::Array(out))
                } else {
                    Err(None)
                }
            }
            (Kind::TextMap { max }, Tree::Object(members)) => {
                if members.len() > *max {
                    return Err(mismatch(
                        "too_many",
                        format!("found {} entries", members.len()),
                        format!("at most {max}"),
                    ));
                }
                let mut out = Map::new();
                for member in members {
                    let place = source.place(member.node.at);
                    let below = join(key, &member.key);
                    match &member.node.tree {
                        Tree::Text(text) if text.len() <= MAX_MAP_VALUE && !text.contains('\0') => {
                            out.insert(member.key.clone(), Value::String(text.clone()));
                            self.places.insert(below, place);
                        }
                        _ => {
                            let found = value::describe(&member.node, true);
                            let problem =
                                Diagnostic::error("wrong_type", below, format!("found {found}"));
                            self.push(
                                problem
                                    .at(&place)
                                    .expected("a string of at most 32768 bytes without a NUL"),
                            );
                        }
                    }
                }
                Ok(Value::Object(out))
            }
            _ => {
                let checked = value::check(&field.kind, node, field.secret).map_err(Some)?;
                Ok(self.resolved(&field.kind, checked, key))
            }
        }
    }

    /// A path made absolute; anything else as it is.
    fn resolved(&mut self, kind: &Kind, value: Value, key: &str) -> Value {
        let base = match kind {
            Kind::Path(base) => *base,
            Kind::SecretFile => Base::Config,
            Kind::List { item, .. } if matches!(item, Kind::Path(_)) => {
                let Value::Array(items) = value else {
                    return value;
                };
                return items
                    .into_iter()
                    .map(|value| self.resolved(item, value, key))
                    .collect();
            }
            _ => return value,
        };
        let Some(text) = value.as_str() else {
            return value;
        };
        match self.bases.resolve(base, text) {
            Ok(path) => Value::String(path.to_string_lossy().into_owned()),
            Err(message) => {
                let mut problem = Diagnostic::error("unresolved_path", key, message);
                if let Some(place) = self.places.get(key) {
                    problem = problem.at(place);
                }
                self.push(problem);
                value
            }
        }
    }

    /// Brings `apiKey`, `apiKeyEnv`, `apiKeyFile` and `apiKeyCredential` together in one member
    /// `apiKey` that says where the secret is. At most one may be written; a variable overrides all.
    fn secrets(&mut self, shape: &Shape, key: &str, out: &mut Map<String, Value>) {
        let mut found: BTreeMap<String, Vec<(String, Value)>> = BTreeMap::new();
        for child in &shape.named {
            let Some(field) = child.field else { continue };
            let (suffix, from) = match field.kind {
                Kind::Text { .. } if field.secret => ("", "literal"),
                Kind::SecretEnv => ("Env", "env"),
                Kind::SecretFile => ("File", "file"),
                Kind::SecretCredential => ("Credential", "credential"),
                _ => continue,
            };
            let Some(value) = out.remove(&child.name) else {
                continue;
            };
            let base = child
                .name
                .strip_suffix(suffix)
                .unwrap_or(&child.name)
                .to_string();
            let below = join(key, &child.name);
            let source = match (from, self.places.get(&below)) {
                // A variable's value is not copied: only its name goes on.
                ("literal", Some(Place::Env(name))) => json!({"from": "env", "name": name}),
                ("literal", _) => json!({"from": "literal", "value": value}),
                ("env", _) => json!({"from": "env", "name": value}),
                ("file", _) => json!({"from": "file", "path": value}),
                _ => {
                    let folder = self
                        .env
                        .get("CREDENTIALS_DIRECTORY")
                        .filter(|folder| folder.starts_with('/'));
                    let path = folder
                        .map(|folder| format!("{folder}/{}", value.as_str().unwrap_or_default()));
                    json!({"from": "credential", "name": value, "path": path})
                }
            };
            found.entry(base).or_default().push((below, source));
        }
        for (base, mut sources) in found {
            let overriding = sources
                .iter()
                .position(|(below, _)| matches!(self.places.get(below), Some(Place::Env(_))));
            let chosen = sources.swap_remove(overriding.unwrap_or(0)).1;
            if overriding.is_none()
                && let Some((below, _)) = sources.first()
            {
                let names = format!("{base}, {base}Env, {base}File and {base}Credential");
                let problem = Diagnostic::error(
                    "several_secret_sources",
                    below,
                    "the same secret has two sources",
                )
                .expected(format!("at most one of {names}"));
                let problem = match self.places.get(below) {
                    Some(place) => problem.at(place),
                    None => problem,
                };
                self.push(problem);
            }
            out.insert(base, chosen);
        }
    }

    fn missing(&mut self, key: &str, shape: &Shape, parent: Input<'_>) {
        let mut problem = Diagnostic::error("missing", key, "required, and not there");
        if let Some(field) = shape.field {
            problem = problem.expected(value::expected(&field.kind));
            if let Some(name) = field.env_name() {
                problem = problem.suggest(format!("write it in the file, or set {name}"));
            }
        }
        // The object it is missing from, or the nearest one around that.
        let place = match parent {
            Some((node, source)) => Some(source.place(node.at)),
            None => self.places.get("").cloned(),
        };
        if let Some(place) = place {
            problem = problem.at(&place);
        }
        self.push(problem);
    }

    fn unknown(&mut self, shape: &Shape, key: &str, name: &str, place: &Place) {
        if let Some((_, instead)) = table::RETIRED.iter().find(|(retired, _)| *retired == key) {
            let problem = Diagnostic::error("retired_key", key, "no longer a key of this file");
            return self.push(problem.at(place).suggest(*instead));
        }
        let shown = if name.len() > 64 {
            join_last(key, name)
        } else {
            key.to_string()
        };
        let mut problem = if self.lenient {
            Diagnostic::warning("unknown_key", shown, "a key that is not used here; ignored")
        } else {
            Diagnostic::error("unknown_key", shown, "unknown key")
        };
        problem = problem.at(place);
        // Guessing costs more than telling.
        if self.counts[usize::from(problem.is_error())] >= MAX_TOLD {
            return self.push(problem);
        }
        let siblings = shape.named.iter().map(|child| child.name.as_str());
        let elsewhere = || {
            table::fields()
                .map(|field| field.key)
                .find(|key| key.rsplit('.').next() == Some(name) && !key.contains('<'))
        };
        if let Some(near) = nearest(name, siblings) {
            problem = problem.suggest(format!("did you mean `{near}`?"));
        } else if let Some(place) = elsewhere() {
            problem = problem.suggest(format!("it belongs at `{place}`"));
        } else if !self.lenient && !shape.named.is_empty() {
            let names: Vec<&str> = shape
                .named
                .iter()
                .take(24)
                .map(|child| child.name.as_str())
                .collect();
            problem = problem.expected(format!("one of {}", names.join(", ")));
        }
        self.push(problem);
    }

    fn has_env(&self, shape: &Shape) -> bool {
        shape.env_names().iter().any(|name| {
            self.env
                .get(name)
                .is_some_and(|value| !value.trim().is_empty())
        })
    }

    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        let count = &mut self.counts[usize::from(diagnostic.is_error())];
        *count += 1;
        if *count <= MAX_TOLD {
            self.diagnostics.push(diagnostic);
        }
    }

    /// One line for the problems that are not told.
    pub(crate) fn untold(&self) -> Option<Diagnostic> {
        let untold: usize = self
            .counts
            .iter()
            .map(|count| count.saturating_sub(MAX_TOLD))
            .sum();
        (untold > 0).then(|| {
            Diagnostic::warning(
                "too_many_problems",
                "",
                format!("{untold} more problems are not shown"),
            )
        })
    }
}

pub(crate) fn join(key: &str, name: &str) -> String {
    if key.is_empty() {
        name.to_string()
    } else {
        format!("{key}.{name}")
    }
}

/// A key path whose last name is too long to show.
fn join_last(key: &str, name: &str) -> String {
    let parent = key.strip_suffix(name).unwrap_or_default();
    format!("{parent}{}…", name.chars().take(64).collect::<String>())
}
