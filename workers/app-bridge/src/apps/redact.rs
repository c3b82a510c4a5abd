//! Credentials taken out of what goes to an app: out of keys and values, at every depth (spec s2,
//! "Rendering and delivery"; facts 6.9). Pure.
//!
//! Inline media is left alone only where the page can send nothing anywhere.

use regex::{Regex, RegexSet};
use secret_signs::{FORMS, MASK, MASKED_MATCH, names_secret};
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// What stands in place of media that a page might carry away.
pub const MEDIA: &str = "[inline media withheld]";
/// Deepest nesting looked into; what is below is taken out.
const MAX_DEPTH: usize = 64;

/// Addresses that carry a secret in their query: with what is in it, the query goes.
const QUERY: &str = r"(?i)([?&;](?:[a-z_.-]*(?:token|secret|password|apikey|api_key|signature|sig|auth|key))=)[^&\s#]+";

/// No text that is shorter is, or holds, a credential that the rules know.
const SHORTEST: usize = 6;

static RULES: LazyLock<Option<(RegexSet, Vec<Regex>, Regex)>> = LazyLock::new(|| {
    // All of them at once, for the many texts in which there is nothing.
    let forms = FORMS.map(|form| form.pattern);
    let set = RegexSet::new(forms.into_iter().chain([QUERY])).ok()?;
    let each: Result<Vec<Regex>, _> = forms.into_iter().map(Regex::new).collect();
    Some((set, each.ok()?, Regex::new(QUERY).ok()?))
});

/// A value without credentials, and whether anything was taken out. `egress`: the page can send
/// something somewhere.
#[must_use]
pub fn redact(value: Value, egress: bool) -> (Value, bool) {
    let mut redactor = Redactor {
        egress,
        changed: false,
    };
    let value = redactor.value(value, 0);
    (value, redactor.changed)
}

struct Redactor {
    egress: bool,
    changed: bool,
}

impl Redactor {
    fn value(&mut self, value: Value, depth: usize) -> Value {
        if depth > MAX_DEPTH {
            self.changed = true;
            return MASK.into();
        }
        match value {
            Value::Object(fields) => Value::Object(self.object(fields, depth)),
            Value::Array(items) => items
                .into_iter()
                .map(|item| self.value(item, depth + 1))
                .collect(),
            Value::String(text) => self.text(text).into(),
            other => other,
        }
    }

    fn object(&mut self, fields: Map<String, Value>, depth: usize) -> Map<String, Value> {
        let media = is_media_block(&fields);
        let mut out = Map::new();
        for (key, value) in fields {
            let value = match value {
                Value::Null | Value::Bool(_) | Value::Number(_) if !names_secret(&key) => value,
                Value::String(data) if media && matches!(key.as_str(), "data" | "blob") => {
                    self.media(data).into()
                }
                _ if names_secret(&key) => {
                    self.changed = true;
                    MASK.into()
                }
                other => self.value(other, depth + 1),
            };
            // Two keys that become one: the later value stands, which is a loss and no leak.
            out.insert(self.text(key), value);
        }
        out
    }

    fn media(&mut self, data: String) -> String {
        if self.egress {
            self.changed = true;
            MEDIA.to_owned()
        } else {
            data
        }
    }

    fn text(&mut self, text: String) -> String {
        if is_data_address(&text) && (self.egress || is_media_address(&text)) {
            return self.media(text);
        }
        let Some((set, each, query)) = RULES.as_ref() else {
            // Rules that can't be read must not mean that everything passes.
            self.changed = true;
            return MASK.to_owned();
        };
        if text.len() < SHORTEST || !set.is_match(&text) {
            return text;
        }
        let mut text = text;
        for rule in set.matches(&text).iter().filter_map(|at| each.get(at)) {
            text = rule.replace_all(&text, MASKED_MATCH).into_owned();
            self.changed = true;
        }
        if let std::borrow::Cow::Owned(masked) = query.replace_all(&text, format!("${{1}}{MASK}")) {
            self.changed = true;
            text = masked;
        }
        text
    }
}

/// A block of the protocol whose bytes are base64: scanning them would find what is not there.
fn is_media_block(fields: &Map<String, Value>) -> bool {
    let text = |key: &str| fields.get(key).and_then(Value::as_str);
    matches!(text("type"), Some("image" | "audio"))
        || (text("blob").is_some() && text("uri").is_some())
}

/// An address that is its own content. Lines of text that begin so have a blank there.
fn is_data_address(text: &str) -> bool {
    head_of(text).is_some_and(|head| !head.contains(char::is_whitespace))
}

/// One whose content is no text.
fn is_media_address(text: &str) -> bool {
    let kinds = ["image/", "audio/", "video/", "font/"];
    let is = |head: &str, kind: &str| {
        let start = head.get(..kind.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(kind))
    };
    head_of(text).is_some_and(|head| kinds.iter().any(|kind| is(head, kind)))
}

