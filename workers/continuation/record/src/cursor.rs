//! Where the next page of an operator's list begins: the key of the last record shown, opaque to the client.

use crate::Time;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Longest cursor in bytes.
pub const MAX_CURSOR: usize = 512;
/// Longest continuation id in bytes.
const MAX_ID: usize = 128;

/// The key of the last record shown. The list goes from the newest creation time to the oldest and, within
/// one instant, from the greatest id to the least.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The record's `createdAt`.
    pub created_at: Time,
    /// The record's id.
    pub continuation_id: String,
}

/// The text is no cursor of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the page cursor is not one that this service gave out; start again without one")]
pub struct InvalidCursor;

impl Cursor {
    /// base64url of `[createdAt, id]`.
    #[must_use]
    pub fn encode(&self) -> String {
        let pair = serde_json::json!([self.created_at.to_string(), self.continuation_id]);
        URL_SAFE_NO_PAD.encode(pair.to_string())
    }

    /// Reads what [`Self::encode`] wrote.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn decode(text: &str) -> Result<Self, InvalidCursor> {
        if text.is_empty() || text.len() > MAX_CURSOR {
            return Err(InvalidCursor);
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| InvalidCursor)?;
        let (created_at, continuation_id): (Time, String) =
            serde_json::from_slice(&bytes).map_err(|_| InvalidCursor)?;
        if continuation_id.is_empty() || continuation_id.len() > MAX_ID {
            return Err(InvalidCursor);
        }
        Ok(Self {
            created_at,
            continuation_id,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_cursor_comes_back_and_anything_else_is_refused() {
        let cursor = Cursor {
            created_at: Time::parse("2030-01-02T03:04:05.000Z").unwrap(),
            continuation_id: "0f3c".into(),
        };
        let text = cursor.encode();
        assert_eq!(Cursor::decode(&text), Ok(cursor));
        let of = |json: &str| URL_SAFE_NO_PAD.encode(json);
        for bad in [
            String::new(),
            "%%%".into(),
            of(""),
            of("{}"),
            of("[]"),
            of(r#"["2030-01-02T03:04:05.000Z"]"#),
            of(r#"["2030-01-02T03:04:05.000Z",""]"#),
            of(r#"["2030-01-02T03:04:05.000Z","a","b"]"#),
            of(r#"["yesterday","a"]"#),
            of(r#"["2030-01-02T03:04:05.000Z",7]"#),
            of(&format!(
                r#"["2030-01-02T03:04:05.000Z","{}"]"#,
                "a".repeat(129)
            )),
            format!("{text}="),
            "A".repeat(513),
        ] {
            assert_eq!(Cursor::decode(&bad), Err(InvalidCursor), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,600}") {
            let _ = Cursor::decode(&text);
        }
    }
}
