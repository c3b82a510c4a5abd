//! What is tried, and what came of it.

use serde::Serialize;
use std::collections::BTreeMap;

/// What is tried.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Repeats what depends on chance.
    pub seed: u64,
    /// So many points, or about so many; all of them without.
    pub sample: Option<usize>,
}

/// What came of it.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Nothing was wrong.
    pub ok: bool,
    /// Points tried, each another disk.
    pub points: usize,
    /// What was wrong, after which point.
    pub violations: Vec<String>,
    /// Repeats it.
    pub seed: u64,
    /// Points by scene.
    pub scenes: BTreeMap<&'static str, usize>,
    /// How they were disturbed.
    pub kinds: BTreeMap<&'static str, usize>,
}
