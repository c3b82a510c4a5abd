//! Tables for people.

use crate::terminal::{safe_line, shell_word};
use comfy_table::{Table, presets};

/// Longest cell in characters.
const MAX_CELL: usize = 60;

/// The line that prints the next page: the same command with the same options.
pub(crate) fn next_page(command: &str, options: &[(&str, Option<&str>)], cursor: &str) -> String {
    let mut line = format!("more: monoctl {command}");
    for (option, value) in options.iter().copied().chain([("cursor", Some(cursor))]) {
        if let Some(value) = value {
            line.push_str(&format!(" --{option} {}", shell_word(value)));
        }
    }
    line
}

/// Rows of cells; the text of strangers in them is made safe here.
pub(crate) struct Rows {
    table: Table,
}

impl Rows {
    /// With a heading for each column.
    pub(crate) fn new(heading: &[&str]) -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(heading);
        Self { table }
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, cells: impl IntoIterator<Item = impl AsRef<str>>) {
        let cells = cells
            .into_iter()
            .map(|cell| safe_line(cell.as_ref(), MAX_CELL));
        self.table.add_row(cells.collect::<Vec<_>>());
    }

    /// The lines, without spaces at their ends.
    pub(crate) fn text(&self) -> String {
        let lines = self.table.lines().map(|line| line.trim_end().to_owned());
        lines.collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_of_the_same_listing() {
        let options = [
            ("status", Some("failed")),
            ("conversation", None),
            ("limit", Some("2")),
        ];
        assert_eq!(
            next_page("runs list", &options, "c 1"),
            "more: monoctl runs list --status failed --limit 2 --cursor 'c 1'"
        );
    }

    #[test]
    fn columns_line_up_and_cells_are_bounded_and_safe() {
        let mut rows = Rows::new(&["ID", "NAME"]);
        rows.push(["1", "a\u{1b}[31m\nb"]);
        rows.push(["22", &"x".repeat(100)]);
        let text = rows.text();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], " ID  NAME");
        assert_eq!(lines[1], " 1   a\\u{1b}[31m b");
        assert_eq!(lines[2].chars().count(), 5 + MAX_CELL);
    }
}
