//! The secret that a web client must present.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Longest secret in bytes.
const MAX_SECRET: usize = 4 * 1024;

/// A required bearer secret.
pub struct Bearer(Zeroizing<Vec<u8>>);

/// Why a secret can't be used.
#[derive(Debug, thiserror::Error)]
pub enum BearerError {
    /// The descriptor can't be read.
    #[error("the secret can't be read: {0}")]
    Read(#[from] io::Error),
    /// Nothing in it.
    #[error("the secret is empty; put a secret in its file or take the setting out")]
    Empty,
    /// Over the bound.
    #[error("the secret has more than {MAX_SECRET} bytes")]
    TooLong,
    /// A space or a control character can't travel in the header.
    #[error("the secret must be one line of visible ASCII characters")]
    Character,
}

impl Bearer {
    /// Reads the secret from its descriptor; white space around it is no part of it.
    ///
    /// # Errors
    /// [`BearerError`]; the worker must not serve then.
    pub fn read(fd: OwnedFd) -> Result<Self, BearerError> {
        read_secret(fd).map(Self)
    }

    /// True when the request carries exactly this secret, once. Takes the same time for every
    /// wrong secret of the right length.
    #[must_use]
    pub fn accepts(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return false;
        };
        let Some((scheme, given)) = value.as_bytes().split_first_chunk::<7>() else {
            return false;
        };
        scheme.eq_ignore_ascii_case(b"bearer ") && bool::from(given.trim_ascii().ct_eq(&self.0))
    }
}

/// Reads a secret from its descriptor; white space around it is no part of it.
///
/// # Errors
/// [`BearerError`]; the worker must not serve then.
pub fn read_secret(fd: OwnedFd) -> Result<Zeroizing<Vec<u8>>, BearerError> {
    // Room for one byte over the bound, and never reallocated: a moved buffer leaves a copy.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_SECRET + 1));
    File::from(fd)
        .take(MAX_SECRET as u64 + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() > MAX_SECRET {
        return Err(BearerError::TooLong);
    }
    let secret = bytes.trim_ascii();
    if secret.is_empty() {
        return Err(BearerError::Empty);
    }
    if !secret.iter().all(u8::is_ascii_graphic) {
        return Err(BearerError::Character);
    }
    Ok(Zeroizing::new(secret.to_vec()))
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use http::HeaderValue;
    use std::io::{Seek, Write};

    pub(crate) fn read(bytes: &[u8]) -> Result<Bearer, BearerError> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        Bearer::read(file.into())
    }

    fn with(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn only_the_exact_secret_passes() {
        let bearer = read(b"s3cret\n").unwrap();
        for good in ["Bearer s3cret", "bearer s3cret", "BEARER  s3cret"] {
            assert!(bearer.accepts(&with(&[good])), "{good}");
        }
        for bad in [
            "Bearer s3cre",
            "Bearer s3crett",
            "Bearer S3CRET",
            "Basic s3cret",
            "s3cret",
            "Bearer",
            "Bearer ",
            "",
        ] {
            assert!(!bearer.accepts(&with(&[bad])), "{bad}");
        }
        assert!(!bearer.accepts(&with(&[])));
        assert!(!bearer.accepts(&with(&["Bearer wrong", "Bearer s3cret"])));
        assert!(!bearer.accepts(&with(&["Bearer s3cret", "Bearer s3cret"])));
    }

    #[test]
    fn a_secret_that_protects_nothing_is_refused() {
        assert!(matches!(read(b""), Err(BearerError::Empty)));
        assert!(matches!(read(b" \n"), Err(BearerError::Empty)));
        assert!(matches!(read(b"a b"), Err(BearerError::Character)));
        assert!(matches!(read("ä".as_bytes()), Err(BearerError::Character)));
        assert!(matches!(
            read(&[b'a'; MAX_SECRET + 1]),
            Err(BearerError::TooLong)
        ));
        assert!(read(&[b'a'; MAX_SECRET]).is_ok());
    }
}
