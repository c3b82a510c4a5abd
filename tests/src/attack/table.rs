//! The expected tables: one row for each action, with what is to come of it in every column.
//!
//! A file has columns, so that roles that are alike stand in one: `@ NAME: SEAT SEAT …`. A row is
//! `ACTION | WITHOUT | CELL CELL … | NOTE`, where `WITHOUT` is what comes of it without a sandbox;
//! attacks on a running daemon have no such part. A cell is an outcome, or two with `/` between
//! them: rootless and system mode. `A,B` means that either will do, where it is the machine that
//! decides. A row whose attack succeeds nowhere without a sandbox proves nothing and needs a note.

use crate::attack::found::{CONTROL, Found, Mode};
use crate::attack::outcome::Outcome;
use crate::attack::part::Part;
use anyhow::{Context as _, Result, bail, ensure};
use std::collections::BTreeSet;

/// What will do in one place, by mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell([BTreeSet<Outcome>; 2]);

impl Cell {
    fn parse(text: &str) -> Result<Self> {
        let alternatives = |part: &str| {
            let all = part.split(',').map(|word| word.parse::<Outcome>());
            let all: Result<BTreeSet<_>, _> = all.collect();
            all.map_err(anyhow::Error::msg)
        };
        Ok(match text.split_once('/') {
            None => {
                let both = alternatives(text)?;
                Self([both.clone(), both])
            }
            Some((rootless, system)) => Self([alternatives(rootless)?, alternatives(system)?]),
        })
    }

    /// What will do.
    #[must_use]
    pub fn of(&self, mode: Mode) -> &BTreeSet<Outcome> {
        &self.0[mode.index()]
    }

    /// True when every outcome that will do, in some mode, is a breach.
    #[must_use]
    pub fn shows_breach(&self) -> bool {
        self.0.iter().any(|all| all.iter().any(Outcome::is_breach))
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let part = |all: &BTreeSet<Outcome>| {
            let words: Vec<_> = all.iter().map(ToString::to_string).collect();
            words.join(",")
        };
        let [rootless, system] = &self.0;
        if rootless == system {
            f.pad(&part(rootless))
        } else {
            f.pad(&format!("{}/{}", part(rootless), part(system)))
        }
    }
}

/// A row.
#[derive(Debug, Clone)]
pub struct Row {
    /// What is tried.
    pub action: String,
    /// Without a sandbox, where that has a meaning.
    pub control: Option<Cell>,
    /// By column.
    pub cells: Vec<Cell>,
    /// Why it is as it is, where that isn't plain.
    pub note: String,
}

/// A table.
#[derive(Debug, Clone)]
pub struct Table {
    /// What it is about.
    pub part: Part,
    /// Columns with the seats that share them.
    pub columns: Vec<(String, Vec<String>)>,
    /// In order.
    pub rows: Vec<Row>,
}

impl Table {
    /// The table of the repository.
    ///
    /// # Errors
    /// With the line that can't be read.
    pub fn load(part: Part) -> Result<Self> {
        let mut table = Self {
            part,
            columns: Vec::new(),
            rows: Vec::new(),
        };
        for line in part.text().lines() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            table
                .line(line)
                .with_context(|| format!("{}: {line}", part.file()))?;
        }
        Ok(table)
    }

    fn line(&mut self, line: &str) -> Result<()> {
        if let Some(column) = line.strip_prefix('@') {
            let (name, seats) = column
                .split_once(':')
                .context("a column is `@ NAME: SEATS`")?;
            let seats = seats.split_whitespace().map(str::to_owned).collect();
            self.columns.push((name.trim().to_owned(), seats));
            return Ok(());
        }
        let mut parts = line.split('|').map(str::trim);
        let action = parts.next().unwrap_or_default();
        let control = match self.part.has_control() {
            true => Some(Cell::parse(parts.next().unwrap_or_default())?),
            false => None,
        };
        let Some(cells) = parts.next() else {
            bail!("a row is `ACTION | WITHOUT | CELLS | NOTE`");
        };
        let cells: Vec<_> = cells
            .split_whitespace()
            .map(Cell::parse)
            .collect::<Result<_>>()?;
        ensure!(
            cells.len() == self.columns.len(),
            "{} cells for {} columns",
            cells.len(),
            self.columns.len()
        );
        self.rows.push(Row {
            action: action.to_owned(),
            control,
            cells,
            note: parts.collect::<Vec<_>>().join("|"),
        });
        Ok(())
    }

    /// The row of an action.
    #[must_use]
    pub fn row(&self, action: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.action == action)
    }

    /// What is expected of an action in a seat, or without any.
    #[must_use]
    pub fn cell(&self, seat: &str, action: &str) -> Option<&Cell> {
        let row = self.row(action)?;
        if seat == CONTROL {
            return row.control.as_ref();
        }
        let has = |(_, seats): &(String, Vec<String>)| seats.iter().any(|known| known == seat);
        row.cells.get(self.columns.iter().position(has)?)
    }

    /// The seats of all columns, and the one without a sandbox.
    pub fn seats(&self) -> impl Iterator<Item = &str> {
        let seats = self.columns.iter().flat_map(|(_, seats)| seats);
        seats
            .map(String::as_str)
            .chain(self.part.has_control().then_some(CONTROL))
    }

    /// Writes the file anew from what was found. What was expected before and holds stays as it
    /// is written, with all its alternatives.
    ///
    /// # Errors
    /// When seats of one column differ.
    pub fn rewritten(&self, found: &Found) -> Result<String> {
        let head = self
            .part
            .text()
            .lines()
            .take_while(|line| !line.contains('|'));
        let mut text: String = head.fold(String::new(), |text, line| text + line + "\n");
        text.truncate(text.trim_end().len());
        text.push('\n');
        for (group, actions) in self.part.groups() {
            let mut parts = vec![format!("# {group}")];
            parts.extend(self.part.has_control().then(|| "without".to_owned()));
            let mut lines = vec![Line {
                parts,
                cells: self.columns.iter().map(|(name, _)| name.clone()).collect(),
                note: String::new(),
            }];
            for action in actions {
                lines.push(self.found_line(&action, found)?);
            }
            text.push('\n');
            text.push_str(&aligned(&lines));
        }
        Ok(text)
    }

    fn found_line(&self, action: &str, found: &Found) -> Result<Line> {
        let found_in =
            |seat: &str| found_cell(found, self.part, seat, action, self.cell(seat, action));
        let mut parts = vec![action.to_owned()];
        if self.part.has_control() {
            parts.push(found_in(CONTROL)?.to_string());
        }
        let mut cells = Vec::new();
        for (name, seats) in &self.columns {
            let mut all = Vec::new();
            for seat in seats {
                all.push(found_in(seat)?.to_string());
            }
            all.dedup();
            ensure!(all.len() == 1, "{action}: {name} is no one column: {all:?}");
            cells.extend(all);
        }
        Ok(Line {
            parts,
            cells,
            note: self
                .row(action)
                .map_or(String::new(), |row| row.note.clone()),
        })
    }
}

