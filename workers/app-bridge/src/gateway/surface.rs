//! What a model knows of a server's tools. A replacement that lost one, or changed what one takes,
//! is not the server that the model was told of (spec s2; facts 6.6). Pure.

use crate::apps::meta::visibility;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// Tools of one anchor.
const MAX_TOOLS: usize = 2048;

/// The tools that a model was told of, with what each takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Anchor(BTreeMap<String, String>);

/// What the model sees of a listing, and what else is to be known of it.
#[derive(Debug, Default)]
pub struct Seen {
    /// The tools that the model may see, in order.
    pub anchor: Anchor,
    /// Those whose results have pages.
    pub pages: BTreeSet<String>,
    /// Those that are not for a model.
    pub hidden: BTreeSet<String>,
}

/// Takes from a result of `tools/list` what is not for the model. Returns what is left to be known;
/// a result that is none is left as it is, and nothing is known.
pub fn narrow(result: &mut Value) -> Option<Seen> {
    let tools = result.get_mut("tools")?.as_array_mut()?;
    let meta = |tool: &Value| tool.get("_meta").and_then(Value::as_object).cloned();
    let mut seen = Seen::default();
    tools.retain(|tool| {
        let shown = match tool.get("_meta") {
            None | Some(Value::Null) => true,
            Some(Value::Object(meta)) => visibility(Some(meta)).model,
            // Malformed: for nobody.
            Some(_) => false,
        };
        if let (false, Some(name)) = (shown, tool.get("name").and_then(Value::as_str)) {
            seen.hidden.insert(name.to_owned());
        }
        shown
    });
    for tool in tools.iter() {
        let Some(name) = tool.get("name").and_then(Value::as_str) else {
            continue;
        };
        let schema = tool.get("inputSchema").unwrap_or(&Value::Null);
        let digest = hex::encode(Sha256::digest(sorted(schema).as_bytes()));
        seen.anchor.0.insert(name.to_owned(), digest);
        if meta(tool).is_some_and(|meta| has_page(&meta)) {
            seen.pages.insert(name.to_owned());
        }
    }
    Some(seen)
}

fn has_page(meta: &Map<String, Value>) -> bool {
    matches!(crate::apps::meta::page(Some(meta)), Ok(Some(_)))
}

/// JSON whose members are in order, so that another order is no other schema.
fn sorted(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let members: BTreeMap<_, _> = members.iter().collect();
            let member = |(key, value): (&String, &Value)| {
                format!("{}:{}", Value::from(key.as_str()), sorted(value))
            };
            let members: Vec<_> = members.into_iter().map(member).collect();
            format!("{{{}}}", members.join(","))
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(sorted).collect();
            format!("[{}]", items.join(","))
        }
        other => other.to_string(),
    }
}

impl Anchor {
    /// As a stub keeps it.
    #[must_use]
    pub fn to_text(&self) -> String {
        serde_json::to_string(&self.0).unwrap_or_default()
    }

    /// As a stub brings it along; none when it is not ours.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let tools: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
        let digest =
            |text: &String| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
        (tools.len() <= MAX_TOOLS && tools.values().all(digest)).then_some(Self(tools))
    }

    /// What of this a later listing lost or changed; additions are neither.
    #[must_use]
    pub fn broken_by(&self, later: &Self) -> Vec<String> {
        let differs = |(name, digest): &(&String, &String)| later.0.get(*name) != Some(*digest);
        let told = |(name, _): (&String, &String)| match later.0.contains_key(name) {
            true => format!("{name} (changed)"),
            false => format!("{name} (gone)"),
        };
        self.0.iter().filter(differs).map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn seen(mut listing: Value) -> (Vec<String>, Seen) {
        let seen = narrow(&mut listing).unwrap();
        let tools = listing["tools"].as_array().unwrap();
        let names = tools.iter().map(|t| t["name"].as_str().unwrap().to_owned());
        (names.collect(), seen)
    }

    #[test]
    fn the_model_sees_what_is_for_it() {
        let tool =
            |name: &str, meta: Value| json!({ "name": name, "_meta": meta, "inputSchema": {} });
        let ui = |visibility: Value| json!({ "ui": { "visibility": visibility } });
        let (names, seen) = seen(json!({ "tools": [
            { "name": "plain" },
            tool("null", Value::Null),
            tool("both", ui(json!(["model", "app"]))),
            tool("model", ui(json!("model"))),
            tool("page", json!({ "ui": { "resourceUri": "ui://a/b" } })),
            tool("app", ui(json!(["app"]))),
            tool("nobody", ui(json!([]))),
            tool("odd", ui(json!([1]))),
            tool("broken", json!("x")),
        ] }));
        assert_eq!(names, ["plain", "null", "both", "model", "page"]);
        assert_eq!(seen.anchor.0.len(), 5);
        assert_eq!(seen.pages, ["page".to_owned()].into());
        let hidden: Vec<_> = seen.hidden.iter().map(String::as_str).collect();
        assert_eq!(hidden, ["app", "broken", "nobody", "odd"]);
        assert!(narrow(&mut json!({ "tools": 1 })).is_none());
    }

    #[test]
    fn what_is_lost_or_changed_is_named_and_what_is_new_is_not() {
        let anchor = |tools: &[(&str, Value)]| {
            let tool =
                |(name, schema): &(&str, Value)| json!({ "name": name, "inputSchema": schema });
            let tools: Vec<_> = tools.iter().map(tool).collect();
            seen(json!({ "tools": tools })).1.anchor
        };
        let before = anchor(&[
            ("a", json!({ "x": 1, "y": 2 })),
            ("b", json!({})),
            ("c", json!({})),
        ]);
        let reordered: Value = serde_json::from_str(r#"{"y":2,"x":1}"#).unwrap();
        let after = anchor(&[("a", reordered), ("b", json!({ "z": 1 })), ("d", json!({}))]);
        assert_eq!(before.broken_by(&after), ["b (changed)", "c (gone)"]);
        assert!(before.broken_by(&before).is_empty());
        assert_eq!(Anchor::parse(&before.to_text()), Some(before));
        assert_eq!(Anchor::parse(r#"{"a":"b"}"#), None);
    }

    proptest! {
        /// The order of members says nothing, their values do.
        #[test]
        fn only_the_order_is_forgiven(keys in proptest::collection::btree_set("[a-d]{1,3}", 1..6), change in any::<bool>()) {
            let forward: String = keys.iter().map(|k| format!("\"{k}\":1")).collect::<Vec<_>>().join(",");
            let last = if change { 2 } else { 1 };
            let backward: String = keys.iter().rev().enumerate()
                .map(|(n, k)| format!("\"{k}\":{}", if n == 0 { last } else { 1 })).collect::<Vec<_>>().join(",");
            let one: Value = serde_json::from_str(&format!("{{{forward}}}")).unwrap();
            let two: Value = serde_json::from_str(&format!("{{{backward}}}")).unwrap();
            prop_assert_eq!(sorted(&one) != sorted(&two), change);
        }
    }
}
