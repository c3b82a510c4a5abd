//! Whether a result asks for a message, decided from the submitted payload alone and before any model call
//! (spec s1, "Named routes"). A model could be talked into either answer by the payload.

use crate::canonical::Json;

/// False for an object with `"actionable": false`, or with a `status` of `nothing_to_report` or
/// `not_applicable` in any case and with any space around. Anything else, also text and arrays, is actionable.
#[must_use]
pub fn is_actionable(payload: &Json) -> bool {
    if payload.get("actionable") == Some(&Json::Bool(false)) {
        return false;
    }
    let Some(Json::Text(status)) = payload.get("status") else {
        return true;
    };
    let status = status.as_str().unwrap_or_default().trim().to_lowercase();
    status != "nothing_to_report" && status != "not_applicable"
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn is_actionable(payload: &Value) -> bool {
        super::is_actionable(&Json::parse(&payload.to_string()).unwrap())
    }

    #[test]
    fn only_an_object_that_says_so_is_not_actionable() {
        for payload in [
            json!({"actionable": false}),
            json!({"actionable": false, "status": "urgent"}),
            json!({"status": "nothing_to_report"}),
            json!({"status": " Nothing_To_Report\n"}),
            json!({"status": "NOT_APPLICABLE", "actionable": true}),
        ] {
            assert!(!is_actionable(&payload), "{payload}");
        }
        for payload in [
            json!({}),
            json!(null),
            json!(false),
            json!("nothing_to_report"),
            json!(["nothing_to_report"]),
            json!([{"actionable": false}]),
            json!({"actionable": 0}),
            json!({"actionable": "false"}),
            json!({"actionable": null}),
            json!({"status": "nothing to report"}),
            json!({"status": ["nothing_to_report"]}),
            json!({"result": {"actionable": false}}),
            json!({"Actionable": false}),
        ] {
            assert!(is_actionable(&payload), "{payload}");
        }
    }
}
