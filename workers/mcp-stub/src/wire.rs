//! What a stub and the gateway say to each other beside MCP: lines that begin with `#`, which no
//! JSON does.
//!
//! A connection begins with `#register` of the stub and `#registered` or `#refused` of the gateway
//! (spec s2; docs/protocols.md, "Socket of the gateway").

use serde::{Deserialize, Serialize};

/// The version of this protocol.
pub const VERSION: u32 = 1;
/// Longest MCP message in bytes.
pub const MAX_LINE: usize = 16 << 20;
/// Longest line of our own in bytes.
pub const MAX_CONTROL: usize = 512 << 10;
/// Bytes of a session's token as it is written: 32 random bytes in hexadecimal.
pub const TOKEN_CHARS: usize = 64;
/// Longest name of a server in bytes.
pub const MAX_SERVER: usize = 64;
/// File name of the gateway's socket, beside the daemon's own.
pub const SOCKET_NAME: &str = "gateway.sock";

/// A stub's first line.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Register {
    /// [`VERSION`].
    pub version: u32,
    /// The configured server.
    pub server: String,
    /// Who holds it is the session: [`TOKEN_CHARS`] hexadecimal digits.
    pub session: String,
    /// The latest [`Control::Anchor`] of this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<String>,
}

/// Shows no token.
impl std::fmt::Debug for Register {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Register({}, version {})", self.server, self.version)
    }
}

/// Why the gateway takes nobody in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// A fixed word.
    pub code: String,
    /// One sentence: what, and what to do.
    pub message: String,
    /// It may be different in a moment.
    pub retry: bool,
}

/// A line of our own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// Stub to gateway, first.
    Register(Register),
    /// Gateway to stub: MCP may be spoken. Names the session in logs.
    Registered(String),
    /// Gateway to stub: the end.
    Refused(Refused),
    /// Stub to gateway, while something is outstanding.
    Ping,
    /// Answers it.
    Pong,
    /// Gateway to stub: what the server's tools are, in the gateway's own words. The stub brings
    /// the latest one along when it registers again.
    Anchor(String),
}

/// A line of our own that can't be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a line of the gateway's protocol that is not understood: {0}")]
pub struct Unclear(pub &'static str);

/// True for a line of our own.
#[must_use]
pub fn is_control(line: &[u8]) -> bool {
    line.first() == Some(&b'#')
}

impl Control {
    /// The line without its end.
    #[must_use]
    pub fn to_line(&self) -> String {
        match self {
            Self::Register(register) => format!("#register {}", json(register)),
            Self::Registered(name) => format!("#registered {name}"),
            Self::Refused(refused) => format!("#refused {}", json(refused)),
            Self::Ping => "#ping".to_owned(),
            Self::Pong => "#pong".to_owned(),
            Self::Anchor(anchor) => format!("#anchor {anchor}"),
        }
    }

    /// Reads a line of our own.
    ///
    /// # Errors
    /// When it is none, too long, or not understood.
    pub fn parse(line: &[u8]) -> Result<Self, Unclear> {
        if line.len() > MAX_CONTROL {
            return Err(Unclear("too long"));
        }
        let text = std::str::from_utf8(line).map_err(|_| Unclear("not UTF-8"))?;
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let unclear = |_| Unclear("not its JSON");
        Ok(match word {
            "#register" => Self::Register(serde_json::from_str(rest).map_err(unclear)?),
            "#registered" => Self::Registered(rest.to_owned()),
            "#refused" => Self::Refused(serde_json::from_str(rest).map_err(unclear)?),
            "#ping" => Self::Ping,
            "#pong" => Self::Pong,
            "#anchor" => Self::Anchor(rest.to_owned()),
            _ => return Err(Unclear("an unknown word")),
        })
    }
}

fn json(value: &impl Serialize) -> String {
    // Ours are plain objects of text, which always have a JSON form.
    serde_json::to_string(value).unwrap_or_default()
}

/// True for a token: 64 lower-case hexadecimal digits.
#[must_use]
pub fn is_token(text: &str) -> bool {
    let digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    text.len() == TOKEN_CHARS && text.bytes().all(digit)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_line_reads_back() {
        let register = Register {
            version: VERSION,
            server: "s".into(),
            session: "0".repeat(TOKEN_CHARS),
            anchor: Some("{}".into()),
        };
        let refused = Refused {
            code: "c".into(),
            message: "a\nb".into(),
            retry: true,
        };
        for control in [
            Control::Register(register),
            Control::Registered("ab12".into()),
            Control::Refused(refused),
            Control::Ping,
            Control::Pong,
            Control::Anchor(r#"{"a b":"c"}"#.into()),
        ] {
            let line = control.to_line();
            assert!(is_control(line.as_bytes()) && !line.contains('\n'));
            assert_eq!(Control::parse(line.as_bytes()).unwrap(), control);
        }
    }

    #[test]
    fn what_is_not_understood_is_refused_and_no_token_is_printed() {
        for line in ["#", "#registerx", "#register", "#register {}", "#refused 1"] {
            assert!(Control::parse(line.as_bytes()).is_err(), "{line}");
        }
        let long = format!("#anchor {}", "x".repeat(MAX_CONTROL));
        assert!(Control::parse(long.as_bytes()).is_err());
        let register = Register {
            version: 1,
            server: "s".into(),
            session: "secret".into(),
            anchor: None,
        };
        assert!(!format!("{register:?}").contains("secret"));
    }

    #[test]
    fn a_token_is_sixty_four_digits() {
        assert!(is_token(&"0a".repeat(32)));
        for text in [
            "",
            "0a",
            &"0A".repeat(32),
            &"0g".repeat(32),
            &"0a".repeat(33),
        ] {
            assert!(!is_token(text), "{text}");
        }
    }
}
