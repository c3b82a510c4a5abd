//! The name and the media type that a person's client is shown.

use crate::skeleton::is_ignorable;
use unicode_normalization::UnicodeNormalization as _;

/// Longest display name in bytes.
pub const MAX_NAME: usize = 240;
/// Longest type or subtype of a media type in characters (RFC 6838, 4.2).
const MAX_MEDIA_PART: usize = 127;
/// Longest extension kept when a name is cut, in bytes with its dot.
const MAX_KEPT_EXTENSION: usize = 16;
/// The name of a file whose own name has nothing to show.
const NAMELESS: &str = "file";

/// The display name: what was asked for, else the file's own name; NFC, no control or
/// bidirectional characters, no separators, at most [`MAX_NAME`] bytes, never empty.
///
/// A name is mended and not refused: the file is right, only its label was not.
#[must_use]
pub fn display_name(requested: Option<&str>, file_name: &str) -> String {
    requested
        .map(sanitize)
        .filter(|name| !name.is_empty())
        .or_else(|| Some(sanitize(file_name)).filter(|name| !name.is_empty()))
        .unwrap_or_else(|| NAMELESS.to_owned())
}

/// True when `name` could have come from [`display_name`]; what is read back from disk is held
/// to the same rule.
#[must_use]
pub fn is_display_name(name: &str) -> bool {
    !name.is_empty() && sanitize(name) == name
}

/// Empty when nothing is left.
fn sanitize(name: &str) -> String {
    let shown: String = name
        .chars()
        .filter_map(|c| match c {
            '/' | '\\' => Some('_'),
            c if is_separator(c) => Some(' '),
            c if c.is_control() || is_bidi(c) => None,
            c => Some(c),
        })
        .nfc()
        .collect();
    let cut = cut(shown.trim());
    // Nothing to see, or a name that a file system reads as a directory.
    if cut
        .chars()
        .all(|c| c == '.' || c.is_whitespace() || is_ignorable(c))
    {
        return String::new();
    }
    cut
}

/// Cuts to [`MAX_NAME`] bytes before the extension, between characters.
fn cut(name: &str) -> String {
    if name.len() <= MAX_NAME {
        return name.to_owned();
    }
    let extension = name
        .rfind('.')
        .map(|dot| &name[dot..])
        .filter(|e| e.len() <= MAX_KEPT_EXTENSION && e.len() > 1)
        .unwrap_or_default();
    let mut end = MAX_NAME - extension.len();
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{extension}", name[..end].trim_end())
}

/// Line and paragraph separators, which are no control characters to Rust.
const fn is_separator(c: char) -> bool {
    matches!(c, '\u{2028}' | '\u{2029}')
}

