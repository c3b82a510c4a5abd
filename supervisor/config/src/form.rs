//! The forms of strings: what a host, a model or a path of a URL looks like.

use crate::field::Form;
use std::net::{IpAddr, Ipv6Addr};

/// Checks `text` against `form`; the error says what was expected.
pub(crate) fn check(form: Form, text: &str) -> Result<(), String> {
    let ok = match form {
        Form::Any => !text.contains('\0'),
        Form::Line => is_line(text),
        Form::Model => is_model(text),
        Form::ProviderId => {
            is_word(text, 64, |c| {
                c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c)
            }) && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        }
        Form::ServerName => is_word(text, 64, |c| c.is_ascii_alphanumeric() || "_-".contains(c)),
        Form::Name => is_word(text, 128, |c| {
            c.is_ascii_alphanumeric() || "._-".contains(c)
        }),
        Form::EnvName => {
            is_word(text, 128, |c| c.is_ascii_alphanumeric() || c == '_')
                && !text.starts_with(|c: char| c.is_ascii_digit())
        }
        Form::CredentialName => {
            is_word(text, 255, |c| {
                c.is_ascii_alphanumeric() || "_.@-".contains(c)
            }) && text != "."
                && text != ".."
        }
        Form::Host => is_host(text),
        Form::LoopbackHost => is_loopback(text),
        Form::HostPort => is_host_port(text),
        Form::HostSuffix => is_host_suffix(text),
        Form::Origin => is_origin(text),
        Form::ToolRule => is_tool_rule(text),
        Form::BaseUrl => {
            web_url(text).is_some_and(|url| url.query().is_none() && url.fragment().is_none())
        }
        Form::Url => web_url(text).is_some(),
        Form::UrlPath => {
            text.starts_with('/')
                && !text.contains("//")
                && text.split('/').all(|part| part != ".." && part != ".")
                && text
                    .bytes()
                    .all(|b| b.is_ascii_graphic() && !b"?#%\\\"<>{}".contains(&b))
        }
        Form::Zone => is_zone(text),
        Form::Cron => is_cron(text),
        Form::Clock => is_clock(text),
    };
    if ok {
        Ok(())
    } else {
        Err(expected(form).to_string())
    }
}

/// The form in words.
pub(crate) fn expected(form: Form) -> &'static str {
    match form {
        Form::Any => "text without a NUL",
        Form::Line => "a single line of text",
        Form::Model => "`<provider>:<model>`, for example `anthropic:claude-sonnet-5`",
        Form::ProviderId => "lower-case letters, digits, `.`, `_` and `-`, at most 64",
        Form::ServerName => "letters, digits, `_` and `-`, at most 64",
        Form::Name => "letters, digits, `.`, `_` and `-`, at most 128",
        Form::EnvName => "the name of an environment variable",
        Form::CredentialName => "the name of a systemd credential, without a slash",
        Form::Host => "an IP address or a host name, without a port",
        Form::LoopbackHost => "`127.0.0.1`, `::1` or `localhost`",
        Form::HostPort => "a host name or an IP address, with an optional `:port`",
        Form::HostSuffix => "a DNS name with at most one leading `*.`; no address, port or path",
        Form::Origin => {
            "an origin such as `https://*.example.com`: `https://`, a DNS name that may begin with one `*.`, and perhaps a port; no other scheme, address or path"
        }
        Form::ToolRule => "`@server/tool`, each part with at most one `*`, at its end",
        Form::BaseUrl => "an http:// or https:// address without user, query and fragment",
        Form::Url => "an http:// or https:// address without user",
        Form::UrlPath => "a path that begins with `/`, without query and escapes",
        Form::Zone => "a time zone name such as `Europe/Berlin`",
        Form::Cron => "five fields: minute, hour, day of month, month, day of week",
        Form::Clock => "a time of day as `HH:MM`",
    }
}

/// The same form as a regular expression for the JSON Schema, where one says enough.
pub(crate) fn pattern(form: Form) -> Option<&'static str> {
    Some(match form {
        Form::Model => "^[a-z0-9][a-z0-9._-]{0,63}:\\S+$",
        Form::ProviderId => "^[a-z0-9][a-z0-9._-]{0,63}$",
        Form::ServerName => "^[A-Za-z0-9_-]{1,64}$",
        Form::Name => "^[A-Za-z0-9._-]{1,128}$",
        Form::EnvName => "^[A-Za-z_][A-Za-z0-9_]{0,127}$",
        Form::CredentialName => "^[A-Za-z0-9_.@-]{1,255}$",
        Form::BaseUrl | Form::Url => "^https?://",
        Form::UrlPath => "^/",
        Form::ToolRule => "^@[A-Za-z0-9_-]{0,64}\\*?/[^\\s*/]{0,128}\\*?$",
        Form::Cron => "^\\S+(\\s+\\S+){4}$",
        Form::Clock => "^([01][0-9]|2[0-3]):[0-5][0-9]$",
        _ => return None,
    })
}

