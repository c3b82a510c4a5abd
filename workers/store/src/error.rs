//! What can go wrong with an open database.

use std::path::PathBuf;

use crate::place::PlaceError;
use crate::record::Status;

/// Why an operation was not done. Nothing of a refused operation is stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The state directory is not safe to use.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// Damaged. Never repaired or replaced here: that is the operator's decision.
    #[error(
        "the database {path} is damaged ({detail}); it was left as it is: restore it from a backup, or move it away to start empty"
    )]
    Corrupt {
        /// The database file.
        path: PathBuf,
        /// SQLite's finding.
        detail: String,
    },
    /// A SQLite file of another program.
    #[error(
        "{path} is not a store database: application id {found:#010x}, expected {expected:#010x}"
    )]
    Foreign {
        /// The database file.
        path: PathBuf,
        /// The id in the file.
        found: i32,
        /// Ours.
        expected: i32,
    },
    /// Written by a later release.
    #[error(
        "{path} has schema {found}, this build knows up to {known}: run the release that wrote it, or a newer one"
    )]
    Newer {
        /// The database file.
        path: PathBuf,
        /// The schema number in the file.
        found: u32,
        /// The newest number known here.
        known: u32,
    },
    /// The database could not be copied before its schema was changed; it is unchanged.
    #[error(
        "the database can't be kept as {path} before its schema is changed: {error}; it is unchanged"
    )]
    Copy {
        /// The copy.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// Another store process has it.
    #[error("the database is in use by another store process")]
    InUse,
    /// No space left for the change; what was committed before is untouched.
    #[error("no space is left for the database; free space on its file system")]
    DiskFull,
    /// The history limits leave no room: every other conversation has a running turn.
    #[error("the history is full ({0}) and nothing in it may be evicted now")]
    HistoryFull(&'static str),
    /// A field is malformed.
    #[error("{field} is not acceptable: {reason}")]
    Invalid {
        /// Name of the field.
        field: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A field is over its bound.
    #[error("{field} has {found}, at most {max} are taken")]
    TooLarge {
        /// Name of the field, with its unit.
        field: &'static str,
        /// What came.
        found: usize,
        /// The bound.
        max: usize,
    },
    /// No such run.
    #[error("there is no run {0}")]
    UnknownRun(String),
    /// A run of this id was begun before.
    #[error("run {0} exists already")]
    RunExists(String),
    /// Another turn of the conversation has not ended; worth another try.
    #[error("another turn of the conversation is running ({0})")]
    ConversationBusy(String),
    /// Who asks is neither whose conversation it is nor the operator.
    #[error("the conversation is another client's; choose another name")]
    Taken,
    /// The first terminal state wins.
    #[error("run {run} has already ended as {status}")]
    Ended {
        /// The run.
        run: String,
        /// How it ended.
        status: Status,
    },
    /// Committed before with other content.
    #[error("{0} was committed before with other content")]
    Conflict(String),
    /// No such thread, message or session of the console.
    #[error("there is no such {0}")]
    NotThere(&'static str),
    /// An answer of the thread is being written or waits.
    #[error("an answer in this thread is not whole yet; stop it first")]
    ReplyOpen,
    /// Too many messages of the thread wait.
    #[error("too many messages wait in this thread; wait for an answer")]
    QueueFull,
    /// The console keeps no more; what people wrote is never dropped by itself.
    #[error("the console's space is full ({0}); delete threads that are no longer needed")]
    ConsoleFull(&'static str),
    /// Anything else that SQLite reports.
    #[error("the database failed: {0}")]
    Database(rusqlite::Error),
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode as Code;
        match error.sqlite_error_code() {
            Some(Code::DiskFull) => Self::DiskFull,
            Some(Code::DatabaseBusy | Code::DatabaseLocked) => Self::InUse,
            Some(Code::DatabaseCorrupt | Code::NotADatabase) => Self::Corrupt {
                path: PathBuf::from(crate::place::DATABASE),
                detail: error.to_string(),
            },
            _ => Self::Database(error),
        }
    }
}
