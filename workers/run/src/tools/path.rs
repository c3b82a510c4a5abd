//! Where a tool's path argument leads, and how a file is opened for reading.
//!
//! The sandbox decides what can be reached. These rules make an answer that a model can act on,
//! and keep a tool from hanging on a FIFO or a device.

use nix::fcntl::OFlag;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

/// Longest path argument in bytes (facts 4.1).
pub const MAX_PATH: usize = 4096;

/// Why a path or the file there can't be used.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// Empty, too long, or with a NUL.
    #[error(
        "{what} must have 1 to {MAX_PATH} bytes and no NUL character; this one has {found} bytes"
    )]
    Malformed {
        /// The argument's name.
        what: &'static str,
        /// Its length in bytes.
        found: usize,
    },
    /// Nothing is there.
    #[error("{path} does not exist; look for it with Glob")]
    Missing {
        /// As shown to the model.
        path: String,
    },
    /// A directory where a file is needed.
    #[error("{path} is a directory; list it with Glob (pattern \"*\", path {path:?})")]
    Directory {
        /// As shown to the model.
        path: String,
    },
    /// A file where a directory is needed.
    #[error("{path} is not a directory")]
    NotDirectory {
        /// As shown to the model.
        path: String,
    },
    /// A FIFO, socket or device.
    #[error("{path} is a {kind}, not a regular file")]
    Special {
        /// As shown to the model.
        path: String,
        /// What it is.
        kind: &'static str,
    },
    /// Over the tool's bound.
    #[error("{path} has {found} bytes; this tool takes at most {max}")]
    TooLarge {
        /// As shown to the model.
        path: String,
        /// Its size in bytes.
        found: u64,
        /// The bound in bytes.
        max: u64,
    },
    /// Not readable as text.
    #[error("{path} is not UTF-8 text")]
    NotText {
        /// As shown to the model.
        path: String,
    },
    /// The kernel said no.
    #[error("{path}: {source}")]
    Io {
        /// As shown to the model.
        path: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// The directories that a run works in.
#[derive(Debug, Clone)]
pub struct Places {
    workspace: PathBuf,
    scratch: PathBuf,
}

impl Places {
    /// Both absolute.
    #[must_use]
    pub fn new(workspace: impl Into<PathBuf>, scratch: impl Into<PathBuf>) -> Self {
        Self {
            workspace: workspace.into(),
            scratch: scratch.into(),
        }
    }

    /// The workspace: relative paths start here.
    #[must_use]
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// The run's own directory, gone after the run.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Makes an absolute path of an argument, `.` and `..` taken away by their text.
    ///
    /// # Errors
    /// When the argument is malformed.
    pub fn resolve(&self, what: &'static str, argument: &str) -> Result<PathBuf, PathError> {
        if argument.is_empty() || argument.len() > MAX_PATH || argument.contains('\0') {
            return Err(PathError::Malformed {
                what,
                found: argument.len(),
            });
        }
        Ok(lexical(&self.workspace.join(argument)))
    }

    /// Where a search begins: [`Places::resolve`] of its `path`, or the workspace.
    ///
    /// # Errors
    /// A sentence for the model.
    pub fn root(&self, path: Option<&str>) -> Result<PathBuf, String> {
        let root = self.resolve("path", path.unwrap_or("."));
        root.map_err(|e| e.to_string())
    }

    /// The path as the model should see it: relative inside the workspace.
    #[must_use]
    pub fn show(&self, path: &Path) -> String {
        match path.strip_prefix(&self.workspace) {
            Ok(inside) if inside.as_os_str().is_empty() => ".".to_owned(),
            Ok(inside) => inside.display().to_string(),
            Err(_) => path.display().to_string(),
        }
    }

    /// Opens a regular file of at most `max` bytes for reading, without waiting on a FIFO.
    ///
    /// # Errors
    /// When it is missing, no regular file, too large, or not readable.
    pub fn open_file(&self, path: &Path, max: u64) -> Result<(File, Metadata), PathError> {
        let shown = self.show(path);
        let file = OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits())
            .open(path)
            .map_err(|source| io_error(&shown, source))?;
        let metadata = file.metadata().map_err(|source| io_error(&shown, source))?;
        refuse_special(&shown, &metadata)?;
        if metadata.len() > max {
            return Err(PathError::TooLarge {
                path: shown,
                found: metadata.len(),
                max,
            });
        }
        Ok((file, metadata))
    }

    /// Reads a regular file of at most `max` bytes.
    ///
    /// # Errors
    /// As [`Places::open_file`]; also when it grew over the bound meanwhile.
    pub fn read_file(&self, path: &Path, max: u64) -> Result<(Vec<u8>, Metadata), PathError> {
        let (file, metadata) = self.open_file(path, max)?;
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
        // A file can grow while it is read, and some have no size at all (/proc).
        file.take(max + 1)
            .read_to_end(&mut bytes)
            .map_err(|source| io_error(&self.show(path), source))?;
        if bytes.len() as u64 > max {
            return Err(PathError::TooLarge {
                path: self.show(path),
                found: bytes.len() as u64,
                max,
            });
        }
        Ok((bytes, metadata))
    }
}

