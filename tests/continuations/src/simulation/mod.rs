//! Everything that can happen to continuations, in any order: turns that claim, settle or fail,
//! services that submit, repeat and contradict themselves, models and channels that answer, refuse,
//! or never say, operators, clocks that jump, checkpoints, retention, disks that fail, processes
//! that are killed and machines that lose their power.
//!
//! The store and the service are the real ones; the disk, the clocks and the rest of the host are
//! simulated, in one thread, from a seed. After each step it is compared what the service has
//! promised with what it holds.

mod clients;
mod disk;
mod host;
mod truth;
mod work;

use crate::trial::Report;
use anyhow::Result;
use clients::Clients;
use continuation_store::fs::Chance;
use disk::Machine;
use truth::Truth;
use work::Work;

/// Steps between two full comparisons.
const LOOK_EVERY: usize = 200;
/// Most violations that are told; after them it ends.
const MAX_TOLD: usize = 10;

/// How much is tried.
#[derive(Debug, Clone, Copy)]
pub struct Length {
    /// Steps.
    pub steps: usize,
    /// A crash or a failing disk comes once in so many steps.
    pub crash_every: usize,
    /// The disk syncs its log; without, it only claims to, which has to be found out.
    pub honest: bool,
}

/// All that there is.
struct World {
    chance: Chance,
    machine: Machine,
    clients: Clients,
    work: Work,
    truth: Truth,
}

/// Runs it.
///
/// # Errors
/// When it can't even begin.
pub fn run(seed: u64, length: Length) -> Result<Report> {
    let mut world = World {
        chance: Chance::new(seed),
        machine: Machine::new(seed, length.honest)?,
        clients: Clients::default(),
        work: Work::default(),
        truth: Truth::default(),
    };
    let mut report = Report::new(seed);
    report.points = length.steps;
    let violations = &mut report.violations;
    let mut crashes = 0;
    for step in 0..length.steps {
        let kind = world.step(length.crash_every);
        *report.kinds.entry(kind.to_owned()).or_default() += 1;
        if world.machine.is_down() {
            crashes += 1;
            world.restart(violations);
        } else if step % LOOK_EVERY == 0 {
            world.compare(violations);
        }
        violations.append(&mut world.truth.wrong);
        if violations.len() >= MAX_TOLD || world.machine.is_lost() {
            break;
        }
        if let Some(last) = violations.last_mut()
            && !last.starts_with("step")
        {
            *last = format!("step {step} ({kind}): {last}");
        }
    }
    world.compare(violations);
    report.kinds.insert("restarts".to_owned(), crashes);
    report.scenes = world.truth.counts;
    Ok(report.over(MAX_TOLD))
}

impl World {
    fn step(&mut self, crash_every: usize) -> &'static str {
        if self.chance.once_in(crash_every) {
            self.machine.arm(&mut self.chance);
        }
        match self.chance.below(100) {
            0..=7 => self.begin_turn(),
            8..=22 => self.claim(),
            23..=30 => self.settle(),
            31..=35 => self.claim_detached(),
            36..=51 => self.submit(),
            52..=64 => self.work(),
            65..=84 => self.answer(),
            85..=89 => self.operate(),
            90..=92 => self.machine.pass_time(&mut self.chance),
            93..=94 => self.checkpoint(),
            95 => self.retain(),
            96 => self.expire(),
            _ => self.hostile(),
        }
    }
}
