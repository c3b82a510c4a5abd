//! What came of everything beside what was expected: for people and as JSON.

use crate::attack::Options;
use crate::attack::found::{CONTROL, Found, Mode};
use crate::attack::outcome::Outcome;
use crate::attack::part::Part;
use crate::attack::table::Table;
use anyhow::Result;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

/// An outcome that the table doesn't have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unexpected {
    /// How the daemon is deployed.
    pub mode: Mode,
    /// What was attacked.
    pub part: Part,
    /// From where, or whom; [`CONTROL`] without a sandbox.
    pub seat: String,
    /// What was tried.
    pub action: String,
    /// What came of it; nothing when it was not tried.
    pub found: String,
    /// What the table has.
    pub expected: String,
}

/// The whole outcome.
#[derive(Debug)]
pub struct Report {
    tables: Vec<Table>,
    found: Found,
    options: Options,
    /// Everything that is not as expected.
    pub unexpected: Vec<Unexpected>,
}

impl Report {
    pub(super) fn new(options: &Options, tables: Vec<Table>, found: Found) -> Self {
        let mut report = Self {
            tables,
            found,
            options: options.clone(),
            unexpected: Vec::new(),
        };
        report.unexpected = report.compared();
        report
    }

    /// The seats of a table that were asked for.
    fn seats<'a>(&'a self, table: &'a Table) -> impl Iterator<Item = &'a str> {
        let all = self.options.role.is_none();
        // The owners are attacked by a run.
        let owners = table.part == Part::Owners && self.options.wants("run");
        let wanted = move |seat: &&str| match table.part {
            Part::Owners => all || owners,
            Part::Gateway => all,
            _ => self.options.wants(seat),
        };
        table.seats().filter(wanted)
    }

    fn compared(&self) -> Vec<Unexpected> {
        let mut unexpected = Vec::new();
        for mode in self.modes() {
            for table in &self.tables {
                for seat in self.seats(table) {
                    for row in &table.rows {
                        let cell = table.cell(seat, &row.action);
                        let outcome = self.found.outcome(mode, table.part, seat, &row.action);
                        let as_expected = match (cell, outcome) {
                            (Some(cell), Some(outcome)) => cell.of(mode).contains(outcome),
                            _ => false,
                        };
                        if !as_expected {
                            unexpected.push(Unexpected {
                                mode,
                                part: table.part,
                                seat: seat.to_owned(),
                                action: row.action.clone(),
                                found: outcome.map_or("not tried".into(), ToString::to_string),
                                expected: cell.map_or("no cell".into(), ToString::to_string),
                            });
                        }
                    }
                }
            }
        }
        unexpected
    }

    fn modes(&self) -> BTreeSet<Mode> {
        self.found.0.keys().map(|(mode, _)| *mode).collect()
    }

