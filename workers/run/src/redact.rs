//! A tool call's arguments as they may be recorded and shown: values under names that promise a
//! secret are masked, the whole is cut.
//!
//! Forms of credentials are not looked for: people see the command that is run, and the store takes
//! them out of what it puts before a model.

use ipc_proto::text::cut;
use secret_signs::{MASK, may_name_secret};
use serde_json::Value;

/// Bytes of recorded arguments.
pub const MAX_ARGUMENTS: usize = 4096;
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
                let value = if may_name_secret(name) {
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
    fn the_names_are_the_shared_ones() {
        use secret_signs::examples::{FIGURES, ORDINARY_NAMES, SECRET_NAMES};
        for name in SECRET_NAMES.iter().chain(&FIGURES) {
            assert_eq!(
                arguments(&json!({ *name: "x" })),
                json!({ *name: MASK }).to_string()
            );
        }
        for name in ORDINARY_NAMES {
            let plain = json!({ name: "x" });
            assert_eq!(arguments(&plain), plain.to_string());
        }
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
