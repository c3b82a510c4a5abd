//! Taking secrets out of text before it is put before a model again.
//!
//! A net for what people and tools print by mistake, not a proof: the exact text stays in the
//! owner-only database.

use regex::Regex;
use secret_signs::{FORMS, HEADERS, MASKED_MATCH, NAMES, TOKEN};
use std::sync::LazyLock;

/// Patterns and what they become; `$1` and `$2` keep the harmless surroundings.
static RULES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let headers = HEADERS.join("|");
    // The names that are two words are those with `key`.
    let names = NAMES.map(|name| name.replace("key", "[_-]?key")).join("|");
    let own = [
        // Header lines whose whole value is a credential.
        (format!(r"(?i)\b({headers}|x-api-key)(\W{{0,2}}[:=]\s*)[^\r\n]+"), "$1$2[redacted]"),
        // Looser than the shared forms: an account of a turn may lose a word too many.
        (r"(?i)\b(bearer|basic)(\s+)[a-z0-9._~+/=-]{8,}".to_owned(), "$1$2[redacted]"),
        (r"(?i)\b([a-z][a-z0-9+.-]{1,20}://)[^\s/@]+@".to_owned(), "$1[redacted]@"),
        (
            r"\b(?:sk-[A-Za-z0-9_-]{16,}|xapp-[A-Za-z0-9-]{10,}|A(?:KIA|SIA)[0-9A-Z]{16}|\d{8,12}:[A-Za-z0-9_-]{30,})".to_owned(),
            "[redacted]",
        ),
        // Assignments to names that say what they hold.
        (
            format!(
                r#"(?i)\b([a-z0-9_.-]*(?:{names}|{TOKEN})[a-z0-9_.-]*)(\\?["']?\s*[:=]\s*\\?["']?)[^\s"'\\,;&}}]{{3,}}"#
            ),
            "$1$2[redacted]",
        ),
    ];
    let shared = FORMS.map(|form| (form.pattern.to_owned(), MASKED_MATCH));
    let all = shared.into_iter().chain(own);
    // A pattern that doesn't compile is found by the tests, which use every one.
    all.filter_map(|(pattern, with)| Regex::new(&pattern).ok().map(|regex| (regex, with)))
        .collect()
});

/// `text` without what looks like a secret. Redact first and cut afterwards: half a secret has no
/// look any more.
#[must_use]
pub fn redact(text: &str) -> String {
    let mut out = text.to_owned();
    for (regex, with) in RULES.iter() {
        if let std::borrow::Cow::Owned(changed) = regex.replace_all(&out, *with) {
            out = changed;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use secret_signs::examples;

    #[test]
    fn secrets_by_table() {
        assert_eq!(RULES.len(), FORMS.len() + 5, "every pattern compiles");
        for (text, expected) in [
            (
                "curl -H 'Authorization: Bearer abc.def-123456'",
                "curl -H 'Authorization: [redacted]",
            ),
            ("send bearer abcdefgh12345", "send bearer [redacted]"),
            ("Cookie: a=b; c=d\nnext", "Cookie: [redacted]\nnext"),
            (
                "git clone https://me:pw@example.org/x",
                "git clone https://[redacted]@example.org/x",
            ),
            (
                "OPENAI_API_KEY=hunter22 run",
                "OPENAI_API_KEY=[redacted] run",
            ),
            (
                r#"{"password":"hunter22","n":1}"#,
                r#"{"password":"[redacted]","n":1}"#,
            ),
            (
                r#"{"a":"{\"token\": \"hunter22\"}"}"#,
                r#"{"a":"{\"token\": \"[redacted]\"}"}"#,
            ),
            ("db_passwd: hunter22, x", "db_passwd: [redacted], x"),
            ("use sk-proj-abcdefghijklmnop now", "use [redacted] now"),
            ("ghp_abcdefghijklmnopqrstuv", "[redacted]"),
            ("xoxb-1234567890-abc", "[redacted]"),
            ("AKIAABCDEFGHIJKLMNOP", "[redacted]"),
            ("eyJhbGciOiJI.eyJzdWIiOiIx.sig", "[redacted]"),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nAAA\n-----END RSA PRIVATE KEY-----\nend",
                "[redacted]\nend",
            ),
            ("-----BEGIN PRIVATE KEY-----\nAAA", "[redacted]"),
        ] {
            assert_eq!(redact(text), expected, "{text}");
        }
    }

    #[test]
    fn plain_text_stays() {
        for text in [
            "The key idea: tokens are words.",
            "ls -la /tmp",
            "https://example.org/a@b",
            "a: b",
        ]
        .iter()
        .chain(&examples::ORDINARY)
        {
            assert_eq!(redact(text), *text);
        }
    }

    #[test]
    fn the_shared_names_and_forms_are_known() {
        for name in examples::SECRET_NAMES.iter().chain(&examples::FIGURES) {
            let text = format!("{name}=hunter22");
            assert_eq!(redact(&text), format!("{name}=[redacted]"));
        }
        for name in examples::ORDINARY_NAMES {
            let text = format!("{name}=hunter22");
            assert_eq!(redact(&text), text);
        }
        for secret in examples::CREDENTIALS {
            let shown = redact(&format!("before {secret} after"));
            assert!(
                shown.starts_with("before ") && shown.contains("[redacted]"),
                "{shown}"
            );
            assert!(!shown.contains(secret), "{shown}");
        }
    }

    proptest! {
        #[test]
        fn redaction_is_stable(text in "(?s).{0,200}") {
            let once = redact(&text);
            prop_assert_eq!(redact(&once), once);
        }
    }
}