/// The provider and the model of `<provider>:<model>`.
pub(crate) fn split_model(text: &str) -> Option<(&str, &str)> {
    text.split_once(':')
}

/// An http or https address without a user, or nothing.
pub(crate) fn web_url(text: &str) -> Option<url::Url> {
    // The parser strips white space and control characters; a configuration has none in an address.
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return None;
    }
    let url = url::Url::parse(text).ok()?;
    let plain = matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none();
    plain.then_some(url)
}

/// True for `localhost` and for loopback addresses.
pub fn is_loopback(host: &str) -> bool {
    match host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>()
    {
        Ok(IpAddr::V4(ip)) => ip.is_loopback(),
        Ok(IpAddr::V6(ip)) => ip == Ipv6Addr::LOCALHOST,
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

fn is_line(text: &str) -> bool {
    !text.trim().is_empty() && !text.chars().any(char::is_control)
}

fn is_word(text: &str, max: usize, allowed: impl Fn(char) -> bool) -> bool {
    !text.is_empty() && text.len() <= max && text.chars().all(allowed)
}

fn is_model(text: &str) -> bool {
    let Some((provider, model)) = split_model(text) else {
        return false;
    };
    check(Form::ProviderId, provider).is_ok()
        && is_line(model)
        && !model.contains(char::is_whitespace)
}

fn is_dns_name(text: &str) -> bool {
    text.len() <= 253
        && text.split('.').all(|label| {
            is_word(label, 63, |c| {
                c.is_ascii_alphanumeric() || c == '-' || c == '_'
            }) && !label.starts_with('-')
                && !label.ends_with('-')
        })
}

fn is_host(text: &str) -> bool {
    // A name of digits and dots that is no address is a mistyped address.
    let numeric = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.parse::<IpAddr>().is_ok() || (!numeric && is_dns_name(text))
}

fn is_host_port(text: &str) -> bool {
    if is_host(text) {
        return true;
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let host = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(inside) => return inside.parse::<Ipv6Addr>().is_ok() && is_port(port),
        None => host,
    };
    is_host(host) && !host.contains(':') && is_port(port)
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u16>().is_ok_and(|port| port > 0)
}

fn is_host_suffix(text: &str) -> bool {
    let name = text.strip_prefix("*.").unwrap_or(text);
    is_dns_name(name) && is_host(name) && name.parse::<IpAddr>().is_err()
}

fn is_zone(text: &str) -> bool {
    jiff::tz::TimeZone::get(text).is_ok()
}

fn is_cron(text: &str) -> bool {
    let fields: Vec<&str> = text.split_whitespace().collect();
    fields.len() == 5
        && fields.iter().all(|field| {
            field
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "*,/-?#".contains(c))
        })
}

/// An origin as a page's policy names it, written as it is meant: what the parser would mend is
/// refused.
fn is_origin(text: &str) -> bool {
    if !text.is_ascii() || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return false;
    }
    let Ok(url) = url::Url::parse(text) else {
        return false;
    };
    let (Some(host), Some((scheme, rest))) = (url.host_str(), text.split_once("://")) else {
        return false;
    };
    let name = host.strip_prefix("*.").unwrap_or(host);
    // The last label of a name begins with a letter: else it is an address.
    let last = name.rsplit_once('.').map(|(_, last)| last);
    let named = last.is_some_and(|last| last.starts_with(|c: char| c.is_ascii_alphabetic()));
    let plain = named && !name.contains(['*', '[']);
    // Nothing but a host and a port follows the scheme.
    let port = rest.to_ascii_lowercase();
    let port = port.strip_prefix(host);
    let port = port.is_some_and(|port| {
        port.is_empty()
            || port
                .strip_prefix(':')
                .is_some_and(|n| n.parse::<u16>().is_ok_and(|n| n > 0))
    });
    plain && scheme == "https" && port
}

