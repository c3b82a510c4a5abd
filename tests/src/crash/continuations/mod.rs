//! The owner of continuations, killed while it takes claims and results, pins and activates origins, has
//! answers put into words and delivered, is operated, keeps up with its log, forgets and starts.
//!
//! The store is on a real disk with its own threads; the service is driven as its loop drives it. Models
//! and channels are lines that the traced process says: what it has said, they have done.

mod check;
mod drive;
mod office;

use super::{Step, Stop, Subject, points};
use anyhow::Result;
use nix::libc::{SYS_fdatasync, SYS_pwrite64};
use std::path::Path;

/// The continuation worker's service and store, driven as the worker drives them.
#[derive(Debug)]
pub struct Continuations;

/// A new folder gets its secret, its log and its first claim.
const FIRST: &str = "first";
/// Turns and services with everything that becomes of them.
const LIFE: &str = "life";
/// What the log holds goes to its places, and what is old is forgotten.
const KEEP_UP: &str = "keep_up";
/// A start after a crash, with work that was under way.
const START: &str = "start";

impl Subject for Continuations {
    fn name(&self) -> &'static str {
        "continuation-worker"
    }

    fn scenes(&self) -> &'static [&'static str] {
        &[FIRST, LIFE, KEEP_UP, START]
    }

    fn prepare(&self, scene: &str, folder: &Path) -> Result<()> {
        drive::prepare(scene, folder)
    }

    fn drive(&self, scene: &str, folder: &Path) -> Result<()> {
        drive::drive(scene, folder)
    }

    fn check(&self, _: &str, folder: &Path, said: &[&str], _: bool) -> Result<Vec<String>> {
        check::check(folder, said)
    }

    fn order(&self, scene: &str, steps: &[Step]) -> Vec<String> {
        match scene {
            LIFE => synced_before_told(steps),
            _ => Vec::new(),
        }
    }

    /// Only calls that the disk sees: its threads wait for each other in many more.
    fn counts(&self, stop: &Stop, folder: &Path) -> bool {
        points::is_on_disk(stop, folder)
    }
}

/// After what is written into the log comes a sync of it.
fn synced_before_told(steps: &[Step]) -> Vec<String> {
    let of_log = |step: &Step, call| {
        step.call == call
            && step
                .paths
                .iter()
                .any(|path| path.contains("continuation-log"))
    };
    let written = |step: &&Step| of_log(step, SYS_pwrite64);
    let last = steps.iter().rposition(|step| of_log(step, SYS_pwrite64));
    let synced = steps.iter().rposition(|step| of_log(step, SYS_fdatasync));
    let mut wrong = Vec::new();
    if steps.iter().filter(written).count() < 10 {
        wrong.push("hardly anything was written into the log".to_owned());
    }
    if synced < last {
        wrong.push("what was written last is not synced".to_owned());
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_not_synced_is_told() {
        let step = |call| Step {
            call,
            paths: vec!["/state/continuation-log-v1.bin".to_owned()],
        };
        let mut steps: Vec<_> = (0..10).map(|_| step(SYS_pwrite64)).collect();
        assert_eq!(synced_before_told(&steps).len(), 1);
        steps.push(step(SYS_fdatasync));
        assert_eq!(synced_before_told(&steps), [] as [&str; 0]);
        assert_eq!(synced_before_told(&steps[9..]).len(), 1);
    }
}
