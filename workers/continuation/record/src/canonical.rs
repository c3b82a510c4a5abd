//! Canonical JSON: the one text of a value, over which hashes and MACs are made.
//!
//! It is what a JavaScript program gets that sorts the keys of every object and writes the whole
//! out again, because that is what the services that submit results do: keys by UTF-16 code unit,
//! but those that look like an array's index first and by number; numbers in the form of
//! ECMAScript, without a negative zero; of a key that comes twice the last value; surrogates
//! without a partner stay escaped.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use std::cmp::Ordering;
use std::fmt::Write as _;

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
        let mut reader = Reader {
            text,
            bytes: text.as_bytes(),
            at: 0,
        };
        let value = reader.value(0)?;
        reader.space();
        if reader.at == text.len() {
            Ok(value)
        } else {
            Err(CanonicalError::Syntax(reader.at))
        }
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

    fn write(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(true) => out.push_str("true"),
            Self::Bool(false) => out.push_str("false"),
            Self::Number(number) => write_number(*number, out),
            Self::Text(text) => write_text(text, out),
            Self::Array(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (at, (key, value)) in members.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    write_text(key, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
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

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn wrong<T>(&self) -> Result<T, CanonicalError> {
        Err(CanonicalError::Syntax(self.at))
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn word(&mut self, word: &str, value: Json) -> Result<Json, CanonicalError> {
        if self.bytes[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(value)
        } else {
            self.wrong()
        }
    }

    fn value(&mut self, depth: usize) -> Result<Json, CanonicalError> {
        self.space();
        match self.peek() {
            Some(b'n') => self.word("null", Json::Null),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(b'"') => Ok(Json::Text(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'[' | b'{') if depth == MAX_DEPTH => Err(CanonicalError::Depth),
            Some(b'[') => self.array(depth + 1),
            Some(b'{') => self.object(depth + 1),
            _ => self.wrong(),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Json, CanonicalError> {
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.value(depth)?);
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Json::Array(items));
                }
                _ => return self.wrong(),
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, CanonicalError> {
        self.at += 1;
        let mut members = Vec::new();
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Json::Object(members));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return self.wrong();
            }
            let key = self.string()?;
            self.space();
            if self.peek() != Some(b':') {
                return self.wrong();
            }
            self.at += 1;
            members.push((key, self.value(depth)?));
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    break;
                }
                _ => return self.wrong(),
            }
        }
        // A stable sort keeps equal keys in the order of the text, so the last one is the last.
        members.sort_by(|(a, _), (b, _)| a.order(b));
        members.reverse();
        members.dedup_by(|(a, _), (b, _)| a == b);
        members.reverse();
        Ok(Json::Object(members))
    }

    fn number(&mut self) -> Result<Json, CanonicalError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return self.wrong(),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if !matches!(self.peek(), Some(b'0'..=b'9')) {
                return self.wrong();
            }
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if !matches!(self.peek(), Some(b'0'..=b'9')) {
                return self.wrong();
            }
            self.digits();
        }
        match self.text[start..self.at].parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Json::Number(number)),
            _ => Err(CanonicalError::Number(start)),
        }
    }

    fn digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    fn string(&mut self) -> Result<Text, CanonicalError> {
        self.at += 1;
        let mut text = String::new();
        // Only once there is a surrogate without a partner.
        let mut broken: Option<Vec<u16>> = None;
        loop {
            let start = self.at;
            while matches!(self.peek(), Some(b) if b != b'"' && b != b'\\' && b >= 0x20) {
                self.at += 1;
            }
            // Both ends are beside ASCII bytes.
            let plain = &self.text[start..self.at];
            match &mut broken {
                Some(units) => units.extend(plain.encode_utf16()),
                None => text.push_str(plain),
            }
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(broken.map_or(Text::Whole(text), Text::Broken));
                }
                Some(b'\\') => self.escape(&mut text, &mut broken)?,
                _ => return self.wrong(),
            }
        }
    }

    fn escape(
        &mut self,
        text: &mut String,
        broken: &mut Option<Vec<u16>>,
    ) -> Result<(), CanonicalError> {
        self.at += 1;
        let plain = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode(text, broken);
            }
            _ => return self.wrong(),
        };
        self.at += 1;
        push(plain, text, broken);
        Ok(())
    }

    fn unicode(
        &mut self,
        text: &mut String,
        broken: &mut Option<Vec<u16>>,
    ) -> Result<(), CanonicalError> {
        let unit = self.hex()?;
        if let Some(plain) = char::from_u32(u32::from(unit)) {
            push(plain, text, broken);
            return Ok(());
        }
        if unit < 0xdc00 && self.bytes[self.at..].starts_with(b"\\u") {
            let back = self.at;
            self.at += 2;
            let second = self.hex()?;
            if let Some(Ok(plain)) = char::decode_utf16([unit, second]).next() {
                push(plain, text, broken);
                return Ok(());
            }
            // It is not the partner; it is read again for itself.
            self.at = back;
        }
        broken
            .get_or_insert_with(|| std::mem::take(text).encode_utf16().collect())
            .push(unit);
        Ok(())
    }

    fn hex(&mut self) -> Result<u16, CanonicalError> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = match self.peek() {
                Some(b @ b'0'..=b'9') => b - b'0',
                Some(b @ b'a'..=b'f') => b - b'a' + 10,
                Some(b @ b'A'..=b'F') => b - b'A' + 10,
                _ => return self.wrong(),
            };
            unit = unit << 4 | u16::from(digit);
            self.at += 1;
        }
        Ok(unit)
    }
}

