//! `bench-spawn`: what it costs to start a process confined.
//!
//! Each of two programs is started in three ways, in turns: plainly (fork and exec), under the run
//! worker's profile by `mono-launch`, and, where it is installed, under the same isolation by
//! bubblewrap ([`Wrapping`]). Measured is the time until its first byte on its control channel.
//!
//! - The run worker: the figure itself, `baseline`, `bwrap`. The first byte is that of `Hello`. Its
//!   scratch folder and its profile are ready before, as in `monod`, and so is bubblewrap's command line;
//!   `unprepared` is a start that has to make them, the first one's. `ready` is the time to the worker's
//!   `Ready`: settings, second filter, probes.
//! - A program that does nothing else (`bench-minimal`): what confinement alone costs. On both
//!   sides everything that can be prepared is prepared.
//!
//! Of both, `sustained` is the time that each of many starts takes that follow one another without a
//! pause, with the end of the one before: what the launcher makes between two starts, and what the
//! kernel takes down after them, is in it.
#![forbid(unsafe_code)]

use anyhow::{Context as _, Result, ensure};
use ipc_proto::settings::{RoleSettings, RunSettings};
use mono_tests::bench::bubblewrap::{self, Wrapping};
use mono_tests::bench::{Bed, Figure, Samples, Started, report};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Starts of each kind that count.
const ROUNDS: usize = 60;
/// Starts of each kind before.
const WARM_UP: usize = 5;
/// Milliseconds after which a start has failed.
const PATIENCE: u16 = 20_000;
/// Before each start: the kernel takes namespaces down after their process has ended, which would
/// weigh on the next one.
const PAUSE: Duration = Duration::from_millis(20);
/// What is aimed at beside bubblewrap, with the worker and with the program that does nothing.
const BESIDE_BWRAP: f64 = 0.4;
/// Starts in one go without a pause.
const IN_A_ROW: u32 = 20;
/// How often each way has such a go.
const GOES: usize = 9;

fn main() -> ExitCode {
    report(measure())
}

/// The three ways to start one program, and the times of each.
struct Ways<'a> {
    bed: &'a Bed,
    program: OwnedFd,
    wrapping: Option<(OwnedFd, Wrapping)>,
    plain: Samples,
    confined: Samples,
    wrapped: Samples,
}

impl<'a> Ways<'a> {
    fn of(bed: &'a Bed, program: &str) -> Result<Self> {
        let path = mono_tests::daemon::programs().join(program);
        let wrapping = match bubblewrap::installed() {
            Some(bwrap) => Some((
                File::open(bwrap)?.into(),
                Wrapping::of(&bed.run_launch()?, Path::new(&path))?,
            )),
            None => None,
        };
        Ok(Self {
            bed,
            program: bed.program(program)?,
            wrapping,
            plain: Samples::new(),
            confined: Samples::new(),
            wrapped: Samples::new(),
        })
    }

    /// Times one start plainly and one by bubblewrap.
    fn others(&mut self) -> Result<()> {
        let name: [CString; 1] = [c"run".into()];
        let start = || self.bed.plain(&self.program, &name, &[]);
        first_byte(&mut self.plain, start)?;
        if let Some((bwrap, wrapping)) = &self.wrapping {
            let contents = wrapping.contents()?;
            let start = || self.bed.plain(bwrap, &wrapping.arguments, &contents);
            first_byte(&mut self.wrapped, start)?;
        }
        Ok(())
    }

    fn forget(&mut self) {
        for samples in [&mut self.plain, &mut self.confined, &mut self.wrapped] {
            *samples = Samples::new();
        }
    }

    fn beside_bwrap(&self) -> f64 {
        self.confined.median() / self.wrapped.median()
    }
}

