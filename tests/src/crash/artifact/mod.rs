//! The owner of reply files, killed while it publishes, keeps, takes back, cleans, starts and reads.

mod check;
mod drive;
mod order;
mod stage;

use super::{Step, Subject};
use anyhow::Result;
use std::path::Path;

/// The artifact worker's shelf, driven as its worker drives it.
#[derive(Debug)]
pub struct Artifact;

/// A run publishes two files and is finalised.
const PUBLISH: &str = "publish";
/// A file over the size from which reading and hashing are two threads.
const LARGE: &str = "large";
/// A file of an app is kept at once.
const KEEP: &str = "keep";
/// A finalised run takes its file back: its commit failed.
const TAKE_BACK: &str = "take_back";
/// Retention with what has expired, what is over the count, and an abandoned publication.
const CLEANUP: &str = "cleanup";
/// The inventory of a start after a crash.
const START: &str = "start";
/// A finalised file is verified and read.
const DOWNLOAD: &str = "download";

impl Subject for Artifact {
    fn name(&self) -> &'static str {
        "artifact"
    }

    fn scenes(&self) -> &'static [&'static str] {
        &[PUBLISH, LARGE, KEEP, TAKE_BACK, CLEANUP, START, DOWNLOAD]
    }

    fn prepare(&self, scene: &str, folder: &Path) -> Result<()> {
        stage::prepare(scene, folder)
    }

    fn drive(&self, scene: &str, folder: &Path) -> Result<()> {
        drive::drive(scene, folder)
    }

    fn check(&self, scene: &str, folder: &Path, said: &[&str], fault: bool) -> Result<Vec<String>> {
        check::check(scene, folder, said, fault)
    }

    fn order(&self, scene: &str, steps: &[Step]) -> Vec<String> {
        match scene {
            PUBLISH | LARGE | KEEP => order::of_publishing(steps),
            _ => Vec::new(),
        }
    }
}
