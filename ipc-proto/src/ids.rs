//! Identifiers that travel between processes, validated where they are decoded.

use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// Longest conversation id in bytes (facts of cron and webhook channels bound it to 512).
pub const MAX_CONVERSATION_ID: usize = 512;
/// Longest run id in bytes (`[A-Za-z0-9][A-Za-z0-9._-]{0,199}`).
pub const MAX_RUN_ID: usize = 200;

/// Why a string is no identifier.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IdError {
    /// Empty, or over the bound in bytes.
    #[error("a {what} id has 1 to {max} bytes, this one has {found}")]
    Length {
        /// What kind of identifier was asked for.
        what: &'static str,
        /// The bound in bytes.
        max: usize,
        /// The length found in bytes.
        found: usize,
    },
    /// A character outside the set that the kind allows.
    #[error("a {what} id can't hold {found:?}")]
    Character {
        /// What kind of identifier was asked for.
        what: &'static str,
        /// The first offending character.
        found: char,
    },
}

/// One run. Unique, ordered by time (UUIDv7 text); safe as a file name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct RunId(String);

impl RunId {
    /// A new id, ordered by creation time.
    #[must_use]
    pub fn new() -> Self {
        Self(uuid::Uuid::now_v7().to_string())
    }

    /// Checks `[A-Za-z0-9][A-Za-z0-9._-]{0,199}`.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let what = "run";
        if text.is_empty() || text.len() > MAX_RUN_ID {
            return Err(IdError::Length {
                what,
                max: MAX_RUN_ID,
                found: text.len(),
            });
        }
        let bad = text.char_indices().find(|(i, c)| {
            !(c.is_ascii_alphanumeric() || (*i > 0 && matches!(c, '.' | '_' | '-')))
        });
        match bad {
            Some((_, found)) => Err(IdError::Character { what, found }),
            None => Ok(Self(text.to_owned())),
        }
    }

    /// The text of the id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for RunId {
    fn default() -> Self {
        Self::new()
    }
}

/// One conversation, logical or physical: opaque text without control characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ConversationId(String);

impl ConversationId {
    /// Checks the length (1 to 512 bytes) and refuses control characters.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let what = "conversation";
        if text.is_empty() || text.len() > MAX_CONVERSATION_ID {
            return Err(IdError::Length {
                what,
                max: MAX_CONVERSATION_ID,
                found: text.len(),
            });
        }
        match text.chars().find(|c| c.is_control()) {
            Some(found) => Err(IdError::Character { what, found }),
            None => Ok(Self(text.to_owned())),
        }
    }

    /// The text of the id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! checked_deserialize {
    ($name:ident) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::parse(&text).map_err(serde::de::Error::custom)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

checked_deserialize!(RunId);
checked_deserialize!(ConversationId);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn run_ids_are_file_names() {
        assert!(RunId::parse(RunId::new().as_str()).is_ok());
        for bad in ["", ".", "..", "-x", "a/b", "a b", "é", &"a".repeat(201)] {
            assert!(RunId::parse(bad).is_err(), "{bad:?}");
        }
        assert!(RunId::parse(&"a".repeat(200)).is_ok());
    }

    #[test]
    fn conversation_ids_are_bounded_text() {
        assert!(ConversationId::parse("slack:C1:170.5#2026-01-01").is_ok());
        assert!(ConversationId::parse(&"x".repeat(512)).is_ok());
        for bad in ["", "a\nb", "a\u{7f}", &"x".repeat(513)] {
            assert!(ConversationId::parse(bad).is_err(), "{bad:?}");
        }
    }
}
