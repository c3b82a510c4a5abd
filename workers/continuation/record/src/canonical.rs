//! Canonical JSON: the one text of a value, over which hashes and MACs are made.
//!
//! It is what a JavaScript program gets that sorts the keys of every object and writes the whole
//! out again, because that is what the services that submit results do: keys by UTF-16 code unit,
//! but those that look like an array's index first and by number; numbers in the form of
//! ECMAScript, without a negative zero; of a key that comes twice the last value; surrogates
//! without a partner stay escaped.

mod reader;
mod writer;

use reader::Reader;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use std::cmp::Ordering;

/// Deepest nesting that is read.
pub const MAX_DEPTH: usize = 128;
/// Longest canonical text of a payload, in bytes. A body of 256 KiB may become longer, since
/// `1e20` is written out; with it a record is still within its own bound.
pub const MAX_PAYLOAD_BYTES: usize = 768 * 1024;

/// Why a text has no canonical form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// It is no JSON.
    #[error("byte {0} is not as JSON has it")]
    Syntax(usize),
    /// It is nested too deep.
    #[error("the value is nested more than {MAX_DEPTH} deep")]
    Depth,
    /// A number that no double holds.
    #[error("the number at byte {0} is too large")]
    Number(usize),
    /// The text would be too long.
    #[error("the canonical text has more than {MAX_PAYLOAD_BYTES} bytes")]
    Long,
}

/// A string as JSON has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Text {
    /// The usual kind.
    Whole(String),
    /// UTF-16, with a surrogate in it that has no partner.
    Broken(Vec<u16>),
}

impl Text {
    /// The text, if it is whole.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Whole(text) => Some(text),
            Self::Broken(_) => None,
        }
    }

    /// The number, if it is written as an array's index is: no sign, no leading zero, below 2³²−1.
    fn index(&self) -> Option<u32> {
        let text = self.as_str()?;
        let digits =
            !text.is_empty() && text.len() <= 10 && text.bytes().all(|b| b.is_ascii_digit());
        if !digits || (text.len() > 1 && text.starts_with('0')) {
            return None;
        }
        text.parse().ok().filter(|&index| index != u32::MAX)
    }

    fn order(&self, other: &Self) -> Ordering {
        match (self.index(), other.index()) {
            (Some(a), Some(b)) => a.cmp(&b),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => match (self, other) {
                (Self::Whole(a), Self::Whole(b)) => a.encode_utf16().cmp(b.encode_utf16()),
                (Self::Whole(a), Self::Broken(b)) => a.encode_utf16().cmp(b.iter().copied()),
                (Self::Broken(a), Self::Whole(b)) => a.iter().copied().cmp(b.encode_utf16()),
                (Self::Broken(a), Self::Broken(b)) => a.cmp(b),
            },
        }
    }
}

/// A value of JSON.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A double, always finite.
    Number(f64),
    /// A string.
    Text(Text),
    /// An array.
    Array(Vec<Json>),
    /// An object in canonical order, each key once.
    Object(Vec<(Text, Json)>),
}

impl Json {
    /// Reads a text.
    ///
    /// # Errors
    /// When it is no JSON, is nested deeper than [`MAX_DEPTH`], or has a number beyond a double.
    pub fn parse(text: &str) -> Result<Self, CanonicalError> {
        Reader::new(text).whole()
    }

    /// The value under a key, if this is an object that has it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => members
                .iter()
                .find(|(name, _)| name.as_str() == Some(key))
                .map(|(_, value)| value),
            _ => None,
        }
    }

    /// The canonical text.
    #[must_use]
    pub fn canonical(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }
}

/// The canonical text of a JSON text.
///
/// # Errors
/// As [`Json::parse`].
pub fn canonical(text: &str) -> Result<String, CanonicalError> {
    Ok(Json::parse(text)?.canonical())
}

/// The canonical text of a value of ours.
///
/// # Errors
/// When it can't be written as JSON, or is out of the bounds of [`Json::parse`].
pub fn of<T: Serialize>(value: &T) -> Result<String, CanonicalError> {
    let text = serde_json::to_string(value).map_err(|_| CanonicalError::Syntax(0))?;
    canonical(&text)
}

/// SHA-256 in lower-case hex.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// What a service submitted, as canonical text: at most [`MAX_PAYLOAD_BYTES`] long.
#[derive(Debug, Clone)]
pub struct Payload(Box<RawValue>);

impl Payload {
    /// Makes a text canonical.
    ///
    /// # Errors
    /// When it has no canonical form or is too long.
    pub fn parse(text: &str) -> Result<Self, CanonicalError> {
        let text = canonical(text)?;
        if text.len() > MAX_PAYLOAD_BYTES {
            return Err(CanonicalError::Long);
        }
        let raw = RawValue::from_string(text).map_err(|_| CanonicalError::Syntax(0))?;
        Ok(Self(raw))
    }

    /// The canonical text.
    #[must_use]
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// SHA-256 of the canonical text in lower-case hex: the `payloadHash`.
    #[must_use]
    pub fn hash(&self) -> String {
        sha256_hex(self.text().as_bytes())
    }

    /// The value.
    #[must_use]
    pub fn json(&self) -> Json {
        // It was read before.
        Json::parse(self.text()).unwrap_or(Json::Null)
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Payload {}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(raw.get()).map_err(D::Error::custom)
    }
}

#[cfg(test)]
#[path = "canonical_tests.rs"]
mod tests;
