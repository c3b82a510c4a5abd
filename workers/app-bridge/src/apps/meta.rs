//! What a server declares about apps in `_meta`: of a tool, of a result, of a page. Pure.
//!
//! Nested metadata wins over the flat key of older servers. What is malformed grants nothing
//! (spec s2, "App-originated tool calls"; facts 6.8).

use crate::limits::printable;
use ipc_proto::apps::Withheld;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The key of everything about apps.
const UI: &str = "ui";
/// The key of servers from before the nested form.
const FLAT: &str = "ui/resourceUri";
/// The scheme of a page's address.
const SCHEME: &str = "ui://";
/// Longest address of a page in bytes.
pub const MAX_URI: usize = 2048;
/// Origins of one kind that are looked at; what comes after them is told and withheld.
const MAX_DECLARED: usize = 64;
/// Bytes of something withheld that are told.
const MAX_TOLD: usize = 256;
/// Records of what is withheld.
pub const MAX_WITHHELD: usize = 64;

/// Who may call a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visibility {
    /// The model.
    pub model: bool,
    /// Apps of the same server.
    pub app: bool,
}

impl Visibility {
    /// Nothing is declared.
    pub const BOTH: Self = Self {
        model: true,
        app: true,
    };
    /// Something is declared that can't be understood.
    pub const NOBODY: Self = Self {
        model: false,
        app: false,
    };
}

/// The visibility that a tool's metadata declares.
#[must_use]
pub fn visibility(meta: Option<&Map<String, Value>>) -> Visibility {
    let ui = match meta.and_then(|meta| meta.get(UI)) {
        None | Some(Value::Null) => return Visibility::BOTH,
        Some(Value::Object(ui)) => ui,
        Some(_) => return Visibility::NOBODY,
    };
    let one;
    let audiences = match ui.get("visibility") {
        None | Some(Value::Null) => return Visibility::BOTH,
        Some(Value::Array(audiences)) => audiences.as_slice(),
        Some(text @ Value::String(_)) => {
            one = [text.clone()];
            &one
        }
        Some(_) => return Visibility::NOBODY,
    };
    let mut out = Visibility::NOBODY;
    for audience in audiences {
        match audience.as_str() {
            Some("model") => out.model = true,
            Some("app") => out.app = true,
            _ => return Visibility::NOBODY,
        }
    }
    out
}

/// Why a declared address is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the declared page has no ui:// address")]
pub struct NotAPage;

/// The page that metadata declares, if it declares one.
///
/// # Errors
/// [`NotAPage`] for any other scheme, blanks, control characters or more than [`MAX_URI`] bytes.
pub fn page(meta: Option<&Map<String, Value>>) -> Result<Option<String>, NotAPage> {
    let Some(meta) = meta else { return Ok(None) };
    let nested = meta.get(UI).and_then(|ui| ui.get("resourceUri"));
    let Some(declared) = nested.or_else(|| meta.get(FLAT)) else {
        return Ok(None);
    };
    let uri = declared.as_str().ok_or(NotAPage)?;
    let odd = |c: char| c.is_control() || c.is_whitespace();
    let path = uri.strip_prefix(SCHEME).ok_or(NotAPage)?;
    if path.is_empty() || uri.len() > MAX_URI || uri.contains(odd) {
        return Err(NotAPage);
    }
    Ok(Some(uri.to_owned()))
}

/// What a page's metadata asks for, as it stands there but bounded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Wishes {
    /// Origins for requests.
    pub connect: Vec<String>,
    /// Origins for pictures, styles, fonts and media.
    pub resource: Vec<String>,
    /// Origins for frames.
    pub frame: Vec<String>,
    /// Origins for the base address.
    pub base: Vec<String>,
    /// Names of permissions.
    pub permissions: Vec<String>,
    /// A border, or none.
    pub prefers_border: Option<bool>,
    /// What could not be read at all.
    pub withheld: Vec<Withheld>,
}

impl Wishes {
    fn withhold(&mut self, kind: &str, value: &str, reason: &str) {
        withhold(&mut self.withheld, kind, value, reason);
    }
}

/// Notes that something is withheld, within the bounds of the record.
pub fn withhold(list: &mut Vec<Withheld>, kind: &str, value: &str, reason: &str) {
    if list.len() < MAX_WITHHELD {
        list.push(Withheld {
            kind: kind.to_owned(),
            value: printable(value, MAX_TOLD),
            reason: reason.to_owned(),
        });
    }
}

