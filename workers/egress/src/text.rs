//! Cutting text by bytes without cutting a character.

/// The longest beginning of `text` with at most `max` bytes.
#[must_use]
pub fn cut(text: &str, max: usize) -> &str {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// `text` in pieces of at most `max` bytes; `max` must be at least 4, the longest character.
pub fn pieces(mut text: &str, max: usize) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        if text.is_empty() {
            return None;
        }
        let piece = cut(text, max.max(4));
        text = &text[piece.len()..];
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_stay_whole() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("aé", 3), "aé");
        assert_eq!(cut("é", 1), "");
        assert_eq!(cut("abc", 9), "abc");
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
