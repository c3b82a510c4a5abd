//! The word in a result that names an app, for whoever reads the transcript of an agent that is
//! not ours. It gives no right; in our own texts it has no place (spec s2, "Marker and spool
//! record"). Pure.

use std::borrow::Cow;

/// How ours begins, and how that of the specification does.
const OPENINGS: [&str; 2] = ["[mono-mcp-app:", "[kirocrew-mcp-app:"];

/// The marker of a record.
#[must_use]
pub fn marker(id: &str) -> String {
    format!("{}{id}]", OPENINGS[0])
}

/// Bytes of a marker's id at the beginning of a text: 32 hexadecimal digits in lower case, or the
/// same in the groups of a UUID.
fn id_at(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let hex = |b: &u8| b.is_ascii_digit() || (b'a'..=b'f').contains(b);
    let plain = bytes.get(..32).is_some_and(|id| id.iter().all(hex));
    if plain {
        return Some(32);
    }
    let grouped = bytes.get(..36)?;
    let dash = |n: usize| matches!(n, 8 | 13 | 18 | 23);
    let fits = |(n, b): (usize, &u8)| if dash(n) { *b == b'-' } else { hex(b) };
    grouped.iter().enumerate().all(fits).then_some(36)
}

/// The bytes and the id of a marker that a text ends with.
fn last(text: &str) -> Option<(usize, &str)> {
    let text_without = text.strip_suffix(']')?;
    let of = |opening: &str, length: usize| {
        let id = text_without.get(text_without.len().checked_sub(length)?..)?;
        let before = &text_without[..text_without.len() - length];
        let whole = opening.len() + length + 1;
        (before.ends_with(opening) && id_at(id) == Some(length)).then_some((whole, id))
    };
    let lengths = [32, 36];
    let all = OPENINGS
        .iter()
        .flat_map(|opening| lengths.map(|length| (opening, length)));
    let mut found = all.filter_map(|(opening, length)| of(opening, length));
    found.next()
}

/// The ids of all markers in a text.
pub fn ids(text: &str) -> impl Iterator<Item = &str> {
    let ends = text.match_indices(']').map(|(at, _)| at + 1);
    ends.filter_map(|end| last(&text[..end]).map(|(_, id)| id))
}