/// Names what a file that is neither regular nor a directory is.
///
/// # Errors
/// When it is one of those.
pub fn refuse_special(shown: &str, metadata: &Metadata) -> Result<(), PathError> {
    let kind = metadata.file_type();
    let special = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => {
            return Err(PathError::Directory {
                path: shown.to_owned(),
            });
        }
        () if kind.is_fifo() => "FIFO",
        () if kind.is_socket() => "socket",
        () => "device",
    };
    Err(PathError::Special {
        path: shown.to_owned(),
        kind: special,
    })
}

/// Gives a kernel error its path and, where there is one, its better name.
#[must_use]
pub fn io_error(shown: &str, source: io::Error) -> PathError {
    let path = shown.to_owned();
    match source.raw_os_error() {
        Some(code) if code == nix::libc::ENOENT => PathError::Missing { path },
        Some(code) if code == nix::libc::EISDIR => PathError::Directory { path },
        Some(code) if code == nix::libc::ENOTDIR => PathError::NotDirectory { path },
        // What opening a socket, or a device without a driver, gives.
        Some(code) if code == nix::libc::ENXIO => PathError::Special {
            path,
            kind: "socket or device",
        },
        _ => PathError::Io { path, source },
    }
}

fn lexical(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::net::UnixListener;

    fn places() -> (tempfile::TempDir, Places) {
        let dir = tempfile::tempdir().unwrap();
        let places = Places::new(dir.path(), "/scratch");
        (dir, places)
    }

    #[test]
    fn paths_start_at_the_workspace_and_are_shown_from_there() {
        let places = Places::new("/work", "/scratch");
        let table = [
            ("a/b.txt", "/work/a/b.txt", "a/b.txt"),
            ("./a/../b", "/work/b", "b"),
            ("/etc/hosts", "/etc/hosts", "/etc/hosts"),
            ("../other/x", "/other/x", "/other/x"),
            ("/work", "/work", "."),
            ("../../../..", "/", "/"),
        ];
        for (argument, path, shown) in table {
            let resolved = places.resolve("path", argument).unwrap();
            assert_eq!(
                (resolved.to_str().unwrap(), places.show(&resolved).as_str()),
                (path, shown)
            );
        }
    }

    #[test]
    fn malformed_paths_are_refused_at_the_bound() {
        let (_dir, places) = places();
        assert!(places.resolve("path", &"x".repeat(MAX_PATH)).is_ok());
        for bad in [String::new(), "x".repeat(MAX_PATH + 1), "a\0b".to_owned()] {
            assert!(matches!(
                places.resolve("path", &bad),
                Err(PathError::Malformed { .. })
            ));
        }
    }

    #[test]
    fn whatever_is_no_file_is_named_and_nothing_hangs() {
        let (dir, places) = places();
        let at = |name: &str| dir.path().join(name);
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _listener = UnixListener::bind(at("socket")).unwrap();
        std::fs::create_dir(at("dir")).unwrap();
        std::fs::write(at("file"), b"12345").unwrap();
        let error = |name: &str| places.read_file(&at(name), 5).unwrap_err().to_string();
        assert!(error("fifo").contains("FIFO"));
        assert!(error("socket").contains("socket"));
        assert!(error("dir").contains("is a directory"));
        assert!(error("missing").contains("does not exist"));
        assert!(error("file/x").contains("not a directory"));
        assert!(
            places
                .read_file(Path::new("/dev/null"), 5)
                .unwrap_err()
                .to_string()
                .contains("device")
        );
        assert_eq!(places.read_file(&at("file"), 5).unwrap().0, b"12345");
        assert!(
            places
                .read_file(&at("file"), 4)
                .unwrap_err()
                .to_string()
                .contains("at most 4")
        );
    }

    #[test]
    fn a_file_without_a_size_is_still_bounded() {
        let (_dir, places) = places();
        let error = places
            .read_file(Path::new("/proc/self/status"), 10)
            .unwrap_err();
        assert!(matches!(error, PathError::TooLarge { .. }), "{error}");
    }
}
