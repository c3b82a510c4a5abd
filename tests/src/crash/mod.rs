//! An owner of durable bytes, killed at every system call of its work, or given an error there.
//!
//! A [`Subject`] has scenes: a folder as it was, and work on it. The work is done once by a traced
//! process, which says how many system calls it takes. Then it is done again for each of them, on
//! a fresh copy of the folder, and the process is killed before or after just this call; and for
//! each call that the disk can refuse, with the disk refusing this one, or this one and all that
//! follow. Each time the owner starts anew on what is left, and says what is wrong with it.
//!
//! Powering off is not imitated: what the kernel holds is not lost. What was synced before what is
//! read from the trace instead ([`Subject::order`]).

pub mod apps;
pub mod artifact;
pub mod careless;
pub mod continuations;
mod folder;
mod points;
#[cfg_attr(not(target_arch = "x86_64"), path = "registers_none.rs")]
mod registers;
mod trace;

pub use points::{Fault, Point};
pub use trace::{Action, Edge, End, Ended, Stop};

use crate::fuzz::random::Random;
use anyhow::{Context as _, Result, bail, ensure};
use continuation_proof::trial::Report;
use nix::sys::signal::kill;
use nix::unistd::{alarm, getpid};
use points::Record;
use std::io::BufRead as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Seconds after which the traced process ends itself: it hangs, and is not only on a busy machine.
const PATIENCE: u32 = 200;
/// Violations that are kept word for word; more are only counted.
const MAX_TOLD: usize = 50;

/// One system call of a scene's work, as [`Subject::order`] reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The call's number.
    pub call: i64,
    /// What it acts on: the file of a descriptor, or a folder's file and the name in it. A move
    /// has both ends.
    pub paths: Vec<String>,
}

/// What is killed, and how it is looked at afterwards.
pub trait Subject: Sync {
    /// The name by which it is asked for.
    fn name(&self) -> &'static str;
    /// The names of its scenes.
    fn scenes(&self) -> &'static [&'static str];
    /// Makes the folder in which a scene begins.
    ///
    /// # Errors
    /// When it can't be made.
    fn prepare(&self, scene: &str, folder: &Path) -> Result<()>;
    /// The traced process: does the work in the folder, between two calls of [`mark`], and says
    /// with [`say`] what it has promised to whom.
    ///
    /// # Errors
    /// When the work can't even begin.
    fn drive(&self, scene: &str, folder: &Path) -> Result<()>;
    /// The owner starts anew: what is wrong? `fault` is false when the process was killed.
    ///
    /// # Errors
    /// When it can't be told, which is a violation as well.
    fn check(&self, scene: &str, folder: &Path, said: &[&str], fault: bool) -> Result<Vec<String>>;
    /// What is wrong with the order of an undisturbed scene's calls.
    fn order(&self, scene: &str, steps: &[Step]) -> Vec<String>;
    /// Whether a call is one of the work's, at which the process is killed. All are without this.
    fn counts(&self, _stop: &Stop, _folder: &Path) -> bool {
        true
    }
}

/// Every subject there is, and the control.
#[must_use]
pub fn subjects() -> [&'static dyn Subject; 4] {
    [
        &artifact::Artifact,
        &apps::Apps,
        &continuations::Continuations,
        &careless::Careless,
    ]
}

/// Marks the beginning and the end of a scene's work: a signal that is none, to itself.
pub fn mark() {
    // It can't fail: the process exists.
    let _ = kill(getpid(), None);
}

/// Tells what was promised, in one call.
#[allow(clippy::print_stdout, reason = "the pipe to who listens")]
pub fn say(line: &str) {
    println!("{line}");
}

/// The traced process: waits until it is traced, then works.
///
/// # Errors
/// When nobody says that it may begin, or the work can't.
pub fn drive(subject: &dyn Subject, scene: &str, folder: &Path) -> Result<()> {
    let mut word = String::new();
    std::io::stdin().lock().read_line(&mut word)?;
    ensure!(word == trace::GO, "nobody traces this process");
    alarm::set(PATIENCE);
    subject.drive(scene, folder)
}

