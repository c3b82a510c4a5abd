//! A step that failed.

use policy::exit::Step;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Which step, on what, and why.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) step: Step,
    pub(crate) path: Option<PathBuf>,
    pub(crate) source: io::Error,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.step.doing())?;
        if let Some(path) = &self.path {
            write!(f, " ({})", path.display())?;
        }
        write!(f, " failed: {}; {}", self.source, self.step.remedy())
    }
}

/// Names the step of a result.
pub(crate) trait During<T> {
    fn during(self, step: Step) -> Result<T, Failure>;
    fn during_on(self, step: Step, path: &Path) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, step: Step) -> Result<T, Failure> {
        self.map_err(|error| Failure {
            step,
            path: None,
            source: error.into(),
        })
    }

    fn during_on(self, step: Step, path: &Path) -> Result<T, Failure> {
        self.map_err(|error| Failure {
            step,
            path: Some(path.to_owned()),
            source: error.into(),
        })
    }
}
