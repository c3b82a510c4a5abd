//! Origins that a page may reach: what it wishes, sanitised, and of that what the host allows.
//! Pure. The host's list is empty unless the configuration says otherwise (spec s0, "MCP Apps").

use super::meta::{Wishes, withhold};
use ipc_proto::apps::{Origins, Withheld};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Different origins of one page at most (facts 2.9).
pub const MAX_ORIGINS: usize = 64;
/// Longest origin in bytes.
const MAX_ORIGIN: usize = 253 + 16;
/// The one permission that a frame of an opaque origin can use.
const CLIPBOARD: &str = "clipboardWrite";

/// An `https` origin: a DNS name that may begin with one `*.`, and a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    wildcard: bool,
    host: String,
    port: Option<u16>,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let star = if self.wildcard { "*." } else { "" };
        write!(f, "https://{star}{}", self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl Origin {
    /// Reads an origin as the page does (spec s2, "Iframe policy and AppBridge"): `https`, a name of
    /// two labels at least. No other scheme, no address, no path, no user, no quotes, no blanks:
    /// nothing that could become a second directive of a policy.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_ORIGIN || !text.is_ascii() {
            return None;
        }
        let rest = text.strip_prefix("https://")?;
        let (wildcard, rest) = match rest.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let (host, port) = match rest.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        };
        let port = match port {
            Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
                Some(digits.parse().ok().filter(|port| *port != 0)?)
            }
            Some(_) => return None,
            None => None,
        };
        let host = host.to_ascii_lowercase();
        is_name(&host).then_some(Self {
            wildcard,
            host,
            port,
        })
    }

    /// True when everything that `other` means is meant by this one.
    #[must_use]
    fn covers(&self, other: &Self) -> bool {
        if self.port != other.port {
            return false;
        }
        if !self.wildcard {
            return !other.wildcard && self.host == other.host;
        }
        let below = other
            .host
            .strip_suffix(&self.host)
            .is_some_and(|labels| labels.ends_with('.'));
        below || (other.wildcard && self.host == other.host)
    }
}

/// A DNS name of two labels or more. The last one begins with a letter: else it is an address, or
/// what some take for one.
fn is_name(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    let last = host.rsplit_once('.').map(|(_, last)| last);
    host.len() <= 253
        && host.split('.').all(label)
        && last.is_some_and(|last| last.starts_with(|c: char| c.is_ascii_lowercase()))
}

/// What a page is granted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grant {
    /// Origins.
    pub origins: Origins,
    /// It may write to the clipboard.
    pub clipboard: bool,
    /// What it asked for and does not get.
    pub withheld: Vec<Withheld>,
}

impl Grant {
    /// True when the page can send something somewhere: by a request, a picture or a frame.
    #[must_use]
    pub fn egress(&self) -> bool {
        let Origins {
            connect_domains,
            resource_domains,
            frame_domains,
            base_uri_domains: _,
        } = &self.origins;
        !(connect_domains.is_empty() && resource_domains.is_empty() && frame_domains.is_empty())
    }

    /// The permissions in the specification's form.
    #[must_use]
    pub fn permissions(&self) -> Value {
        if self.clipboard {
            json!({ CLIPBOARD: {} })
        } else {
            json!({})
        }
    }
}

