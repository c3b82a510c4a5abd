//! Bytes as they come, cut into bounded lines. No I/O.

/// Cuts a stream of bytes into lines. Holds at most one unfinished line of the bound's size.
#[derive(Debug)]
pub struct Lines {
    held: Vec<u8>,
    /// Where the search for the next newline goes on.
    seen: usize,
    max: usize,
}

/// A line is longer than the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a line has more than {0} bytes")]
pub struct TooLong(pub usize);

impl Lines {
    /// Lines of at most `max` bytes, their newline not counted.
    #[must_use]
    pub const fn new(max: usize) -> Self {
        Self {
            held: Vec::new(),
            seen: 0,
            max,
        }
    }

    /// Another bound from now on.
    pub const fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    /// Takes what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// The next whole line without its end. Blank ones are left out.
    ///
    /// # Errors
    /// When a line, finished or not, is over the bound. Nothing can be read after that.
    pub fn next_line(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        loop {
            let end = self.held[self.seen..].iter().position(|b| *b == b'\n');
            let Some(end) = end.map(|end| self.seen + end) else {
                self.seen = self.held.len();
                return if self.seen > self.max {
                    Err(TooLong(self.max))
                } else {
                    Ok(None)
                };
            };
            if end > self.max {
                return Err(TooLong(self.max));
            }
            let rest = self.held.split_off(end + 1);
            let mut line = std::mem::replace(&mut self.held, rest);
            self.seen = 0;
            line.truncate(end);
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_come_whole_whatever_their_pieces() {
        let mut lines = Lines::new(5);
        lines.push(b"12");
        assert_eq!(lines.next_line(), Ok(None));
        lines.push(b"345\r\n\n \nab\nx");
        assert_eq!(lines.next_line(), Err(TooLong(5)), "a return counts");
        let mut lines = Lines::new(6);
        lines.push(b"12345\r\n\n \nab\nx");
        assert_eq!(lines.next_line().unwrap().unwrap(), b"12345");
        assert_eq!(lines.next_line().unwrap().unwrap(), b"ab");
        assert_eq!(lines.next_line(), Ok(None));
    }

    proptest! {
        #[test]
        fn exactly_the_long_lines_are_refused(
            pieces in proptest::collection::vec(
                proptest::collection::vec(prop_oneof![4 => Just(b'a'), 1 => Just(b'\n')], 0..9), 0..9),
            max in 0usize..9,
        ) {
            let whole: Vec<u8> = pieces.concat();
            let (mut lines, mut out, mut refused) = (Lines::new(max), vec![], false);
            'all: for piece in &pieces {
                lines.push(piece);
                loop {
                    match lines.next_line() {
                        Ok(Some(line)) => out.push(line),
                        Ok(None) => break,
                        Err(_) => { refused = true; break 'all }
                    }
                }
            }
            let parts: Vec<&[u8]> = whole.split(|b| *b == b'\n').collect();
            prop_assert_eq!(refused, parts.iter().any(|part| part.len() > max));
            if !refused {
                let (_, finished) = parts.split_last().unwrap();
                let finished: Vec<_> = finished.iter().filter(|l| !l.is_empty()).map(|l| l.to_vec()).collect();
                prop_assert_eq!(out, finished);
            }
        }
    }
}
