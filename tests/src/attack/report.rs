//! What came of everything beside what was expected: for people and as JSON.

use crate::attack::outcome::Outcome;
use crate::attack::table::{Found, Mode, Table};
use crate::attack::{Options, Seats, actions};
use anyhow::Result;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The name under which what happens without a sandbox is kept.
const CONTROL: &str = "control";

/// An outcome that the table doesn't have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unexpected {
    /// Where.
    pub mode: Mode,
    /// In which seat, or `control`.
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
    table: Table,
    found: Found,
    /// Everything that is not as expected.
    pub unexpected: Vec<Unexpected>,
}

impl Report {
    pub(super) fn new(options: &Options, table: Table, found: Found) -> Self {
        let mut unexpected = Vec::new();
        for (mode, seats) in &found.0 {
            let wanted = |seat: &&String| {
                options.role.as_ref().is_none_or(|role| {
                    *seat == role || seat.split('+').next() == Some(role.as_str())
                })
            };
            let columns = table.columns.iter().flat_map(|(_, seats)| seats);
            let control = CONTROL.to_owned();
            for seat in columns.filter(wanted).chain([&control]) {
                for (_, action) in actions::all() {
                    let cell = match seat == CONTROL {
                        true => table.row(action.name).map(|row| &row.control),
                        false => table.cell(seat, action.name),
                    };
                    let outcome = seats.get(seat).and_then(|all| all.get(action.name));
                    let as_expected = match (cell, outcome) {
                        (Some(cell), Some(outcome)) => cell.of(*mode).contains(outcome),
                        _ => false,
                    };
                    if !as_expected {
                        unexpected.push(Unexpected {
                            mode: *mode,
                            seat: seat.clone(),
                            action: action.name.to_owned(),
                            found: outcome.map_or("not tried".into(), ToString::to_string),
                            expected: cell.map_or("no row".into(), ToString::to_string),
                        });
                    }
                }
            }
        }
        Self {
            table,
            found,
            unexpected,
        }
    }

