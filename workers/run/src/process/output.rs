//! What a command printed, bounded: how much is kept, and what of it is shown to the model.

/// Bytes of stdout and stderr together after which a command is ended (facts 4.1).
pub const MAX_CAPTURED: usize = 8 * 1024 * 1024;
/// Characters of output shown to the model (facts 4.1).
pub const MAX_SHOWN_CHARS: usize = 20_000;

/// Collects output up to a bound and counts what came after it.
#[derive(Debug)]
pub struct Capture {
    kept: Vec<u8>,
    max: usize,
    seen: u64,
}

impl Capture {
    /// An empty capture of at most `max` bytes.
    #[must_use]
    pub const fn new(max: usize) -> Self {
        Self {
            kept: Vec::new(),
            max,
            seen: 0,
        }
    }

    /// Takes a chunk and returns the part of it that was kept.
    pub fn push<'a>(&mut self, chunk: &'a [u8]) -> &'a [u8] {
        let room = self.max - self.kept.len();
        let part = &chunk[..chunk.len().min(room)];
        self.kept.extend_from_slice(part);
        self.seen += chunk.len() as u64;
        part
    }

    /// True when more came than is kept: the command must be ended.
    #[must_use]
    pub fn overflowed(&self) -> bool {
        self.seen > self.kept.len() as u64
    }

    /// The kept bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.kept
    }
}

/// Text cut to its beginning and end.
#[derive(Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The beginning; the whole text when nothing was left out.
    pub head: String,
    /// The end; empty when nothing was left out.
    pub tail: String,
    /// Characters left out between them.
    pub omitted: usize,
}

/// Cuts `text` to `max` characters, half from the beginning and half from the end: a build's
/// first error and its summary are both worth more than its middle.
#[must_use]
pub fn excerpt(text: &str, max: usize) -> Excerpt {
    let total = text.chars().count();
    if total <= max {
        return Excerpt {
            head: text.to_owned(),
            tail: String::new(),
            omitted: 0,
        };
    }
    let head_chars = max.div_ceil(2);
    let tail_chars = max - head_chars;
    Excerpt {
        head: text[..byte_of_char(text, head_chars)].to_owned(),
        tail: text[byte_of_char(text, total - tail_chars)..].to_owned(),
        omitted: total - max,
    }
}

fn byte_of_char(text: &str, index: usize) -> usize {
    text.char_indices()
        .nth(index)
        .map_or(text.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_capture_keeps_the_bound_exactly_and_notices_one_byte_more() {
        let mut capture = Capture::new(10);
        assert_eq!(capture.push(b"0123456789"), b"0123456789");
        assert!(!capture.overflowed());
        assert_eq!(capture.push(b"x"), b"");
        assert!(capture.overflowed());
        assert_eq!(capture.into_bytes(), b"0123456789");
    }

    #[test]
    fn an_excerpt_shows_both_ends() {
        let cut = excerpt("abcdefghij", 5);
        assert_eq!(
            (cut.head.as_str(), cut.tail.as_str(), cut.omitted),
            ("abc", "ij", 5)
        );
        assert_eq!(excerpt("äöü", 3).omitted, 0);
        assert_eq!(
            excerpt("äöüß", 2),
            Excerpt {
                head: "ä".into(),
                tail: "ß".into(),
                omitted: 2
            }
        );
    }

    proptest! {
        #[test]
        fn an_excerpt_never_shows_more_than_asked_and_never_loses_count(text in ".{0,60}", max in 0_usize..50) {
            let cut = excerpt(&text, max);
            let shown = cut.head.chars().count() + cut.tail.chars().count();
            prop_assert!(shown <= max || cut.omitted == 0);
            prop_assert_eq!(shown + cut.omitted, text.chars().count());
            prop_assert!(text.starts_with(&cut.head) && text.ends_with(&cut.tail));
        }
    }
}
