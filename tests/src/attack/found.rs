//! What came of everything.

use crate::attack::outcome::Outcome;
use crate::attack::part::Part;
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;

/// The name under which what happens without a sandbox is kept.
pub const CONTROL: &str = "control";

/// How the daemon is deployed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// One ordinary user, with user namespaces.
    Rootless,
    /// Started by root, with a user for each role.
    System,
}

impl Mode {
    /// For reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rootless => "rootless",
            Self::System => "system",
        }
    }

    /// Both.
    pub const ALL: [Self; 2] = [Self::Rootless, Self::System];

    /// Its place in a pair.
    pub(super) const fn index(self) -> usize {
        match self {
            Self::Rootless => 0,
            Self::System => 1,
        }
    }
}

/// Outcomes by seat (or [`CONTROL`]) and action.
pub type Seats = BTreeMap<String, BTreeMap<String, Outcome>>;

/// What came of everything.
#[derive(Debug, Clone, Default)]
pub struct Found(pub BTreeMap<(Mode, Part), Seats>);

impl Found {
    /// The outcome of one action; what has no meaning somewhere was not tried there.
    #[must_use]
    pub fn outcome(&self, mode: Mode, part: Part, seat: &str, action: &str) -> Option<&Outcome> {
        let seats = self.0.get(&(mode, part))?;
        let found = seats.get(seat).and_then(|all| all.get(action));
        let untried = (part != Part::Sandbox).then_some(&Outcome::Untried);
        found.or(untried)
    }
}

/// By part, seat and action, as words.
type Words = BTreeMap<String, BTreeMap<String, BTreeMap<String, String>>>;

impl Found {
    /// As one line, for the process that has started this one.
    #[must_use]
    pub fn written(&self) -> String {
        let mut words = Words::new();
        for ((_, part), seats) in &self.0 {
            let seats = seats.iter().map(|(seat, all)| {
                let all = all.iter();
                let all = all.map(|(action, outcome)| (action.clone(), outcome.to_string()));
                (seat.clone(), all.collect())
            });
            words.insert(part.name().to_owned(), seats.collect());
        }
        serde_json::to_string(&words).unwrap_or_default()
    }

    /// Reads what [`Found::written`] made.
    ///
    /// # Errors
    /// When it is something else.
    pub(super) fn read(mode: Mode, text: &str) -> Result<Self> {
        let words: Words = serde_json::from_str(text.trim())?;
        let mut found = Self::default();
        for (name, seats) in words {
            let part = Part::ALL.into_iter().find(|part| part.name() == name);
            let seats = seats.into_iter().map(|(seat, all)| {
                let outcome = |text: String| text.parse().unwrap_or(Outcome::Odd(text));
                let all = all
                    .into_iter()
                    .map(|(action, text)| (action, outcome(text)));
                (seat, all.collect())
            });
            found
                .0
                .insert((mode, part.context("no such part")?), seats.collect());
        }
        Ok(found)
    }
}
