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

    proptest! {
        #[test]
        fn nothing_that_is_left_is_a_marker(parts in proptest::collection::vec(prop_oneof![
            Just("[mono-mcp-app:".to_owned()), Just("[kirocrew-mcp-app:".to_owned()),
            Just(ID.to_owned()), Just(UUID.to_owned()), Just("]".to_owned()), Just("\n".to_owned()),
            "\\PC{0,3}"], 0..24)) {
            let text = parts.concat();
            let left = strip(&text);
            prop_assert_eq!(ids(&left).count(), 0);
            if ids(&text).count() == 0 { prop_assert_eq!(&left, &text); }
        }
    }
}
