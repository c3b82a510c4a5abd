//! The page of `mono-mcp-stub`, made of what it says of itself: it reads its command line without a
//! library, to start at once.

use clap_mangen::roff::{Roff, bold, roman};

/// What the program prints with `--help`.
pub(super) const HELP: &str = include_str!("../../../../workers/mcp-stub/src/help.txt");
/// Its name.
pub(super) const NAME: &str = "mono-mcp-stub";
/// What begins its options.
const OPTIONS: &str = "Options:";

/// The page, in section 1.
pub(super) fn page(help: &str) -> Roff {
    let mut roff = Roff::new();
    let mut lines = help.lines();
    let about = lines.next().and_then(|line| line.split_once(": "));
    let about = about.map_or("", |(_, about)| about);
    let version = concat!("mono ", env!("CARGO_PKG_VERSION"));
    roff.control("TH", ["MONO-MCP-STUB", "1", "", version, "mono"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!("{NAME} - {about}"))]);
    let (mut options, mut gap) = (false, false);
    for line in lines {
        if line.is_empty() {
            gap = true;
            continue;
        }
        let begins = std::mem::take(&mut gap);
        let indent = line.len() - line.trim_start().len();
        if let Some(usage) = line.strip_prefix("Usage: ") {
            roff.control("SH", ["SYNOPSIS"]);
            let words = usage.strip_prefix(NAME).unwrap_or(usage);
            roff.text([bold(NAME), roman(words)]);
            roff.control("SH", ["DESCRIPTION"]);
        } else if line == OPTIONS {
            roff.control("SH", ["OPTIONS"]);
            options = true;
        } else if options && indent == 2 {
            let (option, text) = line.trim().split_once("  ").unwrap_or((line.trim(), ""));
            roff.control("TP", []);
            roff.text([bold(option)]);
            roff.text([roman(text.trim())]);
        } else if options && indent == 0 {
            roff.control("SH", ["NOTES"]);
            roff.text([roman(line)]);
            options = false;
        } else {
            if begins {
                roff.control("PP", []);
            }
            // An example stands as it is.
            if indent == 4 {
                roff.control("br", []);
            }
            roff.text([roman(line.trim())]);
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([bold("monod"), roman("(8), "), bold("monoctl"), roman("(1)")]);
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_what_the_program_says() {
        let page = page(HELP).to_roff();
        let sections: Vec<_> = page
            .lines()
            .filter(|line| line.starts_with(".SH"))
            .collect();
        let names = [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "OPTIONS",
            "NOTES",
            "SEE ALSO",
        ];
        assert_eq!(sections.len(), names.len(), "{page}");
        for (line, name) in sections.iter().zip(names) {
            assert!(line.contains(name), "{line}");
        }
        // Every word of it, but for the headings.
        let plain = page
            .replace("\\-", "-")
            .replace("\\fB", "")
            .replace("\\fR", "");
        let said = HELP.replace("Usage:", "").replace(OPTIONS, "");
        for word in said.split_whitespace().skip(1) {
            assert!(plain.contains(word), "{word}: {plain}");
        }
        assert!(
            plain.contains(".br\ncommand = \"mono-mcp-stub\"\n"),
            "{plain}"
        );
    }
}