/// A line of the file as it is written.
struct Line {
    parts: Vec<String>,
    cells: Vec<String>,
    note: String,
}

fn aligned(lines: &[Line]) -> String {
    let width = |of: &dyn Fn(&Line) -> usize| lines.iter().map(of).max().unwrap_or(0);
    let padded = |all: &[String], of: &dyn Fn(&Line) -> &Vec<String>| {
        let pad = |(index, cell): (usize, &String)| {
            let width = width(&|line| of(line)[index].len());
            format!("{cell:width$}")
        };
        all.iter().enumerate().map(pad).collect::<Vec<_>>()
    };
    let mut text = String::new();
    for line in lines {
        let parts = padded(&line.parts, &|line| &line.parts).join(" | ");
        let cells = padded(&line.cells, &|line| &line.cells).join(" ");
        let row = match line.note.as_str() {
            "" => format!("{parts} | {cells}"),
            note => format!("{parts} | {cells} | {note}"),
        };
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

/// What was found as a cell; `before` where all of it will do.
fn found_cell(
    found: &Found,
    part: Part,
    seat: &str,
    action: &str,
    before: Option<&Cell>,
) -> Result<Cell> {
    let mut modes = [Mode::Rootless, Mode::System].map(|mode| {
        let kept = before.map(|cell| cell.of(mode).clone()).unwrap_or_default();
        match found.outcome(mode, part, seat, action) {
            Some(outcome) if !kept.contains(outcome) => BTreeSet::from([outcome.clone()]),
            _ => kept,
        }
    });
    // A mode that was not tried is taken to be as the other one.
    if modes[0].is_empty() {
        modes[0] = modes[1].clone();
    }
    if modes[1].is_empty() {
        modes[1] = modes[0].clone();
    }
    ensure!(!modes[0].is_empty(), "{action} was not tried in {seat}");
    Ok(Cell(modes))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::attack::seat::Seat;

    #[test]
    fn the_tables_have_every_action_and_every_seat_once() {
        for part in Part::ALL {
            let table = Table::load(part).unwrap();
            let seats: Vec<_> = table.seats().collect();
            let distinct: BTreeSet<_> = seats.iter().collect();
            assert_eq!(seats.len(), distinct.len(), "{part:?}");
            let rows: Vec<_> = table.rows.iter().map(|row| row.action.clone()).collect();
            let tried: Vec<_> = part.groups().into_iter().flat_map(|(_, all)| all).collect();
            assert_eq!(rows, tried);
        }
        let table = Table::load(Part::Sandbox).unwrap();
        let mut seats: Vec<_> = table.seats().map(str::to_owned).collect();
        let mut wanted: Vec<_> = Seat::all().iter().map(ToString::to_string).collect();
        wanted.push(CONTROL.to_owned());
        seats.sort();
        wanted.sort();
        assert_eq!(seats, wanted);
    }

    #[test]
    fn every_attack_succeeds_without_a_sandbox_or_says_why_it_can_not() {
        for row in Table::load(Part::Sandbox).unwrap().rows {
            assert!(
                row.control.unwrap().shows_breach() || !row.note.is_empty(),
                "{} proves nothing",
                row.action
            );
        }
    }

    #[test]
    fn what_succeeds_says_why_it_may() {
        for part in Part::ALL {
            for row in Table::load(part).unwrap().rows {
                let breach = row.cells.iter().any(Cell::shows_breach);
                assert!(
                    !breach || !row.note.is_empty(),
                    "{} has no note",
                    row.action
                );
            }
        }
    }

    #[test]
    fn cells_are_read_and_written() {
        for text in ["done", "EACCES/EPERM", "ENOENT,EACCES/killed"] {
            let cell = Cell::parse(text).unwrap();
            assert_eq!(Cell::parse(&cell.to_string()).unwrap(), cell);
        }
        assert!(Cell::parse("EACCESS").is_err());
        let cell = Cell::parse("EACCES/done").unwrap();
        assert!(!cell.of(Mode::Rootless).contains(&Outcome::Done));
        assert!(cell.of(Mode::System).contains(&Outcome::Done));
    }
}
