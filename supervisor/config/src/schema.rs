//! The JSON Schema of the file, for editors, from the key table.

use crate::field::{Fallback, Field, Kind};
use crate::shape::{self, Shape};
use crate::{form, value};
use serde_json::{Map, Value, json};

/// The schema, draft 2020-12. It says what a single value may be; the rules between keys are beyond
/// it, so a file that it accepts can still be refused by [`crate::load`], never the other way round.
pub fn schema() -> Value {
    let mut schema = object(shape::root());
    let head = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "mono-agent.config.json",
    });
    if let (Value::Object(schema), Value::Object(head)) = (&mut schema, head) {
        schema.extend(head);
    }
    schema
}

fn object(shape: &Shape) -> Value {
    let properties: Map<String, Value> = shape
        .named
        .iter()
        .map(|child| (child.name.clone(), of(child)))
        .collect();
    let required: Vec<&str> = shape
        .named
        .iter()
        .filter(|child| is_required(child))
        .map(|child| child.name.as_str())
        .collect();
    let mut out = json!({"type": "object", "properties": properties});
    match &shape.each {
        None => out["additionalProperties"] = json!(false),
        Some(each) => out["additionalProperties"] = of(each),
    }
    if let Some(Field {
        kind: Kind::Map { name, max },
        ..
    }) = shape.field
    {
        out["maxProperties"] = json!(max);
        // Members with a row of their own may break the form of the names (`providers.piNative`).
        let form = form::pattern(*name).map(|pattern| json!({"pattern": pattern}));
        if let Some(form) = form {
            let named: Vec<&str> = shape
                .named
                .iter()
                .map(|child| child.name.as_str())
                .collect();
            out["propertyNames"] = json!({"anyOf": [form, {"enum": named}]});
        }
    }
    if !required.is_empty() {
        out["required"] = json!(required);
    }
    out
}

/// A key is required when its row says so, a section when it holds such a key and can't be absent.
fn is_required(shape: &Shape) -> bool {
    match shape.field {
        Some(field) if !field.is_container() => field.required,
        _ => shape.is_object() && !shape.is_optional() && shape.named.iter().any(is_required),
    }
}

fn of(shape: &Shape) -> Value {
    let mut out = match (&shape.item, shape.field) {
        (
            Some(item),
            Some(Field {
                kind: Kind::Records { max },
                ..
            }),
        ) => {
            json!({"type": "array", "items": object(item), "maxItems": max})
        }
        (_, Some(field)) if !field.is_container() => single(&field.kind),
        _ => object(shape),
    };
    let Some(field) = shape.field else { return out };
    out["description"] = json!(field.doc);
    if field.nullable {
        out["type"] = json!([out["type"], "null"]);
    }
    match field.default {
        Fallback::Meaning(meaning) => {
            out["description"] = json!(format!("{} Default: {meaning}.", field.doc))
        }
        _ => {
            if let Some(default) = value::default(field) {
                out["default"] = default;
            }
        }
    }
    out
}

fn single(kind: &Kind) -> Value {
    match kind {
        Kind::Bool => json!({"type": "boolean"}),
        Kind::Int { min, max } | Kind::Millis { min, max } => {
            json!({"type": "integer", "minimum": min, "maximum": max})
        }
        Kind::Number { min, max } => json!({"type": "number", "minimum": min, "maximum": max}),
        Kind::Choice(of) => json!({"type": "string", "enum": of}),
        Kind::IntChoice(of) => json!({"type": "integer", "enum": of}),
        Kind::Id => json!({"type": ["string", "integer"]}),
        Kind::List { item, max } => {
            json!({"type": "array", "items": single(item), "maxItems": max})
        }
        Kind::TextMap { max } => {
            json!({"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": max})
        }
        Kind::Payload => json!({"type": "object"}),
        Kind::Text { .. }
        | Kind::Path(_)
        | Kind::SecretEnv
        | Kind::SecretFile
        | Kind::SecretCredential => {
            let (max, form) = value::text_bounds(kind);
            // The bound counts bytes, the schema's characters: never fewer bytes than characters.
            let mut out = json!({"type": "string", "minLength": 1, "maxLength": max});
            if let Some(pattern) = form::pattern(form) {
                out["pattern"] = json!(pattern);
            }
            out
        }
        Kind::Section { .. } | Kind::Map { .. } | Kind::Records { .. } => json!({}),
    }
}
