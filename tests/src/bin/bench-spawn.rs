//! `bench-spawn`: from the start of a run worker to its readiness, with its namespaces, its own
//! view of the file system, both filters and all probes; beside the plain start of the same binary
//! to its first byte, and beside bubblewrap where it is installed.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, ensure};
use ipc_proto::settings::{RoleSettings, RunSettings};
use mono_sys::process::{pidfd_signal, wait};
use mono_tests::bench::{Bed, Figure, Samples, report};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Starts of each kind that count.
const ROUNDS: usize = 60;
/// Starts of each kind before.
const WARM_UP: usize = 5;
/// Milliseconds after which a start has failed.
const PATIENCE: u16 = 20_000;

fn main() -> ExitCode {
    report(measure())
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
    });
    let program = bed.program("mono-run")?;
    let path = mono_tests::daemon::programs().join("mono-run");
    let bubblewrap = on_path("bwrap");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let [mut ready, mut hello, mut plain, mut wrapped] = [const { Samples::new() }; 4];
    for round in 0..WARM_UP + ROUNDS {
        if round == WARM_UP {
            for samples in [&mut ready, &mut hello, &mut plain, &mut wrapped] {
                *samples = Samples::new();
            }
        }
        let start = Instant::now();
        runtime.block_on(async {
            let mut worker = bed.run_worker()?;
            worker.hello().await?;
            hello.push(start.elapsed());
            worker.welcome(&settings, bed.run_descriptors()?).await?;
            ready.push(start.elapsed());
            anyhow::Ok(())
        })?;
        plain.time(|| first_byte(&bed, &program, &["mono-run"]))?;
        if let Some(bwrap) = &bubblewrap {
            let exe = std::fs::File::open(bwrap)?.into();
            let arguments = wrapping(&path)?;
            wrapped.time(|| first_byte(&bed, &exe, &arguments))?;
        }
    }
    let figure = Figure::of("ms", 1e3, &ready, &plain).with("hello", hello.median() * 1e3);
    Ok(match bubblewrap {
        Some(_) => figure
            .with("bwrap", wrapped.median() * 1e3)
            .with("ratio_to_bwrap", ready.median() / wrapped.median())
            .with("met_beside_bwrap", ready.median() <= 0.5 * wrapped.median()),
        None => figure.with("bwrap", "not installed"),
    })
}

/// Starts a program and ends it at its first byte on its control channel.
fn first_byte(bed: &Bed, program: &OwnedFd, arguments: &[&str]) -> Result<()> {
    let (child, channel) = bed.plain(program, arguments)?;
    let mut wanted = [PollFd::new(channel.as_fd(), PollFlags::POLLIN)];
    let came = poll(&mut wanted, PollTimeout::from(PATIENCE))?;
    let readable = wanted[0].revents().is_some_and(|events| {
        events.contains(PollFlags::POLLIN) && !events.contains(PollFlags::POLLHUP)
    });
    pidfd_signal(&child.pidfd, 9)?;
    wait(&child.pidfd)?;
    ensure!(came == 1 && readable, "{} said nothing", arguments[0]);
    Ok(())
}

/// What comes nearest to the run worker's profile.
fn wrapping(program: &Path) -> Result<Vec<&str>> {
    let program = program.to_str().context("the program's path is no text")?;
    Ok(vec![
        "bwrap",
        "--unshare-all",
        "--die-with-parent",
        "--new-session",
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
        "--ro-bind",
        program,
        "/tmp/mono-run",
        "--",
        "/tmp/mono-run",
    ])
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}
