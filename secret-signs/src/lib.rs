//! The signs of a secret: names that promise one, and forms of text that are one.
//!
//! Data and plain functions, so that the supervisor, which has no regular expressions, and the
//! workers, which compile the patterns, go by the same list. What one user alone looks for stands
//! with that user.
#![forbid(unsafe_code)]

pub mod examples;

/// What stands in a secret's place.
pub const MASK: &str = "[redacted]";
/// What a match of a [`Form`]'s pattern becomes, as `regex` expands it: [`MASK`] between its groups,
/// if it has any.
pub const MASKED_MATCH: &str = "${1}[redacted]${2}";

/// Parts of a name that promise a secret, in lower case and without separators.
pub const NAMES: [&str; 10] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "credential",
    "apikey",
    "accesskey",
    "privatekey",
    "bearer",
    "jwt",
];
/// Such parts too, of the names of header lines whose whole rest is a credential.
pub const HEADERS: [&str; 2] = ["authorization", "cookie"];
/// A name that ends so promises a secret. `tokens` and `tokenCount` are figures more often.
pub const TOKEN: &str = "token";

/// True for the name of something that is a secret whatever it looks like.
#[must_use]
pub fn names_secret(name: &str) -> bool {
    let plain = plain(name);
    plain.ends_with(TOKEN) || has_part(&plain)
}

/// As [`names_secret`], and for any name with `token` in it: where a figure that is masked is no
/// loss, and `token_2` might be shown.
#[must_use]
pub fn may_name_secret(name: &str) -> bool {
    let plain = plain(name);
    plain.contains(TOKEN) || has_part(&plain)
}

fn plain(name: &str) -> String {
    name.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

fn has_part(plain: &str) -> bool {
    NAMES
        .iter()
        .chain(&HEADERS)
        .any(|part| plain.contains(part))
}

/// A form of credentials.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    /// How a text of this form begins, in lower case; none where [`looks_secret`] looks closer.
    pub beginnings: &'static [&'static str],
    /// Finds it in other text, for `regex`. Each is long enough not to be a word. A first and a second
    /// group, if there are any, match what is harmless. Borders of words are those of ASCII: for Unicode's
    /// `regex` leaves its fast path at the first letter beyond.
    pub pattern: &'static str,
}

const fn form(beginnings: &'static [&'static str], pattern: &'static str) -> Form {
    Form {
        beginnings,
        pattern,
    }
}

/// The forms that are known. Whole blocks first, so that no later pattern eats their frame.
pub const FORMS: [Form; 11] = [
    // A private key; one whose end was cut off reaches to the end of the text.
    form(
        &[],
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|$)",
    ),
    // JSON web tokens, without their signature too.
    form(
        &["eyj"],
        r"(?-u:\b)eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",
    ),
    // Keys of model providers and of Stripe. One stretch must be long: `sk-SK-ViktoriaNeural` is a
    // voice that speaks Slovak.
    form(
        &["sk-", "sk_", "pk_", "rk_"],
        r"(?-u:\b)(?:sk|pk|rk)[-_](?:[A-Za-z0-9]+[-_])*[A-Za-z0-9]{16,}[A-Za-z0-9_-]*",
    ),
    form(
        &[
            "ghp_",
            "gho_",
            "ghu_",
            "ghs_",
            "ghr_",
            "github_pat_",
            "glpat-",
        ],
        r"(?-u:\b)gh[pousr]_[A-Za-z0-9]{20,}|(?-u:\b)github_pat_[A-Za-z0-9_]{20,}|(?-u:\b)glpat-[A-Za-z0-9_-]{16,}",
    ),
    // Slack.
    form(
        &["xox", "xapp-"],
        r"(?-u:\b)x(?:ox[abeoprs]|app-[0-9])-[A-Za-z0-9-]{10,}",
    ),
    // Amazon's. Without the end `ASIAPACIFICHEADQUARTERS` would be one.
    form(
        &["akia", "asia"],
        r"(?-u:\b)(?:AKIA|ASIA)[A-Z0-9]{16}(?-u:\b)",
    ),
    // Google.
    form(&["aiza"], r"(?-u:\b)AIza[A-Za-z0-9_-]{30,}"),
    // Hugging Face.
    form(&["hf_"], r"(?-u:\b)hf_[A-Za-z0-9]{20,}"),
    // A bot of Telegram. The letter tells it from a time and a hash.
    form(&[], r"(?-u:\b)[0-9]{6,16}:A[A-Za-z0-9_-]{33,}"),
    form(
        &["bearer ", "basic "],
        r"(?i)(?-u:\b)((?:bearer|basic)\s+)[A-Za-z0-9+/._~=-]{12,}",
    ),
    // An address with a password.
    form(
        &[],
        r"(?i)(?-u:\b)([a-z][a-z0-9+.-]{1,20}://)[^\s/?#@]*:[^\s/?#@]+(@)",
    ),
];

/// No text that is shorter and only begins like a credential is taken for one.
const SHORTEST: usize = 12;

/// True for a text that as a whole looks like a credential. It is meant for what must not be quoted:
/// it asks for less than the patterns, and some ordinary text (`basic settings`) looks so too.
#[must_use]
pub fn looks_secret(text: &str) -> bool {
    let text = text.trim_start();
    let lower = text.to_ascii_lowercase();
    let begins = |beginning: &&str| {
        lower.strip_prefix(beginning).is_some_and(|rest| {
            // Not so in `Asia/Singapore`.
            let goes_on = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            beginning.ends_with(' ') || rest.starts_with(goes_on)
        })
    };
    let mut beginnings = FORMS.iter().flat_map(|form| form.beginnings);
    (lower.len() >= SHORTEST && beginnings.any(begins))
        || lower.contains("private key-----")
        || is_bot_token(text)
        || has_password(text)
}

fn is_bot_token(text: &str) -> bool {
    text.split_once(':').is_some_and(|(id, rest)| {
        id.len() >= 6 && id.bytes().all(|b| b.is_ascii_digit()) && rest.len() >= 30
    })
}

fn has_password(address: &str) -> bool {
    let rest = address.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    user.contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_promise_a_secret_or_do_not() {
        for name in examples::SECRET_NAMES {
            assert!(names_secret(name) && may_name_secret(name), "{name}");
        }
        for name in examples::FIGURES {
            assert!(!names_secret(name) && may_name_secret(name), "{name}");
        }
        for name in examples::ORDINARY_NAMES {
            assert!(!names_secret(name) && !may_name_secret(name), "{name}");
        }
    }

    #[test]
    fn credentials_look_so_and_ordinary_text_does_not() {
        for text in examples::CREDENTIALS {
            assert!(looks_secret(text), "{text}");
            assert!(looks_secret(&format!(" {text}")), "{text}");
        }
        for text in examples::ORDINARY {
            assert!(!looks_secret(text), "{text}");
        }
        // Half a key is not quoted either.
        assert!(looks_secret("sk-proj-abcdefghij") && looks_secret("Bearer /bcdefghijkl"));
    }

    #[test]
    fn every_form_has_an_example() {
        for beginning in FORMS.iter().flat_map(|form| form.beginnings) {
            let is = |text: &&str| text.to_ascii_lowercase().starts_with(beginning);
            assert!(examples::CREDENTIALS.iter().any(is), "{beginning}");
        }
        assert!(MASKED_MATCH.contains(MASK));
    }
}
