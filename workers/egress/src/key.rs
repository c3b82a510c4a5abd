//! A provider's credential, from its descriptor to the request header and nowhere else.

use http::HeaderValue;
use std::fmt;
use std::fs::File;
use std::io::Read;
use zeroize::Zeroizing;

/// Largest key in bytes; long enough for a signed token.
pub const MAX_KEY: usize = 16 * 1024;

/// Shorter keys are not scrubbed from messages: they would hit ordinary words.
const MIN_SCRUBBED: usize = 6;

/// Why a key can't be used. None of them quotes the key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The descriptor can't be read.
    #[error("the key can't be read: {0}")]
    Read(#[from] std::io::Error),
    /// Nothing but white space.
    #[error("the key file is empty: put the key into it, or take it out of the configuration")]
    Empty,
    /// Over [`MAX_KEY`].
    #[error("the key file is larger than {MAX_KEY} bytes: it must hold the key and nothing else")]
    TooLong,
    /// Something a header can't carry.
    #[error(
        "the key holds a character that no HTTP header can carry: it must be one line of printable ASCII"
    )]
    Unprintable,
}

/// One key. Its memory is overwritten when it is dropped; `Debug` doesn't show it.
#[derive(Clone)]
pub struct Key(Zeroizing<String>);

impl Key {
    /// Reads the whole descriptor once and trims white space around the key.
    ///
    /// # Errors
    /// When it can't be read, is empty, too long, or no header value.
    pub fn read(file: &mut File) -> Result<Self, KeyError> {
        // The capacity is given in advance: a vector that grows leaves copies behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_KEY + 2));
        file.take(MAX_KEY as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > MAX_KEY {
            return Err(KeyError::TooLong);
        }
        let key = bytes.trim_ascii();
        if key.is_empty() {
            return Err(KeyError::Empty);
        }
        match std::str::from_utf8(key) {
            Ok(text) if key.iter().all(u8::is_ascii_graphic) => {
                Ok(Self(Zeroizing::new(text.to_owned())))
            }
            _ => Err(KeyError::Unprintable),
        }
    }

    /// The key as a header value with `prefix` before it, marked so that no log prints it.
    ///
    /// The HTTP library keeps its own copy, which is not overwritten.
    #[must_use]
    pub fn header(&self, prefix: &'static str) -> Option<HeaderValue> {
        let text = Zeroizing::new(format!("{prefix}{}", self.0.as_str()));
        let mut value = HeaderValue::from_str(&text).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Replaces the key in a text that came from a provider: some quote it in their refusals.
    #[must_use]
    pub fn scrub(&self, text: &str) -> String {
        if self.0.len() < MIN_SCRUBBED {
            return text.to_owned();
        }
        text.replace(self.0.as_str(), "[key]")
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(set)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::{Seek, Write};

    fn read(text: &[u8]) -> Result<Key, KeyError> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text).unwrap();
        file.rewind().unwrap();
        Key::read(&mut file)
    }

    #[test]
    fn white_space_around_a_key_is_no_part_of_it() {
        let key = read(b"  sk-secret-1\r\n\n").unwrap();
        assert_eq!(
            key.header("Bearer ").unwrap().to_str().unwrap(),
            "Bearer sk-secret-1"
        );
        assert!(key.header("").unwrap().is_sensitive());
    }

    #[test]
    fn what_is_no_key_is_refused() {
        assert!(matches!(read(b""), Err(KeyError::Empty)));
        assert!(matches!(read(b" \n"), Err(KeyError::Empty)));
        assert!(matches!(read(b"two\nlines"), Err(KeyError::Unprintable)));
        assert!(matches!(
            read(b"sch\xc3\xbcssel"),
            Err(KeyError::Unprintable)
        ));
        assert!(matches!(read(&[b'k'; MAX_KEY + 1]), Err(KeyError::TooLong)));
        assert!(read(&[b'k'; MAX_KEY]).is_ok());
    }

    #[test]
    fn a_key_shows_nowhere() {
        let key = read(b"sk-secret-1").unwrap();
        assert_eq!(format!("{key:?}"), "Key(set)");
        assert!(!format!("{:?}", key.header("Bearer ")).contains("secret"));
        assert_eq!(
            key.scrub("bad key sk-secret-1, again: sk-secret-1"),
            "bad key [key], again: [key]"
        );
        assert_eq!(read(b"a").unwrap().scrub("a cat"), "a cat");
    }
}