/// The wishes of a page: its content item's metadata, else its listing's (draft of the MCP Apps
/// specification: the content item wins, whole).
#[must_use]
pub fn wishes(item: Option<&Map<String, Value>>, listing: Option<&Map<String, Value>>) -> Wishes {
    let ui = |meta: Option<&Map<String, Value>>| match meta.and_then(|meta| meta.get(UI)) {
        None | Some(Value::Null) => None,
        Some(ui) => Some(ui.clone()),
    };
    let mut out = Wishes::default();
    let ui = match ui(item).or_else(|| ui(listing)) {
        None => return out,
        Some(Value::Object(ui)) => ui,
        Some(other) => {
            out.withhold("meta", &other.to_string(), "invalid");
            return out;
        }
    };
    match ui.get("csp") {
        None | Some(Value::Null) => {}
        Some(Value::Object(csp)) => {
            out.connect = origins(&mut out, csp, "connect", "connectDomains");
            out.resource = origins(&mut out, csp, "resource", "resourceDomains");
            out.frame = origins(&mut out, csp, "frame", "frameDomains");
            out.base = origins(&mut out, csp, "base", "baseUriDomains");
        }
        Some(other) => out.withhold("meta", &other.to_string(), "invalid"),
    }
    match ui.get("permissions") {
        None | Some(Value::Null) => {}
        Some(Value::Object(permissions)) => {
            for (name, value) in permissions {
                match value {
                    // "Not wanted", in the way of some libraries.
                    Value::Null | Value::Bool(false) => {}
                    Value::Object(_) if out.permissions.len() < MAX_DECLARED => {
                        out.permissions.push(printable(name, MAX_TOLD));
                    }
                    _ => out.withhold("permission", name, "invalid"),
                }
            }
        }
        Some(other) => out.withhold("meta", &other.to_string(), "invalid"),
    }
    out.prefers_border = ui.get("prefersBorder").and_then(Value::as_bool);
    if ui.contains_key("domain") {
        out.withhold("meta", "domain", "unsupported");
    }
    out
}