/// A text without its markers. What is left never makes a new one.
#[must_use]
pub fn strip(text: &str) -> Cow<'_, str> {
    if !OPENINGS.iter().any(|opening| text.contains(opening)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(end) = rest.find(']').map(|at| at + 1) {
        out.push_str(&rest[..end]);
        rest = &rest[end..];
        if let Some((bytes, _)) = last(&out) {
            out.truncate(out.len() - bytes);
            // A line of its own goes whole.
            if out.ends_with('\n') && (rest.is_empty() || rest.starts_with('\n')) {
                out.pop();
            }
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Takes the markers out of a text that comes piece by piece, wherever it is cut. What may still
/// become one is held back; nothing else is.
#[derive(Debug, Default)]
pub struct Strainer {
    held: String,
    /// Where in `held` each unfinished marker begins: one may stand inside of another, whose parts
    /// are a marker when the inner one is gone.
    begun: Vec<usize>,
}

/// How far a text has come that begins like a marker.
enum Standing {
    Unfinished,
    Whole,
    Other,
}

impl Strainer {
    /// What of the text so far can be passed on now and was not yet.
    #[must_use]
    pub fn push<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        if self.held.is_empty() && !text.contains('[') {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(text.len());
        for character in text.chars() {
            if character == '[' {
                self.begun.push(self.held.len());
            }
            self.held.push(character);
            let standing = self.begun.last().map(|from| standing(&self.held[*from..]));
            match standing {
                Some(Standing::Unfinished) => {}
                Some(Standing::Whole) => {
                    let from = self.begun.pop().unwrap_or_default();
                    self.held.truncate(from);
                }
                Some(Standing::Other) | None => {
                    out.push_str(&self.held);
                    self.held.clear();
                    self.begun.clear();
                }
            }
        }
        Cow::Owned(out)
    }

    /// Bytes that are held back.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// The text is over: what was held back is no marker.
    #[must_use]
    pub fn finish(&mut self) -> String {
        self.begun.clear();
        std::mem::take(&mut self.held)
    }
}

fn standing(text: &str) -> Standing {
    if OPENINGS.iter().any(|opening| opening.starts_with(text)) {
        return Standing::Unfinished;
    }
    let rest = OPENINGS
        .iter()
        .find_map(|opening| text.strip_prefix(opening));
    let Some(rest) = rest else {
        return Standing::Other;
    };
    let id = rest.strip_suffix(']').unwrap_or(rest);
    if id.len() < rest.len() {
        return match id_at(id) == Some(id.len()) {
            true => Standing::Whole,
            false => Standing::Other,
        };
    }
    // Whatever it lacks can still come when it fits with zeros in the place of that.
    let zeros = [
        "0".repeat(32),
        "00000000-0000-0000-0000-000000000000".into(),
    ];
    let may = |zeros: &String| {
        let lacking = zeros.get(id.len()..);
        lacking.is_some_and(|lacking| id_at(&format!("{id}{lacking}")) == Some(zeros.len()))
    };
    match zeros.iter().any(may) {
        true => Standing::Unfinished,
        false => Standing::Other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const ID: &str = "0123456789abcdef0123456789abcdef";
    const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

    #[test]
    fn exactly_the_markers_are_taken_out() {
        let own = marker(ID);
        for (text, left) in [
            (own.clone(), ""),
            (format!("a\n{own}"), "a"),
            (format!("a\n{own}\nb"), "a\nb"),
            (format!("a {own} b"), "a  b"),
            (format!("[kirocrew-mcp-app:{UUID}]{own}"), ""),
            (format!("[kirocrew-mcp-app:{ID}]"), ""),
            // Taken apart so that what is left would be one.
            (format!("[mono-mcp-app:{own}{ID}]"), ""),
            (format!("ä{own}ö"), "äö"),
        ] {
            assert_eq!(strip(&text), left, "{text}");
        }
        for text in [
            "",
            "a",
            "[mono-mcp-app:]",
            "[mono-mcp-app:../../x]",
            "[mono-mcp-app:0123456789ABCDEF0123456789abcdef]",
            "[mono-mcp-app:0123456789abcdef0123456789abcdef",
            "[other-mcp-app:0123456789abcdef0123456789abcdef]",
        ] {
            assert_eq!(strip(text), text);
            assert_eq!(ids(text).count(), 0);
        }
        let two = format!("{own}x[kirocrew-mcp-app:{UUID}]");
        assert_eq!(ids(&two).collect::<Vec<_>>(), [ID, UUID]);
    }

    fn strained<'a>(pieces: impl IntoIterator<Item = &'a str>) -> String {
        let mut strainer = Strainer::default();
        let mut out: String = pieces
            .into_iter()
            .map(|piece| strainer.push(piece))
            .collect();
        out.push_str(&strainer.finish());
        out
    }

    #[test]
    fn a_marker_is_taken_out_wherever_the_text_is_cut() {
        let (own, theirs) = (marker(ID), format!("[kirocrew-mcp-app:{UUID}]"));
        for (text, left) in [
            (format!("a {own} b"), "a  b"),
            (format!("ä{theirs}{own}ö"), "äö"),
            (format!("[mono-mcp-app:{theirs}{ID}]"), ""),
            (format!("[[{own}"), "[["),
            (format!("{own}[mono"), "[mono"),
            (
                "[x](y) [mono-mcp-app:..]".to_owned(),
                "[x](y) [mono-mcp-app:..]",
            ),
        ] {
            for (at, _) in text.char_indices() {
                let (one, two) = text.split_at(at);
                assert_eq!(strained([one, two]), left, "{one} | {two}");
            }
            let letters: Vec<String> = text.chars().map(String::from).collect();
            assert_eq!(strained(letters.iter().map(String::as_str)), left);
        }
    }

    /// A reader sees each word when it is there.
    #[test]
    fn only_what_may_become_a_marker_is_held_back() {
        let mut strainer = Strainer::default();
        assert_eq!(strainer.push("a [link](b) c"), "a [link](b) c");
        assert_eq!(
            (strainer.push("see [mono"), strainer.held()),
            ("see ".into(), 5)
        );
        assert_eq!(
            (strainer.push("tone"), strainer.held()),
            ("[monotone".into(), 0)
        );
        assert_eq!(strainer.push("[kirocrew-mcp-app:01234567-"), "");
        assert_eq!(strainer.push("x"), "[kirocrew-mcp-app:01234567-x");
    }

    fn parts() -> impl Strategy<Value = Vec<String>> {
        let part = prop_oneof![
            Just("[mono-mcp-app:".to_owned()),
            Just("[kirocrew-mcp-app:".to_owned()),
            Just(ID.to_owned()),
            Just(UUID.to_owned()),
            Just("]".to_owned()),
            Just("\n".to_owned()),
            "\\PC{0,3}",
        ];
        proptest::collection::vec(part, 0..24)
    }

    proptest! {
        /// As the whole text would be, but for the line ends of markers that had a line of their own.
        #[test]
        fn pieces_come_to_what_the_whole_comes_to(parts in parts(), cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6)) {
            let text = parts.concat();
            let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).filter(|at| text.is_char_boundary(*at)).collect();
            ends.push(text.len());
            ends.sort_unstable();
            let mut from = 0;
            let pieces: Vec<&str> = ends.into_iter().map(|end| { let piece = &text[from..end]; from = end; piece }).collect();
            let left = strained(pieces);
            prop_assert_eq!(ids(&left).count(), 0);
            prop_assert_eq!(left.replace('\n', ""), strip(&text).replace('\n', ""));
        }

        #[test]
        fn nothing_that_is_left_is_a_marker(parts in parts()) {
            let text = parts.concat();
            let left = strip(&text);
            prop_assert_eq!(ids(&left).count(), 0);
            if ids(&text).count() == 0 { prop_assert_eq!(&left, &text); }
        }
    }
}
