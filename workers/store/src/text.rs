//! Cutting text to a byte bound without breaking a character.

use ipc_proto::text::cut as prefix;

/// `text` in at most `max` bytes; what was cut ends in `mark`.
#[must_use]
pub fn cut(text: &str, max: usize, mark: &str) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let kept = prefix(text, max.saturating_sub(mark.len()));
    let mut out = String::with_capacity(kept.len() + mark.len());
    out.push_str(kept);
    out.push_str(prefix(mark, max - kept.len()));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_cut_keeps_the_bound_and_the_beginning(text in "\\PC{0,80}", max in 0usize..200) {
            let out = cut(&text, max, "[cut]");
            prop_assert!(out.len() <= max);
            prop_assert_eq!(out == text, text.len() <= max);
            if text.len() > max && max >= 5 {
                let kept = out.strip_suffix("[cut]").unwrap_or_default();
                prop_assert!(text.starts_with(kept) && out.ends_with("[cut]"));
                // No more is lost than the mark and one character.
                prop_assert!(kept.len() + 5 + 4 > max);
            }
        }
    }
}