fn is_tool_rule(text: &str) -> bool {
    let part = |part: &str| {
        let name = part.strip_suffix('*').unwrap_or(part);
        !part.is_empty()
            && !name.contains(|c: char| c == '*' || c == '/' || c.is_whitespace() || c.is_control())
    };
    text.strip_prefix('@')
        .and_then(|rest| rest.split_once('/'))
        .is_some_and(|(server, tool)| part(server) && part(tool))
}

fn is_clock(text: &str) -> bool {
    let Some((hour, minute)) = text.split_once(':') else {
        return false;
    };
    let two = |part: &str, below: u8| {
        part.len() == 2
            && part.bytes().all(|b| b.is_ascii_digit())
            && part.parse::<u8>().is_ok_and(|n| n < below)
    };
    two(hour, 24) && two(minute, 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(form: Form, good: &[&str], bad: &[&str]) {
        for text in good {
            assert!(check(form, text).is_ok(), "{form:?} refuses {text:?}");
        }
        for text in bad {
            assert!(check(form, text).is_err(), "{form:?} accepts {text:?}");
        }
    }

    #[test]
    #[rustfmt::skip]
    fn forms() {
        table(Form::Model, &["demo:scripted", "openai:gpt-5", "ollama:qwen3:8b", "openrouter:a/b"],
            &["", "gpt-5", ":x", "openai:", "OpenAI:x", "openai:a b", "openai:a\nb"]);
        table(Form::ServerName, &["a", "A_b-1"], &["", "a.b", "a b", "ä", &"x".repeat(65)]);
        table(Form::EnvName, &["A", "_A1"], &["", "1A", "A-B", "A=B"]);
        table(Form::CredentialName, &["key", "a.b@c"], &["", ".", "..", "../key", "a/b"]);
        table(Form::Host, &["127.0.0.1", "::1", "0.0.0.0", "localhost", "a.example"],
            &["", "a:1", "999.1.1.1", "1.2.3", "-a", "a..b", "http://a", "a/b", "a b"]);
        table(Form::LoopbackHost, &["127.0.0.1", "127.9.9.9", "::1", "localhost", "LOCALHOST"],
            &["", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "127.0.0.1.example"]);
        table(Form::HostPort, &["a", "a:80", "10.0.0.1:8080", "::1", "[::1]:80"],
            &["", "a:", "a:0", "a:65536", "a:+1", "[a]:1", "http://a:1"]);
        table(Form::HostSuffix, &["example.com", "*.example.com", "a"],
            &["", "*", "*.", "*.*.a", "a:1", "a/b", "10.0.0.1", "10.0.0.0/8", "::1", "a.*.b"]);
        table(Form::Origin, &["https://a.example", "https://*.a.example:8443", "https://A.example"],
            &["", "a.example", "https://", "https://*", "https://*.com", "https://a.*.b", "https://a/", "https://a/b", "https://a?b", "https://u@a", "http://a.example", "https://a:0", "https://a:x", "data:", "https://a ;b", "https://bücher.example",
                "wss://a.example", "ws://127.0.0.1", "http://localhost:3000", "https://localhost", "https://192.0.2.7", "https://[::1]:9", "https://*.1.2.3.4", "https://a"]);
        table(Form::ToolRule, &["@a/b", "@a/*", "@*/b", "@a*/b*", "@*/*"], &["", "a/b", "@a", "@/b", "@a/", "@a/b/c", "@a*b/c", "@a/b*c", "@a/b c"]);
        table(Form::BaseUrl, &["https://api.example/v1", "http://127.0.0.1:11434/v1"],
            &["", "api.example", "ftp://a", "https://u:p@a/", "https://u@a/", "https://a/?q", "https://a/#f", "https://", " https://a", "https://a\n"]);
        table(Form::UrlPath, &["/", "/v1", "/webhook/invoke"], &["", "v1", "/a?b", "/a b", "/../a", "//a", "/a%2f"]);
        table(Form::Zone, &["UTC", "Europe/Berlin"], &["", "Mars/Olympus", "../../etc/passwd"]);
        table(Form::Cron, &["0 */2 * * *", "H 1-5 1,15 jan mon"], &["", "* * * *", "* * * * * *", "@daily", "0 0 * * $"]);
        table(Form::Clock, &["00:00", "23:59"], &["", "24:00", "1:00", "12:60", "12:5", "+1:00"]);
        table(Form::Line, &["a b"], &["", "  ", "a\nb", "a\0"]);
        table(Form::Any, &["a\nb"], &["a\0"]);
    }
}