/// Characters that reorder the text around them (Unicode `Bidi_Control`).
const fn is_bidi(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The media type: what was asked for when it is a type and subtype, else what the extension of
/// the display name or of the file says, else `application/octet-stream`. Lower case.
#[must_use]
pub fn media_type(requested: Option<&str>, display_name: &str, file_name: &str) -> String {
    if let Some(asked) = requested.filter(|asked| is_media_type(asked)) {
        return asked.to_ascii_lowercase();
    }
    [display_name, file_name]
        .into_iter()
        .find_map(|name| mime_guess::from_path(name).first_raw())
        .unwrap_or("application/octet-stream")
        .to_owned()
}

/// `type/subtype` of restricted names as in RFC 6838, 4.2; no parameters.
#[must_use]
pub fn is_media_type(text: &str) -> bool {
    text.split_once('/')
        .is_some_and(|(kind, subtype)| [kind, subtype].into_iter().all(is_restricted_name))
}

fn is_restricted_name(part: &str) -> bool {
    part.len() <= MAX_MEDIA_PART
        && part.starts_with(|c: char| c.is_ascii_alphanumeric())
        && part
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "!#$&-^_.+".contains(c))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use unicode_normalization::is_nfc;

    #[test]
    fn names_are_mended() {
        for (asked, file, shown) in [
            (None, "weekly.csv", "weekly.csv"),
            (Some("Week 7.csv"), "weekly.csv", "Week 7.csv"),
            (Some("e\u{301}t\u{e9}.txt"), "x", "\u{e9}t\u{e9}.txt"),
            (Some("a/b\\c.txt"), "x", "a_b_c.txt"),
            (Some("pay\u{202e}fdp.exe"), "x", "payfdp.exe"),
            (Some("a\nb\u{0}\u{7f}\u{85}.txt"), "x", "ab.txt"),
            (Some("a\u{2028}b"), "x", "a b"),
            (Some("  "), "real.txt", "real.txt"),
            (Some(".."), "real.txt", "real.txt"),
            (Some("\u{200b}."), "real.txt", "real.txt"),
            (Some("\u{1}"), "\u{2}", "file"),
            (
                Some("family 👨\u{200d}👩\u{200d}👧.png"),
                "x",
                "family 👨\u{200d}👩\u{200d}👧.png",
            ),
        ] {
            assert_eq!(display_name(asked, file), shown, "{asked:?} {file:?}");
        }
    }

    #[test]
    fn a_name_of_240_bytes_stays_and_one_more_is_cut_before_the_extension() {
        let fits = format!("{}.csv", "a".repeat(MAX_NAME - 4));
        assert_eq!(display_name(Some(&fits), "x"), fits);
        let over = format!("{}.csv", "a".repeat(MAX_NAME - 3));
        assert_eq!(display_name(Some(&over), "x"), fits);
        let wide = display_name(Some(&"é".repeat(200)), "x");
        assert_eq!(wide, "é".repeat(120));
    }

    #[test]
    fn media_types_follow_the_grammar_or_the_extension() {
        for (asked, name, file, found) in [
            (Some("text/csv"), "x", "x", "text/csv"),
            (Some("Text/CSV"), "x", "x", "text/csv"),
            (
                Some("application/vnd.ms-excel+xml"),
                "x",
                "x",
                "application/vnd.ms-excel+xml",
            ),
            (Some("text/csv; charset=utf-8"), "a.csv", "x", "text/csv"),
            (Some("text"), "a.png", "x", "image/png"),
            (Some("text/"), "a.png", "x", "image/png"),
            (Some("a/b/c"), "a.png", "x", "image/png"),
            (Some("text/html\r\nX: y"), "a.txt", "x", "text/plain"),
            (None, "report", "report.pdf", "application/pdf"),
            (None, "report", "report", "application/octet-stream"),
            (None, "a.unknownextension", "x", "application/octet-stream"),
        ] {
            assert_eq!(media_type(asked, name, file), found, "{asked:?} {name:?}");
        }
        let longest = "a".repeat(MAX_MEDIA_PART);
        assert!(is_media_type(&format!("{longest}/{longest}")));
        assert!(!is_media_type(&format!("{longest}a/b")));
    }

    proptest! {
        #[test]
        fn every_name_is_safe_to_show(asked in prop::option::of("\\PC{0,300}|.{0,40}|[\u{202a}-\u{202e}/\\\\.]{0,20}"), file in ".{0,40}") {
            let shown = display_name(asked.as_deref(), &file);
            prop_assert!(!shown.is_empty() && shown.len() <= MAX_NAME);
            prop_assert!(is_nfc(&shown), "{:?}", shown);
            prop_assert!(!shown.chars().any(|c| c.is_control() || is_bidi(c) || is_separator(c) || c == '/' || c == '\\'));
            prop_assert!(is_display_name(&shown), "{:?} -> {:?}", shown, sanitize(&shown));
        }

        #[test]
        fn every_media_type_is_grammatical(asked in prop::option::of(".{0,40}"), name in ".{0,20}") {
            let media = media_type(asked.as_deref(), &name, &name);
            prop_assert!(is_media_type(&media), "{:?}", media);
        }
    }
}
