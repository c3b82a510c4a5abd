//! Taking secrets out of text before it is put before a model again.
//!
//! A net for what people and tools print by mistake, not a proof: the exact text stays in the
//! owner-only database.

use regex::Regex;
use std::sync::LazyLock;

/// Patterns and what they become; `$1` and `$2` keep the harmless surroundings. In this order:
/// whole blocks first, so that no later rule eats their frame.
static RULES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        // Private keys; one whose end was cut off reaches to the end of the text.
        (
            r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)",
            "[redacted]",
        ),
        // Headers whose whole value is a credential.
        (r"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie|x-api-key)(\W{0,2}[:=]\s*)[^\r\n]+", "$1$2[redacted]"),
        (r"(?i)\b(bearer|basic)(\s+)[a-z0-9._~+/=-]{8,}", "$1$2[redacted]"),
        // User and password in an address.
        (r"(?i)\b([a-z][a-z0-9+.-]{1,20}://)()[^\s/@]+@", "$1[redacted]@"),
        // Assignments to names that say what they hold.
        (
            r#"(?i)\b([a-z0-9_.-]*(?:api[_-]?key|access[_-]?key|secret|token|passw(?:or)?d|passphrase|credential)[a-z0-9_.-]*)(\\?["']?\s*[:=]\s*\\?["']?)[^\s"'\\,;&}]{3,}"#,
            "$1$2[redacted]",
        ),
        // Tokens that are known by their look.
        (
            r"\b(?:sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}|A(?:KIA|SIA)[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?|\d{8,12}:[A-Za-z0-9_-]{30,})",
            "[redacted]",
        ),
    ]
    .into_iter()
    // A pattern that doesn't compile is found by the tests, which use every one.
    .filter_map(|(pattern, with)| Regex::new(pattern).ok().map(|regex| (regex, with)))
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

    #[test]
    fn secrets_by_table() {
        assert_eq!(RULES.len(), 6, "every pattern compiles");
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
        ] {
            assert_eq!(redact(text), text);
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
