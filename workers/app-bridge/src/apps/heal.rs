//! The beginning of a JSON object, closed so that it can be read: what a view is shown of a tool's
//! arguments while a model still writes them (`ui/notifications/tool-input-partial`). Pure.
//!
//! What is healed says nothing but what was written: values that are whole, and of the one that is
//! not, if it is a text, its beginning. Numbers and words that may go on are left out, for half of
//! one is another one.

use ipc_proto::edges::app_bridge::MAX_DRAFT_INPUT;
use serde_json::{Map, Value};

/// Most bytes of arguments of which a view is shown the beginning; what is longer comes whole, with
/// the call.
pub const MAX_PARTIAL: usize = MAX_DRAFT_INPUT;
/// Deepest nesting.
const MAX_DEPTH: usize = 64;

/// How far an unfinished text is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// To its last character.
    Characters,
    /// To its last whole word: a credential is known by its form once it is there whole, and has no
    /// blank in it.
    Words,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    Key,
    Colon,
    Value,
    Comma,
}

/// What `text` says so far. `None` for what is no beginning of an object, or over a bound.
#[must_use]
pub fn heal(text: &str, tail: Tail) -> Option<Map<String, Value>> {
    if text.len() > MAX_PARTIAL {
        return None;
    }
    let bytes = text.as_bytes();
    let mut open: Vec<u8> = Vec::new();
    let mut expect = Expect::Value;
    // Where the text can be cut and closed. Brackets that open or close are such places, so what is
    // open there is what is open at the end.
    let mut cut = 0;
    let mut end = "";
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match (byte, expect) {
            (b' ' | b'\t' | b'\n' | b'\r', _) => at += 1,
            (b'{' | b'[', Expect::Value) if open.len() < MAX_DEPTH => {
                open.push(if *byte == b'{' { b'}' } else { b']' });
                expect = if *byte == b'{' {
                    Expect::Key
                } else {
                    Expect::Value
                };
                at += 1;
                cut = at;
            }
            (b'}' | b']', _) if open.last() == Some(byte) => {
                open.pop();
                expect = Expect::Comma;
                at += 1;
                cut = at;
            }
            (b',', Expect::Comma) => {
                expect = if open.last() == Some(&b'}') {
                    Expect::Key
                } else {
                    Expect::Value
                };
                at += 1;
            }
            (b':', Expect::Colon) => {
                expect = Expect::Value;
                at += 1;
            }
            (b'"', Expect::Key | Expect::Value) => match string(&bytes[at + 1..]) {
                Text::Whole(length) => {
                    at += length + 2;
                    if expect == Expect::Key {
                        expect = Expect::Colon;
                    } else {
                        expect = Expect::Comma;
                        cut = at;
                    }
                }
                Text::Begun { characters, words } => {
                    if expect == Expect::Value {
                        let shown = match tail {
                            Tail::Characters => characters,
                            Tail::Words => words,
                        };
                        cut = at + 1 + shown;
                        end = "\"";
                    }
                    break;
                }
            },
            (b'-' | b'0'..=b'9' | b't' | b'f' | b'n', Expect::Value) => {
                let rest = &bytes[at..];
                let ends = |b: &u8| matches!(b, b' ' | b'\t' | b'\n' | b'\r' | b',' | b'}' | b']');
                let Some(length) = rest.iter().position(ends) else {
                    break;
                };
                at += length;
                cut = at;
                expect = Expect::Comma;
            }
            _ => return None,
        }
    }
    // Only an object has arguments, and what is not begun says nothing.
    let mut whole = text
        .get(..cut)
        .filter(|begun| !begun.is_empty())?
        .to_owned();
    whole.push_str(end);
    open.iter()
        .rev()
        .for_each(|bracket| whole.push(char::from(*bracket)));
    serde_json::from_str(&whole).ok()
}

enum Text {
    /// Bytes up to the quote that ends it.
    Whole(usize),
    /// Bytes up to the end of its last character, and of its last word.
    Begun { characters: usize, words: usize },
}

