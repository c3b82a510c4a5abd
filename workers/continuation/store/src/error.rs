//! What can go wrong, and what to do about it.

use continuation_record::Invalid;
use std::io;

/// The store can't be trusted or used any more. The process that owns it should end and start anew:
/// what was accepted is in the log.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk or the system refused.
    #[error("{doing} failed: {source}; nothing more is accepted until a restart")]
    Io {
        /// What was done.
        doing: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// What is read is not what was written.
    #[error("{what} is damaged; restore the state folder from a copy, or ask for help with it")]
    Damaged {
        /// What is.
        what: String,
    },
    /// It failed before.
    #[error("the store stopped after an earlier failure; restart the worker")]
    Stopped,
}

/// Why a folder can't be opened. It is left as it was.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// As for an open store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another process has it.
    #[error("the state folder is in use by another process: {0}")]
    Owned(io::Error),
    /// A file stands where none of ours does.
    #[error("{folder} has a file {name:?} that is none of the store's; take it away")]
    Unknown {
        /// Where.
        folder: &'static str,
        /// Which.
        name: String,
    },
    /// Something that has to be there is not.
    #[error("{0} is missing; restore the state folder from a copy")]
    Missing(String),
    /// What older versions left can't be taken over.
    #[error("the records of an older version can't be taken over: {0}")]
    Legacy(String),
}

/// Why a change was not made. Nothing of it was.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError<E> {
    /// Whoever asked for the change found a reason against it.
    #[error("the change was refused")]
    Refused(E),
    /// The log is nearly full: later.
    #[error("the store has fallen behind; try again later")]
    Busy,
    /// It could not be read again.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// More than one change may have.
    #[error("the change has {bytes} bytes, and at most {max} are allowed")]
    Large {
        /// Its length.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// No room for another snapshot.
    #[error("the snapshots of conversations have no room left")]
    Quota,
    /// A claim of the same server, run and task has another name.
    #[error("another continuation has the same claim")]
    Duplicate,
    /// A record refers to a snapshot that is not there.
    #[error("a record refers to a snapshot that is not there")]
    Context,
    /// The store stopped.
    #[error("the store stopped; restart the worker")]
    Stopped,
}

pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> StoreError {
    move |source| StoreError::Io { doing, source }
}

pub(crate) fn damaged(what: impl Into<String>) -> StoreError {
    StoreError::Damaged { what: what.into() }
}