fn measure() -> Result<Figure> {
    let bed = Bed::new()?;
    let settings = RoleSettings::Run(RunSettings {
        workspace: bed.at("workspace").to_string_lossy().into_owned(),
        scratch: "/scratch".to_owned(),
        allowed_tools: None,
        disallowed_tools: Vec::new(),
        max_turns: None,
        model: "demo:scripted".to_owned(),
        skill_max_bytes: 48_000,
        skill_index: false,
        app_endpoint: false,
        claim_servers: Vec::new(),
        accompanies: false,
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut worker = Ways::of(&bed, "mono-run")?;
    let mut minimal = Ways::of(&bed, "bench-minimal")?;
    let (mut ready, mut unprepared) = (Samples::new(), Samples::new());
    for round in 0..WARM_UP + ROUNDS {
        if round == WARM_UP {
            worker.forget();
            minimal.forget();
            ready = Samples::new();
            unprepared = Samples::new();
        }
        bed.prepare_ahead()?;
        std::thread::sleep(PAUSE);
        let start = Instant::now();
        runtime.block_on(async {
            let mut started = bed.run_worker()?;
            started.hello().await?;
            worker.confined.push(start.elapsed());
            started.welcome(&settings, bed.run_descriptors()?).await?;
            ready.push(start.elapsed());
            anyhow::Ok(())
        })?;
        worker.others()?;
        first_byte(&mut unprepared, || {
            bed.confined(&bed.run_launch()?, &worker.program)
        })?;
        let launch = bed.run_launch()?;
        let start = || bed.confined(&launch, &minimal.program);
        first_byte(&mut minimal.confined, start)?;
        minimal.others()?;
    }
    let ms = |samples: &Samples| samples.median() * 1e3;
    let rows = |ways| anyhow::Ok((ways, sustained(&bed, ways)?));
    let both = [rows(&minimal)?, rows(&worker)?];
    let [alone, figure] = both.map(|(ways, (confined, wrapped))| {
        let figure =
            Figure::of("ms", 1e3, &ways.confined, &ways.plain).with("sustained", ms(&confined));
        match ways.wrapping {
            Some(_) => figure
                .with("bwrap", ms(&ways.wrapped))
                .with("ratio_to_bwrap", ways.beside_bwrap())
                .with("bwrap_sustained", ms(&wrapped))
                .with(
                    "sustained_ratio_to_bwrap",
                    confined.median() / wrapped.median(),
                ),
            None => figure,
        }
    });
    let figure = figure
        .with("ready", ms(&ready))
        .with("unprepared", ms(&unprepared));
    let figure = if worker.wrapping.is_some() {
        let first = unprepared.median() / worker.wrapped.median();
        let ratios = [worker.beside_bwrap(), minimal.beside_bwrap()];
        let met = ratios.iter().all(|ratio| *ratio <= BESIDE_BWRAP);
        figure
            .with("bwrap_spread", worker.wrapped.spread(1e3))
            .with("unprepared_ratio_to_bwrap", first)
            .with("met_beside_bwrap", met)
    } else {
        figure.with("bwrap", "not installed")
    };
    Ok(figure.with("minimal", alone.json()))
}

/// Starts of a program that follow one another at once, each until its first byte and its end:
/// confined, and by bubblewrap where that is installed.
fn sustained(bed: &Bed, ways: &Ways<'_>) -> Result<(Samples, Samples)> {
    let (mut confined, mut wrapped) = (Samples::new(), Samples::new());
    let mut launches = Vec::new();
    for _ in 0..IN_A_ROW {
        launches.push(bed.run_launch()?);
    }
    for _ in 0..GOES {
        std::thread::sleep(PAUSE);
        let begin = Instant::now();
        for launch in &launches {
            said(bed.confined(launch, &ways.program)?)?;
        }
        confined.push(begin.elapsed() / IN_A_ROW);
        let Some((bwrap, wrapping)) = &ways.wrapping else {
            continue;
        };
        std::thread::sleep(PAUSE);
        let begin = Instant::now();
        for _ in 0..IN_A_ROW {
            said(bed.plain(bwrap, &wrapping.arguments, &wrapping.contents()?)?)?;
        }
        wrapped.push(begin.elapsed() / IN_A_ROW);
    }
    Ok((confined, wrapped))
}

/// Times a program from its start to the first byte on its control channel, and ends it.
fn first_byte(samples: &mut Samples, start: impl FnOnce() -> Result<Started>) -> Result<()> {
    std::thread::sleep(PAUSE);
    let _started = samples.time(|| said(start()?))?;
    Ok(())
}

/// Waits for the first byte of a program.
fn said(started: Started) -> Result<Started> {
    let channel = started.channel.as_ref().context("its channel")?;
    let mut wanted = [PollFd::new(channel.as_fd(), PollFlags::POLLIN)];
    poll(&mut wanted, PollTimeout::from(PATIENCE))?;
    let came = wanted[0].revents().is_some_and(|events| {
        events.contains(PollFlags::POLLIN) && !events.contains(PollFlags::POLLHUP)
    });
    ensure!(came, "a started program said nothing");
    Ok(started)
}
