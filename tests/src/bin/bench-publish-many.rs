//! `bench-publish-many`: 1,000 files of 10 KiB, published and finalised by the artifact worker
//! under its profile, by runs of 20; beside copying, syncing and renaming each in one loop.
//!
//! The loop makes no hash, no manifest, no check of where the file comes from, and syncs no
//! folder: after a power cut its files may be there under no name. Both go in turns of one run.
#![forbid(unsafe_code)]

use anyhow::{Result, bail};
use ipc_proto::edges::artifact::{Reply, Request, Root};
use ipc_proto::reply::MAX_PARTS;
use mono_tests::bench::{ArtifactWorker, Bed, Figure, Samples, report};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Files in all.
const FILES: usize = 1_000;
/// Bytes of each.
const SIZE: usize = 10 * 1024;
/// Runs before those that count.
const WARM_UP: usize = 2;
/// No publication takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    report(measure())
}

fn measure() -> Result<Figure> {
    let bed = Bed::new()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (mut published, mut looped) = (Samples::new(), Samples::new());
    runtime.block_on(async {
        let worker = bed.serving_artifact_worker(50_000).await?;
        fs::create_dir(bed.at("copies"))?;
        let unused = &mut Samples::new();
        for run in 0..WARM_UP + FILES / MAX_PARTS {
            // No two files are the same: equal ones would be published once.
            for file in 0..MAX_PARTS {
                let number = (run * MAX_PARTS + file) as u64;
                let bytes: Vec<u8> = (0_u64..)
                    .flat_map(|n| {
                        (n ^ (number << 32))
                            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                            .to_le_bytes()
                    })
                    .take(SIZE)
                    .collect();
                fs::write(bed.at(&format!("workspace/{file}.bin")), bytes)?;
            }
            let counts = run >= WARM_UP;
            let samples = if counts { &mut published } else { &mut *unused };
            publish(&worker, run as u64, &bed.at("workspace"), samples).await?;
            let samples = if counts { &mut looped } else { &mut *unused };
            samples.time(|| one_loop(run, &bed.at("workspace"), &bed.at("copies")))?;
        }
        anyhow::Ok(())
    })?;
    let files = published.count() * MAX_PARTS;
    Ok(Figure::of("ms", 1e3, &published, &looped)
        .with("files", files)
        .with("files_in_one_sample", MAX_PARTS)
        .with("measured_through", "the artifact worker under its profile"))
}

/// One run: each file as the model asks for it, then the end.
async fn publish(
    worker: &ArtifactWorker,
    number: u64,
    sources: &Path,
    samples: &mut Samples,
) -> Result<()> {
    let client = worker.run(number).await?;
    let start = std::time::Instant::now();
    for file in 0..MAX_PARTS {
        let name = format!("{file}.bin");
        let source: OwnedFd = File::open(sources.join(&name))?.into();
        let request = Request::Publish {
            root: Root::Workspace,
            path: name,
            name: None,
            media_type: None,
        };
        match client.call(&request, &[source], PATIENCE).await?.0 {
            Reply::Published { .. } => {}
            other => bail!("not published: {other:?}"),
        }
    }
    match client.call(&Request::Finalise, &[], PATIENCE).await?.0 {
        Reply::Finalised { .. } => samples.push(start.elapsed()),
        other => bail!("not finalised: {other:?}"),
    }
    Ok(())
}

fn one_loop(run: usize, sources: &Path, copies: &Path) -> std::io::Result<()> {
    for file in 0..MAX_PARTS {
        let mut bytes = Vec::with_capacity(SIZE);
        File::open(sources.join(format!("{file}.bin")))?.read_to_end(&mut bytes)?;
        let new = copies.join("new");
        let mut copy = File::create(&new)?;
        copy.write_all(&bytes)?;
        copy.sync_all()?;
        fs::rename(new, copies.join(format!("{run}-{file}.bin")))?;
    }
    Ok(())
}
