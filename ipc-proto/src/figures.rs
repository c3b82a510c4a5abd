//! What the supervisor counts, as the metrics worker gets it and passes it on.
//!
//! A family is all there is to know of one metric, so that a new one is a change in the supervisor
//! alone. Labels hold words of fixed vocabularies and never what a person, a model or a worker
//! said: whoever collects metrics keeps every value of a label for good.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Largest [`Figures`] body in bytes.
pub const MAX_FIGURES: usize = 4 * 1024 * 1024;

/// A word that the supervisor has at compile time and the metrics worker reads.
pub type Word = Cow<'static, str>;

/// Everything that is counted, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// In the order in which they are shown.
    pub families: Vec<Family>,
}

/// One metric with the values of all its label sets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Family {
    /// Its name without the unit and without what the format appends (`_total`, `_bucket`).
    pub name: Word,
    /// One sentence.
    pub help: Word,
    /// The last part of the name.
    pub unit: Option<Unit>,
    /// What kind of metric it is.
    pub kind: Kind,
    /// Names of the labels, in the order of [`Sample::labels`].
    pub labels: Vec<Word>,
    /// One for each label set.
    pub samples: Vec<Sample>,
}

/// A base unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Time.
    Seconds,
    /// Memory.
    Bytes,
}

/// How a metric behaves over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Only grows, from 0 at the start of the supervisor.
    Counter,
    /// Grows and shrinks.
    Gauge,
    /// Counts observations by size.
    Histogram,
}

/// One value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Values of the family's labels.
    pub labels: Vec<Word>,
    /// The value.
    pub value: Value,
}

/// A value of the family's kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Value {
    /// Of a counter or a gauge.
    Whole(u64),
    /// Of a gauge.
    Real(f64),
    /// Of a histogram.
    Histogram {
        /// Sum of all observations.
        sum: f64,
        /// Number of all observations.
        count: u64,
        /// Upper bounds in rising order, each with the number of observations above the bound
        /// before it. What is above the last bound is in `count` alone.
        buckets: Vec<(f64, u64)>,
    },
}
