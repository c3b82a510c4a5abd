//! What can go wrong, and what to do about it.

use std::io;
use std::path::PathBuf;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CtlError {
    /// No socket at any of the usual places.
    #[error(
        "no daemon: there is no socket at {}; start it with `monod --config FILE` or `cargo xtask demo`, or name its socket with --socket",
        list(.tried)
    )]
    NoSocket {
        /// Where was looked.
        tried: Vec<PathBuf>,
    },
    /// A socket file that nobody listens on.
    #[error("no daemon: nothing listens on {}; start it with `monod --config FILE` or `cargo xtask demo`", path.display())]
    NotListening {
        /// Where.
        path: PathBuf,
    },
    /// The socket belongs to another user.
    #[error("no permission for {}; run monoctl as the user that runs monod, or as root", path.display())]
    Permission {
        /// Where.
        path: PathBuf,
    },
    /// Another error of the socket.
    #[error("can't connect to {}: {source}", path.display())]
    Connect {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The process at the other end is another user's.
    #[error("{} is served by user {uid}, who is neither you nor root; nothing was sent", path.display())]
    Stranger {
        /// Where.
        path: PathBuf,
        /// Who.
        uid: u32,
    },
    /// The daemon refused.
    #[error("{message} ({code})")]
    Refused {
        /// A fixed code.
        code: String,
        /// What happened and what to do.
        message: String,
    },
    /// The daemon went away or said something else than expected.
    #[error("the daemon's answer did not come: {0}; see `monoctl status`")]
    NoAnswer(String),
    /// The command line says something impossible.
    #[error("{0}")]
    Usage(String),
    /// Something with a file of the operator.
    #[error("{}: {problem}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What.
        problem: String,
    },
    /// The bytes are not the published ones.
    #[error("the file that came is not the one that was published ({0}); nothing was written")]
    Integrity(String),
    /// Something could not be asked, or was refused: one status for both.
    #[error("{0}")]
    Unreached(Box<CtlError>),
    /// The terminal or pipe is gone.
    #[error("can't write the output: {0}")]
    Output(#[from] io::Error),
}

impl CtlError {
    /// The exit status.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Unreached(_) => 1,
            Self::NoSocket { .. }
            | Self::NotListening { .. }
            | Self::Permission { .. }
            | Self::Connect { .. }
            | Self::Stranger { .. } => 3,
            // As a program that SIGPIPE ends.
            Self::Output(e) if e.kind() == io::ErrorKind::BrokenPipe => 141,
            _ => 1,
        }
    }

    /// The fixed word for scripts.
    pub(crate) fn code(&self) -> &str {
        match self {
            Self::NoSocket { .. } | Self::NotListening { .. } | Self::Connect { .. } => "no_daemon",
            Self::Permission { .. } => "permission",
            Self::Stranger { .. } => "stranger",
            Self::Refused { code, .. } => code,
            Self::NoAnswer(_) => "no_answer",
            Self::Usage(_) => "usage",
            Self::Unreached(inner) => inner.code(),
            Self::File { .. } => "file",
            Self::Integrity(_) => "artifact_integrity_failed",
            Self::Output(_) => "output",
        }
    }

    /// A problem with a file.
    pub(crate) fn file(path: impl Into<PathBuf>, problem: impl ToString) -> Self {
        Self::File {
            path: path.into(),
            problem: problem.to_string(),
        }
    }
}

fn list(paths: &[PathBuf]) -> String {
    paths
        .iter()
        .map(|p| p.display().to_string())
        .collect::<Vec<_>>()
        .join(" or ")
}
