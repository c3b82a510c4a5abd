//! Capabilities: what proves the right to claim, to submit a result, to operate.
//!
//! Nothing here draws random bytes or keeps state; what is secret is wiped when it is dropped and has no
//! readable `Debug`.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest as _, Sha256};
use std::fmt;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// Bytes of the service's secret.
pub const SECRET_BYTES: usize = 32;
/// Random bytes of a claim token.
pub const CLAIM_BYTES: usize = 24;
/// Longest bearer in bytes that is looked at.
pub const MAX_BEARER: usize = 512;

const RESULT_LABEL: &[u8] = b"continuation-result";
const OPERATOR_LABEL: &[u8] = b"mono-agent-continuation-operator-v1";

/// The service's secret, from which result and operator tokens are derived and records are sealed.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Secret([u8; SECRET_BYTES]);

impl Secret {
    /// The secret itself, not its text.
    #[must_use]
    pub const fn new(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(bytes)
    }

    /// Reads the text of the file `continuation-secret`: base64url of 32 bytes and at most one line end.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let bytes = Zeroizing::new(URL_SAFE_NO_PAD.decode(text).ok()?);
        Some(Self(bytes.as_slice().try_into().ok()?))
    }

    /// The text of the file `continuation-secret`.
    #[must_use]
    pub fn text(&self) -> Zeroizing<String> {
        Zeroizing::new(URL_SAFE_NO_PAD.encode(self.0) + "\n")
    }

    /// HMAC-SHA256 over the parts one after the other.
    #[must_use]
    pub fn seal(&self, parts: &[&[u8]]) -> [u8; 32] {
        // HMAC takes keys of any length; the type has no other way to say it.
        let Ok(mut mac) = <Hmac<Sha256> as KeyInit>::new_from_slice(&self.0) else {
            unreachable!("HMAC takes keys of any length")
        };
        for part in parts {
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A bearer token: printable, and wiped when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Zeroizing<String>);

impl Token {
    /// A claim token of these random bytes. It lives in memory only.
    #[must_use]
    pub fn claim(random: &[u8; CLAIM_BYTES]) -> Self {
        Self::of(random)
    }

    /// The result token of a continuation. It is derived, so that a repeated claim gets the same one after a
    /// restart, while the record keeps its digest only.
    #[must_use]
    pub fn result(secret: &Secret, continuation_id: &str, task_hash: &str) -> Self {
        let mut mac = secret.seal(&[
            RESULT_LABEL,
            &[0],
            continuation_id.as_bytes(),
            &[0],
            task_hash.as_bytes(),
        ]);
        let token = Self::of(&mac);
        mac.zeroize();
        token
    }

    /// The operator's token: whoever can read the secret can derive it, also after a restart.
    #[must_use]
    pub fn operator(secret: &Secret) -> Self {
        Self::of(&secret.seal(&[OPERATOR_LABEL]))
    }

    fn of(bytes: &[u8]) -> Self {
        Self(Zeroizing::new(URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// The text that goes into `Authorization: Bearer`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What is kept of it.
    #[must_use]
    pub fn digest(&self) -> TokenDigest {
        TokenDigest::of(&self.0)
    }
}

impl From<String> for Token {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// SHA-256 of a token: what a record or a table of bearers keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// Of what was sent.
    #[must_use]
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// Of a record's `resultTokenHash`: 64 lower-case hex digits.
    #[must_use]
    pub fn parse(hex_digits: &str) -> Option<Self> {
        if hex_digits.bytes().any(|b| b.is_ascii_uppercase()) {
            return None;
        }
        let mut bytes = [0; 32];
        hex::decode_to_slice(hex_digits, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// 64 lower-case hex digits.
    #[must_use]
    pub fn hex(&self) -> String {
        hex::encode(self.0)
    }

    /// Whether they are the same, in a time that says nothing of where they differ.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// Whether two texts are the same, in a time that depends on their lengths only. For fingerprints and MACs,
/// which are no secrets but whose checks must not become an oracle.
#[must_use]
pub fn same(a: &str, b: &str) -> bool {
    a.as_bytes().ct_eq(b.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn secret() -> Secret {
        Secret::new(std::array::from_fn(|i| i as u8))
    }

    #[test]
    fn tokens_have_their_lengths_and_a_replay_derives_the_same_one() {
        assert_eq!(Token::claim(&[7; CLAIM_BYTES]).as_str().len(), 32);
        let token = Token::result(&secret(), "c-1", "hash");
        assert_eq!(token.as_str().len(), 43);
        assert_eq!(token, Token::result(&secret(), "c-1", "hash"));
        for other in [
            Token::result(&secret(), "c-2", "hash"),
            Token::result(&secret(), "c-1", "other"),
            Token::result(&Secret::new([1; 32]), "c-1", "hash"),
            Token::operator(&secret()),
        ] {
            assert_ne!(token, other);
        }
    }

    /// Calculated with another program from the inputs that the wire contract names.
    #[test]
    fn tokens_are_the_wire_contract_s() {
        assert_eq!(
            Token::result(&secret(), "c-1", "hash").as_str(),
            "c_6Ph5kK0JJyOzyjB4kph7tDKlvmNdDVti-xN9CADA4"
        );
        assert_eq!(
            Token::operator(&secret()).as_str(),
            "_6-pNkncbyptvpionyF7tC0QF4Klw-4MMOdb8Gb5DQs"
        );
    }

    #[test]
    fn the_separator_keeps_ids_and_hashes_apart() {
        let one = Token::result(&secret(), "ab", "c");
        assert_ne!(one, Token::result(&secret(), "a", "bc"));
    }

    #[test]
    fn only_the_same_token_matches_its_digest() {
        let token = Token::operator(&secret());
        let kept = TokenDigest::parse(&token.digest().hex()).unwrap();
        assert!(kept.matches(&TokenDigest::of(token.as_str())));
        for sent in [
            "",
            "x",
            &token.as_str()[1..],
            &token.as_str().to_uppercase(),
        ] {
            assert!(!kept.matches(&TokenDigest::of(sent)), "{sent}");
        }
        assert!(same("ab", "ab") && !same("ab", "ac") && !same("ab", "abc"));
    }

    #[test]
    fn a_digest_is_64_lower_case_hex_digits() {
        let hex = TokenDigest::of("x").hex();
        assert!(TokenDigest::parse(&hex).is_some());
        assert!(TokenDigest::parse(&hex.to_uppercase()).is_none());
        assert!(TokenDigest::parse(&hex[1..]).is_none());
        assert!(TokenDigest::parse("").is_none());
    }

    #[test]
    fn a_secret_is_its_text_and_nothing_else() {
        let text = secret().text();
        let read = Secret::parse(text.as_bytes()).unwrap();
        assert_eq!(read.0, secret().0);
        assert!(Secret::parse(text.trim_end().as_bytes()).is_some());
        for bad in [
            "",
            "\n",
            "AAAA\n",
            &format!("{}\n", text.as_str()),
            &format!(" {}", text.as_str()),
        ] {
            assert!(Secret::parse(bad.as_bytes()).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn nothing_secret_is_shown() {
        assert_eq!(format!("{:?}", secret()), "Secret");
        assert_eq!(format!("{:?}", Token::operator(&secret())), "Token");
    }
}