    /// True when everything is exactly as expected.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.unexpected.is_empty() && !self.found.0.is_empty()
    }

    fn all(&self) -> impl Iterator<Item = (Mode, &String, &BTreeMap<String, Outcome>)> {
        let seats = |(mode, seats): (&Mode, _)| {
            let mode = *mode;
            let seats: &Seats = seats;
            seats.iter().map(move |(seat, all)| (mode, seat, all))
        };
        self.found.0.iter().flat_map(seats)
    }

    /// Attempts inside a sandbox.
    #[must_use]
    pub fn tried(&self) -> usize {
        let inside = self.all().filter(|(_, seat, _)| *seat != CONTROL);
        inside.map(|(_, _, all)| all.len()).sum()
    }

    /// The table for people: one row an action, one column a kind of seat.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let seen = |seats: &[String]| {
            let mut all = self.all().map(|(_, seat, _)| seat);
            all.any(|seat| seats.contains(seat))
        };
        let columns: Vec<_> = self.table.columns.iter().filter(|(_, s)| seen(s)).collect();
        for (name, seats) in &columns {
            let _ = writeln!(text, "{name}: {}", seats.join(", "));
        }
        let _ = writeln!(text, "without: the same program without any sandbox");
        let modes: Vec<_> = self.found.0.keys().map(|mode| mode.name()).collect();
        let _ = writeln!(text, "modes: {}; X/Y where they differ", modes.join("/"));
        for group in actions::GROUPS {
            let mut head = vec![group.name.to_owned(), "without".to_owned()];
            head.extend(columns.iter().map(|(name, _)| name.clone()));
            let mut lines = vec![head];
            for action in group.lists.iter().copied().flatten() {
                let mut line = vec![action.name.to_owned()];
                line.push(self.shown(&[CONTROL.to_owned()], action.name));
                line.extend(
                    columns
                        .iter()
                        .map(|(_, seats)| self.shown(seats, action.name)),
                );
                lines.push(line);
            }
            text.push('\n');
            text.push_str(&aligned(&lines));
        }
        for (mode, seat, all) in self.all() {
            let breaches = all.values().filter(|outcome| outcome.is_breach()).count();
            let verb = if seat == CONTROL {
                "succeeded"
            } else {
                "allowed by design"
            };
            let wrong = |u: &&Unexpected| u.mode == mode && u.seat == *seat;
            let wrong = self.unexpected.iter().filter(wrong).count();
            let _ = writeln!(
                text,
                "{:<9}{seat:<20}{:>4} tried {breaches:>4} {verb:<18}{wrong:>4} unexpected",
                mode.name(),
                all.len(),
            );
        }
        for wrong in &self.unexpected {
            let _ = writeln!(
                text,
                "UNEXPECTED {} {} {}: {}, expected {}",
                wrong.mode.name(),
                wrong.seat,
                wrong.action,
                wrong.found,
                wrong.expected
            );
        }
        let _ = writeln!(
            text,
            "{} attempts in sandboxes, {} unexpected",
            self.tried(),
            self.unexpected.len()
        );
        text
    }

    /// What came of it in the seats of a column, by mode.
    fn shown(&self, seats: &[String], action: &str) -> String {
        let mut by_mode = Vec::new();
        for mode in self.found.0.keys() {
            let outcomes = seats
                .iter()
                .filter_map(|seat| self.found.outcome(*mode, seat, action))
                .map(ToString::to_string);
            let mut outcomes: Vec<_> = outcomes.collect();
            outcomes.dedup();
            by_mode.push(outcomes.join(","));
        }
        by_mode.dedup();
        by_mode.join("/")
    }

    /// The JSON object.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut roles: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
        let mut control = Map::new();
        for (mode, seat, all) in self.all() {
            let breaches = all.values().filter(|outcome| outcome.is_breach()).count();
            let outcomes: Map<String, Value> = all
                .iter()
                .map(|(action, outcome)| (action.clone(), json!(outcome.to_string())))
                .collect();
            let mode = mode.name().to_owned();
            if seat == CONTROL {
                let value =
                    json!({ "tried": all.len(), "succeeded": breaches, "outcomes": outcomes });
                control.insert(mode, value);
            } else {
                let value =
                    json!({ "tried": all.len(), "by_design": breaches, "outcomes": outcomes });
                roles.entry(seat).or_default().insert(mode, value);
            }
        }
        let unexpected: Vec<_> = self
            .unexpected
            .iter()
            .map(|wrong| {
                json!({
                    "mode": wrong.mode.name(), "role": wrong.seat, "action": wrong.action,
                    "found": wrong.found, "expected": wrong.expected,
                })
            })
            .collect();
        json!({
            "ok": self.ok(),
            "tried": self.tried(),
            "unexpected": unexpected,
            "roles": roles,
            "control": control,
        })
    }

    /// The expected table as it would have to be for everything to be expected.
    ///
    /// # Errors
    /// When seats of one column differ.
    pub fn rewritten(&self) -> Result<String> {
        let groups: Vec<_> = actions::GROUPS
            .iter()
            .map(|group| {
                let names = group
                    .lists
                    .iter()
                    .copied()
                    .flatten()
                    .map(|action| action.name);
                (group.name, names.collect())
            })
            .collect();
        self.table.rewritten(&groups, &self.found)
    }
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

/// What one mode came to, for the process that has started this one.
#[must_use]
pub fn write_found(found: &Found) -> String {
    let mut seats: BTreeMap<&String, BTreeMap<&String, String>> = BTreeMap::new();
    for (seat, all) in found.0.values().flatten() {
        let all = all
            .iter()
            .map(|(action, outcome)| (action, outcome.to_string()));
        seats.insert(seat, all.collect());
    }
    serde_json::to_string(&seats).unwrap_or_default()
}

/// Reads what [`write_found`] wrote.
///
/// # Errors
/// When it is something else.
pub(super) fn read_found(text: &str) -> Result<Seats> {
    let seats: BTreeMap<String, BTreeMap<String, String>> = serde_json::from_str(text.trim())?;
    let outcome = |text: String| text.parse::<Outcome>().unwrap_or(Outcome::Odd(text));
    Ok(seats
        .into_iter()
        .map(|(seat, all)| {
            let all = all
                .into_iter()
                .map(|(action, text)| (action, outcome(text)));
            (seat, all.collect())
        })
        .collect())
}