/// A text, from after its first quote on.
fn string(bytes: &[u8]) -> Text {
    let (mut at, mut words) = (0, 0);
    // A character of two escapes begins here.
    let mut pair = None;
    let mut characters = 0;
    while let Some(byte) = bytes.get(at) {
        let length = match byte {
            b'"' => return Text::Whole(at),
            b'\\' => match bytes.get(at + 1) {
                Some(b'u') => 6,
                Some(_) => 2,
                None => break,
            },
            _ => 1,
        };
        let Some(written) = bytes.get(at..at + length) else {
            break;
        };
        at += length;
        // The first half of a pair is no character.
        let first = length == 6
            && matches!(
                written,
                [
                    _,
                    _,
                    b'd' | b'D',
                    b'8' | b'9' | b'a' | b'A' | b'b' | b'B',
                    ..
                ]
            );
        pair = (first && pair.is_none()).then_some(());
        if pair.is_none() {
            characters = at;
            if matches!(written, b" " | br"\n" | br"\t" | br"\r") {
                words = at;
            }
        }
    }
    Text::Begun { characters, words }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn healed(text: &str) -> Option<Value> {
        heal(text, Tail::Characters).map(Value::Object)
    }

    #[test]
    fn a_beginning_is_closed_where_it_says_something() {
        for (text, expected) in [
            ("", None),
            ("  ", None),
            ("{", Some(json!({}))),
            (r#"{"a"#, Some(json!({}))),
            (r#"{"a""#, Some(json!({}))),
            (r#"{"a":"#, Some(json!({}))),
            (r#"{"a":""#, Some(json!({ "a": "" }))),
            (r#"{"a":"x y"#, Some(json!({ "a": "x y" }))),
            (r#"{"a":"x\"#, Some(json!({ "a": "x" }))),
            (r#"{"a":"x\u00"#, Some(json!({ "a": "x" }))),
            (r#"{"a":"x\u00e4"#, Some(json!({ "a": "xä" }))),
            (r#"{"a":"x\ud83d"#, Some(json!({ "a": "x" }))),
            (r#"{"a":"x\ud83d\ude0"#, Some(json!({ "a": "x" }))),
            (r#"{"a":"x\ud83d\ude00"#, Some(json!({ "a": "x😀" }))),
            (r#"{"a":1"#, Some(json!({}))),
            (r#"{"a":12,"#, Some(json!({ "a": 12 }))),
            (r#"{"a":tru"#, Some(json!({}))),
            (r#"{"a":true "#, Some(json!({ "a": true }))),
            (r#"{"a":[1,2"#, Some(json!({ "a": [1] }))),
            (
                r#"{"a":[1,{"b":null},{"c":"d"#,
                Some(json!({ "a": [1, { "b": null }, { "c": "d" }] })),
            ),
            (r#"{"a":1}"#, Some(json!({ "a": 1 }))),
            (r#" {"a":1} "#, Some(json!({ "a": 1 }))),
            (r#"{"a":1} x"#, None),
            (r#"{"a":1,}"#, None),
            (r#"{"a" 1"#, None),
            (r#"{a:1"#, None),
            (r#"{"a":x,"#, None),
            (r#"{"a":]"#, None),
            ("[1,", None),
            ("1 ", None),
            (r#""a"#, None),
        ] {
            assert_eq!(healed(text), expected, "{text}");
        }
    }

    #[test]
    fn a_word_that_may_go_on_is_withheld_where_credentials_are() {
        for (text, expected) in [
            (r#"{"a":"use ghp_012345678"#, json!({ "a": "use " })),
            (r#"{"a":"use\nghp_0"#, json!({ "a": "use\n" })),
            (r#"{"a":"ghp_0"#, json!({ "a": "" })),
            (r#"{"a":"ghp_0""#, json!({ "a": "ghp_0" })),
            (
                r#"{"a":"x","b":"one two three "#,
                json!({ "a": "x", "b": "one two three " }),
            ),
        ] {
            assert_eq!(
                heal(text, Tail::Words).map(Value::Object),
                Some(expected),
                "{text}"
            );
        }
    }

    #[test]
    fn depth_and_length_have_bounds() {
        let nested = |depth: usize| format!(r#"{{"a":{}"#, "[".repeat(depth));
        assert!(healed(&nested(MAX_DEPTH - 1)).is_some());
        assert!(healed(&nested(MAX_DEPTH)).is_none());
        let long = |bytes: usize| format!(r#"{{"a":"{}"#, "x".repeat(bytes - 6));
        assert_eq!(long(MAX_PARTIAL).len(), MAX_PARTIAL);
        assert!(healed(&long(MAX_PARTIAL)).is_some());
        assert!(healed(&long(MAX_PARTIAL + 1)).is_none());
    }

    /// Everything that is said of a value is in it, texts as beginnings.
    fn begins(part: &Value, whole: &Value) -> bool {
        match (part, whole) {
            (Value::Object(part), Value::Object(whole)) => part
                .iter()
                .all(|(key, value)| whole.get(key).is_some_and(|whole| begins(value, whole))),
            (Value::Array(part), Value::Array(whole)) => {
                part.len() <= whole.len() && part.iter().zip(whole).all(|(a, b)| begins(a, b))
            }
            (Value::String(part), Value::String(whole)) => whole.starts_with(part.as_str()),
            _ => part == whole,
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            "[ -~\\n\u{1f600}\"\\\\]{0,40}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    /// As another program might write it: every character that can be is an escape.
    fn escaped(text: &str) -> String {
        let mut out = String::new();
        for c in text.chars() {
            if c.is_ascii() {
                out.push(c);
            } else {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
        out
    }

    proptest! {
        #[test]
        fn any_beginning_of_any_object_says_nothing_that_is_not_in_it(
            fields in prop::collection::btree_map("[a-c]{1,2}", value(), 0..5),
            pretty: bool,
            ascii: bool,
        ) {
            let whole = Value::Object(fields.into_iter().collect());
            let text = if pretty { serde_json::to_string_pretty(&whole) } else { serde_json::to_string(&whole) };
            let text = if ascii { escaped(&text.unwrap()) } else { text.unwrap() };
            let whole: Value = serde_json::from_str(&text).unwrap();
            for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
                for tail in [Tail::Characters, Tail::Words] {
                    let part = heal(&text[..end], tail).map(Value::Object);
                    prop_assert!(end == 0 || part.is_some(), "{}", &text[..end]);
                    prop_assert!(part.is_none_or(|part| begins(&part, &whole)));
                }
            }
            prop_assert_eq!(heal(&text, Tail::Words).map(Value::Object), Some(whole));
        }

        #[test]
        fn whatever_comes_is_healed_or_not(text in r#"[\[\]{}:,"\\ua0-9truefalsn .dD8é-]{0,60}"#) {
            let _ = (heal(&text, Tail::Characters), heal(&text, Tail::Words));
        }

        #[test]
        fn any_text_is_healed_or_not(text: String) {
            let _ = heal(&text, Tail::Characters);
        }
    }
}