    /// True when everything is exactly as expected.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.unexpected.is_empty() && !self.found.0.is_empty()
    }

    /// Everything that was tried: mode, part, seat, outcomes.
    fn all(&self) -> impl Iterator<Item = (Mode, Part, &str, &BTreeMap<String, Outcome>)> {
        self.found.0.iter().flat_map(|((mode, part), seats)| {
            let wanted = |(seat, _): &(&String, _)| {
                matches!(part, Part::Owners | Part::Gateway) || self.options.wants(seat)
            };
            let seats = seats.iter().filter(wanted);
            seats.map(|(seat, all)| (*mode, *part, seat.as_str(), all))
        })
    }

    /// Attempts other than those without a sandbox.
    #[must_use]
    pub fn tried(&self) -> usize {
        let inside = self.all().filter(|(_, _, seat, _)| *seat != CONTROL);
        inside.map(|(_, _, _, all)| attempts(all).count()).sum()
    }

    /// The table for people: one row an action, one column a kind of seat.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let modes: Vec<_> = self.modes().into_iter().map(Mode::name).collect();
        let _ = writeln!(text, "modes: {}; X/Y where they differ", modes.join("/"));
        for table in &self.tables {
            self.table(table, &mut text);
        }
        text.push('\n');
        for (mode, part, seat, all) in self.all() {
            let breaches = all.values().filter(|outcome| outcome.is_breach()).count();
            let verb = match seat {
                CONTROL => "succeeded",
                _ => "allowed by design",
            };
            let wrong = self.unexpected.iter();
            let wrong = wrong.filter(|u| (u.mode, u.part) == (mode, part) && u.seat == seat);
            let _ = writeln!(
                text,
                "{:<9}{:<11}{seat:<20}{:>4} tried {breaches:>4} {verb:<18}{:>4} unexpected",
                mode.name(),
                part.name(),
                attempts(all).count(),
                wrong.count(),
            );
        }
        for wrong in &self.unexpected {
            let _ = writeln!(
                text,
                "UNEXPECTED {} {} {} {}: {}, expected {}",
                wrong.mode.name(),
                wrong.part.name(),
                wrong.seat,
                wrong.action,
                wrong.found,
                wrong.expected
            );
        }
        let _ = writeln!(
            text,
            "{} attempts, {} unexpected",
            self.tried(),
            self.unexpected.len()
        );
        text
    }

    fn table(&self, table: &Table, text: &mut String) {
        let wanted: BTreeSet<_> = self.seats(table).collect();
        let columns: Vec<_> = table
            .columns
            .iter()
            .filter(|(_, seats)| seats.iter().any(|seat| wanted.contains(seat.as_str())))
            .collect();
        if columns.is_empty() {
            return;
        }
        let _ = writeln!(text, "\n== {}", table.part.name());
        for (name, seats) in &columns {
            let _ = writeln!(text, "{name}: {}", seats.join(", "));
        }
        let control = wanted.contains(CONTROL).then(|| vec![CONTROL.to_owned()]);
        for (group, actions) in table.part.groups() {
            let mut head = vec![group.to_owned()];
            head.extend(control.as_ref().map(|_| "without".to_owned()));
            head.extend(columns.iter().map(|(name, _)| name.clone()));
            let mut lines = vec![head];
            for action in actions {
                let shown = |seats: &Vec<String>| self.shown(table.part, seats, &action);
                let mut line = vec![action.clone()];
                line.extend(control.as_ref().map(shown));
                line.extend(columns.iter().map(|(_, seats)| shown(seats)));
                lines.push(line);
            }
            text.push('\n');
            text.push_str(&aligned(&lines));
        }
    }

    /// What came of it in the seats of a column, by mode.
    fn shown(&self, part: Part, seats: &[String], action: &str) -> String {
        let mut by_mode = Vec::new();
        for mode in self.modes() {
            let outcomes = seats
                .iter()
                .filter_map(|seat| self.found.outcome(mode, part, seat, action))
                .map(ToString::to_string);
            let outcomes: BTreeSet<_> = outcomes.collect();
            by_mode.push(outcomes.into_iter().collect::<Vec<_>>().join(","));
        }
        by_mode.dedup();
        by_mode.join("/")
    }

    /// The JSON object. `roles` has for each role and mode how many attempts were made, how many
    /// work by design, and each outcome, by part.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut roles: BTreeMap<&str, BTreeMap<&str, Map<String, Value>>> = BTreeMap::new();
        let mut owners: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
        let mut control = Map::new();
        for (mode, part, seat, all) in self.all() {
            let breaches = all.values().filter(|outcome| outcome.is_breach()).count();
            let outcomes: Map<String, Value> = attempts(all)
                .map(|(action, outcome)| (action.clone(), json!(outcome.to_string())))
                .collect();
            let kind = if seat == CONTROL {
                "succeeded"
            } else {
                "by_design"
            };
            let value = json!({ "tried": outcomes.len(), kind: breaches, "outcomes": outcomes });
            match part {
                _ if seat == CONTROL => {
                    control.insert(mode.name().to_owned(), value);
                }
                Part::Owners | Part::Gateway => {
                    let owner = owners.entry(seat).or_default();
                    owner.insert(mode.name().to_owned(), value);
                }
                _ => {
                    let role = roles.entry(seat).or_default();
                    let role = role.entry(mode.name()).or_default();
                    role.insert(part.name().to_owned(), value);
                }
            }
        }
        let unexpected: Vec<_> = self
            .unexpected
            .iter()
            .map(|wrong| {
                json!({
                    "mode": wrong.mode.name(), "part": wrong.part.name(), "role": wrong.seat,
                    "action": wrong.action, "found": wrong.found, "expected": wrong.expected,
                })
            })
            .collect();
        json!({
            "ok": self.ok(),
            "tried": self.tried(),
            "unexpected": unexpected,
            "roles": roles,
            "owners": owners,
            "control": control,
        })
    }

    /// Writes the expected tables as they would have to be for everything to be expected.
    ///
    /// # Errors
    /// When seats of one column differ, or a file can't be written.
    pub fn bless(&self) -> Result<()> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("expected");
        for table in &self.tables {
            let text = table.rewritten(&self.found)?;
            std::fs::write(folder.join(table.part.file()), text)?;
        }
        Ok(())
    }
}

/// What was really tried.
fn attempts(all: &BTreeMap<String, Outcome>) -> impl Iterator<Item = (&String, &Outcome)> {
    all.iter()
        .filter(|(_, outcome)| **outcome != Outcome::Untried)
}

fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| {
        lines
            .iter()
            .map(|line| line[column].len())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths);
        let row: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text.push_str(row.join("  ").trim_end());
        text.push('\n');
    }
    text
}
