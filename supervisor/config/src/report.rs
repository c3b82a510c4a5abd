//! What each key is, and who said so.

use crate::field::{Fallback, Field, Kind};
use serde::Serialize;
use serde_json::Value;
use std::fmt;

/// Who set a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    Env,
    Json,
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Env => "[env]",
            Origin::Json => "[json]",
            Origin::Default => "[default]",
        })
    }
}

/// One line of `config show`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldReport {
    pub key: String,
    /// The value as JSON; a secret only as `set` or `unset`.
    pub value: String,
    pub origin: Origin,
}

impl FieldReport {
    pub(crate) fn new(
        field: &Field,
        key: &str,
        value: Option<&Value>,
        origin: Origin,
    ) -> FieldReport {
        let value = match value {
            _ if field.secret => if value.is_some() { "set" } else { "unset" }.to_string(),
            Some(Value::Object(_)) if field.kind == Kind::Payload => "set".to_string(),
            Some(value) => value.to_string(),
            None => match field.default {
                Fallback::Meaning(meaning) => format!("unset ({})", meaning.replace('`', "")),
                _ => "unset".to_string(),
            },
        };
        FieldReport {
            key: key.to_string(),
            value,
            origin,
        }
    }
}
