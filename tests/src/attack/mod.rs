//! The attack suite: a hostile program inside every role's real sandbox tries what must not work,
//! and outside any sandbox the same, to see that there it does work.

pub mod actions;
pub mod facts;
pub mod hostile;
pub mod outcome;
pub mod report;
pub mod scene;
pub mod seat;
pub mod table;
pub mod tries;

use crate::daemon::programs;
use anyhow::{Context as _, Result, bail, ensure};
use nix::unistd::geteuid;
use outcome::Outcome;
use report::Report;
use seat::Seat;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use table::{Found, Mode, Table};
use tries::{Outcomes, Programs};

/// Who attacks rootless when the suite is started by root: nobody that a system knows.
const USER: u32 = 62_800;
/// What that user needs of the programs.
const COPIED: [&str; 3] = ["attack-suite", "attack-worker", "mono-launch"];

/// What is to be tried.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Only this role, in all variants of its profile.
    pub role: Option<String>,
    /// Only this mode.
    pub mode: Option<Mode>,
}

/// By seat and action.
type Seats = BTreeMap<String, BTreeMap<String, Outcome>>;

/// Tries everything and compares it with the expected table.
///
/// # Errors
/// When an attack can't be made; that it succeeds is no error but in the report.
pub fn run(options: &Options) -> Result<Report> {
    let table = Table::load()?;
    Ok(Report::new(options, table, found(options)?))
}

/// Tries everything.
///
/// # Errors
/// As [`run`].
pub fn found(options: &Options) -> Result<Found> {
    let wanted = |mode| options.mode.is_none_or(|only| only == mode);
    let mut found = Found::default();
    let programs = Programs { folder: programs() };
    if geteuid().is_root() {
        if wanted(Mode::System) {
            found.0.insert(Mode::System, here(options, &programs)?);
        }
        if wanted(Mode::Rootless) {
            found
                .0
                .insert(Mode::Rootless, as_ordinary_user(options, &programs)?);
        }
    } else {
        ensure!(
            options.mode != Some(Mode::System),
            "system mode needs root: each role has a user of its own"
        );
        found.0.insert(Mode::Rootless, here(options, &programs)?);
    }
    Ok(found)
}

/// Everything in the mode that this process's user means.
fn here(options: &Options, programs: &Programs) -> Result<Seats> {
    let mut seats = Seat::all();
    if let Some(role) = &options.role {
        seats.retain(|seat| seat.role.name() == role || seat.to_string() == *role);
        if seats.is_empty() {
            let known: Vec<_> = Seat::all().iter().map(ToString::to_string).collect();
            bail!("there is no role {role}; there are {}", known.join(", "));
        }
    }
    // One job more: without a sandbox.
    let jobs: Vec<Option<Seat>> = std::iter::once(None)
        .chain(seats.into_iter().map(Some))
        .collect();
    let next = Mutex::new(jobs.into_iter());
    let done: Mutex<Vec<Result<(String, Outcomes)>>> = Mutex::default();
    let threads = std::thread::available_parallelism()
        .map_or(2, usize::from)
        .min(4);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let job = next.lock().ok().and_then(|mut jobs| jobs.next());
                    let outcomes = match job {
                        None => return,
                        Some(None) => {
                            tries::outside(programs).map(|all| ("control".to_owned(), all))
                        }
                        Some(Some(seat)) => {
                            tries::inside(seat, programs).map(|all| (seat.to_string(), all))
                        }
                    };
                    if let Ok(mut done) = done.lock() {
                        done.push(outcomes);
                    }
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_default();
    let named = |all: Outcomes| {
        let all = all
            .into_iter()
            .map(|(name, outcome)| (name.to_owned(), outcome));
        all.collect()
    };
    done.into_iter()
        .map(|result| result.map(|(seat, all)| (seat, named(all))))
        .collect()
}

/// Root starts the suite again as somebody else, with programs that this user can reach.
fn as_ordinary_user(options: &Options, programs: &Programs) -> Result<Seats> {
    let place = tempfile::Builder::new().prefix("mono-attack-").tempdir()?;
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755))?;
    let own = if reachable(&programs.folder) {
        programs.clone()
    } else {
        tries::copied(programs, &COPIED, place.path())?
    };
    let mut command = Command::new(own.folder.join("attack-suite"));
    command.args(["--mode", "rootless", "--found"]);
    if let Some(role) = &options.role {
        command.args(["--role", role]);
    }
    let output = command
        .uid(USER)
        .gid(USER)
        .current_dir("/")
        .env_clear()
        .env("MONO_PROGRAMS", &own.folder)
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("attack-suite can't be started as an ordinary user")?;
    ensure!(
        output.status.success(),
        "rootless: attack-suite ended with {}; its reason is above",
        output.status
    );
    report::read_found(&String::from_utf8(output.stdout)?)
}

/// True when every user may go there.
fn reachable(folder: &Path) -> bool {
    let open = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o005 == 0o005)
    };
    folder.ancestors().all(open) && COPIED.iter().all(|name| open(&folder.join(name)))
}
