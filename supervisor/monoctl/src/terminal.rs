//! Text of strangers on a terminal: a model's answer, a tool's name, a file's name.
//!
//! A terminal obeys control characters: it would move the cursor over what was printed, set the
//! clipboard, or type into the shell. They are shown instead of obeyed. Working on single
//! characters needs no state, so a sequence that is cut over two pieces is harmless too.

use std::borrow::Cow;
use std::fmt::Write;

/// True for a character that a terminal obeys or that turns the reading order around.
fn is_active(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Shows active characters as `\u{1b}`, keeps line feeds and tabs, drops carriage returns.
pub(crate) fn safe(text: &str) -> Cow<'_, str> {
    show(text, |c| matches!(c, '\n' | '\t'))
}

/// The same for one line of a list: line feeds and tabs become spaces, and at most `most`
/// characters are kept.
pub(crate) fn safe_line(text: &str, most: usize) -> String {
    let spaced: String = text
        .chars()
        .take(most + 1)
        .map(|c| if matches!(c, '\n' | '\t') { ' ' } else { c })
        .collect();
    let shown = show(&spaced, |_| false);
    if shown.chars().count() <= most {
        return shown.into_owned();
    }
    shown
        .chars()
        .take(most.saturating_sub(1))
        .chain(['…'])
        .collect()
}

fn show(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(|c| is_active(c) && !keep(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if !is_active(c) || keep(c) {
            out.push(c);
        } else if c != '\r' {
            // Writing to a string can't fail.
            let _ = write!(out, "{}", c.escape_unicode());
        }
    }
    Cow::Owned(out)
}

/// JSON whose strings hold no character that a terminal obeys. `serde_json` escapes the first 32;
/// the rest can stand in strings only, where the escape means the same.
pub(crate) fn safe_json(json: &str) -> Cow<'_, str> {
    if !json.chars().any(|c| is_active(c) && c != '\n') {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_active(c) && c != '\n' {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// A word for a shell command line that the operator may copy.
pub(crate) fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "._-+,=@%/".contains(c);
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(plain) {
        return text.to_owned();
    }
    let safe = safe_line(text, 240).replace('\'', "'\\''");
    // A name that begins with a dash would be read as an option.
    let dash = if safe.starts_with('-') { "./" } else { "" };
    format!("'{dash}{safe}'")
}

/// A size for people.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A duration for people.
pub(crate) fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{:.1} s", ms as f64 / 1000.0),
        _ => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_passes() {
        for (text, shown) in [
            ("plain é 🙂\n\tx", "plain é 🙂\n\tx"),
            (
                "\u{1b}[31mred\u{1b}]52;c;eA==\u{7}",
                "\\u{1b}[31mred\\u{1b}]52;c;eA==\\u{7}",
            ),
            ("a\r\nb\rc", "a\nbc"),
            ("\u{9b}31m\u{7f}\u{0}\u{8}", "\\u{9b}31m\\u{7f}\\u{0}\\u{8}"),
            ("a\u{202e}b\u{2066}c", "a\\u{202e}b\\u{2066}c"),
        ] {
            assert_eq!(safe(text), shown);
        }
        let every: String = (0..=0x10_ffff).filter_map(char::from_u32).collect();
        assert!(
            !safe(&every)
                .chars()
                .any(|c| is_active(c) && c != '\n' && c != '\t')
        );
        assert!(!safe_line(&every, usize::MAX - 1).chars().any(is_active));
        let json = serde_json::to_string(&every).unwrap_or_default();
        let shown = safe_json(&json);
        assert!(!shown.chars().any(is_active));
        assert_eq!(
            serde_json::from_str::<String>(&shown).unwrap_or_default(),
            every
        );
    }

    #[test]
    fn a_line_stays_one_bounded_line() {
        assert_eq!(safe_line("a\nb\tc\r", 10), "a b c");
        assert_eq!(safe_line("abcdef", 6), "abcdef");
        assert_eq!(safe_line("abcdefg", 6), "abcde…");
        assert_eq!(safe_line("\u{1b}\u{1b}", 6), "\\u{1b…");
    }

    #[test]
    fn a_copied_word_is_one_argument() {
        for (name, word) in [
            ("weekly.csv", "weekly.csv"),
            ("a b.txt", "'a b.txt'"),
            ("it's", "'it'\\''s'"),
            ("$(rm -rf)", "'$(rm -rf)'"),
            ("-f", "'./-f'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(name), word);
        }
    }

    #[test]
    fn sizes_and_durations_are_for_people() {
        for (bytes, shown) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_048_575, "1.0 MiB"),
            (20 * 1024 * 1024, "20.0 MiB"),
            (u64::MAX, "16384.0 PiB"),
        ] {
            assert_eq!(size(bytes), shown);
        }
        for (ms, shown) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_500, "1.5 s"),
            (61_000, "1 min 1 s"),
        ] {
            assert_eq!(duration(ms), shown);
        }
    }
}