/// The wishes that are well-formed and allowed.
#[must_use]
pub fn grant(wishes: &Wishes, allowed: &[Origin], clipboard: bool) -> Grant {
    let mut out = Grant {
        withheld: wishes.withheld.clone(),
        ..Grant::default()
    };
    let mut seen = BTreeSet::new();
    let lists = [
        ("connect", &wishes.connect),
        ("resource", &wishes.resource),
        ("frame", &wishes.frame),
        ("base", &wishes.base),
    ];
    for (kind, wished) in lists {
        let mut granted = Vec::new();
        for text in wished {
            let Some(origin) = Origin::parse(text) else {
                withhold(&mut out.withheld, kind, text, "invalid");
                continue;
            };
            if !allowed.iter().any(|allowed| allowed.covers(&origin)) {
                withhold(&mut out.withheld, kind, text, "not_allowed");
                continue;
            }
            if !seen.contains(&origin) && seen.len() >= MAX_ORIGINS {
                withhold(&mut out.withheld, kind, text, "too_many");
                continue;
            }
            let text = origin.to_string();
            seen.insert(origin);
            if !granted.contains(&text) {
                granted.push(text);
            }
        }
        match kind {
            "connect" => out.origins.connect_domains = granted,
            "resource" => out.origins.resource_domains = granted,
            "frame" => out.origins.frame_domains = granted,
            _ => out.origins.base_uri_domains = granted,
        }
    }
    for name in &wishes.permissions {
        match (name.as_str(), clipboard) {
            (CLIPBOARD, true) => out.clipboard = true,
            (CLIPBOARD, false) => withhold(&mut out.withheld, "permission", name, "not_allowed"),
            _ => withhold(&mut out.withheld, "permission", name, "unsupported"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn valid_origins_survive_unchanged() {
        for text in [
            "https://example.com",
            "https://a.b-c.example:8443",
            "https://*.example.com",
            "https://xn--bcher-kva.example",
        ] {
            assert_eq!(Origin::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(
            Origin::parse("https://EXAMPLE.com").unwrap().to_string(),
            "https://example.com"
        );
    }

    #[test]
    fn nothing_that_could_be_a_second_directive_is_an_origin() {
        for text in [
            "",
            "*",
            "https:",
            "https://",
            "https://*",
            "https://*.",
            "https://*.com",
            "https://*.*.example.com",
            "https://a.*.example.com",
            "https://example.com/",
            "https://example.com/path",
            "https://example.com?x",
            "https://example.com#x",
            "https://user@example.com",
            "https://user:pw@example.com",
            "https://example.com;script-src *",
            "https://example.com,https://b.example",
            "https://example.com 'unsafe-eval'",
            "'unsafe-eval'",
            "'self'",
            "data:",
            "blob:",
            "javascript:alert(1)",
            "https://exa\nmple.com",
            "https://example.com\"",
            "https://</meta>",
            "https://$&",
            "https://example.com:",
            "https://example.com:0",
            "https://example.com:99999",
            "https://example.com:8x",
            "https://example..com",
            "https://-a.example",
            "https://bücher.example",
            "http://example.com",
            "ws://example.com",
            "wss://example.com",
            "http://localhost:3000",
            "https://localhost",
            "https://example",
            "https://192.0.2.7",
            "https://[::1]",
            "HTTPS://example.com",
            "ftp://example.com",
            "https://1.2.3",
            "https://0x7f.1",
            "https://*.1.2.3.4",
            "https://*.localhost",
            "https://[::2]",
            " https://example.com",
        ] {
            assert_eq!(Origin::parse(text), None, "{text}");
        }
    }

    fn origins(list: &[&str]) -> Vec<Origin> {
        list.iter()
            .map(|text| Origin::parse(text).unwrap())
            .collect()
    }

    #[test]
    fn what_is_allowed_covers_itself_and_what_is_below_a_star() {
        for (allowed, wish, expected) in [
            ("https://a.example", "https://a.example", true),
            ("https://a.example", "https://b.a.example", false),
            ("https://a.example", "https://a.example:8443", false),
            ("https://a.example", "https://*.a.example", false),
            ("https://*.a.example", "https://b.a.example", true),
            ("https://*.a.example", "https://c.b.a.example", true),
            ("https://*.a.example", "https://*.a.example", true),
            ("https://*.a.example", "https://*.b.a.example", true),
            ("https://*.a.example", "https://a.example", false),
            ("https://*.a.example", "https://xa.example", false),
        ] {
            let got = origins(&[allowed])[0].covers(&origins(&[wish])[0]);
            assert_eq!(got, expected, "{allowed} {wish}");
        }
    }

    fn wishes() -> Wishes {
        Wishes {
            connect: vec!["https://a.example".into(), "https://a.example".into()],
            resource: vec!["https://cdn.example".into(), "data:".into()],
            permissions: vec!["camera".into(), "clipboardWrite".into()],
            ..Wishes::default()
        }
    }

    #[test]
    fn without_a_list_of_the_host_nothing_is_reached() {
        let got = grant(&wishes(), &[], true);
        assert_eq!(got.origins, Origins::default());
        assert!(!got.egress() && got.clipboard);
        let told: Vec<_> = got
            .withheld
            .iter()
            .map(|w| (&*w.kind, &*w.value, &*w.reason))
            .collect();
        assert_eq!(
            told,
            [
                ("connect", "https://a.example", "not_allowed"),
                ("connect", "https://a.example", "not_allowed"),
                ("resource", "https://cdn.example", "not_allowed"),
                ("resource", "data:", "invalid"),
                ("permission", "camera", "unsupported"),
            ]
        );
    }

    #[test]
    fn the_intersection_is_granted_once() {
        let got = grant(&wishes(), &origins(&["https://a.example"]), false);
        assert_eq!(got.origins.connect_domains, ["https://a.example"]);
        assert!(got.origins.resource_domains.is_empty());
        assert!(got.egress() && !got.clipboard);
    }

    #[test]
    fn a_page_has_64_origins_at_most() {
        let many: Vec<String> = (0..40).map(|n| format!("https://h{n}.example")).collect();
        let more: Vec<String> = (20..80).map(|n| format!("https://h{n}.example")).collect();
        let wishes = Wishes {
            connect: many,
            frame: more,
            ..Wishes::default()
        };
        let got = grant(
            &wishes,
            &origins(&["https://*.example.x", "https://*.h.example"]),
            true,
        );
        assert_eq!(got.origins, Origins::default());
        let all: Vec<Origin> = (0..80)
            .map(|n| Origin::parse(&format!("https://h{n}.example")).unwrap())
            .collect();
        let got = grant(&wishes, &all, true);
        assert_eq!(got.origins.connect_domains.len(), 40);
        assert_eq!(got.origins.frame_domains.len(), 44);
        assert_eq!(got.withheld.len(), 16);
    }

    proptest! {
        #[test]
        fn what_is_read_is_one_token_of_a_policy(text in "\\PC{0,40}|https://[a-z*.:;, '/\\\\@]{0,30}") {
            if let Some(origin) = Origin::parse(&text) {
                let shown = origin.to_string();
                prop_assert!(shown.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.:/*[]".contains(&b)));
                prop_assert_eq!(Origin::parse(&shown), Some(origin.clone()));
                prop_assert!(origin.covers(&origin));
            }
        }
    }
}
