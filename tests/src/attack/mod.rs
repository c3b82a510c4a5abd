//! The attack suite: a hostile program inside every role's real sandbox tries what must not work,
//! and outside any sandbox the same, to see that there it does work; then it takes the place of
//! the workers of a running daemon.

pub mod actions;
pub mod facts;
pub mod found;
pub mod hostile;
mod jobs;
pub mod live;
pub mod outcome;
pub mod part;
pub mod report;
pub mod scene;
pub mod seat;
pub mod table;
pub mod tries;

use crate::daemon::programs;
use anyhow::{Context as _, Result, bail, ensure};
use found::{CONTROL, Found, Mode, Seats};
use nix::unistd::geteuid;
use part::Part;
use report::Report;
use seat::Seat;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use table::Table;
use tries::{Outcomes, Programs};

/// Who attacks rootless when the suite is started by root: nobody that a system knows.
const USER: u32 = 62_800;
/// What that user needs of the programs.
const NEEDED: [&str; 13] = [
    "attack-suite",
    "attack-worker",
    "mono-launch",
    "mono-store",
    "mono-artifact",
    "mono-egress",
    "mono-app-bridge",
    "mono-channel",
    "mono-continuation",
    "mono-metrics",
    "mono-run",
    "monod",
    "monoctl",
];
/// Sandboxes that are attacked at once.
const AT_ONCE: usize = 3;

/// What is to be tried.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Only this role, in all variants of its profile.
    pub role: Option<String>,
    /// Only this mode.
    pub mode: Option<Mode>,
}

impl Options {
    /// Whether a seat's outcomes are asked for.
    fn wants(&self, seat: &str) -> bool {
        let wanted = |role: &String| seat == role || seat.split('+').next() == Some(role);
        seat == CONTROL || self.role.as_ref().is_none_or(wanted)
    }
}

/// Tries everything and compares it with the expected tables.
///
/// # Errors
/// When an attack can't be made; that it succeeds is no error but in the report.
pub fn run(options: &Options) -> Result<Report> {
    let tables: Result<_> = Part::ALL.into_iter().map(Table::load).collect();
    Ok(Report::new(options, tables?, found(options)?))
}

/// Tries everything.
///
/// # Errors
/// As [`run`].
pub fn found(options: &Options) -> Result<Found> {
    let wants = |mode| options.mode.is_none_or(|only| only == mode);
    let programs = Programs { folder: programs() };
    if let Some(role) = &options.role {
        let known: Vec<_> = Seat::all().iter().map(ToString::to_string).collect();
        let is_known = known.iter().any(|seat| options.wants(seat));
        ensure!(
            is_known,
            "there is no role {role}; there are {}",
            known.join(", ")
        );
    }
    if !geteuid().is_root() {
        ensure!(
            options.mode != Some(Mode::System),
            "system mode needs root: each role has a user of its own"
        );
        return here(Mode::Rootless, options, &programs);
    }
    // Both at once: much of it is waiting.
    std::thread::scope(|scope| {
        let rootless =
            wants(Mode::Rootless).then(|| scope.spawn(|| as_ordinary_user(options, &programs)));
        let mut found = Found::default();
        if wants(Mode::System) {
            found.0.extend(here(Mode::System, options, &programs)?.0);
        }
        if let Some(rootless) = rootless {
            let rootless = rootless.join();
            let rootless = rootless.map_err(|_| anyhow::anyhow!("the rootless part panicked"))?;
            found.0.extend(rootless?.0);
        }
        Ok(found)
    })
}

/// Everything in the mode that this process's user means.
fn here(mode: Mode, options: &Options, programs: &Programs) -> Result<Found> {
    let live = |part: fn(&Path) -> Result<Seats>, names: &[&str]| -> Result<Seats> {
        match names.iter().any(|name| options.wants(name)) {
            true => part(&programs.folder),
            false => Ok(Seats::new()),
        }
    };
    let (sandbox, supervisor) = std::thread::scope(|scope| {
        let supervisor = scope.spawn(|| live(live::against_supervisor, &live::ROLES));
        let sandbox = sandboxes(options, programs);
        (sandbox, supervisor.join())
    });
    let supervisor = supervisor.map_err(|_| anyhow::anyhow!("the supervisor's part panicked"))?;
    let gateway = match options.role {
        None => live::against_gateway(&programs.folder)?,
        Some(_) => Seats::new(),
    };
    // Last, and alone: it measures.
    let owners = live(live::against_owners, &["run"])?;
    Ok(Found(BTreeMap::from([
        ((mode, Part::Sandbox), sandbox?),
        ((mode, Part::Supervisor), supervisor?),
        ((mode, Part::Owners), owners),
        ((mode, Part::Gateway), gateway),
    ])))
}

/// Everything from inside the sandboxes, and without one.
fn sandboxes(options: &Options, programs: &Programs) -> Result<Seats> {
    let seats = Seat::all().into_iter();
    let seats = seats
        .filter(|seat| options.wants(&seat.to_string()))
        .map(Some);
    let jobs = std::iter::once(None).chain(seats).map(|seat| {
        move || match seat {
            None => Ok((CONTROL.to_owned(), tries::outside(programs)?)),
            Some(seat) => Ok((seat.to_string(), tries::inside(seat, programs)?)),
        }
    });
    let named = |all: Outcomes| {
        let all = all.into_iter();
        all.map(|(name, outcome)| (name.to_owned(), outcome))
            .collect()
    };
    let done: Vec<Result<_>> = jobs::run(AT_ONCE, jobs.collect());
    done.into_iter()
        .map(|result| result.map(|(seat, all)| (seat, named(all))))
        .collect()
}

/// Root starts the suite again as somebody else, with programs that this user can reach.
fn as_ordinary_user(options: &Options, programs: &Programs) -> Result<Found> {
    let place = tempfile::Builder::new().prefix("mono-attack-").tempdir()?;
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755))?;
    let own = if reachable(&programs.folder) {
        programs.clone()
    } else {
        tries::copied(programs, &NEEDED, place.path())?
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
    if !output.status.success() {
        bail!(
            "rootless: attack-suite ended with {}; its reason is above",
            output.status
        );
    }
    Found::read(Mode::Rootless, &String::from_utf8(output.stdout)?)
}

/// True when every user may go there.
fn reachable(folder: &Path) -> bool {
    let open = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o005 == 0o005)
    };
    folder.ancestors().all(open) && NEEDED.iter().all(|name| open(&folder.join(name)))
}
