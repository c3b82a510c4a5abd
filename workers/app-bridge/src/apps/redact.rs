//! Credentials taken out of what goes to an app: out of keys and values, at every depth (spec s2,
//! "Rendering and delivery"; facts 6.9). Pure.
//!
//! Inline media is left alone only where the page can send nothing anywhere.

use regex::{Regex, RegexSet};
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// What stands in place of what was taken out.
pub const MASK: &str = "[redacted]";
/// What stands in place of media that a page might carry away.
pub const MEDIA: &str = "[inline media withheld]";
/// Deepest nesting looked into; what is below is taken out.
const MAX_DEPTH: usize = 64;

/// Parts of a key, lower case without separators, that promise a secret.
const SECRET_KEYS: [&str; 12] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "apikey",
    "authorization",
    "cookie",
    "credential",
    "privatekey",
    "accesskey",
    "bearer",
    "jwt",
];
/// Keys that end so promise a token; `tokens` counts them.
const TOKEN: &str = "token";

/// Credentials by their form. Each has to be long enough not to be a word.
const PATTERNS: [&str; 9] = [
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
    r"\b(?:sk|pk|rk)[-_](?:[A-Za-z0-9]+[-_])*[A-Za-z0-9]{16,}",
    r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}|\bglpat-[A-Za-z0-9_-]{16,}",
    r"\bxox[abeprs]-[A-Za-z0-9-]{10,}",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"\bAIza[A-Za-z0-9_-]{30,}",
    r"(?i)\b(?:bearer|basic)\s+[A-Za-z0-9+/._~=-]{12,}",
    r"(?i)\b[a-z][a-z0-9+.-]{1,20}://[^\s/?#@]+:[^\s/?#@]+@",
];

/// Addresses that carry a secret in their query: with what is in it, the query goes.
const QUERY: &str = r"(?i)([?&;](?:[a-z_.-]*(?:token|secret|password|apikey|api_key|signature|sig|auth|key))=)[^&\s#]+";

/// No text that is shorter is, or holds, a credential that the rules know.
const SHORTEST: usize = 6;

static RULES: LazyLock<Option<(RegexSet, Vec<Regex>, Regex)>> = LazyLock::new(|| {
    // All of them at once, for the many texts in which there is nothing.
    let set = RegexSet::new(PATTERNS.into_iter().chain([QUERY])).ok()?;
    let each: Result<Vec<Regex>, _> = PATTERNS.iter().map(|pattern| Regex::new(pattern)).collect();
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
                Value::Null | Value::Bool(_) | Value::Number(_) if !is_secret(&key) => value,
                Value::String(data) if media && matches!(key.as_str(), "data" | "blob") => {
                    self.media(data).into()
                }
                _ if is_secret(&key) => {
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
            text = rule.replace_all(&text, MASK).into_owned();
            self.changed = true;
        }
        if let std::borrow::Cow::Owned(masked) = query.replace_all(&text, format!("${{1}}{MASK}")) {
            self.changed = true;
            text = masked;
        }
        text
    }
}

/// A key whose value is a secret whatever it looks like.
#[must_use]
pub fn is_secret(key: &str) -> bool {
    let plain: String = key
        .chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect();
    plain.ends_with(TOKEN) || SECRET_KEYS.iter().any(|part| plain.contains(part))
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
    use serde_json::json;

    #[test]
    fn secrets_are_known_by_their_key() {
        for (key, secret) in [
            ("password", true),
            ("dbPassword", true),
            ("API-Key", true),
            ("api_key", true),
            ("access_token", true),
            ("Set-Cookie", true),
            ("clientSecret", true),
            ("authorization", true),
            ("tokens", false),
            ("tokenCount", false),
            ("author", false),
            ("name", false),
            ("key", false),
        ] {
            assert_eq!(is_secret(key), secret, "{key}");
        }
        let (value, changed) = redact(json!({ "a": [{ "apiKey": { "deep": 1 } }], "b": 2 }), false);
        assert_eq!(value, json!({ "a": [{ "apiKey": MASK }], "b": 2 }));
        assert!(changed);
    }

    #[test]
    fn secrets_are_known_by_their_form_in_keys_and_values() {
        for secret in [
            "sk-proj-abcdefghijklmnop1234",
            "ghp_abcdefghijklmnopqrstuvwxyz0123",
            "xoxb-1234567890-abcdef",
            "AKIAABCDEFGHIJKLMNOP",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
            "Bearer abcdefghijklmnop",
            "postgres://user:pw@db/x",
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
        ] {
            let text = format!("before {secret} after");
            let (value, changed) = redact(json!({ "v": text, secret: 1 }), false);
            let shown = value.to_string();
            assert!(
                changed && shown.contains("before ") && shown.contains(MASK),
                "{shown}"
            );
            assert!(!shown.contains(secret), "{shown}");
        }
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
