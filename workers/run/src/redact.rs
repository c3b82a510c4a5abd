//! A tool call's arguments as they may be recorded and shown: values under names that promise a
//! secret are masked, the whole is cut.

use ipc_proto::text::cut;
use serde_json::Value;

/// Bytes of recorded arguments.
pub const MAX_ARGUMENTS: usize = 4096;
/// Parts of a name, lower case without separators, that promise a secret.
const SECRET_NAMES: [&str; 10] = [
    "token",
    "secret",
    "password",
    "passwd",
    "apikey",
    "authorization",
    "cookie",
    "credential",
    "privatekey",
    "passphrase",
];
/// What stands in a masked value's place.
const MASK: &str = "[redacted]";
/// Deepest nesting looked into; below it everything is masked.
const MAX_DEPTH: usize = 32;

/// The arguments as JSON text of at most [`MAX_ARGUMENTS`] bytes.
#[must_use]
pub fn arguments(arguments: &Value) -> String {
    cut(&masked(arguments, 0).to_string(), MAX_ARGUMENTS).to_owned()
}

fn masked(value: &Value, depth: usize) -> Value {
    if depth > MAX_DEPTH {
        return MASK.into();
    }
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| {
                let value = if is_secret(name) {
                    MASK.into()
                } else {
                    masked(value, depth + 1)
                };
                (name.clone(), value)
            })
            .collect(),
        Value::Array(items) => items.iter().map(|item| masked(item, depth + 1)).collect(),
        other => other.clone(),
    }
}

fn is_secret(name: &str) -> bool {
    let plain: String = name
        .chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect();
    SECRET_NAMES.iter().any(|part| plain.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_are_masked_by_name_at_any_depth() {
        let shown = arguments(&json!({
            "url": "https://e.com",
            "headers": { "Authorization": "Bearer x", "X-Api-Key": "k", "Accept": "*/*" },
            "list": [{ "client_secret": { "a": 1 } }],
        }));
        assert_eq!(
            shown,
            r#"{"headers":{"Accept":"*/*","Authorization":"[redacted]","X-Api-Key":"[redacted]"},"list":[{"client_secret":"[redacted]"}],"url":"https://e.com"}"#
        );
    }

    #[test]
    fn the_whole_is_cut() {
        assert_eq!(
            arguments(&json!({ "content": format!("a{}", "é".repeat(5000)) })).len(),
            MAX_ARGUMENTS - 1
        );
    }

    #[test]
    fn what_lies_too_deep_is_masked() {
        let mut deep = json!("hidden");
        for _ in 0..40 {
            deep = json!([deep]);
        }
        assert!(!arguments(&deep).contains("hidden"));
    }
}
