//! Text cut to byte bounds without splitting a character.

/// The longest beginning of `text` with at most `max` bytes.
#[must_use]
pub fn cut(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Splits `text` into pieces of at most `max` bytes, which must be at least 4 (one character).
pub fn pieces(text: &str, max: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let piece = cut(rest, max);
        rest = &rest[piece.len()..];
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_are_bounded_and_lose_nothing(text in "\\PC{0,60}", max in 4_usize..20) {
            let parts: Vec<&str> = pieces(&text, max).collect();
            prop_assert!(parts.iter().all(|part| (1..=max).contains(&part.len())));
            prop_assert_eq!(parts.concat(), text);
        }
    }
}
