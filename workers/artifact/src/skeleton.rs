//! The form in which names are compared: what a reader takes for the same name is the same name.
//!
//! Spec s0, "Publishing a reply file", and facts on refused sources: comparison happens after
//! NFKD with combining marks and ignorable characters removed, so `．ｅｎｖ`, `.e\u{301}nv` and
//! `.\u{200b}env` are all `.env`.

use unicode_normalization::{UnicodeNormalization as _, char::is_combining_mark};

/// Unicode's `Default_Ignorable_Code_Point` (DerivedCoreProperties, Unicode 16): characters that
/// show as nothing, so a name may hide behind them. Blocks reserved for more of them included.
const IGNORABLE: [(char, char); 17] = [
    ('\u{00ad}', '\u{00ad}'),
    ('\u{034f}', '\u{034f}'),
    ('\u{061c}', '\u{061c}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{202a}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fff8}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

/// True for a character that shows as nothing, control characters included.
#[must_use]
pub fn is_ignorable(c: char) -> bool {
    c.is_control()
        || IGNORABLE
            .iter()
            .any(|&(first, last)| (first..=last).contains(&c))
}

/// What is left of `text` for a comparison, case kept: word borders may be written as case.
#[must_use]
pub fn cased_skeleton(text: &str) -> String {
    text.nfkd()
        .filter(|c| !is_combining_mark(*c) && !is_ignorable(*c))
        .collect()
}

/// What is left of `text` for a comparison that ignores case.
#[must_use]
pub fn skeleton(text: &str) -> String {
    cased_skeleton(text)
        .chars()
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn disguises_come_off() {
        for disguised in [
            ".env",
            "．ｅｎｖ",
            "\u{2024}env",
            ".e\u{301}nv",
            ".\u{200b}e\u{ad}nv",
            "\u{feff}.ENV",
            ".𝐞𝐧𝐯",
            ".ⓔⓝⓥ",
            "\u{202e}.env",
            ".en\u{e0061}v",
            ".env\u{7}",
        ] {
            assert_eq!(skeleton(disguised), ".env", "{disguised:?}");
        }
        assert_eq!(skeleton("ſecret"), "secret");
        assert_eq!(skeleton("toKen"), "token");
        assert_eq!(skeleton("résumé"), "resume");
    }

    proptest! {
        #[test]
        fn ignorable_and_combining_characters_never_change_the_skeleton(
            text in "[a-z._-]{1,20}",
            at in 0usize..20,
            hidden in prop::sample::select(vec!['\u{200b}', '\u{301}', '\u{feff}', '\u{ad}', '\u{e0001}', '\u{fe0f}']),
        ) {
            let mut disguised = text.clone();
            disguised.insert(at.min(text.len()), hidden);
            prop_assert_eq!(skeleton(&disguised), skeleton(&text));
        }
    }
}
