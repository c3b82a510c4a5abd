//! Keeps what was sent to a streaming client a beginning of the answer.
//!
//! A model attempt may fail after part of its text went out, and the next attempt begins anew
//! (`Replace`). What a client has received can't be unsent, so nothing is held back either: while
//! the new text repeats what was sent nothing goes out, after that only what is new. The first
//! byte that differs ends the stream with an error, because two half answers in one are worse than
//! none.

use super::error::ApiError;
use crate::runs::MAX_ANSWER;

/// The text of one stream.
#[derive(Debug, Default)]
pub struct Answer {
    sent: String,
    /// The text since the last replacement, while it is shorter than what was sent.
    behind: Option<String>,
}

impl Answer {
    /// The run appends; returns what is to be sent now.
    ///
    /// # Errors
    /// When the text departs from what was sent, or grows over the bound.
    pub fn append<'a>(&mut self, piece: &'a str) -> Result<&'a str, ApiError> {
        let Some(mut now) = self.behind.take() else {
            return self.grow(piece);
        };
        let rest = &self.sent[now.len()..];
        if let Some(new) = piece.strip_prefix(rest) {
            return self.grow(new);
        }
        if !rest.starts_with(piece) {
            return Err(ApiError::restarted());
        }
        now.push_str(piece);
        self.behind = Some(now);
        Ok("")
    }

    /// The run begins anew; returns what is to be sent now.
    ///
    /// # Errors
    /// As [`Answer::append`].
    pub fn replace<'a>(&mut self, text: &'a str) -> Result<&'a str, ApiError> {
        self.behind = Some(String::new());
        self.append(text)
    }

    /// The run is committed with this text; returns what is still to be sent.
    ///
    /// # Errors
    /// When it is not a continuation of what was sent.
    pub fn finish<'a>(&mut self, whole: &'a str) -> Result<&'a str, ApiError> {
        whole
            .strip_prefix(self.sent.as_str())
            .ok_or_else(ApiError::restarted)
    }

    fn grow<'a>(&mut self, new: &'a str) -> Result<&'a str, ApiError> {
        if self.sent.len() + new.len() > MAX_ANSWER {
            return Err(ApiError::answer_too_large(MAX_ANSWER));
        }
        self.sent.push_str(new);
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_second_attempt_that_repeats_the_first_goes_on_where_it_ended() {
        let mut answer = Answer::default();
        assert_eq!(answer.append("Hello wor").unwrap(), "Hello wor");
        assert_eq!(answer.replace("").unwrap(), "");
        assert_eq!(answer.append("Hello").unwrap(), "");
        assert_eq!(answer.append(" world").unwrap(), "ld");
        assert_eq!(answer.append("!").unwrap(), "!");
        assert_eq!(answer.finish("Hello world!").unwrap(), "");
    }

    #[test]
    fn one_that_departs_ends_the_stream() {
        let mut answer = Answer::default();
        answer.append("Hello").unwrap();
        assert_eq!(answer.replace("Help").unwrap_err().code, "answer_restarted");
        let mut answer = Answer::default();
        answer.append("Hello").unwrap();
        answer.replace("").unwrap();
        assert_eq!(answer.append("Bye").unwrap_err().code, "answer_restarted");
        let mut answer = Answer::default();
        answer.append("é").unwrap();
        assert!(answer.replace("è").is_err());
    }

    #[test]
    fn the_end_brings_what_is_missing_and_nothing_else() {
        let mut answer = Answer::default();
        assert_eq!(answer.finish("all at once").unwrap(), "all at once");
        let mut answer = Answer::default();
        answer.append("ab").unwrap();
        assert_eq!(answer.finish("abc").unwrap(), "c");
        assert!(answer.finish("a").is_err());
    }

    #[test]
    fn an_answer_is_bounded() {
        let mut answer = Answer::default();
        answer.append(&"x".repeat(MAX_ANSWER)).unwrap();
        assert_eq!(answer.append("y").unwrap_err().code, "answer_too_large");
    }

    proptest! {
        #[test]
        fn what_was_sent_is_always_a_beginning_of_the_text(
            steps in proptest::collection::vec((any::<bool>(), "[aé]{0,3}"), 0..24)
        ) {
            let (mut answer, mut sent, mut now) = (Answer::default(), String::new(), String::new());
            for (replace, piece) in steps {
                let new = if replace {
                    now.clear();
                    answer.replace(&piece)
                } else {
                    answer.append(&piece)
                };
                now.push_str(&piece);
                match new {
                    Ok(new) => sent.push_str(new),
                    Err(_) => {
                        prop_assert!(!now.starts_with(&sent) && !sent.starts_with(&now));
                        return Ok(());
                    }
                }
                prop_assert!(sent.starts_with(&now) || sent == now);
            }
            if now.starts_with(&sent) {
                sent.push_str(answer.finish(&now).unwrap());
                prop_assert_eq!(sent, now);
            } else {
                prop_assert!(answer.finish(&now).is_err());
            }
        }
    }
}
