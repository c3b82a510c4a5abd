//! Names and bounds of what is kept about runs.
//!
//! Descriptive text is cut to its bound; what decides something is refused when over it.

use crate::error::StoreError;
use std::fmt;

/// Longest name in bytes: source, model, tool, tool call, append key, failure kind. Refused.
pub const NAME: usize = 256;
/// More about a source, in bytes. Cut.
pub const SOURCE_DETAIL: usize = 1024;
/// The person's message as kept with the run, in bytes. Cut.
pub const USER_TEXT: usize = 8 * 1024;
/// What an unsuccessful turn had said, in bytes (facts 3.2: assistant prefix). Cut.
pub const PARTIAL_TEXT: usize = 8 * 1024;
/// An error sentence in bytes. Cut.
pub const ERROR: usize = 4096;
/// Beginning of a tool's arguments or result in bytes. Cut.
pub const PREVIEW: usize = 4096;
/// The answer of a turn in bytes. Refused.
pub const FINAL_TEXT: usize = 1 << 20;
/// Reply parts as JSON in bytes: 20 parts of a few KiB. Refused.
pub const PARTS: usize = 256 * 1024;
/// Steps away from the first model. Refused.
pub const FAILOVERS: usize = 64;
/// Messages of one commit. Refused.
pub const COMMIT_MESSAGES: usize = 1024;
/// Body of one commit in bytes, before each message is brought to the history's bound. Refused.
pub const COMMIT_BYTES: usize = 32 << 20;
/// Tool calls recorded for one run. Refused.
pub const TOOL_CALLS: u32 = 1000;
/// Runs on one page of a listing. Refused.
pub const PAGE: u32 = 100;

/// Ends a text that was cut.
pub const CUT: &str = " […]";

/// States of a completed tool call.
pub const TOOL_OUTCOMES: [&str; 8] = [
    "success",
    "error",
    "timeout",
    "cancelled",
    "interrupted",
    "rejected",
    "exit_nonzero",
    "signal",
];

/// Where a run stands. The first terminal state wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Begun and not ended.
    Running,
    /// Committed.
    Succeeded,
    /// Ended by a failure.
    Failed,
    /// Ended on request.
    Cancelled,
    /// Its process died.
    Interrupted,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 5] = [
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
        Self::Interrupted,
    ];

    /// The name as stored and shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }

    /// The status of a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl rusqlite::types::FromSql for Status {
    fn column_result(value: rusqlite::types::ValueRef<'_>) -> rusqlite::types::FromSqlResult<Self> {
        Self::parse(value.as_str()?).ok_or(rusqlite::types::FromSqlError::InvalidType)
    }
}

impl rusqlite::ToSql for Status {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        Ok(self.name().into())
    }
}

/// What a run says of itself at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// Channel that started it.
    pub source: String,
    /// More about it.
    pub source_detail: Option<String>,
    /// The configured first choice.
    pub model: String,
    /// Beginning of the person's message.
    pub user_text: String,
}

/// Answer to a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The history's revision that it produced.
    pub revision: u64,
    /// True when the same commit had been done before.
    pub repeated: bool,
}

/// Whether a run became part of the truth (spec s1, "Origin settlement lifecycle").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commitment {
    /// Yes.
    Committed,
    /// Not yet.
    Running,
    /// It ended otherwise and never will be.
    Failed,
    /// Never begun, or its record was retired.
    Unknown,
}

impl Commitment {
    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Running => "running",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

/// Refuses a name that is empty or over [`NAME`].
pub(crate) fn name(field: &'static str, text: &str) -> Result<(), StoreError> {
    if text.is_empty() {
        return Err(StoreError::Invalid {
            field,
            reason: "it is empty",
        });
    }
    at_most(field, text.len(), NAME)
}

/// Refuses more than `max`.
pub(crate) fn at_most(field: &'static str, found: usize, max: usize) -> Result<(), StoreError> {
    if found > max {
        return Err(StoreError::TooLarge { field, found, max });
    }
    Ok(())
}
