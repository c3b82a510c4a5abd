//! Cutting text by bytes without cutting a character: what travels and what is kept is bounded in
//! bytes.

/// The longest beginning of `text` with at most `max` bytes.
#[must_use]
pub fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// `text` in pieces of at most `max` bytes, or of 4 where that is less: the longest character. None
/// is empty.
pub fn pieces(mut text: &str, max: usize) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let piece = cut(text, max.max(4));
        text = &text[piece.len()..];
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_stay_whole() {
        for (text, max, kept) in [
            ("aé", 2, "a"),
            ("aé", 3, "aé"),
            ("é", 1, ""),
            ("", 0, ""),
            ("abc", 9, "abc"),
            ("abc", usize::MAX, "abc"),
        ] {
            assert_eq!(cut(text, max), kept, "{text} {max}");
        }
    }

    proptest::proptest! {
        #[test]
        fn pieces_are_bounded_and_complete(text in ".{0,60}", max in 0_usize..20) {
            let all: Vec<&str> = pieces(&text, max).collect();
            proptest::prop_assert!(all.iter().all(|p| !p.is_empty() && p.len() <= max.max(4)));
            proptest::prop_assert_eq!(all.concat(), text);
        }
    }
}
