//! JSON with positions.
//!
//! Errors in a configuration have to name a line and a column, also those found long after parsing
//! (a port out of range, a key that nobody knows), and a key that stands twice has to be seen. The
//! usual parsers keep neither, so this one builds a small tree that does. It accepts exactly what
//! `serde_json` accepts (a property test holds it to that), within two bounds of its own.

use serde_json::Number;
use zeroize::Zeroize;

/// Largest file, in bytes. A configuration is a few KiB; this only stops a wrong file.
pub const MAX_BYTES: u64 = 1 << 20;
/// Deepest nesting. The key table needs seven; a plugin's payload may need more.
pub const MAX_DEPTH: usize = 64;

/// A place in a text, both counted from 1; the column counts characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

/// A value and where it begins.
#[derive(Debug, Clone)]
pub struct Node {
    pub at: Position,
    pub tree: Tree,
}

#[derive(Debug, Clone)]
pub enum Tree {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Object(Vec<Member>),
}

#[derive(Debug, Clone)]
pub struct Member {
    pub key: String,
    pub at: Position,
    pub node: Node,
}

/// Why a text is no JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}", line = at.line, column = at.column)]
pub struct SyntaxError {
    pub at: Position,
    pub message: String,
    pub expected: Option<&'static str>,
}

/// A key that stands twice in one object; the later one was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Duplicate {
    /// The object's keys from the root, joined by dots.
    pub path: String,
    pub at: Position,
    pub first: Position,
}

/// Parses a whole text.
pub fn parse(text: &str) -> Result<(Node, Vec<Duplicate>), SyntaxError> {
    let mut parser = Parser {
        text,
        offset: 0,
        at: Position { line: 1, column: 1 },
        path: Vec::new(),
        duplicates: Vec::new(),
    };
    if text.starts_with('\u{feff}') {
        return parser.fail(
            "a byte-order mark",
            Some("a file that begins with `{`; save it as UTF-8 without BOM"),
        );
    }
    let node = parser.value(0)?;
    parser.space();
    match parser.peek() {
        None => Ok((node, parser.duplicates)),
        Some(_) => parser.unexpected("the end of the file"),
    }
}

impl Node {
    /// The member of this name, if this is an object that has it.
    pub fn get(&self, key: &str) -> Option<&Member> {
        match &self.tree {
            Tree::Object(members) => members.iter().find(|member| member.key == key),
            _ => None,
        }
    }

    pub fn to_value(&self) -> serde_json::Value {
        use serde_json::Value;
        match &self.tree {
            Tree::Null => Value::Null,
            Tree::Bool(b) => Value::Bool(*b),
            Tree::Number(n) => Value::Number(n.clone()),
            Tree::Text(s) => Value::String(s.clone()),
            Tree::List(items) => items.iter().map(Node::to_value).collect(),
            Tree::Object(members) => members
                .iter()
                .map(|m| (m.key.clone(), m.node.to_value()))
                .collect(),
        }
    }

    /// Overwrites every string: a configuration may hold a secret.
    pub fn wipe(&mut self) {
        match &mut self.tree {
            Tree::Text(text) => text.zeroize(),
            Tree::List(items) => items.iter_mut().for_each(Node::wipe),
            Tree::Object(members) => members.iter_mut().for_each(|m| m.node.wipe()),
            Tree::Null | Tree::Bool(_) | Tree::Number(_) => {}
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    offset: usize,
    at: Position,
    path: Vec<String>,
    duplicates: Vec<Duplicate>,
}

type Parsed<T> = Result<T, SyntaxError>;

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.text.get(self.offset..)?.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.offset += c.len_utf8();
        if c == '\n' {
            self.at = Position {
                line: self.at.line + 1,
                column: 1,
            };
        } else {
            self.at.column += 1;
        }
        Some(c)
    }