fn origins(out: &mut Wishes, csp: &Map<String, Value>, kind: &str, key: &str) -> Vec<String> {
    let mut found = Vec::new();
    match csp.get(key) {
        None | Some(Value::Null) => {}
        Some(Value::Array(list)) => {
            for (n, value) in list.iter().enumerate() {
                match value {
                    _ if n == MAX_DECLARED => {
                        let rest = format!("{} more", list.len() - n);
                        out.withhold(kind, &rest, "too_many");
                        break;
                    }
                    // An address that is cut would be another address.
                    Value::String(text) if text.len() <= MAX_TOLD => found.push(text.clone()),
                    Value::String(text) => out.withhold(kind, text, "invalid"),
                    other => out.withhold(kind, &other.to_string(), "invalid"),
                }
            }
        }
        Some(other) => out.withhold(kind, &other.to_string(), "invalid"),
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn map(value: &Value) -> Option<&Map<String, Value>> {
        value.as_object()
    }

    #[test]
    fn visibility_is_both_when_absent_and_nobody_when_malformed() {
        let both = Visibility::BOTH;
        let nobody = Visibility::NOBODY;
        let model = Visibility { app: false, ..both };
        let app = Visibility {
            model: false,
            ..both
        };
        for (meta, expected) in [
            (json!({}), both),
            (json!({ "ui": null }), both),
            (json!({ "ui": {} }), both),
            (json!({ "ui": { "visibility": null } }), both),
            (json!({ "ui": { "visibility": ["model", "app"] } }), both),
            (
                json!({ "ui": { "visibility": ["app", "app", "model"] } }),
                both,
            ),
            (json!({ "ui": { "visibility": ["model"] } }), model),
            (json!({ "ui": { "visibility": ["app"] } }), app),
            (json!({ "ui": { "visibility": "app" } }), app),
            (json!({ "ui": { "visibility": "model" } }), model),
            (json!({ "ui": { "visibility": [] } }), nobody),
            (json!({ "ui": { "visibility": ["model", "x"] } }), nobody),
            (json!({ "ui": { "visibility": ["app", 1] } }), nobody),
            (json!({ "ui": { "visibility": ["App"] } }), nobody),
            (json!({ "ui": { "visibility": "both" } }), nobody),
            (json!({ "ui": { "visibility": { "app": true } } }), nobody),
            (json!({ "ui": { "visibility": true } }), nobody),
            (json!({ "ui": [] }), nobody),
            (json!({ "ui": "app" }), nobody),
            (json!({ "ui": 7 }), nobody),
        ] {
            assert_eq!(visibility(map(&meta)), expected, "{meta}");
        }
        assert_eq!(visibility(None), both);
    }

    #[test]
    fn a_page_is_nested_or_flat_and_only_ui() {
        let long = format!("ui://{}", "x".repeat(MAX_URI));
        for (meta, expected) in [
            (json!({}), Ok(None)),
            (json!({ "ui": { "visibility": ["app"] } }), Ok(None)),
            (
                json!({ "ui": { "resourceUri": "ui://a/b.html" } }),
                Ok(Some("ui://a/b.html")),
            ),
            (
                json!({ "ui/resourceUri": "ui://flat" }),
                Ok(Some("ui://flat")),
            ),
            (
                json!({ "ui": { "resourceUri": "ui://nested" }, "ui/resourceUri": "ui://flat" }),
                Ok(Some("ui://nested")),
            ),
            (
                json!({ "ui": { "resourceUri": "https://x" }, "ui/resourceUri": "ui://flat" }),
                Err(NotAPage),
            ),
            (json!({ "ui": { "resourceUri": 1 } }), Err(NotAPage)),
            (json!({ "ui": { "resourceUri": "" } }), Err(NotAPage)),
            (json!({ "ui": { "resourceUri": "ui://" } }), Err(NotAPage)),
            (json!({ "ui": { "resourceUri": "UI://a" } }), Err(NotAPage)),
            (
                json!({ "ui": { "resourceUri": "file:///etc/passwd" } }),
                Err(NotAPage),
            ),
            (json!({ "ui": { "resourceUri": " ui://a" } }), Err(NotAPage)),
            (
                json!({ "ui": { "resourceUri": "ui://a\nb" } }),
                Err(NotAPage),
            ),
            (json!({ "ui": { "resourceUri": long } }), Err(NotAPage)),
        ] {
            let expected = expected.map(|uri: Option<&str>| uri.map(str::to_owned));
            assert_eq!(page(map(&meta)), expected, "{meta}");
        }
    }

    #[test]
    fn the_content_item_wins_whole_and_the_listing_stands_in() {
        let item = json!({ "ui": { "csp": { "connectDomains": ["https://item"] } } });
        let listing = json!({ "ui": { "csp": { "connectDomains": ["https://list"],
            "resourceDomains": ["https://list"] }, "prefersBorder": false } });
        let both = wishes(map(&item), map(&listing));
        assert_eq!(both.connect, ["https://item"]);
        assert!(both.resource.is_empty() && both.prefers_border.is_none());
        let none = json!({ "other": 1 });
        let fallback = wishes(map(&none), map(&listing));
        assert_eq!(fallback.connect, ["https://list"]);
        assert_eq!(fallback.prefers_border, Some(false));
        assert_eq!(wishes(None, None), Wishes::default());
    }

    #[test]
    fn what_can_not_be_read_is_told() {
        let many: Vec<String> = (0..70).map(|n| format!("https://h{n}")).collect();
        let meta = json!({ "ui": { "csp": { "connectDomains": many, "frameDomains": "https://x",
            "resourceDomains": [1, "x".repeat(300)] },
            "permissions": { "clipboardWrite": {}, "camera": {}, "x": true, "geolocation": null },
            "domain": "a.example" } });
        let wishes = wishes(map(&meta), None);
        assert_eq!(wishes.connect.len(), 64);
        assert_eq!(wishes.permissions, ["camera", "clipboardWrite"]);
        let told: Vec<_> = wishes
            .withheld
            .iter()
            .map(|w| (&*w.kind, &*w.reason))
            .collect();
        assert_eq!(
            told,
            [
                ("connect", "too_many"),
                ("resource", "invalid"),
                ("resource", "invalid"),
                ("frame", "invalid"),
                ("permission", "invalid"),
                ("meta", "unsupported"),
            ]
        );
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            "[a-z:/]{0,12}".prop_map(Value::from),
            prop::sample::select(vec!["model", "app", "ui://x"]).prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            let keys = prop::sample::select(vec![
                "ui",
                "ui/resourceUri",
                "resourceUri",
                "visibility",
                "csp",
                "connectDomains",
                "permissions",
                "prefersBorder",
            ]);
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((keys, inner), 0..5).prop_map(|pairs| {
                    Value::Object(pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_metadata_breaks_anything(value in any_json()) {
            let meta = value.as_object();
            let _ = visibility(meta);
            if let Ok(Some(uri)) = page(meta) {
                prop_assert!(uri.starts_with("ui://"));
            }
            let wishes = wishes(meta, meta);
            prop_assert!(wishes.withheld.len() <= MAX_WITHHELD);
        }
    }
}
