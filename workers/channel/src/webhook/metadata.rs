//! A caller's own words about a request, and the run's, as they are told.
//!
//! Between two readers they are text: as a tree, many small values take some eighty times their
//! bytes, and the bound on records counts only those.

use serde::ser::Error;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The member that is the run's own: a caller's is left out, so that nothing of a prompt can stand
/// in it.
const SUMMARY: &str = "summary";

/// The members of an object. A clone shares the caller's, which nobody can change.
#[derive(Debug, Clone, PartialEq)]
pub struct Metadata {
    /// The caller's, without the braces around them.
    callers: Arc<str>,
    summary: Option<Value>,
}

impl Metadata {
    /// Of a caller, before there is a run.
    #[must_use]
    pub fn of(mut callers: Map<String, Value>) -> Self {
        callers.remove(SUMMARY);
        let json = Value::Object(callers).to_string();
        let members = json
            .strip_prefix('{')
            .and_then(|json| json.strip_suffix('}'));
        Self {
            callers: members.unwrap_or_default().into(),
            summary: None,
        }
    }

    /// What the run says of itself.
    pub fn sum_up(&mut self, summary: Value) {
        self.summary = Some(summary);
    }

    /// True when there is nothing to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.callers.is_empty() && self.summary.is_none()
    }

    /// How many bytes the caller's part holds.
    #[must_use]
    pub fn size(&self) -> usize {
        self.callers.len()
    }
}

impl Serialize for Metadata {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let summary = self.summary.as_ref();
        let summary = summary.map(|summary| format!("\"{SUMMARY}\":{summary}"));
        let gap = match &summary {
            Some(_) if !self.callers.is_empty() => ",",
            _ => "",
        };
        let object = format!("{{{}{gap}{}}}", self.callers, summary.unwrap_or_default());
        RawValue::from_string(object)
            .map_err(S::Error::custom)?
            .serialize(to)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn of(json: &str) -> Metadata {
        Metadata::of(serde_json::from_str(json).unwrap())
    }

    #[test]
    fn a_callers_words_are_told_as_they_came_beside_the_runs() {
        for (callers, without, with) in [
            ("{}", "{}", r#"{"summary":{"runId":"r"}}"#),
            (
                r#"{"summary":{"systemPrompt":"secret"},"ticket":7}"#,
                r#"{"ticket":7}"#,
                r#"{"ticket":7,"summary":{"runId":"r"}}"#,
            ),
            (
                r#"{"a":[{"":0},null,1e-7,"}"],"b":"é\"\n"}"#,
                r#"{"a":[{"":0},null,1e-7,"}"],"b":"é\"\n"}"#,
                r#"{"a":[{"":0},null,1e-7,"}"],"b":"é\"\n","summary":{"runId":"r"}}"#,
            ),
        ] {
            let mut metadata = of(callers);
            assert_eq!(metadata.is_empty(), callers == "{}");
            assert_eq!(serde_json::to_string(&metadata).unwrap(), without);
            metadata.sum_up(json!({ "runId": "r" }));
            assert!(!metadata.is_empty());
            assert_eq!(serde_json::to_string(&metadata).unwrap(), with);
            assert_eq!(
                json!(metadata),
                serde_json::from_str::<Value>(with).unwrap()
            );
        }
    }

    #[test]
    fn what_is_kept_is_what_came_and_once() {
        let many = format!(r#"{{"many":[{}0]}}"#, r#"{"":0},"#.repeat(2_000));
        let metadata = of(&many);
        assert_eq!(metadata.size(), many.len() - 2);
        let read = metadata.clone();
        assert!(Arc::ptr_eq(&metadata.callers, &read.callers));
    }
}
