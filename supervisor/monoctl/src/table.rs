//! Tables for people.

use crate::terminal::safe_line;
use comfy_table::{Table, presets};

/// Longest cell in characters.
const MAX_CELL: usize = 60;

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
