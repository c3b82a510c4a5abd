//! All of bincode. Changing the codec means changing this file and the golden vectors.

use crate::frame::MAX_BODY;
use bincode::config::{Configuration, Fixint, Limit, LittleEndian};
use serde::{Serialize, de::DeserializeOwned};

/// Fixed integers: a hostile length prefix is caught by the limit, and a golden vector reads
/// like the struct it came from.
const CONFIG: Configuration<LittleEndian, Fixint, Limit<MAX_BODY>> = bincode::config::standard()
    .with_fixed_int_encoding()
    .with_limit::<MAX_BODY>();

/// Why a body can't be encoded or decoded.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The value doesn't fit a packet: send it as a [`crate::Body`] instead.
    #[error("the body can't be encoded in {MAX_BODY} bytes: {0}")]
    Encode(String),
    /// The bytes are no value of the expected type.
    #[error("the body can't be decoded: {0}")]
    Decode(String),
    /// The value ended before the packet did.
    #[error("{0} bytes are left over after the body")]
    LeftOver(usize),
}

/// Encodes one value; at most [`MAX_BODY`] bytes.
///
/// # Errors
/// [`CodecError::Encode`] when it doesn't fit.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, CodecError> {
    // Most bodies are small; growing from nothing costs more than their encoding.
    let mut bytes = Vec::with_capacity(512);
    bincode::serde::encode_into_std_write(value, &mut bytes, CONFIG)
        .map_err(|e| CodecError::Encode(e.to_string()))?;
    if bytes.len() > MAX_BODY {
        return Err(CodecError::Encode(format!("it has {} bytes", bytes.len())));
    }
    Ok(bytes)
}

/// Decodes exactly one value from all of `bytes`.
///
/// # Errors
/// [`CodecError::Decode`] for bytes of another shape, [`CodecError::LeftOver`] for trailing ones.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let (value, used) = bincode::serde::decode_from_slice(bytes, CONFIG)
        .map_err(|e| CodecError::Decode(e.to_string()))?;
    if used != bytes.len() {
        return Err(CodecError::LeftOver(bytes.len() - used));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn left_over_bytes_are_an_error() {
        let mut bytes = encode(&7u32).unwrap();
        assert_eq!(decode::<u32>(&bytes).unwrap(), 7);
        bytes.push(0);
        assert!(matches!(
            decode::<u32>(&bytes),
            Err(CodecError::LeftOver(1))
        ));
    }

    #[test]
    fn a_hostile_length_allocates_nothing() {
        let mut bytes = u64::MAX.to_le_bytes().to_vec();
        bytes.extend([1, 2, 3]);
        assert!(matches!(
            decode::<Vec<u8>>(&bytes),
            Err(CodecError::Decode(_))
        ));
        assert!(matches!(
            decode::<String>(&bytes),
            Err(CodecError::Decode(_))
        ));
        assert!(matches!(
            decode::<Vec<u64>>(&bytes),
            Err(CodecError::Decode(_))
        ));
    }

    #[test]
    fn a_body_over_the_cap_is_refused_before_sending() {
        assert!(encode(&vec![0u8; MAX_BODY]).is_err());
        assert!(encode(&vec![0u8; MAX_BODY - 8]).is_ok());
    }
}