    fn fail<T>(&self, message: impl Into<String>, expected: Option<&'static str>) -> Parsed<T> {
        Err(SyntaxError {
            at: self.at,
            message: message.into(),
            expected,
        })
    }

    fn unexpected<T>(&self, expected: &'static str) -> Parsed<T> {
        match self.peek() {
            None => self.fail("the file ends too early", Some(expected)),
            Some('/') | Some('#') => self.fail("a comment; JSON has none", Some(expected)),
            Some(c) => self.fail(format!("unexpected character {c:?}"), Some(expected)),
        }
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t' | '\n' | '\r')) {
            self.next();
        }
    }

    fn value(&mut self, depth: usize) -> Parsed<Node> {
        self.space();
        if depth > MAX_DEPTH {
            return self.fail("nested too deeply", Some("at most 64 levels"));
        }
        let at = self.at;
        let tree = match self.peek() {
            Some('{') => self.object(depth)?,
            Some('[') => self.list(depth)?,
            Some('"') => Tree::Text(self.string()?),
            Some('-' | '0'..='9') => Tree::Number(self.number()?),
            Some('t') => self.word("true", Tree::Bool(true))?,
            Some('f') => self.word("false", Tree::Bool(false))?,
            Some('n') => self.word("null", Tree::Null)?,
            _ => return self.unexpected("a JSON value"),
        };
        Ok(Node { at, tree })
    }

    fn word(&mut self, word: &'static str, tree: Tree) -> Parsed<Tree> {
        for expected in word.chars() {
            if self.peek() != Some(expected) {
                return self.unexpected(word);
            }
            self.next();
        }
        Ok(tree)
    }

    fn list(&mut self, depth: usize) -> Parsed<Tree> {
        self.next();
        let mut items = Vec::new();
        self.space();
        if self.peek() == Some(']') {
            self.next();
            return Ok(Tree::List(items));
        }
        loop {
            self.path.push(format!("[{}]", items.len()));
            items.push(self.value(depth + 1)?);
            self.path.pop();
            self.space();
            match self.peek() {
                Some(',') => {
                    self.next();
                    self.space();
                    if self.peek() == Some(']') {
                        return self
                            .fail("a comma before `]`", Some("no comma after the last value"));
                    }
                }
                Some(']') => {
                    self.next();
                    return Ok(Tree::List(items));
                }
                _ => return self.unexpected("`,` or `]`"),
            }
        }
    }

    fn object(&mut self, depth: usize) -> Parsed<Tree> {
        self.next();
        let mut members: Vec<Member> = Vec::new();
        // Every position in the list by key: a linear search would make a hostile 1 MiB object slow.
        let mut places = std::collections::HashMap::new();
        self.space();
        if self.peek() == Some('}') {
            self.next();
            return Ok(Tree::Object(members));
        }
        loop {
            let at = self.at;
            if self.peek() != Some('"') {
                return self.unexpected("a key in double quotes");
            }
            let key = self.string()?;
            self.space();
            if self.peek() != Some(':') {
                return self.unexpected("`:` after the key");
            }
            self.next();
            self.path.push(key.clone());
            let node = self.value(depth + 1)?;
            match places.get(&key) {
                None => {
                    places.insert(key.clone(), members.len());
                    members.push(Member { key, at, node });
                }
                Some(&place) => {
                    let earlier: &mut Member = &mut members[place];
                    let path = join(&self.path);
                    self.duplicates.push(Duplicate {
                        path,
                        at,
                        first: earlier.at,
                    });
                    *earlier = Member { key, at, node };
                }
            }
            self.path.pop();
            self.space();
            match self.peek() {
                Some(',') => {
                    self.next();
                    self.space();
                    if self.peek() == Some('}') {
                        return self
                            .fail("a comma before `}`", Some("no comma after the last member"));
                    }
                }
                Some('}') => {
                    self.next();
                    return Ok(Tree::Object(members));
                }
                _ => return self.unexpected("`,` or `}`"),
            }
        }
    }

    fn string(&mut self) -> Parsed<String> {
        self.next();
        let mut out = String::new();
        loop {
            match self.peek() {
                None => return self.unexpected("a closing quote"),
                Some('"') => {
                    self.next();
                    return Ok(out);
                }
                Some('\\') => {
                    self.next();
                    out.push(self.escape()?);
                }
                Some(c) if c < ' ' => {
                    return self.fail(
                        "a control character inside a string",
                        Some("an escape such as `\\n`"),
                    );
                }
                Some(c) => {
                    self.next();
                    out.push(c);
                }
            }
        }
    }

    fn escape(&mut self) -> Parsed<char> {
        let plain = match self.peek() {
            Some(c @ ('"' | '\\' | '/')) => c,
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => {
                self.next();
                return self.unicode();
            }
            _ => return self.unexpected("one of `\\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX`"),
        };
        self.next();
        Ok(plain)
    }

    fn unicode(&mut self) -> Parsed<char> {
        let high = self.four_hex()?;
        let code = match high {
            0xD800..=0xDBFF => {
                for expected in ['\\', 'u'] {
                    if self.peek() != Some(expected) {
                        return self.fail(
                            "half of a surrogate pair",
                            Some("its second half, `\\uDC00` to `\\uDFFF`"),
                        );
                    }
                    self.next();
                }
                let low = self.four_hex()?;
                if !(0xDC00..=0xDFFF).contains(&low) {
                    return self.fail(
                        "half of a surrogate pair",
                        Some("its second half, `\\uDC00` to `\\uDFFF`"),
                    );
                }
                0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)
            }
            other => other,
        };
        match char::from_u32(code) {
            Some(c) => Ok(c),
            None => self.fail("half of a surrogate pair", Some("a whole character")),
        }
    }

    fn four_hex(&mut self) -> Parsed<u32> {
        let mut code = 0;
        for _ in 0..4 {
            match self.peek().and_then(|c| c.to_digit(16)) {
                Some(digit) => code = code * 16 + digit,
                None => return self.unexpected("four hexadecimal digits"),
            }
            self.next();
        }
        Ok(code)
    }

    fn digits(&mut self) -> Parsed<()> {
        if !matches!(self.peek(), Some('0'..='9')) {
            return self.unexpected("a digit");
        }
        while matches!(self.peek(), Some('0'..='9')) {
            self.next();
        }
        Ok(())
    }

    fn number(&mut self) -> Parsed<Number> {
        let (start, at) = (self.offset, self.at);
        if self.peek() == Some('-') {
            self.next();
        }
        if self.peek() == Some('0') {
            self.next();
            if matches!(self.peek(), Some('0'..='9')) {
                return self.fail("a number with a leading zero", Some("a number without it"));
            }
        } else {
            self.digits()?;
        }
        if self.peek() == Some('.') {
            self.next();
            self.digits()?;
        }
        if matches!(self.peek(), Some('e' | 'E')) {
            self.next();
            if matches!(self.peek(), Some('+' | '-')) {
                self.next();
            }
            self.digits()?;
        }
        // The grammar is checked above; what a valid token is worth is decided where everyone else decides it.
        serde_json::from_str(&self.text[start..self.offset]).map_err(|_| SyntaxError {
            at,
            message: "a number too large to hold".into(),
            expected: Some("a number below 1.8e308"),
        })
    }
}

