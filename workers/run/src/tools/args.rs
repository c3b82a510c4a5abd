//! Checks a call's arguments against the tool's own schema before anything is done with them.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Violations told to the model at once; a call with more is beyond mending by a list.
const MAX_TOLD: usize = 5;

/// Parses the JSON text that a model wrote. No text at all counts as no arguments, which is how
/// some models call a tool that needs none.
///
/// # Errors
/// A sentence for the model.
pub fn parse_object(text: &str) -> Result<Value, String> {
    if text.trim().is_empty() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => {
            Err("The arguments must be a JSON object. Call the tool again with one.".to_owned())
        }
        Err(error) => Err(format!(
            "The arguments are not valid JSON ({error}). Call the tool again with one JSON object."
        )),
    }
}

/// Checks `arguments` by `schema` and reads them into `T`.
///
/// # Errors
/// One sentence per violation (at most five), each naming where it is. No argument value is
/// repeated: it may be megabytes long.
pub fn check<T: DeserializeOwned>(schema: &Value, arguments: Value) -> Result<T, String> {
    let validator = jsonschema::validator_for(schema).map_err(|error| {
        format!("This tool's own schema is broken ({error}); the tool can't be used.")
    })?;
    let mut told: Vec<String> = validator
        .iter_errors(&arguments)
        .take(MAX_TOLD)
        .map(|error| {
            let at = error.instance_path().to_string();
            let place = if at.is_empty() {
                "the arguments".to_owned()
            } else {
                at.trim_start_matches('/').to_owned()
            };
            format!("{place}: {}", error.masked())
        })
        .collect();
    if told.is_empty() {
        match serde_json::from_value(arguments) {
            Ok(parsed) => return Ok(parsed),
            Err(error) => told.push(error.to_string()),
        }
    }
    Err(format!(
        "Invalid arguments. {}. Correct them and call the tool again.",
        told.join("; ")
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Debug, Deserialize, PartialEq)]
    struct Args {
        path: String,
    }

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": { "path": { "type": "string", "minLength": 1, "maxLength": 4 } },
            "required": ["path"],
            "additionalProperties": false
        })
    }

    #[test]
    fn text_that_is_no_object_is_refused_with_advice() {
        assert_eq!(parse_object(" "), Ok(json!({})));
        assert_eq!(parse_object("{\"a\":1}"), Ok(json!({"a": 1})));
        for bad in ["[1]", "3", "null", "{\"a\":", "{\"a\":1} x"] {
            assert!(
                parse_object(bad).is_err_and(|told| told.contains("again")),
                "{bad}"
            );
        }
    }

    #[test]
    fn every_violation_is_told_by_place_and_without_the_value() {
        assert_eq!(
            check::<Args>(&schema(), json!({"path": "a"})),
            Ok(Args { path: "a".into() })
        );
        let told =
            check::<Args>(&schema(), json!({"path": "secret-and-long", "oops": 1})).unwrap_err();
        assert!(
            told.contains("path: ") && told.contains("oops") && told.contains("longer"),
            "{told}"
        );
        assert!(!told.contains("secret"), "{told}");
        let told = check::<Args>(&schema(), json!({})).unwrap_err();
        assert!(told.contains("\"path\" is a required property"), "{told}");
    }
}