/// What stands between `data:` and the comma before the content.
fn head_of(text: &str) -> Option<&str> {
    let scheme = text.get(..5)?;
    let rest = &text[5..text.floor_char_boundary(256)];
    let head = rest.split_once(',').map(|(head, _)| head);
    head.filter(|_| scheme.eq_ignore_ascii_case("data:"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use secret_signs::examples::*;
    use serde_json::json;

    #[test]
    fn secrets_are_known_by_their_key() {
        for name in SECRET_NAMES {
            let (value, changed) = redact(json!({ name: "x" }), false);
            assert!(changed && value == json!({ name: MASK }), "{value}");
        }
        for name in FIGURES.iter().chain(&ORDINARY_NAMES) {
            let plain = json!({ *name: "x" });
            assert_eq!(redact(plain.clone(), false), (plain, false));
        }
        let (value, changed) = redact(json!({ "a": [{ "apiKey": { "deep": 1 } }], "b": 2 }), false);
        assert_eq!(value, json!({ "a": [{ "apiKey": MASK }], "b": 2 }));
        assert!(changed);
    }

    #[test]
    fn secrets_are_known_by_their_form_in_keys_and_values() {
        for secret in CREDENTIALS {
            let text = format!("before {secret} after");
            let (value, changed) = redact(json!({ "v": text, secret: 1 }), false);
            let shown = value.to_string();
            assert!(
                changed && shown.contains("before ") && shown.contains(MASK),
                "{shown}"
            );
            assert!(
                !value["v"].as_str().unwrap_or(secret).contains(secret),
                "{shown}"
            );
            assert!(value.get(secret).is_none(), "{shown}");
            // Nothing of its end either.
            let end = &secret[secret.len() - 4..];
            let (value, _) = redact(json!(secret), false);
            assert!(
                !value.to_string().contains(end) || secret.contains("://"),
                "{value}"
            );
        }
        let (value, _) = redact(json!("see postgres://user:pw@db/x"), false);
        assert_eq!(value, json!(format!("see postgres://{MASK}@db/x")));
        let (value, _) = redact(json!("https://x.example/p?a=1&token=abc&b=2"), false);
        assert_eq!(
            value,
            json!(format!("https://x.example/p?a=1&token={MASK}&b=2"))
        );
    }

    #[test]
    fn ordinary_data_passes_unchanged() {
        let plain = json!({ "rows": [1, 2.5, null, true], "text": "The basic idea: sk8 and bear.",
            "url": "https://example.com/a?b=c", "sum": { "tokens": 12 }, "time": "12:00:00" });
        assert_eq!(redact(plain.clone(), true), (plain, false));
        let voice = json!([
            "sk-SK-ViktoriaNeural",
            "ASIAPACIFICHEADQUARTERS",
            "Basic settings",
            "ssh://git@example.org/x",
            "1700000000:0123456789abcdef0123456789abcdef"
        ]);
        assert_eq!(redact(voice.clone(), true), (voice, false));
        for text in ORDINARY {
            assert_eq!(redact(json!(text), true), (json!(text), false));
        }
    }

    #[test]
    fn inline_media_passes_only_where_nothing_can_leave() {
        let value = json!({ "content": [{ "type": "image", "mimeType": "image/png", "data": "AAAA" }],
            "src": "data:image/png;base64,AAAA",
            "resource": { "uri": "a:b", "blob": "AAAA" } });
        assert_eq!(redact(value.clone(), false), (value.clone(), false));
        let (masked, changed) = redact(value, true);
        assert!(changed);
        assert_eq!(masked["content"][0]["data"], MEDIA);
        assert_eq!(masked["src"], MEDIA);
        assert_eq!(masked["resource"]["blob"], MEDIA);
    }

    #[test]
    fn text_that_looks_like_an_address_of_media_is_read() {
        let key = "ghp_abcdefghijklmnopqrstuvwxyz0123";
        for text in [
            format!("data: {{\"ok\":1,\"key\":\"{key}\"}}"),
            format!("data:,{key} "),
            format!("data:text/plain,{key} "),
            format!("data:application/json,\"{key}\""),
        ] {
            let (value, changed) = redact(json!(text), false);
            assert!(changed && !value.to_string().contains(key), "{value}");
            let (value, changed) = redact(json!(text), true);
            assert!(changed && !value.to_string().contains(key), "{value}");
        }
        // A line of a stream is no media.
        let line = json!("data: {\"a\":1,\"b\":2}");
        assert_eq!(redact(line.clone(), true), (line, false));
        let picture = json!("DATA:Image/svg+xml;utf8,<svg/>");
        assert_eq!(redact(picture.clone(), false), (picture.clone(), false));
        assert_eq!(redact(picture, true), (json!(MEDIA), true));
        assert_eq!(redact(json!("data:"), true), (json!("data:"), false));
    }

    #[test]
    fn what_is_nested_too_deep_is_taken_out() {
        let mut value = json!("Bearer abcdefghijklmnop");
        for _ in 0..100 {
            value = json!([value]);
        }
        let (masked, changed) = redact(value, false);
        assert!(changed && masked.to_string().contains(MASK));
    }

    proptest! {
        #[test]
        fn redacting_twice_changes_nothing_more(text in "\\PC{0,60}") {
            let (once, _) = redact(json!({ "a": text }), true);
            let (twice, changed) = redact(once.clone(), true);
            prop_assert_eq!(&once, &twice);
            prop_assert!(!changed || once.to_string().contains(MEDIA) || once.to_string().contains(MASK));
        }
    }
}
