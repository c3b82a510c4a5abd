//! How a text is read.

use super::{CanonicalError, Json, MAX_DEPTH, Text};

/// Reads one text from its beginning to its end.
pub(super) struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self {
            text,
            bytes: text.as_bytes(),
            at: 0,
        }
    }

    /// The one value that the text is.
    pub(super) fn whole(mut self) -> Result<Json, CanonicalError> {
        let value = self.value(0)?;
        self.space();
        if self.at == self.text.len() {
            Ok(value)
        } else {
            self.wrong()
        }
    }

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