fn push(plain: char, text: &mut String, broken: &mut Option<Vec<u16>>) {
    match broken {
        Some(units) => units.extend(plain.encode_utf16(&mut [0; 2]).iter()),
        None => text.push(plain),
    }
}

fn write_text(text: &Text, out: &mut String) {
    out.push('"');
    match text {
        Text::Whole(text) => {
            for c in text.chars() {
                write_char(c, out);
            }
        }
        Text::Broken(units) => {
            for decoded in char::decode_utf16(units.iter().copied()) {
                match decoded {
                    Ok(c) => write_char(c, out),
                    Err(lone) => write_escape(u32::from(lone.unpaired_surrogate()), out),
                }
            }
        }
    }
    out.push('"');
}

fn write_char(c: char, out: &mut String) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\0'..'\u{20}' => write_escape(u32::from(c), out),
        _ => out.push(c),
    }
}

fn write_escape(unit: u32, out: &mut String) {
    // A string takes all that is written to it.
    let _ = write!(out, "\\u{unit:04x}");
}

/// ECMAScript's `Number::toString` in base ten.
fn write_number(number: f64, out: &mut String) {
    if number == 0.0 {
        out.push('0');
        return;
    }
    if number < 0.0 {
        out.push('-');
    }
    // The shortest digits that give the number again, as `d.ddd` and an exponent.
    let shortest = format!("{:e}", number.abs());
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let point = exponent.parse::<i32>().unwrap_or(0) + 1;
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let zeros = |n: i32| "0".repeat(usize::try_from(n).unwrap_or(0));
    if count <= point && point <= 21 {
        out.push_str(&digits);
        out.push_str(&zeros(point - count));
    } else if 0 < point && point <= 21 {
        let (whole, part) = digits.split_at(usize::try_from(point).unwrap_or(0));
        out.push_str(whole);
        out.push('.');
        out.push_str(part);
    } else if -6 < point && point <= 0 {
        out.push_str("0.");
        out.push_str(&zeros(-point));
        out.push_str(&digits);
    } else {
        let (first, rest) = digits.split_at(1);
        out.push_str(first);
        if !rest.is_empty() {
            out.push('.');
            out.push_str(rest);
        }
        let _ = write!(out, "e{:+}", point - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_vectors_of_the_contract() {
        for (text, expected, hash) in [
            (
                r#"{"b":1,"10":2,"9":3,"01":4}"#,
                r#"{"9":3,"10":2,"01":4,"b":1}"#,
                "87d9050a29fbae75c0aba82c3c6a8a821c6f82c28bbf2be2cba4d3f05d4d910d",
            ),
            (
                "{\"\u{e000}\":1,\"\u{1f600}\":2}",
                "{\"\u{1f600}\":2,\"\u{e000}\":1}",
                "28c95d1bbb2209223307e62f489020e8f9e0cfa16adf2daf6d88127a1e8dd22a",
            ),
            (
                r#"{"x":[1.0,-0,1e21,1e-7,0.1,123456789012345680000]}"#,
                r#"{"x":[1,0,1e+21,1e-7,0.1,123456789012345680000]}"#,
                "ae5ad9a276d86e1b58246c70e366e8b4bc94ccaf7994f5e2f5b7605d2b5440fb",
            ),
            (
                r#"{"a":1,"a":2}"#,
                r#"{"a":2}"#,
                "7e8059f495589fcd981232cc11d00b00da3802c01d688fa1cf1f6bed6e5bb33c",
            ),
            (
                r#""\ud800""#,
                r#""\ud800""#,
                "8c0c59dd0d275aadcd462a5fe12eb352cbdfeaf961eae4f85a4660521df7d2f5",
            ),
        ] {
            let payload = Payload::parse(text).expect(text);
            assert_eq!(payload.text(), expected);
            assert_eq!(payload.hash(), hash, "{text}");
        }
    }

    #[test]
    fn numbers_as_javascript_writes_them() {
        for (text, expected) in [
            ("100", "100"),
            ("-1.50", "-1.5"),
            ("1e20", "100000000000000000000"),
            ("1.5e21", "1.5e+21"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1e-7"),
            ("1.25e-10", "1.25e-10"),
            ("5e-324", "5e-324"),
            ("1e-400", "0"),
            ("9007199254740993", "9007199254740992"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
            ("-0.0", "0"),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn strings_as_javascript_writes_them() {
        for (text, expected) in [
            (r#""\u003c\u2028\/""#, "\"<\u{2028}/\""),
            (r#""\u0001\u001F\u007f""#, "\"\\u0001\\u001f\u{7f}\""),
            (r#""\b\f\n\r\t\"\\""#, r#""\b\f\n\r\t\"\\""#),
            (r#""\ud83d\ude00""#, "\"\u{1f600}\""),
            (
                r#""\uD83D\ud83d\ude00x\uDE00""#,
                "\"\\ud83d\u{1f600}x\\ude00\"",
            ),
            (r#""a\udc00é""#, "\"a\\udc00é\""),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn keys_that_look_like_indexes() {
        assert_eq!(
            canonical(r#"{"4294967295":1,"4294967294":2,"0":3,"00":4,"-1":5,"1e1":6,"":7}"#)
                .as_deref(),
            Ok(r#"{"0":3,"4294967294":2,"":7,"-1":5,"00":4,"1e1":6,"4294967295":1}"#)
        );
        assert_eq!(
            canonical(r#"{"b":{"a":1},"a":0,"b":{"c":2}}"#).as_deref(),
            Ok(r#"{"a":0,"b":{"c":2}}"#)
        );
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for text in [
            "",
            " ",
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "-",
            "nul",
            "[1,]",
            "{\"a\":1,}",
            "{a:1}",
            "\"",
            "\"\u{1}\"",
            r#""\x""#,
            r#""\u12g4""#,
            "[",
            "{\"a\"}",
            "1 2",
            "NaN",
            "\u{feff}1",
        ] {
            assert!(
                matches!(canonical(text), Err(CanonicalError::Syntax(_))),
                "{text:?}"
            );
        }
        assert_eq!(canonical("[1e400]"), Err(CanonicalError::Number(1)));
    }

    #[test]
    fn nesting_has_a_bound() {
        let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        assert!(canonical(&nested(MAX_DEPTH)).is_ok());
        assert_eq!(
            canonical(&nested(MAX_DEPTH + 1)),
            Err(CanonicalError::Depth)
        );
        assert_eq!(canonical(&"[".repeat(1 << 20)), Err(CanonicalError::Depth));
    }

    #[test]
    fn a_payload_has_a_bound() {
        let long = |bytes: usize| format!("\"{}\"", "a".repeat(bytes - 2));
        assert!(Payload::parse(&long(MAX_PAYLOAD_BYTES)).is_ok());
        assert_eq!(
            Payload::parse(&long(MAX_PAYLOAD_BYTES + 1)),
            Err(CanonicalError::Long)
        );
    }

    fn any_json() -> impl Strategy<Value = Json> {
        let text = prop_oneof![
            any::<String>().prop_map(Text::Whole),
            (0u32..40).prop_map(|n| Text::Whole(n.to_string())),
        ];
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::Bool),
            any::<f64>()
                .prop_filter("finite", |n| n.is_finite())
                .prop_map(Json::Number),
            text.clone().prop_map(Json::Text),
        ];
        leaf.prop_recursive(4, 32, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Json::Array),
                prop::collection::vec((text.clone(), inner), 0..6).prop_map(Json::Object),
            ]
        })
    }

    proptest! {
        #[test]
        fn canonical_text_is_canonical(json in any_json()) {
            let once = canonical(&json.canonical()).expect("what was written is JSON");
            prop_assert_eq!(canonical(&once), Ok(once.clone()));
            // The library that reads our record files agrees that it is JSON.
            prop_assert!(serde_json::from_str::<serde_json::Value>(&once).is_ok());
        }

        #[test]
        fn no_text_does_harm(text in any::<String>()) {
            let _ = canonical(&text);
        }
    }
}
