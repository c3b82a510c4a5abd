//! The store of continuations, cut off from its power at every call that it makes.
//!
//! A scene is played once on a simulated disk. Before each call that changes something the disk is
//! looked at, and of all that was not synced until then some is lost: several times, with other
//! losses each. From each such disk the store is opened anew and looked at: it holds what it held
//! after one of the changes that had been begun, and none that had been promised is missing.
//!
//! The same is done while it recovers. And it is done with disks that only claim to sync: those
//! have to be found out, or the rest would prove nothing.

mod images;
mod legacy;
mod look;
mod scenes;

use images::Lie;

use crate::trial::Report;
use anyhow::{Result, ensure};
use continuation_store::fs::Chance;
use scenes::Scene;
use std::collections::HashSet;

/// Losses that are tried at each call.
const LOSSES: usize = 60;
/// The same for a short look.
const FEW_LOSSES: usize = 1;
/// Most violations that are told.
const MAX_TOLD: usize = 20;

/// Plays all scenes, then the controls. The seed repeats what depends on chance; `sample` is the number of points at which it ends early.
///
/// # Errors
/// When a scene can't be played at all, or a lying disk is not found out.
pub fn run(seed: u64, sample: Option<usize>) -> Result<Report> {
    let mut report = Report::new(seed);
    let losses = if sample.is_some() { FEW_LOSSES } else { LOSSES };
    let mut seen = HashSet::new();
    for scene in scenes::all() {
        let mut chance = Chance::new(seed);
        let images = scene.play(None)?;
        for image in images.0 {
            for _ in 0..losses {
                if sample.is_some_and(|most| report.points >= most) {
                    break;
                }
                let (world, kind) = image.lose(&mut chance);
                if !seen.insert((scene.name(), image.call, images::digest(&world))) {
                    continue;
                }
                report.points += 1;
                report.count_scene(scene.name());
                report.count_kind(kind);
                let wrong = look::at(&image, world, &mut chance);
                let name = scene.name();
                let call = image.call;
                report.violations.extend(
                    wrong
                        .into_iter()
                        .map(|w| format!("{name}, call {call}: {w}")),
                );
            }
        }
    }
    for (lie, scene) in scenes::controls() {
        ensure!(
            found_out(scene.as_ref(), lie, seed)?,
            "a disk that lies about {lie:?} was not found out in the scene {:?}",
            scene.name()
        );
        report.count_kind("lies found out");
    }
    Ok(report.over(MAX_TOLD))
}

fn found_out(scene: &dyn Scene, lie: Lie, seed: u64) -> Result<bool> {
    let mut chance = Chance::new(seed);
    for image in scene.play(Some(lie))?.0 {
        for _ in 0..LOSSES {
            let (world, _) = image.lose(&mut chance);
            if !look::at(&image, world, &mut chance).is_empty() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