/// Tries the points of all scenes, or so many of them, which the seed chooses.
///
/// # Errors
/// When a scene can't be made or traced.
pub fn run(subject: &dyn Subject, seed: u64, sample: Option<usize>) -> Result<Report> {
    let work = tempfile::tempdir()?;
    let mut all = Vec::new();
    let mut report = Report::new(seed);
    for &scene in subject.scenes() {
        let template = work.path().join(scene);
        std::fs::create_dir(&template)?;
        subject
            .prepare(scene, &template)
            .with_context(|| format!("the scene {scene:?} can't be prepared"))?;
        let bench = Bench {
            subject,
            scene,
            template: &template,
            work: work.path(),
        };
        let record = bench.undisturbed()?;
        report.violations.extend(record.violations);
        let points = points::of(&record.record);
        report.scenes.insert(scene.to_owned(), points.len());
        all.extend(
            points
                .into_iter()
                .map(|point| (scene, template.clone(), point)),
        );
    }
    if let Some(sample) = sample {
        let mut random = Random::new(seed);
        while all.len() > sample {
            all.swap_remove(random.below(all.len()));
        }
    }
    for (_, _, point) in &all {
        report.count_kind(point.kind());
    }
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    // Each tracer is a thread: a process belongs to the thread that traces it.
    let results = std::thread::scope(|scope| {
        let tracers: Vec<_> = (0..workers)
            .map(|_| {
                scope.spawn(|| {
                    while let Some((scene, template, point)) =
                        all.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        let bench = Bench {
                            subject,
                            scene,
                            template,
                            work: work.path(),
                        };
                        let wrong = bench.disturbed(*point)?;
                        let mut found = found.lock().unwrap_or_else(|e| e.into_inner());
                        found.extend(
                            wrong
                                .into_iter()
                                .map(|what| format!("{scene}, {point}: {what}")),
                        );
                    }
                    anyhow::Ok(())
                })
            })
            .collect();
        tracers
            .into_iter()
            .map(|tracer| tracer.join())
            .collect::<Vec<_>>()
    });
    for result in results {
        match result {
            Ok(result) => result?,
            Err(_) => bail!("a tracing thread panicked"),
        }
    }
    report.points = all.len();
    report
        .violations
        .extend(found.into_inner().unwrap_or_else(|e| e.into_inner()));
    Ok(report.over(MAX_TOLD))
}

/// One scene, ready to be played.
struct Bench<'a> {
    subject: &'a dyn Subject,
    scene: &'static str,
    template: &'a Path,
    work: &'a Path,
}

struct Undisturbed {
    record: Vec<Record>,
    violations: Vec<String>,
}

impl Bench<'_> {
    fn command(&self, folder: &Path) -> Command {
        // This very program, even if another was built in its place meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command.args([self.subject.name(), "--drive", self.scene, "--folder"]);
        command
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command
    }

    /// A folder as the scene begins, gone when dropped.
    fn folder(&self) -> Result<tempfile::TempDir> {
        let folder = tempfile::tempdir_in(self.work)?;
        folder::copy(self.template, folder.path())?;
        Ok(folder)
    }

    /// The calls of the work, and whether all is well when nothing happens.
    fn undisturbed(&self) -> Result<Undisturbed> {
        let folder = self.folder()?;
        let (mut record, mut steps) = (Vec::new(), Vec::new());
        let ended = trace::trace(self.command(folder.path()), &mut |stop| {
            if stop.edge == Edge::Entry && self.subject.counts(stop, folder.path()) {
                record.push(Record::of(stop, folder.path()));
                steps.push(points::step(stop));
            }
            Action::Pass
        })?;
        ensure!(
            ended.end == End::Exited(0),
            "the scene {:?} ends by itself with {:?}",
            self.scene,
            ended.end
        );
        ensure!(
            !record.is_empty(),
            "the scene {:?} makes no system call",
            self.scene
        );
        let mut violations = self.look(folder.path(), &ended, true);
        violations.extend(self.subject.order(self.scene, &steps));
        let violations = violations
            .into_iter()
            .map(|what| format!("{}, undisturbed: {what}", self.scene));
        Ok(Undisturbed {
            record,
            violations: violations.collect(),
        })
    }

    /// Plays the scene with one disturbance and looks at what is left.
    fn disturbed(&self, point: Point) -> Result<Vec<String>> {
        let folder = self.folder()?;
        let mut plan = points::Plan::new(point, folder.path());
        let ended = trace::trace(self.command(folder.path()), &mut |stop| {
            let counts = stop.edge == Edge::Exit || self.subject.counts(stop, folder.path());
            if counts { plan.at(stop) } else { Action::Pass }
        })?;
        let mut wrong = Vec::new();
        let fault = point.is_fault();
        match &ended.end {
            // A thread's calls may come in another order the next time, so a point can be missed.
            End::Killed if !fault => {}
            End::Exited(0) => {}
            other => wrong.push(format!("it ended with {other:?}")),
        }
        wrong.extend(self.look(folder.path(), &ended, fault || ended.end != End::Killed));
        Ok(wrong)
    }

    fn look(&self, folder: &Path, ended: &Ended, fault: bool) -> Vec<String> {
        let said: Vec<_> = ended.said.lines().collect();
        match self.subject.check(self.scene, folder, &said, fault) {
            Ok(wrong) => wrong,
            Err(error) => vec![format!("the owner can't go on: {error:#}")],
        }
    }
}