/// `["a", "[0]", "b"]` as `a[0].b`.
fn join(path: &[String]) -> String {
    let mut out = String::new();
    for part in path {
        if !out.is_empty() && !part.starts_with('[') {
            out.push('.');
        }
        out.push_str(part);
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn refused(text: &str) -> (u32, u32) {
        let error = parse(text).unwrap_err();
        (error.at.line, error.at.column)
    }

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        let (node, _) = parse("{\n  \"ä\": [1,\n    true]\n}").unwrap();
        let list = &node.get("ä").unwrap().node;
        assert_eq!(list.at, Position { line: 2, column: 8 });
        let Tree::List(items) = &list.tree else {
            panic!("a list")
        };
        assert_eq!(items[1].at, Position { line: 3, column: 5 });
    }

    #[test]
    fn syntax_errors_point_at_the_character() {
        assert_eq!(refused("{\"a\": 1,}"), (1, 9));
        assert_eq!(refused("{\n \"a\" 1}"), (2, 6));
        assert_eq!(refused("[1, 2"), (1, 6));
        assert_eq!(refused("{a: 1}"), (1, 2));
        assert_eq!(refused("// hello\n{}"), (1, 1));
        assert_eq!(refused("{} {}"), (1, 4));
        assert_eq!(refused("[01]"), (1, 3));
        assert_eq!(refused("[1e999]"), (1, 2));
        assert_eq!(refused("\u{feff}{}"), (1, 1));
    }

    #[test]
    fn a_key_that_stands_twice_is_reported_with_both_places_and_the_later_one_wins() {
        let (node, duplicates) =
            parse("{\"a\":{\"b\":1,\n\"b\":2},\"c\":[{\"d\":1,\"d\":1}]}").unwrap();
        assert_eq!(
            node.get("a").unwrap().node.to_value(),
            serde_json::json!({"b": 2})
        );
        let paths: Vec<_> = duplicates.iter().map(|d| d.path.as_str()).collect();
        assert_eq!(paths, ["a.b", "c[0].d"]);
        assert_eq!(duplicates[0].at, Position { line: 2, column: 1 });
        assert_eq!(duplicates[0].first, Position { line: 1, column: 7 });
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(parse(&nested(MAX_DEPTH + 1)).is_ok());
        assert!(parse(&nested(MAX_DEPTH + 2)).is_err());
        assert!(parse(&"[".repeat(1 << 20)).is_err());
    }

    #[test]
    fn wiping_leaves_no_string() {
        let (mut node, _) = parse(r#"{"a":["secret",{"b":"secret"}]}"#).unwrap();
        node.wipe();
        assert!(!node.to_value().to_string().contains("secret"));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..8)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// Both parsers agree, but for what this one refuses or reports beyond JSON itself.
    fn agree(text: &str) {
        let theirs = serde_json::from_str::<Value>(text);
        match parse(text) {
            Ok((node, _)) => assert_eq!(node.to_value(), theirs.unwrap(), "{text:?}"),
            Err(error) if error.message == "nested too deeply" => {}
            Err(error) => assert!(theirs.is_err(), "{text:?}: {error}"),
        }
    }

    proptest! {
        #[test]
        fn accepts_what_serde_json_writes(value in any_json()) {
            agree(&value.to_string());
            agree(&serde_json::to_string_pretty(&value).unwrap());
        }

        #[test]
        fn agrees_on_broken_json(value in any_json(), cut in any::<prop::sample::Index>(), junk in "[\\[\\]{}\",:\\\\0-9eE+.\\-a-z \\x00-\\x20]{0,4}") {
            let text = value.to_string();
            let places: Vec<usize> = text.char_indices().map(|(i, _)| i).collect();
            let place = places[cut.index(places.len())];
            agree(&text[..place]);
            agree(&format!("{}{junk}{}", &text[..place], &text[place..]));
        }

        #[test]
        fn agrees_on_anything(text in ".{0,64}") {
            agree(&text);
        }

        #[test]
        fn agrees_on_strings_with_escapes(body in r#"(\\u[dD][89a-fA-F][0-9a-f]{2}|\\u[0-9a-f]{4}|\\[bfnrt/"\\u]|[a-z]){0,8}"#) {
            agree(&format!("\"{body}\""));
        }

        #[test]
        fn agrees_on_numbers(body in "-?[0-9]{0,3}(\\.[0-9]{0,3})?([eE][+-]?[0-9]{0,3})?") {
            agree(&body);
        }
    }
}
