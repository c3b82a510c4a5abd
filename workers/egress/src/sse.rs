//! Server-sent events, decoded as their bytes arrive.
//!
//! The decoder has no I/O and gives the same events for every way of cutting the stream. Unlike a
//! browser it never reconnects, so `id` and `retry` are ignored.

/// Largest event in bytes, its field names included.
///
/// One event must hold a whole tool call: some servers send its arguments in one piece, and the
/// responses wire repeats the complete answer in its last event. Arguments of
/// [`crate::wire::MAX_ARGUMENTS`] bytes with ordinary JSON escaping fit.
pub const MAX_EVENT: usize = 24 * 1024 * 1024;

/// One event: its name (empty when the stream gave none) and its data lines joined by `\n`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SseEvent {
    /// The `event` field.
    pub name: String,
    /// The `data` field.
    pub data: String,
}

/// Why a stream is no event stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// An event went over [`MAX_EVENT`].
    #[error("an event of the stream is larger than {MAX_EVENT} bytes")]
    TooLarge,
    /// A line is not UTF-8.
    #[error("a line of the stream is not UTF-8")]
    NotUtf8,
}

/// The state between two pieces of a stream.
#[derive(Debug, Default)]
pub struct SseDecoder {
    line: Vec<u8>,
    event: SseEvent,
    has_data: bool,
    /// The last byte was a carriage return: a line feed right after it belongs to it.
    after_return: bool,
    first_line_seen: bool,
}

impl SseDecoder {
    /// Takes the next bytes and appends every event that they complete to `out`.
    ///
    /// # Errors
    /// When an event is too large or not UTF-8; the stream is then of no further use.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<SseEvent>) -> Result<(), SseError> {
        if self.after_return && !bytes.is_empty() {
            self.after_return = false;
            if bytes[0] == b'\n' {
                bytes = &bytes[1..];
            }
        }
        while let Some(end) = bytes.iter().position(|b| matches!(b, b'\n' | b'\r')) {
            self.extend(&bytes[..end])?;
            self.end_line(out)?;
            let returned = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if returned {
                match bytes.first() {
                    Some(b'\n') => bytes = &bytes[1..],
                    Some(_) => {}
                    None => self.after_return = true,
                }
            }
        }
        self.extend(bytes)
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), SseError> {
        let held = self.line.len() + self.event.data.len() + self.event.name.len();
        if bytes.len() > MAX_EVENT - held.min(MAX_EVENT) {
            return Err(SseError::TooLarge);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, out: &mut Vec<SseEvent>) -> Result<(), SseError> {
        let line = std::mem::take(&mut self.line);
        let line = std::str::from_utf8(&line).map_err(|_| SseError::NotUtf8)?;
        let line = if self.first_line_seen {
            line
        } else {
            self.first_line_seen = true;
            line.strip_prefix('\u{feff}').unwrap_or(line)
        };
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            if std::mem::take(&mut self.has_data) {
                out.push(event);
            }
            return Ok(());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
                self.has_data = true;
            }
            "event" => value.clone_into(&mut self.event.name),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn decode(pieces: &[&[u8]]) -> Result<Vec<SseEvent>, SseError> {
        let mut decoder = SseDecoder::default();
        let mut out = Vec::new();
        for piece in pieces {
            decoder.push(piece, &mut out)?;
        }
        Ok(out)
    }

    fn event(name: &str, data: &str) -> SseEvent {
        SseEvent {
            name: name.into(),
            data: data.into(),
        }
    }

    #[test]
    fn fields_and_line_ends() {
        let cases: &[(&str, Vec<SseEvent>)] = &[
            ("data: a\n\n", vec![event("", "a")]),
            ("data:a\r\n\r\n", vec![event("", "a")]),
            (
                "data: a\r\rdata: b\r\r",
                vec![event("", "a"), event("", "b")],
            ),
            ("\u{feff}data: a\n\n", vec![event("", "a")]),
            ("event: x\ndata: a\ndata: b\n\n", vec![event("x", "a\nb")]),
            (": comment\n\ndata:  two\n\n", vec![event("", " two")]),
            ("data\n\n", vec![event("", "")]),
            ("event: only\n\ndata: next\n\n", vec![event("", "next")]),
            (
                "id: 1\nretry: 5\nother\ndata: a:b\n\n",
                vec![event("", "a:b")],
            ),
            ("data: never ended\n", vec![]),
            ("", vec![]),
        ];
        for (text, expected) in cases {
            assert_eq!(&decode(&[text.as_bytes()]).unwrap(), expected, "{text:?}");
        }
    }

    #[test]
    fn an_endless_event_is_refused() {
        let piece = vec![b'x'; 1 << 20];
        let mut decoder = SseDecoder::default();
        let mut out = Vec::new();
        decoder.push(b"data: ", &mut out).unwrap();
        let mut outcome = Ok(());
        for _ in 0..=MAX_EVENT >> 20 {
            outcome = decoder.push(&piece, &mut out);
        }
        assert_eq!(outcome, Err(SseError::TooLarge));
    }

    #[test]
    fn many_short_lines_count_as_one_event() {
        let lines = "data: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n".repeat(1 << 15);
        let mut decoder = SseDecoder::default();
        let mut out = Vec::new();
        let outcome = (0..40).try_for_each(|_| decoder.push(lines.as_bytes(), &mut out));
        assert_eq!(outcome, Err(SseError::TooLarge));
        assert!(out.is_empty());
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        assert_eq!(decode(&[b"data: \xff\n\n"]), Err(SseError::NotUtf8));
    }

    proptest! {
        #[test]
        fn cutting_the_stream_changes_nothing(
            text in "(data|event|: ?x|id)?(:? ?[a-zé{}]{0,4})(\r\n|\n|\r|\n\n|\r\r){1,3}.{0,20}",
            repeat in 1_usize..4,
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..6),
        ) {
            let text = text.repeat(repeat);
            let bytes = text.as_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|i| i.index(bytes.len() + 1)).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            let pieces: Vec<&[u8]> = at.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
            prop_assert_eq!(decode(&pieces), decode(&[bytes]));
        }

        #[test]
        fn hostile_bytes_end_in_events_or_an_error(bytes: Vec<u8>) {
            let _ = decode(&[&bytes]);
        }
    }
}
